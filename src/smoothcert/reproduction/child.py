"""A step's process: `smoothcert`, told to stop when the process that watches it is gone.

Run by its path, with the watcher's process id and then the words of the command. Where the system cannot tell a process
that its parent died (all but Linux), the step goes on to its end; the lock it inherits says that it does.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _stop_with(parent: int) -> None:
    """SIGTERM, on which every verb stores what it has, as soon as the parent ends, however it ends."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before it could be watched
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _stop_with(int(sys.argv.pop(1)))
    runpy.run_module("smoothcert", run_name="__main__", alter_sys=True)
