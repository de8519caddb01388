"""Runs the steps of a plan, each in a child process.

A child runs the command that a user would type. It shows its own progress and can stop and resume by itself. This
module starts it, asks it to stop, and waits for it.
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

from experiments.reproduction.directory import Reproduction
from experiments.reproduction.plan import PlannedRow, Step
from smoothcert.errors import InterruptedRunError, RunError, StepFailedError

_THREADS = {"train": "--threads", "certify": "--workers", "predict": "--workers"}
"""Option for the number of threads, by the last word of the command's name (`sigma train`: train)."""
# -P: do not import modules from the output folder.
_PROGRAM = (sys.executable, "-P", "-m", "smoothcert")
_STEP_PROGRAM = (sys.executable, "-P", str(Path(__file__).with_name("child.py")))
_DATA = "SMOOTHCERT_DATA"
_FOLDERS = (_DATA, "SMOOTHCERT_IMAGENET")
_POLL_SECONDS = 0.2
_SECONDS_TO_END = 30.0
_STANDARD_ERROR = 2


def run_rows(
    reproduction: Reproduction,
    rows: Sequence[PlannedRow],
    *,
    threads: int | None = None,
    data_root: Path | None = None,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Run the unfinished steps of these rows in order. A step that two rows share runs once.

    data_root: folder of the datasets (default: as for every command). stop: when set, the running step is asked to
    stop, stores its results, and InterruptedRunError is raised. A failing step raises StepFailedError. Finished steps
    are kept in both cases.
    """
    with reproduction.lock():
        reproduction.check_same_files()
        _check_memories(reproduction)
        reproduction.adopt_products()
        steps = [step for row in rows if not reproduction.lacks_logs(row) for step in row.steps if step.command]
        missing = [step for step in dict.fromkeys(steps) if not reproduction.state(step).finished]
        environment = _make_environment(data_root)
        for number, step in enumerate(missing, start=1):
            if stop is not None and stop.is_set():
                raise InterruptedRunError("stopped between two steps")
            say(f"[{number}/{len(missing)}] {step.command_line}")
            _run_step(reproduction, step, threads=threads, environment=environment, stop=stop)
            # A deleted model that was made again may differ from the one that existing results were made with.
            reproduction.check_same_files()


def _run_step(
    reproduction: Reproduction,
    step: Step,
    *,
    threads: int | None,
    environment: dict[str, str],
    stop: threading.Event | None,
) -> None:
    arguments = [*step.arguments(reproduction.logs), *_further_options(step, threads)]
    with reproduction.record_attempt(step):
        code = _run_child(arguments, reproduction, stop, environment)
    if code == InterruptedRunError.exit_code or (code != 0 and stop is not None and stop.is_set()):
        raise InterruptedRunError(f"stopped in: {step.command_line}")
    if code != 0:
        ending = f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise StepFailedError(
            f"this step {ending}; its output is above:\n  cd {shlex.quote(str(reproduction.directory))} && "
            f"{shlex.join(('smoothcert', *arguments))}\nFinished steps are kept; the same command resumes here",
            exit_code=code,
        )
    if not (state := reproduction.state(step)).finished:
        raise RunError(
            f"this step ended but did not complete {step.product} ({state.description}): {step.command_line}"
        )


def _check_memories(reproduction: Reproduction) -> None:
    """Refuse finished runs whose promised regions are not in the memory."""
    lost = []
    for step, promise in reproduction.list_promises():
        arguments = ["memory", "stats", promise.memory, "--json"]
        answer = subprocess.run([*_PROGRAM, *arguments], cwd=reproduction.directory, capture_output=True, text=True)
        parts = json.loads(answer.stdout) if answer.returncode == 0 else []
        claims = {part["digest"]: part["claims"] for part in parts}
        if claims.get(promise.key, 0) < promise.claims:
            lost.append(f"{promise.memory} does not hold the regions that {step.product} promised")
    reproduction.refuse(lost)


def _further_options(step: Step, threads: int | None) -> list[str]:
    """Options that are not part of a recipe: the number of threads, and that an unfinished training is resumed.

    Votes do not depend on the number of threads. Weights do, in their last bits, so a resumed training keeps the
    number it was started with.
    """
    assert step.command is not None  # released logs are never run
    verbs = list(step.command[:2]) if step.command[0] == "sigma" else [step.command[0]]
    resume = ["--resume"] if verbs == ["train"] else []
    option = _THREADS.get(verbs[-1])
    return resume if threads is None or option is None else [*resume, option, str(threads)]


def _make_environment(data_root: Path | None) -> dict[str, str]:
    """Environment of the steps. Data folders become absolute: steps run in another working directory."""
    folders = {name: os.environ[name] for name in _FOLDERS if os.environ.get(name)}
    if data_root is not None:
        folders[_DATA] = str(data_root)
    return {**os.environ, **{name: str(Path(folder).expanduser().resolve()) for name, folder in folders.items()}}


def _run_child(
    arguments: Sequence[str], reproduction: Reproduction, stop: threading.Event | None, environment: dict[str, str]
) -> int:
    """Run `smoothcert ARGUMENTS` in the output folder and return its exit code, or minus the signal that killed it.

    The child's standard output goes to standard error: ours carries only the table. The child has its own process
    group, so Ctrl-C reaches it once, through us. It inherits the lock and holds it until it ends, even after our death.
    """
    child = subprocess.Popen(
        [*_STEP_PROGRAM, str(os.getpid()), *arguments],
        cwd=reproduction.directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=_STANDARD_ERROR,
        process_group=0,
        pass_fds=reproduction.lock_handles,
    )
    interrupted = False
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=_POLL_SECONDS)
            if stop is not None and stop.is_set() and not interrupted:
                child.send_signal(signal.SIGINT)
                interrupted = True
    except BaseException:
        # Second Ctrl-C: stop at once, but let the child store its results first.
        child.terminate()
        try:
            child.wait(timeout=_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
