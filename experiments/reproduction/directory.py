"""Output folder of a reproduction: what its steps made, by which commands, from which files, in how many seconds.

`reproduction.json` holds the command of every started step and digests of the files it used. A step whose command
differs from the recipe is refused, and so is a product made from a file that has changed since: a table must not mix
the results of two recipes or of two models. Products that exist but were not made here (a model copied in) are used as
they are, and the report marks them.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.reproduction.plan import Plan, PlannedRow, Step
from experiments.reproduction.provenance import (
    MemoryPromise,
    compute_digest,
    describe_difference,
    find_contradictions,
    read_promise,
)
from smoothcert.errors import CorruptRunError, InputError, ManifestMismatchError, RunBusyError, RunError
from smoothcert.strict_json import strict_loads

STATE = "reproduction.json"
LOCK = "reproduction.lock"
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What is known of a step that was started, or whose product was found.

    seconds: total of the attempts that ended. An attempt without an end was killed together with the engine. used:
    digests of the files that the command names, from the last start or from when the product was found. product:
    digest of the product that the record describes, None until it is complete. made_here: made by the step, not found.
    """

    command: str
    seconds: float = 0.0
    begun: int = 0
    ended: int = 0
    used: Mapping[str, str] = field(default_factory=dict)
    product: str | None = None
    made_here: bool = False

    @property
    def has_lost_attempt(self) -> bool:
        """Whether an attempt was killed together with the engine, so that its end is unknown."""
        return self.ended < self.begun

    @property
    def time(self) -> str | None:
        """Time as text, "at least" if the time of an attempt is unknown. None: never started here."""
        return None if self.begun == 0 else f"{'at least ' if self.has_lost_attempt else ''}{self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class StepState:
    """Whether the product of a step is complete, and a short description for people."""

    finished: bool
    description: str


class Reproduction:
    """One plan in one folder. logs: folder of released logs, None if it is not available."""

    def __init__(self, plan: Plan, directory: Path, *, logs: Path | None = None) -> None:
        self.plan = plan
        self.directory = directory
        self.logs = None if logs is None else logs.resolve()
        self.lock_handles: tuple[int, ...] = ()
        self._records = self._read()
        self._check_same_commands()
        self.check_same_files()

    def record(self, step: Step) -> StepRecord | None:
        """Record of a step; None if it was never started here."""
        return self._records.get(step.product)

    def state(self, step: Step) -> StepState:
        """State of a step, judged by the files on disk."""
        path = step.path(self.directory, self.logs)
        if step.command is None:
            return StepState(path.exists(), "exists" if path.exists() else f"{path} does not exist")
        if path.is_file() and path.suffix == ".safetensors":  # such files are written atomically
            return StepState(True, self._describe_finished(step))
        if path.is_dir():
            return self._run_state(step, path)
        record = self.record(step)
        return StepState(False, "not started" if record is None or not record.begun else "started")

    def _run_state(self, step: Step, path: Path) -> StepState:
        """A run is finished when it holds a result for each of its inputs."""
        from smoothcert.runs.store import RunStore

        if not RunStore.exists(path):
            return StepState(False, "started")
        with RunStore.open(path) as store:
            stored, expected = len(store.indices()), store.manifest.data.inputs
        if stored >= expected:
            return StepState(True, self._describe_finished(step))
        return StepState(False, f"{stored} of {expected} inputs")

    def _describe_finished(self, step: Step) -> str:
        record = self.record(step)
        if record is not None and record.product is None and record.has_lost_attempt:
            return "done (end not observed)"
        made_here = record is not None and record.made_here and self._describes_product(record, step)
        return "done" if made_here else "done (found)"

    def _describes_product(self, record: StepRecord, step: Step) -> bool:
        """Whether a record describes the product on disk, not an earlier one."""
        if record.product is None:
            return record.has_lost_attempt
        return record.product == compute_digest(step.path(self.directory, self.logs))

    def lacks_logs(self, row: PlannedRow) -> bool:
        """Whether a row needs released logs that are not available."""
        return row.needs_logs and self.logs is None

    def is_finished(self, row: PlannedRow) -> bool:
        if self.lacks_logs(row):
            return False
        results = [row.result] if row.against is None else [row.result, row.against]
        return all(self.state(step).finished for step in results)

    def result_path(self, step: Step, certificate: str | None = None) -> Path:
        """Path of the run or log, as RUN@CERTIFICATE if a certificate is given."""
        path = step.path(self.directory, self.logs)
        return path if certificate is None else path.with_name(f"{path.name}@{certificate}")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Create the folder and lock it against other processes."""
        self._check_folder()
        self.directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _acquire_lock(handle, self.directory)
            self.lock_handles = (handle,)
            self._records = self._read()
            self._write()
            yield
        finally:
            # Close, do not unlock: a step that inherited the handle and still runs keeps the lock.
            self.lock_handles = ()
            os.close(handle)

    @contextlib.contextmanager
    def record_attempt(self, step: Step) -> Iterator[None]:
        """Record the start of a step and, however it ends, its duration."""
        before = self.record(step) or StepRecord(step.command_line)
        begun = StepRecord(
            step.command_line, before.seconds, before.begun + 1, before.ended, used=self._digest_inputs(step)
        )
        self._store(step, begun)
        start = time.monotonic()
        try:
            yield
        finally:
            seconds = begun.seconds + time.monotonic() - start
            product = compute_digest(step.path(self.directory, self.logs)) if self.state(step).finished else None
            made_here = product is not None
            ended = replace(begun, seconds=seconds, ended=begun.ended + 1, product=product, made_here=made_here)
            self._store(step, ended)

    def adopt_products(self) -> None:
        """Record finished products that have no record, with the files beside them: those must not change later."""
        for step in self._list_finished_commands():
            record = self.record(step)
            if record is None or not self._describes_product(record, step):
                product = compute_digest(step.path(self.directory, self.logs))
                self._store(step, StepRecord(step.command_line, used=self._digest_inputs(step), product=product))

    def check_same_files(self) -> None:
        """Refuse products made from files that have changed since.

        A missing file is accepted: it can be made again and is compared then.
        """
        self.refuse([text for step in self._list_finished_commands() for text in self._find_contradictions(step)])

    def refuse(self, contradictions: Sequence[str]) -> None:
        """Raise ManifestMismatchError if there are contradictions."""
        if contradictions:
            raise ManifestMismatchError(
                f"{self.directory} holds results of files that have changed since. Restore the files, remove these "
                "results to make them again, or use another --out:\n  " + "\n  ".join(contradictions)
            )

    def list_promises(self) -> list[tuple[Step, MemoryPromise]]:
        """Finished runs with a memory, and what each promised in it."""
        steps = self._list_finished_commands()
        promises = ((step, read_promise(step, self.directory, logs=self.logs)) for step in steps)
        return [(step, promise) for step, promise in promises if promise is not None]

    def _find_contradictions(self, step: Step) -> list[str]:
        record = self.record(step)
        recorded = record.used if record is not None and self._describes_product(record, step) else {}
        now = self._digest_inputs(step)
        differences = [
            describe_difference(step.product, name, digest, now[name])
            for name, digest in recorded.items()
            if name in now and now[name] != digest
        ]
        return differences or find_contradictions(step, self.directory, logs=self.logs)

    def _digest_inputs(self, step: Step) -> dict[str, str]:
        """Digests of the files that a command names, by the words it names them with."""
        files = step.input_paths(self.directory, self.logs).items()
        return {word: digest for word, file in files if file.is_file() and (digest := compute_digest(file)) is not None}

    def _list_finished_commands(self) -> list[Step]:
        """Every finished step that has a command, once."""
        steps = dict.fromkeys(step for row in self.plan.rows for step in row.steps if step.command is not None)
        available = [step for step in steps if not (step.needs_logs and self.logs is None)]
        return [step for step in available if self.state(step).finished]

    def _check_folder(self) -> None:
        """Require a folder that is new, holds a reproduction, or holds only products of this plan."""
        if self.directory.exists() and not self.directory.is_dir():
            raise InputError(f"{self.directory} is a file; --out must be a folder")
        if not self.directory.is_dir() or (self.directory / STATE).exists():
            return
        expected = {LOCK, *(Path(step.product).parts[0] for row in self.plan.rows for step in row.steps)}
        unknown = sorted(file.name for file in self.directory.iterdir() if file.name not in expected)
        if unknown:
            raise RunError(
                f"{self.directory} holds {unknown[0]} and no reproduction: use an --out that is new or empty"
            )

    def _read(self) -> dict[str, StepRecord]:
        path = self.directory / STATE
        if not path.exists():
            return {}
        try:
            document = strict_loads(path.read_bytes())
            stored = (document["format"], document["recipe"], bool(document["quick"]))
            records = document["steps"].items() if stored[0] == _FORMAT else ()
            steps = {key: StepRecord(**value) for key, value in records}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptRunError(f"{path} is damaged ({error}); use another --out") from error
        expected = (_FORMAT, self.plan.recipe.name, self.plan.quick)
        if stored != expected:
            raise ManifestMismatchError(
                f"{self.directory} holds {_describe(*stored)}, not {_describe(*expected)}: use another --out"
            )
        return steps

    def _check_same_commands(self) -> None:
        planned = {step.product: step.command_line for row in self.plan.rows for step in row.steps}
        differences = [
            f"{product} was made by\n    {record.command}\n  and would be made by\n    {planned[product]}"
            for product, record in self._records.items()
            if product in planned and record.begun and record.command != planned[product]
        ]
        if differences:
            raise ManifestMismatchError(
                f"{self.directory} was made by another version of the recipe. Use another --out, or remove the "
                f"products below together with their entries in {STATE}:\n  " + "\n  ".join(differences)
            )

    def _store(self, step: Step, record: StepRecord) -> None:
        self._records[step.product] = record
        self._write()

    def _write(self) -> None:
        from smoothcert.files import write_atomically

        document: dict[str, Any] = {
            "format": _FORMAT,
            "recipe": self.plan.recipe.name,
            "quick": self.plan.quick,
            "steps": {key: asdict(value) for key, value in self._records.items()},
        }
        write_atomically(self.directory / STATE, (json.dumps(document, indent=1) + "\n").encode(), overwrite=True)


def _acquire_lock(handle: int, directory: Path) -> None:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunBusyError(
            f"another process is working in {directory}: a reproduction, or a step whose reproduction was killed. "
            "Wait for it to end, or use another --out"
        ) from None


def _describe(form: object, recipe: object, quick: object) -> str:
    suffix = "" if form == _FORMAT else f" in format {form}, which is not supported"
    return f"{recipe}{' --quick' if quick else ''}{suffix}"
