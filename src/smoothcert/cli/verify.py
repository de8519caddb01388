"""`smoothcert verify`: check certificates and runs again, by other code than that which made them."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli import options as o
from smoothcert.errors import InputError, InterruptedRunError, MissingExtraError

if TYPE_CHECKING:
    from smoothcert_verify.memory_log import MemoryReport
    from smoothcert_verify.replay import Replay
    from smoothcert_verify.run_checks import Examined, Report

MOST_LINES = 100
"""Of discrepancies that are printed; --json has all."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is to be drawn again, and with what."""

    model: str
    count: int
    indices: str | None
    batch: int | None
    data: str | None
    data_root: Path | None


def verify(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|FILE...",
            show_default=False,
            help="Run directories; certificates by `export --format certificate`, or directories of them.",
        ),
    ],
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="PLACE",
            show_default=False,
            help="The memory the runs claimed from, an SQLite file or a postgresql:// URL: check its log too.",
        ),
    ] = None,
    replay: Annotated[
        tuple[str, int] | None,
        typer.Option(
            "--replay",
            metavar="MODEL K",
            show_default=False,
            help="Draw all samples of K inputs, chosen at random, again from the recorded seed, and count again.",
        ),
    ] = None,
    replay_indices: Annotated[
        str | None,
        typer.Option("--replay-indices", show_default=False, help="Replay these inputs instead, such as 0,17; K is 0."),
    ] = None,
    replay_batch: Annotated[
        int | None,
        typer.Option(
            "--replay-batch",
            min=1,
            show_default=False,
            help="Ask the model in batches of this size, not of the recorded one; 1: row by row, and the original too.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            show_default=False,
            help="Where the data lies now, for --replay; alone: measure where inputs lie, and draw nothing again.",
        ),
    ] = None,
    data_root: o.DataRoot = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="A run that was stopped is fine: only look at what is there.")
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Recompute every bound and radius from the tallies, in ball arithmetic, and check all that a run says of itself.

    Neither the sampler nor the statistics that made the run are used. Exit 0: all is proved. Exit 1: a line for each
    discrepancy.
    """
    if replay is None and any(given is not None for given in (replay_indices, replay_batch)):
        raise InputError("--replay-indices and --replay-batch are about drawing samples again: give --replay MODEL K")
    if importlib.util.find_spec("flint") is None:
        raise MissingExtraError("python-flint", "verify", "checking bounds and radii in ball arithmetic")
    try:
        reports, examined = _examined(places, unfinished=unfinished)
        chosen, again = None, None
        if replay is not None:
            asked = _Asked(*replay, indices=replay_indices, batch=replay_batch, data=data, data_root=data_root)
            chosen, again = _prepared(asked, places, examined, reports)
        inputs: Callable[[int], Any] | None = None if again is None or again.discrepancies else again.input_of
        if replay is None and data is not None:
            inputs = _inputs_of(data, data_root, examined, reports)
        across = _check_levels(examined, reports, inputs)
        if inputs is not None:
            _measure_attacks(places, examined, reports, inputs)
        memories = [] if memory is None else _memories(memory, examined, inputs)
        replayed = None if chosen is None else _replayed(chosen, again, reports)
    except KeyboardInterrupt as error:
        raise InterruptedRunError(
            "stopped before everything was checked; verify writes nothing, start again"
        ) from error
    if memory is None:
        _remark_on_promises(reports, examined)
    found = across + _collected(reports, memories)
    if as_json:
        typer.echo(json.dumps(_as_object(reports, memories, replayed, across)))
    else:
        _print(found, reports, memories, replayed)
    if found:
        raise typer.Exit(1)


def _examined(places: list[Path], *, unfinished: bool) -> tuple[list[Report], list[list[Examined]]]:
    from smoothcert.cli.counting import inputs_progress
    from smoothcert_verify.point import check_document_with_remarks
    from smoothcert_verify.reading import certificate_files, is_run
    from smoothcert_verify.run_checks import verify_certificates, verify_run

    for place in places:
        if not is_run(place):
            certificate_files(place)  # what is not there is said before anything slow begins
    reports, examined = [], []
    for place in places:
        with inputs_progress(f"verifying {place.name}") as progress:
            if is_run(place):
                report, inputs = verify_run(
                    place, check_document_with_remarks, unfinished=unfinished, progress=progress
                )
            else:
                report, inputs = verify_certificates(place, check_document_with_remarks, progress=progress)
        reports.append(report)
        examined.append(inputs)
    return reports, examined


def _inputs_of(
    place: str, root: Path | None, examined: list[list[Examined]], reports: list[Report]
) -> Callable[[int], Any] | None:
    """The inputs of the data given; None, with a discrepancy, where it is not that of all runs."""
    from smoothcert_verify.replay import data_problems, input_of, opened_data

    runs = [one.document["run"] for inputs in examined for one in inputs if isinstance(one.document.get("run"), dict)]
    if not runs:
        return None
    dataset = opened_data(runs[0], data=place, data_root=root)
    consistent = True
    for report, inputs in zip(reports, examined, strict=True):
        several = {id(one.document.get("run")): one.document.get("run") for one in inputs}
        problems = dict.fromkeys(line for run in several.values() for line in data_problems(run or {}, dataset))
        report.discrepancies += problems
        consistent = consistent and not problems
    return functools.partial(input_of, dataset) if consistent else None


def _check_levels(
    examined: list[list[Examined]], reports: list[Report], inputs: Callable[[int], Any] | None
) -> list[str]:
    """Whether the envelopes allow the levels of all inputs; what is wrong only across places is returned."""
    from smoothcert.cli.counting import inputs_progress
    from smoothcert_verify.sigma_levels import (
        UNMEASURED,
        count_classifiers,
        level_problems,
        measured_problems,
        needs_distances,
    )

    everything = [one.document for several in examined for one in several]
    across = []
    if len(reports) > 1 and not any(report.discrepancies for report in reports):
        across = level_problems(everything)
    classifiers = count_classifiers(everything)
    if classifiers > 1:
        reports[0].remark(
            f"these inputs are those of {classifiers} different smoothed classifiers (another model, noise or sigma): "
            "what is certified of one says nothing of another"
        )
    for report, several in zip(reports, examined, strict=True):
        documents = [one.document for one in several]
        if not needs_distances(documents):
            continue
        if inputs is None:
            report.remark(UNMEASURED, inputs=len(documents))
            continue
        with inputs_progress("comparing sigmas", unit="groups") as progress:
            problems, report.pairs = measured_problems(documents, inputs, progress=progress)
        report.discrepancies += problems
    if len(reports) > 1 and inputs is not None and not any(report.discrepancies for report in reports) and not across:
        across = measured_problems(everything, inputs)[0]
    return across


def _measure_attacks(
    places: list[Path], examined: list[list[Examined]], reports: list[Report], inputs: Callable[[int], Any]
) -> None:
    from smoothcert_verify.reading import is_run
    from smoothcert_verify.run_checks import check_attack_records

    for place, several, report in zip(places, examined, reports, strict=True):
        if is_run(place):
            check_attack_records(place, [one.document for one in several], report, inputs=inputs)


def _memories(place: str, examined: list[list[Examined]], inputs: Callable[[int], Any] | None) -> list[MemoryReport]:
    from smoothcert.cli.counting import inputs_progress
    from smoothcert_verify.memory_log import verify_memory

    documents = [one.document for inputs in examined for one in inputs]
    with inputs_progress("the memory", unit="regions") as progress:
        found = verify_memory(place, documents, inputs=inputs, progress=progress)
    if not found:
        raise InputError("--memory was given, but nothing that is verified here was promised by a memory: leave it out")
    return found


def _prepared(
    asked: _Asked, places: list[Path], examined: list[list[Examined]], reports: list[Report]
) -> tuple[list[Examined], Replay | None]:
    """The inputs to draw again, with model and data; nothing where there is nothing to draw."""
    from smoothcert_verify.reading import is_run
    from smoothcert_verify.replay import NOTHING_DRAWN, Replay, chosen_inputs
    from smoothcert_verify.run_checks import SIGMA_RULE

    if len(examined) != 1:
        raise InputError("--replay draws the samples of one run again: give one run or one directory of certificates")
    (inputs,), (report,), (place,) = examined, reports, places
    if report.discrepancies:
        report.remark("no samples were drawn again, because what is stored is not consistent")
        return [], None
    wanted = None if asked.indices is None else _parse_indices(asked.indices)
    chosen = chosen_inputs(inputs, count=asked.count, indices=wanted)
    if not chosen:
        report.discrepancies.append(NOTHING_DRAWN)
        return [], None
    if any(one.document["run"] != chosen[0].document["run"] for one in chosen):
        raise InputError("these certificates come from several runs: give those of one run to --replay")
    rule = place / SIGMA_RULE
    replay = Replay.of_run(
        chosen[0].document["run"],
        model=asked.model,
        data=asked.data,
        data_root=asked.data_root,
        batch=asked.batch,
        rule=rule if is_run(place) and rule.exists() else None,
    )
    report.discrepancies += replay.discrepancies
    return chosen, replay


def _replayed(chosen: list[Examined], replay: Replay | None, reports: list[Report]) -> int:
    from smoothcert.cli.counting import inputs_progress

    if replay is None or replay.discrepancies:
        return 0
    with inputs_progress("replaying", unit="samples") as progress:
        replay.run(chosen, reports[0], progress=progress)
    return len(chosen)


def _parse_indices(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"--replay-indices {text!r} cannot be read: expected numbers of inputs such as 0,17"
        ) from error


def _remark_on_promises(reports: list[Report], examined: list[list[Examined]]) -> None:
    for report, inputs in zip(reports, examined, strict=True):
        promised = sum(one.document.get("promise") is not None for one in inputs)
        if promised:
            report.remark("the promises of the memory were not looked up: give the memory by --memory", inputs=promised)


def _collected(reports: list[Report], memories: list[MemoryReport]) -> list[str]:
    """All discrepancies, with the name of the run where there are several."""
    several = len(reports) > 1
    found = [f"{report.name}: {line}" if several else line for report in reports for line in report.discrepancies]
    return found + [f"memory {one.digest[:12]}: {line}" for one in memories for line in one.discrepancies]


def _print(found: list[str], reports: list[Report], memories: list[MemoryReport], replayed: int | None) -> None:
    for line in found[:MOST_LINES]:
        typer.echo(line)
    if len(found) > MOST_LINES:
        typer.echo(f"… and {_many(len(found) - MOST_LINES, 'more discrepanc', 'ies')}")
    for report in reports:
        verdict = "all is proved" if not report.discrepancies else _many(len(report.discrepancies), "discrepanc", "ies")
        typer.echo(
            f"{report.name}: {_many(report.inputs, 'input')}, {_many(report.bounds, 'bound')} and "
            f"{_many(report.radii, 'radi', 'i')} checked: {verdict}"
        )
        if report.alpha and not report.discrepancies:
            typer.echo(f"  of these statements, at most {report.alpha:.3g} are wrong on average over the sampling")
        if report.model_checks is not None and report.model_checks[1]:
            typer.echo(f"  {_asked_again(*report.model_checks)}")
        if report.by_memory and not memories:
            resting = "rests" if report.by_memory == 1 else "rest"
            typer.echo(f"  {_many(report.by_memory, 'radi', 'i')} {resting} on a memory that was not looked at")
        if report.pairs:
            typer.echo(f"  the sigmas of {_many(report.pairs, 'pair')} of inputs were compared at their distance")
        for remark, inputs in report.remarks.items():
            typer.echo(f"  remark: {remark}" + (f" ({_many(inputs, 'input')})" if inputs else ""))
    for memory in memories:
        verdict = "consistent" if not memory.discrepancies else _many(len(memory.discrepancies), "discrepanc", "ies")
        typer.echo(
            f"memory {memory.digest[:12]}: {_many(memory.claims, 'claim')}, {_many(memory.pairs, 'pair')} of different "
            f"classes, {_many(memory.promises, 'promise')} of these inputs: {verdict}"
        )
        if memory.unmeasured:
            typer.echo(
                f"  remark: for {_many(memory.unmeasured, 'input')} it was not measured where in its region it lies: "
                "that takes the data, by --data"
            )
    if replayed is not None:
        typer.echo(f"the samples of {_many(replayed, 'input')} were drawn again from the recorded seed")


def _asked_again(drawn: int, asked: int, ties: int) -> str:
    from smoothcert_verify.model_checks import ERROR, share_of_other_votes

    share = share_of_other_votes(asked=asked, ties=ties)
    differed = f"{ties} differed, by rounding" if ties else "none differed"
    return (
        f"the model itself was asked again about {asked:,} of {drawn:,} noisy copies: {differed}. With "
        f"{1 - float(ERROR):.1%} confidence fewer than {math.ceil(share * 1e5) / 1e3:g} % of the votes are not its own"
    )


_ONE = {"discrepanc": "y", "more discrepanc": "y", "radi": "us"}
"""Endings of nouns that are not longer by an s where there are several."""


def _many(count: int, noun: str, plural: str = "s") -> str:
    """A number with its noun: 1 input, 2 inputs; 1 radius, 2 radii."""
    return f"{count} {noun}{_ONE.get(noun, '') if count == 1 else plural}"


def _as_object(
    reports: list[Report], memories: list[MemoryReport], replayed: int | None, across: list[str]
) -> dict[str, Any]:
    return {
        "consistent": not (across or _collected(reports, memories)),
        "across_places": across,
        "places": [
            {
                "place": report.name,
                "inputs": report.inputs,
                "bounds": report.bounds,
                "radii": report.radii,
                "radii_by_memory": report.by_memory,
                "alpha": report.alpha,
                "pairs": report.pairs,
                "model_checks": None
                if report.model_checks is None
                else dict(zip(("drawn", "asked", "ties"), report.model_checks, strict=True)),
                "discrepancies": report.discrepancies,
                "remarks": report.remarks,
            }
            for report in reports
        ],
        "memories": [
            {
                "digest": memory.digest,
                "claims": memory.claims,
                "pairs": memory.pairs,
                "promises": memory.promises,
                "unmeasured": memory.unmeasured,
                "discrepancies": memory.discrepancies,
            }
            for memory in memories
        ],
        "replayed": replayed,
    }
