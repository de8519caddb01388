"""Whole runs and directories of certificates: seals, inputs, the rule for σ, and every document in turn."""

from __future__ import annotations

import functools
import itertools
import math
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from smoothcert_verify.arithmetic import upper_limit
from smoothcert_verify.attack_records import PATTERN, Inputs, check_attack_record
from smoothcert_verify.certificate_index import check_index
from smoothcert_verify.document_checks import CheckedInput, check_document
from smoothcert_verify.findings import Finding, MalformedError, note, refuse
from smoothcert_verify.json_values import Document, canonical_digest, parse_json
from smoothcert_verify.kept_inputs import INPUTS, read_kept_inputs
from smoothcert_verify.run_facts import RunFacts, check_run, read_run
from smoothcert_verify.run_reading import INDEX, RunReader, StoredInput, list_certificate_files, read_bytes
from smoothcert_verify.selection_documents import check_selected_document, is_selected_document
from smoothcert_verify.sigma_levels import check_levels
from smoothcert_verify.sigma_rules import read_rule

SIGMA_RULE = "sigma.safetensors"
ERROR = Fraction(1, 1000)
"""The probability that the bound on votes that are not the model's own is wrong."""

_LEAST_ASKED, _ONE_IN, _LOST = 2000, 1000, 2
"""A run asks the model again about 2000 copies, and one in 1000 of more. A killed run may lose half of the count."""

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Report:
    """What was checked at one place, and what was found.

    radii: those that follow from tallies; by_memory: those that follow from an earlier claim, which a memory holds.
    alpha: the sum of the error probabilities of all statements, so at most so many are wrong on average. pairs: of
    inputs, whose distance was measured. model_checks: noisy copies that were drawn, about which the model was asked
    again, and that tied. remarks: with the number of inputs that each is about, 0 for the whole. entries: the requested
    inputs whose documents could be read. parts: of a selected run, whose bounds are among those counted here;
    level_names: of the parts of all levels, ascending; statements: of the certificates of selected inputs.
    """

    name: str
    inputs: int = 0
    bounds: int = 0
    radii: int = 0
    by_memory: int = 0
    alpha: float = 0.0
    pairs: int = 0
    model_checks: tuple[int, int, int] | None = None
    discrepancies: list[Finding] = field(default_factory=list)
    remarks: list[tuple[Finding, int]] = field(default_factory=list)
    entries: list[CheckedInput] = field(default_factory=list)
    parts: list[Report] = field(default_factory=list)
    level_names: list[str] = field(default_factory=list)
    statements: list[Document] = field(default_factory=list)

    def remark(self, finding: Finding, *, inputs: int = 0) -> None:
        """Add a remark, or more inputs that it is about."""
        for place, (known, count) in enumerate(self.remarks):
            if known == finding:
                self.remarks[place] = (known, count + inputs)
                return
        self.remarks.append((finding, inputs))

    def add_document(self, document: Document, run: RunFacts | None, where: str, again: Callable[[], Document]) -> None:
        """Check one document; count what can be read, and keep it if it is one of the requested inputs."""
        self.inputs += 1
        if is_selected_document(document):
            self._add_selected(document, where, again)
            return
        found = check_document(document, run)
        self.discrepancies += [finding.at(where) for finding in (*found.discrepancies, *found.unchecked)]
        if not found.is_readable:
            return
        run = read_run(document["run"]) if run is None else run
        one = CheckedInput({key: value for key, value in document.items() if key != "tallies"}, run, again)
        self._count(one)
        if run.grid is None and document["tallies"]:
            self.remark(note("float-noise"), inputs=1)
        if run.scale is not None and run.task != "predict":
            self.remark(note("scaled-norm", norm=document["verdicts"][0]["norm"], scale=run.scale), inputs=1)
        if run.rounds:
            self.remark(note("rounded-inputs", grid=run.grid), inputs=1)
        if one.index in run.indices:
            self.entries.append(one)

    def _add_selected(self, document: Document, where: str, again: Callable[[], Document]) -> None:
        """Check the document of an input of a selected run, and keep those of its parts."""
        checked = check_selected_document(document)
        self.discrepancies += [finding.at(where) for finding in checked.findings]
        if checked.facts is None:
            return
        self.level_names = checked.facts.list_names()
        verdicts = document["verdicts"]
        stated = sum(verdict["outcome"] in ("certified", "predicted") for verdict in verdicts)
        self.radii += sum(verdict["outcome"] == "certified" for verdict in verdicts)
        self.alpha += float(checked.facts.alpha) * stated
        self.statements.append(document)
        for name, run, pick in checked.parts:
            part = next((part for part in self.parts if part.name == name), None)
            if part is None:
                part = Report(name=name)
                self.parts.append(part)
            nested = pick(document)
            one = CheckedInput(
                {key: value for key, value in nested.items() if key != "tallies"}, run, _pick_again(again, pick)
            )
            before = part.bounds
            part._count(one)
            self.bounds += part.bounds - before
            part.entries.append(one)
        if checked.in_float:
            self.remark(note("float-noise"), inputs=1)

    def _count(self, one: CheckedInput) -> None:
        verdicts = one.document["verdicts"]
        certified = [verdict["outcome"] == "certified" for verdict in verdicts]
        by_memory = certified[:1] == [True] and one.by_another_claim
        stated = sum(verdict["outcome"] in ("certified", "predicted") for verdict in verdicts)
        bounds = sum(len(verdict["bounds"]["quantities"]) for verdict in verdicts if verdict["bounds"] is not None)
        self.by_memory += by_memory
        self.radii += sum(certified) - by_memory
        self.bounds += bounds
        if not one.by_another_claim:  # otherwise the votes of the other claim may mislead
            self.alpha += float(one.run.alpha) * (min(stated, 1) if one.run.best_of else stated)


def _pick_again(again: Callable[[], Document], pick: Callable[[Document], Document]) -> Callable[[], Document]:
    return lambda: pick(again())


def verify_run(path: Path, *, unfinished: bool = False, progress: Progress | None = None) -> Report:
    """Everything about a run directory but its memory. unfinished: inputs may be missing."""
    report = Report(name=str(path))
    with RunReader(path) as reader:
        try:
            run = read_run(reader.read_manifest())
            reader.open_results()
            report.discrepancies += [*check_run(run), *reader.stray_rows(), *reader.failures()]
            indices, chain = reader.indices(), _SealChain(reader.seals(), run)
            model_checks = reader.model_checks()
        except MalformedError as error:
            report.discrepancies.append(error.finding)
            return report
        except RecursionError:
            report.discrepancies.append(note("cannot-be-checked", error="the manifest is nested too deeply"))
            return report
        _check_indices(report, indices, run, unfinished=unfinished)
        _check_sigma_rule(report, path, run)
        report.discrepancies += chain.check_order(indices)
        for done, index in enumerate(indices, start=1):
            try:
                stored = reader.read_input(index)
                report.discrepancies += [finding.at(f"input {index}") for finding in _check_rows(stored, chain)]
                again = functools.partial(read_input, path, index)
                report.add_document(stored.to_document(run), run, f"input {index}", again)
            except MalformedError as error:
                report.discrepancies.append(error.finding.at(f"input {index}"))
            if progress is not None:
                progress(done, len(indices))
        _check_model_checks(report, model_checks, run, reader)
    report.discrepancies += check_levels(report.entries)
    _check_kept_inputs(report, path, run)
    check_attack_records(path, report)
    return report


def read_input(path: Path, index: int) -> Document:
    """One input of a run as a document."""
    with RunReader(path) as reader:
        run = read_run(reader.read_manifest())
        reader.open_results()
        return reader.read_input(index).to_document(run)


def verify_certificates(path: Path, *, progress: Progress | None = None) -> Report:
    """Every certificate at this place, a file or a directory."""
    report = Report(name=str(path))
    files = list_certificate_files(path)
    seen: dict[tuple[str, Any], str] = {}
    digests: dict[str, Any] = dict.fromkeys(file.name for file in files)
    runs: dict[str, str] = {}
    for done, file in enumerate(files, start=1):
        try:
            document = read_certificate(file)
            report.add_document(document, None, file.name, functools.partial(read_certificate, file))
            of_run = canonical_digest(document["selection"]) if "selection" in document else document.get("run_digest")
            digests[file.name], runs[file.name] = document.get("digest"), str(of_run)
            named = (str(of_run), repr(document.get("input", {}).get("index")))
            if named in seen:
                report.discrepancies.append(note("same-input", other=seen[named]).at(file.name))
            seen[named] = file.name
        except MalformedError as error:
            report.discrepancies.append(error.finding.at(file.name))
        if progress is not None:
            progress(done, len(files))
    if (path / INDEX).exists():
        report.discrepancies += check_index(path, digests, runs)
    elif path.is_dir():
        report.remark(note("no-index", name=INDEX))
    report.discrepancies += check_levels(report.entries)
    return report


def verify_documents(documents: Iterable[Document], *, name: str) -> Report:
    """Every certificate of a run in memory."""
    report = Report(name=name)
    for document in documents:
        where = f"input {document['input']['index']}"
        report.add_document(document, None, where, functools.partial(dict, document))
    report.discrepancies += check_levels(report.entries)
    return report


def read_certificate(file: Path) -> Document:
    document = parse_json(read_bytes(file))
    if not isinstance(document, dict) or not isinstance(document.get("input", {}), dict):
        raise refuse("unknown-format", expected="smoothcert certificate")
    return document


def check_attack_records(path: Path, report: Report, *, inputs: Inputs | None = None) -> None:
    """The records of attacks in a run directory. inputs: where the data is at hand, distances are measured."""
    for file in sorted(path.glob(PATTERN)):
        report.remark(note("attack-not-repeated", name=file.name))
        for finding in check_attack_record(file, report.entries, inputs=inputs) if report.entries else ():
            if finding.at(file.name) not in report.discrepancies:
                report.discrepancies.append(finding.at(file.name))


def _check_rows(stored: StoredInput, chain: _SealChain) -> Iterator[Finding]:
    """What a document does not show of its rows."""
    yield from chain.check(stored)
    seconds = stored.rows["points"][0][3] if stored.rows["points"] else 0.0
    if type(seconds) is not float or not 0 <= seconds < math.inf:
        yield note("invalid-value", field="seconds", value=seconds, expected="a duration")
    if [row[1] for row in stored.rows["verdicts"]] != list(range(len(stored.rows["verdicts"]))):
        yield note("unnumbered-verdicts")


def _check_indices(report: Report, indices: Sequence[Any], run: RunFacts, *, unfinished: bool) -> None:
    missing = len(run.indices) - len({index for index in indices if type(index) is int and index in run.indices})
    if missing and unfinished:
        report.remark(note("missing-inputs", missing=missing, inputs=len(run.indices)))
    elif missing:
        report.discrepancies.append(note("missing-inputs", missing=missing, inputs=len(run.indices)))


class _SealChain:
    """The seals of a run, in order."""

    def __init__(self, seals: Sequence[tuple[Any, ...]], run: RunFacts) -> None:
        self._seals: dict[Any, tuple[Any, Any]] = {}
        self._problems: list[Finding] = []
        if not seals or seals[0][:2] != (0, None):
            raise refuse("no-first-seal")
        if seals[0][2] != canonical_digest(run.manifest):
            self._problems.append(note("manifest-seal-broken"))
        for (before, _, previous), (position, index, seal) in itertools.pairwise(seals):
            if position != before + 1:
                self._problems.append(note("missing-seals", before=before, position=position))
            self._seals[index] = (previous, seal)

    def check_order(self, indices: Sequence[Any]) -> list[Finding]:
        """Problems of the chain itself, and seals of inputs that are missing."""
        there = set(indices)
        return self._problems + [note("sealed-but-missing", index=index) for index in self._seals if index not in there]

    def check(self, stored: StoredInput) -> Iterator[Finding]:
        if stored.index not in self._seals:
            yield note("not-sealed")
            return
        previous, seal = self._seals[stored.index]
        if stored.next_seal(str(previous)) != seal:
            yield note("seal-broken")


def _check_sigma_rule(report: Report, path: Path, run: RunFacts) -> None:
    """The copy of the rule in the run is the one that the manifest states: its digest, and what is proved of it."""
    file, facts = path / SIGMA_RULE, run.manifest["sigma"]
    if not file.exists():
        if facts is not None and facts["rule"].get("kind") in ("knn", "network"):
            report.remark(note("no-rule-file", name=SIGMA_RULE))
        return
    try:
        rule = read_rule(file)
        found = list(rule.compare(facts["rule"] if facts else {}, digest=run.manifest["digests"]["sigma"]))
    except MalformedError as error:
        found = [note("invalid-rule-file", error=str(error))]
    except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        found = [note("invalid-rule-file", error=f"{type(error).__name__}: {error}")]
    report.discrepancies += [finding.at(SIGMA_RULE) for finding in found]


def _check_kept_inputs(report: Report, path: Path, run: RunFacts) -> None:
    """The inputs in the directory of a run, if it keeps them, are those that it is about."""
    file = path / INPUTS
    if not file.exists():
        return
    try:
        found = list(read_kept_inputs(file).compare(run, report.entries))
    except (OSError, KeyError, TypeError, ValueError, IndexError, EOFError, struct.error, zipfile.BadZipFile) as error:
        found = [note("invalid-inputs-file", error=f"{type(error).__name__}: {error}")]
    report.discrepancies += [finding.at(INPUTS) for finding in found]


def _check_model_checks(report: Report, rows: Sequence[tuple[Any, ...]], run: RunFacts, reader: RunReader) -> None:
    """How often the model itself was asked again while the run was sampled."""
    if run.source is not None or run.manifest["model"]["probe"] is None:
        report.remark(note("model-not-asked"))
        return
    if not _are_possible(rows):
        report.discrepancies.append(note("impossible-model-checks"))
        return
    drawn, asked, ties = (sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0)
    samples = reader.count_samples()
    if drawn < samples:
        report.discrepancies.append(note("fewer-copies-drawn", drawn=drawn, samples=samples))
    if asked < min(_LEAST_ASKED, drawn) // _LOST or asked < drawn // (_LOST * _ONE_IN):
        report.discrepancies.append(note("model-asked-too-rarely", asked=asked, drawn=drawn))
    report.model_checks = (drawn, asked, ties)


def _are_possible(rows: Sequence[tuple[Any, ...]]) -> bool:
    """Whether no more copies were asked about than drawn, and no more tied than were asked about, at any time.

    These are sums over all rows so far: a cluster begins to draw several shards before it returns the first.
    """
    drawn = asked = ties = 0
    for row in rows:
        if not all(type(value) is int and value >= 0 for value in row):
            return False
        drawn, asked, ties = drawn + row[0], asked + row[1], ties + row[2]
        if asked > drawn or ties > asked:
            return False
    return True


def bound_other_votes(*, asked: int, ties: int) -> float:
    """An upper bound on the share of votes that are not the model's own; wrong with probability at most ERROR.

    By Clopper and Pearson, for copies picked uniformly from all that were drawn. With no tie it is 1 - ERROR^(1/asked).
    """
    return float(upper_limit(ties, asked, ERROR))
