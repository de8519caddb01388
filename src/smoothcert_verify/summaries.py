"""The lines that a person reads after a check."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from smoothcert_verify.memory_log import MemoryReport
from smoothcert_verify.place_checks import Inspection
from smoothcert_verify.reports import Report
from smoothcert_verify.run_checks import ERROR, bound_other_votes
from smoothcert_verify.texts import describe_guarantee, describe_selected_guarantee

MOST_LINES = 100
"""The most discrepancies and statements that are printed; --json has all."""

_SINGULAR = {"discrepancies": "discrepancy", "radii": "radius"}


def summarise(inspection: Inspection) -> Iterator[str]:
    """The discrepancies, and a summary of each place and memory."""
    found = inspection.list_discrepancies()
    yield from map(str, found[:MOST_LINES])
    if len(found) > MOST_LINES:
        yield f"… and {_count(len(found) - MOST_LINES, 'more discrepancies')}"
    for report in inspection.reports:
        yield from _summarise_report(report, has_memories=bool(inspection.memories))
    for memory in inspection.memories:
        yield from _summarise_memory(memory)
    if inspection.replayed is not None:
        yield f"the samples of {_count(inspection.replayed, 'inputs')} were drawn again from the recorded seed"


def _summarise_report(report: Report, *, has_memories: bool) -> Iterator[str]:
    consistent = not report.discrepancies
    verdict = "all is proved" if consistent else _count(len(report.discrepancies), "discrepancies")
    yield (
        f"{report.name}: {_count(report.inputs, 'inputs')}, {_count(report.bounds, 'bounds')} and "
        f"{_count(report.radii, 'radii')} checked: {verdict}"
    )
    if consistent and len(report.entries) == 1 and report.first_document is not None:
        yield f"  {describe_guarantee(report.first_document)}"
    if consistent and len(report.statements) == 1:
        yield f"  {describe_selected_guarantee(report.statements[0])}"
    if report.alpha and consistent:
        yield f"  of these statements, at most {report.alpha:.3g} are wrong on average over the sampling"
    yield from _summarise_model_checks(report)
    for part in report.parts:
        yield from _summarise_model_checks(part, name=f"{Path(part.name).name}: ")
    if report.by_memory and not has_memories:
        rest = "rests" if report.by_memory == 1 else "rest"
        yield f"  {_count(report.by_memory, 'radii')} {rest} on a memory that was not checked"
    if report.pairs:
        yield f"  the sigmas of {_count(report.pairs, 'pairs')} of inputs were compared at their distance"
    for remark, inputs in report.remarks:
        yield f"  remark: {remark}" + (f" ({_count(inputs, 'inputs')})" if inputs else "")


def _summarise_model_checks(report: Report, *, name: str = "") -> Iterator[str]:
    if report.model_checks is not None and report.model_checks[1]:
        drawn, asked, ties = report.model_checks
        differed = f"{ties} differed, by rounding" if ties else "none differed"
        share = math.ceil(bound_other_votes(asked=asked, ties=ties) * 1e5) / 1e3
        yield (
            f"  {name}the model itself was asked again about {asked:,} of {drawn:,} noisy copies: {differed}. With "
            f"{1 - float(ERROR):.1%} confidence fewer than {share:g} % of the votes are not its own"
        )


def _summarise_memory(memory: MemoryReport) -> Iterator[str]:
    verdict = "consistent" if not memory.discrepancies else _count(len(memory.discrepancies), "discrepancies")
    yield (
        f"memory {memory.digest[:12]}: {_count(memory.claims, 'claims')}, {_count(memory.counter.pairs, 'pairs')} of "
        f"different classes, {_count(memory.promises, 'promises')} of these inputs: {verdict}"
    )
    if memory.unmeasured:
        yield (
            f"  remark: for {_count(memory.unmeasured, 'inputs')} it was not measured where in its region it lies: "
            "give the data by --data"
        )


def _count(count: int, plural: str) -> str:
    """A number with its noun: 1 input, 2 inputs; 1 radius, 2 radii."""
    if count != 1:
        return f"{count} {plural}"
    *before, noun = plural.split()
    return " ".join([str(count), *before, _SINGULAR.get(noun, noun.removesuffix("s"))])
