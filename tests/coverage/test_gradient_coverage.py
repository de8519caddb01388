"""Validity of the bounds on gradient norms, on classifiers whose gradient is known in closed form.

The noise is drawn and added up here, not by the sampler. Every test states its false-alarm rate and has a control: a
wrong procedure that the same test must catch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from smoothcert.records import GradientTally, Stage, StreamId
from smoothcert.statistics.gradient import (
    gradient_from_halves,
    gradient_from_pairs,
    gradients_of_every_class,
    halves_norm_upper,
    margins_of_halves,
    rare_probability_upper,
)
from smoothcert.tallies import GRADIENT_UNIT

TRIALS = 1000
FALSE_ALARM = 1e-6
ALPHAS = [0.05, 0.2]
SIGMA = 0.5
STREAM = StreamId(1, 0, Stage.ESTIMATION)


def too_many(failures: int, rate: float) -> bool:
    """Whether this many failures in 1000 trials contradict a failure rate of at most `rate`, at false alarm 1e-6."""
    return bool(stats.binomtest(int(failures), TRIALS, rate, alternative="greater").pvalue < FALSE_ALARM)


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
    found = [half_space(dimension, 0.0), half_space(dimension, 2.0), half_space(dimension, -2.0)]
    found += [slab(-1.0, 1.0), ball(dimension, 1.0, 0.7)]
    if dimension == 2:
        found += [slab(0.5, 2.0), everything(), corner(dimension, (1.0, 1.2), seed=2)]
    if dimension >= 10:
        found += [ball(dimension, 0.0, 0.9), corner(dimension, (1.0, 1.5, 1.7, 2.0), seed=dimension)]
    return found


HALF = {1: 60, 2: 60, 10: 50, 49: 30, 500: 10}
"""Samples in each half, by dimension: as few as keep the tests quick; a proof holds for any number."""

CASES = [(dimension, place) for dimension in HALF for place in range(len(regions(dimension)))]


@dataclass(frozen=True)
class Experiment:
    """1000 tallies of one region."""

    region: Region
    half: int
    tallies: list[GradientTally]

    def failures(self, bounds: np.ndarray) -> int:
        return int((bounds * SIGMA < self.region.norm).sum())

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


@pytest.mark.parametrize("case", CASES, ids=label)
def test_the_closed_forms_are_right(case: tuple[int, int]) -> None:
    """Within six standard errors of 10⁵ draws, fewer in high dimension: the oracle of the tests below."""
    dimension, place = case
    region = regions(dimension)[place]
    draws = 100_000 // max(1, dimension // 10)
    z = np.random.default_rng(99).normal(size=(draws, dimension))
    inside = region.inside(z)
    share = inside.mean()
    assert abs(share - region.probability) <= 6 * math.sqrt(region.probability * (1 - region.probability) / draws)
    first, second = (z[part] * inside[part][:, None] for part in (slice(None, draws // 2), slice(draws // 2, None)))
    square = float(first.mean(axis=0) @ second.mean(axis=0))
    error = math.sqrt(2 * region.norm**2 / draws + dimension * (2 / draws) ** 2)
    assert abs(square - region.norm**2) <= 6 * error


@pytest.mark.parametrize("case", CASES, ids=label)
def test_bounds_fail_no_more_often_than_alpha(case: tuple[int, int]) -> None:
    found = experiment(*case)
    labels = [0] * TRIALS
    for alpha in ALPHAS:
        by_halves = gradient_from_halves(found.tallies, labels, alpha)
        assert not too_many(found.failures(by_halves), alpha)
        assert not too_many(found.failures(found.halves(True, alpha=alpha)), alpha)
        assert not too_many(found.failures(gradient_from_pairs(found.tallies, labels, alpha)), alpha)
        np.testing.assert_allclose(by_halves, found.halves(False, alpha=alpha), rtol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if regions(case[0])[case[1]].norm > 0.2], ids=label)
def test_control_plain_estimates_fail(case: tuple[int, int]) -> None:
    """The estimates as they are, margin zero: wrong about half of the time."""
    found = experiment(*case)
    by_halves = np.array([t.sums[0, 0].astype(float) @ t.sums[1, 0] for t in found.tallies])
    halves = np.sqrt(np.maximum(by_halves, 0.0)) * GRADIENT_UNIT / found.half
    pairs = np.array([t.products[0] * GRADIENT_UNIT / found.half for t in found.tallies])
    assert too_many(found.failures(halves / SIGMA), 0.2)
    assert too_many(found.failures(np.sqrt(np.maximum(pairs, 0.0)) / SIGMA), 0.2)


@pytest.mark.parametrize("dimension", HALF)
@pytest.mark.parametrize("rare_is_inside", [False, True])
def test_control_pretending_to_have_more_samples_fails(dimension: int, rare_is_inside: bool) -> None:
    """The margins of a thousand times the samples."""
    found = experiment(dimension, 0)
    assert found.region.norm == pytest.approx(stats.norm.pdf(0))
    assert too_many(found.failures(found.halves(rare_is_inside, alpha=0.05, pretended=1000)), 0.05)


@pytest.mark.parametrize("dimension", [2, 49])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_bounds_on_every_class_hold_at_once(dimension: int, alpha: float) -> None:
    """Class 0 is a half-space of probability Φ(2), class 1 the rest: the same gradient, reversed; no invalid votes."""
    found = experiment(dimension, 1)
    top, norm, others, other_norms = gradients_of_every_class(found.tallies, [0] * TRIALS, alpha)
    assert others.shape == other_norms.shape == (2, TRIALS)
    p, g = found.region.probability, found.region.norm / SIGMA
    wrong = (top > p) | (norm < g) | (others[0] < 1 - p) | (other_norms[0] < g)
    assert not too_many(int(wrong.sum()), alpha)
    # Control: the same bounds with the plain share of votes in place of one of them.
    shares = np.array([tally.counts[0] / tally.n for tally in found.tallies])
    assert too_many(int((wrong | (shares > p)).sum()), alpha)


@pytest.mark.parametrize("threshold", [0.0, 1.5, -1.5])
def test_one_direction_at_a_time_the_margins_hold(threshold: float) -> None:
    """The two events of the proof, for themselves; the bound above needs both and fails far less often.

    With means of zero the bound is its margin τ, so that τ can be read off. Controls: a tenth of it.
    """
    trials, half, alpha = 20_000, 50, 0.4
    z = np.random.default_rng(round(10 * threshold) + 100).normal(size=(trials, half))
    inside = z <= threshold
    mean = -stats.norm.pdf(threshold)
    nothing = np.zeros((2, 1))
    signs = halves_norm_upper(nothing, nothing, margins=margins_of_halves(half, 1.0, alpha=alpha)) - 0.5 * GRADIENT_UNIT
    signed = np.where(inside, 0.5, -0.5) * z
    share = alpha / 4

    def exceeded(values: np.ndarray, margin: float) -> bool:
        failures = int((values.mean(axis=1) < mean - margin).sum())
        return bool(stats.binomtest(failures, trials, share, alternative="greater").pvalue < FALSE_ALARM)

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
