"""A fixed number of samples for every input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from smoothcert.errors import InputError
from smoothcert.questions.inquiry import Estimation, Inquiry, Rows, Votes
from smoothcert.questions.verdicts import judge_tallies
from smoothcert.records import AnyTally, CertifiedPoint, Stage, Tally, TallyKind, Verdict, merge
from smoothcert.records.score_cells import SCORE_CELLS
from smoothcert.statistics import alpha_after_noise, first_samples, noise_price, plurality

if TYPE_CHECKING:  # recertifying imports neither sampling nor models
    from smoothcert.sampling.drawing import Drawing, Draws

_MOST_PAIRS_OF_SUMS = 8_000_000
"""Pairs of sums, or of counts of scores, that a worker holds at once: 128 MB."""


@dataclass(frozen=True, slots=True)
class FixedNInquiry(Inquiry):
    """Certificates over one kind of tally, each alone at α, or the best of them together at α."""

    @property
    def inputs_together(self) -> None:
        return None

    @property
    def least_samples(self) -> int:
        return self.n

    def check_stored(self, point: CertifiedPoint) -> None:
        if all(tally.stream.stage is not Stage.ESTIMATION for tally in point.tallies):
            raise InputError(f"input {point.index} has no stored votes to certify: it comes from a prediction run")
        if point.bounds is not None and any(proof.anytime for proof in point.bounds.spent):
            raise InputError(
                f"input {point.index} was sampled until its votes answered a question: bounds for a fixed number of "
                "samples do not hold for them"
            )

    def check_level(self, sigma: float) -> None:
        alpha_after_noise(self.alpha, noise_price(self.smoothing, draws=self.n, sigma=sigma))

    def estimate(
        self, drawing: Drawing, shards: Sequence[Rows], selection: Mapping[int, Tally]
    ) -> Iterator[tuple[Rows, Estimation]]:
        drawn = drawing.each(self._draws(rows, selection) for rows in shards)
        for rows in shards:
            yield rows, {row: tuple(tallies) for row, tallies in next(drawn).items()}

    def _draws(self, rows: Rows, selection: Mapping[int, Tally]) -> Draws:
        from smoothcert.sampling import segments
        from smoothcert.sampling.drawing import Draws

        kind = self.portfolio.tally
        groups: dict[int, tuple[int, ...]] = {}
        winners: dict[int, int] = {}
        if kind is TallyKind.GRADIENTS:
            groups = {row: self._gradient_groups(selection[row]) for row in rows}
        if kind is TallyKind.SCORES:
            winners = {row: plurality(selection[row]) or 0 for row in rows}
        ranges = dict.fromkeys(rows, segments(self.n, kind))
        return Draws(stage=Stage.ESTIMATION, ranges=ranges, kind=kind, groups=groups, winners=winners)

    def _gradient_groups(self, selection: Tally) -> tuple[int, ...]:
        """Each class alone if the gradients of all are needed; otherwise the winner against all others."""
        places = range(selection.num_classes + 1)
        if self.portfolio.every_class:
            return tuple(places)
        winner = plurality(selection) or 0
        return tuple(0 if place == winner else 1 for place in places)

    def most_inputs(self) -> int | None:
        """How many inputs fit into memory at once; None if nothing large is kept.

        Sums of gradients take 16 bytes per group of classes, coordinate and segment; cells of scores 16 bytes each per
        segment. If not even one input fits, an InputError.
        """
        from smoothcert.sampling import segments

        kind = self.portfolio.tally
        if kind is TallyKind.SCORES:
            return max(1, _MOST_PAIRS_OF_SUMS // (SCORE_CELLS * len(segments(self.n, kind))))
        if kind is not TallyKind.GRADIENTS:
            return None
        assert self.smoothing.dimension is not None
        assert self.smoothing.num_classes is not None
        size = self.smoothing.dimension
        groups = self.smoothing.num_classes + 1 if self.portfolio.every_class else 2
        room = _MOST_PAIRS_OF_SUMS // (groups * size * len(segments(self.n, kind)))
        if room < 1:
            smaller = "second-order, which needs that of one class only, or " if self.portfolio.every_class else ""
            raise InputError(
                f"{self.portfolio} needs the gradients of {groups} groups of classes in {size} dimensions, which takes "
                f"too much memory; use {smaller}dipole, which needs none"
            )
        return room

    def cut(self, estimation: tuple[AnyTally, ...], *, n: int) -> tuple[AnyTally, ...]:
        return (first_samples(estimation, n),)

    def _judge(self, votes: Sequence[Votes], labels: Sequence[int]) -> list[list[Verdict]]:
        totals = [merge(item.estimation) for item in votes]
        verdicts: list[list[Verdict]] = [[] for _ in votes]
        for choice in self.portfolio.alternatives():
            judged = judge_tallies(totals, labels, choice, alpha=self.alpha, smoothing=self.smoothing)
            for own, found in zip(verdicts, judged, strict=True):
                own.extend(found)
        return verdicts
