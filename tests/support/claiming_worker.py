"""A process that claims random points and records every acknowledgement, so that it can be killed at any time.

python claiming_worker.py LOCATION ACKNOWLEDGEMENTS SEED COUNT DIMENSION

The claims are a function of the seed, so a restarted worker repeats them. An acknowledgement is passed to the
operating system before the next claim is made, so that killing the process does not lose it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.memory import MemoryKey, open_memory
from smoothcert.records import Norm, Promise

CLASSES = 4


def key(dimension: int) -> MemoryKey:
    return MemoryKey("model", "sigma", "gaussian", Norm.L2, "none", dimension)


def inputs(seed: int, count: int, dimension: int) -> list[tuple[np.ndarray[Any, np.dtype[np.float32]], int, float]]:
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(count, dimension)).astype(np.float32)
    labels = generator.integers(CLASSES, size=count)
    radii = generator.exponential(0.35 * dimension**0.5, size=count)
    return list(zip(points, labels.tolist(), radii.tolist(), strict=True))


def as_json(promise: Promise) -> dict[str, Any]:
    return {**asdict(promise), "settlement": promise.settlement.name}


def acknowledged(file: Path) -> list[dict[str, Any]]:
    """The recorded acknowledgements. A line truncated by a kill is ignored."""
    found = []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def main() -> None:
    location, acknowledgements, seed, count, dimension = sys.argv[1:]
    file = Path(acknowledgements)
    # The last few are claimed again and must get the same answers.
    start = max(0, max((entry["number"] for entry in acknowledged(file)), default=-1) - 2)
    chosen = inputs(int(seed), int(count), int(dimension))
    with open_memory(location, key(int(dimension))) as memory, file.open("ab") as out:
        out.write(b"\n")
        for number in range(start, len(chosen)):
            promise = memory.claim(*chosen[number])
            out.write(json.dumps({"number": number, **as_json(promise)}).encode() + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
