"""The curve of a law tells no other step than the table, and the compiled curve is the one that is checked here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smoothcert.noise import GridLaw, grid_law
from smoothcert.noise.grid_curve import LIMIT, curve_of, evaluate
from smoothcert.records import Noise

ALL_FIRST_BITS = np.arange(1 << 16)
LAWS = [
    grid_law(Noise.GAUSSIAN, sigma=0.25, levels=256),
    grid_law(Noise.GAUSSIAN, sigma=0.25, levels=4081),
    grid_law(Noise.GAUSSIAN, sigma=0.01, levels=256),
    grid_law(Noise.GAUSSIAN, sigma=0.8, levels=4081),
    grid_law(Noise.UNIFORM, sigma=0.5, levels=256),
    grid_law(Noise.UNIFORM, sigma=1.0, levels=4081),
]


def tells_only_what_the_table_has(law: GridLaw) -> bool:
    steps, told = evaluate(curve_of(law), ALL_FIRST_BITS)
    entries = law.table.astype(np.int64)
    return bool((entries[told] >= 0).all() and (entries[told] + law.least == steps[told]).all())


@pytest.mark.parametrize("law", LAWS)
def test_for_all_first_bits_the_curve_tells_the_step_of_the_table_or_none(law: GridLaw) -> None:
    assert tells_only_what_the_table_has(law)


@pytest.mark.parametrize("law", LAWS)
def test_the_curve_tells_most_steps_that_the_table_has(law: GridLaw) -> None:
    _, told = evaluate(curve_of(law), ALL_FIRST_BITS)
    assert told.mean() > (law.table >= 0).mean() - 0.06


@pytest.mark.parametrize("changed", [5, 700, 32767, 32768, 65000])
def test_a_table_that_fits_no_curve_is_still_followed(changed: int) -> None:
    """One entry is one step off, in either half: its segment tells nothing wrong, the others as much as before."""
    law = LAWS[0]
    place = changed + int(np.argmax(law.table[changed:] >= 0))  # the next settled entry
    table = law.table.copy()
    table[place] += 1
    odd = replace(law, table=table)
    assert tells_only_what_the_table_has(odd)
    assert (curve_of(odd)[0][LIMIT] == curve_of(law)[0][LIMIT]).sum() >= 63


def test_a_control_that_must_fail() -> None:
    """A curve whose limits are ignored tells wrong steps, so the comparison above can see them."""
    law = LAWS[0]
    numbers, places = curve_of(law)
    careless = numbers.copy()
    careless[LIMIT] = 1 << places
    steps, told = evaluate((careless, places), ALL_FIRST_BITS)
    settled = law.table >= 0
    assert told.all()
    assert (law.table[settled] + law.least != steps[settled]).any()


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("size", [64, 49, 33, 1])
def test_the_compiled_curve_is_the_same_for_all_first_bits(law: GridLaw, size: int) -> None:
    """Rows of `size` draws in whole blocks: what is beyond the end of a row is not listed."""
    numba = pytest.importorskip("numba")
    from smoothcert.noise import curve_with_numba

    if not curve_with_numba.CURVES_WORK:
        pytest.skip("this processor has no AVX-512 BW")

    @numba.njit  # type: ignore[untyped-decorator]
    def follow(draws, listed, words, curve, rows, blocks, size):  # type: ignore[no-untyped-def]
        return curve_with_numba.follow_curve(draws, listed, words, curve, rows, blocks, size)

    blocks = -(-size // 32)
    first = ALL_FIRST_BITS.astype(np.uint16)
    draws, listed = np.zeros(1 << 16, dtype=np.int16), np.zeros((1 << 16) + 32, dtype=np.uint32)
    rows = len(first) // (32 * blocks)
    found = follow(draws, listed, first.view(np.uint32), curve_of(law), rows, blocks, size)
    steps, told = evaluate(curve_of(law), ALL_FIRST_BITS)
    wanted = ALL_FIRST_BITS % (32 * blocks) < size
    assert listed[:found].tolist() == np.flatnonzero(wanted & ~told).tolist()
    np.testing.assert_array_equal(draws[wanted & told], steps[wanted & told])
