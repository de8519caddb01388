"""Detecting the grid of inputs: what is detected, what is not, and which of several grids is chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smoothcert.errors import InputError
from smoothcert.noise import DetectedGrid, detect_grid, parse_grid, to_grid
from smoothcert.noise.detection import lies_on_grid
from smoothcert.records import Noise

BYTES = np.arange(256)
WORDS = np.arange(65536)


def found(*parts: np.ndarray, sigmas=(0.25,), noise: Noise = Noise.GAUSSIAN, **settings: bool) -> DetectedGrid:
    as_float = [np.asarray(part, dtype=np.float32) for part in parts]
    return detect_grid(as_float, noise=noise, sigmas=lambda: sigmas, **settings)


EIGHT_BITS = {
    "divided in float32": BYTES.astype(np.float32) / np.float32(255),
    "divided in float64": BYTES / 255,
    "multiplied in float64": BYTES * (1 / 255),
    "ToTensor": torch.arange(256, dtype=torch.uint8).to(torch.float32).div(255).numpy(),
    "black": np.zeros(9),
    "white": np.ones(9),
    "two levels": np.arange(2),
    "16 levels": np.arange(16) / 15,
}


@pytest.mark.parametrize("values", EIGHT_BITS.values(), ids=EIGHT_BITS)
@pytest.mark.parametrize("noise", list(Noise))
def test_256_levels_are_taken_wherever_they_fit(values: np.ndarray, noise: Noise) -> None:
    assert found(values, noise=noise) == DetectedGrid(256)
    to_grid(np.asarray(values, dtype=np.float32), 256)  # what is found is accepted where noise is drawn


def test_what_lies_on_a_coarser_grid_lies_on_the_finer_ones_in_float32() -> None:
    for coarse, fine in ((2, 16), (2, 256), (16, 256), (256, 65536), (16, 65536)):
        values = np.arange(coarse, dtype=np.float32) / np.float32(coarse - 1)
        assert lies_on_grid(values, fine)


@pytest.mark.parametrize("values", [WORDS / 65535, WORDS.astype(np.float32) / np.float32(65535)])
def test_sixteen_bits(values: np.ndarray) -> None:
    assert found(values) == DetectedGrid(65536)


def test_a_part_with_more_shades_decides() -> None:
    assert found(np.zeros(4), np.array([1 / 65535])) == DetectedGrid(65536)
    assert found(np.zeros(4), BYTES / 255, np.array([0.5])).levels is None


@pytest.mark.parametrize("values", [[0.5], [0.1], [-1 / 255], [256 / 255], [np.nan], [np.inf], np.arange(17) / 16])
def test_what_lies_on_no_grid(values: object) -> None:
    seen = found(np.zeros(3), np.asarray(values))
    assert seen.levels is None
    assert "lie on no grid of 256 or 65536 levels" in seen.reason


def test_nothing_more_is_read_than_it_takes() -> None:
    def parts():  # type: ignore[no-untyped-def]
        yield np.array([0.5], dtype=np.float32)
        raise AssertionError("a second part was asked for")

    assert detect_grid(parts(), noise=Noise.GAUSSIAN, sigmas=lambda: pytest.fail("asked")).levels is None


def test_products_in_float32_are_told_from_values_on_no_grid() -> None:
    """Half of them are off in the last bit: there is no grid, and the reason says why."""
    products = BYTES.astype(np.float32) * np.float32(1 / 255)
    seen = found(products)
    assert seen.levels is None
    assert "but for their last bits" in seen.reason
    assert "divide by 255" in seen.reason
    assert "last bits" not in found(products, np.array([0.5])).reason


def test_anywhere_zeros_and_ones_are_no_sign_of_a_grid() -> None:
    assert found(np.arange(2), in_unit_range=False).levels is None
    assert found(np.arange(2), np.array([51 / 255]), in_unit_range=False) == DetectedGrid(256)
    assert found(np.array([51 / 255, 3.0]), in_unit_range=False).levels is None


@pytest.mark.parametrize("noise", list(Noise))
def test_steps_are_no_larger_than_sigma(noise: Noise) -> None:
    """Less than 1/255 takes 65536 levels, which 8 bits lie on too; less than 1/65535 takes none."""
    for sigma, levels in ((1.01 / 255, 256), (0.99 / 255, 65536), (1.01 / 65535, 65536), (0.99 / 65535, None)):
        assert found(BYTES / 255, sigmas=(sigma,), noise=noise).levels == levels
    assert found(BYTES / 255, sigmas=(0.5, 0.003), noise=noise).levels == 65536
    assert found(BYTES / 255, sigmas=(), noise=noise).levels == 256
    assert found(BYTES / 255, sigmas=(np.nan,), noise=noise).levels is None


def test_more_steps_than_float32_holds_are_not_taken() -> None:
    assert found(BYTES / 255, sigmas=(100.0,)) == DetectedGrid(256)
    seen = found(WORDS / 65535, sigmas=(100.0,))
    assert seen.levels is None
    assert "does not suit a grid of 65536 levels" in seen.reason


def test_what_may_be_asked_for() -> None:
    assert parse_grid(None) == parse_grid("detect") == "detect"
    assert parse_grid("float") == "float"
    assert parse_grid(np.int64(17)) == 17
    for wrong in ("256", "exact", True, 256.0, 1, -5, 2**40):
        with pytest.raises(InputError, match="grid"):
            parse_grid(wrong)  # type: ignore[arg-type]
