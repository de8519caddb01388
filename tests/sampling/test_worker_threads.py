"""Threads that stay between calls."""

from __future__ import annotations

import os
import threading
import weakref

import pytest

from smoothcert.sampling.worker_threads import start_work

SECONDS = 10.0


def _names_of(count: int) -> list[str]:
    """The threads that did this many pieces of work at once."""
    found: list[int] = []
    barrier = threading.Barrier(count, timeout=SECONDS)

    def work() -> None:
        barrier.wait()
        found.append(threading.get_ident())

    for done in [start_work(work) for _ in range(count)]:
        assert done.wait(SECONDS)
    return sorted(map(str, found))


def test_idle_threads_are_used_again():
    first = _names_of(3)
    assert len(set(first)) == 3
    assert _names_of(3) == first
    assert set(_names_of(2)) <= set(first)


def test_idle_threads_keep_nothing_of_their_work():
    class Model:
        pass

    model = Model()
    watched = weakref.ref(model)
    done = start_work(lambda held=model: None)  # type: ignore[misc]
    assert done.wait(SECONDS)
    del model
    _names_of(1)  # the thread is idle now
    assert watched() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_process_starts_threads_of_its_own():
    _names_of(2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if start_work(lambda: None).wait(SECONDS) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
