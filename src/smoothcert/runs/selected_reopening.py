"""Opening a finished selected run to ask its classifiers more: the same selector, models and data, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import msgspec

from smoothcert.data import Dataset, ProgressCallback, load_requested
from smoothcert.data.unlabelled import UnlabelledDataset
from smoothcert.errors import InputError
from smoothcert.runs.building import build_smoothed, match_to_model
from smoothcert.runs.reopening import check_same, spec_to_reopen
from smoothcert.runs.resumption import Moved
from smoothcert.runs.selected_run import SelectedRun
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import RunSpec


@dataclass(frozen=True, slots=True)
class OpenedPart:
    """The smoothed classifier of a part. name: of its directory, which a level without inputs does not have."""

    name: str
    spec: RunSpec
    smoothed: SmoothedClassifier


@dataclass(frozen=True, slots=True)
class OpenedSelection:
    """levels: all of them, also those that were sampled for no input."""

    selector: OpenedPart
    levels: tuple[OpenedPart, ...]
    dataset: Dataset

    @property
    def parts(self) -> tuple[OpenedPart, ...]:
        return (self.selector, *self.levels)


@contextmanager
def reopen_selected(
    run: SelectedRun, *, purpose: str, moved: Moved, fetching: ProgressCallback | None = None
) -> Iterator[OpenedSelection]:
    """The smoothed classifiers of all parts. purpose: the verb for a message. moved: its model names one or all."""
    spec = run.spec
    of_selector = replace(moved, model=moved.selector, selector=None, weights=None)
    selector = spec_to_reopen(run.selector, purpose=purpose, moved=of_selector)
    places = split_models(run, moved.model)
    levels = []
    for number in range(len(spec.levels)):
        own = replace(moved, model=None if places is None else places[number % len(places)], selector=None)
        place = run.level(number)
        if RunStore.exists(place):
            levels.append(spec_to_reopen(place, purpose=purpose, moved=own))
        else:
            levels.append(_move_unsampled(spec.spec_of_level(number, None), selector, own))
    labelled = load_requested(selector.data, progress=fetching)
    with ExitStack() as stack:
        opened = []
        for number, level in enumerate(levels):
            smoothed = stack.enter_context(build_smoothed(level, labelled))
            if number == 0:
                labelled = match_to_model(labelled, smoothed.classifier)
            if RunStore.exists(run.level(number)):
                check_same(run.level(number), read_manifest(run.level(number)), smoothed, labelled)
            opened.append(OpenedPart(spec.name_level(number), level, smoothed))
        unlabelled = UnlabelledDataset(labelled)
        choosing = stack.enter_context(build_smoothed(selector, unlabelled))
        check_same(run.selector, read_manifest(run.selector), choosing, unlabelled)
        yield OpenedSelection(OpenedPart(run.selector.name, selector, choosing), tuple(opened), labelled)


def split_models(run: SelectedRun, models: str | None) -> list[str] | None:
    """The new places of the models, as many as the run has, if they were given."""
    if models is None:
        return None
    places, count = models.split(","), len(run.spec.models)
    if len(places) != count:
        raise InputError(f"{run.path} has {count} models, and --model names {len(places)}")
    return places


def _move_unsampled(level: RunSpec, selector: RunSpec, moved: Moved) -> RunSpec:
    """The spec of a level that was sampled for no input: with the recorded choices of the selector's run."""
    model = msgspec.structs.replace(
        level.model,
        place=moved.model or level.model.place,
        code_folder=None if moved.model is not None else level.model.code_folder,
        weights=moved.weights or level.model.weights,
        device=moved.device or level.model.device,
    )
    return msgspec.structs.replace(
        level, model=model, data=selector.data, noise=selector.noise, batch=selector.batch, engine=selector.engine
    )
