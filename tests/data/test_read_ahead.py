"""Files are read in a thread while inputs before them are sampled, which changes nothing but the time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothcert.data import load_dataset
from smoothcert.data.matching import reads_files
from smoothcert.data.read_ahead import ReadAhead
from smoothcert.errors import DataError
from smoothcert.records import InputArray


class Files:
    """Inputs that are their position. log: positions, and whether another thread read them."""

    def __init__(self) -> None:
        self.log: list[tuple[list[int], bool]] = []
        self.missing: set[int] = set()
        self.may_read = threading.Event()
        self.may_read.set()

    def __call__(self, positions: Sequence[int]) -> InputArray:
        self.may_read.wait()
        self.log.append((list(positions), threading.current_thread() is not threading.main_thread()))
        if self.missing & set(positions):
            raise DataError(f"file {positions[0]} cannot be read")
        return np.array([[position] for position in positions], dtype=np.float32)


def test_announced_inputs_are_read_by_another_thread() -> None:
    files = Files()
    reader = ReadAhead(files)
    assert reader([0, 1]).tolist() == [[0], [1]]
    reader.announce([2, 3])
    assert reader([2, 3]).tolist() == [[2], [3]]
    assert files.log == [([0, 1], False), ([2], True), ([3], True)]


def test_others_than_the_announced_are_read_here() -> None:
    files = Files()
    reader = ReadAhead(files)
    reader.announce([7])
    assert reader([4, 5]).tolist() == [[4], [5]]
    assert ([4, 5], False) in files.log
    assert reader([7]).tolist() == [[7]]
    assert files.log[-1] == ([7], False)


def test_an_error_is_raised_where_its_inputs_are_asked_for() -> None:
    files = Files()
    files.missing = {2}
    reader = ReadAhead(files)
    reader.announce([1, 2, 3])
    with pytest.raises(DataError, match="file 2 cannot be read"):
        reader([1, 2, 3])
    files.missing = set()
    assert reader([1, 2, 3]).tolist() == [[1], [2], [3]]


def test_what_was_announced_is_given_up_after_the_file_that_is_read() -> None:
    files = Files()
    files.may_read.clear()
    reader = ReadAhead(files)
    reader.announce(range(1000))
    thread = next(each for each in threading.enumerate() if each.name == "smoothcert-reader")
    threading.Timer(0.05, files.may_read.set).start()
    reader.announce(())
    assert not thread.is_alive()
    assert len(files.log) < 1000


def test_an_interrupt_while_waiting_stops_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files()
    files.may_read.clear()
    reader = ReadAhead(files)
    reader.announce(range(1000))
    thread = next(each for each in threading.enumerate() if each.name == "smoothcert-reader")
    join = threading.Thread.join

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader(range(1000))
    files.may_read.set()
    join(thread)
    assert len(files.log) < 1000


def test_folders_of_images_are_read_ahead_and_arrays_are_not(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((4, 4, 3), dtype=np.uint8)).save(tmp_path / name / "0.png")
    assert reads_files(load_dataset(str(tmp_path)))
    assert not reads_files(load_dataset("digits"))
