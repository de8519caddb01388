"""Splitting: values by hand, the three versions, offsets, and numbers of evaluations."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError, NoiseError
from smoothcert.noise import draw_offsets, evaluations_of, level_of, split_inputs, splitting
from smoothcert.noise.splitting import LEAST_EVALUATIONS, MOST_EVALUATIONS, check_splitting, split_with_numpy
from splitting_worlds import cell_middle, offset_by_hand

GRIDS = st.integers(2, 2**16)
COUNTS = st.integers(LEAST_EVALUATIONS, MOST_EVALUATIONS)
SEEDS = st.integers(0, 2**128 - 1)


def split_used(k, offsets, numbers, *, evaluations, levels):
    out = np.full((len(numbers), len(k)), np.nan, dtype=np.float32)
    split_inputs(out, k, offsets, evaluations=evaluations, levels=levels, start=int(numbers[0]))
    return out


def split_without_numba(k, offsets, numbers, *, evaluations, levels):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "_find_compiled", lambda: None)
        return split_used(k, offsets, numbers, evaluations=evaluations, levels=levels)


def split_on_device(k, offsets, numbers, *, evaluations, levels):
    torch = pytest.importorskip("torch")
    from smoothcert.noise.splitting_with_torch import split_with_torch

    k, offsets, numbers = (torch.tensor(array).long() for array in (k, offsets, numbers[:, None]))
    return split_with_torch(k, offsets, numbers, evaluations=evaluations, levels=levels).numpy()


VERSIONS = pytest.mark.parametrize("version", [split_with_numpy, split_used, split_without_numba, split_on_device])


@VERSIONS
@pytest.mark.parametrize(
    ("steps", "evaluations", "s", "k", "offset", "middle"),
    [(5, 4, 1, 3, 0, "0.65"), (255, 441, 100, 0, 7, "0.2107843137"), (255, 441, 100, 255, 300, "0.5")],
)
def test_the_cells_of_the_specification(version, steps, evaluations, s, k, offset, middle):
    numbers, place, v = np.array([s]), np.array([k], dtype=np.int32), np.array([offset], dtype=np.int32)
    shown = version(place, v, numbers, evaluations=evaluations, levels=steps + 1)
    exact = cell_middle(k, offset, s, evaluations=evaluations, steps=steps)
    assert round(float(exact), 10) == float(middle)
    assert shown.dtype == np.float32
    assert shown[0, 0] == np.float32(float(exact))


def test_numba_is_used_where_it_is_installed():
    pytest.importorskip("numba")
    assert splitting._find_compiled() is not None


@VERSIONS
@given(data=st.data())
def test_every_version_is_the_middle_of_the_cell_rounded_once(version, data):
    steps, evaluations = data.draw(st.integers(1, 40)), data.draw(st.integers(2, 60))
    size, start = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 200))
    k = data.draw(st.lists(st.integers(0, steps), min_size=size, max_size=size))
    v = data.draw(st.lists(st.integers(0, evaluations - 1), min_size=size, max_size=size))
    numbers = np.arange(start, start + 4)
    places, offsets = (np.array(row, dtype=np.int32) for row in (k, v))
    shown = version(places, offsets, numbers, evaluations=evaluations, levels=steps + 1)
    for row, s in enumerate(numbers.tolist()):
        for i in range(size):
            exact = cell_middle(k[i], v[i], s % evaluations, evaluations=evaluations, steps=steps)
            assert shown[row, i] == np.float32(float(exact))


@pytest.mark.parametrize("size", [1, 7, 129, 784])
@pytest.mark.parametrize("levels", [2, 6, 17, 256, 65536])
@pytest.mark.parametrize("evaluations", [2, 3, 8, 441, 3091, 2**17 + 1, MOST_EVALUATIONS])
@pytest.mark.parametrize("where", ["start", "middle", "end"])
def test_all_versions_give_the_same_bits(size, levels, evaluations, where):
    generator = np.random.default_rng(size * levels + evaluations)
    k = generator.integers(0, levels, size, dtype=np.int32)
    k[0], k[-1] = 0, levels - 1
    offsets = draw_offsets(levels, evaluations=evaluations, size=size)
    start = {"start": 0, "middle": evaluations // 2, "end": max(0, evaluations - 11)}[where]
    numbers = np.arange(start, start + 25)
    settings = {"evaluations": evaluations, "levels": levels}
    plain = split_with_numpy(k, offsets, numbers, **settings)
    for other in (split_used, split_without_numba, split_on_device):
        assert plain.tobytes() == other(k, offsets, numbers, **settings).tobytes()
    again = split_used(k, offsets, numbers + evaluations, **settings)  # they repeat after N
    assert again.tobytes() == plain.tobytes()


def test_rows_do_not_depend_on_the_batch():
    k, offsets = np.arange(50, dtype=np.int32) * 5, draw_offsets(3, evaluations=441, size=50)
    whole = split_used(k, offsets, np.arange(441), evaluations=441, levels=256)
    for at in range(0, 441, 63):
        part = split_used(k, offsets, np.arange(at, at + 63), evaluations=441, levels=256)
        assert part.tobytes() == whole[at : at + 63].tobytes()


def test_a_compiled_version_that_is_wrong_is_not_used(monkeypatch):
    compiled = pytest.importorskip("smoothcert.noise.splitting_with_numba")

    def wrong(out, k, phases, evaluations, most):
        right(out, k, phases, evaluations, most)
        out[-1, -1] = np.nextafter(out[-1, -1], np.float32(0))

    right = compiled.SPLIT_INPUTS
    monkeypatch.setattr(compiled, "SPLIT_INPUTS", wrong)
    splitting._find_compiled.cache_clear()
    try:
        with pytest.warns(UserWarning, match="plain numpy is used"):
            assert splitting._find_compiled() is None
    finally:
        splitting._find_compiled.cache_clear()


@pytest.mark.parametrize("evaluations", [2, 441, 3091])
@pytest.mark.parametrize("levels", [2, 256, 65536])
def test_the_self_test_passes(levels, evaluations):
    check_splitting(level_of(evaluations, levels=levels), levels=levels)


def test_the_self_test_finds_cells_that_move_with_the_input(monkeypatch):
    def wrong(out, k, offsets, *, evaluations, levels, start):
        out[:] = k / np.float32(levels - 1)

    monkeypatch.setattr(splitting, "split_inputs", wrong)
    with pytest.raises(NoiseError, match="changes several evaluations"):
        check_splitting(level_of(441, levels=256), levels=256)


# Offsets.


@given(SEEDS, COUNTS, st.integers(1, 40))
def test_offsets_are_those_of_chacha20_in_whole_numbers(seed, evaluations, size):
    offsets = draw_offsets(seed, evaluations=evaluations, size=size)
    assert offsets.dtype == np.int32
    assert offsets.tolist() == [offset_by_hand(i, seed=seed, evaluations=evaluations) for i in range(size)]
    assert all(0 <= v < evaluations for v in offsets.tolist())


def test_the_lower_word_of_a_number_counts_too(monkeypatch):
    """Seldom: here ⌊u·3/2⁶⁴⌋ is 1 only with the carry from the lower word."""
    low, high = 0xFFFFFFFF, 0x55555555
    words = [np.array([word], dtype=np.uint32) for word in (low, high) * 8]
    monkeypatch.setattr(splitting, "chacha", lambda position, key: words)
    assert draw_offsets.__wrapped__(0, evaluations=3, size=8).tolist() == [(high << 32 | low) * 3 >> 64] * 8 == [1] * 8


@given(SEEDS, COUNTS, st.integers(1, 500), st.integers(0, 500))
def test_offsets_of_the_first_coordinates_do_not_depend_on_the_others(seed, evaluations, size, more):
    first = draw_offsets(seed, evaluations=evaluations, size=size)
    longer = draw_offsets(seed, evaluations=evaluations, size=size + more)
    draw_offsets.cache_clear()
    assert first.tobytes() == longer[:size].tobytes()
    assert first.tobytes() == draw_offsets(seed, evaluations=evaluations, size=size).tobytes()


def test_offsets_cannot_be_written_to():
    offsets = draw_offsets(0, evaluations=441, size=784)
    with pytest.raises(ValueError, match="read-only"):
        offsets[0] = 1


def test_offsets_differ_by_seed_and_use_all_values():
    drawn = [draw_offsets(seed, evaluations=7, size=4000) for seed in (0, 1, 2**128 - 1)]
    assert len({offsets.tobytes() for offsets in drawn}) == 3
    for offsets in drawn:
        assert np.abs(np.bincount(offsets, minlength=7) - 4000 / 7).max() < 6 * math.sqrt(4000 / 7)


# Numbers of evaluations and levels.


@given(COUNTS, GRIDS)
def test_evaluations_and_levels_are_inverse(evaluations, levels):
    level = level_of(evaluations, levels=levels)
    assert evaluations_of(level, levels=levels) == evaluations
    if evaluations > LEAST_EVALUATIONS:
        assert evaluations_of(math.nextafter(level, 0.0), levels=levels) == evaluations - 1
    assert 2 * Fraction(math.nextafter(level, 0.0)) * (levels - 1) < evaluations  # it is the smallest


@given(st.floats(1e-5, 16.0), GRIDS)
def test_evaluations_are_exactly_the_whole_part(level, levels):
    exact = math.floor(2 * Fraction(level) * (levels - 1))
    if LEAST_EVALUATIONS <= exact <= MOST_EVALUATIONS:
        assert evaluations_of(level, levels=levels) == exact
    else:
        with pytest.raises(InputError, match="evaluations"):
            evaluations_of(level, levels=levels)


@pytest.mark.parametrize("level", [0.0, -1.0, math.nan, math.inf, 1e300, 1e-300])
def test_levels_without_evaluations_are_refused(level):
    with pytest.raises(InputError):
        evaluations_of(level, levels=256)


@pytest.mark.parametrize("evaluations", [-1, 0, 1, MOST_EVALUATIONS + 1])
def test_numbers_of_evaluations_that_are_not_possible_are_refused(evaluations):
    with pytest.raises(InputError, match="splitting takes 2 to"):
        level_of(evaluations, levels=256)


def test_the_published_numbers_of_evaluations():
    """Levels of published CIFAR-10 networks are k·√3/4 for k = 2, 4, 8 and 14: the standard deviation is k/4."""
    published = [(2, 441), (4, 883), (8, 1766), (14, 3091)]
    assert [evaluations_of(k / 4 * math.sqrt(3), levels=256) for k, _ in published] == [n for _, n in published]
