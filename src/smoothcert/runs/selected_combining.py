"""From the parts of a selected run to its points: which levels are sampled, their combination, other settings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import msgspec

from smoothcert.errors import CorruptRunError, InputError, RunError
from smoothcert.questions.selected_points import choose_levels, combine_points, combine_predictions, possible_levels
from smoothcert.records import CertifiedPoint, Stage, Tally
from smoothcert.records.selection import Selection, choose_upper_alpha
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.selected_parts import SelectedParts
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.settings_text import real_number, whole_number
from smoothcert.spec import QuestionSpec
from smoothcert.statistics import alpha_after_noise, price_of


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


def combine_parts(parts: SelectedParts) -> list[CertifiedPoint]:
    """The points of the classifier that the parts make."""
    spec, selection = parts.spec, _selection_of(parts.spec, parts.selector)
    points = []
    for selector, levels in parts.by_input():
        sampled = _levels_of(spec, selection, selector)
        if set(sampled) != set(levels):
            raise CorruptRunError(
                f"levels {sorted(levels)} are sampled for input {selector.index}, and not {list(sampled)}"
            )
        if spec.task == "predict":
            point = combine_predictions(selector, levels, selection)
        else:
            point = combine_points(selector, levels, selection, spec.certificates)
        # No level is sampled if the selector failed, and a selector knows no labels.
        points.append(dataclasses.replace(point, label=parts.labels.get(selector.index)))
    return points


def hold_parts(parts: SelectedParts, *, selected: bool = False) -> HeldRun:
    """The parts as one run in memory. selected: as in `HeldRun`."""
    return HeldRun(combine_parts(parts), parts.manifest, selected=selected, parts=parts)


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

    α is shared as before, and by the rule of the version that made the run. n: of the selector too, if it has more
    samples than that.
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
    selector_alpha = alpha * (spec.selector_alpha / spec.alpha)
    upper_alpha = spec.upper_alpha
    if upper_alpha is not None:
        upper_alpha = choose_upper_alpha(alpha, selector_alpha, bounds=spec.selector_bounds, forms=forms)
    changed = msgspec.structs.replace(
        spec,
        task="recertify",
        alpha=alpha,
        selector_alpha=selector_alpha,
        upper_alpha=upper_alpha,
        question=_with_samples(spec.question, n, most=math.inf),
        selector_question=_with_samples(spec.selector_question, n, most=spec.selector_question.n),
        certificates=tuple(str(form) for form in forms),
    )
    changed.check()
    return changed


def _with_samples(question: QuestionSpec, n: int | None, *, most: float) -> QuestionSpec:
    return question if n is None or n > most else msgspec.structs.replace(question, n=n)
