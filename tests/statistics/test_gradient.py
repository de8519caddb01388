"""Bounds on gradient norms: the formulas of their proofs against quadrature, values by hand, growth with dimension."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from smoothcert.errors import InputError
from smoothcert.records import GradientTally, Stage, StreamId
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.statistics import pair_product_margin
from smoothcert.statistics.gradient import (
    gradient_from_halves,
    gradient_from_pairs,
    gradients_of_every_class,
    halves_norm_upper,
    margins_of_halves,
    rare_probability_upper,
)

STREAM = StreamId(1, 0, Stage.ESTIMATION)
HALF_UNIT = 0.5 * GRADIENT_UNIT


def signs_exponent(rate: mpmath.mpf) -> mpmath.mpf:
    """D(λ) = 2 e^{λ²/8} Φ(λ/2) - 1 - λ/sqrt(2π)."""
    return 2 * mpmath.exp(rate**2 / 8) * mpmath.ncdf(rate / 2) - 1 - rate / mpmath.sqrt(2 * mpmath.pi)


@functools.cache
def two_sided_quantile(q: mpmath.mpf) -> mpmath.mpf:
    return mpmath.sqrt(2) * mpmath.erfinv(1 - q)


def rare_exponent(rate: mpmath.mpf, q: mpmath.mpf) -> mpmath.mpf:
    """D(λ) = e^{λ²/2} (Φ(λ-a) + Φ(-λ-a)) - q + q (sinh(λa) - λa), a = Φ⁻¹(1-q/2)."""
    a = two_sided_quantile(q)
    tails = mpmath.ncdf(rate - a) + mpmath.ncdf(-rate - a)
    return mpmath.exp(rate**2 / 2) * tails - q + q * (mpmath.sinh(rate * a) - rate * a)


def least_margin(exponent: Callable[[mpmath.mpf], mpmath.mpf], *, samples: int, alpha: float) -> mpmath.mpf:
    """τ* = min over λ of (D(λ) + ln(1/α)/k)/λ, by golden section in ln λ."""
    log_term = mpmath.log(1 / mpmath.mpf(alpha)) / samples

    def margin(log_rate: mpmath.mpf) -> mpmath.mpf:
        rate = mpmath.exp(log_rate)
        return (exponent(rate) + log_term) / rate

    low, high = mpmath.log(mpmath.mpf(10) ** -8), mpmath.log(mpmath.mpf(30))
    golden = (mpmath.sqrt(5) - 1) / 2
    for _ in range(70):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if margin(left) < margin(right) else (left, high)
    return margin(low)


def margin_in_use(*, rare_upper: float, samples: int, alpha: float, dimension: int = 1) -> float:
    """With means of zero the bound is the smaller of its two margins, plus what rounding of the noise may add."""
    nothing = np.zeros((2, dimension))
    bound = halves_norm_upper(nothing, nothing, margins=margins_of_halves(samples, rare_upper, alpha=alpha))
    return bound - HALF_UNIT * math.sqrt(dimension)


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0, 3.0, 10.0])
def test_the_exponent_of_signs_is_its_integral(rate: float) -> None:
    def integrand(g: mpmath.mpf) -> mpmath.mpf:
        return (mpmath.expm1(rate * g / 2) - rate * g / 2) * mpmath.npdf(g)

    with mpmath.workdps(30):
        integral = 2 * mpmath.quad(integrand, [0, 1, 3, 6, 10, 20, 40])
        assert abs(signs_exponent(mpmath.mpf(rate)) / integral - 1) < 1e-15


def excess(g: np.ndarray, rate: float) -> np.ndarray:
    return np.expm1(rate * g) - rate * g


@pytest.mark.parametrize("q", [0.001, 0.01, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0, 3.0])
def test_the_exponent_of_the_rare_side_is_above_every_event(q: float, rate: float) -> None:
    """On a grid of 50000 equally likely g: the event with the largest ℓ, which is the worst one, and 20 random ones."""
    cells = 50_000
    g = special.ndtri((np.arange(cells) + 0.5) / cells)
    values = excess(g, rate)
    size = round(q * cells)
    exponent = float(rare_exponent(mpmath.mpf(rate), mpmath.mpf(q)))
    worst = np.sort(values)[cells - size :].sum() / cells
    assert worst <= exponent
    # It is no wild overestimate either: at most a seventh more (the grid cuts the tail, by up to a tenth here).
    assert exponent <= 1.28 * worst
    generator = np.random.default_rng(1)
    for _ in range(20):
        # Events that prefer the tails, more or less, and one side or the other.
        score = generator.normal(size=cells) * generator.exponential(2.0) + np.abs(g - generator.normal())
        event = np.argpartition(score, cells - size)[cells - size :] if size < cells else np.arange(cells)
        assert values[event].sum() / cells <= worst * (1 + 1e-12)
        assert excess(-g[event], rate).sum() / cells <= exponent


@pytest.mark.parametrize("alpha", [1e-9, 0.001, 0.4])
@pytest.mark.parametrize("samples", [1, 10, 1000, 10**6, 10**10, 5 * 10**11])
def test_margins_are_never_below_the_best_chernoff_bound(samples: int, alpha: float) -> None:
    """In 40 digits. Rounding must be on the safe side up to the largest number of samples."""
    with mpmath.workdps(40):
        signs = least_margin(signs_exponent, samples=samples, alpha=0.25 * alpha)
        # The smallest q there is comes from no rare vote at all.
        least = float(rare_probability_upper(0, samples, alpha=alpha))
        for q in {least, max(least, 0.001), max(least, 0.1), 1.0}:
            exponent = functools.partial(rare_exponent, q=mpmath.mpf(q))
            rare = least_margin(exponent, samples=samples, alpha=0.2 * alpha)
            assert margin_in_use(rare_upper=q, samples=samples, alpha=alpha) >= min(signs, rare)


@pytest.mark.parametrize("q", [0.5, 0.1, 0.01])
def test_margins_are_close_to_the_best_chernoff_bound_where_it_matters(q: float) -> None:
    with mpmath.workdps(40):
        for samples in (5000, 500_000):
            signs = least_margin(signs_exponent, samples=samples, alpha=0.25e-3)
            rare = least_margin(lambda rate: rare_exponent(rate, mpmath.mpf(q)), samples=samples, alpha=0.2e-3)
            assert margin_in_use(rare_upper=q, samples=samples, alpha=1e-3) <= 1.03 * min(signs, rare)


def test_a_rare_side_makes_the_margin_small() -> None:
    margins = [margin_in_use(rare_upper=q, samples=50_000, alpha=0.001) for q in (1.0, 0.1, 0.01, 0.001)]
    assert margins[0] >= margins[1] > 1.5 * margins[2] > 3 * margins[3]


@pytest.mark.parametrize("samples", [1, 2, 10, 10**6])
@pytest.mark.parametrize("alpha", [1e-90, 1e-12, 0.001, 0.49])
def test_extreme_counts_give_finite_bounds(samples: int, alpha: float) -> None:
    for votes in (0, 1, samples, 2 * samples):
        q = float(rare_probability_upper(votes, samples, alpha=alpha))
        assert votes / (2 * samples) <= q <= 1.0
        bound = margin_in_use(rare_upper=q, samples=samples, alpha=alpha)
        assert 0 < bound < math.inf


def test_the_bound_solves_its_quadratic() -> None:
    """‖μ‖² - τ‖μ‖ = X̄·Ȳ + τ‖Ȳ‖, solved by hand for means along the axes."""
    half, alpha = 10_000, 0.01
    tau = margin_in_use(rare_upper=1.0, samples=half, alpha=alpha, dimension=2) + HALF_UNIT * math.sqrt(2)
    first, second = np.array([0.3, 0.1]), np.array([0.2, -0.4])
    means = np.array([first, second])
    product, length = 0.3 * 0.2 - 0.1 * 0.4, math.sqrt(0.2)
    expected = (tau + math.sqrt(tau**2 + 4 * (product + tau * length))) / 2
    # rare - common = 2 means: s = ±½ on either side. Called with q = 1 the signs decide.
    bound = halves_norm_upper(means, -means, margins=margins_of_halves(half, 1.0, alpha=alpha))
    assert bound == pytest.approx(expected, rel=1e-11)
    assert bound >= expected


def test_a_second_half_of_zero_leaves_the_margin() -> None:
    means = np.array([[0.5, 0.5, 0.5], [0.0, 0.0, 0.0]])
    bound = halves_norm_upper(means, -means, margins=margins_of_halves(1000, 1.0, alpha=0.01))
    assert bound == pytest.approx(margin_in_use(rare_upper=1.0, samples=1000, alpha=0.01), rel=1e-3)


def test_halves_that_contradict_each_other_do_not_break() -> None:
    means = np.array([[0.5, 0.0], [-0.5, 0.0]])
    assert 0 <= halves_norm_upper(means, -means, margins=margins_of_halves(1000, 1.0, alpha=0.01)) < 1


# --- Theorem 2 ---


@pytest.mark.parametrize(
    ("dimension", "pairs", "alpha", "expected"),
    [
        (49, 50_000, 0.0005, 0.3452276),  # 4 sqrt(49 · 7.6009025 / 50000)
        (3072, 500_000, math.exp(-8), 0.8868100),  # 4 sqrt(3072 · 8 / 500000)
        (1, 4, math.exp(-2), 4 * math.sqrt(0.5)),  # 2 L = d k: the branches meet
        (1, 2, math.exp(-2), 4 * math.sqrt(2)),  # 2 L > d k: 4 sqrt(2) L/k
        (2, 3, math.exp(-6), 8 * math.sqrt(2)),
    ],
)
def test_pair_margin_by_hand(dimension: int, pairs: int, alpha: float, expected: float) -> None:
    assert pair_product_margin(dimension, pairs, alpha=alpha) == pytest.approx(expected, rel=1e-6)


def test_the_branches_of_the_pair_margin_meet() -> None:
    alpha = math.exp(-50)
    below, above = (pair_product_margin(1, pairs, alpha=alpha) for pairs in (100, 99))
    assert below == pytest.approx(4 * math.sqrt(0.5))
    assert above == pytest.approx(4 * math.sqrt(2) * 50 / 99)


def gradient_tally(
    *, products: tuple[int, int], pairs: int, dimension: int, sigma: float = 0.5, counts: tuple[int, int] | None = None
) -> GradientTally:
    return GradientTally(
        STREAM,
        sigma,
        counts=np.array(counts or (2 * pairs, 0)),
        invalid=0,
        group=np.array([0, 1, 1]),
        sums=np.zeros((2, 2, dimension), dtype=np.int64),
        products=np.array(products),
        ranges=((0, 2 * pairs),),
    )


def test_gradient_from_pairs_by_hand() -> None:
    """σ = ½, d = 49, 50000 pairs with Σ z·z' = 5000: mean 0.1, t = 0.34524 at α = 0.0005; sqrt(0.44524)/σ."""
    units = round(5000 / GRADIENT_UNIT)
    tally = gradient_tally(products=(units, 7), pairs=50_000, dimension=49)
    (bound,) = gradient_from_pairs([tally], [0], 0.0005)
    t = 4 * math.sqrt(49 * math.log(2000) / 50_000)
    assert bound == pytest.approx(math.sqrt(0.1 + t) / 0.5, rel=1e-5)
    assert bound > math.sqrt(0.1 + t + HALF_UNIT) / 0.5


def test_gradient_from_pairs_in_units_of_length() -> None:
    """The formula of the paper: V of ε = σz is σ² times larger, t too, and ‖∇p‖² = E[V]/σ⁴."""
    sigma, pairs, dimension, alpha = 0.25, 1000, 10, 0.001
    mean = 0.3
    (bound,) = gradient_from_pairs(
        [
            gradient_tally(
                products=(round(mean * pairs / GRADIENT_UNIT), 0), pairs=pairs, dimension=dimension, sigma=sigma
            )
        ],
        [0],
        alpha,
    )
    t = 4 * sigma**2 * math.sqrt(dimension * math.log(1 / alpha) / pairs)
    assert bound == pytest.approx(math.sqrt((sigma**2 * mean + t) / sigma**4), rel=1e-5)


def test_products_far_below_zero_give_a_norm_of_zero_not_an_error() -> None:
    (bound,) = gradient_from_pairs([gradient_tally(products=(-(10**12), 0), pairs=1000, dimension=4)], [0], 0.01)
    assert bound == 0.0


# --- sample need ---


def least_samples(error: float, bound: Callable[[int], float]) -> float:
    """The k, as a real number, at which a decreasing bound falls to `error`."""
    low, high = 1.0, 1e12
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bound(round(middle)) > error else (low, middle)
    return high


def halves_error(dimension: int, samples: int, *, alpha: float) -> float:
    """The bound when μ = 0 and the means are as long as pure noise makes them, sqrt(d/(4k)), at a right angle."""
    means = np.zeros((2, dimension))
    means[0, 0] = means[1, 1] = math.sqrt(dimension / (4 * samples))
    return halves_norm_upper(means, -means, margins=margins_of_halves(samples, 1.0, alpha=alpha))


def pairs_error(dimension: int, samples: int, *, alpha: float) -> float:
    return math.sqrt(pair_product_margin(dimension, samples, alpha=alpha))


def slopes(dimensions: Sequence[int], needs: Sequence[float]) -> np.ndarray:
    """Of the line from each point to the next, both axes logarithmic."""
    return np.diff(np.log(needs)) / np.diff(np.log(dimensions))


def squared_error(dimension: int, samples: int, *, alpha: float) -> float:
    """What the halves add to X̄·Ȳ, the estimate of ‖μ‖²: the bound ‖μ‖ solves ‖μ‖² - τ‖μ‖ = X̄·Ȳ + error."""
    tau = margin_in_use(rare_upper=1.0, samples=samples, alpha=alpha) + HALF_UNIT * math.sqrt(dimension)
    bound = halves_error(dimension, samples, alpha=alpha)
    return bound**2 - tau * bound


def test_samples_needed_grow_like_the_root_of_the_dimension_by_halves_and_like_the_dimension_by_pairs() -> None:
    """For an error of 0.01 in ‖μ‖² at α = 0.001."""
    dimensions = [10, 100, 1000, 10_000]
    halves = [least_samples(0.01, lambda k, d=d: squared_error(d, k, alpha=0.001)) for d in dimensions]
    pairs = [least_samples(0.01, lambda k, d=d: pairs_error(d, k, alpha=0.001) ** 2) for d in dimensions]
    assert slopes(dimensions, halves) == pytest.approx([0.5] * 3, abs=0.02)
    assert slopes(dimensions, pairs) == pytest.approx([1.0] * 3, abs=0.001)


def test_samples_needed_for_a_bound_on_the_norm_never_grow_faster_than_that() -> None:
    """For a bound of 0.1 on a gradient of 0. In few dimensions the part that does not depend on them decides."""
    dimensions = [10, 100, 1000, 10_000, 100_000]
    found = slopes(dimensions, [least_samples(0.1, lambda k, d=d: halves_error(d, k, alpha=0.001)) for d in dimensions])
    assert (np.diff(found) > 0).all()
    assert 0.45 < found[-1] < 0.55
    # At d = 3072 pairs need a hundred times the samples of halves, and more.
    need = [least_samples(0.1, lambda k, f=f: f(3072, k, alpha=0.001)) for f in (halves_error, pairs_error)]
    assert 100 * need[0] < need[1]


def test_already_at_ten_dimensions_halves_need_less() -> None:
    need = [least_samples(0.1, lambda k, f=f: f(10, k, alpha=0.001)) for f in (halves_error, pairs_error)]
    assert need[0] < need[1] / 10


# --- from tallies ---


def drawn(dimension: int = 3, pairs: int = 400, *, groups: tuple[int, ...] = (0, 1, 2, 3)) -> GradientTally:
    """Three classes by two thresholds on the first coordinate, a few invalid votes, and the sums they give."""
    generator = np.random.default_rng(4)
    z = generator.normal(size=(pairs, 2, dimension))
    votes = np.where(z[..., 0] < 1.0, 0, np.where(z[..., 0] < 1.8, 1, 2))
    votes[generator.random((pairs, 2)) < 0.01] = 3
    group = np.array(groups)[votes]
    g = max(groups) + 1
    units = np.rint(z / GRADIENT_UNIT).astype(np.int64)
    sums = np.array([[units[:, half][group[:, half] == k].sum(axis=0) for k in range(g)] for half in range(2)])
    dots = np.rint((z[:, 0] * z[:, 1]).sum(axis=1) / GRADIENT_UNIT).astype(np.int64)
    together = group[:, 0] == group[:, 1]
    products = np.array([dots[together & (group[:, 0] == k)].sum() for k in range(g)])
    counts = np.bincount(votes.ravel(), minlength=4)
    return GradientTally(STREAM, 0.5, counts[:3], int(counts[3]), np.array(groups), sums, products, ((0, 2 * pairs),))


def test_the_bound_from_a_tally_is_the_bound_from_its_means() -> None:
    tally = drawn()
    half = tally.n // 2
    inside = tally.sums[:, 0] * GRADIENT_UNIT / half
    outside = (tally.sums[:, 1] + tally.sums[:, 2] + tally.sums[:, 3]) * GRADIENT_UNIT / half
    q = float(rare_probability_upper(tally.n - int(tally.counts[0]), half, alpha=0.01))
    expected = halves_norm_upper(outside, inside, margins=margins_of_halves(half, q, alpha=0.01)) / 0.5
    assert gradient_from_halves([tally], [0], 0.01)[0] == pytest.approx(expected, rel=1e-12)


def test_groups_do_not_change_the_bound_on_their_own_class() -> None:
    one, other = drawn(), drawn(groups=(0, 1, 1, 1))
    for method in (gradient_from_halves, gradient_from_pairs):
        np.testing.assert_allclose(method([one], [0], 0.01), method([other], [0], 0.01), rtol=1e-12)
        with pytest.raises(InputError, match="gradient of class 1 is not available"):
            method([other], [1], 0.01)


def test_every_class_has_its_row() -> None:
    tally = drawn()
    top, norm, others, other_norms = gradients_of_every_class([tally, tally], [0, 2], 0.04)
    share = 0.04 / 8
    assert norm == pytest.approx([float(gradient_from_halves([tally], [c], share)[0]) for c in (0, 2)])
    assert (top < np.array([tally.counts[0], tally.counts[2]]) / tally.n).all()
    votes = np.append(tally.counts, tally.invalid) / tally.n
    assert (others > np.array([[votes[1], votes[0]], [votes[2], votes[1]], [votes[3], votes[3]]])).all()
    half = tally.n // 2
    inside = tally.sums[:, 1] * GRADIENT_UNIT / half
    outside = np.delete(tally.sums, 1, axis=1).sum(axis=1) * GRADIENT_UNIT / half
    q = float(rare_probability_upper(int(tally.counts[1]), half, alpha=share))
    expected = halves_norm_upper(inside, outside, margins=margins_of_halves(half, q, alpha=share)) / 0.5
    assert other_norms[0, 0] == pytest.approx(expected, rel=1e-12)
    assert other_norms[1, 1] == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 50), st.integers(1, 10**6), st.floats(1e-6, 0.4), st.floats(0.01, 1.0))
def test_the_bound_is_never_below_what_both_halves_agree_on(
    dimension: int, half: int, alpha: float, length: float
) -> None:
    """Where both halves have the same mean, that mean is a possible truth."""
    means = np.full((2, dimension), length / math.sqrt(dimension))
    for q in (0.2, 1.0):
        assert halves_norm_upper(means, -means, margins=margins_of_halves(half, q, alpha=alpha)) >= length
