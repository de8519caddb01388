"""ChaCha20: the vectors of RFC 8439 in all versions, and how streams become keys and positions."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smoothcert.noise import grid_with_numpy
from smoothcert.noise.chacha import as_key, chacha
from smoothcert.noise.grid_with_numpy import grid_key
from smoothcert.noise.with_numpy import split_seed
from smoothcert.records import Stage, StreamId

# Key, position (counter and nonce), the words after the block function.
VECTORS = [
    # RFC 8439, 2.3.2
    (
        bytes(range(32)),
        (0x00000001, 0x09000000, 0x4A000000, 0x00000000),
        "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3 "
        "466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2",
    ),
    # RFC 8439, A.1, 1
    (
        bytes(32),
        (0, 0, 0, 0),
        "ade0b876 903df1a0 e56a5d40 28bd8653 b819d2bd 1aed8da0 ccef36a8 c70d778b "
        "7c5941da 8d485751 3fe02477 374ad8b8 f4b8436a 1ca11815 69b687c3 8665eeb2",
    ),
    # RFC 8439, A.1, 2
    (
        bytes(32),
        (1, 0, 0, 0),
        "bee7079f 7a385155 7c97ba98 0d082d73 a0290fcb 6965e348 3e53c612 ed7aee32 "
        "7621b729 434ee69c b03371d5 d539d874 281fed31 45fb0a51 1f0ae1ac 6f4d794b",
    ),
]
Position = tuple[int, int, int, int]


def words_of(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("key", "position", "expected"), VECTORS, ids=["2.3.2", "A.1 #1", "A.1 #2"])
def test_numpy_gives_the_words_of_the_standard(key: bytes, position: Position, expected: str) -> None:
    p0, p1, p2, p3 = (np.array([word], dtype=np.uint32) for word in position)
    assert [int(word[0]) for word in chacha((p0, p1, p2, p3), as_key(key))] == words_of(expected)


@pytest.mark.parametrize(("key", "position", "expected"), VECTORS, ids=["2.3.2", "A.1 #1", "A.1 #2"])
def test_torch_gives_the_words_of_the_standard(key: bytes, position: Position, expected: str) -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.noise import grid_with_torch

    p0, p1, p2, p3 = (torch.tensor([word]) for word in position)
    assert [int(word) for word in grid_with_torch.chacha((p0, p1, p2, p3), as_key(key))] == words_of(expected)


@pytest.mark.parametrize(("key", "position", "expected"), VECTORS, ids=["2.3.2", "A.1 #1", "A.1 #2"])
def test_the_compiled_version_gives_the_words_of_the_standard(key: bytes, position: Position, expected: str) -> None:
    pytest.importorskip("numba")
    from smoothcert.noise.chacha_with_numba import LANES, fill_words

    block, low, index, high = position
    stream = (tuple(np.uint32(word) for word in as_key(key)), np.uint32(index), np.uint32(high & 0xFF))
    many = 2 * LANES  # on processors with AVX-512, two vectors in turn
    words = np.empty((many + LANES, 16), dtype=np.uint32)
    blocks, rows = np.full(len(words), block, dtype=np.uint32), np.zeros(len(words), dtype=np.uint32)
    fill_words(words.reshape(-1), len(words), rows, blocks, stream, np.uint64(low | high >> 8 << 32))
    assert (words == words[0]).all()
    assert words[0].tolist() == words_of(expected)


def test_where_a_row_is_in_the_stream() -> None:
    """Block, low 32 bits of the counter, input index, stage in 8 bits beside the high 24 bits of the counter."""
    counter = 0xABCDEF_01234567
    made = grid_with_numpy.row_words(
        StreamId(7, 0xFFFFFFF0, Stage.SEARCH),
        counter=np.array([counter], dtype=np.uint64),
        block=np.array([2**31 + 9], dtype=np.uint64),
    )
    position = (2**31 + 9, 0x01234567, 0xFFFFFFF0, 0xABCDEF05)
    p0, p1, p2, p3 = (np.array([word], dtype=np.uint32) for word in position)
    assert made[0].tolist() == [int(word[0]) for word in chacha((p0, p1, p2, p3), grid_key(7))]


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1, 2**64, 2**128 - 1])
def test_the_key_is_the_digest_of_the_whole_seed(seed: int) -> None:
    digest = hashlib.sha256(b"smoothcert grid noise" + seed.to_bytes(16, "little")).digest()
    assert b"".join(word.to_bytes(4, "little") for word in grid_key(seed)) == digest


def test_seeds_up_to_64_bits_are_the_philox_key_and_larger_ones_are_folded() -> None:
    for seed in (0, 5, 2**63 + 12345, 2**64 - 1):
        low, high = split_seed(seed)
        assert low | high << 32 == seed
    for seed in (2**64, 2**64 + 5, 2**128 - 1):
        low, high = split_seed(seed)
        digest = hashlib.sha256(seed.to_bytes(16, "little")).digest()
        assert low.to_bytes(4, "little") + high.to_bytes(4, "little") == digest[:8]


@pytest.mark.slow
def test_processors_with_shorter_vectors_draw_the_same(tmp_path: Path) -> None:
    """Eight blocks at once, tables only, divisions: as without AVX-512 and FMA. Machine code is cached elsewhere."""
    pytest.importorskip("numba")
    code = """
import numpy as np
from llvmlite import binding
features = binding.get_host_cpu_features()
features["avx512f"] = features["fma"] = False
binding.get_host_cpu_features = lambda: features
from smoothcert.noise import (
    chacha_with_numba, curve_with_numba, grid_law, grid_noise, grid_with_numba, grid_with_numpy
)
from smoothcert.records import Noise, Stage, StreamId
assert chacha_with_numba.LANES == 8 and not curve_with_numba.CURVES_WORK and not grid_with_numba._HAS_FMA
law, stream = grid_law(Noise.GAUSSIAN, sigma=0.3, levels=256), StreamId(5, 6, Stage.ESTIMATION)
assert grid_noise._find_compiled(wide=False) is not None
chosen = {"start": 2**32 - 9, "count": 40, "size": 333}
expected = grid_with_numpy.grid_draws(law, stream, **chosen)
assert np.array_equal(grid_noise.grid_draws(law, stream, **chosen), expected)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
