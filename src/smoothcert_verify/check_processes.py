"""The inputs of a large run, checked by one process for each core.

The other processes are this Python with this package, reading the same files. They only confirm: a part of the run in
which one of them finds anything wrong, or that it cannot check, is checked by the process that reports. So findings
never travel, and nothing depends on the number of processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from smoothcert_verify.document_checks import Answer, CheckedInput
from smoothcert_verify.json_values import canonical_digest
from smoothcert_verify.reports import Progress, Report, list_remarks
from smoothcert_verify.run_facts import RunFacts, read_run
from smoothcert_verify.run_reading import RunReader
from smoothcert_verify.stored_input_checks import Seals, check_stored_inputs, read_input_again

_INPUTS_PER_PART = 500
_LEAST_INPUTS = 4000
"""Fewer are checked before another process has started."""
_MOST_PROCESSES = 16
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from smoothcert_verify.check_processes import serve
serve(sys.argv[2], digest=sys.argv[3])
"""

Confirm = Callable[[Sequence[Any]], dict[str, Any] | None]
"""The counts of a part of a run in which nothing is wrong; None if it must be checked here."""


def check_all_inputs(
    reader: RunReader, run: RunFacts, indices: Sequence[Any], seals: Seals, *, progress: Progress | None = None
) -> Report:
    """Everything about the inputs of a run, whose manifest was checked before, in the order of the indices."""
    report, done = Report(name=str(reader.path)), 0

    def advance(inputs: int = 1) -> None:
        nonlocal done
        done += inputs
        if progress is not None:
            progress(done, len(indices))

    parts = [indices[at : at + _INPUTS_PER_PART] for at in range(0, len(indices), _INPUTS_PER_PART)]
    with _open_processes(reader.path, run, seals, inputs=len(indices)) as answers:
        for part, counts in zip(parts, answers(parts), strict=True):
            if counts is None:
                found = check_stored_inputs(reader, run, part, seals, on_input=advance)
            else:
                found = _unpack(counts, run, reader.path)
                advance(len(part))
            report.add_part(found)
    return report


@contextlib.contextmanager
def _open_processes(
    path: Path, run: RunFacts, seals: Seals, *, inputs: int
) -> Iterator[Callable[[Sequence[Sequence[Any]]], Iterator[dict[str, Any] | None]]]:
    """A function that has parts confirmed by other processes, in order. They end with the context."""
    count = min(count_cores(), _MOST_PROCESSES)
    if inputs < _LEAST_INPUTS or count < 2 or not sys.executable:
        yield lambda parts: iter([None] * len(parts))
        return
    processes: list[_CheckProcess] = []
    with contextlib.suppress(OSError):  # fewer, where no more can be started
        for _ in range(count):
            processes.append(_CheckProcess(path, digest=canonical_digest(run.manifest)))
    if not processes:
        yield lambda parts: iter([None] * len(parts))
        return
    free: SimpleQueue[_CheckProcess] = SimpleQueue()
    for process in processes:
        free.put(process)
    threads = ThreadPoolExecutor(len(processes))
    has_failed = False

    def confirm(part: Sequence[Any]) -> dict[str, Any] | None:
        nonlocal has_failed
        process = free.get()
        try:
            # Where something is wrong there is often more: it would be checked twice.
            counts = None if has_failed else process.confirm(part, seals)
        finally:
            free.put(process)
        has_failed = has_failed or counts is None
        return counts

    try:
        yield lambda parts: threads.map(confirm, parts)
    finally:
        has_failed = True
        for process in processes:
            process.end()
        threads.shutdown(cancel_futures=True)


class _CheckProcess:
    """Another process that checks parts of a run."""

    def __init__(self, path: Path, *, digest: str) -> None:
        flags = ["-S"] if sys.flags.no_site else []
        places = json.dumps([place for place in sys.path if isinstance(place, str)])
        self._process = subprocess.Popen(
            [sys.executable, *flags, "-c", _START, places, str(path), digest],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
        )

    def confirm(self, part: Sequence[Any], seals: Seals) -> dict[str, Any] | None:
        own = [seals.get(index) for index in part]
        if not all(type(index) is int for index in part) or not all(map(_is_pair_of_texts, own)):
            return None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([part, own]) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] | None = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):  # it could not be started, or it was ended
            return None
        return answer

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was not sent yet
                    stream.close()


def _is_pair_of_texts(seals: tuple[Any, Any] | None) -> bool:
    return seals is not None and all(isinstance(seal, str) for seal in seals)


def serve(path: str, *, digest: str) -> None:
    """What the other process does: each line of its input is a part, each line of its output an answer."""
    gc.set_threshold(100_000, 20, 20)
    with RunReader(Path(path)) as reader:
        run = read_run(reader.read_manifest())
        if canonical_digest(run.manifest) != digest:
            return  # the manifest was exchanged meanwhile
        reader.open_results()
        for line in sys.stdin:
            indices, seals = json.loads(line)
            pairs = {index: tuple(pair) for index, pair in zip(indices, seals, strict=True)}
            found = check_stored_inputs(reader, run, indices, pairs)
            print(json.dumps(None if found.discrepancies else _pack(found)), flush=True)


def _pack(report: Report) -> dict[str, Any]:
    """The counts of a part without discrepancies. Its remarks follow from the run: their codes are enough."""
    return {
        "counts": [report.inputs, report.bounds, report.radii, report.by_memory, report.alpha],
        "remarks": {remark.code: inputs for remark, inputs in report.remarks},
        "entries": [
            [one.index, one.label, one.sigma, one.promise, *map(dataclasses.astuple, one.answers)]
            for one in report.entries
        ],
    }


def _unpack(content: dict[str, Any], run: RunFacts, path: Path) -> Report:
    inputs, bounds, radii, by_memory, alpha = content["counts"]
    report = Report(str(path), inputs=inputs, bounds=bounds, radii=radii, by_memory=by_memory, alpha=alpha)
    for remark in list_remarks(run, norm=run.form.norm, has_samples=True):
        if remark.code in content["remarks"]:
            report.remark(remark, inputs=content["remarks"][remark.code])
    for index, label, sigma, promise, *answers in content["entries"]:
        stated = tuple(Answer(*answer) for answer in answers)
        report.entries.append(CheckedInput(run, index, label, sigma, promise, stated, read_input_again(path, index)))
    return report


def count_cores() -> int:
    """The processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
