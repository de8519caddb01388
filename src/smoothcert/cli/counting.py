"""Progress of work that is counted in inputs: a bar on a terminal, else a line every 20 seconds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import typer

_SECONDS_BETWEEN_LINES = 20.0


@contextlib.contextmanager
def inputs_progress(description: str, *, unit: str = "inputs") -> Iterator[Callable[[int, int], None]]:
    """A callback that takes (done, total), counted in `unit`. Nothing is shown until it is called."""
    from smoothcert.cli.progress import timed_bars

    bars = timed_bars()
    if bars is None:
        yield plain_lines(description, unit=unit)
        return
    task = bars.add_task(description, total=None)

    def show(done: int, total: int) -> None:
        bars.start()
        bars.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        if bars.live.is_started:
            bars.stop()


def plain_lines(description: str, *, unit: str = "inputs") -> Callable[[int, int], None]:
    """A callback that takes (done, total) and prints a line every 20 seconds."""
    began = last = time.perf_counter()

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= _SECONDS_BETWEEN_LINES:
            last = now
            left = (total - done) * (now - began) / max(done, 1)
            typer.echo(f"{description}: {done} of {total} {unit}, {left:.0f} s left", err=True)

    return show
