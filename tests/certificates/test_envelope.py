"""Radii for a sigma that varies: quoted values, Cohen's limit, and proof and tightness in interval arithmetic."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ball_arithmetic import least_at_x1, log_uniform, most_at_x1
from smoothcert.certificates import (
    envelope_radius,
    envelope_two_class_radius,
    gaussian_radius,
    gaussian_two_class_radius,
    worst_case_probability,
)
from smoothcert.errors import InputError
from smoothcert.records.envelopes import ConstantSigma, Envelope, LipschitzSigma, MonotoneEnvelope, SemiElastic, Widened

Ends = Callable[[arb], tuple[arb, arb]]
DIMENSION = st.integers(0, 1000).map(lambda step: round(200_000 ** (step / 1000)))  # 1 … 200000
PROBABILITY = st.one_of(st.floats(0.5, 0.999), st.floats(-15, -3).map(lambda power: float(1 - 10**power)))
ROUNDED = 3e-10
"""How far below the true radius a radius may be, in units of σ: the documentation says about 1e-10."""


def radius(p_a: float, sigma: float, dimension: int, envelope: Envelope) -> float:
    return float(envelope_radius(p_a, sigma=sigma, dimension=dimension, envelope=envelope))


@pytest.mark.parametrize(
    ("dimension", "sigma", "rate", "p_a", "expected"),
    [
        (2, 0.5, 0.1, 0.99, 1.16003484),
        (49, 0.5, 0.01, 0.999, 1.54324616),
        (784, 0.25, 0.01, 0.99993, 0.94738778),
        (784, 0.5, 0.05, 0.999, 1.08835444),
        (3072, 1.0, 0.01, 0.999, 2.42471562),
        (150_528, 0.25, 0.05, 0.999, 0.11126053),
    ],
)
def test_quoted_radii(dimension: int, sigma: float, rate: float, p_a: float, expected: float) -> None:
    assert radius(p_a, sigma, dimension, SemiElastic(rate)) == pytest.approx(expected, abs=7e-9)


def test_the_worst_case_is_not_monotone_below_a_half() -> None:
    chances = worst_case_probability(0.999, sigma=1.0, other_sigma=[0.999, 0.9, 0.8], distance=1.0, dimension=10)
    # Quoted as .0183, .0137, .0186; the first is that of σ₁ = σ₀, and .0182 at .999.
    assert chances == pytest.approx([0.018205, 0.013688, 0.018626], abs=5e-7)
    at = {"sigma": 1.0, "distance": 1.0, "dimension": 10}
    for level, chance in zip([0.999, 0.9, 0.8], chances, strict=True):
        with ctx.workprec(128):
            p = 1 - arb(0.999)
        assert least_at_x1(p, other_sigma=level, **at) * (1 - 1e-10) < chance
        assert chance < most_at_x1(p, other_sigma=level, **at) * (1 + 1e-10)
    assert worst_case_probability(0.999, other_sigma=1.0, **at) == pytest.approx(0.0183, abs=5e-5)


def test_the_worst_case_against_interval_arithmetic() -> None:
    generator = np.random.default_rng(1)
    for _ in range(25):
        dimension = int(log_uniform(generator, 1, 200_001, 1)[0])
        p_a = float(1 - 10 ** generator.uniform(-9, -0.1))
        ratio = float(np.exp(generator.normal() / np.sqrt(dimension)))
        distance = float(generator.uniform(0.05, 5))
        with ctx.workprec(128):
            p = 1 - arb(p_a)
        at = {"other_sigma": ratio, "distance": distance, "dimension": dimension}
        got = float(worst_case_probability(p_a, sigma=1.0, **at))
        assert got > float(least_at_x1(p, sigma=1.0, **at)) * (1 - 1e-10)
        assert got < float(most_at_x1(p, sigma=1.0, **at)) * (1 + 1e-10)


@given(PROBABILITY, st.floats(1e-6, 1e6), DIMENSION)
def test_constant_sigma_is_cohens_radius(p_a: float, sigma: float, dimension: int) -> None:
    assert radius(p_a, sigma, dimension, ConstantSigma()) == float(gaussian_radius(p_a, sigma=sigma))


@settings(max_examples=30)
@given(PROBABILITY, st.floats(1e-3, 1e3), DIMENSION)
def test_cohens_radius_as_the_rate_vanishes(p_a: float, sigma: float, dimension: int) -> None:
    cohen = float(gaussian_radius(p_a, sigma=sigma))
    for envelope in (
        SemiElastic(0.0),
        SemiElastic(1e-14 / sigma),
        LipschitzSigma(constant=0.0, floor=sigma),
        Widened(ConstantSigma(), slack=1e-15),
    ):
        assert radius(p_a, sigma, dimension, envelope) == pytest.approx(cohen, abs=ROUNDED * sigma)


@dataclass(frozen=True)
class Case:
    """One input, its envelope, and the same ends in exact arithmetic."""

    dimension: int
    sigma: float
    p_a: float
    envelope: Envelope
    ends: Ends


def semi_elastic(sigma: float, rate: float) -> tuple[Envelope, Ends]:
    def ends(a: arb) -> tuple[arb, arb]:
        return arb(sigma) * (-arb(rate) * a).exp(), arb(sigma) * (arb(rate) * a).exp()

    return SemiElastic(rate), ends


def lipschitz(sigma: float, constant: float, floor: float) -> tuple[Envelope, Ends]:
    def ends(a: arb) -> tuple[arb, arb]:
        low = arb(sigma) - arb(constant) * a
        return low if low > floor else arb(floor), arb(sigma) + arb(constant) * a

    return LipschitzSigma(constant=constant, floor=floor), ends


def quadratic(sigma: float, rate: float) -> tuple[Envelope, Ends]:
    def ends(a: arb) -> tuple[arb, arb]:
        return arb(sigma) / (1 + (arb(rate) * a) ** 2), arb(sigma) * (1 + (arb(rate) * a) ** 2)

    own = MonotoneEnvelope("quadratic", lambda s, a: s / (1 + (rate * a) ** 2), lambda s, a: s * (1 + (rate * a) ** 2))
    return own, ends


def only_upwards(sigma: float, rate: float) -> tuple[Envelope, Ends]:
    own = MonotoneEnvelope("only up", lambda s, a: s + 0 * a, lambda s, a: s * (1 + rate * a))
    return own, lambda a: (arb(sigma), arb(sigma) * (1 + arb(rate) * a))


def widened(sigma: float, rate: float, slack: float) -> tuple[Envelope, Ends]:
    inner, ends = semi_elastic(sigma, rate)
    return Widened(inner, slack), lambda a: (ends(a)[0] * (1 - arb(slack)), ends(a)[1] * (1 + arb(slack)))


def random_case(generator: np.random.Generator) -> Case:
    dimension = int(log_uniform(generator, 1, 200_001, 1)[0])
    sigma = float(log_uniform(generator, 0.01, 100, 1)[0])
    near_half, near_one = 0.5 + 10 ** generator.uniform(-6, -0.31), 1 - 10 ** generator.uniform(-13, -0.31)
    p_a = float(near_half if generator.random() < 0.3 else near_one)
    rate = float(10 ** generator.uniform(-5, 1) / (sigma * np.sqrt(dimension)))  # where it begins to matter
    choice = generator.integers(5)
    if choice == 0:
        pair = semi_elastic(sigma, rate)
    elif choice == 1:
        pair = lipschitz(sigma, rate * sigma, sigma * float(generator.choice([1.0, 0.999, 0.9, 0.3])))
    elif choice == 2:
        pair = quadratic(sigma, rate)
    elif choice == 3:
        pair = only_upwards(sigma, rate)
    else:
        pair = widened(sigma, rate, float(10 ** generator.uniform(-7, -1.5) / np.sqrt(dimension)))
    return Case(dimension, sigma, p_a, *pair)


@pytest.mark.parametrize("seed", range(8))
def test_sound_and_tight_in_interval_arithmetic(seed: int) -> None:
    """200 random points in all. At R itself, not only at R(1 - 1e-9), no end of the true envelope reaches ½; a hair
    further out one does."""
    generator = np.random.default_rng(seed)
    certified = 0
    for case in (random_case(generator) for _ in range(25)):
        r = radius(case.p_a, case.sigma, case.dimension, case.envelope)
        assert 0 <= r <= gaussian_radius(case.p_a, sigma=case.sigma), case
        with ctx.workprec(192):
            p, at, beyond = 1 - arb(case.p_a), arb(r), arb(r) * (1 + arb(1e-6)) + ROUNDED * arb(case.sigma)
            there, further = case.ends(at), case.ends(beyond)
        common = {"sigma": case.sigma, "dimension": case.dimension}
        if r > 0:
            assert all(most_at_x1(p, other_sigma=s1, distance=at, **common) < 0.5 for s1 in there), (case, r)
            certified += 1
        least = (least_at_x1(p, other_sigma=s1, distance=beyond, **common) for s1 in further)
        assert any(value > 0.5 for value in least), (case, r)
    assert certified >= 20


@settings(max_examples=40)
@given(DIMENSION, st.floats(-5, 1), st.floats(0.01, 100))
def test_grows_with_the_probability(dimension: int, power: float, sigma: float) -> None:
    rate = 10**power / (sigma * np.sqrt(dimension))
    p_a = np.sort(np.concatenate([np.linspace(0.5, 0.999, 40), 1 - 10.0 ** -np.linspace(3, 15, 40)]))
    radii = envelope_radius(p_a, sigma=sigma, dimension=dimension, envelope=SemiElastic(rate))
    assert (np.diff(radii) >= -ROUNDED * sigma).all()
    assert (radii <= gaussian_radius(p_a, sigma=sigma)).all()
    assert radii[0] == 0.0
    assert radii[-1] > radii[1]


@settings(max_examples=8)
@given(DIMENSION, PROBABILITY, st.floats(0.01, 100))
def test_falls_with_the_rate_and_the_lipschitz_constant(dimension: int, p_a: float, sigma: float) -> None:
    slopes = np.concatenate([[0.0], 10.0 ** np.linspace(-6, 3, 12)])
    elastic = np.array([radius(p_a, sigma, dimension, SemiElastic(float(rate))) for rate in slopes])
    assert (np.diff(elastic) <= ROUNDED * sigma).all()
    moving = [LipschitzSigma(constant=float(slope), floor=0.5 * sigma) for slope in slopes]
    radii = np.array([radius(p_a, sigma, dimension, envelope) for envelope in moving])
    assert (np.diff(radii) <= ROUNDED * sigma).all()
    higher = np.array(
        [radius(p_a, sigma, dimension, LipschitzSigma(constant=float(slope), floor=sigma)) for slope in slopes]
    )
    assert (higher >= radii - ROUNDED * sigma).all()


@settings(max_examples=15)
@given(PROBABILITY, st.floats(-6, 1), st.floats(0.01, 100))
def test_falls_with_the_dimension(p_a: float, power: float, sigma: float) -> None:
    dimensions = [1, 2, 3, 5, 10, 50, 300, 784, 3072, 20_000, 150_528, 200_000]
    radii = [radius(p_a, sigma, dimension, SemiElastic(10**power / sigma)) for dimension in dimensions]
    assert (np.diff(radii) <= ROUNDED * sigma).all()


@settings(max_examples=30)
@given(DIMENSION, PROBABILITY, st.floats(0.01, 100), st.floats(0.001, 1000))
def test_the_unit_of_length_does_not_matter(dimension: int, p_a: float, sigma: float, unit: float) -> None:
    rate = 0.1 / (sigma * np.sqrt(dimension))
    here = radius(p_a, sigma, dimension, SemiElastic(rate))
    there = radius(p_a, sigma * unit, dimension, SemiElastic(rate / unit))
    assert there / unit == pytest.approx(here, abs=ROUNDED * sigma)


@settings(max_examples=20)
@given(DIMENSION, PROBABILITY, st.floats(-6, 0.5))
def test_a_wider_envelope_certifies_less(dimension: int, p_a: float, power: float) -> None:
    rate = 10**power / np.sqrt(dimension)
    plain = radius(p_a, 1.0, dimension, SemiElastic(rate))
    slacks = [radius(p_a, 1.0, dimension, Widened(SemiElastic(rate), slack)) for slack in (0.0, 1e-6, 1e-3, 0.3)]
    assert slacks[0] == pytest.approx(plain, abs=ROUNDED)
    assert (np.diff(slacks) <= ROUNDED).all()


@pytest.mark.parametrize("dimension", [1, 10, 784, 150_528])
@pytest.mark.parametrize("jump", [0.3, 0.77777, 1.5])
def test_sigma_may_jump(dimension: int, jump: float) -> None:
    """Constant up to a distance, anything beyond: the radius is that distance, from below."""
    sudden = MonotoneEnvelope(
        "jump", lambda s, a: np.where(a < jump, s, 1e-3 * s), lambda s, a: np.where(a < jump, s, 1e3 * s)
    )
    r = radius(0.99, 1.0, dimension, sudden)
    assert r <= jump
    assert r == pytest.approx(jump, abs=1e-6)


def test_nothing_where_sigma_may_jump_too_far_at_once() -> None:
    assert radius(0.999, 1.0, 784, Widened(ConstantSigma(), slack=0.2)) == 0.0
    vanishing = MonotoneEnvelope("vanishing", lambda s, a: s - np.minimum(a, s), lambda s, a: s + a)
    assert 0 < radius(0.999, 1.0, 784, vanishing) < 0.2


@pytest.mark.parametrize(
    "envelope",
    [
        MonotoneEnvelope("rises", lambda s, a: s * (1 - 0.01 * np.exp(-a)), lambda s, a: s + 0 * a),
        MonotoneEnvelope("falls", lambda s, a: s + 0 * a, lambda s, a: s * (1 + 0.01 * np.exp(-a))),
        MonotoneEnvelope("above", lambda s, a: 1.001 * s, lambda s, a: 1.01 * s),
        MonotoneEnvelope("below", lambda s, a: 0.99 * s, lambda s, a: 0.999 * s),
        LipschitzSigma(constant=0.01, floor=2.0),
    ],
)
def test_what_is_no_envelope_is_refused(envelope: Envelope) -> None:
    for p_a in (0.9, [0.99, 0.3]):
        with pytest.raises(InputError, match="envelope"):
            envelope_radius(p_a, sigma=1.0, dimension=10, envelope=envelope)
        with pytest.raises(InputError, match="envelope"):
            envelope_two_class_radius(p_a, 0.005, sigma=1.0, dimension=10, envelope=envelope)


@pytest.mark.parametrize("dimension", [0, -5])
def test_a_dimension_that_is_none_is_refused(dimension: int) -> None:
    with pytest.raises(InputError, match="dimension"):
        envelope_radius(0.9, sigma=1.0, dimension=dimension, envelope=SemiElastic(0.1))


EXTREME_PROBABILITY = st.sampled_from(
    [0.0, 0.5, float(np.nextafter(0.5, 1)), 0.5 + 1e-12, 0.9, 1 - 1e-16, 1 - 2.0**-53, 1.0, np.nan, -1.0, 2.0, np.inf]
)
EXTREME_SIGMA = st.one_of(
    st.floats(-6, 6).map(lambda power: float(10**power)), st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -1.0])
)
SLOPE = st.one_of(st.sampled_from([0.0, 1e-300, 1e-20, 1e3]), st.floats(-12, 3).map(lambda power: float(10**power)))


def envelopes(slope: float, sigma: float, slack: float) -> list[Envelope]:
    floor = sigma if np.isfinite(sigma) and sigma > 0 else 1.0
    return [
        SemiElastic(slope),
        LipschitzSigma(constant=slope, floor=floor),
        LipschitzSigma(constant=slope, floor=1e-3 * floor),
        Widened(SemiElastic(slope), slack),
        MonotoneEnvelope("linear", lambda s, a: s - slope * a, lambda s, a: s + slope * a),
    ]


@settings(max_examples=40)
@given(
    EXTREME_PROBABILITY,
    EXTREME_PROBABILITY,
    EXTREME_SIGMA,
    SLOPE,
    DIMENSION,
    st.sampled_from([0, 1e-16, 1e-6, 0.5, 0.999]),
)
def test_extreme_arguments(p_a: float, p_b: float, sigma: float, slope: float, dimension: int, slack: float) -> None:
    """Never NaN, never negative, never more than Cohen, never a warning; 0 where nothing is certified."""
    cohen = float(gaussian_radius(p_a, sigma=sigma))
    for envelope in envelopes(slope, sigma, slack):
        both = envelope_radius([p_a, 0.9], sigma=[sigma, 1e6], dimension=dimension, envelope=envelope)
        assert (both >= 0).all()
        assert both[0] <= cohen
        assert both[1] <= gaussian_radius(0.9, sigma=1e6)
        two = float(envelope_two_class_radius(p_a, p_b, sigma=sigma, dimension=dimension, envelope=envelope))
        assert 0 <= two <= max(cohen, float(gaussian_two_class_radius(p_a, p_b, sigma=sigma)))
        if not (0.5 < p_a < 1 and 0 < sigma < np.inf):
            assert both[0] == 0.0


def test_shapes() -> None:
    envelope = SemiElastic(0.01)
    assert envelope_radius(0.9, sigma=1.0, dimension=3, envelope=envelope).shape == ()
    assert envelope_radius([], sigma=1.0, dimension=3, envelope=envelope).shape == (0,)
    assert envelope_radius([[0.9], [0.8]], sigma=[1.0, 2.0, 3.0], dimension=3, envelope=envelope).shape == (2, 3)
    assert envelope_two_class_radius([0.9, 0.8], 0.05, sigma=1.0, dimension=3, envelope=envelope).shape == (2,)


@settings(max_examples=15)
@given(st.integers(1, 2000), st.floats(-4, 0.5))
def test_inputs_do_not_depend_on_their_neighbours(dimension: int, power: float) -> None:
    p_a = np.array([0.5, 0.7, np.nan, 0.99, 1 - 1e-12, 0.2, 0.51])
    envelope = SemiElastic(10**power / np.sqrt(dimension))
    together = envelope_radius(p_a, sigma=1.0, dimension=dimension, envelope=envelope)
    alone = [radius(float(p), 1.0, dimension, envelope) for p in p_a]
    assert together == pytest.approx(alone, abs=ROUNDED)


# Two classes

PAIR = st.tuples(st.floats(0.05, 0.9999), st.floats(-4, -0.01)).map(
    lambda pair: (pair[0], float(min(1 - pair[0], pair[0]) * 10 ** pair[1]))
)


@settings(max_examples=15)
@given(PAIR, st.floats(1e-3, 1e3), DIMENSION)
def test_two_classes_and_constant_sigma(pair: tuple[float, float], sigma: float, dimension: int) -> None:
    cohen = float(gaussian_two_class_radius(*pair, sigma=sigma))
    common = {"sigma": sigma, "dimension": dimension}
    assert float(envelope_two_class_radius(*pair, envelope=ConstantSigma(), **common)) == cohen
    slow = float(envelope_two_class_radius(*pair, envelope=SemiElastic(1e-14 / sigma), **common))
    assert slow == pytest.approx(cohen, abs=1e-7 * sigma)  # it may step back several times


@settings(max_examples=15)
@given(PAIR, DIMENSION, st.floats(-4, 1))
def test_two_classes_are_worth_more(pair: tuple[float, float], dimension: int, power: float) -> None:
    """Than p_a alone, and than the score (1 + 1[A] - 1[B])/2; and 1 - p_a stands in for a weaker bound."""
    p_a, p_b = pair
    envelope = SemiElastic(10**power / np.sqrt(dimension))
    both = float(envelope_two_class_radius(p_a, p_b, sigma=1.0, dimension=dimension, envelope=envelope))
    assert both <= float(gaussian_two_class_radius(p_a, p_b, sigma=1.0))
    assert both >= radius(p_a, 1.0, dimension, envelope) - ROUNDED
    assert both >= radius((1 + p_a - p_b) / 2, 1.0, dimension, envelope) - ROUNDED
    weak = float(envelope_two_class_radius(p_a, 1.0, sigma=1.0, dimension=dimension, envelope=envelope))
    assert weak == pytest.approx(radius(p_a, 1.0, dimension, envelope), abs=ROUNDED)


def random_pair(generator: np.random.Generator) -> tuple[int, float, float, float]:
    dimension = int(log_uniform(generator, 1, 200_001, 1)[0])
    p_a = float(generator.uniform(0.35, 0.999))
    p_b = float(min(1 - p_a, p_a) * 10 ** generator.uniform(-3, -0.02))
    return dimension, p_a, p_b, float(10 ** generator.uniform(-2, 1) / np.sqrt(dimension))


@pytest.mark.parametrize("seed", range(2))
def test_two_classes_are_sound_in_interval_arithmetic(seed: int) -> None:
    """At the radius the two worst chances stay below 1 together at the ends, inside, and where they peak inside."""
    generator = np.random.default_rng(seed)
    for _ in range(10):
        dimension, p_a, p_b, rate = random_pair(generator)
        r = float(envelope_two_class_radius(p_a, p_b, sigma=1.0, dimension=dimension, envelope=SemiElastic(rate)))
        assert r > 0
        exponents = np.append(np.linspace(-1, 1, 5), peak(dimension, p_a, p_b, rate, r))
        with ctx.workprec(192):
            p, levels = 1 - arb(p_a), [(arb(rate) * arb(r) * arb(float(u))).exp() for u in exponents]
        for level in levels:
            at = {"sigma": 1.0, "other_sigma": level, "distance": r, "dimension": dimension}
            assert most_at_x1(p, **at) + most_at_x1(p_b, **at) < 1, (dimension, p_a, p_b, rate, r)


def sums(dimension: int, p_a: float, p_b: float, rate: float, a: float, count: int) -> np.ndarray:
    """ξ(1 - p_a) + ξ(p_b) along the envelope, σ₀ = 1."""
    levels = np.exp(rate * a * np.linspace(-1, 1, count))
    common = {"sigma": 1.0, "other_sigma": levels, "distance": a, "dimension": dimension}
    return worst_case_probability(p_a, **common) + worst_case_probability(1 - p_b, **common)


def peak(dimension: int, p_a: float, p_b: float, rate: float, a: float) -> float:
    return float(np.linspace(-1, 1, 201)[np.argmax(sums(dimension, p_a, p_b, rate, a, 201))])


def test_two_classes_are_tight() -> None:
    """The largest distance that a fine search of the envelope allows is reached within a few thousandths."""
    generator = np.random.default_rng(3)
    shares = []
    for _ in range(20):
        dimension, p_a, p_b, rate = random_pair(generator)
        r = float(envelope_two_class_radius(p_a, p_b, sigma=1.0, dimension=dimension, envelope=SemiElastic(rate)))
        low, high = 0.0, float(gaussian_two_class_radius(p_a, p_b, sigma=1.0))
        for _ in range(30):
            middle = (low + high) / 2
            holds = sums(dimension, p_a, p_b, rate, middle, 201).max() < 1
            low, high = (middle, high) if holds else (low, middle)
        assert r <= high * (1 + 1e-9)
        shares.append(r / high)
    assert min(shares) > 0.995
    assert np.median(shares) > 1 - 1e-7


@settings(max_examples=10)
@given(st.floats(0.51, 0.999), DIMENSION, st.floats(-3, 0.5))
def test_two_classes_fall_with_the_other_class(p_a: float, dimension: int, power: float) -> None:
    """For bounds that a sample can give; within the tightness above."""
    p_b = (1 - p_a) * 10.0 ** np.linspace(-3, 0, 12)
    envelope = SemiElastic(10**power / np.sqrt(dimension))
    radii = envelope_two_class_radius(p_a, p_b, sigma=1.0, dimension=dimension, envelope=envelope)
    assume(radii[0] > 0)
    assert (np.diff(radii) <= 5e-3 * radii[:-1] + ROUNDED).all()
