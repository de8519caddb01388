"""The parts of a selected run, as runs in memory, and what they are together as one run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from smoothcert.records import CertifiedPoint
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.spec import RuleLevel, RunManifest, SigmaFacts

Labels = Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class SelectedParts:
    """The selector, and by number the levels that are sampled for an input. labels: of all inputs, by index."""

    spec: SelectedSpec
    selector: HeldRun
    levels: Mapping[int, HeldRun]
    labels: Labels = field(repr=False)

    def select(self, indices: Container[int]) -> SelectedParts:
        """The same parts of some of the inputs."""

        def keep(run: HeldRun) -> HeldRun:
            return dataclasses.replace(run, points=[point for point in run.points if point.index in indices])

        levels = {level: keep(run) for level, run in self.levels.items()}
        return dataclasses.replace(
            self, selector=keep(self.selector), levels={level: run for level, run in levels.items() if run.points}
        )

    def by_input(self) -> Iterator[tuple[CertifiedPoint, dict[int, CertifiedPoint]]]:
        """For each input its point of the selector, and those of the levels that are sampled for it, by number."""
        by_level = {level: {point.index: point for point in run.points} for level, run in self.levels.items()}
        for point in self.selector.points:
            yield point, {level: points[point.index] for level, points in by_level.items() if point.index in points}

    @property
    def manifest(self) -> RunManifest:
        level = next(iter(self.levels.values()), self.selector)
        return describe_selected(self.spec, self.selector.manifest, level.manifest)

    @property
    def samples(self) -> dict[int, int]:
        """Samples by index, over all parts."""
        total: Counter[int] = Counter()
        for part in (self.selector, *self.levels.values()):
            total.update(part.samples)
        return dict(total)


def describe_selected(spec: SelectedSpec, selector: RunManifest, level: RunManifest) -> RunManifest:
    """The facts of the parts as the manifest of one run, for tables and pages. level: of any level that was sampled."""
    combined = msgspec.structs.replace(
        level.spec,
        data=spec.data,
        sigma=RuleLevel(place=spec.selector.place),
        alpha=spec.alpha,
        certificates=spec.certificates,
        seed=spec.seed,
    )
    selection = spec.selection()
    split = {
        form: {proof.value: share for proof, share in selection.list_shares(form).items()} for form in spec.certificates
    }
    return msgspec.structs.replace(
        level,
        spec=combined,
        seed=spec.seed,
        data=selector.data,
        sigma=SigmaFacts(rule=spec.rule),
        digests=msgspec.structs.replace(level.digests, sigma=selector.digests.model),
        alpha_split=split,
    )
