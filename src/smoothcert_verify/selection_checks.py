"""A whole selected run: its parts as ordinary runs, whether they are those requested, and every claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from fractions import Fraction
from pathlib import Path
from typing import Any

from smoothcert_verify.attack_records import PATTERN
from smoothcert_verify.findings import CheckerError, Finding, MalformedError, note, refuse
from smoothcert_verify.json_values import Document, parse_json
from smoothcert_verify.reports import Progress, Report
from smoothcert_verify.run_checks import verify_run
from smoothcert_verify.run_facts import RunFacts, read_run
from smoothcert_verify.run_reading import RunReader, StoredInput, is_run, read_bytes
from smoothcert_verify.selection_claims import PartAnswer, Selected, check_claim, choose_again, read_claims
from smoothcert_verify.selection_facts import (
    CLAIMS,
    SELECTION,
    SELECTOR,
    SelectionFacts,
    check_alike,
    check_part,
    check_selection,
    check_shares,
    read_selection,
)

_MOST_NAMED = 10
"""Inputs that are named when all of them lack the same."""


class _Part:
    """An ordinary run inside a selected run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with RunReader(path) as reader:
            self.run: RunFacts = read_run(reader.read_manifest())
            reader.open_results()
            self.answers = {index: self._read(reader.read_input(index)) for index in reader.indices()}

    def _read(self, stored: StoredInput) -> PartAnswer:
        document, seconds = stored.to_document(self.run), stored.rows["points"][0][3]
        if type(seconds) is not float:
            raise refuse("invalid-value", field="seconds", value=seconds, expected="a duration")
        return PartAnswer.read(document, self.run, seconds=seconds)


def verify_selection(path: Path, *, unfinished: bool = False, progress: Progress | None = None) -> Report:
    """Everything about the directory of a selected run. unfinished: inputs, levels and claims may be missing.

    The report of each part is in `parts`; its discrepancies are among those of the whole.
    """
    report = Report(name=str(path))
    try:
        facts = read_selection(_read_json(path / SELECTION))
        report.level_names = facts.list_names()
        report.discrepancies += [*check_selection(facts), *_check_directory(path, facts)]
        for part in _list_parts(path, facts):
            _add_part(report, verify_run(part, unfinished=unfinished, progress=progress), part.name)
        _SelectionCheck(path, facts, report).check(unfinished=unfinished)
    except MalformedError as error:
        report.discrepancies.append(error.finding)
    except CheckerError:
        raise
    except Exception as error:  # any effect of a hostile run is a discrepancy of it
        report.discrepancies.append(note("cannot-be-checked", error=f"{type(error).__name__}: {error}"))
    for file in sorted(path.glob(PATTERN)):
        report.remark(note("attack-unchecked", name=file.name))
    return report


def _read_json(file: Path) -> Any:
    if not file.is_file():
        raise refuse("missing-file", name=file.name)
    return parse_json(read_bytes(file))


def _list_parts(path: Path, facts: SelectionFacts) -> list[Path]:
    """The directories of the parts that are there."""
    return [path / name for name in (SELECTOR, *facts.list_names()) if is_run(path / name)]


def _check_directory(path: Path, facts: SelectionFacts) -> Iterator[Finding]:
    """There is no other run in the directory, which could be taken for a part or for the whole."""
    if is_run(path):
        yield note("unknown-part", name=path.name)
    known = _list_parts(path, facts)
    for place in sorted(path.iterdir()):
        if is_run(place) and place not in known:
            yield note("unknown-part", name=place.name)


def _add_part(report: Report, part: Report, name: str) -> None:
    report.parts.append(part)
    report.bounds += part.bounds
    report.discrepancies += [finding.at(name) for finding in part.discrepancies]
    for remark, inputs in part.remarks:
        if remark.code != "float-noise":  # it is said once, of the whole
            report.remark(remark.at(name), inputs=inputs)


class _SelectionCheck:
    """The check of what the parts give together."""

    def __init__(self, path: Path, facts: SelectionFacts, report: Report) -> None:
        self._path, self._facts, self._report = path, facts, report
        self._missing: Counter[int] = Counter()

    def check(self, *, unfinished: bool) -> None:
        facts, report = self._facts, self._report
        if not is_run(self._path / SELECTOR):
            self._remark_on_missing(note("missing-part", name=SELECTOR), unfinished=unfinished)
            return
        claims = None
        if unfinished and not (self._path / CLAIMS).exists():
            report.remark(note("missing-file", name=CLAIMS))
        else:
            claims = read_claims(_read_json(self._path / CLAIMS))
        selector = _Part(self._path / SELECTOR)
        levels = {
            level: _Part(self._path / facts.name_level(level))
            for level in range(len(facts.levels))
            if is_run(self._path / facts.name_level(level))
        }
        runs = {level: part.run for level, part in levels.items()}
        self._check_parts(selector.run, runs)
        chosen = self._check_chosen(selector, runs)
        for level, inputs in sorted(self._missing.items()):
            missing = note("missing-part", name=facts.name_level(level))
            self._remark_on_missing(missing, unfinished=unfinished and claims is None, inputs=inputs)
        report.inputs = len(selector.answers)
        if selector.run.grid is None:
            report.remark(note("float-noise"), inputs=report.inputs)
        if claims is not None:
            report.inputs = len(claims)
            wanted = set(selector.answers) if unfinished else set(selector.run.indices)
            self._check_claims(claims, selector, levels, chosen, wanted=wanted)

    def _remark_on_missing(self, finding: Finding, *, unfinished: bool, inputs: int = 0) -> None:
        if unfinished:
            self._report.remark(finding, inputs=inputs)
        else:
            self._report.discrepancies.append(finding)

    def _check_parts(self, selector: RunFacts, levels: Mapping[int, RunFacts]) -> None:
        """The parts are those requested, and belong together."""
        facts, report = self._facts, self._report
        for level, run in [(None, selector), *levels.items()]:
            name = SELECTOR if level is None else facts.name_level(level)
            differing, elsewhere = check_part(facts, run, level=level)
            report.discrepancies += [finding.at(name) for finding in differing]
            for finding in elsewhere:
                report.remark(finding.at(name))
        report.discrepancies += [*check_shares(facts, selector, levels), *check_alike(facts, selector, levels)]

    def _check_chosen(self, selector: _Part, levels: Mapping[int, RunFacts]) -> dict[Any, tuple[int, ...]]:
        """The levels of each input that the selector answered: those that its votes choose, and no others."""
        found: dict[Any, tuple[int, ...]] = {}
        for index, answer in selector.answers.items():
            votes = answer.stages[self._facts.voting_stage]
            sampled = tuple(level for level, run in levels.items() if index in run.indices)
            chosen = choose_again(self._facts, selector.run, votes, sampled)
            found[index] = chosen
            absent = set(chosen) - levels.keys()
            self._missing.update(absent)
            if set(sampled) | absent != set(chosen):
                self._report.discrepancies.append(
                    note("other-levels", value=sampled, expected=chosen).at(f"input {index}")
                )
        for level, run in levels.items():
            strange = [index for index in run.indices if index not in selector.run.indices]
            for index in sorted(strange)[:_MOST_NAMED]:
                finding = note("index-not-requested", index=index)
                self._report.discrepancies.append(finding.at(self._facts.name_level(level)))
        return found

    def _check_claims(
        self,
        claims: list[Document],
        selector: _Part,
        levels: Mapping[int, _Part],
        chosen: Mapping[Any, tuple[int, ...]],
        *,
        wanted: Set[Any],
    ) -> None:
        """One claim about each of these inputs, in their order, and each of them proved."""
        facts, report = self._facts, self._report
        named = [claim["index"] for claim in claims]
        for index in sorted(wanted - set(named))[:_MOST_NAMED]:
            report.discrepancies.append(note("no-claim").at(f"input {index}"))
        for index, count in Counter(named).items():
            if count > 1:
                report.discrepancies.append(note("repeated-claim", count=count).at(f"input {index}"))
        if named != sorted(named):
            report.discrepancies.append(note("differs", field="claims", value=named, expected=sorted(named)))
        level_alpha = max((part.run.alpha for part in levels.values()), default=Fraction(0))
        for claim in claims:
            index = claim["index"]
            where = f"input {index}"
            if index not in selector.run.indices:
                report.discrepancies.append(note("index-not-requested", index=index).at(where))
                continue
            missing = [
                facts.name_level(k) for k in chosen.get(index, ()) if k not in levels or index not in levels[k].answers
            ]
            missing += [SELECTOR] if index not in selector.answers else []
            for name in missing:
                report.discrepancies.append(note("claim-without-answer", name=name).at(where))
            if missing:
                continue
            answers = {level: levels[level].answers[index] for level in chosen[index]}
            of = Selected(facts, selector.run, selector.answers[index], answers, level_alpha)
            report.discrepancies += [finding.at(where) for finding in check_claim(claim, of)]
            stated = sum(verdict["outcome"] in ("certified", "predicted") for verdict in claim["verdicts"])
            report.radii += sum(verdict["outcome"] == "certified" for verdict in claim["verdicts"])
            report.alpha += float(facts.alpha) * stated
