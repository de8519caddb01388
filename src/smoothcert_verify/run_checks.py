"""Whole runs and directories of certificates: seals, inputs, the rule for σ, and every document in turn."""

from __future__ import annotations

import functools
import struct
import zipfile
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from smoothcert_verify.arithmetic import upper_limit
from smoothcert_verify.attack_records import PATTERN, Inputs, check_attack_record
from smoothcert_verify.certificate_index import check_index
from smoothcert_verify.check_processes import check_all_inputs
from smoothcert_verify.findings import MalformedError, note, refuse
from smoothcert_verify.json_values import Document, canonical_digest, parse_json
from smoothcert_verify.kept_inputs import INPUTS, read_kept_inputs
from smoothcert_verify.reports import Progress, Report
from smoothcert_verify.run_facts import RunFacts, check_run, read_run
from smoothcert_verify.run_reading import INDEX, RunReader, list_certificate_files, read_bytes
from smoothcert_verify.sigma_levels import check_levels
from smoothcert_verify.sigma_rules import read_rule
from smoothcert_verify.stored_input_checks import SealChain

SIGMA_RULE = "sigma.safetensors"
ERROR = Fraction(1, 1000)
"""The probability that the bound on votes that are not the model's own is wrong."""

_LEAST_ASKED, _ONE_IN, _LOST = 2000, 1000, 2
"""A run asks the model again about 2000 copies, and one in 1000 of more. A killed run may lose half of the count."""


def verify_run(path: Path, *, unfinished: bool = False, progress: Progress | None = None) -> Report:
    """Everything about a run directory but its memory. unfinished: inputs may be missing."""
    report = Report(name=str(path))
    with RunReader(path) as reader:
        try:
            run = read_run(reader.read_manifest())
            reader.open_results()
            report.discrepancies += [*check_run(run), *reader.stray_rows(), *reader.failures()]
            indices, chain = reader.indices(), SealChain(reader.seals(), run)
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
        report.add_part(check_all_inputs(reader, run, indices, chain.seals, progress=progress))
        _check_model_checks(report, model_checks, run, reader)
    report.discrepancies += check_levels(report.entries)
    _check_kept_inputs(report, path, run)
    check_attack_records(path, report)
    return report


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


def _check_indices(report: Report, indices: Sequence[Any], run: RunFacts, *, unfinished: bool) -> None:
    missing = len(run.indices) - len({index for index in indices if type(index) is int and index in run.indices})
    if missing and unfinished:
        report.remark(note("missing-inputs", missing=missing, inputs=len(run.indices)))
    elif missing:
        report.discrepancies.append(note("missing-inputs", missing=missing, inputs=len(run.indices)))


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
