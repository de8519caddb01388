"""Working through a plan: each step a child process of its own, begun, gone on with, or passed over because it is done.

A child is what a user would have typed. It shows its own progress on the terminal and knows how to stop and to resume.
Here it is started, told to stop, and waited for.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from smoothcert.errors import InterruptedRunError, RunError, StepFailedError
from smoothcert.reproduction.directory import Reproduction
from smoothcert.reproduction.plan import PlannedRow, Step

Say = Callable[[str], None]

_THREADS = {"train": "--threads", "certify": "--workers", "predict": "--workers"}
"""How the verbs spell on how many cores they work; `sigma train` is asked by its last word."""
_PROGRAM = (sys.executable, "-P", "-m", "smoothcert")
"""-P: nothing is imported from the folder of the results."""
_STEP_PROGRAM = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
_DATA = "SMOOTHCERT_DATA"
_FOLDERS = (_DATA, "SMOOTHCERT_IMAGENET")
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_END = 30.0
_STANDARD_ERROR = 2
_STOPPED = InterruptedRunError.exit_code


def run_rows(
    reproduction: Reproduction,
    rows: Sequence[PlannedRow],
    *,
    threads: int | None = None,
    data_root: Path | None = None,
    stop: threading.Event | None = None,
    say: Say = lambda _: None,
) -> None:
    """Do what is missing for these rows, one after the other; a step that two rows share is done once.

    data_root: where datasets are kept (default: as for every command). stop: when set, the step in hand is told to
    stop, stores what it has, and InterruptedRunError is raised. A step that fails is a StepFailedError; what was done
    before stays done.
    """
    with reproduction.held():
        reproduction.check_same_files()
        _check_memories(reproduction)
        reproduction.take_what_is_there()
        todo = [step for row in rows if not reproduction.lacks_logs(row) for step in row.steps if step.command]
        missing = [step for step in dict.fromkeys(todo) if not reproduction.progress(step).finished]
        for number, step in enumerate(missing, start=1):
            if stop is not None and stop.is_set():
                raise InterruptedRunError("stopped between two steps")
            say(f"[{number}/{len(missing)}] {step.shown}")
            _run(reproduction, step, threads=threads, data_root=data_root, stop=stop)
            # A model that was gone and is made again need not be the one that results were made with.
            reproduction.check_same_files()


def _run(
    reproduction: Reproduction,
    step: Step,
    *,
    threads: int | None,
    data_root: Path | None,
    stop: threading.Event | None,
) -> None:
    words = [*step.words(reproduction.logs), *_further_options(step, threads)]
    with reproduction.timed(step):
        code = _child(words, reproduction, stop, _environment(data_root))
    if code == _STOPPED or (code != 0 and stop is not None and stop.is_set()):
        raise InterruptedRunError(f"stopped in: {step.shown}")
    if code != 0:
        raise StepFailedError(
            f"this step {_ended(code)}; what it said is above:\n  cd {shlex.quote(str(reproduction.directory))} && "
            f"{shlex.join(('smoothcert', *words))}\nWhat was done before is kept; the same command goes on from here",
            exit_code=code,
        )
    if not (progress := reproduction.progress(step)).finished:
        raise RunError(f"this step ended without having made {step.product} ({progress.words}): {step.shown}")


def _check_memories(reproduction: Reproduction) -> None:
    """Refuse finished runs whose regions are not in the memory that lies there now."""
    lost = []
    for step, promised in reproduction.promises():
        asked = ["memory", "stats", promised.memory, "--json"]
        answer = subprocess.run([*_PROGRAM, *asked], cwd=reproduction.directory, capture_output=True, text=True)
        held = {one["digest"]: one["claims"] for one in json.loads(answer.stdout)} if answer.returncode == 0 else {}
        if held.get(promised.key, 0) < promised.claims:
            lost.append(f"{promised.memory} does not hold the regions that {step.product} has promised")
    reproduction.refuse(lost)


def _further_options(step: Step, threads: int | None) -> list[str]:
    """What is no part of a recipe: how many cores, and that an unfinished training is gone on with.

    Votes are the same on any number of cores. Weights are not, to the bit, though their law is: a training that was
    begun goes on with the number it was begun with, whatever is said here.
    """
    assert step.command is not None  # released logs are never run
    verbs = list(step.command[:2]) if step.command[0] == "sigma" else [step.command[0]]
    resume = ["--resume"] if verbs == ["train"] else []
    cores = [] if threads is None or verbs[-1] not in _THREADS else [_THREADS[verbs[-1]], str(threads)]
    return resume + cores


def _environment(data_root: Path | None) -> dict[str, str]:
    """Ours, with folders that are named from here named from the root: a step works in another folder."""
    given = {name: os.environ[name] for name in _FOLDERS if os.environ.get(name)}
    if data_root is not None:
        given[_DATA] = str(data_root)
    return {**os.environ, **{name: str(Path(folder).expanduser().resolve()) for name, folder in given.items()}}


def _child(
    words: Sequence[str], reproduction: Reproduction, stop: threading.Event | None, environment: dict[str, str]
) -> int:
    """Run `smoothcert WORDS` in the folder and wait for it. Negative: the signal that ended it.

    Its standard output joins the standard error: ours carries the table alone. It gets a process group of its own, so
    that Ctrl-C reaches it once, through us. If we are killed it is told to stop, and until it has, it holds our lock.
    """
    child = subprocess.Popen(
        [*_STEP_PROGRAM, str(os.getpid()), *words], cwd=reproduction.directory, env=environment,
        stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR, process_group=0, pass_fds=reproduction.lock_handles,
    )  # fmt: skip
    told = False
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=_SECONDS_BETWEEN_LOOKS)
            if stop is not None and stop.is_set() and not told:
                child.send_signal(signal.SIGINT)
                told = True
    except BaseException:
        # Ctrl-C for the second time: at once, but not without having asked.
        child.terminate()
        try:
            child.wait(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise


def _ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
