"""Every theorem of the checker at known radii: it certifies what is just below, and refuses what is just above."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

pytest.importorskip("flint")

from flint import arb, ctx

from smoothcert_verify.ball_regions import ball_chances
from smoothcert_verify.findings import MalformedError
from smoothcert_verify.theorems import CERTIFICATE_FORMS
from smoothcert_verify.theorems import certifies as certifies_by
from smoothcert_verify.varying_theorems import Setting, SigmaEnvelope, _factor, read_envelope, shift_to_grid


def certifies(name: str, values: dict[str, Fraction], radius: Fraction, where: Setting) -> bool:
    return certifies_by(CERTIFICATE_FORMS[name].theorem, values, radius, where)


def setting(*, sigma: float = 1.0, dimension: int = 784, envelope: SigmaEnvelope | None = None) -> Setting:
    return Setting(Fraction(sigma), dimension, 10, envelope or SigmaEnvelope())


def assert_radius(
    theorem: str, values: dict[str, float], radius: float, where: Setting, *, digits: float = 1e-6
) -> None:
    """The radius, known to so many digits, is what the theorem gives."""
    exact = {name: Fraction(value) for name, value in values.items()}
    assert certifies(theorem, exact, Fraction(radius * (1 - digits)), where)
    assert not certifies(theorem, exact, Fraction(radius * (1 + digits)), where)


HISTORICAL = [
    (0.8, 0.2, 0.841621, 0.67422, 0.23516),
    (0.9, 0.1, 1.281552, 1.03193, 0.39027),
    (0.99, 0.01, 2.326348, 1.90801, 0.55487),
    (0.999, 0.0001, 3.404624, 3.04161, 0.57015),
]


@pytest.mark.parametrize(("p_a", "p_b", "cohen", "li", "lecuyer"), HISTORICAL)
def test_published_radii_for_a_constant_level(p_a: float, p_b: float, cohen: float, li: float, lecuyer: float) -> None:
    values = {"p-a": p_a, "p-b": p_b}
    assert_radius("gaussian", values, cohen, setting())
    assert_radius("envelope", values, cohen, setting())
    assert_radius("li", values, li, setting(), digits=1e-5)
    assert_radius("renyi", values, li, setting(), digits=1e-5)
    assert_radius("lecuyer", values, lecuyer, setting(), digits=3e-5)


def test_without_a_bound_on_the_others_they_are_taken_for_one() -> None:
    assert_radius("gaussian", {"p-a": 0.99993092483}, 3.81145656, setting(), digits=1e-8)
    assert_radius("gaussian", {"p-a": 0.94912042}, 0.40909610, setting(sigma=0.25), digits=1e-7)
    # What p_A leaves is a bound too, and here the better one.
    assert_radius("gaussian", {"p-a": 0.9, "p-b": 0.4}, 1.2815515655, setting(), digits=1e-9)
    assert not certifies("gaussian", {"p-a": Fraction(1, 2)}, Fraction(1, 10**9), setting())


def test_the_smallest_float_above_is_refused() -> None:
    """Φ(1) is irrational: of two neighbouring floats one is below the radius and the other above."""
    p = 0.8413447460685429  # Φ(1) = 0.84134474606854294858…
    radius = 1.0
    while certifies("gaussian", {"p-a": Fraction(p)}, Fraction(radius), setting()):
        radius = math.nextafter(radius, 2.0)
    assert abs(radius - 1.0) < 1e-15
    assert certifies("gaussian", {"p-a": Fraction(p)}, Fraction(math.nextafter(radius, 0.0)), setting())


def test_uniform_noise_is_rational() -> None:
    values = {"p-a": Fraction(3, 4), "p-b": Fraction(1, 8)}
    where = setting(sigma=0.5)
    assert certifies("uniform-l1", values, Fraction(5, 16), where)
    assert not certifies("uniform-l1", values, Fraction(5, 16) + Fraction(1, 10**30), where)


@pytest.mark.parametrize(
    ("p", "gradient", "radius"),
    [
        (0.6, 0.0, 0.68054353),
        (0.8, 0.0, 1.26803403),
        (0.8, 0.1, 1.07518066),
        (0.9, 0.05, 1.51186869),
        (0.99, 0.0, 2.57582898),
    ],
)
def test_second_order(p: float, gradient: float, radius: float) -> None:
    assert_radius("second-order", {"p-a": p, "gradient-norm": gradient}, radius, setting(), digits=1e-7)


def test_second_order_with_a_large_gradient_is_cohens() -> None:
    assert_radius("second-order", {"p-a": 0.8, "gradient-norm": 9.0}, 0.8416212336, setting(), digits=1e-9)


def test_second_order_against_one_class() -> None:
    """Against everything else at once it is the radius against all; a rarer class is farther away."""
    mine = {"p-a": 0.6, "gradient-norm": 0.0}
    assert_radius(
        "second-order", mine | {"other-p": 0.4, "other-gradient-norm": 0.0}, 0.68054353, setting(), digits=1e-7
    )
    rare = {name: Fraction(value) for name, value in (mine | {"other-p": 0.2, "other-gradient-norm": 0.0}).items()}
    assert certifies("second-order", rare, Fraction(7, 10), setting())


def test_dipole() -> None:
    where = setting(sigma=0.25)
    assert_radius("dipole", {"both": 0.89476036, "one-sided": 0.04725806}, 0.40492846, where, digits=1e-6)
    # All in pairs: a slab around x. All one-sided: a half-space, where no more than half can be.
    assert_radius("dipole", {"both": 0.6, "one-sided": 0.0}, 0.68054353 * 0.25, where, digits=1e-7)
    assert not certifies("dipole", {"both": Fraction(0), "one-sided": Fraction(1, 2)}, Fraction(1, 10**6), where)


ENVELOPES = [
    (2, 0.5, 0.1, 0.99, 1.16003484),
    (49, 0.5, 0.01, 0.999, 1.54324616),
    (784, 0.25, 0.01, 0.99993, 0.94738778),
    (784, 0.5, 0.05, 0.999, 1.08835444),
    (3072, 1.0, 0.01, 0.999, 2.42471562),
    (150528, 0.25, 0.05, 0.999, 0.11126053),
]


@pytest.mark.parametrize(("dimension", "sigma", "rate", "p", "radius"), ENVELOPES)
def test_a_level_that_varies(dimension: int, sigma: float, rate: float, p: float, radius: float) -> None:
    where = setting(sigma=sigma, dimension=dimension, envelope=SigmaEnvelope(rate=Fraction(rate)))
    assert_radius("envelope", {"p-a": p}, radius, where, digits=1e-7)


def test_a_bound_on_the_others_helps_where_the_level_varies() -> None:
    where = setting(sigma=0.5, dimension=10, envelope=SigmaEnvelope(rate=Fraction(1, 20)))
    top = Fraction(7, 10)
    alone = next(r for r in range(100, 0, -1) if certifies("envelope", {"p-a": top}, Fraction(r, 200), where))
    two = {"p-a": top, "p-b": Fraction(1, 10)}
    assert certifies("envelope", two, Fraction(alone + 20, 200), where)
    constant = 0.25 * (0.5244005127 + 1.2815515655)
    assert not certifies("envelope", two, Fraction(constant), where)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    ("dimension", "noncentrality", "z", "chance"),
    [
        (784, 1e4, -6, 3.2005818011758e-10),
        (3072, 1e6, -6, 8.8519375245068e-10),
        (150528, 1e6, -3, 1.3332459053996e-3),
        (196608, 1e8, -6, 9.7601269668570e-10),
        (196608, 1e12, -6, 9.8648132197151e-10),
        (3072, 1e12, -3, 1.3498803042184e-3),
    ],
)
def test_probabilities_of_balls(dimension: int, noncentrality: float, z: float, chance: float, *, inside: bool) -> None:
    with ctx.workprec(160):
        square = dimension + arb(noncentrality) + z * (2 * (dimension + 2 * arb(noncentrality))).sqrt()
        found = ball_chances(dimension=dimension, centre=arb(noncentrality).sqrt(), radius=square.sqrt(), inside=inside)
        wanted = chance if inside else 1 - chance
        assert float(found.mid()) == pytest.approx(wanted, rel=1e-12)
        assert float(found.rad()) < 1e-12 * wanted


@pytest.mark.parametrize("dimension", [1, 2, 3, 40, 300])
def test_inside_and_outside_add_up(dimension: int) -> None:
    for centre in (0.0, 0.5, 3.0, 30.0):
        for radius in (0.1, 1.0, 5.0, 17.0, 40.0):
            where = {"dimension": dimension, "centre": arb(centre), "radius": arb(radius)}
            total = ball_chances(**where, inside=True) + ball_chances(**where, inside=False)
            assert abs(float(total.mid()) - 1.0) < 1e-12
            assert total.overlaps(arb(1))
            assert float(total.rad()) < 1e-12


def test_a_ball_around_the_mean_in_two_dimensions() -> None:
    """P(inside) = 1 - exp(-R²/2)."""
    found = ball_chances(dimension=2, centre=arb(0), radius=arb(1.5), inside=True)
    assert found.overlaps(1 - (-(arb(1.5) ** 2) / 2).exp())


def test_the_lipschitz_constant() -> None:
    """Bergstrom et al. at their settings: L = 34.71, so that no radius above 0.1498 can come out."""
    factor = float(_factor(784).mid())
    assert (1 + 2 * 0.5 * factor) / 0.65 == pytest.approx(34.71, abs=5e-3)
    where = Setting(Fraction(0.7), 784, 2, SigmaEnvelope(lipschitz=Fraction(1, 2), floor=Fraction(0.65)))
    nearly_one = {"p-a": 1 - Fraction(1, 10**30)}
    assert certifies("lipschitz", nearly_one, Fraction(1497, 10000), where)
    assert not certifies("lipschitz", nearly_one, Fraction(1499, 10000), where)


def test_the_lipschitz_radius_of_a_constant_level_is_cohens_but_for_the_squeeze() -> None:
    assert_radius("lipschitz", {"p-a": 0.9}, 1.2815515655, setting(), digits=5e-6)


def test_envelopes_are_read_with_room_for_rounding() -> None:
    inner = {"kind": "semi-elastic", "rate": 0.1}
    found = read_envelope({"kind": "widened", "slack": 1e-11, "shift": 0.0, "inner": inner}, remembered=False)
    low, high = found.ends(Fraction(1), Fraction(1))
    assert float(low) == pytest.approx(math.exp(-0.1) * (1 - 2.0**-22) * (1 - 1e-11), rel=1e-14)
    assert float(high) == pytest.approx(math.exp(0.1) * (1 + 2.0**-22) * (1 + 1e-11), rel=1e-14)
    assert read_envelope(inner, remembered=True).constant
    assert read_envelope({"kind": "constant"}, remembered=False).constant
    assert not read_envelope({"kind": "user", "name": "mine"}, remembered=False).known


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "semi-elastic"},
        {"kind": "semi-elastic", "rate": -1.0},
        {"kind": "lipschitz", "constant": 0.1, "floor": 0.0},
        {"kind": "widened", "slack": 1.0, "inner": {"kind": "constant"}},
        {"kind": "unheard of"},
        [],
    ],
)
def test_what_is_no_envelope_is_refused(document: object) -> None:
    with pytest.raises(MalformedError):
        read_envelope(document, remembered=False)


def test_on_a_grid_an_envelope_is_taken_a_little_further_out():
    """σ is that of the float32 numbers nearest to each of two points; 2^-25 √d away at most."""
    plain = SigmaEnvelope(rate=Fraction(1, 2))
    shifted = shift_to_grid(plain, dimension=784)
    assert Fraction(28, 2**24) <= shifted.shift < Fraction(28, 2**24) * (1 + Fraction(1, 10**9))
    low, high = shifted.ends(Fraction(1, 4), Fraction(1))
    least, most = plain.ends(Fraction(1, 4), Fraction(1))
    assert low < least
    assert high > most
    assert shift_to_grid(SigmaEnvelope(), dimension=784).constant


@pytest.mark.parametrize("slope", [Fraction(1, 10), Fraction(1, 2), Fraction(2)])
def test_the_lipschitz_radius_pays_for_the_shift_of_the_envelope(slope: Fraction) -> None:
    """2·Lip·R(p_min)·shift/(1 + 2·Lip·R(p_min)) of the radius: what is just inside without it is refused with it."""
    plain = SigmaEnvelope(lipschitz=slope, floor=Fraction(13, 20))
    shifted = shift_to_grid(plain, dimension=784)
    weight = 2 * slope * Fraction(float(_factor(784).mid()))
    cost = shifted.shift * weight / (1 + weight)
    still, there = (Setting(Fraction(7, 10), 784, 2, envelope) for envelope in (plain, shifted))
    values = {"p-a": Fraction(9, 10)}
    low, high = Fraction(0), Fraction(1)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if certifies("lipschitz", values, middle, still) else (low, middle)
    assert not certifies("lipschitz", values, low, there)
    assert not certifies("lipschitz", values, low - cost * Fraction(999, 1000), there)
    assert certifies("lipschitz", values, low - cost * Fraction(1001, 1000), there)
