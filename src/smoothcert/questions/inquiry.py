"""A question with everything its answer depends on besides the votes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from smoothcert.certificates import Portfolio
from smoothcert.errors import InputError
from smoothcert.questions.feasibility import check_question
from smoothcert.questions.smoothing_setup import check_levels
from smoothcert.questions.verdicts import make_failed_verdict
from smoothcert.records import AnyTally, CertifiedPoint, Proof, Smoothing, Stage, Tally, Verdict
from smoothcert.spec import Decide, EveryEvaluation, FixedN, Precision, QuestionSpec
from smoothcert.statistics import plurality, split_alpha

if TYPE_CHECKING:  # recertifying imports neither sampling nor models
    from smoothcert.sampling.drawing import Drawing

Rows = Sequence[int]
Estimation = Mapping[int, tuple[AnyTally, ...]]


@dataclass(frozen=True, slots=True)
class Votes:
    """What was counted for one input: the votes that selected the class, and the tallies that prove it, in segments.

    selection: None where nothing is sampled, so that nothing has to be selected before.
    """

    index: int
    label: int | None
    selection: Tally | None
    estimation: tuple[AnyTally, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Inquiry(ABC):
    """CERTIFY (Cohen et al. 2019, C.2) for one question, vectorised over inputs.

    The class comes from the selection votes alone; every bound comes from the estimation samples alone, at a total
    error probability of α per input. n0, n: selection and estimation samples of an input; n is the most it takes.
    smoothing: what the theorems must know about the smoothed classifier.
    """

    portfolio: Portfolio
    smoothing: Smoothing
    n: int
    n0: int
    alpha: float

    def answer(self, votes: Sequence[Votes]) -> list[CertifiedPoint]:
        """The points of these votes. An input whose selection votes give no class has FAILED."""
        self.portfolio.check_suits(self.smoothing)
        deciding = [self.deciding_votes(item) for item in votes]
        check_levels([tally.sigma for tally in deciding], self.smoothing)
        chosen = {row: label for row, tally in enumerate(deciding) if (label := plurality(tally)) is not None}
        found = self._judge([votes[row] for row in chosen], list(chosen.values())) if chosen else []
        verdicts = dict(zip(chosen, found, strict=True))
        return [
            self._make_point(item, tally, verdicts.get(row, []))
            for row, (item, tally) in enumerate(zip(votes, deciding, strict=True))
        ]

    def _make_point(self, item: Votes, deciding: Tally, verdicts: Sequence[Verdict]) -> CertifiedPoint:
        first, *further = verdicts or [make_failed_verdict(deciding, one) for one in self.portfolio.certificates]
        return CertifiedPoint(
            index=item.index,
            label=item.label,
            verdict=first,
            sigma=deciding.sigma,
            tallies=item.estimation if item.selection is None else (item.selection, *item.estimation),
            seconds=item.seconds,
            further=tuple(further),
            grid=self.smoothing.grid,
            scale=self.smoothing.scale,
            dtype=self.smoothing.dtype,
        )

    def select(self, drawing: Drawing, rows: Rows) -> dict[int, Tally]:
        """Draw the votes that select the class, by row."""
        return drawing.votes(Stage.SELECTION, rows, n=self.n0)

    def deciding_votes(self, item: Votes) -> Tally:
        """The votes whose leading class is the answer."""
        assert item.selection is not None
        return item.selection

    @property
    @abstractmethod
    def inputs_together(self) -> int | None:
        """How many inputs are sampled together, from selection to answer; None if that depends on the batch size."""

    @property
    @abstractmethod
    def least_samples(self) -> int:
        """Estimation samples that every input takes at least."""

    def most_inputs(self) -> int | None:
        """How many inputs may share a shard, so that their tallies fit into memory; None for any number."""
        return None

    @abstractmethod
    def estimate(
        self, drawing: Drawing, shards: Sequence[Rows], selection: Mapping[int, Tally]
    ) -> Iterator[tuple[Rows, Estimation]]:
        """Draw the estimation samples of the rows, shard by shard. selection: by row."""

    @abstractmethod
    def cut(self, estimation: tuple[AnyTally, ...], *, n: int) -> tuple[AnyTally, ...]:
        """The tallies of the first n samples."""

    def check_stored(self, point: CertifiedPoint) -> None:  # noqa: B027  (most questions can be asked of any votes)
        """Refuse a stored point whose votes this question must not be asked about."""

    @abstractmethod
    def check_level(self, sigma: float) -> None:
        """Refuse a noise level at which no input could get an answer."""

    @abstractmethod
    def _judge(self, votes: Sequence[Votes], labels: Sequence[int]) -> list[list[Verdict]]:
        """The verdicts of every input, the point's own first. labels: the selected classes."""


def make_inquiry(
    question: QuestionSpec, portfolio: Portfolio, *, alpha: float, smoothing: Smoothing, sigma: float | None = None
) -> Inquiry:
    """The question about this smoothed classifier; an InputError if no input could get an answer.

    sigma: the noise level, if it is the same for all inputs.
    """
    check_question(question, portfolio, alpha=alpha, num_classes=smoothing.num_classes or 2)
    portfolio.check_suits(smoothing)
    inquiry = _of_kind(question, portfolio, alpha=alpha, smoothing=smoothing)
    if sigma is not None:
        inquiry.check_level(sigma)
    return inquiry


def _of_kind(question: QuestionSpec, portfolio: Portfolio, *, alpha: float, smoothing: Smoothing) -> Inquiry:
    from smoothcert.questions.every_evaluation import EveryEvaluationInquiry
    from smoothcert.questions.fixed_n import FixedNInquiry
    from smoothcert.questions.sequential import DecideInquiry, PrecisionInquiry

    match question:
        case FixedN():
            return FixedNInquiry(portfolio, smoothing, question.n, question.n0, alpha)
        case Decide():
            return DecideInquiry(portfolio, smoothing, question.n, question.n0, alpha, question.radii)
        case Precision():
            return PrecisionInquiry(portfolio, smoothing, question.n, question.n0, alpha, question.width)
        case EveryEvaluation():
            return EveryEvaluationInquiry(portfolio, smoothing, question.n, question.n0, alpha)
        case _:
            assert_never(question)


def proof_of(question: QuestionSpec) -> Proof | None:
    """The anytime-valid proof that answers an adaptive question; None for any other."""
    match question:
        case FixedN() | EveryEvaluation():
            return None
        case Decide():
            return Proof.TOP_DECIDED
        case Precision():
            return Proof.TOP_SEQUENCE
        case _:
            assert_never(question)


def split_alpha_of(question: QuestionSpec, portfolio: Portfolio, *, alpha: float) -> dict[str, dict[str, float]]:
    """The share of α of each proof, by the certificates that are bounded together.

    Noise on a grid takes its price (`noise_price`, next to nothing) from α before it is split.
    """
    if (proof := proof_of(question)) is not None:
        return {str(portfolio): {proof.value: alpha}}
    return {
        str(choice): {proof.value: share for proof, share in split_alpha(alpha, choice.proofs).items()}
        for choice in portfolio.alternatives()
    }


def stored_votes(point: CertifiedPoint, inquiry: Inquiry, *, n: int | None = None) -> Votes:
    """The votes of a stored point, or those of its first n samples."""
    selection = point.tally(Stage.SELECTION)
    estimation = tuple(tally for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION)
    if not (isinstance(selection, Tally) if inquiry.smoothing.noise.sampled else estimation):
        raise InputError(f"input {point.index} has no stored votes to certify: it comes from a prediction run")
    assert selection is None or isinstance(selection, Tally)
    inquiry.check_stored(point)
    if n is not None:
        estimation = inquiry.cut(estimation, n=n)
    return Votes(
        index=point.index, label=point.label, selection=selection, estimation=estimation, seconds=point.seconds
    )
