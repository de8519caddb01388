"""A run in memory: what was recomputed from another run, or sampled in Python and stored nowhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.records import CertifiedPoint, Stage, TallyKind
from smoothcert.runs.load import make_run_results
from smoothcert.runs.manifest import state_environment
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.stored_tallies import classes_voted_for, tally_row
from smoothcert.spec import RunManifest, RunSpec

if TYPE_CHECKING:
    from smoothcert.runs.selected_parts import SelectedParts


@dataclass(frozen=True, slots=True)
class HeldRun:
    """Points with their tallies, and the manifest they have, or would have, as a run of their own.

    selected: they are a selection of the inputs of the manifest, so that missing ones are not remarked on. parts: of a
    run whose noise level was chosen by a selector, which have the tallies.
    """

    points: Sequence[CertifiedPoint]
    manifest: RunManifest
    selected: bool = False
    parts: SelectedParts | None = None

    @property
    def spec(self) -> RunSpec:
        return self.manifest.spec

    @property
    def kinds(self) -> set[TallyKind]:
        """The kinds of tallies that were sampled to prove something."""
        return list_kinds(self.points)

    @property
    def samples(self) -> dict[int, int]:
        """Samples by index, over all stages."""
        if self.parts is not None:
            return self.parts.samples
        return {point.index: sum(tally.n for tally in point.tallies) for point in self.points}

    @property
    def unanimous(self) -> dict[int, int]:
        """By index, the class that got all votes of the estimation stage. Other inputs are omitted."""
        found = {}
        for point in self.points:
            tallies = [tally for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION]
            classes = set().union(*(classes_voted_for(tally_row(tally)[7]) for tally in tallies))
            if len(classes) == 1 and min(classes) >= 0:
                found[point.index] = min(classes)
        return found

    def results(self, *, name: str, certificate: str | None = None) -> list[ResultColumns]:
        """The points as columns, one table for each certificate of the run, or for one."""
        found = make_run_results(
            self.points, self.manifest, self.kinds, name=name, spent=self.samples, certificate=certificate
        )
        return [dataclasses.replace(one, expected=None) for one in found] if self.selected else found

    def save(self, out: Path) -> None:
        """Store as a run of its own, whole or not at all."""
        from smoothcert.runs.selected_run import save_selected
        from smoothcert.runs.store import RunStore

        if self.parts is not None:
            save_selected(self.points, self.parts, out)
            return
        with RunStore.create_whole(out, state_environment(self.manifest)) as store:
            store.add(self.points)


def list_kinds(points: Sequence[CertifiedPoint]) -> set[TallyKind]:
    """The kinds of tallies that were sampled to prove something."""
    return {tally.kind for point in points for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION}
