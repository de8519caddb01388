"""Every evaluation that there is, for every input: answers that no probability is involved in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from smoothcert.errors import InputError
from smoothcert.noise import evaluations_of
from smoothcert.noise.splitting import required_levels
from smoothcert.questions.inquiry import Estimation, Inquiry, Rows, Votes
from smoothcert.questions.verdicts import judge_tallies
from smoothcert.records import AnyTally, CertifiedPoint, Smoothing, Stage, Tally, Verdict, merge
from smoothcert.settings_text import real_number
from smoothcert.spec import EveryEvaluation, QuestionSpec, make_question

if TYPE_CHECKING:  # recertifying imports neither sampling nor models
    from smoothcert.sampling.drawing import Drawing


_NOT_ASKED: dict[str, Any] = {"n": 100_000, "n0": 100, "alpha": 0.001, "decide": None, "precision": None}
"""The defaults of settings about samples, which say nothing."""


def read_question(*, alpha: float, **asked: Any) -> tuple[QuestionSpec, float]:
    """The question of a call under noise that is sampled, and its α. asked: as in `make_question`."""
    return make_question(**asked), real_number(alpha, name="alpha")


def every_evaluation(count: int, /, **asked: Any) -> tuple[QuestionSpec, float]:
    """The question of a call where nothing is sampled, and its α, 0. Settings about samples are refused.

    count: the evaluations of an input, or the most that one may take.
    """
    for name, value in asked.items():
        if value != _NOT_ASKED[name] and not (name == "n0" and value == 0):
            raise InputError(refuse_setting(name))
    return EveryEvaluation(n=count), 0.0


def count_evaluations(sigma: float, smoothing: Smoothing) -> int:
    """The evaluations that an input takes at this level."""
    return evaluations_of(sigma, levels=required_levels(smoothing.grid))


def refuse_setting(name: str) -> str:
    """Why a setting about samples cannot be given."""
    return (
        f"{name} is about samples, and splitting has none: all evaluations that there are, are made, and the result is "
        f"certain. Leave {name} out; sigma or the number of evaluations decides what it costs"
    )


@dataclass(frozen=True, slots=True)
class EveryEvaluationInquiry(Inquiry):
    """Certificates from the counts of all evaluations. The class is the one with most votes, the lowest one in a tie.

    The same votes decide and prove: nothing is sampled, so nothing is chosen by chance.
    """

    @property
    def inputs_together(self) -> None:
        return None

    @property
    def least_samples(self) -> int:
        return self.n

    def select(self, drawing: Drawing, rows: Rows) -> dict[int, Tally]:
        return {}

    def deciding_votes(self, item: Votes) -> Tally:
        votes = merge(item.estimation).independent_votes()
        wanted = self._count(votes.sigma)
        if votes.ranges != ((0, wanted),):
            raise InputError(f"input {item.index} has {votes.n} evaluations, and there are {wanted}: all are needed")
        return votes

    def estimate(
        self, drawing: Drawing, shards: Sequence[Rows], selection: Mapping[int, Tally]
    ) -> Iterator[tuple[Rows, Estimation]]:
        from smoothcert.sampling.drawing import Draws

        jobs = (
            Draws(stage=Stage.ESTIMATION, ranges={row: [(0, self._count(drawing.sigmas[row]))] for row in rows})
            for rows in shards
        )
        for rows, tallies in zip(shards, drawing.each(jobs), strict=True):
            yield rows, {row: tuple(tallies[row]) for row in rows}

    def cut(self, estimation: tuple[AnyTally, ...], *, n: int) -> tuple[AnyTally, ...]:
        raise InputError("every evaluation is needed: n cannot be changed")

    def check_stored(self, point: CertifiedPoint) -> None:
        if all(tally.stream.stage is not Stage.ESTIMATION for tally in point.tallies):
            raise InputError(f"input {point.index} has no stored votes to certify: it comes from a prediction run")

    def check_level(self, sigma: float) -> None:
        self._count(sigma)

    def _count(self, sigma: float) -> int:
        """The number of evaluations at this level."""
        evaluations = count_evaluations(sigma, self.smoothing)
        if evaluations > self.n:
            raise InputError(f"sigma={sigma:g} makes {evaluations} evaluations, and at most {self.n} are allowed")
        return evaluations

    def _judge(self, votes: Sequence[Votes], labels: Sequence[int]) -> list[list[Verdict]]:
        totals = [merge(item.estimation) for item in votes]
        return judge_tallies(totals, labels, self.portfolio, alpha=self.alpha, smoothing=self.smoothing)
