"""A plugin for pytest that writes the processor time of every test, from which the lanes are chosen.

    python -m pytest -n auto -m "not slow and not network" -p processor_times

appends lines "seconds<TAB>test" to processor_times.PID.tsv in the current folder. Processor time, with that of child
processes, hardly depends on what else the machine does. Tests above 0.4 s belong into slow_tests.txt, unless they
represent their kind (lanes.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = sum(os.times()[:4])
    yield
    with Path(f"processor_times.{os.getpid()}.tsv").open("a") as stream:
        stream.write(f"{sum(os.times()[:4]) - before:.3f}\t{item.nodeid}\n")
