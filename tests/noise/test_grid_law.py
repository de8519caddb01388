"""The law of noise on a grid: thresholds and means against ball arithmetic, and the distance from the exact law."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from smoothcert.errors import InputError
from smoothcert.noise import GridLaw, grid_law
from smoothcert.noise.grid_law import MORE_BITS
from smoothcert.numerics.grid import law_error
from smoothcert.records import Noise

flint = pytest.importorskip("flint")

WORD = 2**64
GAUSSIAN = [
    (0.01, 256), (0.25, 256), (1.0, 256), (2.0, 256), (1 / 3, 256), (0.1, 2), (0.5, 2), (2.0, 2), (0.01, 17), (0.3, 17),
    (0.25, 4081), (0.01, 65536),
]  # fmt: skip
UNIFORM = [(0.5, 256), (0.1, 256), (1 / 3, 256), (1.0, 2), (0.04, 17), (0.5, 17), (1.0, 4081), (0.01, 65536)]
LAWS = [(Noise.GAUSSIAN, *case) for case in GAUSSIAN] + [(Noise.UNIFORM, *case) for case in UNIFORM]


@pytest.fixture(autouse=True)
def precise():  # type: ignore[no-untyped-def]
    before = flint.ctx.prec
    flint.ctx.prec = 256
    yield
    flint.ctx.prec = before


def edge(law: GridLaw, i: int):  # type: ignore[no-untyped-def]
    """(i-½)/s as a ball around the exact rational."""
    scale = Fraction(law.sigma) * (law.levels - 1)
    exact = Fraction(2 * i - 1, 2) / scale
    return flint.arb(flint.fmpq(exact.numerator, exact.denominator))


def below(law: GridLaw, i: int):  # type: ignore[no-untyped-def]
    """P(j < i) for i ≤ 0, as a ball."""
    x = edge(law, i)
    if law.noise is Noise.GAUSSIAN:
        return (-x / flint.arb(2).sqrt()).erfc() / 2
    return flint.arb(0) if x <= -1 else (1 + x) / 2


def exact_lower_half(law: GridLaw):  # type: ignore[no-untyped-def]
    """P(j < i) for i = least … 0: of all thresholds of the lower half, and of the one before, which rounds to 0."""
    return [below(law, i) for i in range(law.least, 1)]


def total_variation(law: GridLaw, thresholds: np.ndarray):  # type: ignore[no-untyped-def]
    """Between the tables and the exact law, an upper bound as a ball: half the sum of |difference| over all j.

    Both laws are symmetric: twice the sum over j < 0, and j = 0. What lies before the first value is a part of its own.
    """
    exact = exact_lower_half(law)
    table = [flint.arb(0)] + [flint.arb(int(t)) / WORD for t in thresholds[: len(thresholds) // 2].tolist()]
    masses = [(table[i + 1] - table[i]) - (exact[i + 1] - exact[i]) for i in range(len(exact) - 1)]
    middle = (1 - 2 * table[-1]) - (1 - 2 * exact[-1])
    return (2 * (exact[0] + sum((abs(m) for m in masses), flint.arb(0))) + abs(middle)) / 2


@pytest.mark.parametrize(("noise", "sigma", "levels"), LAWS)
def test_every_threshold_is_right_to_the_last_bit(noise: Noise, sigma: float, levels: int) -> None:
    law = grid_law(noise, sigma=sigma, levels=levels)
    whole = [int(t) for t in law.thresholds.tolist()]
    half = len(whole) // 2
    assert law.least == -half
    assert law.most == half
    assert all(a + b == WORD for a, b in zip(whole[:half], reversed(whole[half:]), strict=True))
    assert all(a <= b for a, b in itertools.pairwise(whole))
    exact = exact_lower_half(law)
    for found, probability in zip(whole[:half], exact[1:], strict=True):
        # Half a unit, and the arithmetic far below it: a ball of 256 bits decides.
        assert abs(found - probability * WORD) <= flint.arb(0.5) + flint.arb(2) ** -30
    assert exact[0] * WORD <= 0.5 + 2**-30  # nothing that rounds to a whole number above 0 was left out


@pytest.mark.parametrize(("noise", "sigma", "levels"), LAWS)
def test_the_total_variation_is_within_the_stated_error(noise: Noise, sigma: float, levels: int) -> None:
    law = grid_law(noise, sigma=sigma, levels=levels)
    true, stated = total_variation(law, law.thresholds), law_error(levels=levels, sigma=sigma, dimension=1)
    assert true <= stated
    if law.most > 100 and noise is Noise.GAUSSIAN:  # and the statement is no exaggeration: at most ten times the truth
        assert true >= stated / 10


@pytest.mark.parametrize(("noise", "sigma", "levels"), [(Noise.GAUSSIAN, 0.25, 256), (Noise.UNIFORM, 1 / 3, 256)])
@pytest.mark.parametrize("bits", [16, 32, 53])
def test_negative_control_shorter_tables_are_too_far_away(noise: Noise, sigma: float, levels: int, bits: int) -> None:
    """Tables of 16 bits, or of the 53 bits of a float64."""
    law = grid_law(noise, sigma=sigma, levels=levels)
    step = 1 << (64 - bits)
    short = np.array([round(Fraction(int(t), step)) * step for t in law.thresholds], dtype=object)
    assert total_variation(law, short) > law_error(levels=levels, sigma=sigma, dimension=1)


@pytest.mark.parametrize("ulps", [1, -1])
def test_negative_control_another_sigma_is_too_far_away(ulps: int) -> None:
    """Even a sigma that differs in its last bit is detected: sigma is used exactly, without rounding."""
    sigma = 0.3
    law = grid_law(Noise.GAUSSIAN, sigma=sigma, levels=256)
    near = grid_law(Noise.GAUSSIAN, sigma=float(np.nextafter(sigma, ulps * np.inf)), levels=256)
    assert len(near.thresholds) == len(law.thresholds)
    assert total_variation(law, near.thresholds) > law_error(levels=256, sigma=sigma, dimension=1)


@pytest.mark.parametrize(("noise", "sigma", "levels"), LAWS)
def test_the_table_says_what_sixteen_bits_settle(noise: Noise, sigma: float, levels: int) -> None:
    law = grid_law(noise, sigma=sigma, levels=levels)
    first = np.arange(2**16, dtype=np.uint64) << np.uint64(MORE_BITS)
    lowest = np.searchsorted(law.thresholds, first, side="right")
    highest = np.searchsorted(law.thresholds, first + np.uint64(2**48 - 1), side="right")
    table = law.table.astype(np.int64)
    assert np.array_equal(table >= 0, lowest == highest)
    assert np.array_equal(np.where(table >= 0, table, -1 - table), lowest)
    assert law.table.dtype == (np.int16 if len(law.thresholds) < 32767 else np.int32)
    assert not law.table.flags.writeable
    assert not law.thresholds.flags.writeable


def test_sixteen_bits_settle_most_draws_of_8_bit_images() -> None:
    shares = [float((grid_law(Noise.GAUSSIAN, sigma=s, levels=256).table < 0).mean()) for s in (0.12, 0.25, 0.5, 1.0)]
    assert shares == sorted(shares)
    assert shares[0] < 0.005
    assert shares[-1] < 0.027


@pytest.mark.parametrize(("noise", "sigma", "levels"), LAWS)
def test_means_of_the_noise_given_its_cell(noise: Noise, sigma: float, levels: int) -> None:
    law = grid_law(noise, sigma=sigma, levels=levels)
    means = law.means
    assert means.shape == (law.most - law.least + 1,)
    assert np.array_equal(means, -means[::-1])
    assert (np.diff(means) > 0).all()
    some = sorted({0, 1, *range(0, law.most + 1, max(1, law.most // 40)), law.most})
    for j in some:
        a, b = edge(law, j), edge(law, j + 1)
        if noise is Noise.GAUSSIAN:
            root = flint.arb(2).sqrt()
            density = [(-x * x / 2).exp() / (2 * flint.arb.pi()).sqrt() for x in (a, b)]
            exact = (density[0] - density[1]) / (((a / root).erfc() - (b / root).erfc()) / 2)
        else:
            exact = (a.max(flint.arb(-1)) + b.min(flint.arb(1))) / 2
        assert abs(exact - flint.arb(float(means[j - law.least]))) < 1e-9
        assert abs(exact - flint.arb(float(means[j - law.least]))) < 1e-13 * (1 + abs(exact))


@pytest.mark.parametrize("sigma", [0.25, 1.0])
def test_the_means_keep_the_mean_of_every_power_they_should(sigma: float) -> None:
    """E[E[z|j]] = 0, and E[z·E[z|j]] = E[E[z|j]²] is below 1 by the variance inside the cells, about 1/(12 s²)."""
    law = grid_law(Noise.GAUSSIAN, sigma=sigma, levels=256)
    mass = np.diff(law.thresholds.astype(np.float64) / WORD, prepend=0.0, append=1.0)
    scale = 255 * sigma
    assert abs(mass @ law.means) < 1e-12
    assert 1 - mass @ law.means**2 == pytest.approx(1 / (12 * scale**2), rel=1e-2)


def test_the_laws_are_kept() -> None:
    assert grid_law(Noise.GAUSSIAN, sigma=0.25, levels=256) is grid_law(Noise.GAUSSIAN, sigma=0.25, levels=256)
    law = grid_law(Noise.GAUSSIAN, sigma=0.25, levels=256)
    assert law.means is law.means


@pytest.mark.parametrize(
    ("noise", "sigma", "levels", "message"),
    [
        (Noise.GAUSSIAN, 0.0003, 256, "almost always 0.*--noise float"),
        (Noise.GAUSSIAN, 0.09, 2, "almost always 0"),
        (Noise.UNIFORM, 0.5, 2, "almost always 0"),
        (Noise.UNIFORM, 0.03, 17, "almost always 0"),
        (Noise.GAUSSIAN, 20.0, 65536, "up to 12123975 steps.*--noise float"),
        (Noise.UNIFORM, 200.0, 65536, "up to 13107000 steps"),
        (Noise.GAUSSIAN, 0.25, 1, "levels"),
        (Noise.GAUSSIAN, 0.25, 2**24, "levels"),
        (Noise.GAUSSIAN, float("nan"), 256, "sigma"),
        (Noise.GAUSSIAN, -0.5, 256, "sigma"),
    ],
)
def test_what_does_not_fit_is_refused(noise: Noise, sigma: float, levels: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        grid_law(noise, sigma=sigma, levels=levels)
