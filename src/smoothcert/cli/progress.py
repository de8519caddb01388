"""Progress of long work: a bar with rate and time left on a terminal, else a line every 20 seconds."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

    from smoothcert.data import Progress as FetchStep

_SECONDS_BETWEEN_LINES = 20.0


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
    bars = timed_bars()
    if bars is None:
        with _report_stalls(_plain_lines(total, done)) as advance:
            yield advance
        return
    with bars:
        task = bars.add_task("sampling", total=total, completed=done)
        rate = _Rate()
        yield lambda count: bars.update(task, advance=count, description=f"sampling {rate.add(count)}")


@contextlib.contextmanager
def inputs_progress(total: int, *, done: int = 0) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Two callbacks for work with an unknown number of samples: for new samples, and for finished inputs."""
    bars = timed_bars()
    spent = _Spent(total, done)
    if bars is None:
        with _report_stalls(spent.samples_in_lines) as samples_in_lines:
            yield samples_in_lines, spent.add_inputs
        return
    with bars:
        task = bars.add_task("sampling", total=total, completed=done)

        def samples(count: int) -> None:
            spent.add_samples(count)
            bars.update(task, description=str(spent))

        def inputs(count: int) -> None:
            spent.add_inputs(count)
            bars.update(task, advance=count, description=str(spent))

        yield samples, inputs


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


class _Rate:
    """Samples per second since the start, for printing."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._count = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> str:
        with self._lock:
            self._count += count
            return f"{self._count / max(time.perf_counter() - self._began, 1e-9):,.0f} samples/s"


class _Spent:
    """The numbers of finished inputs and of samples, for work that stops when it has an answer."""

    def __init__(self, total: int, done: int) -> None:
        self._total = total
        self._inputs = done
        self._samples = 0
        self._rate = ""
        self._rates = _Rate()
        self._last = time.perf_counter()
        self._lock = threading.Lock()

    def add_samples(self, count: int) -> None:
        rate = self._rates.add(count)
        with self._lock:
            self._samples += count
            self._rate = rate

    def add_inputs(self, count: int) -> None:
        with self._lock:
            self._inputs += count

    def samples_in_lines(self, count: int) -> None:
        self.add_samples(count)
        with self._lock:
            now = time.perf_counter()
            if now - self._last < _SECONDS_BETWEEN_LINES:
                return
            self._last = now
        typer.echo(str(self), err=True)

    def __str__(self) -> str:
        return f"{self._inputs} of {self._total} inputs, {self._samples:,} samples spent, {self._rate}"


@contextlib.contextmanager
def _report_stalls(advance: Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    """The same callback, and a line for every 20 seconds in which it was not called, because the model is slow."""
    ended = threading.Event()
    calls = 0

    def count_call(count: int) -> None:
        nonlocal calls
        calls += 1
        advance(count)

    def watch() -> None:
        waited, seen = 0.0, 0
        while not ended.wait(_SECONDS_BETWEEN_LINES):
            waited, seen = (waited + _SECONDS_BETWEEN_LINES if calls == seen else 0.0), calls
            if waited:
                typer.echo(
                    f"no batch was finished in the last {waited:.0f} s; press Ctrl-C twice to stop immediately",
                    err=True,
                )

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield count_call
    finally:
        ended.set()
        watcher.join()


def _plain_lines(total: int, done: int) -> Callable[[int], None]:
    rate = _Rate()
    lock = threading.Lock()
    began = last = time.perf_counter()
    finished = 0

    def advance(count: int) -> None:
        nonlocal finished, last
        text = rate.add(count)
        with lock:
            finished += count
            now = time.perf_counter()
            if now - last < _SECONDS_BETWEEN_LINES:
                return
            last = now
            left = (total - done - finished) * (now - began) / max(finished, 1)
            typer.echo(f"{100 * (done + finished) / total:.0f}%  {text}  {max(left, 0):.0f} s left", err=True)

    return advance


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
