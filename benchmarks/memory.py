"""What a memory of promised regions costs when it is large: opening it, claiming, looking up.

python benchmarks/memory.py [CLAIMS]

The memory holds 100000 inputs of dimension 3072, unless told otherwise, with radii from 0.5 to 2 and ten classes, in a
temporary directory (1.6 GB). Two kinds of inputs: smooth random fields, which are as easy to tell apart by a few
directions as photographs are, and white noise in [0, 1], of which a few directions show next to nothing. The
yardsticks, in the same run: committing an empty claim to a database of its own, and a plain scan that measures every
stored centre.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.memory import Claim, MemoryKey, open_existing, open_memory
from smoothcert.memory.log import encode
from smoothcert.memory.sqlite_log import SqliteLog
from smoothcert.records import Norm, Settlement

SIDE, CHANNELS, CLASSES = 32, 3, 10
DIMENSION = SIDE * SIDE * CHANNELS
BATCH, ROUNDS = 1000, 60

Inputs = NDArray[np.float32]


def smooth_fields(count: int, generator: np.random.Generator) -> Inputs:
    """Images in [0, 1] with the contrast and the spectrum of photographs: amplitudes like one over the frequency."""
    rows = np.fft.fftfreq(SIDE)[:, None] * SIDE
    columns = np.fft.rfftfreq(SIDE)[None, :] * SIDE
    amplitude = 1.0 / np.maximum(np.hypot(rows, columns), 1.0)
    shape = (count, CHANNELS, SIDE, SIDE // 2 + 1)
    spectrum = amplitude * (generator.standard_normal(shape) + 1j * generator.standard_normal(shape))
    fields = np.fft.irfft2(spectrum, s=(SIDE, SIDE))
    return np.clip(0.5 + 0.25 * fields / fields.std(), 0.0, 1.0).astype(np.float32).reshape(count, DIMENSION)


def white_noise(count: int, generator: np.random.Generator) -> Inputs:
    return generator.random((count, DIMENSION), dtype=np.float32)


def fill(path: Path, key: MemoryKey, count: int, inputs: Callable[[int, np.random.Generator], Inputs]) -> None:
    """Store claims as they are, a thousand at a time: what is measured is a full memory, not the filling of it."""
    generator = np.random.default_rng(0)
    log = SqliteLog(path, create=True)
    stored = log.register(key.digest, key.to_text())
    entry = stored.identity
    for start in range(0, count, BATCH):
        centres = inputs(min(BATCH, count - start), generator)
        with log.writing(stored.number):
            for place, centre in enumerate(centres):
                label, radius = int(generator.integers(CLASSES)), float(generator.uniform(0.5, 2.0))
                now = datetime.now(UTC)
                claim = Claim(start + place + 1, centre, label, radius, label, radius, Settlement.WHOLE, now)
                row = encode(claim, previous=entry)
                log.append(stored.number, row)
                entry = row.entry
    log.disconnect()


def milliseconds(
    work: Callable[[Inputs], object], inputs: Inputs, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    times = []
    for x in inputs:
        began = clock()
        work(x)
        times.append(1000.0 * (clock() - began))
    return times


def commit_alone(folder: Path, key: MemoryKey, inputs: Inputs) -> float:
    with open_memory(folder / "empty.sqlite", key) as memory:
        return statistics.median(milliseconds(lambda x: memory.claim(x, 0, 0.0), inputs))


def scan_everything(path: Path, x: Inputs) -> float:
    """Seconds to read every centre from the open memory's file and measure it."""
    with open_existing(path) as memory:
        began = time.perf_counter()
        for claim in memory.claims():
            np.linalg.norm(claim.centre - x)
        return time.perf_counter() - began


def measure(folder: Path, name: str, count: int, inputs: Callable[[int, np.random.Generator], Inputs]) -> None:
    key = MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", DIMENSION)
    path = folder / f"{name.replace(' ', '-')}.sqlite"
    fill(path, key, count, inputs)
    generator = np.random.default_rng(1)
    bare = commit_alone(folder, key, inputs(ROUNDS, generator))
    began = time.perf_counter()
    with open_memory(path, key) as memory:
        opening = time.perf_counter() - began
        claims = milliseconds(
            lambda x: memory.claim(x, int(generator.integers(CLASSES)), float(generator.uniform(0.5, 2.0))),
            inputs(ROUNDS, generator),
        )
        lookups = milliseconds(memory.lookup, inputs(ROUNDS, generator))
    scan = scan_everything(path, inputs(1, generator)[0])
    print(f"{name}: {count} claims of dimension {DIMENSION}")
    print(f"  opening         {opening:6.1f} s   {opening / scan:5.2f} of a plain scan")
    for verb, times in (("claim", claims), ("lookup", lookups)):
        middle, worst = statistics.median(times), sorted(times)[int(0.95 * len(times))]
        print(
            f"  {verb:8s} median {middle:6.1f} ms  95% below {worst:6.1f} ms   {middle / bare:5.1f} of a claim in an "
            f"empty memory ({bare:.1f} ms)   a plain scan takes {1000.0 * scan / middle:.0f} times as long"
        )
    path.unlink()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), "smooth fields", count, smooth_fields)
        measure(Path(folder), "white noise", count, white_noise)


if __name__ == "__main__":
    main()
