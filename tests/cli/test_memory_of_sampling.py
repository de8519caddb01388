"""A thousand times the samples take no more memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli_runner import environment

MEASURED = """
import atexit, resource, sys
from smoothcert.cli.main import run
atexit.register(lambda: print("most memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
sys.argv[0] = "smoothcert"
run()
"""


def most_kilobytes(out: Path, *, n: int) -> int:
    settings = "certify --model sample_models:always_three --num-classes 10 --data digits --sigma 0.25 --max 1 --seed 1"
    told = subprocess.run(
        [sys.executable, "-c", MEASURED, *settings.split(), "--batch", "1024", "--n", str(n), "--out", str(out)],
        capture_output=True, text=True, env=environment(), timeout=300, check=True,
    )  # fmt: skip
    return int(told.stdout.rpartition("most memory")[2])


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs between systems")
def test_ten_million_samples_take_no_more_memory_than_ten_thousand(tmp_path: Path) -> None:
    few = most_kilobytes(tmp_path / "few", n=10**4)
    many = most_kilobytes(tmp_path / "many", n=10**7)
    # Two runs of the same n differ by about 1 %; all samples at once would take 2.5 GB more.
    assert many < 1.05 * few
