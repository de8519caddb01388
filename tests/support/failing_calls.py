"""The command line killed at chosen system calls, or on a disk that fails: many times a second, in forked processes.

One process has imported everything and preloaded `failing_calls.c`; each command runs in a fork of it, so that a kill
costs some milliseconds.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cli_runner import environment

_SOURCE = Path(__file__).with_suffix(".c")
NEVER = 10**9


@functools.cache
def build_library() -> Path:
    """The compiled library, for this process of tests."""
    library = Path(tempfile.mkdtemp(prefix="smoothcert-failing-")) / "failing_calls.so"
    # -O1 without fortified versions: those would be called by other names.
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-o", library, _SOURCE, "-ldl"], check=True)
    return library


@dataclass(frozen=True)
class Ended:
    """How a command ended. code: as of subprocess, negative for a signal. calls: how many were counted; 0 if killed."""

    code: int
    output: str
    errors: str
    calls: int


class FailingCommands:
    """Commands of smoothcert that can be killed or refused at a call on files whose paths contain `under`."""

    def __init__(self, under: Path, *modules: str) -> None:
        """modules: imported once, before the first command."""
        variables = {**environment(), "LD_PRELOAD": str(build_library()), "FAILING_UNDER": str(under)}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *modules],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables,
        )  # fmt: skip

    def run(self, *arguments: object, at: int = NEVER, code: int = 0) -> Ended:
        """One command. at: the call at which it is killed, or from which on calls fail with the errno `code`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([[str(word) for word in arguments], at, code]), file=self._process.stdin, flush=True)
        return Ended(*json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def _serve() -> None:
    import ctypes
    import importlib

    for module in sys.argv[1:]:
        importlib.import_module(module)
    library = ctypes.CDLL(os.environ["LD_PRELOAD"])
    library.failing_seen.restype = ctypes.c_long
    answers, numbers = os.fdopen(os.dup(1), "w"), Path(tempfile.mkdtemp(prefix="smoothcert-failing-"))
    for line in sys.stdin:
        arguments, at, code = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(library, arguments, at, code, numbers)
        _, status = os.waitpid(child, 0)
        texts = [(numbers / name).read_text(errors="replace") for name in ("output", "errors")]
        counted = numbers / "calls"
        calls = int(counted.read_text()) if counted.exists() else 0
        counted.unlink(missing_ok=True)
        print(json.dumps([os.waitstatus_to_exitcode(status), *texts, calls]), file=answers, flush=True)


def _run(library: object, arguments: list[str], at: int, code: int, numbers: Path) -> None:
    """In a fork: one command, whose output goes to files."""
    from smoothcert.cli.main import run

    for descriptor, name in ((1, "output"), (2, "errors")):
        opened = os.open(numbers / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
    sys.argv = ["smoothcert", *arguments]
    library.failing_arm(ctypes_long(at), code)  # type: ignore[attr-defined]
    ending = 0
    try:
        run()
    except SystemExit as ended:
        ending = int(ended.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
        ending = 99
    seen = library.failing_seen()  # type: ignore[attr-defined]
    library.failing_arm(ctypes_long(-1), 0)  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    (numbers / "calls").write_text(str(seen))
    os._exit(ending)


def ctypes_long(value: int) -> object:
    import ctypes

    return ctypes.c_long(value)


if __name__ == "__main__":
    _serve()
