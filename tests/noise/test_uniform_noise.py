"""Uniform noise: its definition, three versions with the same bits, the right law, never the ends of its range."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from smoothcert.errors import InputError
from smoothcert.noise import (
    COUNTER_LIMIT,
    add_noise,
    additive_law_of,
    host,
    scale_noise,
    uniform_law,
    unit_noise,
    with_numpy,
)
from smoothcert.noise.law import CompiledNoise
from smoothcert.records import InputArray, Noise, Stage, StreamId

SIZES = (1, 2, 3, 4, 5, 7, 49, 784, 3073)
STARTS = (0, 1, 2**32 - 5, 2**40 + 3, COUNTER_LIMIT - 9)
EXTREME_WORDS = (0, 1, 255, 256, 2**31 - 1, 2**31, 2**32 - 257, 2**32 - 256, 2**32 - 1)
LARGEST = 1 - 2.0**-24


def uniform(stream: StreamId, *, start: int = 0, count: int, size: int) -> InputArray:
    return unit_noise(Noise.UNIFORM, stream, start=start, count=count, size=size)


def one_word(words: list[int]) -> InputArray:
    return uniform_law._centre(np.array(words, dtype=np.uint64))


@pytest.mark.parametrize("size", [1, 6, 13])
def test_values_are_those_of_the_definition(size: int) -> None:
    """Python's whole numbers and fractions, one coordinate at a time."""
    seed, index, counter = 2**40 + 9, 12, 2**33 + 7
    blocks = -(-size // 4)
    (found,) = uniform(StreamId(seed, index, Stage.SEARCH), start=counter, count=1, size=size)
    for place, value in enumerate(found.tolist()):
        lane, block = divmod(place, blocks)
        counters = (block, counter % 2**32, index, (counter >> 32) << 8 | Stage.SEARCH)
        words = with_numpy.philox(
            tuple(np.array([word], dtype=np.uint64) for word in counters),  # type: ignore[arg-type]
            (seed % 2**32, seed >> 32),
        )
        k = int(words[lane][0]) >> 8
        assert value == (2 * k + 1 - 2**24) / 2**24


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", STARTS)
def test_compiled_numpy_and_torch_give_the_same_bits(size: int, start: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    from smoothcert.noise import with_torch

    stream = StreamId(seed=2**63 + 12345, index=2**32 - 1, stage=Stage.SEARCH)
    place = {"start": start, "count": 9, "size": size}
    compiled = uniform(stream, **place)
    plain = with_numpy.unit_noise(Noise.UNIFORM, stream, **place)
    on_device = with_torch.unit_noise(Noise.UNIFORM, stream, device=torch.device("cpu"), **place)
    assert compiled.dtype == plain.dtype == np.float32
    np.testing.assert_array_equal(compiled, plain)
    np.testing.assert_array_equal(compiled, on_device.numpy())


@pytest.mark.parametrize("sigma", [0.12, 0.25, 1 / 3, float(np.float32(0.3)), 0.25 * (1 + 2**-26), 1e-6, 1e6])
def test_the_product_is_rounded_once_and_added_in_float32(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.noise import with_torch

    stream = StreamId(seed=8, index=77, stage=Stage.ESTIMATION)
    x = np.linspace(-1, 1, 301, dtype=np.float32)
    z = uniform(stream, start=5, count=2000, size=301)  # more than numpy makes at once
    noise = (z.astype(np.float64) * sigma).astype(np.float32)
    np.testing.assert_array_equal(with_torch.scale_noise(torch.from_numpy(z), sigma=sigma).numpy(), noise)
    made = np.empty_like(z)
    add_noise(Noise.UNIFORM, made, x, stream, sigma=sigma, start=5)
    np.testing.assert_array_equal(made, x + noise)
    monkeypatch.setattr(host, "_find_compiled", lambda kind, *, short: None)
    made.fill(np.nan)
    add_noise(Noise.UNIFORM, made, x, stream, sigma=sigma, start=5)
    np.testing.assert_array_equal(made, x + noise)


def test_the_noise_never_changes() -> None:
    """Stored runs are audited and resumed by drawing their noise again, so no bit may change."""
    made = np.empty((64, 49), np.float32)
    stream = StreamId(2**63 + 12345, 77, Stage.ESTIMATION)
    add_noise(Noise.UNIFORM, made, np.linspace(-1, 1, 49, dtype=np.float32), stream, sigma=1 / 3, start=2**40 + 3)
    digest = hashlib.sha256(made.astype("<f4").tobytes()).hexdigest()
    assert digest == "c3862114cccbf4e3aa86d2d943f648835f0892d76df9a67628a7a8ee41c80eed"


@pytest.mark.parametrize("kind", [kind for kind in Noise if kind.sampled])
def test_a_compiled_generator_that_is_wrong_is_not_used(kind: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    law = additive_law_of(kind)
    compiled = law.load_compiled(short=False)
    if compiled is None:
        pytest.skip(f"{kind} noise has no compiled generator")
    right = compiled.add
    assert host._find_compiled.__wrapped__(kind, short=False).add is right

    def wrong_in_one_bit(out: InputArray, *arguments: object) -> None:
        right(out, *arguments)
        out[2, 36] = np.nextafter(out[2, 36], np.float32(9))

    monkeypatch.setattr(type(law), "load_compiled", lambda *_, short: CompiledNoise(wrong_in_one_bit))
    with pytest.warns(UserWarning, match=f"compiled generator of {kind} noise is not exact"):
        assert host._find_compiled.__wrapped__(kind, short=False) is None


def test_a_compiled_generator_that_is_wrong_for_short_rows_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("smoothcert.noise.gaussian_with_numba")
    right = module.ADD_NOISE_TO_SHORT_ROWS
    assert host._find_compiled.__wrapped__(Noise.GAUSSIAN, short=True).add is right

    def wrong_after_the_carry(out: InputArray, *arguments: object) -> None:
        right(out, *arguments)
        out[5, 36] = np.nextafter(out[5, 36], np.float32(9))

    monkeypatch.setattr(module, "ADD_NOISE_TO_SHORT_ROWS", wrong_after_the_carry)
    with pytest.warns(UserWarning, match="compiled generator of gaussian noise is not exact"):
        assert host._find_compiled.__wrapped__(Noise.GAUSSIAN, short=True) is None


def test_the_ends_of_the_range_are_never_reached() -> None:
    """The outermost of all 2^32 words, in every version."""
    values = one_word(list(EXTREME_WORDS))
    assert (values.min(), values.max()) == (-LARGEST, LARGEST)
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    from smoothcert.noise import uniform_with_numba

    on_device = uniform_law._torch_centre(torch.tensor(EXTREME_WORDS, dtype=torch.int64))
    np.testing.assert_array_equal(on_device.numpy(), values)
    compiled = [float(uniform_with_numba._centre(np.uint32(word))) for word in EXTREME_WORDS]
    np.testing.assert_array_equal(compiled, values)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_the_law_is_symmetric_and_zero_is_no_value(words: list[int]) -> None:
    """Flipping all bits of a word flips the sign, so -z is exactly as likely as z."""
    z = one_word(words)
    np.testing.assert_array_equal(one_word([2**32 - 1 - word for word in words]), -z)
    odd = z.astype(np.float64) * 2**24
    assert (odd % 2 == 1).all()
    assert (np.abs(odd) < 2**24).all()


def test_values_are_equally_likely_and_evenly_spaced() -> None:
    """Exactly: every k has 2^8 words. Seen on all words of one k and on the neighbours of k."""
    k = 11_184_811
    assert len(set(one_word([k << 8 | low for low in range(256)]).tolist())) == 1
    np.testing.assert_array_equal(np.diff(one_word([(k + step) << 8 for step in range(-50, 51)])), 2.0**-23)


@settings(max_examples=500, deadline=None)
@given(
    st.one_of(st.floats(1e-6, 1e6), st.floats(2.0**-19, 2.0**19, width=32), st.sampled_from([0.25, 0.5, 1.0, 2.0])),
    st.sampled_from([-1.0, 1.0]),
)
def test_scaled_noise_stays_strictly_inside_its_half_width(sigma: float, sign: float) -> None:
    for near in (np.nextafter(sigma, 0.0), sigma, np.nextafter(sigma, np.inf)):
        noise = scale_noise(np.array([sign * LARGEST], dtype=np.float32), sigma=float(near))
        assert 0.999999 * near < abs(float(noise[0])) < near


def test_the_law_is_uniform() -> None:
    """Moments and a Kolmogorov–Smirnov test on 4 million values; the seed is fixed, so the test is deterministic."""
    z = uniform(StreamId(7, 3, Stage.ESTIMATION), count=40_000, size=100).astype(np.float64)
    flat = z.ravel()
    n = flat.size
    for power in (1, 2, 3, 4, 5, 6):
        mean = 0.0 if power % 2 else 1 / (power + 1)
        variance = 1 / (2 * power + 1) - mean**2
        assert abs((flat**power).mean() - mean) < 5 * np.sqrt(variance / n)
    assert stats.kstest(flat, stats.uniform(-1, 2).cdf).pvalue > 1e-4
    for edge in (1e-2, 1e-3, 1e-4):  # the tails
        assert abs((np.abs(flat) > 1 - edge).sum() - n * edge) < 5 * np.sqrt(n * edge)
    k = (flat * 2**24 + 2**24 - 1).astype(np.int64) >> 1
    for bit in range(24):  # low-order bits are no less random than high ones
        assert abs(((k >> bit) & 1).mean() - 0.5) < 5 * 0.5 / np.sqrt(n)
    # Neighbouring values, lanes of one block, and neighbouring samples are independent as far as moments tell.
    for a, b in ((z[:, :-1], z[:, 1:]), (z[:, :25], z[:, 25:50]), (z[:, :50], z[:, 50:]), (z[:-1], z[1:])):
        assert_uncorrelated(a, b)


def assert_uncorrelated(a: np.ndarray, b: np.ndarray) -> None:
    """Of independent uniform values: E ab = 0 with variance 1/9, E a²b² = 1/9 with variance 1/25 - 1/81."""
    assert abs((a * b).mean()) < 5 / 3 / np.sqrt(a.size)
    assert abs((a**2 * b**2).mean() - 1 / 9) < 5 * np.sqrt((1 / 25 - 1 / 81) / a.size)


def test_negative_control_the_law_test_can_fail() -> None:
    """A generator wrong by one part in two hundred is caught by the same tests."""
    z = 0.995 * uniform(StreamId(7, 3, Stage.ESTIMATION), count=40_000, size=100).astype(np.float64).ravel()
    assert abs((z**2).mean() - 1 / 3) > 5 * np.sqrt((1 / 5 - 1 / 9) / z.size)
    assert stats.kstest(z, stats.uniform(-1, 2).cdf).pvalue < 1e-4
    with pytest.raises(AssertionError):
        assert_uncorrelated(z[:100_000], -z[:100_000])


def test_streams_that_differ_anywhere_are_independent() -> None:
    """Seeds, both halves of them, inputs, stages and counters 2^32 apart: no two share noise or are correlated."""
    places = [
        (StreamId(1, 1, Stage.SELECTION), 0),
        (StreamId(2, 1, Stage.SELECTION), 0),
        (StreamId(1 + 2**32, 1, Stage.SELECTION), 0),
        (StreamId(1, 2, Stage.SELECTION), 0),
        *((StreamId(1, 1, stage), 0) for stage in Stage if stage is not Stage.SELECTION),
        (StreamId(1, 1, Stage.SELECTION), 2**32),
        (StreamId(1, 1, Stage.SELECTION), 2**40),
        (StreamId(1, 1, Stage.SELECTION), 1000),
    ]
    draws = [uniform(stream, start=start, count=1000, size=64).astype(np.float64) for stream, start in places]
    for one, other in itertools.combinations(draws, 2):
        assert_uncorrelated(one, other)
        assert not (one == other).all(axis=1).any()


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 30)
)
def test_a_sample_depends_on_its_place_alone(seed: int, index: int, start: int, count: int, size: int) -> None:
    stream = StreamId(seed=seed, index=index, stage=Stage.ESTIMATION)
    together = uniform(stream, start=start, count=count, size=size)
    for i in (0, count // 2, count - 1):
        np.testing.assert_array_equal(together[i], uniform(stream, start=start + i, count=1, size=size)[0])


def test_the_end_of_a_stream_is_refused() -> None:
    with pytest.raises(InputError, match="beyond the end"):
        uniform(StreamId(0, 0, Stage.SELECTION), start=COUNTER_LIMIT - 1, count=2, size=4)
