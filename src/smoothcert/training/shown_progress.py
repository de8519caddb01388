"""The progress of a training in Python: a bar on terminals and in notebooks, elsewhere a line per epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from smoothcert.progress_display import Lines, choose_surface, draw_count, format_time
from smoothcert.training.training_loop import TrainingProgress, print_epoch

TrainingProgressOption = bool | Callable[[TrainingProgress], None] | None
"""True or False; None shows progress on terminals and in notebooks; a function gets every report."""


class TrainingCount:
    """The last report of a training, for a display."""

    def __init__(self) -> None:
        self._last: TrainingProgress | None = None
        self.began = time.perf_counter()

    def take(self, report: TrainingProgress) -> None:
        self._last = report

    @property
    def fraction(self) -> float:
        """The share of the steps that are done."""
        return 0.0 if self._last is None else self._last.step / self._last.steps

    @property
    def finished(self) -> int:
        """The number of steps."""
        return 0 if self._last is None else self._last.step

    def describe(self, *, ended: bool = False) -> str:
        """One line: epoch, loss, accuracy, time left or taken."""
        last = self._last
        if last is None:
            return "starting"
        if ended:
            return f"{last.describe()}  {format_time(time.perf_counter() - self.began)} taken"
        return last.describe() + ("" if last.seconds_left is None else f"  {format_time(last.seconds_left)} left")


@contextmanager
def show_training(option: TrainingProgressOption) -> Iterator[Callable[[TrainingProgress], None] | None]:
    """What is called with the reports of a training; None if nobody wants to know."""
    if option is not None and not isinstance(option, bool):
        yield option
        return
    make_surface = choose_surface(option)
    if make_surface is None or make_surface is Lines:
        # A file has one line for every epoch, at whatever pace.
        yield None if make_surface is None else print_epoch
        return
    count = TrainingCount()
    with draw_count(count, make_surface):
        yield count.take
