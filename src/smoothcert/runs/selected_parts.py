"""The parts of a selected run, as runs in memory, and what they give together: points, manifest, other settings."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from smoothcert.errors import CorruptRunError, InputError, RunError
from smoothcert.questions.selected import choose_levels, combine_points, combine_predictions, possible_levels
from smoothcert.records import CertifiedPoint, Proof, Stage, Tally
from smoothcert.records.selection import Selection
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.settings_text import real_number, whole_number
from smoothcert.spec import QuestionSpec, RuleLevel, RunManifest, SigmaFacts
from smoothcert.statistics import alpha_after_noise, price_of

Labels = Mapping[int, int | None]


def choose_inputs(spec: SelectedSpec, selector: HeldRun) -> list[tuple[int, ...]]:
    """For each level the inputs to sample at it, by the votes of the selector, which must be complete."""
    chosen: list[list[int]] = [[] for _ in spec.levels]
    for point in selector.points:
        for level in _levels_of(spec, _selection_of(spec, selector), point):
            chosen[level].append(point.index)
    return [tuple(indices) for indices in chosen]


def _selection_of(spec: SelectedSpec, selector: HeldRun) -> Selection:
    return spec.selection(input_shape=selector.manifest.data.input_shape)


def _levels_of(spec: SelectedSpec, selection: Selection, selector: CertifiedPoint) -> tuple[int, ...]:
    """The levels that are sampled for an input."""
    if spec.task != "predict":
        return choose_levels(_votes(selector, Stage.SELECTION), sampled=spec.sampled)
    votes = _votes(selector, Stage.PREDICTION)
    price = price_of(votes, selection.smoothing)
    return possible_levels(votes, alpha=alpha_after_noise(selection.selector_alpha, price))


def _votes(point: CertifiedPoint, stage: Stage) -> Tally:
    found = point.tally(stage)
    if found is None:
        raise CorruptRunError(f"the selector has no {stage.name.lower()} votes of input {point.index}")
    return found.independent_votes()


@dataclass(frozen=True, slots=True)
class SelectedParts:
    """The selector, and by number the levels that are sampled for an input. labels: of all inputs, by index."""

    spec: SelectedSpec
    selector: HeldRun
    levels: Mapping[int, HeldRun]
    labels: Labels = field(repr=False)

    def combine(self) -> list[CertifiedPoint]:
        """The points of the classifier that the parts make."""
        selection = _selection_of(self.spec, self.selector)
        points = []
        for selector, levels in self.by_input():
            sampled = _levels_of(self.spec, selection, selector)
            if set(sampled) != set(levels):
                raise CorruptRunError(
                    f"levels {sorted(levels)} are sampled for input {selector.index}, and not {list(sampled)}"
                )
            if self.spec.task == "predict":
                point = combine_predictions(selector, levels, selection)
            else:
                point = combine_points(selector, levels, selection, self.spec.certificates)
            # No level is sampled if the selector failed, and a selector knows no labels.
            points.append(dataclasses.replace(point, label=self.labels.get(selector.index)))
        return points

    def hold(self, *, selected: bool = False) -> HeldRun:
        """The parts as one run in memory. selected: as in `HeldRun`."""
        return HeldRun(self.combine(), self.manifest, selected=selected, parts=self)

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
    shares = {
        Proof.SELECTOR.value: selection.selector_alpha,
        Proof.LEVELS.value: selection.sampled * selection.level_alpha,
    }
    return msgspec.structs.replace(
        level,
        spec=combined,
        seed=spec.seed,
        data=selector.data,
        sigma=SigmaFacts(rule=spec.rule),
        digests=msgspec.structs.replace(level.digests, sigma=selector.digests.model),
        alpha_split=dict.fromkeys(spec.certificates, shares),
    )


def recertify_parts(
    parts: SelectedParts,
    name: str,
    *,
    alpha: float | None = None,
    n: float | None = None,
    certificate: str | Sequence[str] | None = None,
    best_of: bool = False,
) -> SelectedParts:
    """The same votes at another α, with fewer samples, or by another form of the combination.

    α is shared as before. n: of the selector too, if it has more samples than that.
    """
    from smoothcert.runs.recertification import recertify_points

    spec = _change_spec(parts.spec, name, alpha=alpha, n=n, certificate=certificate, best_of=best_of)
    level_alpha = spec.selection().level_alpha

    def change(run: HeldRun, part: str, share: float, asked: QuestionSpec) -> HeldRun:
        fewer = None if asked == run.spec.question else asked.n
        return recertify_points(run, f"{name}/{part}", alpha=share, n=fewer)

    return SelectedParts(
        spec=spec,
        selector=change(parts.selector, "selector", spec.selector_alpha, spec.selector_question),
        levels={
            level: change(run, spec.name_level(level), level_alpha, spec.question)
            for level, run in parts.levels.items()
        },
        labels=parts.labels,
    )


def _change_spec(
    spec: SelectedSpec,
    name: str,
    *,
    alpha: float | None,
    n: float | None,
    certificate: str | Sequence[str] | None,
    best_of: bool,
) -> SelectedSpec:
    if spec.task == "predict":
        raise RunError(f"{name} is a predict run; only the votes of a certify run can be certified again")
    if best_of:
        raise InputError("the forms of a selected run cannot share alpha: name one of them, without best_of")
    alpha = spec.alpha if alpha is None else real_number(alpha, name="alpha")
    n = None if n is None else whole_number(n, name="n")
    forms = (certificate,) if isinstance(certificate, str) else tuple(certificate or spec.certificates)
    changed = msgspec.structs.replace(
        spec,
        task="recertify",
        alpha=alpha,
        selector_alpha=alpha * (spec.selector_alpha / spec.alpha),
        question=_with_samples(spec.question, n, most=math.inf),
        selector_question=_with_samples(spec.selector_question, n, most=spec.selector_question.n),
        certificates=tuple(str(form) for form in forms),
    )
    changed.check()
    return changed


def _with_samples(question: QuestionSpec, n: int | None, *, most: float) -> QuestionSpec:
    return question if n is None or n > most else msgspec.structs.replace(question, n=n)
