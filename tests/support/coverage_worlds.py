"""Smoothed classifiers all of whose probabilities and radii are known, and tallies drawn from their exact laws.

In a `Line` the answer depends on one coordinate of the noise: the line is cut into pieces, and each has a class. So
votes, votes at x+ε and x-ε, gradients and the true radius all have closed forms, whatever the dimension. No model, no
sampler and none of the bounds under test is used to find them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from coverage_judge import ROUNDING, Seen, Statements
from smoothcert.certificates import CERTIFICATES, Certificate
from smoothcert.questions import Votes
from smoothcert.records import (
    AnyTally,
    FloatArray,
    GradientTally,
    IntArray,
    Noise,
    PairTally,
    Quantity,
    ScoreTally,
    Side,
    Smoothing,
    Stage,
    StreamId,
    Tally,
)
from smoothcert.records.score_cells import SCORE_CEILING, SCORE_CELLS, SCORE_FLOOR, score_cell
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.statistics import plurality
from stored_answers import certify_votes

SIGMA = 0.5
FARTHEST = 9.0
"""Standard deviations up to which a true radius is looked for."""


def density(z: FloatArray) -> FloatArray:
    return np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)


@dataclass(frozen=True)
class UnitLaw:
    """One coordinate of noise of level 1, by scipy and numpy alone: P(z < point), its inverse, and draws of z."""

    below: Callable[[Any], Any]
    quantile: Callable[[Any], Any]
    draw: Callable[[np.random.Generator, tuple[int, int]], FloatArray]


UNIT_LAWS: Mapping[Noise, UnitLaw] = {
    Noise.GAUSSIAN: UnitLaw(special.ndtr, special.ndtri, lambda generator, size: generator.normal(size=size)),
    Noise.UNIFORM: UnitLaw(
        lambda point: np.clip(0.5 * (point + 1.0), 0.0, 1.0),
        lambda share: 2.0 * share - 1.0,
        lambda generator, size: generator.uniform(-1.0, 1.0, size),
    ),
}


@dataclass(frozen=True)
class Line:
    """edges: the inner ends of the pieces, increasing, in units of the noise level. classes: one for each piece.

    The class `num_classes` stands for no finite answer.
    """

    name: str
    edges: tuple[float, ...]
    classes: tuple[int, ...]
    num_classes: int
    noise: Noise = Noise.GAUSSIAN

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, name: str, *pieces: tuple[int, float], num_classes: int, noise: Noise = Noise.GAUSSIAN) -> Line:
        """Pieces as (class, probability), from left to right."""
        below = np.cumsum([mass for _, mass in pieces])
        assert abs(below[-1] - 1) < 1e-12
        edges = tuple(float(edge) for edge in UNIT_LAWS[noise].quantile(below[:-1]))
        return cls(name, edges, tuple(piece for piece, _ in pieces), num_classes, noise)

    def below(self, points: FloatArray) -> FloatArray:
        """The probability that the noise is below these points."""
        return np.asarray(UNIT_LAWS[self.noise].below(points))

    def chances(self, shift: FloatArray | float = 0.0, scale: FloatArray | float = 1.0) -> FloatArray:
        """Probability of every class, no answer last, for noise moved by `shift` and stretched. (…, num_classes+1)."""
        ends = np.concatenate([[-np.inf], self.edges, [np.inf]])
        moved, stretched = np.asarray(shift)[..., None], np.asarray(scale)[..., None]
        pieces = np.diff(self.below((ends - moved) / stretched), axis=-1)
        found = np.zeros((*pieces.shape[:-1], self.num_classes + 1))
        for piece, label in enumerate(self.classes):
            found[..., label] += pieces[..., piece]
        return found

    @functools.cached_property
    def top(self) -> int:
        return int(np.argmax(self.chances()[:-1]))

    def radius(self, label: int) -> float:
        """In units of the noise level: the distance at which another class, or no answer, first does as well."""
        return self._radius if label == self.top else 0.0

    @functools.cached_property
    def _radius(self) -> float:
        return min(self._reach(1.0), self._reach(-1.0))

    def _lead(self, shift: FloatArray) -> FloatArray:
        chances = self.chances(shift)
        return chances[..., self.top] - np.delete(chances, self.top, axis=-1).max(axis=-1)

    def _reach(self, direction: float) -> float:
        grid = np.linspace(0.0, FARTHEST, 4501)
        lost = np.flatnonzero(self._lead(direction * grid) <= 1e-15)
        if not lost.size:
            return np.inf
        if lost[0] == 0:
            return 0.0
        low, high = grid[lost[0] - 1], grid[lost[0]]
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if float(self._lead(np.asarray(direction * middle))) <= 0 else (middle, high)
        return float(high)

    @functools.cached_property
    def pair_chances(self) -> FloatArray:
        """Of (class at z, class at -z), (num_classes+1, num_classes+1)."""
        ends = np.unique(np.concatenate([[-np.inf], self.edges, [-edge for edge in self.edges], [0.0, np.inf]]))
        middles = np.concatenate([[ends[1] - 1.0], 0.5 * (ends[1:-2] + ends[2:-1]), [ends[-2] + 1.0]])
        found = np.zeros((self.num_classes + 1,) * 2)
        for mass, first, second in zip(
            np.diff(self.below(ends)), self.answers(middles), self.answers(-middles), strict=True
        ):
            found[first, second] += mass
        return found

    def answers(self, z: FloatArray) -> IntArray:
        """The class at each value of the deciding coordinate, in units of the noise level."""
        return np.asarray(self.classes)[np.searchsorted(self.edges, z)]

    def slope(self, label: int) -> float:
        """|E[z 1[label]]| for Gaussian noise: σ times the norm of the gradient."""
        ends = np.concatenate([[-np.inf], self.edges, [np.inf]])
        with np.errstate(over="ignore"):
            heights = density(ends)
        own = [heights[i] - heights[i + 1] for i, piece in enumerate(self.classes) if piece == label]
        return abs(float(np.sum(own)))

    def quantities(self, label: int) -> dict[Quantity, FloatArray]:
        """What is true of the label, and one row for every other class and for no answer."""
        chances, table = self.chances(), self.pair_chances
        others = [c for c in range(self.num_classes + 1) if c != label]

        def one_sided(c: int) -> float:
            return float(table[c].sum() - table[c, c])

        found = {
            Quantity.TOP_LOWER: chances[label],
            Quantity.RUNNER_UP_UPPER: max(chances[c] for c in others),
            Quantity.PAIR_BOTH_LOWER: table[label, label],
            Quantity.PAIR_ONE_SIDED_LOWER: one_sided(label),
            Quantity.OTHER_NEITHER_LOWER: [[1 - 2 * one_sided(c) - table[c, c]] for c in others],
            Quantity.OTHER_ONE_SIDED_LOWER: [[one_sided(c)] for c in others],
            Quantity.GRADIENT_NORM_UPPER: self.slope(label) / SIGMA,
            Quantity.OTHER_UPPER: [[chances[c]] for c in others],
            Quantity.OTHER_GRADIENT_NORM_UPPER: [[self.slope(c) / SIGMA] for c in others],
        }
        return {quantity: np.asarray(value, dtype=np.float64) for quantity, value in found.items()}

    def smoothing(self, dimension: int = 2) -> Smoothing:
        return Smoothing(dimension=dimension, num_classes=self.num_classes, noise=self.noise)


@dataclass(frozen=True)
class Drawn:
    """Repetitions of one experiment: what was drawn for each, and how often, where equal ones are kept once."""

    votes: list[Votes]
    times: IntArray

    @functools.cached_property
    def labels(self) -> list[int]:
        """The class that the selection votes chose in each."""
        found = [plurality(item.selection) for item in self.votes]
        assert all(label is not None for label in found)
        return [label for label in found if label is not None]

    @property
    def tallies(self) -> list[AnyTally]:
        return [item.estimation[0] for item in self.votes]

    def seen(self, failed: Sequence[bool] | NDArray[np.bool_]) -> Seen:
        return Seen.of(failed, self.times)


def selection_of(counts: IntArray, index: int, *, sigma: float = SIGMA) -> Tally:
    """counts: (num_classes+1,), the last for no answer."""
    stream = StreamId(1, index, Stage.SELECTION)
    return Tally(stream, sigma, counts[:-1], int(counts[-1]), ((0, int(counts.sum())),))


def votes_of(counts: IntArray, index: int, *, sigma: float = SIGMA) -> Tally:
    """counts: (num_classes+1,), the last for no answer."""
    stream = StreamId(1, index, Stage.ESTIMATION)
    return Tally(stream, sigma, counts[:-1], int(counts[-1]), ((0, int(counts.sum())),))


def drawn(selection: IntArray, estimation: Sequence[AnyTally], times: IntArray | None = None) -> Drawn:
    votes = [
        Votes(index=i, label=None, selection=selection_of(chose, i), estimation=(proves,), seconds=0.0)
        for i, (chose, proves) in enumerate(zip(selection, estimation, strict=True))
    ]
    return Drawn(votes, np.ones(len(votes), dtype=np.int64) if times is None else times)


def _chosen(line: Line, generator: np.random.Generator, repetitions: int, n0: int) -> IntArray:
    """Selection votes, of which only the winner matters: one vote for it stands for all of them."""
    counts = generator.multinomial(n0, line.chances(), size=repetitions)[:, :-1]
    one_vote = np.zeros((repetitions, line.num_classes + 1), dtype=np.int64)
    one_vote[np.arange(repetitions), counts.argmax(axis=1)] = 1
    return one_vote


@functools.lru_cache(maxsize=4)
def draw_votes(line: Line, *, n: int, repetitions: int, n0: int = 20, seed: int = 0) -> Drawn:
    generator = np.random.default_rng([seed, n, n0])
    chosen = _chosen(line, generator, repetitions, n0)
    counts = generator.multinomial(n, line.chances(), size=repetitions)
    rows, times = np.unique(np.concatenate([chosen, counts], axis=1), axis=0, return_counts=True)
    selection, estimation = np.split(rows, 2, axis=1)
    return drawn(selection, [votes_of(row, i) for i, row in enumerate(estimation)], times)


@functools.lru_cache(maxsize=4)
def draw_pairs(line: Line, *, pairs: int, repetitions: int, n0: int = 20, seed: int = 0) -> Drawn:
    generator = np.random.default_rng([seed, pairs, n0])
    size = line.num_classes + 1
    chosen = _chosen(line, generator, repetitions, n0)
    cells = generator.multinomial(pairs, line.pair_chances.ravel(), size=repetitions).reshape(-1, size, size)
    both = np.einsum("tii->ti", cells)
    rows, times = np.unique(
        np.concatenate([chosen, both, cells.sum(axis=2) - both, cells.sum(axis=1) - both], axis=1),
        axis=0,
        return_counts=True,
    )
    selection, *counts = np.split(rows, 4, axis=1)
    tallies = [
        PairTally(StreamId(1, i, Stage.ESTIMATION), SIGMA, *row, ((0, pairs),))
        for i, row in enumerate(zip(*counts, strict=True))
    ]
    return drawn(selection, tallies, times)


@functools.lru_cache(maxsize=4)
def draw_gradients(line: Line, *, half: int, dimension: int, repetitions: int, n0: int = 20, seed: int = 0) -> Drawn:
    """z itself is drawn here, and added up by class; the first coordinate decides."""
    generator = np.random.default_rng([seed, half, dimension])
    chosen = _chosen(line, generator, repetitions, n0)
    size = line.num_classes + 1
    tallies: list[GradientTally] = []
    for i in range(repetitions):
        z = generator.normal(size=(2, half, dimension))
        answers = line.answers(z[..., 0])
        own = answers[..., None] == np.arange(size)
        sums = np.einsum("hkc,hkd->hcd", own.astype(np.float64), np.rint(z / GRADIENT_UNIT))
        products = np.rint((z[0] * z[1]).sum(axis=1) / GRADIENT_UNIT)
        counts = own.sum(axis=(0, 1))
        tallies.append(
            GradientTally(
                StreamId(1, i, Stage.ESTIMATION), SIGMA, counts=counts[:-1], invalid=int(counts[-1]),
                group=np.arange(size), sums=sums.astype(np.int64),
                products=(own.all(axis=0) * products[:, None]).sum(axis=0).astype(np.int64), ranges=((0, 2 * half),),
            )
        )  # fmt: skip
    return drawn(chosen, tallies)


@dataclass(frozen=True)
class ScoreLine:
    """Scores that depend on one coordinate of the noise: a mixture of two steps, or a soft edge.

    The score of class 0 is `high` below the edge and `low` above it; with softness τ > 0 the step is Φ((edge-z)/τ),
    whose mean is Φ(edge/√(1+τ²)). Class 1 has `share` of what class 0 leaves and class 2 the rest. A sample has no
    finite answer with probability `invalid`, wherever the noise is.
    """

    name: str
    edge: float
    low: float = 0.0
    high: float = 1.0
    softness: float = 0.0
    share: float = 1.0
    invalid: float = 0.0
    noise: Noise = Noise.GAUSSIAN

    num_classes = 3
    top = 0

    def __str__(self) -> str:
        return self.name

    def mean(self, shift: float = 0.0) -> float:
        """Of the score of class 0; a sample without an answer has score 0."""
        point = (self.edge - shift) / np.sqrt(1.0 + self.softness**2)
        below = UNIT_LAWS[self.noise].below(point)
        return float((1.0 - self.invalid) * (self.low + (self.high - self.low) * below))

    def others(self, top: float) -> float:
        """The mean of the largest other score, where class 0 has this mean; no answer counts as a class."""
        return (1.0 - self.invalid - top) * max(self.share, 1.0 - self.share) + self.invalid

    def radius(self, label: int) -> float:
        """Where class 0 no longer has the largest mean score, no answer counting as a class; 0 for the others."""
        if label != 0:
            return 0.0

        def lead(shift: float) -> float:
            top = self.mean(shift)
            return top - max((1.0 - self.invalid - top) * max(self.share, 1.0 - self.share), self.invalid)

        if lead(0.0) <= 0:
            return 0.0
        low, high = 0.0, FARTHEST
        assert lead(high) < 0
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if lead(middle) > 0 else (low, middle)
        return high

    def quantities(self, label: int) -> dict[Quantity, FloatArray]:
        assert label == 0
        top = self.mean()
        return {Quantity.TOP_LOWER: np.asarray(top), Quantity.RUNNER_UP_UPPER: np.asarray(self.others(top))}

    def smoothing(self, dimension: int = 2) -> Smoothing:
        return Smoothing(dimension=dimension, num_classes=self.num_classes, noise=self.noise)

    def scores(self, generator: np.random.Generator, size: tuple[int, int]) -> FloatArray:
        """Of class 0; nan for no answer."""
        z = UNIT_LAWS[self.noise].draw(generator, size)
        step = special.ndtr((self.edge - z) / self.softness) if self.softness else (z < self.edge)
        return np.where(generator.random(size) < self.invalid, np.nan, self.low + (self.high - self.low) * step)


def score_tally(top: FloatArray, index: int, *, share: float) -> ScoreTally:
    """top: (n,) scores of class 0, nan for no answer."""
    valid = top[np.isfinite(top)]
    rest = 1.0 - valid
    scores = np.stack([valid, rest * share, rest * (1.0 - share)])
    cells = np.concatenate([score_cell(valid), score_cell(scores[1:].max(axis=0)) + SCORE_CELLS])
    places, hits = np.unique(cells, return_counts=True)
    return ScoreTally(
        StreamId(1, index, Stage.ESTIMATION), SIGMA, np.bincount(scores.argmax(axis=0), minlength=3),
        int(top.size - valid.size), 0, places, hits, ((0, top.size),),
    )  # fmt: skip


@functools.lru_cache(maxsize=4)
def draw_scores(line: ScoreLine, *, n: int, repetitions: int, seed: int = 0) -> Drawn:
    generator = np.random.default_rng([seed, n])
    tallies = [score_tally(row, i, share=line.share) for i, row in enumerate(line.scores(generator, (repetitions, n)))]
    return drawn(np.tile([1, 0, 0, 0], (repetitions, 1)), tallies)


World = Line | ScoreLine


def radius_from_truth(world: World, name: str, label: int, smoothing: Smoothing) -> float:
    """What the theorem gives for the true probabilities."""
    certificate = CERTIFICATES[name]
    if label != world.top:
        return 0.0
    return float(_radii(certificate, _inside(world.quantities(label)), smoothing).min())


def _radii(certificate: Certificate, quantities: Mapping[Quantity, FloatArray], smoothing: Smoothing) -> FloatArray:
    """Of one or several inputs; where there are rows of alternatives, the smallest."""
    chosen = {quantity: quantities[quantity] for quantity in certificate.needs}
    radii = certificate.radius(chosen, sigma=SIGMA, smoothing=smoothing)
    return radii.min(axis=0) if radii.ndim == 2 else np.atleast_1d(radii)


def false_radii(
    world: World, found: Drawn, names: Sequence[str], *, alpha: float, smoothing: Smoothing | None = None,
    radius: float | None = None,
) -> Statements:  # fmt: skip
    """For each certificate how often the radius is beyond the true one, and beyond what the truth gives the theorem.

    radius: the true radius of the class with most votes, where it is not that of the world as it stands.
    """
    smoothing = world.smoothing() if smoothing is None else smoothing
    labels = sorted(set(found.labels))
    true = {label: SIGMA * world.radius(label) for label in labels}
    if radius is not None:
        true[world.top] = radius
    statements: dict[str, Seen] = {}
    for name in names:
        points = certify_votes(found.votes, name, alpha=alpha, smoothing=smoothing)
        radii = np.array([point.radius for point in points])
        by_theorem = {label: radius_from_truth(world, name, label, smoothing) for label in labels}
        limits = np.array([[true[label], by_theorem[label]] for label in found.labels]).T * (1.0 + ROUNDING)
        statements[f"{name}, the true radius"] = found.seen(radii > limits[0])
        statements[f"{name}, the theorem's radius for the true probabilities"] = found.seen(radii > limits[1])
    return statements


def beyond(quantity: Quantity, values: FloatArray, truth: FloatArray) -> NDArray[np.bool_]:
    """Whether bounds lie beyond the truth."""
    if quantity.side is Side.LOWER:
        return np.asarray(values > truth * (1.0 + ROUNDING))
    return np.asarray(values < truth * (1.0 - ROUNDING))


def plain_estimates(tally: AnyTally, label: int) -> dict[Quantity, FloatArray]:
    """The mistake of all mistakes: shares and averages in place of bounds."""
    if isinstance(tally, ScoreTally):
        return _plain_scores(tally)
    votes = tally.independent_votes()
    counts = np.append(votes.counts, votes.invalid) / votes.n
    others = [c for c in range(tally.num_classes + 1) if c != label]
    found: dict[Quantity, object] = {
        Quantity.TOP_LOWER: counts[label],
        Quantity.RUNNER_UP_UPPER: counts[others].max(),
        Quantity.OTHER_UPPER: counts[others][:, None],
    }
    if isinstance(tally, PairTally):
        found |= {
            Quantity.PAIR_BOTH_LOWER: tally.both[label] / tally.pairs,
            Quantity.PAIR_ONE_SIDED_LOWER: 0.5 * tally.one_sided(label) / tally.pairs,
            Quantity.OTHER_NEITHER_LOWER: [[tally.neither(c) / tally.pairs] for c in others],
            Quantity.OTHER_ONE_SIDED_LOWER: [[0.5 * tally.one_sided(c) / tally.pairs] for c in others],
        }
    if isinstance(tally, GradientTally):
        norms = [_plain_norm(tally, c) for c in range(tally.num_classes + 1)]
        found |= {
            Quantity.GRADIENT_NORM_UPPER: norms[label],
            Quantity.OTHER_GRADIENT_NORM_UPPER: [[norms[c]] for c in others],
        }
    return {quantity: np.asarray(value, dtype=np.float64) for quantity, value in found.items()}


def _plain_norm(tally: GradientTally, label: int) -> float:
    first, second = tally.sums[:, tally.own_group(label)].astype(np.float64) * (2 * GRADIENT_UNIT / tally.n)
    return float(np.sqrt(max(first @ second, 0.0))) / tally.sigma


def _plain_scores(tally: ScoreTally) -> dict[Quantity, FloatArray]:
    top, other = tally.top_scores(), tally.other_scores()
    return {
        Quantity.TOP_LOWER: np.asarray((SCORE_FLOOR[top[0]] * top[1]).sum() / tally.n),
        Quantity.RUNNER_UP_UPPER: np.asarray(((SCORE_CEILING[other[0]] * other[1]).sum() + tally.invalid) / tally.n),
    }


def false_plain_radii(
    world: World, found: Drawn, names: Sequence[str], *, smoothing: Smoothing | None = None
) -> Statements:
    """`false_radii` for plain estimates put into the theorems: beyond what the true probabilities would give."""
    smoothing = world.smoothing() if smoothing is None else smoothing
    statements = {}
    for name in names:
        certificate = CERTIFICATES[name]
        each = [plain_estimates(tally, label) for tally, label in zip(found.tallies, found.labels, strict=True)]
        together = {q: np.concatenate([np.atleast_1d(one[q]) for one in each], axis=-1) for q in certificate.needs}
        radii = _radii(certificate, _inside(together), smoothing)
        limits = {label: radius_from_truth(world, name, label, smoothing) for label in set(found.labels)}
        statements[name] = found.seen(radii > np.array([limits[label] for label in found.labels]))
    return statements


def _inside(quantities: Mapping[Quantity, FloatArray]) -> dict[Quantity, FloatArray]:
    """Probabilities of 0 and 1, which no sample can prove, moved to where the theorems have a value."""
    norms = (Quantity.GRADIENT_NORM_UPPER, Quantity.OTHER_GRADIENT_NORM_UPPER)
    return {q: value if q in norms else np.clip(value, 1e-15, 1.0 - 1e-15) for q, value in quantities.items()}
