"""Noise on a grid: its definition, three versions that agree, the right law, a pure function of its counters."""

import hashlib
from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from smoothcert.errors import InputError
from smoothcert.noise import (
    COUNTER_LIMIT,
    GridLaw,
    add_grid_noise,
    from_grid,
    grid_draws,
    grid_law,
    grid_noise,
    grid_with_numpy,
    to_grid,
)
from smoothcert.records import Noise, Stage, StreamId

EIGHT_BIT = grid_law(Noise.GAUSSIAN, sigma=1.0, levels=256)
UNIFORM = grid_law(Noise.UNIFORM, sigma=0.5, levels=256)
WIDE = grid_law(Noise.UNIFORM, sigma=0.5, levels=2**16)  # int32 tables, and hardly a draw is settled by 16 bits
COARSE = grid_law(Noise.GAUSSIAN, sigma=0.5, levels=2)
LAWS = [EIGHT_BIT, UNIFORM, WIDE, COARSE]
SIZES = (1, 2, 31, 32, 33, 49, 64, 784, 3072)
STARTS = (0, 1, 2**32 - 5, 2**40 + 3, COUNTER_LIMIT - 9)
STREAM = StreamId(seed=2**127 + 12345, index=77, stage=Stage.ESTIMATION)


def rotated(word: int, places: int) -> int:
    return (word << places | word >> 32 - places) & 0xFFFFFFFF


def block_words(stream: StreamId, *, counter: int, block: int) -> list[int]:
    """ChaCha20 as RFC 8439 states it, in whole numbers."""
    digest = hashlib.sha256(b"smoothcert grid noise" + stream.seed.to_bytes(16, "little")).digest()
    key = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]
    place = [block, counter % 2**32, stream.index, counter // 2**32 * 2**8 + stream.stage]
    start = [int.from_bytes(b"expand 32-byte k"[i : i + 4], "little") for i in range(0, 16, 4)] + key + place
    s = list(start)
    for _ in range(10):
        for shift in (0, 1):
            for i in range(4):
                a, b, c, d = i, 4 + (i + shift) % 4, 8 + (i + 2 * shift) % 4, 12 + (i + 3 * shift) % 4
                for one, other, third, places in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                    s[one] = (s[one] + s[other]) % 2**32
                    s[third] = rotated(s[third] ^ s[one], places)
    return [(x + y) % 2**32 for x, y in zip(s, start, strict=True)]


def defined_row(law: GridLaw, stream: StreamId, *, counter: int, size: int) -> tuple[list[int], int]:
    """A row as it is defined, without tables, and how many of its draws needed more than 16 bits."""
    thresholds = [int(t) for t in law.thresholds]
    made, unsettled = [], 0
    for e in range(size):
        word = block_words(stream, counter=counter, block=e // 32)[e % 32 // 2]
        first = (word >> 16 if e % 2 else word & 0xFFFF) << 48
        if bisect_right(thresholds, first) != bisect_right(thresholds, first + 2**48 - 1):
            further = block_words(stream, counter=counter, block=2**31 + unsettled // 8)
            pair = 2 * (unsettled % 8)
            first += (further[pair] << 16) + (further[pair + 1] >> 16)
            unsettled += 1
        made.append(law.least + bisect_right(thresholds, first))
    return made, unsettled


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("counter", "size"), [(0, 70), (2**32 - 1, 49), (2**33 + 7, 101)])
def test_draws_are_what_they_are_defined_as(law: GridLaw, counter: int, size: int) -> None:
    expected = [defined_row(law, STREAM, counter=counter + i, size=size) for i in range(3)]
    made = grid_draws(law, STREAM, start=counter, count=3, size=size)
    assert made.dtype == np.int32
    assert made.tolist() == [row for row, _ in expected]
    if law is WIDE:
        assert min(unsettled for _, unsettled in expected) > 40  # several further blocks in a row


def test_draws_that_need_more_bits_are_right() -> None:
    """Rows of 8-bit noise in which some draws were not settled: about one in forty."""
    rows = [defined_row(EIGHT_BIT, STREAM, counter=i, size=128) for i in range(12)]
    assert sum(unsettled for _, unsettled in rows) >= 15
    assert grid_draws(EIGHT_BIT, STREAM, start=0, count=12, size=128).tolist() == [row for row, _ in rows]


@pytest.mark.parametrize("law", LAWS)
def test_all_64_bits_decide_where_16_do_not(law: GridLaw, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driven with chosen words: at every threshold tried, one unit below it and the threshold itself."""
    thresholds = [int(t) for t in law.thresholds]
    some = thresholds[:: max(1, len(thresholds) // 50)] + thresholds[-3:]
    for wanted in [u for t in some for u in (t - 1, t)] + [0, 2**64 - 1]:
        first, second, third = wanted >> 48, wanted >> 16 & 0xFFFFFFFF, (wanted & 0xFFFF) << 16

        def chosen(stream, *, block, first=first, second=second, third=third, **_):  # type: ignore[no-untyped-def]
            words = np.empty((len(block), 16), dtype=np.uint32)
            words[:] = first << 16 | first
            further = block >= 2**31
            words[further, 0::2], words[further, 1::2] = second, third
            return words

        monkeypatch.setattr(grid_with_numpy, "row_words", chosen)
        made = grid_with_numpy.grid_draws(law, StreamId(0, 0, Stage.SELECTION), start=0, count=2, size=20)
        assert set(made.ravel().tolist()) == {law.least + bisect_right(thresholds, wanted)}


@pytest.mark.parametrize("law", [EIGHT_BIT, WIDE])
def test_the_compiled_last_step_reads_all_bits_too(law: GridLaw) -> None:
    pytest.importorskip("numba")
    from smoothcert.noise import grid_with_numba

    thresholds = [int(t) for t in law.thresholds]
    for t in thresholds[:: max(1, len(thresholds) // 200)] + thresholds[-3:]:
        for wanted in (t - 1, t):
            entry = int(law.table[wanted >> 48])
            if entry < 0:
                words = wanted >> 48, wanted >> 16 & 0xFFFFFFFF, (wanted & 0xFFFF) << 16
                found = grid_with_numba._settle(entry, *words, law.thresholds)
                assert found == bisect_right(thresholds, wanted)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", STARTS)
def test_compiled_numpy_and_torch_agree(law: GridLaw, size: int, start: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    from smoothcert.noise import grid_with_torch

    place = {"start": start, "count": 9, "size": size}
    compiled = grid_draws(law, STREAM, **place)
    assert grid_noise._find_compiled(wide=law is WIDE) is not None
    np.testing.assert_array_equal(compiled, grid_with_numpy.grid_draws(law, STREAM, **place))
    on_device = grid_with_torch.grid_draws(law, STREAM, device=torch.device("cpu"), **place)
    assert on_device.dtype == torch.int32
    np.testing.assert_array_equal(compiled, on_device.numpy())
    seen = grid_with_torch.from_grid(on_device + 7, law.levels)
    np.testing.assert_array_equal(from_grid(compiled + np.int32(7), law.levels), seen.numpy())


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("size", [5, 49, 1000])
def test_noisy_inputs_are_the_sum_as_a_float(law: GridLaw, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    k = np.random.default_rng(size).integers(0, law.levels, size, dtype=np.int32)
    expected = from_grid(k + grid_draws(law, STREAM, start=3, count=700, size=size), law.levels)
    seen = np.full((700, size), np.nan, dtype=np.float32)
    add_grid_noise(seen, k, law, STREAM, start=3)
    np.testing.assert_array_equal(seen, expected)
    monkeypatch.setattr(grid_noise, "_find_compiled", lambda *, wide: None)  # as without numba
    without = np.full_like(seen, np.nan)
    add_grid_noise(without, k, law, STREAM, start=3)
    np.testing.assert_array_equal(without, expected)
    np.testing.assert_array_equal(
        from_grid(k + grid_draws(law, STREAM, start=3, count=700, size=size), law.levels), expected
    )


@pytest.mark.parametrize("wide", [False, True])
def test_a_compiled_generator_that_is_wrong_is_not_used(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    right = grid_with_numpy.grid_draws

    def other(*place, **more):  # type: ignore[no-untyped-def]
        made = right(*place, **more)
        made[-1, -1] += 1
        return made

    monkeypatch.setattr(grid_with_numpy, "grid_draws", other)
    with pytest.warns(UserWarning, match="plain numpy is used"):
        assert grid_noise._find_compiled.__wrapped__(wide=wide) is None


@pytest.mark.parametrize(
    ("law", "stream", "start", "size", "digest"),
    [
        (
            EIGHT_BIT, StreamId(5, 1, Stage.SELECTION), 0, 784,
            "23a6a75d4c1e685912a9150181ddc7f0c3bf33c48b849e73f8a6232d9af3b21d",
        ),
        (
            UNIFORM, StreamId(2**100, 77, Stage.ESTIMATION), 2**40 + 3, 49,
            "24d34d76654926ef1414e5c572c115c752fa3d34aeafd89a1dec13e099224e0a",
        ),
    ],
)  # fmt: skip
def test_the_noise_never_changes(law: GridLaw, stream: StreamId, start: int, size: int, digest: str) -> None:
    """Stored runs are audited and resumed by drawing their noise again, so no bit may change."""
    made = grid_draws(law, stream, start=start, count=64, size=size)
    assert hashlib.sha256(made.astype("<i4").tobytes()).hexdigest() == digest


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(LAWS), st.integers(0, 2**128 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**40),
    st.integers(1, 300), st.integers(1, 70),
)  # fmt: skip
def test_a_sample_depends_on_its_place_alone(
    law: GridLaw, seed: int, index: int, start: int, count: int, size: int
) -> None:
    """Samples do not depend on the batches, and the first values of a row do not depend on its length."""
    stream = StreamId(seed=seed, index=index, stage=Stage.ESTIMATION)
    together = grid_draws(law, stream, start=start, count=count, size=size)
    for i in (0, count // 2, count - 1):
        alone = grid_draws(law, stream, start=start + i, count=1, size=size)[0]
        np.testing.assert_array_equal(together[i], alone)
        np.testing.assert_array_equal(
            grid_draws(law, stream, start=start + i, count=1, size=size + 90)[0, :size], alone
        )


def test_streams_differ_in_every_part_of_their_name() -> None:
    places = [
        (StreamId(1, 1, Stage.SELECTION), 0),
        (StreamId(2, 1, Stage.SELECTION), 0),
        (StreamId(1 + 2**64, 1, Stage.SELECTION), 0),
        (StreamId(1 + 2**127, 1, Stage.SELECTION), 0),
        (StreamId(1, 2, Stage.SELECTION), 0),
        (StreamId(1, 1, Stage.ESTIMATION), 0),
        (StreamId(1, 1, Stage.SELECTION), 2**32),
        (StreamId(1, 1, Stage.SELECTION), 2**40),
        (StreamId(1, 1, Stage.SELECTION), 1000),
    ]
    draws = [grid_draws(EIGHT_BIT, stream, start=start, count=500, size=64) / 255.0 for stream, start in places]
    for i, one in enumerate(draws):
        for other in draws[:i]:
            assert abs((one * other).mean()) < 6 / np.sqrt(one.size)
            assert not (one == other).all(axis=1).any()


def p_value(draws: np.ndarray, law: GridLaw, *, sigma: float) -> float:
    """Chi-square of draws against noise of this sigma by scipy's normal distribution, in cells of 200 draws or more."""
    edges = np.arange(law.least, law.most + 2) - 0.5
    if law.noise is Noise.GAUSSIAN:
        below = stats.norm.cdf(edges / (sigma * (law.levels - 1)))
    else:
        below = np.clip((1 + edges / (sigma * (law.levels - 1))) / 2, 0, 1)
    expected = np.diff(below, prepend=0.0, append=1.0) * draws.size
    counts = np.bincount(draws.ravel() - law.least + 1, minlength=len(expected))
    cell = ((np.cumsum(expected) - expected) // 200).astype(int)
    seen, wanted = np.bincount(cell, counts), np.bincount(cell, expected)
    keep = wanted > 100
    return float(stats.chisquare(seen[keep], wanted[keep] * seen[keep].sum() / wanted[keep].sum()).pvalue)


@pytest.mark.parametrize(
    ("noise", "sigma", "levels"),
    [
        (Noise.GAUSSIAN, 0.12, 256), (Noise.GAUSSIAN, 0.25, 256), (Noise.GAUSSIAN, 1.0, 256), (Noise.GAUSSIAN, 0.5, 2),
        (Noise.GAUSSIAN, 0.05, 17), (Noise.GAUSSIAN, 0.25, 4081), (Noise.UNIFORM, 0.5, 256), (Noise.UNIFORM, 1 / 3, 17),
    ],
)  # fmt: skip
def test_the_law(noise: Noise, sigma: float, levels: int) -> None:
    """Chi-square and moments on 4 million values; the seed is fixed, so the test is deterministic. A sigma that is one
    per cent larger is told apart by the same test: the negative control.
    """
    law = grid_law(noise, sigma=sigma, levels=levels)
    draws = grid_draws(law, StreamId(7, 3, Stage.ESTIMATION), start=0, count=40_000, size=100)
    assert p_value(draws, law, sigma=sigma) > 1e-4
    assert p_value(draws, law, sigma=1.01 * sigma) < 1e-10
    z = draws / (sigma * (levels - 1))
    assert abs(z.mean()) < 5 * z.std() / np.sqrt(z.size)
    for a, b in ((z[:, :-1], z[:, 1:]), (z[:, :25], z[:, 25:50]), (z[:, 0::2], z[:, 1::2]), (z[:-1], z[1:])):
        spread = z.var() / np.sqrt(a.size)
        assert abs((a * b).mean()) < 5 * spread


def test_a_draw_may_be_nine_standard_deviations_long() -> None:
    """Beyond 5.7 and 6.66, where Box–Muller on 24 and on 31 bits ends."""
    for sigma in (0.25, 0.5, 1.0):
        law = grid_law(Noise.GAUSSIAN, sigma=sigma, levels=256)
        words = np.array([0, 2**32 - 1], dtype=np.uint32)
        lowest, highest = grid_with_numpy.settle(law, words >> np.uint32(16), words, words) + law.least
        assert lowest == law.least == -highest
        assert highest / (255 * sigma) > 9.1


def test_the_tail_beyond_four_and_a_half_is_as_heavy_as_it_should_be() -> None:
    law = grid_law(Noise.GAUSSIAN, sigma=0.25, levels=256)
    draws = grid_draws(law, StreamId(7, 4, Stage.ESTIMATION), start=0, count=40_000, size=500)
    for far in (3.0, 4.0, 4.5):
        least = int(np.ceil(far * 63.75))
        expected = draws.size * 2 * stats.norm.sf((least - 0.5) / 63.75)
        assert abs((np.abs(draws) >= least).sum() - expected) < 5 * np.sqrt(expected)


def test_sums_stay_within_what_float32_holds() -> None:
    most = 2**24 - 1
    given_ = np.array([-(2**31), -most - 1, -most, -1, 0, most, most + 1, 2**31 - 1], dtype=np.int32)
    assert from_grid(given_, 2).tolist() == [-most, -most, -most, -1.0, 0.0, most, most, most]
    assert from_grid(given_, 256).dtype == np.float32
    huge = grid_law(Noise.UNIFORM, sigma=1.0, levels=256)
    seen = np.empty((4, 3), dtype=np.float32)
    add_grid_noise(seen, np.array([2**24 + 300, -(2**24) - 300, 5], dtype=np.int32), huge, STREAM, start=0)
    assert (seen[:, 0] == np.float32(most) / np.float32(255)).all()
    assert (seen[:, 1] == -np.float32(most) / np.float32(255)).all()


@pytest.mark.parametrize("levels", [2, 17, 256, 4081, 65536, 2**23 + 1])
def test_every_level_goes_to_the_grid_and_back(levels: int) -> None:
    k = np.unique(np.linspace(0, levels - 1, 70_000).astype(np.int32))
    values = from_grid(k, levels)
    assert np.array_equal(values, np.divide(k, np.float32(levels - 1), dtype=np.float32))
    assert np.array_equal(to_grid(values, levels), k)
    assert to_grid(values, levels).dtype == np.int32


def test_the_values_of_8_bit_images_are_on_the_grid() -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    images = np.divide(pixels, np.float32(255), dtype=np.float32)  # as datasets do
    assert np.array_equal(to_grid(images, 256), pixels)
    out = np.empty_like(images)
    assert from_grid(pixels.astype(np.int32), 256, out=out) is out
    assert np.array_equal(out.view(np.uint32), images.view(np.uint32))


@pytest.mark.parametrize(
    "bad",
    [
        np.nextafter(np.float32(100 / 255), np.float32(1)),
        0.5,
        -1.5 / 255,
        1.002,
        1e-30,
        np.nan,
        np.inf,
        -np.inf,
        1e38,
    ],
)
def test_values_beside_the_grid_are_refused(bad: float) -> None:
    images = from_grid(np.arange(256, dtype=np.int32).reshape(16, 16), 256)
    images[3, 5] = bad
    with pytest.raises(InputError, match=r"1 of 256 input values .* at \[3, 5\]: round the inputs .*--noise float"):
        to_grid(images, 256)


def test_the_grid_goes_on_beyond_the_range_of_the_inputs() -> None:
    """Values outside 0 … 1 are on the grid if they are whole steps; the range of inputs is checked elsewhere."""
    k = np.array([-(2**23), -300, -1, 0, 255, 256, 1000, 2**23], dtype=np.int32)
    assert np.array_equal(to_grid(from_grid(k, 256), 256), k)
    with pytest.raises(InputError, match="1 of 1 input values"):
        to_grid(from_grid(np.array([2**23 + 1], dtype=np.int32), 256), 256)


def test_a_grid_needs_two_levels() -> None:
    with pytest.raises(InputError, match="levels"):
        to_grid(np.zeros(3, dtype=np.float32), 1)


def test_the_end_of_a_stream_is_refused() -> None:
    with pytest.raises(InputError, match="beyond the end"):
        grid_draws(EIGHT_BIT, STREAM, start=COUNTER_LIMIT - 1, count=2, size=4)
    with pytest.raises(InputError, match="beyond the end"):
        add_grid_noise(np.empty((2, 4), np.float32), np.zeros(4, np.int32), EIGHT_BIT, STREAM, start=COUNTER_LIMIT - 1)


@pytest.mark.parametrize("seed", [-1, 2**128])
def test_seeds_outside_128_bits_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match=r"outside 0 … 2\^128-1"):
        StreamId(seed, 0, Stage.SELECTION)
    assert StreamId(2**128 - 1, 0, Stage.SELECTION).seed == 2**128 - 1


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 255, 1023, 4080, 65535, 2**20 - 1, 2**20, 2**20 + 1, 2**23])
def test_the_product_with_two_parts_of_the_inverse_is_the_quotient(steps: int) -> None:
    """For every whole number that a noisy value can be, 0 … 2²⁴-1 and negative: the bits of the division."""
    numba = pytest.importorskip("numba")
    from smoothcert.noise import grid_with_numba

    @numba.njit  # type: ignore[untyped-decorator]
    def write(row, k, made, parts):  # type: ignore[no-untyped-def]
        grid_with_numba._write_row(row, k, made, parts)

    parts = grid_noise.split_inverse(steps)
    assert (parts[1] != 0) == (steps <= 2**20)
    none, row = np.zeros(2**20, dtype=np.int16), np.empty(2**20, dtype=np.float32)
    for first in range(0, 2**24, 2**20):
        k = np.arange(first, first + 2**20, dtype=np.int32)
        for whole in (k, -k):
            write(row, whole, none, parts)
            assert np.array_equal(row.view(np.uint32), (whole.astype(np.float32) / np.float32(steps)).view(np.uint32))
