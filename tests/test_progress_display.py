"""Progress of calls: shown where somebody watches, drawn by one thread, and never in the way of the work."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
import time
import types
from typing import Any

import numpy as np
import pytest

from cli_runner import environment
from smoothcert import SmoothedClassifier, progress_display
from smoothcert.progress_display import (
    Lines,
    NotebookBar,
    SamplingCount,
    TerminalBar,
    choose_surface,
    draw_count,
    show_progress,
)


def answer(batch: np.ndarray) -> np.ndarray:
    return np.zeros(len(batch), dtype=np.int64)


def smoothed() -> SmoothedClassifier:
    return SmoothedClassifier(answer, sigma=0.1, num_classes=2, grid="float", batch=64, seed=0)


INPUTS = np.full((5, 3), 0.5, dtype=np.float32)


class Recorder:
    """A surface that keeps what is drawn, and by whom."""

    seconds = 0.02

    def __init__(self) -> None:
        self.drawn: list[tuple[str, bool]] = []
        self.threads: set[int] = set()

    def draw(self, count: SamplingCount, *, ended: bool) -> None:
        self.drawn.append((count.describe(ended=ended), ended))
        self.threads.add(threading.get_ident())


def test_a_function_gets_every_sample() -> None:
    counts: list[int] = []
    smoothed().certify(INPUTS, n0=20, n=300, progress=counts.append)
    assert sum(counts) == len(INPUTS) * 320
    counts.clear()
    smoothed().predict(INPUTS, n=300, progress=counts.append)
    assert sum(counts) == len(INPUTS) * 300


@pytest.mark.parametrize("option", [None, False])
def test_silent_where_nobody_watches(option: bool | None, capfd: pytest.CaptureFixture[str]) -> None:
    smoothed().certify(INPUTS, n0=20, n=300, progress=option)
    assert capfd.readouterr() == ("", "")
    assert choose_surface(option) is None


def test_only_one_thread_draws_while_many_count() -> None:
    recorder, count = Recorder(), SamplingCount(samples=80_000, inputs=10)
    with draw_count(count, lambda: recorder, delay=0.0):
        workers = [threading.Thread(target=lambda: [count.add_samples(1) for _ in range(20_000)]) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        time.sleep(0.1)
    assert count.new_samples == 80_000
    assert len(recorder.threads) == 1
    assert recorder.threads.isdisjoint({threading.get_ident()})
    assert [ended for _, ended in recorder.drawn] == [False] * (len(recorder.drawn) - 1) + [True]


def test_surfaces_are_drawn_at_most_ten_times_a_second() -> None:
    assert min(surface.seconds for surface in (TerminalBar, NotebookBar)) >= 0.1


@pytest.mark.parametrize("error", [OSError, ValueError])
def test_a_display_that_fails_does_not_stop_the_work(error: type[Exception]) -> None:
    class Closed:
        seconds = 0.01

        def draw(self, count: SamplingCount, *, ended: bool) -> None:
            raise error("the terminal was closed")

    with draw_count(SamplingCount(samples=10), Closed, delay=0.0):
        time.sleep(0.05)


def test_what_is_said() -> None:
    points = list(smoothed().certify(INPUTS, n0=20, n=300, labels=[0, 0, 0, 1, 1]))
    count = SamplingCount(inputs=5, samples=1600)
    assert count.describe().startswith("0/5 inputs, ")
    assert "left" not in count.describe()
    count.add_samples(800)
    count.add_points(points[2:4])
    text = count.describe()
    assert re.fullmatch(r"2/5 inputs, 50\.0% certified and correct, \d:\d\d left, [\d,]+ samples/s", text), text
    assert count.fraction == 0.5
    count.add_samples(800)
    count.add_points(points[:2] + points[4:])
    assert "5/5 inputs, 60.0% certified and correct, 0:00 taken" in count.describe(ended=True)


def test_a_resumed_run_counts_what_was_there() -> None:
    """The time that is left follows from the new samples alone."""
    count = SamplingCount(inputs=10, samples=1000, inputs_done=8, samples_done=800)
    assert count.fraction == 0.8
    assert "left" not in count.describe()
    count.began -= 100.0
    count.add_samples(100)
    assert "1:40 left" in count.describe()
    by_input = SamplingCount(inputs=10, inputs_done=8)
    assert by_input.fraction == 0.8


def test_lines_say_where_the_work_is_or_that_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    count, lines = SamplingCount(samples=100), Lines(0.05, how_to_stop="; do this")
    count.add_samples(50)
    lines.draw(count, ended=False)
    assert capsys.readouterr().err.startswith("50%  ")
    time.sleep(0.06)
    lines.draw(count, ended=False)
    assert capsys.readouterr().err == "no batch was finished in the last 0 s; do this\n"


class FakeHandle:
    def __init__(self, shown: list[dict[str, str]]) -> None:
        self._shown = shown

    def update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self._shown.append(bundle)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The modules that a kernel has; what is displayed."""
    shown: list[dict[str, str]] = []

    class ZMQInteractiveShell:
        pass

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> FakeHandle:
        assert raw
        assert display_id
        shown.append(bundle)
        return FakeHandle(shown)

    package: Any = types.ModuleType("IPython")
    package.get_ipython = ZMQInteractiveShell
    package.display = types.ModuleType("IPython.display")
    package.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", package.display)
    return shown


def test_in_a_notebook_a_bar_is_updated_and_one_line_remains(
    notebook: list[dict[str, str]],
) -> None:
    assert choose_surface(None) is NotebookBar
    assert choose_surface(False) is None
    count = SamplingCount(inputs=2, samples=100)
    with draw_count(count, NotebookBar, delay=0.0):
        time.sleep(0.3)
        count.add_samples(100)
    assert len(notebook) >= 2
    assert "<progress" in notebook[0]["text/html"]
    assert "<progress" not in notebook[-1]["text/html"]
    assert notebook[-1]["text/plain"] in notebook[-1]["text/html"]


def test_a_short_call_in_a_notebook_leaves_nothing(
    notebook: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert progress_display._SECONDS_BEFORE_SHOWN == 0.5
    monkeypatch.setattr(progress_display, "_SECONDS_BEFORE_SHOWN", 60.0)  # however slow this machine is
    smoothed().certify(INPUTS, n0=20, n=300)
    assert notebook == []


def test_an_error_ends_the_display() -> None:
    recorder, before = Recorder(), threading.active_count()

    def work() -> None:
        with draw_count(SamplingCount(samples=10), lambda: recorder, delay=0.0):
            time.sleep(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert threading.active_count() == before
    assert recorder.drawn[-1][1]


def test_true_shows_lines_where_there_is_no_terminal() -> None:
    assert choose_surface(True) is Lines
    count = SamplingCount(samples=10)
    with show_progress(True, count) as on_samples:
        assert on_samples == count.add_samples


def run_child(option: str, *, terminal: bool) -> tuple[str, str]:
    """What a program writes to standard output and to standard error, which is a terminal or not."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "progress_child", option]
    error: Any = theirs if terminal else subprocess.PIPE
    variables = {**environment(), "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=error, env=variables)
    os.close(theirs)
    text = b""
    while terminal:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    out, piped = process.communicate(timeout=300)
    assert process.returncode == 0, (text, piped)
    return out.decode(), (text if terminal else piped).decode()


@pytest.mark.slow
class TestPrograms:
    def test_a_terminal_shows_a_bar(self) -> None:
        out, shown = run_child("None", terminal=True)
        assert out == "4 of 8\n"
        assert re.search(r"[1-7]/8 inputs", shown)
        assert "8/8 inputs, 50.0% certified and correct" in shown
        assert re.search(r"\d:\d\d left", shown)
        assert shown.count("/8 inputs") < 200

    def test_false_is_silent_on_a_terminal(self) -> None:
        assert run_child("False", terminal=True) == ("4 of 8\n", "")

    def test_a_pipe_is_silent_unless_it_is_wanted(self) -> None:
        assert run_child("None", terminal=False) == ("4 of 8\n", "")
        _, shown = run_child("True", terminal=False)
        assert "8/8 inputs, 50.0% certified and correct" in shown
        assert "\x1b" not in shown

    def test_a_kernel_shows_a_bar_in_its_cell_and_leaves_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A real kernel: updates are drawn by a thread, and belong to the cell that made the call."""
        nbclient = pytest.importorskip("nbclient")
        nbformat = pytest.importorskip("nbformat")
        pytest.importorskip("ipykernel")
        monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        cells = ["import progress_child", "points = progress_child.certify(None)", "1 + 1"]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
        updates: list[tuple[int, str]] = []

        class Client(nbclient.NotebookClient):  # type: ignore[misc, name-defined]
            def process_message(self, message: Any, cell: Any, cell_index: int) -> Any:
                if message["msg_type"] == "update_display_data":
                    updates.append((cell_index, message["content"]["data"]["text/plain"]))
                return super().process_message(message, cell, cell_index)

        Client(notebook, timeout=300, kernel_name="python3").execute()
        assert {cell for cell, _ in updates} == {1}
        assert any(re.match(r"[1-7]/8 inputs", text) for _, text in updates)
        (shown,) = (output for output in notebook.cells[1].outputs if output.output_type == "display_data")
        assert "8/8 inputs, 50.0% certified and correct" in shown.data["text/html"]
        assert "<progress" not in shown.data["text/html"]
        assert not [output for output in notebook.cells[1].outputs if output.output_type == "stream"]
