"""How often bounds on gradient norms, and radii from them, are wrong, on classifiers with a gradient in closed form.

The noise is drawn and added up here, not by the sampler. Every statement is judged by `coverage_judge`; the controls
are procedures with a known mistake, which the same judge must refute.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from coverage_judge import Case, Seen, Statements
from coverage_worlds import Line, draw_gradients, false_plain_radii, false_radii
from smoothcert.records import GradientTally, Proof, Stage, StreamId
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.statistics.gradient import (
    gradient_from_halves,
    gradient_from_pairs,
    gradients_of_every_class,
    halves_norm_upper,
    margins_of_halves,
    rare_probability_upper,
)

TRIALS = 400
ALPHAS = [0.05, 0.2]
SIGMA = 0.5
STREAM = StreamId(1, 0, Stage.ESTIMATION)


@dataclass(frozen=True)
class Region:
    """Where the classifier answers class 0, in terms of z; its probability and the length of E[z 1[class 0]]."""

    name: str
    inside: Callable[[np.ndarray], np.ndarray]
    probability: float
    norm: float


def half_space(dimension: int, threshold: float) -> Region:
    """z·u ≤ t: of all regions of this probability it has the largest gradient."""
    u = np.ones(dimension) / math.sqrt(dimension)
    return Region(
        f"half-space {threshold:g}",
        lambda z: z @ u <= threshold,
        float(stats.norm.cdf(threshold)),
        float(stats.norm.pdf(threshold)),
    )


def slab(low: float, high: float) -> Region:
    return Region(
        f"slab {low:g} to {high:g}",
        lambda z: (z[..., 0] >= low) & (z[..., 0] <= high),
        float(stats.norm.cdf(high) - stats.norm.cdf(low)),
        abs(float(stats.norm.pdf(low) - stats.norm.pdf(high))),
    )


def ball(dimension: int, centre: float, probability: float) -> Region:
    """‖z - c‖ ≤ r with r such that the ball has this probability. P = F_d(r²; ‖c‖²), a noncentral chi-square."""
    if centre == 0.0:
        return Region(
            "ball around x",
            lambda z: (z**2).sum(axis=-1) <= stats.chi2.ppf(probability, dimension),
            probability,
            0.0,
        )
    square = float(stats.ncx2.ppf(probability, dimension, centre**2))
    slope = stats.ncx2.cdf(square, dimension + 2, centre**2) - stats.ncx2.cdf(square, dimension, centre**2)
    return Region(
        "ball beside x",
        lambda z: (z**2).sum(axis=-1) - 2 * centre * z[..., 0] + centre**2 <= square,
        probability,
        abs(float(centre * slope)),
    )


def corner(dimension: int, thresholds: tuple[float, ...], *, seed: int) -> Region:
    """Outside a union of half-spaces with random orthogonal normals: a product of one-dimensional regions."""
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, len(thresholds))))[0]
    t = np.array(thresholds)
    cdf, pdf = stats.norm.cdf(t), stats.norm.pdf(t)
    return Region(
        f"outside {len(t)} half-spaces",
        lambda z: (z @ basis <= t).all(axis=-1),
        float(cdf.prod()),
        float(np.linalg.norm(pdf / cdf * cdf.prod())),
    )


def everything() -> Region:
    return Region("everything", lambda z: np.ones(z.shape[:-1], dtype=bool), 1.0, 0.0)


@functools.cache
def regions(dimension: int) -> list[Region]:
    found = [half_space(dimension, 0.0), half_space(dimension, 2.0)]
    if dimension <= 49:
        found += [half_space(dimension, -2.0), slab(-1.0, 1.0), ball(dimension, 1.0, 0.7)]
    if dimension == 2:
        found += [slab(0.5, 2.0), everything(), corner(dimension, (1.0, 1.2), seed=2)]
    if dimension >= 10:
        found += [ball(dimension, 0.0, 0.9), corner(dimension, (1.0, 1.5, 1.7, 2.0), seed=dimension)]
    return found


HALF = {1: 60, 2: 60, 10: 50, 49: 30, 200: 10}
"""Samples in each half, by dimension: as few as keep the tests quick; a proof holds for any number."""

PLACES = [(dimension, place) for dimension in HALF for place in range(len(regions(dimension)))]


@dataclass(frozen=True)
class Experiment:
    """Many tallies of one region."""

    region: Region
    half: int
    tallies: list[GradientTally]

    def failures(self, bounds: np.ndarray) -> Seen:
        return Seen.of(bounds * SIGMA < self.region.norm)

    def halves(self, rare_is_inside: bool, *, alpha: float, pretended: int = 1) -> np.ndarray:
        """`halves_norm_upper` with either side called the rare one; `pretended`: times more samples than were drawn."""
        half, side = self.half * pretended, 0 if rare_is_inside else 1
        most = rare_probability_upper([t.counts[side] * pretended for t in self.tallies], half, alpha=alpha)
        bounds = []
        for tally, q in zip(self.tallies, most, strict=True):
            rare, common = (tally.sums[:, group] * (GRADIENT_UNIT / self.half) for group in (side, 1 - side))
            bounds.append(
                halves_norm_upper(rare, common, margins=margins_of_halves(half, float(q), alpha=alpha)) / SIGMA
            )
        return np.array(bounds)


@functools.cache
def experiment(dimension: int, place: int) -> Experiment:
    region, half = regions(dimension)[place], HALF[dimension]
    generator = np.random.default_rng([dimension, place])
    tallies: list[GradientTally] = []
    for _ in range(TRIALS):
        z = generator.normal(size=(2, half, dimension))
        inside = region.inside(z)
        units = np.rint(z / GRADIENT_UNIT)
        sums = np.stack([(units * inside[..., None]).sum(axis=1), (units * ~inside[..., None]).sum(axis=1)], axis=1)
        products = np.rint((z[0] * z[1]).sum(axis=1) / GRADIENT_UNIT)
        tallies.append(
            GradientTally(
                STREAM,
                SIGMA,
                counts=np.array([inside.sum(), (~inside).sum()]),
                invalid=0,
                group=np.arange(3),
                sums=np.concatenate([sums, np.zeros((2, 1, dimension))], axis=1).astype(np.int64),
                products=np.array([products[inside.all(axis=0)].sum(), products[~inside.any(axis=0)].sum(), 0]).astype(
                    np.int64
                ),
                ranges=((0, 2 * half),),
            )
        )
    return Experiment(region, half, tallies)


def label(case: tuple[int, int]) -> str:
    return f"{regions(case[0])[case[1]].name}, d={case[0]}"


@pytest.mark.parametrize("case", PLACES, ids=label)
def test_the_closed_forms_are_right(case: tuple[int, int]) -> None:
    """Within six standard errors of 50000 draws, fewer in high dimension: the oracle of the tests below."""
    dimension, place = case
    region = regions(dimension)[place]
    draws = 50_000 // max(1, dimension // 10)
    z = np.random.default_rng(99).normal(size=(draws, dimension))
    inside = region.inside(z)
    share = inside.mean()
    assert abs(share - region.probability) <= 6 * math.sqrt(region.probability * (1 - region.probability) / draws)
    first, second = (z[part] * inside[part][:, None] for part in (slice(None, draws // 2), slice(draws // 2, None)))
    square = float(first.mean(axis=0) @ second.mean(axis=0))
    error = math.sqrt(2 * region.norm**2 / draws + dimension * (2 / draws) ** 2)
    assert abs(square - region.norm**2) <= 6 * error


def norms(place: tuple[int, int], *, alpha: float) -> Case:
    def run() -> Statements:
        found, labels = experiment(*place), [0] * TRIALS
        by_halves = gradient_from_halves(found.tallies, labels, alpha)
        np.testing.assert_allclose(by_halves, found.halves(False, alpha=alpha), rtol=1e-12)
        return {
            "two halves": found.failures(by_halves),
            "two halves, the class itself called rare": found.failures(found.halves(True, alpha=alpha)),
            "products of pairs": found.failures(gradient_from_pairs(found.tallies, labels, alpha)),
        }

    proofs = (Proof.GRADIENT_HALVES, Proof.GRADIENT_PAIRS)
    return Case(f"gradient norm, {label(place)}, α = {alpha:g}", alpha, run, proofs=proofs)


def every_class(dimension: int, *, alpha: float) -> Case:
    """Class 0 is a half-space of probability Φ(2), class 1 the rest: the same gradient, reversed; no invalid votes."""
    return Case(
        f"gradients of every class, d={dimension}, α = {alpha:g}",
        alpha,
        lambda: Seen.of(wrong_of_every_class(experiment(dimension, 1), alpha=alpha)),
        proofs=(Proof.GRADIENTS_OF_EVERY_CLASS,),
    )


def wrong_of_every_class(found: Experiment, *, alpha: float) -> np.ndarray:
    top, norm, others, other_norms = gradients_of_every_class(found.tallies, [0] * TRIALS, alpha)
    assert others.shape == other_norms.shape == (2, TRIALS)
    p, g = found.region.probability, found.region.norm / SIGMA
    return (top > p) | (norm < g) | (others[0] < 1 - p) | (other_norms[0] < g)


FORMS = ("second-order", "second-order-pairs", "second-order-multi-class")
ONE_SIDE = Line.of("a half-space", (0, 0.85), (1, 0.15), num_classes=2)
BETWEEN = Line.of("a slab around x", (1, 0.1), (0, 0.8), (1, 0.1), num_classes=2)
BESIDE = Line.of("a slab beside x", (1, 0.02), (0, 0.75), (1, 0.23), num_classes=2)
EVEN = Line.of("an even half-space", (0, 0.5), (1, 0.5), num_classes=2)
CLASSES = Line.of("four classes", (2, 0.1), (0, 0.7), (1, 0.05), (3, 0.15), num_classes=4)
NO_ANSWER = Line.of("samples without an answer", (0, 0.75), (2, 0.15), (1, 0.1), num_classes=2)


def certified(world: Line, *, dimension: int, half: int, alpha: float) -> Case:
    """The three forms, and Cohen's radius from the same samples."""
    names = (*FORMS, "gaussian")

    def run() -> Statements:
        found = draw_gradients(world, half=half, dimension=dimension, repetitions=TRIALS)
        return false_radii(world, found, names, alpha=alpha)

    return Case(f"second-order …, {world}, d={dimension}, n={2 * half}, α = {alpha:g}", alpha, run, certificates=FORMS)


CASES = [
    *(norms(place, alpha=alpha) for place in PLACES for alpha in ALPHAS),
    *(every_class(dimension, alpha=alpha) for dimension in (2, 49) for alpha in ALPHAS),
    *(certified(world, dimension=2, half=150, alpha=a) for world in (ONE_SIDE, BETWEEN, EVEN) for a in (0.01, 0.2)),
    certified(BETWEEN, dimension=20, half=200, alpha=0.2),
    certified(ONE_SIDE, dimension=2, half=6, alpha=0.4),
    *(certified(world, dimension=2, half=150, alpha=0.2) for world in (BESIDE, CLASSES, NO_ANSWER)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_no_more_often_than_said(case: Case) -> None:
    case.check_holds()


STEEP = [place for place in PLACES if regions(place[0])[place[1]].norm > 0.2]


def plain_norms(place: tuple[int, int]) -> Statements:
    """The estimates as they are, margin zero: wrong about half of the time."""
    found = experiment(*place)
    by_halves = np.array([t.sums[0, 0].astype(float) @ t.sums[1, 0] for t in found.tallies])
    halves = np.sqrt(np.maximum(by_halves, 0.0)) * GRADIENT_UNIT / found.half
    pairs = np.array([t.products[0] * GRADIENT_UNIT / found.half for t in found.tallies])
    return {
        "two halves": found.failures(halves / SIGMA),
        "products of pairs": found.failures(np.sqrt(np.maximum(pairs, 0.0)) / SIGMA),
    }


def pretending_more_samples(dimension: int) -> Statements:
    """The margins of a thousand times the samples."""
    found = experiment(dimension, 0)
    assert found.region.norm == pytest.approx(stats.norm.pdf(0))
    return {
        side: found.failures(found.halves(rare, alpha=0.05, pretended=1000))
        for side, rare in (("two halves", False), ("two halves, the class itself called rare", True))
    }


def hoeffding_of_products() -> Seen:
    """Products of noises, which have no bound, averaged as if they lay in an interval of length 1 around their mean."""
    found = experiment(49, 0)
    pairs = np.array([t.products[0] * GRADIENT_UNIT / found.half for t in found.tallies])
    margin = math.sqrt(math.log(1 / 0.05) / (2 * found.half))
    return found.failures(np.sqrt(np.maximum(pairs + margin, 0.0)) / SIGMA)


def length_of_the_mean() -> Seen:
    """The lower end of an interval for the norm, estimate minus margin, in place of the upper one."""
    found = experiment(10, 0)
    estimate = np.array([np.linalg.norm(t.sums[:, 0].sum(axis=0)) for t in found.tallies])
    estimate = estimate * GRADIENT_UNIT / (2 * found.half)
    return found.failures((estimate - math.sqrt(10 / (2 * found.half))) / SIGMA)


def shares_with_gradients_of_every_class(dimension: int) -> Seen:
    """The bounds of every class with the plain share of votes in place of one of them."""
    found = experiment(dimension, 1)
    shares = np.array([tally.counts[0] / tally.n for tally in found.tallies])
    return Seen.of(wrong_of_every_class(found, alpha=0.2) | (shares > found.region.probability))


def plain(world: Line) -> Statements:
    return false_plain_radii(world, draw_gradients(world, half=150, dimension=2, repetitions=TRIALS), FORMS)


CONTROLS = [
    *(Case(f"plain gradient norm, {label(place)}", 0.2, functools.partial(plain_norms, place)) for place in STEEP),
    *(
        Case(f"margins of a thousand times the samples, d={d}", 0.05, functools.partial(pretending_more_samples, d))
        for d in HALF
    ),
    Case("Hoeffding for products without a bound", 0.05, hoeffding_of_products),
    Case("lower bound of the norm for upper", 0.05, length_of_the_mean),
    *(
        Case(
            f"plain share among the bounds of every class, d={d}",
            0.2,
            functools.partial(shares_with_gradients_of_every_class, d),
        )
        for d in (2, 49)
    ),
    Case("plain shares and norms in the theorems", 0.2, lambda: plain(BESIDE), certificates=FORMS),
]


@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_control_is_caught(control: Case) -> None:
    control.check_is_caught()


@pytest.mark.parametrize("threshold", [0.0, 1.5, -1.5])
def test_one_direction_at_a_time_the_margins_hold(threshold: float) -> None:
    """The two events of the proof, for themselves; the bound above needs both and fails far less often.

    With means of zero the bound is its margin τ, so that τ can be read off. Controls: a tenth of it.
    """
    trials, half, alpha = 10_000, 50, 0.4
    z = np.random.default_rng(round(10 * threshold) + 100).normal(size=(trials, half))
    inside = z <= threshold
    mean = -stats.norm.pdf(threshold)
    nothing = np.zeros((2, 1))
    signs = halves_norm_upper(nothing, nothing, margins=margins_of_halves(half, 1.0, alpha=alpha)) - 0.5 * GRADIENT_UNIT
    signed = np.where(inside, 0.5, -0.5) * z
    share = alpha / 4

    def exceeded(values: np.ndarray, margin: float) -> bool:
        return Seen.of(values.mean(axis=1) < mean - margin).refutes(share)

    assert not exceeded(signed, signs)
    assert exceeded(signed, signs / 10)
    probability = float(stats.norm.cdf(threshold))
    both = (
        halves_norm_upper(nothing, nothing, margins=margins_of_halves(half, probability, alpha=alpha))
        - 0.5 * GRADIENT_UNIT
    )
    if both < signs:
        # Then it is the margin of the rare side, whose events have α/5 each.
        share = alpha / 5
        assert threshold < 0
        assert not exceeded(inside * z, both)
        assert exceeded(inside * z, both / 10)
