"""Progress: counted from any thread, drawn by one thread; on a terminal, in a notebook, or as lines.

Worker threads only add to a number. A thread of its own reads it at most ten times a second, so that a display costs
nothing and is never written from two threads.
"""

from __future__ import annotations

import contextlib
import contextvars
import html
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from smoothcert.spec import EveryEvaluation, FixedN, QuestionSpec

if TYPE_CHECKING:
    from smoothcert.records import CertifiedPoint

ProgressOption = bool | Callable[[int], None] | None
"""True or False; None shows progress on terminals and in notebooks; a function gets the number of new samples."""

SECONDS_BETWEEN_LINES = 20.0
_SECONDS_BEFORE_SHOWN = 0.5
"""A shorter call shows nothing."""
_SECONDS_BETWEEN_FRAMES = 0.1


class Count(Protocol):
    """How far some work is."""

    began: float

    @property
    def fraction(self) -> float:
        """The share of the work that is done."""

    @property
    def finished(self) -> int:
        """A number that grows when a batch is finished."""

    def describe(self, *, ended: bool = False) -> str:
        """One line."""


class SamplingCount:
    """How far the work on some inputs is.

    inputs, samples: how many there will be; samples is None if each input takes as many as it needs, inputs is None if
    only samples are counted. inputs_done, samples_done: by an earlier process. accuracy: what is said of an input whose
    answer is its label.
    """

    def __init__(
        self,
        *,
        inputs: int | None = None,
        samples: int | None = None,
        inputs_done: int = 0,
        samples_done: int = 0,
        accuracy: str = "certified and correct",
    ) -> None:
        self._inputs, self._samples, self._accuracy = inputs, samples, accuracy
        self._inputs_done = inputs_done
        self._earlier = inputs_done if samples is None else samples_done
        self._labelled = self._correct = 0
        self._lock = threading.Lock()
        self.new_samples = 0
        self.began = time.perf_counter()

    def add_samples(self, count: int) -> None:
        """Count new samples. May be called from any thread."""
        with self._lock:
            self.new_samples += count

    def add_points(self, points: Iterable[CertifiedPoint]) -> None:
        """Count finished inputs. Only one thread may call this."""
        for point in points:
            self._inputs_done += 1
            self.add_answer(point)

    def add_answer(self, point: CertifiedPoint) -> None:
        """Count whether the answer is correct, of an input that is counted as finished already."""
        if point.label is not None:
            self._labelled += 1
            self._correct += point.prediction == point.label

    def collect(self, shards: Iterable[list[CertifiedPoint]]) -> list[CertifiedPoint]:
        """The points of all shards, counted shard by shard."""
        points: list[CertifiedPoint] = []
        for shard in shards:
            self.add_points(shard)
            points += shard
        return points

    @property
    def fraction(self) -> float:
        """The share of the work that is done."""
        done, total = self._done_and_total()
        return min(1.0, done / total) if total else 1.0

    @property
    def finished(self) -> int:
        """The number of new samples."""
        return self.new_samples

    def _done_and_total(self) -> tuple[int, int]:
        if self._samples is None:
            return self._inputs_done, self._inputs or 0
        return self._earlier + self.new_samples, self._samples

    def describe(self, *, ended: bool = False) -> str:
        """One line: inputs, accuracy so far, time left (or taken), samples per second."""
        elapsed = max(time.perf_counter() - self.began, 1e-9)
        parts = [] if self._inputs is None else [f"{self._inputs_done}/{self._inputs} inputs"]
        if self._labelled:
            parts.append(f"{100 * self._correct / self._labelled:.1f}% {self._accuracy}")
        done, total = self._done_and_total()
        if ended:
            parts.append(f"{format_time(elapsed)} taken")
        elif done > self._earlier:
            parts.append(f"{format_time(elapsed * max(0, total - done) / (done - self._earlier))} left")
        return ", ".join([*parts, f"{self.new_samples / elapsed:,.0f} samples/s"])


def count_inputs(inputs: int, question: QuestionSpec, *, certify: bool, done: int = 0) -> SamplingCount:
    """The count of work on these inputs, some of which are done. An adaptive n is not known before it is drawn."""
    each = question.n0 + question.n if isinstance(question, FixedN | EveryEvaluation) else None
    return SamplingCount(
        inputs=inputs,
        samples=None if each is None else each * inputs,
        inputs_done=done,
        samples_done=(each or 0) * done,
        accuracy="certified and correct" if certify else "correct",
    )


def format_time(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Surface(Protocol):
    """Where progress is drawn, by one thread. seconds: between two drawings."""

    seconds: float

    def draw(self, count: Count, *, ended: bool) -> None: ...


class TerminalBar:
    """A bar on standard error."""

    seconds = _SECONDS_BETWEEN_FRAMES

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        columns = (BarColumn(bar_width=20), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
        # The user's sys.stdout and sys.stderr are left alone: this is not the main thread.
        self._bars = Progress(
            *columns, console=Console(stderr=True), auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._task = self._bars.add_task("", total=1.0)
        self._bars.start()

    def draw(self, count: Count, *, ended: bool) -> None:
        self._bars.update(self._task, completed=count.fraction, description=count.describe(ended=ended))
        if ended:
            self._bars.stop()
        else:
            self._bars.refresh()


class NotebookBar:
    """A bar in the output of a cell. When the work has ended, one line remains.

    rich would need ipywidgets for this.
    """

    seconds = 2 * _SECONDS_BETWEEN_FRAMES

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, count: Count, *, ended: bool) -> None:
        from IPython.display import display

        text = count.describe(ended=ended)
        bar = "" if ended else f'<progress max="1" value="{count.fraction:.4f}"></progress> '
        bundle = {"text/plain": text, "text/html": f"<div>{bar}{html.escape(text)}</div>"}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


class Lines:
    """A line from time to time on standard error; also if no batch was finished, because the model is slow.

    how_to_stop: is added to that line.
    """

    def __init__(self, seconds: float = SECONDS_BETWEEN_LINES, *, how_to_stop: str = "") -> None:
        self.seconds = seconds
        self._how_to_stop = how_to_stop
        self._finished = 0
        self._changed = 0.0

    def draw(self, count: Count, *, ended: bool) -> None:
        if count.finished != self._finished:
            self._finished, self._changed = count.finished, time.perf_counter()
        waited = time.perf_counter() - max(self._changed, count.began)
        if not ended and waited >= self.seconds:
            line = f"no batch was finished in the last {waited:.0f} s{self._how_to_stop}"
        else:
            line = f"{100 * count.fraction:.0f}%  {count.describe(ended=ended)}"
        print(line, file=sys.stderr, flush=True)


MakeSurface = Callable[[], Surface]


def choose_surface(wanted: bool | None) -> MakeSurface | None:
    """Where progress is shown. wanted: None shows it where somebody watches."""
    if wanted is False:
        return None
    if _is_notebook():
        return NotebookBar
    if is_terminal():
        return TerminalBar
    return Lines if wanted else None


def is_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def _is_notebook() -> bool:
    """Whether this is the kernel of a notebook. IPython is not imported: in a kernel it was imported long ago."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def show_progress(option: ProgressOption, count: SamplingCount) -> Iterator[Callable[[int], None] | None]:
    """What is called with the number of new samples while the work is done; None if nobody wants to know."""
    if option is not None and not isinstance(option, bool):
        yield option
        return
    make_surface = choose_surface(option)
    if make_surface is None:
        yield None
        return
    with draw_count(count, make_surface):
        yield count.add_samples


@contextlib.contextmanager
def draw_count(count: Count, make_surface: MakeSurface, *, delay: float | None = None) -> Iterator[None]:
    """Draw while the work is done. delay: seconds before anything is shown, half a second by default."""
    ended = threading.Event()
    delay = _SECONDS_BEFORE_SHOWN if delay is None else delay

    def draw() -> None:
        # A display that fails must not stop the work, such as a terminal that was closed.
        with contextlib.suppress(OSError, ValueError):
            if ended.wait(delay):
                return
            surface = make_surface()
            while not ended.is_set():
                surface.draw(count, ended=False)
                ended.wait(surface.seconds)
            surface.draw(count, ended=True)

    # In the context of this call: a notebook finds the cell that an output belongs to by it.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(draw,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
