"""Disks that fail: a small one that is full, and system calls that fail from a chosen one on (failing_disk.c)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("failing_disk.c")


@contextlib.contextmanager
def small_disk(place: Path, kilobytes: int) -> Iterator[Path]:
    """An empty disk of this size at `place`, a new directory. Skips the test where it may not be mounted."""
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "smoothcert-tests", str(place)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def run_on_failing_disk(program: str, *arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python program that calls `failing_below`. folder: where the library is compiled to."""
    library = folder / "failing_disk.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
    places = os.pathsep.join(filter(None, [str(_SOURCE.parent), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": places, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@contextlib.contextmanager
def failing_below(folder: Path, *, first: int, count: int, error: int, reads: bool) -> Iterator[None]:
    """In a process with the library: calls `first` to first + count - 1 on files below `folder` fail.

    reads: count and fail calls that read, too.
    """
    library = ctypes.CDLL(None)
    numbers = (ctypes.c_long(first), ctypes.c_long(count), ctypes.c_int(error), ctypes.c_int(reads))
    library.fail_disk(os.fsencode(folder), *numbers)
    try:
        yield
    finally:
        library.heal_disk()


def count_calls() -> int:
    """How many calls there were since `failing_below` was entered."""
    count = ctypes.CDLL(None).count_disk_calls
    count.restype = ctypes.c_long
    return int(count())
