"""Gaussian noise: known answers, three versions with the same bits, the right law, a pure function of its counters."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from smoothcert.errors import InputError
from smoothcert.noise import COUNTER_LIMIT, add_noise, gaussian_law, host, scale_noise, unit_noise, with_numpy
from smoothcert.records import Noise, Stage, StreamId

SIZES = (1, 2, 3, 4, 5, 49, 784, 3072)
STARTS = (0, 1, 2**32 - 5, 2**40 + 3)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # Known-answer vectors published with the generator (Salmon et al. 2011).
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    words = with_numpy.philox(tuple(np.array([word], dtype=np.uint64) for word in counter), key)  # type: ignore[arg-type]
    assert tuple(int(word[0]) for word in words) == expected


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", STARTS)
def test_compiled_numpy_and_torch_give_the_same_bits(size: int, start: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    from smoothcert.noise import with_torch

    stream = StreamId(seed=2**63 + 12345, index=77, stage=Stage.ESTIMATION)
    place = {"start": start, "count": 9, "size": size}
    compiled = unit_noise(Noise.GAUSSIAN, stream, **place)
    plain = with_numpy.unit_noise(Noise.GAUSSIAN, stream, **place)
    on_device = with_torch.unit_noise(Noise.GAUSSIAN, stream, device=torch.device("cpu"), **place)
    np.testing.assert_array_equal(compiled, plain)
    np.testing.assert_array_equal(compiled, on_device.numpy())


@pytest.mark.parametrize(
    ("stream", "start", "size", "sigma", "digest"),
    [
        (
            StreamId(5, 1, Stage.SELECTION), 0, 784, 0.25,
            "95a28f7849f7e4c6e75fbe4bebe07f86fa45aecbc2d527b0419ba54c7f919559",
        ),
        (
            StreamId(2**63 + 12345, 77, Stage.ESTIMATION), 2**40 + 3, 49, 1 / 3,
            "177eb3ce5f0fa8dc81ef2940342d2d57f43cf8f48d1b07fca8477ba2b265019a",
        ),
    ],
)  # fmt: skip
def test_the_noise_never_changes(stream: StreamId, start: int, size: int, sigma: float, digest: str) -> None:
    """Stored runs are audited and resumed by drawing their noise again, so no bit may change."""
    made = np.empty((64, size), np.float32)
    add_noise(Noise.GAUSSIAN, made, np.linspace(-1, 1, size, dtype=np.float32), stream, sigma=sigma, start=start)
    assert hashlib.sha256(made.astype("<f4").tobytes()).hexdigest() == digest


@pytest.mark.parametrize("size", [1, 4, 49, 127, 128, 129, 132])
@pytest.mark.parametrize("start", [0, 2**32 - 7, 2**40 - 100])
def test_short_rows_made_together_are_those_made_alone(size: int, start: int) -> None:
    """Several short rows are made at once, long ones alone; the upper word of the counter changes in between."""
    stream = StreamId(seed=9, index=4, stage=Stage.ESTIMATION)
    together = unit_noise(Noise.GAUSSIAN, stream, start=start, count=300, size=size)
    plain = with_numpy.unit_noise(Noise.GAUSSIAN, stream, start=start, count=300, size=size)
    assert np.array_equal(together, plain)
    alone = [unit_noise(Noise.GAUSSIAN, stream, start=start + i, count=1, size=size)[0] for i in range(300)]
    assert np.array_equal(together, np.stack(alone))


def test_without_numba_the_same_values_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StreamId(seed=5, index=1, stage=Stage.SELECTION)
    x = np.linspace(0, 1, 300, dtype=np.float32)
    with_numba, without = np.empty((2500, 300), np.float32), np.empty((2500, 300), np.float32)
    add_noise(Noise.GAUSSIAN, with_numba, x, stream, sigma=0.3, start=11)
    monkeypatch.setattr(host, "_find_compiled", lambda noise, *, short: None)
    add_noise(Noise.GAUSSIAN, without, x, stream, sigma=0.3, start=11)
    np.testing.assert_array_equal(with_numba, without)


@pytest.mark.parametrize("sigma", [0.12, 0.1, 0.25, 1 / 3, float(np.float32(0.3)), 0.25 * (1 + 2**-26), 1e-6, 1e6])
def test_compiled_numpy_and_torch_scale_by_the_same_sigma(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise is sigma · z in float64, rounded once; it is then added in float32."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("numba")
    from smoothcert.noise import with_torch

    stream = StreamId(seed=2**63 + 12345, index=77, stage=Stage.ESTIMATION)
    x = np.linspace(-1, 1, 301, dtype=np.float32)
    z = unit_noise(Noise.GAUSSIAN, stream, start=5, count=40, size=301)
    noise = (z.astype(np.float64) * sigma).astype(np.float32)
    np.testing.assert_array_equal(scale_noise(z, sigma=sigma), noise)
    np.testing.assert_array_equal(with_torch.scale_noise(torch.from_numpy(z), sigma=sigma).numpy(), noise)
    made = np.empty_like(z)
    add_noise(Noise.GAUSSIAN, made, x, stream, sigma=sigma, start=5)
    np.testing.assert_array_equal(made, x + noise)
    monkeypatch.setattr(host, "_find_compiled", lambda noise, *, short: None)
    add_noise(Noise.GAUSSIAN, made, x, stream, sigma=sigma, start=5)
    np.testing.assert_array_equal(made, x + noise)


@settings(max_examples=100, deadline=None)
@given(st.floats(2**-19, 2**19, width=32))
def test_a_float32_sigma_gives_the_float32_product(sigma: float) -> None:
    z = unit_noise(Noise.GAUSSIAN, StreamId(3, 1, Stage.SELECTION), start=0, count=4, size=100)
    np.testing.assert_array_equal(scale_noise(z, sigma=sigma), np.float32(sigma) * z)


def test_normals_may_be_scaled_in_place() -> None:
    z = unit_noise(Noise.GAUSSIAN, StreamId(3, 1, Stage.SELECTION), start=0, count=40, size=1000)
    expected = scale_noise(z, sigma=0.3)
    assert scale_noise(z, sigma=0.3, out=z) is z
    np.testing.assert_array_equal(z, expected)


@pytest.mark.parametrize("base", [0.1234, 0.2718, 0.7071])
@pytest.mark.parametrize("ulps", [-0.45, -0.2, -0.1, 0.0, 0.1, 0.2, 0.45])
def test_sigma_is_not_rounded_to_float32(base: float, ulps: float) -> None:
    """A sigma between two neighbouring float32 gives noise of exactly this level.

    Simple fractions are left out: multiples of their denominator round alike, and their level is off by up to 3e-8.
    """
    nearest = np.float32(base)
    sigma = float(nearest) + ulps * float(np.spacing(nearest))
    z = unit_noise(Noise.GAUSSIAN, StreamId(7, 3, Stage.ESTIMATION), start=0, count=10_000, size=100)
    wide = z.astype(np.float64)

    def error_of_the_level(noise: np.ndarray) -> float:
        return abs(float((wide * noise.astype(np.float64)).sum() / (wide**2).sum()) / sigma - 1)

    assert error_of_the_level(scale_noise(z, sigma=sigma)) < 5e-10
    if abs(ulps) >= 0.1:  # the negative control: what a rounded sigma would do is seen
        assert error_of_the_level(nearest * z) > 4e-9


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 30)
)
def test_a_sample_depends_on_its_place_alone(seed: int, index: int, start: int, count: int, size: int) -> None:
    stream = StreamId(seed=seed, index=index, stage=Stage.ESTIMATION)
    together = unit_noise(Noise.GAUSSIAN, stream, start=start, count=count, size=size)
    for i in (0, count // 2, count - 1):
        np.testing.assert_array_equal(
            together[i], unit_noise(Noise.GAUSSIAN, stream, start=start + i, count=1, size=size)[0]
        )


def test_streams_differ_in_every_part_of_their_name() -> None:
    base = StreamId(seed=1, index=1, stage=Stage.SELECTION)
    others = [
        StreamId(seed=2, index=1, stage=Stage.SELECTION),
        StreamId(seed=1 + 2**32, index=1, stage=Stage.SELECTION),
        StreamId(seed=1, index=2, stage=Stage.SELECTION),
        StreamId(seed=1, index=1, stage=Stage.ESTIMATION),
    ]
    draw = unit_noise(Noise.GAUSSIAN, base, start=0, count=4, size=64)
    for other in others:
        assert not np.any(draw == unit_noise(Noise.GAUSSIAN, other, start=0, count=4, size=64))
    # Samples 2^32 apart differ too: the counter does not wrap at 32 bits.
    assert not np.any(draw == unit_noise(Noise.GAUSSIAN, base, start=2**32, count=4, size=64))


def test_the_law_is_standard_normal() -> None:
    """Moments and a Kolmogorov–Smirnov test on 4 million values; the seed is fixed, so the test is deterministic."""
    z = unit_noise(Noise.GAUSSIAN, StreamId(7, 3, Stage.ESTIMATION), start=0, count=40_000, size=100).astype(np.float64)
    flat = z.ravel()
    n = flat.size
    assert abs(flat.mean()) < 5 / np.sqrt(n)
    assert abs(flat.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((flat**3).mean()) < 5 * np.sqrt(15 / n)
    assert abs((flat**4).mean() - 3) < 5 * np.sqrt(96 / n)
    assert stats.kstest(flat, "norm").pvalue > 1e-4
    expected = n * 2 * stats.norm.sf(4.5)
    assert abs((np.abs(flat) > 4.5).sum() - expected) < 5 * np.sqrt(expected)
    # Neighbouring values, lanes of one block, and neighbouring samples are uncorrelated.
    for a, b in ((z[:, :-1], z[:, 1:]), (z[:, :25], z[:, 25:50]), (z[:, :50], z[:, 50:]), (z[:-1], z[1:])):
        assert abs((a * b).mean()) < 5 / np.sqrt(a.size)
        assert abs((a**2 * b**2).mean() - 1) < 5 * np.sqrt(8 / a.size)


def test_negative_control_the_law_test_can_fail() -> None:
    """A generator wrong by one part in two hundred is caught by the same test."""
    z = 1.005 * unit_noise(Noise.GAUSSIAN, StreamId(7, 3, Stage.ESTIMATION), start=0, count=40_000, size=100).astype(
        np.float64
    )
    assert abs(z.var() - 1) > 5 * np.sqrt(2 / z.size)
    assert stats.kstest(z.ravel(), "norm").pvalue < 1e-4


def test_extreme_words_give_finite_values() -> None:
    words = np.array([0, 1, 2, 3, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], dtype=np.uint64)
    radius = gaussian_law._radius(words)
    sine, cosine = gaussian_law._sine_cosine(words)
    assert np.isfinite(radius).all()
    assert radius[0] == pytest.approx(np.sqrt(2 * 32 * np.log(2)), rel=1e-6)
    assert radius[-1] == 0.0
    np.testing.assert_allclose(sine**2 + cosine**2, 1.0, rtol=1e-6)


def test_accuracy_of_the_polynomials() -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint64)
    u = ((words >> np.uint64(1)).astype(np.float64) + 0.5) / 2.0**31
    angle = words.astype(np.float64) * (2 * np.pi / 2**32)
    np.testing.assert_allclose(gaussian_law._radius(words), np.sqrt(-2 * np.log(u)), rtol=1e-5, atol=3e-4)
    sine, cosine = gaussian_law._sine_cosine(words)
    np.testing.assert_allclose(sine, np.sin(angle), atol=2e-7)
    np.testing.assert_allclose(cosine, np.cos(angle), atol=2e-7)


def test_the_end_of_a_stream_is_refused() -> None:
    with pytest.raises(InputError, match="beyond the end"):
        unit_noise(Noise.GAUSSIAN, StreamId(0, 0, Stage.SELECTION), start=COUNTER_LIMIT - 1, count=2, size=4)
