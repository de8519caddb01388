"""Progress of long work: a bar with rate and time left on a terminal, else a line every 20 seconds."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

import typer

from smoothcert.progress_display import (
    SECONDS_BETWEEN_LINES,
    Lines,
    SamplingCount,
    TerminalBar,
    draw_count,
    is_terminal,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from smoothcert.data import Progress as FetchStep

_SECONDS_BETWEEN_LINES = SECONDS_BETWEEN_LINES


def timed_bars() -> Progress | None:
    """Bars with a description, elapsed time and time left; None if standard error is not a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console)


@contextlib.contextmanager
def samples_progress(total: int, *, done: int = 0) -> Iterator[Callable[[int], None]]:
    """A callback that takes the number of new samples. It may be called from any thread."""
    count = SamplingCount(samples=total, samples_done=done)
    with show_count(count):
        yield count.add_samples


@contextlib.contextmanager
def show_count(count: SamplingCount) -> Iterator[None]:
    """Show how far sampling is, in any case."""
    if is_terminal():
        with draw_count(count, TerminalBar):
            yield
        return
    seconds = _SECONDS_BETWEEN_LINES
    with draw_count(
        count, lambda: Lines(seconds, how_to_stop="; press Ctrl-C twice to stop immediately"), delay=seconds
    ):
        yield


@contextlib.contextmanager
def fetch_progress() -> Iterator[Callable[[FetchStep], None]]:
    """A callback for datasets that are fetched. Nothing is shown until it is called."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=None)

    def show(step: FetchStep) -> None:
        bar.start()
        bar.update(task, description=step.message, completed=step.done, total=step.total)

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


@contextlib.contextmanager
def stop_on_interrupt(piece: str = "shard") -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one interrupts. piece: what is finished first."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        typer.echo(f"\nfinishing the current {piece}; press Ctrl-C again to stop immediately", err=True)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
