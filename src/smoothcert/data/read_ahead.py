"""Reading the next inputs from files in a thread, while those before are sampled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from smoothcert.records import InputArray

Read = Callable[[Sequence[int]], InputArray]


class ReadAhead:
    """Reads inputs at positions; those that were announced, in a thread. What is read does not depend on that.

    At most the announced inputs are held besides those that were handed out. An error of the thread is raised when its
    inputs are asked for.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._ahead: _Reading | None = None

    def announce(self, positions: Sequence[int]) -> None:
        """Begin to read these inputs, which will be asked for next. What was announced before is given up."""
        if self._ahead is not None:
            self._ahead.give_up()
        self._ahead = _Reading(self._read, positions) if len(positions) else None

    def __call__(self, positions: Sequence[int]) -> InputArray:
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return self._read(positions)
        if list(ahead.positions) != list(positions):
            ahead.give_up()
            return self._read(positions)
        return ahead.wait()


class _Reading:
    """One thread that reads some inputs, one by one, so that it soon ends where they are no longer needed."""

    def __init__(self, read: Read, positions: Sequence[int]) -> None:
        self.positions = positions
        self._read = read
        self._rows: list[InputArray] = []
        self._failure: BaseException | None = None
        self._given_up = False
        # A daemon: a file system that does not answer must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="smoothcert-reader", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for position in self.positions:
                if self._given_up:
                    return
                self._rows.append(self._read([position]))
        except BaseException as failure:
            self._failure = failure

    def wait(self) -> InputArray:
        try:
            self._thread.join()
        except BaseException:  # an interrupt
            self._given_up = True
            raise
        if self._failure is not None:
            raise self._failure
        return np.concatenate(self._rows)

    def give_up(self) -> None:
        """Wait until the thread has read the input that it is reading."""
        self._given_up = True
        self._thread.join()
