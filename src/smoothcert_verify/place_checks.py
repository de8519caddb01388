"""A whole check of several places: documents and runs, levels, attacks, memories, and a replay."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.findings import Finding, MissingPackageError, OptionError, note
from smoothcert_verify.json_values import Document
from smoothcert_verify.kept_inputs import INPUTS
from smoothcert_verify.memory_log import Inputs, MemoryReport, verify_memory
from smoothcert_verify.replay import Replay, choose_inputs
from smoothcert_verify.replay_model import open_data
from smoothcert_verify.reports import Progress, Report
from smoothcert_verify.run_checks import (
    SIGMA_RULE,
    check_attack_records,
    verify_certificates,
    verify_documents,
    verify_run,
)
from smoothcert_verify.run_reading import is_run, list_certificate_files
from smoothcert_verify.selection_checks import verify_selection
from smoothcert_verify.selection_facts import is_selected
from smoothcert_verify.selection_replay import PartModels, SelectionReplay
from smoothcert_verify.sigma_levels import (
    check_levels,
    count_classifiers,
    identify_classifier,
    measure_levels,
    needs_distances,
)

ShowProgress = Callable[[str, str], AbstractContextManager[Progress | None]]
"""From a title and a unit to a function of what is done and the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """memory: the place of the memory that the runs claimed from. model, count: draw the samples of so many inputs
    again; indices: of these inputs instead. weights: of a model that is code, where they are now. batch: rows the model
    is asked at once. data, data_root: where the data is now; without a model, only distances are measured. unfinished:
    inputs of a run may be missing.
    """

    memory: str | None = None
    model: str | None = None
    count: int = 0
    indices: str | None = None
    weights: str | None = None
    batch: int | None = None
    data: str | None = None
    data_root: Path | None = None
    unfinished: bool = False


@dataclass(slots=True, repr=False)
class Inspection:
    """across: what is wrong only between places. replayed: inputs drawn again, None if that was not requested.

    It prints as the lines of `smoothcert verify`.
    """

    reports: list[Report] = field(default_factory=list)
    memories: list[MemoryReport] = field(default_factory=list)
    across: list[Finding] = field(default_factory=list)
    replayed: int | None = None

    @property
    def consistent(self) -> bool:
        """Whether everything that was checked is proved."""
        return not self.list_discrepancies()

    def __repr__(self) -> str:
        from smoothcert_verify.summaries import summarise

        return "\n".join(summarise(self))

    def list_discrepancies(self) -> list[Finding]:
        """All of them, with the name of the place if there are several."""
        several = len(self.reports) > 1
        found = [line.at(report.name) if several else line for report in self.reports for line in report.discrepancies]
        of_memories = [line.at(f"memory {one.digest[:12]}") for one in self.memories for line in one.discrepancies]
        return self.across + found + of_memories

    def to_json(self) -> dict[str, Any]:
        return {
            "consistent": self.consistent,
            "across_places": [finding.to_json() for finding in self.across],
            "places": [_report_to_json(report) for report in self.reports],
            "memories": [
                {
                    "digest": memory.digest,
                    "claims": memory.claims,
                    "pairs": memory.counter.pairs,
                    "promises": memory.promises,
                    "unmeasured": memory.unmeasured,
                    "discrepancies": [finding.to_json() for finding in memory.discrepancies],
                }
                for memory in self.memories
            ],
            "replayed": self.replayed,
        }


def _report_to_json(report: Report) -> dict[str, Any]:
    counts = report.model_checks
    return {
        "place": report.name,
        "inputs": report.inputs,
        "bounds": report.bounds,
        "radii": report.radii,
        "radii_by_memory": report.by_memory,
        "alpha": report.alpha,
        "pairs": report.pairs,
        "model_checks": None if counts is None else dict(zip(("drawn", "asked", "ties"), counts, strict=True)),
        "discrepancies": [finding.to_json() for finding in report.discrepancies],
        "remarks": [{**remark.to_json(), "inputs": inputs} for remark, inputs in report.remarks],
        "parts": [_report_to_json(part) for part in report.parts],
    }


def hide_progress(title: str, unit: str) -> AbstractContextManager[Progress | None]:
    return contextlib.nullcontext()


def inspect_places(
    places: Sequence[Path], options: CheckOptions, *, show_progress: ShowProgress = hide_progress
) -> Inspection:
    """Check run directories, certificates and directories of certificates, and all that the options name."""
    if options.model is None and (options.indices, options.weights, options.batch) != (None, None, None):
        raise OptionError("--replay-indices, --replay-weights and --replay-batch need --replay MODEL K")
    require_ball_arithmetic()
    for place in places:
        if not (is_run(place) or is_selected(place)):
            list_certificate_files(place)  # report a missing place before anything slow begins
    inspection = Inspection()
    for place in places:
        with show_progress(f"verifying {place.name}", "inputs") as progress:
            if is_selected(place):
                report = verify_selection(place, unfinished=options.unfinished, progress=progress)
            elif is_run(place):
                report = verify_run(place, unfinished=options.unfinished, progress=progress)
            else:
                report = verify_certificates(place, progress=progress)
        inspection.reports.append(report)
    reports = inspection.reports
    if options.model is not None and any(report.parts for report in reports):
        inspection.replayed = _replay_selection(options, places, reports, show_progress)
        return inspection
    selection, replay = ([], None) if options.model is None else _prepare_replay(options, places, reports)
    inputs: Inputs | None = None
    if replay is not None and not replay.discrepancies:
        inputs = replay.data.read_input
    elif options.model is None and options.data is not None:
        inputs = _open_inputs(options, reports)
    inspection.across = _check_levels(reports, inputs, show_progress)
    for place, report in zip(places, reports, strict=True):
        if inputs is not None and is_run(place):
            check_attack_records(place, report, inputs=inputs)
    if options.memory is not None:
        with show_progress("verifying the memory", "regions") as progress:
            inspection.memories = verify_memory(
                options.memory, _list_entries(reports), inputs=inputs, progress=progress
            )
        if not inspection.memories and not inspection.list_discrepancies():
            raise OptionError("--memory was given, but none of these inputs was promised by a memory: leave it out")
    if options.model is not None:
        inspection.replayed = _run_replay(selection, replay, reports, show_progress)
    for report in reports if options.memory is None else ():
        _remark_on_promises(report)
    return inspection


def inspect_documents(documents: Iterable[Document], *, name: str) -> Inspection:
    """Check certificates in memory. What they say of a memory is not checked."""
    require_ball_arithmetic()
    report = verify_documents(documents, name=name)
    _check_levels([report], None, hide_progress)
    _remark_on_promises(report)
    return Inspection(reports=[report])


def require_ball_arithmetic() -> None:
    if importlib.util.find_spec("flint") is None:
        raise MissingPackageError("python-flint", "verify", "checking bounds and radii in ball arithmetic")


def _remark_on_promises(report: Report) -> None:
    promised = sum(one.promise is not None for one in report.entries)
    if promised:
        report.remark(note("promises-unchecked"), inputs=promised)


def _list_entries(reports: Sequence[Report]) -> list[CheckedInput]:
    return [one for report in reports for one in report.entries]


def _open_inputs(options: CheckOptions, reports: Sequence[Report]) -> Inputs | None:
    """The inputs of the given data; None, with a discrepancy, if it is not that of all runs."""
    entries = _list_entries(reports)
    if not entries:
        return None
    data = open_data(entries[0].run, place=options.data, root=options.data_root)
    consistent = True
    for report in reports:
        found: list[Finding] = []
        for run in {id(one.run): one.run for one in report.entries}.values():
            found += [finding for finding in data.compare(run) if finding not in found]
        report.discrepancies += found
        consistent = consistent and not found
    return data.read_input if consistent else None


def _check_levels(reports: Sequence[Report], inputs: Inputs | None, show_progress: ShowProgress) -> list[Finding]:
    """Whether the envelopes allow the levels of all inputs; returns what is wrong only across places."""
    everything = _list_entries(reports)
    several = len(reports) > 1
    across = check_levels(everything) if several and not any(report.discrepancies for report in reports) else []
    selected = [
        frozenset(identify_classifier(part.entries[0].run) for part in r.parts if part.entries) for r in reports
    ]
    classifiers = count_classifiers(everything) + len({parts for parts in selected if parts})
    if classifiers > 1:
        reports[0].remark(note("several-classifiers", count=classifiers))
    for report in reports:
        if not needs_distances(report.entries):
            continue
        if inputs is None:
            report.remark(note("levels-unmeasured"), inputs=len(report.entries))
            continue
        with show_progress("comparing sigmas", "groups") as progress:
            problems, report.pairs = measure_levels(report.entries, inputs, progress=progress)
        report.discrepancies += problems
    if several and inputs is not None and not across and not any(report.discrepancies for report in reports):
        across = measure_levels(everything, inputs)[0]
    return across


def _prepare_replay(
    options: CheckOptions, places: Sequence[Path], reports: Sequence[Report]
) -> tuple[list[CheckedInput], Replay | None]:
    """The inputs to draw again, with model and data; nothing if there is nothing to draw."""
    if len(reports) != 1:
        raise OptionError("--replay draws the samples of one run again: give one run or one directory of certificates")
    (report,), (place,) = reports, places
    if report.discrepancies:
        report.remark(note("replay-skipped"))
        return [], None
    indices = None if options.indices is None else _parse_indices(options.indices)
    selection = choose_inputs(report.entries, count=options.count, indices=indices)
    if not selection:
        report.discrepancies.append(note("nothing-drawn"))
        return [], None
    run = selection[0].run
    if any(one.run.manifest != run.manifest for one in selection):
        raise OptionError("these certificates come from several runs: give those of one run to --replay")
    assert options.model is not None
    rule, kept = place / SIGMA_RULE, place / INPUTS
    data = str(kept) if options.data is None and is_run(place) and kept.exists() else options.data
    replay = Replay.open(
        run,
        model=options.model,
        weights=options.weights,
        data=data,
        data_root=options.data_root,
        batch=options.batch,
        rule=rule if is_run(place) and rule.exists() else None,
        labelled=any(one.label is not None for one in report.entries),
    )
    report.discrepancies += replay.discrepancies
    return selection, replay


def _replay_selection(
    options: CheckOptions, places: Sequence[Path], reports: Sequence[Report], show_progress: ShowProgress
) -> int:
    """Draw samples of a selected run again; returns of how many inputs."""
    if len(reports) != 1:
        raise OptionError("--replay draws the samples of one run again: give one run or one directory of certificates")
    (report,), (place,) = reports, places
    assert options.model is not None
    if report.discrepancies:
        report.remark(note("replay-skipped"))
        return 0
    models = PartModels.parse(options.model, weights=options.weights, levels=len(report.level_names))
    indices = None if options.indices is None else _parse_indices(options.indices)
    replay = SelectionReplay(
        names=report.level_names, models=models, data=options.data, root=options.data_root, batch=options.batch
    )
    with show_progress("replaying", "samples") as progress:
        return replay.run(place, report, count=options.count, indices=indices, progress=progress)


def _run_replay(
    selection: Sequence[CheckedInput], replay: Replay | None, reports: Sequence[Report], show_progress: ShowProgress
) -> int:
    if replay is None or replay.discrepancies:
        return 0
    with show_progress("replaying", "samples") as progress:
        replay.run(selection, reports[0], progress=progress)
    return len(selection)


def _parse_indices(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise OptionError(f"--replay-indices {text!r} cannot be read: expected indices such as 0,17") from error
