"""Base classifiers that read the low-order bits of what they see: they break noise in floating point, but not noise on
a grid.

Both know an image x and answer 1 only for what can come out if noise is added to it. Randomised smoothing cannot
certify that at σ = .5: the theorem says that the votes at a neighbour 0.03 away differ by at most 2.5 %.
"""

import numpy as np
import pytest
from scipy import special

from smoothcert.noise import add_grid_noise, add_noise, from_grid, grid_draws, grid_law
from smoothcert.records import Noise, Stage, StreamId

PIXELS, SIGMA, LEVELS, DRAWS = 64, 0.5, 256, 20_000
STREAM = StreamId(seed=2**90 + 1, index=0, stage=Stage.ESTIMATION)
LAW = grid_law(Noise.GAUSSIAN, sigma=SIGMA, levels=LEVELS)
# A dark grey image and one that is a level brighter everywhere: between them the exponent of the float changes.
K = np.full(PIXELS, 63, dtype=np.int32)
NEIGHBOUR = K + np.int32(1)
X = from_grid(K, LEVELS)
DISTANCE = np.sqrt(PIXELS) / (LEVELS - 1)
MOST_APART = float(2 * special.ndtr(DISTANCE / (2 * SIGMA)) - 1)
"""Total-variation distance of noise around X and around its neighbour: what any classifier's votes may differ by."""
ONE_PIXEL_APART = float(2 * special.ndtr(DISTANCE / np.sqrt(PIXELS) / (2 * SIGMA)) - 1)


def can_be_a_float_sum(seen: np.ndarray) -> np.ndarray:
    """By pixel: ((a - x) + x) == a in float32, which is so for a = x + noise in float32."""
    return ((seen - X) + X) == seen


def can_be_a_repaired_sum(seen: np.ndarray) -> np.ndarray:
    """By pixel: a is the float32 sum of x and a whole number of steps, as a float32."""
    steps = np.rint((seen.astype(np.float64) - X) * (LEVELS - 1)).astype(np.float32)
    return (X + steps / np.float32(LEVELS - 1)) == seen


ATTACKS = [can_be_a_float_sum, can_be_a_repaired_sum]


def votes(attack, seen: np.ndarray) -> float:  # type: ignore[no-untyped-def]
    """The fraction of noisy images that look as if they were made from X in every pixel."""
    return float(attack(seen).all(axis=1).mean())


def float_noise(k: np.ndarray) -> np.ndarray:
    seen = np.empty((DRAWS, PIXELS), dtype=np.float32)
    add_noise(Noise.GAUSSIAN, seen, from_grid(k, LEVELS), STREAM, sigma=SIGMA, start=0)
    return seen


def repaired_noise(k: np.ndarray) -> np.ndarray:
    """Whole-number noise, exact, but turned into a float and added to the float image."""
    j = grid_draws(LAW, STREAM, start=0, count=DRAWS, size=PIXELS)
    return from_grid(k, LEVELS) + j.astype(np.float32) / np.float32(LEVELS - 1)


def grid_noise(k: np.ndarray) -> np.ndarray:
    seen = np.empty((DRAWS, PIXELS), dtype=np.float32)
    add_grid_noise(seen, k, LAW, STREAM, start=0)
    return seen


def mirrored_grid_noise(k: np.ndarray) -> np.ndarray:
    """The other half of a pair: k - j."""
    return from_grid(k - grid_draws(LAW, STREAM, start=0, count=DRAWS, size=PIXELS), LEVELS)


def test_the_neighbour_is_near() -> None:
    assert np.linalg.norm(from_grid(NEIGHBOUR, LEVELS).astype(np.float64) - X) == pytest.approx(DISTANCE, rel=1e-5)
    assert DISTANCE < 0.0315
    assert MOST_APART < 0.0251


def test_float_noise_is_broken() -> None:
    """Votes that would be certified to a radius above 1.9 (20000 of 20000), turned around at a distance of 0.03."""
    assert votes(can_be_a_float_sum, float_noise(K)) == 1.0
    assert votes(can_be_a_float_sum, float_noise(NEIGHBOUR)) < 0.001


def test_the_float_repair_is_broken() -> None:
    assert votes(can_be_a_repaired_sum, repaired_noise(K)) == 1.0
    assert votes(can_be_a_repaired_sum, repaired_noise(NEIGHBOUR)) < 0.001


@pytest.mark.parametrize("noise", [grid_noise, mirrored_grid_noise])
@pytest.mark.parametrize("attack", ATTACKS)
def test_grid_noise_is_not(attack, noise) -> None:  # type: ignore[no-untyped-def]
    """Votes differ by no more than the theorem allows; in single pixels, too, where there is more to be seen."""
    there, here = noise(NEIGHBOUR), noise(K)
    assert abs(votes(attack, here) - votes(attack, there)) <= MOST_APART + 5 * np.sqrt(0.5 / DRAWS)
    frequency, other = attack(here).mean(), attack(there).mean()
    assert 0.05 < frequency < 0.95  # the attack has something to look at
    assert abs(frequency - other) <= ONE_PIXEL_APART + 5 * np.sqrt(0.5 / (DRAWS * PIXELS))


@pytest.mark.parametrize(
    ("attack", "noise"), [(can_be_a_float_sum, float_noise), (can_be_a_repaired_sum, repaired_noise)]
)
def test_negative_control_single_pixels_betray_the_float_paths(attack, noise) -> None:  # type: ignore[no-untyped-def]
    difference = abs(attack(noise(K)).mean() - attack(noise(NEIGHBOUR)).mean())
    assert difference > 10 * (ONE_PIXEL_APART + 5 * np.sqrt(0.5 / (DRAWS * PIXELS)))


def floats_of_each_sum(noise) -> dict[int, set[int]]:  # type: ignore[no-untyped-def]
    """The bit patterns that are seen for each whole number k + j, around X and around its neighbour."""
    j = grid_draws(LAW, STREAM, start=0, count=DRAWS, size=PIXELS)
    found: dict[int, set[int]] = {}
    for k in (K, NEIGHBOUR):
        both = ((k + j).astype(np.int64) << 32) | noise(k).view(np.uint32)
        for pair in np.unique(both).tolist():
            found.setdefault(pair >> 32, set()).add(pair & 0xFFFFFFFF)
    return found


def test_what_is_seen_depends_on_the_whole_number_alone() -> None:
    """Whatever the two parts of k + j are: the classifier that is smoothed is one of whole numbers."""
    found = floats_of_each_sum(grid_noise)
    assert len(found) > 900
    assert all(len(patterns) == 1 for patterns in found.values())


def test_negative_control_the_repair_shows_more_than_the_whole_number() -> None:
    assert sum(len(patterns) > 1 for patterns in floats_of_each_sum(repaired_noise).values()) > 100
