"""The folder of a reproduction: what its steps have made, by which commands, from what, and in how many seconds.

`reproduction.json` holds, for every step that was ever begun, its command and digests of the files it used. A step
whose command is another one now is refused with the difference, and so is a product made from a file that is another
one now: a table must not mix results of two recipes, or of two models. Products that lie there without having been made
here (a model copied in) are taken as they are, and the report says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from smoothcert.errors import CorruptRunError, InputError, ManifestMismatchError, RunBusyError, RunError
from smoothcert.reproduction.contents import digest_of
from smoothcert.reproduction.plan import Plan, PlannedRow, Step
from smoothcert.reproduction.provenance import Promised, contradictions, promised_by
from smoothcert.strict_json import strict_loads

STATE = "reproduction.json"
LOCK = "reproduction.lock"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What is known of a step that was begun, or whose product was there. seconds: of the attempts that came to an end.

    An attempt without an end was cut off together with the process that watched it. used: digests of the files the
    command names, when it was last begun or its product was first seen; None in records of versions that did not look.
    product: digest of the product of which this speaks, None until it is complete. made_here: by the step, and not
    found.
    """

    command: str
    seconds: float = 0.0
    begun: int = 0
    ended: int = 0
    used: Mapping[str, str] | None = None
    product: str | None = None
    made_here: bool = False

    @property
    def cut_off(self) -> bool:
        return self.ended < self.begun

    @property
    def time(self) -> str | None:
        """For people; "at least" where an attempt was cut off before it could be added. None: never begun here."""
        return None if self.begun == 0 else f"{'at least ' if self.cut_off else ''}{self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step is: whether its product is complete, and a few words about it."""

    finished: bool
    words: str


class Reproduction:
    """One plan in one folder. logs: the folder of released logs, None where there is none on this machine."""

    def __init__(self, plan: Plan, directory: Path, *, logs: Path | None = None) -> None:
        self.plan = plan
        self.directory = directory
        self.logs = None if logs is None else logs.resolve()
        self.lock_handles: tuple[int, ...] = ()
        self._records = self._read()
        self._check_same_commands()
        self.check_same_files()

    def record(self, step: Step) -> StepRecord | None:
        """What is known of how a step was done; None if it was never begun here."""
        return self._records.get(step.product)

    def progress(self, step: Step) -> Progress:
        """How far a step is, from what lies on the disk."""
        place = step.place(self.directory, self.logs)
        if step.command is None:
            return Progress(place.exists(), "there" if place.exists() else f"{place} is not there")
        if place.is_file() and place.suffix == ".safetensors":  # such files are written whole or not at all
            return Progress(True, self._done(step))
        if place.is_dir():
            return _run_progress(place, done=self._done(step))
        return Progress(False, "not begun" if (record := self.record(step)) is None or not record.begun else "begun")

    def _done(self, step: Step) -> str:
        """That it is, and whether what lies there was made here."""
        record = self.record(step)
        if record is None:
            return "done (it was there)"
        if record.used is None:  # of a version that did not look at files: it was begun here, more is not known
            return "done"
        if record.product is None and record.cut_off:
            return "done (its end was not seen)"
        return "done" if record.made_here and self._speaks_of_product(record, step) else "done (it was there)"

    def _speaks_of_product(self, record: StepRecord, step: Step) -> bool:
        """Whether it is about what lies there now, and not about something that was there before."""
        if record.product is None:
            return record.cut_off
        return record.product == digest_of(step.place(self.directory, self.logs))

    def lacks_logs(self, row: PlannedRow) -> bool:
        """Whether a row cannot be made because the released logs it is about are not here."""
        return row.needs_logs and self.logs is None

    def finished(self, row: PlannedRow) -> bool:
        if self.lacks_logs(row):
            return False
        results = [row.result] if row.against is None else [row.result, row.against]
        return all(self.progress(step).finished for step in results)

    def path_of_result(self, step: Step, certificate: str | None = None) -> Path:
        """The run or log to read, RUN@CERTIFICATE where a certificate is named."""
        place = step.place(self.directory, self.logs)
        return place if certificate is None else place.with_name(f"{place.name}@{certificate}")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While it is worked on: the folder is there, and no other process works in it."""
        self._check_folder()
        self.directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(handle, self.directory)
            self.lock_handles = (handle,)
            self._records = self._read()
            self._write()
            yield
        finally:
            # Closed and not unlocked: a step that has inherited it and is still there goes on holding it.
            self.lock_handles = ()
            os.close(handle)

    @contextlib.contextmanager
    def timed(self, step: Step) -> Iterator[None]:
        """Records that a step was begun, and, however it ends, how long it took."""
        before = self.record(step) or StepRecord(command=step.shown)
        began = StepRecord(step.shown, before.seconds, before.begun + 1, before.ended, used=self._used(step))
        self._keep(step, began)
        start = time.monotonic()
        try:
            yield
        finally:
            seconds = began.seconds + time.monotonic() - start
            ended = replace(began, seconds=seconds, ended=began.ended + 1)
            made = digest_of(step.place(self.directory, self.logs)) if self.progress(step).finished else None
            self._keep(step, replace(ended, product=made, made_here=made is not None))

    def take_what_is_there(self) -> None:
        """Remember finished products that nothing is known of, with the files beside them: those must stay the same."""
        for step in self._finished_commands():
            record, place = self.record(step), step.place(self.directory, self.logs)
            found = StepRecord(step.shown, used=self._used(step), product=digest_of(place))
            if record is not None and record.used is None:
                found = replace(record, used=found.used, product=found.product, made_here=True)
            if record is None or record.used is None or not self._speaks_of_product(record, step):
                self._keep(step, found)

    def check_same_files(self) -> None:
        """Refuse what was made from files that are others now. A file that is gone is no contradiction: it can be made
        again, and is compared then.
        """
        self.refuse([sentence for step in self._finished_commands() for sentence in self._contradictions(step)])

    def refuse(self, contradictions: Sequence[str]) -> None:
        """A ManifestMismatchError with these sentences, if there are any."""
        if contradictions:
            raise ManifestMismatchError(
                f"{self.directory} holds results of files that are others now. Put the files back, or remove these "
                "results, and they are made again; or give another --out:\n  " + "\n  ".join(contradictions)
            )

    def promises(self) -> list[tuple[Step, Promised]]:
        """The finished runs that count on a memory of regions, and what each has promised there."""
        found = ((step, promised_by(step, self.directory, logs=self.logs)) for step in self._finished_commands())
        return [(step, promised) for step, promised in found if promised is not None]

    def _contradictions(self, step: Step) -> list[str]:
        record = self.record(step)
        recorded = record.used if record is not None and self._speaks_of_product(record, step) else None
        now = self._used(step)
        differing = [
            f"{step.product} was made with another {name}: its digest was {digest[:12]}, now it is {now[name][:12]}"
            for name, digest in (recorded or {}).items()
            if name in now and now[name] != digest
        ]
        return differing or contradictions(step, self.directory, logs=self.logs)

    def _used(self, step: Step) -> dict[str, str]:
        """Digests of the files that a command names, by the words it names them with."""
        named = ((word, file) for word, file in step.files(self.directory, self.logs) if file.is_file())
        return {word: digest for word, file in named if (digest := digest_of(file)) is not None}

    def _finished_commands(self) -> list[Step]:
        """Every step that is run and has come to its end, once."""
        steps = dict.fromkeys(step for row in self.plan.rows for step in row.steps if step.command is not None)
        at_hand = [step for step in steps if not (step.needs_logs and self.logs is None)]
        return [step for step in at_hand if self.progress(step).finished]

    def _check_folder(self) -> None:
        """A folder is new, or a reproduction, or holds nothing but products, put there to be used."""
        if self.directory.exists() and not self.directory.is_dir():
            raise InputError(f"{self.directory} is a file; --out must be a folder")
        if not self.directory.is_dir() or (self.directory / STATE).exists():
            return
        expected = {LOCK, *(Path(step.product).parts[0] for row in self.plan.rows for step in row.steps)}
        unknown = sorted(file.name for file in self.directory.iterdir() if file.name not in expected)
        if unknown:
            raise RunError(
                f"{self.directory} holds {unknown[0]} and no reproduction: give an --out that is new or empty"
            )

    def _read(self) -> dict[str, StepRecord]:
        path = self.directory / STATE
        if not path.exists():
            return {}
        try:
            document = strict_loads(path.read_bytes())
            records = {key: StepRecord(**value) for key, value in document["steps"].items()}
            stored = (document["format"], document["recipe"], bool(document["quick"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptRunError(f"{path} is damaged ({error}); give another --out") from error
        wanted = (_FORMAT, self.plan.recipe.name, self.plan.quick)
        if stored != wanted:
            raise ManifestMismatchError(
                f"{self.directory} holds {_described(*stored)}, not {_described(*wanted)}: give another --out"
            )
        return records

    def _check_same_commands(self) -> None:
        planned = {step.product: step for row in self.plan.rows for step in row.steps}
        differing = [
            f"{product} was made by\n    {record.command}\n  and would be made by\n    {planned[product].shown}"
            for product, record in self._records.items()
            if product in planned and record.begun and record.command != planned[product].shown
        ]
        if differing:
            raise ManifestMismatchError(
                f"{self.directory} was made by another recipe than the one of this version. Give another --out, or "
                "remove what differs together with its entry in " + STATE + ":\n  " + "\n  ".join(differing)
            )

    def _keep(self, step: Step, record: StepRecord) -> None:
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


def _lock(handle: int, directory: Path) -> None:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunBusyError(
            f"another process is working in {directory}: a reproduction, or a step that one left behind when it was "
            "killed. Wait for it, or give another --out"
        ) from None


def _described(form: object, recipe: object, quick: object) -> str:
    return f"{recipe}{' --quick' if quick else ''}" + ("" if form == _FORMAT else f" in format {form}")


def _run_progress(place: Path, *, done: str) -> Progress:
    """A run is finished when it holds a result for each of its inputs."""
    from smoothcert.runs.store import RunStore

    if not RunStore.exists(place):
        return Progress(False, "begun")
    with RunStore.open(place) as store:
        stored, expected = len(store.indices()), store.manifest.parameters.get("inputs")
    finished = isinstance(expected, int) and stored >= expected
    return Progress(finished, done if finished else f"{stored} of {expected} inputs")
