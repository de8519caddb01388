"""The inputs of a run directory, one after the other: their rows, their seals, and the documents made of them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smoothcert_verify.findings import Finding, MalformedError, note, refuse
from smoothcert_verify.json_values import Document, canonical_digest
from smoothcert_verify.reports import Report
from smoothcert_verify.run_facts import RunFacts, read_run
from smoothcert_verify.run_reading import RunReader, StoredInput

Seals = Mapping[Any, tuple[Any, Any]]
"""By index: the seal before, and that of the input."""


class SealChain:
    """The seals of a run, in order."""

    def __init__(self, stored: Sequence[tuple[Any, ...]], run: RunFacts) -> None:
        self.seals: dict[Any, tuple[Any, Any]] = {}
        self._problems: list[Finding] = []
        if not stored or stored[0][:2] != (0, None):
            raise refuse("no-first-seal")
        if stored[0][2] != canonical_digest(run.manifest):
            self._problems.append(note("manifest-seal-broken"))
        for (before, _, previous), (position, index, seal) in itertools.pairwise(stored):
            if position != before + 1:
                self._problems.append(note("missing-seals", before=before, position=position))
            self.seals[index] = (previous, seal)

    def check_order(self, indices: Sequence[Any]) -> list[Finding]:
        """Problems of the chain itself, and seals of inputs that are missing."""
        there = set(indices)
        return self._problems + [note("sealed-but-missing", index=index) for index in self.seals if index not in there]


def check_stored_inputs(
    reader: RunReader,
    run: RunFacts,
    indices: Sequence[Any],
    seals: Seals,
    *,
    on_input: Callable[[], None] = lambda: None,
) -> Report:
    """Everything about these inputs of a run, whose manifest was checked before. on_input: called after each."""
    report = Report(name=str(reader.path))
    with contextlib.closing(reader.stream_inputs(indices)) as streamed:
        for index in indices:
            where = f"input {index}"
            try:
                stored = _read_next(streamed) or reader.read_input(index)
                report.discrepancies += [finding.at(where) for finding in _check_rows(stored, seals)]
                report.add_document(stored.to_document(run), run, where, read_input_again(reader.path, index))
            except MalformedError as error:
                report.discrepancies.append(error.finding.at(where))
            on_input()
    return report


def read_input(path: Path, index: int) -> Document:
    """One input of a run as a document."""
    with RunReader(path) as reader:
        run = read_run(reader.read_manifest())
        reader.open_results()
        return reader.read_input(index).to_document(run)


def read_input_again(path: Path, index: int) -> Callable[[], Document]:
    """A function that reads this input of a run when it is needed."""
    return functools.partial(read_input, path, index)


def _read_next(streamed: Iterator[StoredInput]) -> StoredInput | None:
    """None after a row that cannot be read: the inputs that remain are read one by one, as far as they can be."""
    try:
        return next(streamed, None)
    except MalformedError:
        return None


def _check_rows(stored: StoredInput, seals: Seals) -> Iterator[Finding]:
    """What a document does not show of its rows."""
    if stored.index not in seals:
        yield note("not-sealed")
    else:
        previous, seal = seals[stored.index]
        if stored.next_seal(str(previous)) != seal:
            yield note("seal-broken")
    seconds = stored.rows["points"][0][3] if stored.rows["points"] else 0.0
    if type(seconds) is not float or not 0 <= seconds < math.inf:
        yield note("invalid-value", field="seconds", value=seconds, expected="a duration")
    if [row[1] for row in stored.rows["verdicts"]] != list(range(len(stored.rows["verdicts"]))):
        yield note("unnumbered-verdicts")
