"""Attacking a selected run: its selector and its levels, and what fresh samples of both prove."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from smoothcert.attacks.attack_record import Fate, FreshVerdict, StageVotes
from smoothcert.attacks.attack_verdicts import judge_votes, prediction_of
from smoothcert.questions import check_predict_is_possible
from smoothcert.questions.selected_points import possible_levels
from smoothcert.records import CertifiedPoint, FloatArray, InputArray, Tally
from smoothcert.runs.selected_reopening import OpenedPart, OpenedSelection
from smoothcert.sampling.sampler import Progress
from smoothcert.statistics import alpha_after_noise, plurality, price_of


@dataclass(frozen=True, slots=True)
class AttackedSelection:
    """The classifier G of a selected run.

    A check spends half of its level on the selector, and the other half on the levels. The half of the levels need not
    be shared: a change is reported only if every level that may be selected answers another class, so it is wrong only
    if the level that is really selected was left out, or if its own answer is wrong.
    """

    opened: OpenedSelection

    @property
    def description(self) -> str:
        parts = [("selector", self.opened.selector), *((part.name, part) for part in self.opened.levels)]
        return "; ".join(f"{name}: {part.smoothed.classifier.description}" for name, part in parts)

    @property
    def batch(self) -> int:
        return self.opened.selector.smoothed.known_batch()

    @property
    def workers(self) -> int | None:
        return self.opened.selector.smoothed.workers

    @property
    def remembers(self) -> bool:
        return False

    def check_inputs(self, inputs: InputArray) -> InputArray:
        return self.opened.selector.smoothed.check_inputs(inputs)

    def find_sigmas(self, inputs: InputArray, points: Sequence[CertifiedPoint]) -> FloatArray:
        return np.full(len(points), np.nan)

    def check_samples(self, n: int, *, level: float) -> None:
        """The selector is tested against each other level, at a share of its half."""
        check_predict_is_possible(n=n, alpha=level / 2 / max(1, len(self.opened.levels) - 1))

    def count_samples(self, n: int) -> int:
        return n * len(self.opened.parts)

    def judge(
        self,
        points: InputArray,
        group: Sequence[CertifiedPoint],
        *,
        seed: int,
        n: int,
        level: float,
        progress: Progress | None,
    ) -> list[FreshVerdict]:
        rows = list(range(len(points)))
        votes = _predict(self.opened.selector, points, group, rows, seed=seed, n=n, level=level / 2)
        possible = [possible_levels(votes[row].votes, alpha=votes[row].level) for row in rows]
        answers: list[dict[int, _FreshVotes]] = [{} for _ in rows]
        for number, part in enumerate(self.opened.levels):
            own = [row for row in rows if number in possible[row]]
            for row, found in _predict(part, points, group, own, seed=seed, n=n, level=level / 2).items():
                answers[row][number] = found
        if progress is not None:
            progress(len(rows) * self.count_samples(n))
        return [_combine_verdicts(prediction_of(group[row]), votes[row], answers[row]) for row in rows]


@dataclass(frozen=True, slots=True)
class _FreshVotes:
    """A prediction of one part. level: at which it may be tested, after the price of the noise."""

    part: str
    point: CertifiedPoint
    level: float

    @property
    def votes(self) -> Tally:
        return self.point.tallies[0].independent_votes()

    @property
    def record(self) -> StageVotes:
        votes = self.votes
        counts = tuple(int(count) for count in votes.counts)
        return StageVotes(part=self.part, sigma=votes.sigma, counts=counts, invalid=votes.invalid)


def _predict(
    part: OpenedPart,
    points: InputArray,
    group: Sequence[CertifiedPoint],
    rows: Sequence[int],
    *,
    seed: int,
    n: int,
    level: float,
) -> dict[int, _FreshVotes]:
    """The votes of a part at these rows. Each part has a stream of its own."""
    if not rows:
        return {}
    smoothed = part.smoothed.derive(seed=_derive_stream(seed, part.name))
    indices = [group[row].index for row in rows]
    found = smoothed.predict(points[list(rows)], n=n, alpha=level, indices=indices, progress=False)
    smoothing = smoothed.prediction(n=n, alpha=level)
    return {
        row: _FreshVotes(part.name, point, alpha_after_noise(level, price_of(point.tallies[0], smoothing)))
        for row, point in zip(rows, found, strict=True)
    }


def _derive_stream(seed: int, part: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {part}".encode()).digest()[:8])


def _combine_verdicts(prediction: int, selector: _FreshVotes, levels: dict[int, _FreshVotes]) -> FreshVerdict:
    """CHANGED if every level that may be selected provably answers another class; UNCHANGED if all answer this one."""
    stages = (selector.record, *(found.record for found in levels.values()))
    samples = sum(sum(stage.counts) + stage.invalid for stage in stages)
    verdicts = {number: judge_votes(prediction, found.point, level=found.level) for number, found in levels.items()}
    leading = plurality(selector.votes)
    if leading is None:
        # Most samples of the selector gave no finite answer: no level is proved to be selected.
        return FreshVerdict(
            prediction=prediction, fate=Fate.ABSTAINED, answer=None, leads=False, samples=samples,
            sigma=None, counts=None, invalid=0, p_value=None, stages=stages,
        )  # fmt: skip
    fates = {verdict.fate for verdict in verdicts.values()}
    own = verdicts[leading]
    proved = len(fates) == 1
    return replace(
        own,
        fate=fates.pop() if proved else Fate.ABSTAINED,
        answer=own.answer if proved else None,
        samples=samples,
        stages=stages,
    )
