"""Runs the noise kernels in Triton's interpreter and prints what was found as JSON: python kernel_child.py CHECK …

Triton reads TRITON_INTERPRET when it is imported, so this is a process of its own.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable

os.environ["TRITON_INTERPRET"] = "1"

import dataclasses

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from smoothcert.noise import GridLaw, additive_law_of, grid_law
from smoothcert.noise.device_noise import NoiseTargets, device_noise
from smoothcert.noise.device_test import NoiseCase, equals_host, find_difference
from smoothcert.noise.grid_with_numpy import grid_draws, settle
from smoothcert.noise.grid_with_triton import _settle
from smoothcert.noise.with_triton import KernelNoise
from smoothcert.records import Noise, Stage, StreamId

CPU = torch.device("cpu")
GPU_TILES = 64
"""The size of a tile on a card; in the interpreter, tiles are larger."""
STREAM = StreamId(seed=2**127 + 9, index=2**32 - 2, stage=Stage.SELECTION)
ADDED = [noise for noise in Noise if noise.sampled]


@triton.jit
def settle_all(out, first, second, third, entry, table, thresholds, count, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[None, :]
    second_word = tl.load(second + at).to(tl.uint32, bitcast=True)
    third_word = tl.load(third + at).to(tl.uint32, bitcast=True)
    found = _settle(tl.load(first + at), second_word, third_word, table, thresholds, count, tl.load(entry + at))
    tl.store(out + at, found)


@triton.jit
def lanes_of(out, words, LANES: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    w0 = tl.load(words + at).to(tl.uint32, bitcast=True)
    w1 = tl.load(words + SIZE + at).to(tl.uint32, bitcast=True)
    w2 = tl.load(words + 2 * SIZE + at).to(tl.uint32, bitcast=True)
    w3 = tl.load(words + 3 * SIZE + at).to(tl.uint32, bitcast=True)
    z0, z1, z2, z3 = LANES(w0, w1, w2, w3)
    tl.store(out + at, z0)
    tl.store(out + SIZE + at, z1)
    tl.store(out + 2 * SIZE + at, z2)
    tl.store(out + 3 * SIZE + at, z3)


def check_choice() -> object:
    """Who makes noise here, for every type."""
    return [device_noise(CPU, dtype).name for dtype in (torch.float32, torch.bfloat16)]


def check_sizes() -> object:
    """Sizes around blocks and tiles, with the tiles of a card; counters whose upper word changes; all types."""
    kernel, wrong = KernelNoise(lanes=GPU_TILES), []
    types = itertools.cycle((torch.float32, torch.bfloat16, torch.float16, torch.float64))
    places = [(1, 2**32 - 2, 3), (31, 0, 9), (2081, 2**56 - 5, 2)]
    for noise, (size, start, rows) in itertools.product(ADDED, places):
        for sigma, levels in ((0.12, None), (1.0, 256), (0.6, 2)):
            case = NoiseCase(noise, sigma, levels, size, start, rows, STREAM)
            if not equals_host(kernel, case, CPU, next(types)):
                wrong.append(str(case))
    return wrong


def check_wide_tables() -> object:
    """Tables of int32, which leave most draws to the further bits, over several tiles of a row."""
    kernel, wrong = KernelNoise(lanes=8), []
    for noise in ADDED:
        case = NoiseCase(noise, 0.9, 2**16, 270, 2**32 - 1, 2, STREAM)
        if not equals_host(kernel, case, CPU, torch.float32):
            wrong.append(str(case))
    return wrong


def check_sentinels() -> object:
    """Every draw at a place that a table marks, and the extreme ones: streams are searched for the rarest words."""
    wrong = []
    for noise, levels in itertools.product(ADDED, (17, 256)):
        law = grid_law(noise, sigma=0.5, levels=levels)
        # All draws unsettled, as in the tails, and the table still right: -1-i where it said j.
        below = np.searchsorted(law.thresholds, np.arange(1 << 16, dtype=np.uint64) << np.uint64(48), side="right")
        marked = dataclasses.replace(law, table=(-1 - below).astype(np.int16))
        draws = torch.empty((3, 61), dtype=torch.int32)
        place = torch.zeros(61, dtype=torch.int32)
        KernelNoise(lanes=8).add_on_grid(NoiseTargets(draws=draws), place, marked, STREAM, start=2**32 - 1)
        expected = grid_draws(marked, STREAM, start=2**32 - 1, count=3, size=61)
        if not np.array_equal(draws.numpy(), expected):
            wrong.append(f"{noise}, {levels} levels")
    return wrong


def check_extreme_words() -> object:
    """Draws with the least and the greatest bits, and bits on both sides of every threshold of a tail."""
    wrong = []
    for noise, sigma in itertools.product(ADDED, (0.5, 1.0)):
        law = grid_law(noise, sigma=sigma, levels=256)
        ends = np.concatenate([law.thresholds[:40], law.thresholds[-40:]])
        u = np.concatenate([ends, ends - np.uint64(1), np.array([0, 2**64 - 1], dtype=np.uint64)])
        u = np.resize(u, 256)
        first, rest = (u >> np.uint64(48)).astype(np.uint32), u & np.uint64(2**48 - 1)
        second = (rest >> np.uint64(16)).astype(np.uint32)
        third = ((rest & np.uint64(0xFFFF)) << np.uint64(16)).astype(np.uint32)
        words = [torch.from_numpy(word.view(np.int32).copy()) for word in (first, second, third)]
        entry = torch.from_numpy(law.table[first].astype(np.int32))
        tables = torch.tensor(law.table), torch.from_numpy(law.thresholds.view(np.int64).copy())
        out = torch.zeros(256, dtype=torch.int32)
        settle_all[(1,)](out, *words, entry, *tables, len(law.thresholds), SIZE=256)
        if not np.array_equal(out.numpy(), settle(law, first, second, third)):
            wrong.append(f"{noise}, sigma {sigma}")
    return wrong


def check_float_words() -> object:
    """Float noise of words where signs, quarter turns and the logarithm change, with the sign of 0."""

    steps = [i << 29 for i in range(8)]
    some = [(step + near) % 2**32 for step in steps for near in (-2, -1, 0, 1, 2)]
    some += [2**i for i in range(32)] + [2**32 - 2**i for i in range(1, 32)] + [0xB504F333, 0x5A827999]
    numbers = np.resize(np.array(some, dtype=np.uint64), 128)
    words = np.stack([np.roll(numbers, shift) for shift in (0, 3, 1, 7)])
    wrong = []
    for noise in ADDED:
        law = additive_law_of(noise)
        out = torch.zeros((4, 128))
        given = torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())
        lanes_of[(1,)](out, given, LANES=law.load_triton(), SIZE=128)
        expected = np.stack(law.lanes_with_numpy(tuple(words)))
        if not np.array_equal(out.numpy().view(np.int32), expected.view(np.int32)):
            wrong.append(str(noise))
    return wrong


def check_control() -> object:
    """Negative control: a table with a wrong entry in 64 must be noticed."""

    class Wrong(KernelNoise):
        def add_on_grid(self, out: NoiseTargets, place: torch.Tensor, law: GridLaw, stream: StreamId, *, start: int):
            table = law.table.copy()
            table[::64] = law.table[1 << 15]  # a draw in the middle, which 16 bits settle
            super().add_on_grid(out, place, dataclasses.replace(law, table=table), stream, start=start)

    return find_difference(Wrong(), CPU, torch.float32)


def check_doctor() -> object:
    """What `smoothcert doctor` finds, with fewer cases."""
    from smoothcert.diagnosis import noise_checks

    noise_checks._SIZES, noise_checks._STARTS, noise_checks._GRIDS = (49,), (2**32 - 3,), (256,)
    found = noise_checks.check_kernel(CPU)
    return [found.passed, found.detail]


def check_golden() -> object:
    """Golden votes that the kernel must not change: three kinds of tallies."""
    from golden_votes import CASES

    names = ("gaussian, 256 levels, pairs", "gaussian, float, gradients", "uniform, 256 levels, votes")
    return {name: CASES[name].sample(on_device=True) for name in names}


CHECKS: dict[str, Callable[[], object]] = {
    name.removeprefix("check_"): made for name, made in list(globals().items()) if name.startswith("check_")
}

if __name__ == "__main__":
    # Overflow of whole numbers is meant here, and looking for it takes most of the interpreter's time.
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
    print(json.dumps({name: CHECKS[name]() for name in sys.argv[1:]}))
