"""The radius of a learned, Lipschitz noise level: quoted values, fifty digits, a second derivation, properties."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf
from scipy import special

from fifty_digits import quantile
from smoothcert.certificates.gaussian import gaussian_radius, gaussian_two_class_radius
from smoothcert.certificates.lipschitz import (
    LIPSCHITZ,
    check_factor_decreases,
    lipschitz_constant,
    lipschitz_factor,
    lipschitz_radius,
)
from smoothcert.errors import InputError
from smoothcert.records import ConstantSigma, Envelope, LipschitzSigma, Quantity, SemiElastic, Smoothing, Widened

PAPER = {"sigma_min": 0.65, "lipschitz": 0.5, "dimension": 784, "p_min": 1e-7}
PROBABILITY = st.floats(1e-6, 1 - 1e-6)
DIMENSION = st.integers(1, 200_000)
P_MIN = st.floats(-10, -1.1).map(lambda exponent: 10.0**exponent)


def test_the_papers_settings_cannot_give_more_than_fifteen_hundredths() -> None:
    assert lipschitz_constant(**PAPER) == pytest.approx(34.71, abs=0.005)
    almost_one = np.nextafter(1.0, 0.0)
    assert lipschitz_radius(almost_one, **PAPER, num_classes=2) == pytest.approx(0.1498, abs=5e-5)
    # With ten classes the squeeze costs the top class nine times p_min.
    assert lipschitz_radius(almost_one, **PAPER, num_classes=10) == pytest.approx(0.1436764882, abs=1e-10)


def _factor_in_fifty_digits(dimension: int, p_min: float) -> mpf:
    """χ² quantile by Newton's method on the regularised incomplete gamma function."""
    half, tail = mpf(dimension) / 2, mpf(p_min)
    x = mpf(float(special.gammainccinv(dimension / 2, p_min)))
    for _ in range(4):
        density = mpmath.exp((half - 1) * mpmath.log(x) - x - mpmath.loggamma(half))
        x += (mpmath.gammainc(half, x, mpmath.inf, regularized=True) - tail) / density
    return mpmath.exp(half * mpmath.log(x) - x - mpmath.loggamma(half)) / mpmath.npdf(quantile(tail))


@pytest.mark.parametrize("dimension", [1, 2, 3, 49, 99, 100, 784, 3072, 150_528, 200_000])
@pytest.mark.parametrize("p_min", [0.4, 1e-3, 1e-7, 1e-10, 1e-100])
def test_factor_is_just_above_fifty_digits(dimension: int, p_min: float) -> None:
    with mpmath.workdps(50):
        truth = _factor_in_fifty_digits(dimension, p_min)
        excess = float(mpf(lipschitz_factor(dimension=dimension, p_min=p_min)) / truth - 1)
    assert 0 < excess < 2e-11


@pytest.mark.parametrize("dimension", [1, 2, 3, 5, 784, 200_000])
def test_the_factor_decreases_in_fifty_digits(dimension: int) -> None:
    """The lemma itself, on a grid of p that the floating-point check knows nothing of."""
    with mpmath.workdps(50):
        grid = (1e-12, 1e-9, 1e-5, 0.01, 0.2, 0.45, 0.55, 0.9, 0.9999)
        factors = [_factor_in_fifty_digits(dimension, p) for p in grid]
    assert all(left > right for left, right in itertools.pairwise(factors))


@given(DIMENSION, P_MIN, P_MIN)
def test_the_factor_decreases(dimension: int, p: float, q: float) -> None:
    low, high = sorted((p, q))
    assert lipschitz_factor(dimension=dimension, p_min=low) >= lipschitz_factor(dimension=dimension, p_min=high) - 1e-9


def test_the_check_refuses_what_it_cannot_confirm() -> None:
    check_factor_decreases(dimension=1, p_min=1e-100)
    check_factor_decreases(dimension=2, p_min=1e-150)
    with pytest.raises(InputError, match=r"p_min 1e-200 cannot be used in dimension 1: .* holds for p_min >= \d"):
        check_factor_decreases(dimension=1, p_min=1e-200)


def test_the_check_sees_a_factor_that_does_not_decrease(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative control: with the wrong tail the factor grows with p."""
    import smoothcert.certificates.lipschitz as module

    point = module._chi_square_point
    monkeypatch.setattr(module, "_chi_square_point", lambda z, dimension: point(-z, dimension))
    module.check_factor_decreases.cache_clear()
    with pytest.raises(InputError, match="could not be confirmed"):
        check_factor_decreases(dimension=784, p_min=1e-7)
    module.check_factor_decreases.cache_clear()


@given(PROBABILITY, PROBABILITY, st.floats(0.01, 10))
def test_constant_sigma_gives_the_gaussian_radius(p_a: float, p_b: float, sigma: float) -> None:
    settings = {"sigma_min": sigma, "lipschitz": 0.0, "dimension": 784, "num_classes": 10, "p_min": 1e-100}
    binary, two_class = gaussian_radius(p_a, sigma=sigma), gaussian_two_class_radius(p_a, p_b, sigma=sigma)
    assert lipschitz_radius(p_a, **settings) == pytest.approx(binary, rel=1e-9, abs=1e-9)
    assert lipschitz_radius(p_a, p_b, **settings) == pytest.approx(two_class, rel=1e-9, abs=1e-9)


@given(PROBABILITY, PROBABILITY, st.integers(2, 1000), st.floats(0, 2), DIMENSION)
def test_never_above_fifty_digits(p_a: float, p_b: float, num_classes: int, slope: float, dimension: int) -> None:
    radius = float(
        lipschitz_radius(p_a, p_b, sigma_min=0.5, lipschitz=slope, dimension=dimension, num_classes=num_classes)
    )
    with mpmath.workdps(50):
        p_min = mpf(1e-7)
        top = (1 - num_classes * p_min) * mpf(p_a) + p_min
        other = (1 - num_classes * p_min) * min(mpf(p_b), 1 - mpf(p_a)) + p_min
        factor = mpf(lipschitz_factor(dimension=dimension, p_min=1e-7)) / (1 + mpf(2e-11))
        truth = (quantile(top) - quantile(other)) / (2 * (1 + 2 * mpf(slope) * factor) / mpf(0.5))
        assert mpf(radius) <= max(truth * (1 + mpf(3e-11)), mpf(0))
        assert mpf(radius) >= truth * (1 - mpf(1e-9)) - mpf(1e-9)


def _exact_mean_of_ball(distance: float, *, sigma: float, ball: float, dimension: int) -> float:
    """P(‖x+σε‖ ≤ ball) at ‖x‖ = distance."""
    return float(special.chndtr((ball / sigma) ** 2, dimension, (distance / sigma) ** 2))


@pytest.mark.parametrize(("dimension", "slope"), [(2, 0.5), (20, 0.3), (100, 0.1)])
def test_ball_classifiers_keep_their_class(dimension: int, slope: float) -> None:
    """Two classes, class 0 outside (or inside) a ball, σ = floor + slope·‖x‖: both means are known exactly."""
    floor = 0.5
    for ball_in_sigmas in (0.8, 1.0, 1.2):
        ball = ball_in_sigmas * floor * np.sqrt(dimension)
        for start in np.linspace(0.0, 2.0, 9):
            inside = _exact_mean_of_ball(start, sigma=floor + slope * start, ball=ball, dimension=dimension)
            label, top = (0, inside) if inside > 0.5 else (1, 1.0 - inside)
            radius = float(lipschitz_radius(top, sigma_min=floor, lipschitz=slope, dimension=dimension, num_classes=2))
            for end in (start + radius, max(start - radius, 0.0)):
                mean = _exact_mean_of_ball(end, sigma=floor + slope * end, ball=ball, dimension=dimension)
                assert (mean if label == 0 else 1.0 - mean) > 0.5 - 1e-12


@given(PROBABILITY, PROBABILITY, st.floats(0, 1), st.floats(0, 1), st.integers(2, 50))
def test_monotone(p: float, q: float, slope: float, other_slope: float, num_classes: int) -> None:
    low, high = sorted((p, q))
    few, many = sorted((slope, other_slope))
    at = {"sigma_min": 0.65, "lipschitz": 0.5, "dimension": 784, "num_classes": num_classes}
    assert lipschitz_radius(low, **at) <= lipschitz_radius(high, **at)
    assert lipschitz_radius(0.4, high, **at) <= lipschitz_radius(0.4, low, **at)
    assert lipschitz_radius(high, **{**at, "lipschitz": many}) <= lipschitz_radius(high, **{**at, "lipschitz": few})
    assert lipschitz_radius(high, **{**at, "sigma_min": 0.5}) <= lipschitz_radius(high, **at)
    assert lipschitz_radius(high, **{**at, "dimension": 3072}) <= lipschitz_radius(high, **at)
    assert lipschitz_radius(high, **{**at, "num_classes": 1000}) <= lipschitz_radius(high, **at) * (1 + 1e-12)
    assert lipschitz_radius(high, **at, slack=1e-6) <= lipschitz_radius(high, **at)


def test_slack_pays_for_two_classes_at_two_points() -> None:
    at = {**PAPER, "num_classes": 10}
    factor, constant = lipschitz_factor(dimension=784, p_min=1e-7), float(lipschitz_constant(**PAPER))
    lost = float(lipschitz_radius(0.9, **at) - lipschitz_radius(0.9, **at, slack=1e-5))
    assert lost == pytest.approx(4 * 2 * factor * 1e-5 / (2 * constant), rel=1e-4)


def test_nonsense_never_becomes_a_radius() -> None:
    nonsense = np.array([np.nan, np.inf, -np.inf, -0.5, 0.0, 1.0, 1.5])
    settings = {"lipschitz": 0.5, "dimension": 784, "num_classes": 10}
    for radius in (
        lipschitz_radius(nonsense, sigma_min=0.65, **settings),
        lipschitz_radius(0.9, np.array([np.nan, -0.5, 0.0]), sigma_min=0.65, **settings),
        lipschitz_radius(0.9, sigma_min=np.array([np.nan, np.inf, 0.0, -1.0]), **settings),
    ):
        assert (radius == 0).all()
    assert lipschitz_radius(np.full((3, 1), 0.9), sigma_min=np.array([0.25, 0.5]), **settings).shape == (3, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_classes": 1}, "at least 2"),
        ({"p_min": 0.1}, "too large for 10 classes"),
        ({"p_min": 0.0}, "p_min"),
        ({"p_min": float("nan")}, "p_min"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 300_000}, "dimension"),
        ({"lipschitz": -1.0}, "not negative"),
        ({"lipschitz": float("nan")}, "not negative"),
        ({"slack": 1.0}, "slack"),
    ],
)
def test_unusable_settings_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lipschitz_radius(0.9, **{**PAPER, "num_classes": 10, **change})


BOUNDS = {Quantity.TOP_LOWER: np.array([0.9, 0.6]), Quantity.RUNNER_UP_UPPER: np.array([0.05, 0.2])}


def _certified(envelope: Envelope, *, sigma: float = 0.8) -> list[list[float]]:
    smoothing = Smoothing(envelope=envelope, dimension=784, num_classes=10)
    return [form.radius(BOUNDS, sigma=sigma, smoothing=smoothing).tolist() for form in LIPSCHITZ]


def test_the_certificate_takes_its_constants_from_the_envelope() -> None:
    settings = {**PAPER, "num_classes": 10}
    expected = [lipschitz_radius([0.9, 0.6], **settings), lipschitz_radius([0.9, 0.6], [0.05, 0.2], **settings)]
    assert _certified(LipschitzSigma(constant=0.5, floor=0.65)) == [one.tolist() for one in expected]


def test_a_constant_sigma_is_its_own_floor() -> None:
    constant = _certified(ConstantSigma())
    assert constant == _certified(LipschitzSigma(constant=0.0, floor=0.8))
    assert constant[0][0] == pytest.approx(float(gaussian_radius(0.9, sigma=0.8)), rel=1e-5)


def test_a_widened_envelope_costs_its_slack() -> None:
    inner = LipschitzSigma(constant=0.5, floor=0.65)
    plain, twice = _certified(inner), _certified(Widened(Widened(inner, slack=2e-6), slack=1e-6))
    expected = lipschitz_radius([0.9, 0.6], **PAPER, num_classes=10, slack=3e-6)
    assert twice[0] == pytest.approx(expected.tolist(), rel=1e-9)
    assert all(less < more for less, more in zip(twice[0] + twice[1], plain[0] + plain[1], strict=True))


def test_a_sigma_below_the_floor_certifies_nothing() -> None:
    assert _certified(LipschitzSigma(constant=0.5, floor=0.65), sigma=0.64) == [[0.0, 0.0], [0.0, 0.0]]


def test_other_envelopes_are_refused() -> None:
    with pytest.raises(InputError, match="Lipschitz constant and a floor"):
        _certified(SemiElastic(rate=0.01))


@pytest.mark.parametrize("known", [{"dimension": 784}, {"num_classes": 10}])
def test_dimension_and_classes_must_be_known(known: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"dimension|number of classes"):
        LIPSCHITZ[0].radius(BOUNDS, sigma=0.5, smoothing=Smoothing(**known))
