"""Drawing samples of a selected run again: those of some inputs, in every part in which they were sampled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.findings import Finding, OptionError, note
from smoothcert_verify.json_values import parse_json
from smoothcert_verify.kept_inputs import INPUTS
from smoothcert_verify.replay import Progress, Replay, choose_inputs
from smoothcert_verify.replay_model import ReplayData
from smoothcert_verify.reports import Report
from smoothcert_verify.run_reading import read_bytes
from smoothcert_verify.selection_claims import read_claims
from smoothcert_verify.selection_facts import CLAIMS, SELECTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class PartModels:
    """Where the models of a selected run are now. weights: of the models of the levels, if they are code."""

    selector: str
    levels: tuple[str, ...]
    weights: str | None = None

    @classmethod
    def parse(cls, text: str, *, weights: str | None, levels: int) -> PartModels:
        """Of "selector,model,…": the selector, then one model for each level, ascending, or one for all."""
        selector, *models = text.split(",")
        if len(models) not in (1, levels) or not all((selector, *models)):
            raise OptionError(
                f"--replay {text}: a selected run needs its selector and the models of its {levels} levels, as in "
                "selector,a,b,c, or one model for all levels"
            )
        return cls(
            selector=selector, levels=tuple(models) if len(models) > 1 else (models[0],) * levels, weights=weights
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionReplay:
    """How the parts are drawn again. names: of the parts of all levels, ascending. data, root: where the data is."""

    names: Sequence[str]
    models: PartModels
    data: str | None
    root: Path | None
    batch: int | None

    def run(
        self,
        path: Path,
        report: Report,
        *,
        count: int,
        indices: Sequence[int] | None,
        progress: Progress | None = None,
    ) -> int:
        """Draw and count again; differences go into the report. Returns how many inputs were drawn again."""
        parts = {Path(part.name).name: part for part in report.parts}
        chosen = {one.index for one in choose_inputs(parts[SELECTOR].entries, count=count, indices=indices)}
        if not chosen:
            report.discrepancies.append(note("nothing-drawn"))
            return 0
        drawn = True
        for name, part in parts.items():
            entries = [one for one in part.entries if one.index in chosen]
            if entries:
                drawn = self._run_part(path / name, entries, report, progress=progress) and drawn
        return len(chosen) if drawn else 0

    def _run_part(
        self, path: Path, entries: Sequence[CheckedInput], report: Report, *, progress: Progress | None
    ) -> bool:
        """Returns whether model and data are those of the part, so that its samples were drawn."""
        is_selector, kept = path.name == SELECTOR, path / INPUTS
        if any(one.run.manifest != entries[0].run.manifest for one in entries):
            raise OptionError("these certificates come from several runs: give those of one run to --replay")
        replay = Replay.open(
            entries[0].run,
            model=self.models.selector if is_selector else self.models.levels[self.names.index(path.name)],
            weights=None if is_selector else self.models.weights,
            data=str(kept) if self.data is None and kept.exists() else self.data,
            data_root=self.root,
            batch=self.batch,
            labelled=not is_selector,
        )
        found = Report(name=str(path), discrepancies=list(replay.discrepancies))
        replay.run(entries, found, progress=progress)
        report.discrepancies += [finding.at(path.name) for finding in found.discrepancies]
        drawn = not replay.discrepancies
        if drawn and is_selector and (path.parent / CLAIMS).is_file():
            report.discrepancies += self._check_labels(
                path.parent / CLAIMS, {one.index for one in entries}, replay.data
            )
        return drawn

    @staticmethod
    def _check_labels(file: Path, chosen: Collection[int], data: ReplayData) -> Iterator[Finding]:
        """The labels of the claims are those of the data. An input at which no level was sampled may have none."""
        for claim in read_claims(parse_json(read_bytes(file))):
            index, label = claim["index"], claim["label"]
            if index in chosen and label is not None and label != data.read_label(index):
                finding = note("differs", field="label", value=label, expected=data.read_label(index))
                yield finding.at(f"input {index}")
