"""The search for points at which a classifier under splitting changes its answer: greedy, in steps of the grid.

A step of one coordinate changes at most one evaluation. So a move costs as many evaluations as it has steps, and what
it does to the votes is known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from smoothcert.attacks.attack_search import StrongestPoints
from smoothcert.attacks.attack_settings import CERTIFIED, AttackSettings, GradientSource
from smoothcert.certificates import splitting_l1_radius
from smoothcert.models.base import BaseClassifier
from smoothcert.models.scores import gives_scores
from smoothcert.noise import draw_offsets, evaluations_of, from_grid, to_grid
from smoothcert.noise.splitting import Whole, split_with_numpy
from smoothcert.records import FloatArray, InputArray, IntArray, Norm
from smoothcert.sampling.sampler import Progress
from smoothcert.statistics import smallest_lead


@dataclass(frozen=True, slots=True)
class SplitSearch:
    """Moves from the input to points on the grid within [0, 1], one coordinate at a time.

    In each of `settings.steps` rounds, `settings.draws` random moves are tried: one coordinate up or down, as far as
    spends the rest of the radius evenly on the rounds that are left. The one that takes most of the lead of the answer
    is made, if any does; where none changes a vote, the one that lowers the scores of the answer most. batch: rows
    classified at once. seed: of the offsets. closed: whether certificates are used up to their radius; those of a
    memory are not, which measures distances of float32 numbers.
    """

    settings: AttackSettings
    classifier: BaseClassifier
    levels: int
    seed: int
    batch: int
    closed: bool

    @property
    def norm(self) -> Norm:
        return Norm.L1

    @property
    def objective(self) -> str:
        return "lead"

    @property
    def source(self) -> str:
        return (GradientSource.SCORES if gives_scores(self.classifier) else GradientSource.VOTES).value

    @property
    def most_workers(self) -> int | None:
        return self.classifier.concurrency

    @property
    def samples_per_input(self) -> int:
        """Moves tried for one input and radius."""
        return self.settings.restarts * self.settings.steps * self.settings.draws

    def limit(self, radius: str, *, certified: float) -> float:
        return certified if radius == CERTIFIED and self.closed else AttackSettings.limit(radius, certified=certified)

    def measure(self, points: InputArray, inputs: InputArray) -> FloatArray:
        """(B,): the distances by steps of the grid, rounded down like certified radii."""
        steps = np.abs(to_grid(points, self.levels).astype(np.int64) - to_grid(inputs, self.levels))
        return splitting_l1_radius(steps.reshape(len(points), -1).sum(axis=1), levels=self.levels)

    def find_points(
        self,
        inputs: InputArray,
        predictions: IntArray,
        *,
        sigmas: FloatArray,
        limits: FloatArray,
        seed: int,
        progress: Progress | None = None,
    ) -> StrongestPoints:
        """For each input (B, *shape) the point found with the smallest lead of its prediction, no farther than (B,)."""
        places = to_grid(inputs, self.levels).reshape(len(inputs), -1)
        found, moved = np.empty_like(places), np.zeros(len(inputs), dtype=np.bool_)
        for row, origin in enumerate(places):
            evaluations = _Evaluations(self, inputs.shape[1:], origin, float(sigmas[row]), int(predictions[row]))
            budget = steps_within(float(limits[row]), levels=self.levels)
            walks = [
                self._walk(evaluations, budget, np.random.default_rng([seed, row, restart]), progress)
                for restart in range(self.settings.restarts)
            ]
            found[row] = min(walks, key=lambda end: end.standing).place
            moved[row] = any(end.moved for end in walks)
        return StrongestPoints(from_grid(found, self.levels).reshape(inputs.shape), moved)

    def _walk(
        self, evaluations: _Evaluations, budget: int, generator: np.random.Generator, progress: Progress | None
    ) -> _End:
        place = evaluations.origin.copy()
        answers = evaluations.all_of(place)
        standing, moved = evaluations.stand(answers), False
        for rounds_left in range(self.settings.steps, 0, -1):
            left = budget - int(np.abs(place - evaluations.origin).sum())
            if standing.lead >= 0 and left > 0:
                moves = self._draw_moves(place, -(-left // rounds_left), generator)
                tried = list(evaluations.try_moves(place, answers, moves))
                moved = moved or any(after.differ(answers) for after in tried)
                standings = [evaluations.stand(after) for after in tried]
                best = min(range(len(tried)), key=standings.__getitem__, default=None)
                if best is not None and standings[best] < standing:
                    coordinate, place[coordinate] = moves[best]
                    answers, standing = tried[best], standings[best]
            if progress is not None:
                progress(self.settings.draws)
        return _End(place, standing, moved)

    def _draw_moves(self, place: Whole, length: int, generator: np.random.Generator) -> list[tuple[int, int]]:
        """Random coordinates, with the values they are moved to: as far as `length`, and no further than 0 or 1."""
        picked = generator.permutation(2 * len(place))[: self.settings.draws]
        coordinates, signs = picked // 2, 2 * (picked % 2) - 1
        values = np.clip(place[coordinates] + signs * length, 0, self.levels - 1)
        return [(int(i), int(k)) for i, k in zip(coordinates, values, strict=True) if place[i] != k]


class _Standing(NamedTuple):
    """How well the attacked answer does, the most important first: how many votes it is ahead of the next class,
    negative if it loses; its votes; the sum of its scores."""

    lead: int
    votes: int
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """Where a walk ended. moved: whether any move changed an evaluation."""

    place: Whole
    standing: _Standing
    moved: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """votes: (n,), one more than the last class where there is no answer. scores: (n,) of the attacked class, or 0."""

    votes: IntArray
    scores: FloatArray

    def differ(self, other: _Answers) -> bool:
        return not (np.array_equal(self.votes, other.votes) and np.array_equal(self.scores, other.scores))


class _Evaluations:
    """All evaluations of one input, and of the points near it. Places are (size,) whole numbers. label: attacked."""

    def __init__(self, search: SplitSearch, shape: tuple[int, ...], origin: Whole, sigma: float, label: int) -> None:
        self.origin = origin
        self._search = search
        self._shape = shape
        self._label = label
        self._count = evaluations_of(sigma, levels=search.levels)
        self._offsets = draw_offsets(search.seed, evaluations=self._count, size=len(origin))

    def stand(self, answers: _Answers) -> _Standing:
        votes = np.bincount(answers.votes, minlength=self._search.classifier.num_classes + 1)
        return _Standing(smallest_lead(votes, self._label), int(votes[self._label]), math.fsum(answers.scores))

    def all_of(self, place: Whole) -> _Answers:
        """The answers of all evaluations of a place."""
        return self._classify(place, np.arange(self._count, dtype=np.int64))

    def try_moves(self, place: Whole, answers: _Answers, moves: Sequence[tuple[int, int]]) -> Iterator[_Answers]:
        """All answers after each move (a coordinate and its new value); only those that may change are made."""
        if not moves:
            return
        crossed = [self._crossed(int(place[coordinate]), value, coordinate) for coordinate, value in moves]
        lengths = [len(numbers) for numbers in crossed]
        coordinates, values = (np.repeat(column, lengths) for column in np.array(moves, dtype=np.int32).T)
        made = self._classify(place, np.concatenate(crossed), coordinates, values)
        ends = np.cumsum(lengths)[:-1]
        for numbers, votes, scores in zip(
            crossed, np.split(made.votes, ends), np.split(made.scores, ends), strict=True
        ):
            after = _Answers(answers.votes.copy(), answers.scores.copy())
            after.votes[numbers], after.scores[numbers] = votes, scores
            yield after

    def _crossed(self, start: int, stop: int, coordinate: int) -> IntArray:
        """The evaluations that have a cut between two values of a coordinate."""
        cuts = np.arange(min(start, stop), max(start, stop), dtype=np.int64)
        return np.unique((cuts - int(self._offsets[coordinate])) % self._count)

    def _classify(
        self, place: Whole, numbers: IntArray, coordinates: Whole | None = None, values: Whole | None = None
    ) -> _Answers:
        """The answers of these evaluations. coordinates, values: in each of them, the one that differs from `place`."""
        batch, found = self._search.batch, []
        for at in range(0, len(numbers), batch):
            some = slice(at, at + batch)
            rows = self._split(place, self._offsets, numbers[some])
            if coordinates is not None and values is not None:
                shifted = (self._offsets[coordinates[some]] + numbers[some]) % self._count
                middles = self._split(values[some], shifted.astype(np.int32), np.zeros(1, dtype=np.int64))
                rows[np.arange(len(rows)), coordinates[some]] = middles[0]
            found.append(self._ask(rows.reshape(-1, *self._shape)))
        return _Answers(np.concatenate([one.votes for one in found]), np.concatenate([one.scores for one in found]))

    def _split(self, k: Whole, offsets: Whole, numbers: IntArray) -> InputArray:
        return split_with_numpy(k, offsets, numbers, evaluations=self._count, levels=self._search.levels)

    def _ask(self, rows: InputArray) -> _Answers:
        classifier = self._search.classifier
        if not gives_scores(classifier):
            return _Answers(classifier.classify(rows), np.zeros(len(rows)))
        votes, scores = classifier.votes_and_scores(rows)
        return _Answers(votes, np.nan_to_num(scores[:, self._label]).astype(np.float64))


def steps_within(limit: float, *, levels: int) -> int:
    """The most steps whose distance, rounded down like a radius, is at most the limit."""
    steps = math.floor(Fraction(math.nextafter(limit, math.inf)) * (levels - 1))
    return steps if splitting_l1_radius(steps, levels=levels) <= limit else steps - 1
