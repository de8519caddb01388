"""From the parts of a selected run to what they give together: the inputs of each level, and the points."""

from __future__ import annotations

from smoothcert.errors import CorruptRunError
from smoothcert.questions.selected import choose_levels, combine_points, combine_predictions, possible_levels
from smoothcert.records import CertifiedPoint, Stage, Tally
from smoothcert.runs.selected_claims import SelectedRun
from smoothcert.runs.store import read_manifest
from smoothcert.statistics import alpha_after_noise, price_of


def choose_inputs(run: SelectedRun) -> list[tuple[int, ...]]:
    """For each level the inputs to sample at it, by the votes of the selector, which must be complete."""
    chosen: list[list[int]] = [[] for _ in run.spec.levels]
    for point in run.read_part(run.selector):
        for level in _levels_of(run, point):
            chosen[level].append(point.index)
    return [tuple(indices) for indices in chosen]


def _levels_of(run: SelectedRun, selector: CertifiedPoint) -> tuple[int, ...]:
    """The levels that are sampled for an input."""
    if run.spec.task == "certify":
        return choose_levels(_votes(selector, Stage.SELECTION), sampled=run.spec.sampled)
    votes = _votes(selector, Stage.PREDICTION)
    selection = run.spec.selection(input_shape=read_manifest(run.selector).data.input_shape)
    price = price_of(votes, selection.smoothing)
    return possible_levels(votes, alpha=alpha_after_noise(selection.selector_alpha, price))


def make_claims(run: SelectedRun) -> list[CertifiedPoint]:
    """Combine the parts, which must be complete."""
    selectors = run.read_part(run.selector)
    levels = [
        {point.index: point for point in run.read_part(run.level(number))} if inputs else {}
        for number, inputs in enumerate(choose_inputs(run))
    ]
    selection = run.spec.selection(input_shape=read_manifest(run.selector).data.input_shape)
    points = []
    for selector in selectors:
        sampled = {number: levels[number][selector.index] for number in _levels_of(run, selector)}
        if run.spec.task == "predict":
            points.append(combine_predictions(selector, sampled, selection))
        else:
            points.append(combine_points(selector, sampled, selection, run.spec.certificates))
    return points


def _votes(point: CertifiedPoint, stage: Stage) -> Tally:
    found = point.tally(stage)
    if found is None:
        raise CorruptRunError(f"the selector has no {stage.name.lower()} votes of input {point.index}")
    return found.independent_votes()
