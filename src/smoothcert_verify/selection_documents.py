"""The certificate document of one input of a selected run, with the documents of its parts inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from smoothcert_verify.document_checks import check_document
from smoothcert_verify.findings import Finding, MalformedError, note, refuse
from smoothcert_verify.json_values import (
    OBJECT,
    Document,
    ListOf,
    Number,
    OneOf,
    Optional,
    Record,
    Text,
    Whole,
    canonical_digest,
    is_same,
)
from smoothcert_verify.manifest_shapes import MOST_INDEX
from smoothcert_verify.run_facts import RunFacts, read_run
from smoothcert_verify.selection_claims import PartAnswer, Selected, check_claim, choose_again
from smoothcert_verify.selection_facts import (
    SELECTOR,
    SelectionFacts,
    check_alike,
    check_part,
    check_selection,
    check_shares,
    read_selection,
)
from smoothcert_verify.verdict_checks import VERDICTS

SELECTED_FORMAT, SELECTED_VERSION = "smoothcert selected certificate", 1

_DOCUMENT = Record(
    format=OneOf((SELECTED_FORMAT,)),
    version=OneOf((SELECTED_VERSION,)),
    input=Record(index=Whole(0, MOST_INDEX), label=Optional(Whole())),
    selection=OBJECT,
    sigma=Optional(Number(1e-100, 1e100)),
    verdicts=VERDICTS,
    selector=OBJECT,
    levels=ListOf(OBJECT),
    digest=Text(64),
)

Pick = Callable[[Document], Document]


def is_selected_document(document: Any) -> bool:
    """Whether this is meant to be such a document."""
    return isinstance(document, Mapping) and document.get("format") == SELECTED_FORMAT


@dataclass(slots=True)
class SelectedDocument:
    """What was found. facts: None if the document cannot be read. parts: the name of each, its run, and where it is."""

    findings: list[Finding] = field(default_factory=list)
    facts: SelectionFacts | None = None
    parts: list[tuple[str, RunFacts, Pick]] = field(default_factory=list)

    @property
    def in_float(self) -> bool:
        """Whether the noise is not on a grid."""
        return any(run.grid is None for _, run, _ in self.parts)


def check_selected_document(document: Any) -> SelectedDocument:
    """Everything that can be checked of one document. Never raises: what cannot be read is a discrepancy."""
    checked = SelectedDocument()
    try:
        _check(document, checked)
    except MalformedError as error:
        checked.findings.append(error.finding)
    except Exception as error:  # any effect of a hostile document is a discrepancy of it
        checked.findings.append(note("cannot-be-checked", error=f"{type(error).__name__}: {error}"))
    return checked


def _check(document: Document, checked: SelectedDocument) -> None:
    if not is_same(document.get("version"), SELECTED_VERSION):
        raise refuse("unknown-version", value=document.get("version"), expected=SELECTED_VERSION)
    rest = {key: value for key, value in document.items() if key != "digest"}
    if document.get("digest") != canonical_digest(rest):
        checked.findings.append(note("digest-differs", field="digest"))
    _DOCUMENT(document, "")
    facts = read_selection({"schema": 1, "spec": document["selection"]})
    checked.findings += check_selection(facts)
    selector = _read_part(document, facts, SELECTOR, _pick_selector, checked)
    runs, answers = dict[int, RunFacts](), dict[int, PartAnswer]()
    for place, nested in enumerate(document["levels"]):
        level = _find_level(facts, nested)
        if level in runs or (runs and level < max(runs)):
            raise refuse(
                "invalid-value", field=f"levels.{place}", value=facts.levels[level], expected="ascending levels"
            )
        runs[level], answers[level] = _read_part(
            document, facts, facts.name_level(level), _pick_level(place), checked, level
        )
    checked.findings += [*check_shares(facts, selector[0], runs), *check_alike(facts, selector[0], runs)]
    chosen = choose_again(facts, selector[0], selector[1].stages[facts.voting_stage], tuple(answers))
    if tuple(answers) != chosen:
        checked.findings.append(note("other-levels", value=tuple(answers), expected=chosen))
        return
    level_alpha = max((run.alpha for run in runs.values()), default=Fraction(0))
    claim = {**document["input"], "sigma": document["sigma"], "seconds": 0.0, "verdicts": document["verdicts"]}
    checked.findings += check_claim(claim, Selected(facts, selector[0], selector[1], answers, level_alpha))
    checked.facts = facts


def _read_part(
    document: Document,
    facts: SelectionFacts,
    name: str,
    pick: Pick,
    checked: SelectedDocument,
    level: int | None = None,
) -> tuple[RunFacts, PartAnswer]:
    """Check the document of a part, and that it is the part that was requested."""
    nested = pick(document)
    found = check_document(nested)
    checked.findings += [finding.at(name) for finding in (*found.discrepancies, *found.unchecked)]
    if not found.is_readable:
        raise refuse("cannot-be-checked", error=f"the certificate of {name} cannot be read")
    run = read_run(nested["run"])
    checked.findings += [finding.at(name) for finding in _compare(document, nested, facts, run, level)]
    checked.parts.append((name, run, pick))
    return run, PartAnswer.read(nested, run, seconds=0.0)


def _compare(
    document: Document, nested: Document, facts: SelectionFacts, run: RunFacts, level: int | None
) -> Iterator[Finding]:
    index = document["input"]["index"]
    if nested["input"]["index"] != index:
        yield note("differs", field="input.index", value=nested["input"]["index"], expected=index)
    yield from check_part(facts, run, level=level)[0]


def _find_level(facts: SelectionFacts, nested: Document) -> int:
    """The number of the level that a document is about."""
    smoothing = nested.get("smoothing")
    sigma = smoothing.get("sigma") if isinstance(smoothing, dict) else None
    if sigma not in facts.levels:
        raise refuse("invalid-value", field="levels.smoothing.sigma", value=sigma, expected="one of the levels")
    return facts.levels.index(sigma)


def _pick_selector(document: Document) -> Document:
    nested: Document = document["selector"]
    return nested


def _pick_level(place: int) -> Pick:
    def pick(document: Document) -> Document:
        nested: Document = document["levels"][place]
        return nested

    return pick
