"""What a check of one place found: counts, discrepancies, remarks, and what later checks need of every input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from smoothcert_verify.document_checks import CheckedInput, check_document
from smoothcert_verify.findings import Finding, note
from smoothcert_verify.json_values import Document
from smoothcert_verify.run_facts import RunFacts, read_run
from smoothcert_verify.selection_documents import check_selected_document, is_selected_document

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Report:
    """What was checked at one place, and what was found.

    radii: those that follow from tallies; by_memory: those that follow from an earlier claim, which a memory holds.
    alpha: the sum of the error probabilities of all statements, so at most so many are wrong on average. pairs: of
    inputs, whose distance was measured. model_checks: noisy copies that were drawn, about which the model was asked
    again, and that tied. remarks: with the number of inputs that each is about, 0 for the whole. entries: the requested
    inputs whose documents could be read; first_document: that of the first one, without its tallies. parts: of a
    selected run, whose bounds are among those counted here; level_names: of the parts of all levels, ascending;
    statements: of the certificates of selected inputs.
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
    first_document: Document | None = None
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
        one = CheckedInput.of(document, run, again)
        self._count(document["verdicts"], one)
        for remark in list_remarks(run, norm=document["verdicts"][0]["norm"], has_samples=bool(document["tallies"])):
            self.remark(remark, inputs=1)
        if one.index in run.indices:
            self.keep(one, document)

    def keep(self, one: CheckedInput, document: Document) -> None:
        """Keep a requested input for later checks."""
        if self.first_document is None:
            self.first_document = {key: value for key, value in document.items() if key != "tallies"}
        self.entries.append(one)

    def add_part(self, part: Report) -> None:
        """Take over what was found about further inputs of this place."""
        self.inputs += part.inputs
        self.bounds += part.bounds
        self.radii += part.radii
        self.by_memory += part.by_memory
        self.alpha += part.alpha
        self.discrepancies += part.discrepancies
        for remark, inputs in part.remarks:
            self.remark(remark, inputs=inputs)
        self.first_document = self.first_document or part.first_document
        self.entries += part.entries

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
            one = CheckedInput.of(nested, run, _pick_again(again, pick))
            before = part.bounds
            part._count(nested["verdicts"], one)
            self.bounds += part.bounds - before
            part.keep(one, nested)
        if checked.in_float:
            self.remark(note("float-noise"), inputs=1)

    def _count(self, verdicts: list[Mapping[str, Any]], one: CheckedInput) -> None:
        certified = [verdict["outcome"] == "certified" for verdict in verdicts]
        by_memory = certified[:1] == [True] and one.by_another_claim
        stated = sum(verdict["outcome"] in ("certified", "predicted") for verdict in verdicts)
        bounds = sum(len(verdict["bounds"]["quantities"]) for verdict in verdicts if verdict["bounds"] is not None)
        self.by_memory += by_memory
        self.radii += sum(certified) - by_memory
        self.bounds += bounds
        if not one.by_another_claim:  # otherwise the votes of the other claim may mislead
            self.alpha += float(one.run.alpha) * (min(stated, 1) if one.run.best_of else stated)


def list_remarks(run: RunFacts, *, norm: str, has_samples: bool) -> Iterator[Finding]:
    """What a reader should know of an input of this run, which is no discrepancy."""
    if run.grid is None and has_samples:
        yield note("float-noise")
    if run.scale is not None and run.task != "predict":
        yield note("scaled-norm", norm=norm, scale=run.scale)
    if run.rounds:
        yield note("rounded-inputs", grid=run.grid)


def _pick_again(again: Callable[[], Document], pick: Callable[[Document], Document]) -> Callable[[], Document]:
    return lambda: pick(again())
