"""Process of one step: runs `smoothcert` and stops when the parent process dies.

Run by path, as `python child.py PARENT_PID ARGUMENTS…`. Only Linux notifies a process of its parent's death. On other
systems the step runs to its end and keeps the inherited lock until then.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _stop_with(parent: int) -> None:
    """Request SIGTERM on the parent's death. Every command stores its results on SIGTERM."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the request
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _stop_with(int(sys.argv.pop(1)))
    runpy.run_module("smoothcert", run_name="__main__", alter_sys=True)
