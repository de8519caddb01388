"""Whole runs and directories of certificates: seals, inputs, the rule for σ, and every document in turn.

What one document proves is checked by a function that is handed in. Discrepancies are sentences.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smoothcert_verify.against_run import check_against_run
from smoothcert_verify.attack_records import PATTERN, Inputs, attack_problems
from smoothcert_verify.manifests import check_manifest, smoothing_of, wanted_indices
from smoothcert_verify.model_checks import NOT_ASKED, check_counts
from smoothcert_verify.reading import (
    Document,
    MalformedError,
    RunReader,
    StoredInput,
    canonical_digest,
    certificate_files,
    check_digests,
    check_fields,
    document_from_rows,
    next_seal,
    read_certificate,
)
from smoothcert_verify.sentences import MALFORMED, as_list, as_object, shown, told
from smoothcert_verify.sigma_levels import level_problems
from smoothcert_verify.sigma_rules import read_rule
from smoothcert_verify.statements import statement_of

SIGMA_RULE = "sigma.safetensors"

UNFINISHED = "the run is not finished, or inputs were taken out"
NO_SEALS = "this run has no seals, so a change of what proves nothing (label, seconds, digests, seed) would not be seen"

FLOAT_NOISE = "the noise is float32: not sound in floating point, as the theorems speak of real numbers"

CheckDocument = Callable[[Mapping[str, Any]], tuple[list[str], list[str]]]
"""Discrepancies between a document and what its tallies prove, and what of it this checker cannot prove."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Examined:
    """One input that was looked at. document: without its tallies; `again` reads it with them."""

    document: Document
    again: Callable[[], Document]


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found.

    pairs: of inputs, whose distance was measured to see that the envelope allows their levels. model_checks: noisy
    copies that were drawn, about which the model itself was asked again, and that tied.
    radii: those that follow from tallies. by_memory: those that follow from an earlier claim, which a memory holds.
    alpha: the sum of what all statements may cost; so many of them are wrong on average, at most. remarks: how many
    inputs each is about, 0 for the whole.
    """

    name: str
    inputs: int = 0
    bounds: int = 0
    radii: int = 0
    by_memory: int = 0
    alpha: float = 0.0
    pairs: int = 0
    model_checks: tuple[int, int, int] | None = None
    discrepancies: list[str] = field(default_factory=list)
    remarks: dict[str, int] = field(default_factory=dict)

    def remark(self, text: str, *, inputs: int = 0) -> None:
        self.remarks[text] = self.remarks.get(text, 0) + inputs

    def count(self, document: Mapping[str, Any]) -> None:
        """Add one input, with as much of it as is well formed."""
        self.inputs += 1
        for place, verdict in enumerate(as_list(document.get("verdicts"))):
            if isinstance(verdict, dict):
                certified = verdict.get("outcome") == "certified"
                by_memory = certified and place == 0 and _by_another_claim(document)
                self.by_memory += by_memory
                self.radii += certified and not by_memory
                bounds = verdict.get("bounds")
                self.bounds += len(as_object(as_object(bounds).get("quantities")))
        self.alpha += _alpha_of(document)


def _by_another_claim(document: Mapping[str, Any]) -> bool:
    """Whether the first verdict rests on a claim for another input."""
    return as_object(document.get("promise")).get("settlement") in ("OVERRULED", "INHERITED")


def _alpha_of(document: Mapping[str, Any]) -> float:
    """The probability that something stated about this input is wrong, by the union bound over its verdicts.

    Those of a best-of hold together, and so does what the votes of a prediction say.
    """
    parameters = as_object(as_object(document.get("run")).get("parameters"))
    alpha = parameters.get("alpha")
    stated = [as_object(verdict).get("outcome") for verdict in as_list(document.get("verdicts"))]
    count = sum(outcome in ("certified", "predicted") for outcome in stated)
    if not isinstance(alpha, float) or _by_another_claim(document):
        return 0.0  # of an answer by another claim, it is the votes of that claim that may mislead
    return alpha * (min(count, 1) if str(parameters.get("certificate", "")).startswith("best-of(") else count)


def verify_run(
    path: Path, check: CheckDocument, *, unfinished: bool = False, progress: Progress | None = None
) -> tuple[Report, list[Examined]]:
    """Everything about a run directory but its memory. Returns the inputs too.

    unfinished: inputs may be missing.
    """
    report = Report(name=str(path))
    kept: list[Examined] = []
    with RunReader(path) as reader:
        try:
            manifest = reader.read_manifest()
            reader.open_results()
            indices = reader.indices()
            report.discrepancies += check_manifest(manifest)
            report.discrepancies += reader.stray_rows()
            report.discrepancies += [
                f"the run was stopped by a check of its model, and its results must not be used: {why}"
                for why in reader.failures()
            ]
            checks = reader.model_checks()
            seals = reader.seals() if reader.has_seals else None
            smoothing = smoothing_of(manifest)
            _check_indices(report, indices, manifest, unfinished=unfinished)
        except MalformedError as error:
            report.discrepancies.append(str(error))
            return report, kept
        except MALFORMED as error:
            report.discrepancies.append(f"the manifest is not well formed: {told(error)}")
            return report, kept
        _check_sigma_rule(report, path, manifest)
        chain = _Chain(report, seals, manifest)
        order = chain.order(indices)
        samples = 0
        for done, index in enumerate(order, start=1):
            stored = _stored(reader, index, report)
            if stored is not None:
                chain.check(stored)
                document = _checked(stored, manifest, smoothing, check, report)
                samples += _samples(document)
                again = functools.partial(read_input, path, index)
                kept += [] if document is None else [Examined(_without_tallies(document), again)]
            if progress is not None:
                progress(done, len(order))
    documents = [one.document for one in kept]
    report.discrepancies += level_problems(documents)
    report.model_checks, problems = check_counts(checks, manifest, samples=samples)
    report.discrepancies += problems
    if report.model_checks is None:
        report.remark(NOT_ASKED)
    check_attack_records(path, documents, report)
    return report, kept


def _samples(document: Document | None) -> int:
    """How often the model was asked for what is stored of an input."""
    try:
        tallies = as_list(as_object(document).get("tallies"))
        return sum((tally["stop"] - tally["start"]) * (2 if tally["kind"] == "pairs" else 1) for tally in tallies)
    except MALFORMED:  # reported with the input
        return 0


def check_attack_records(
    path: Path, documents: Sequence[Document], report: Report, *, inputs: Inputs | None = None
) -> None:
    """The records of attacks that lie in a run directory. inputs: where the data is at hand."""
    for file in sorted(path.glob(PATTERN)):
        report.remark(f"{file.name} was compared with the run; that its samples were drawn so, only repeating it shows")
        problems = attack_problems(file, documents[0]["run"], documents, inputs=inputs) if documents else []
        found = [f"{file.name}: {problem}" for problem in problems]
        report.discrepancies += [line for line in found if line not in report.discrepancies]


def _stored(reader: RunReader, index: Any, report: Report) -> StoredInput | None:
    try:
        return reader.stored(index)
    except MalformedError as error:
        report.discrepancies.append(f"input {shown(index)}: {error}")
        return None


def _checked(
    stored: StoredInput,
    manifest: Mapping[str, Any],
    smoothing: Mapping[str, Any],
    check: CheckDocument,
    report: Report,
) -> Document | None:
    """One input of a run; its document, where there is one."""
    try:
        document = document_from_rows(stored, manifest, smoothing)
    except MalformedError as error:
        report.discrepancies.append(f"input {shown(stored.index)}: {error}")
        return None
    problems = _row_problems(stored)
    try:
        document["statement"] = statement_of(document)  # a run stores numbers, no sentences
    except MALFORMED as error:
        problems.append(f"what it states cannot be told: {told(error)}")
    problems += _examine(document, check, report)
    report.discrepancies += [f"input {shown(stored.index)}: {problem}" for problem in problems]
    return document


def read_input(path: Path, index: Any) -> Document:
    """One input of a run as a document, read again; MalformedError where that cannot be."""
    with RunReader(path) as reader:
        manifest = reader.read_manifest()
        reader.open_results()
        return document_from_rows(reader.stored(index), manifest, smoothing_of(manifest))


def _without_tallies(document: Mapping[str, Any]) -> Document:
    return {key: value for key, value in document.items() if key != "tallies"}


def _row_problems(stored: StoredInput) -> list[str]:
    """What a document does not show of its rows."""
    problems = []
    seconds = stored.rows["points"][0][3]
    if type(seconds) is not float or not 0 <= seconds < math.inf:
        problems.append(f"it took {shown(seconds)} seconds, which cannot be")
    if [row[1] for row in stored.rows["verdicts"]] != list(range(len(stored.rows["verdicts"]))):
        problems.append("its verdicts are not numbered 0, 1, …")
    return problems


def _examine(document: Mapping[str, Any], check: CheckDocument, report: Report) -> list[str]:
    """What is wrong with one document: against its run, and by its tallies."""
    report.count(document)
    if as_object(document.get("smoothing")).get("grid") is None and document.get("tallies"):
        report.remark(FLOAT_NOISE, inputs=1)
    problems, unproved = check(document)
    return check_against_run(document) + problems + [f"not proved: {sentence}" for sentence in unproved]


def _check_indices(report: Report, indices: Sequence[Any], manifest: Mapping[str, Any], *, unfinished: bool) -> None:
    wanted = wanted_indices(manifest)
    missing = len(wanted) - len({index for index in indices if type(index) is int and index in wanted})
    if not missing:
        return
    are = "is" if missing == 1 else "are"
    sentence = f"{missing} of the {len(wanted)} inputs that the manifest asks for {are} missing: {UNFINISHED}"
    if unfinished:
        report.remark(sentence)
    else:
        report.discrepancies.append(sentence)


class _Chain:
    """Follows the seals of a run from input to input."""

    def __init__(self, report: Report, seals: Sequence[tuple[Any, ...]] | None, manifest: Mapping[str, Any]) -> None:
        self._report = report
        self._seals: dict[Any, tuple[Any, Any]] = {}
        self._order: list[Any] = []
        self._expected = seals is not None
        if seals is None:
            report.remark(NO_SEALS)
            return
        if not seals or seals[0][:2] != (0, None):
            report.discrepancies.append("the first seal, that of the manifest, is missing")
            return
        if seals[0][2] != canonical_digest(manifest):
            report.discrepancies.append("the manifest is not the one the run was begun with: seal 0 is another digest")
        for (before, _, previous), (position, index, seal) in itertools.pairwise(seals):
            if position != before + 1:
                report.discrepancies.append(f"after seal {before} comes seal {position}: some were taken out")
            self._seals[index] = (previous, seal)
            self._order.append(index)

    def order(self, indices: Sequence[Any]) -> list[Any]:
        """The inputs that are there; complains about seals and inputs that have no counterpart."""
        there = set(indices)
        self._report.discrepancies += [
            f"input {shown(index)} is sealed, but it is not there" for index in self._order if index not in there
        ]
        return list(indices)

    def check(self, stored: StoredInput) -> None:
        if not self._expected:
            return
        if stored.index not in self._seals:
            self._report.discrepancies.append(f"input {shown(stored.index)}: it is not sealed")
            return
        previous, seal = self._seals[stored.index]
        if next_seal(str(previous), stored.sealed()) != seal:
            self._report.discrepancies.append(
                f"input {shown(stored.index)}: its seal is broken: a row is not what was stored, or not in its place"
            )


def _check_sigma_rule(report: Report, path: Path, manifest: Mapping[str, Any]) -> None:
    """The copy of the rule in the run is the one that the manifest states: its digest, and what is proved of it."""
    file = path / SIGMA_RULE
    stated = manifest["parameters"].get("sigma_rule")
    if not file.exists():
        if isinstance(stated, dict) and stated.get("kind") in ("knn", "network"):
            report.remark(f"{SIGMA_RULE} is not in the run, so the rule for sigma was not looked at")
        return
    try:
        problems = read_rule(file).problems(as_object(stated))
    except (MalformedError, OSError, *MALFORMED) as error:
        report.discrepancies.append(f"{SIGMA_RULE} is not a rule for sigma: {told(error)}")
        return
    report.discrepancies += [f"{SIGMA_RULE} {problem}" for problem in problems]


def verify_certificates(
    path: Path, check: CheckDocument, *, progress: Progress | None = None
) -> tuple[Report, list[Examined]]:
    """Every certificate at this place, a file or a directory. Returns the inputs too."""
    report = Report(name=str(path))
    files = certificate_files(path)
    kept: list[Examined] = []
    seen: dict[tuple[Any, Any], str] = {}
    for done, file in enumerate(files, start=1):
        try:
            document = read_certificate(file)
        except MalformedError as error:
            report.discrepancies.append(f"{file.name}: {error}")
        else:
            problems = check_digests(document) + check_fields(document) + check_manifest(as_object(document.get("run")))
            problems += _examine(document, check, report)
            named = (str(document.get("run_digest")), shown(as_object(document.get("input")).get("index")))
            if named in seen:
                problems.append(f"it is about the same input of the same run as {seen[named]}")
            seen[named] = file.name
            report.discrepancies += [f"{file.name}: {problem}" for problem in problems]
            kept.append(Examined(_without_tallies(document), functools.partial(read_certificate, file)))
        if progress is not None:
            progress(done, len(files))
    report.discrepancies += level_problems([one.document for one in kept])
    return report, kept
