"""Threads that stay when their work is done, and wait for more.

A new thread gets its memory page by page from the operating system, which takes a small network as long as a third of
its batches in a call. Idle threads keep that memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class _Worker:
    """One thread. It takes pieces of work one by one, and is idle in between."""

    def __init__(self) -> None:
        self._given: SimpleQueue[tuple[Work, threading.Event]] = SimpleQueue()
        # A daemon: a process ends without waiting for idle threads.
        threading.Thread(target=self._serve, name="smoothcert-worker", daemon=True).start()

    def give(self, work: Work, done: threading.Event) -> None:
        self._given.put((work, done))

    def _serve(self) -> None:
        while True:
            work, done = self._given.get()
            try:
                work()
            finally:
                del work  # an idle thread must not keep a model alive
                with _lock:
                    _idle.append(self)
                done.set()


_lock = threading.Lock()
_idle: list[_Worker] = []


def _forget_threads() -> None:
    """A forked process has none of the threads of its parent, and perhaps a lock that one of them held."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def start_work(work: Work) -> threading.Event:
    """Do the work in an idle thread, or in a new one; the event is set at its end. The work must raise nothing."""
    done = threading.Event()
    with _lock:
        worker = _idle.pop() if _idle else None
    (worker or _Worker()).give(work, done)
    return done
