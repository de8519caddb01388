"""Make or resume a selected run: the selector first, then each level for the inputs that it is sampled for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from smoothcert.data import Dataset, ProgressCallback, load_requested
from smoothcert.data.unlabelled import UnlabelledDataset
from smoothcert.errors import ManifestMismatchError, ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.tabular_names import check_same_classes
from smoothcert.runs.building import NamedParts, RunParts, load_model, match_to_model, name_own_code
from smoothcert.runs.execution import check_labels, check_spec
from smoothcert.runs.resumption import with_absolute_places
from smoothcert.runs.rigorous import confirm_combination
from smoothcert.runs.run_files import is_selected
from smoothcert.runs.selected_combining import choose_inputs, hold_parts
from smoothcert.runs.selected_parts import Labels
from smoothcert.runs.selected_run import SelectedRun, check_can_create
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.spec import DETECT, DataSpec, LocalEngineSpec, ModelSpec, RunSpec, to_json
from smoothcert.spec_differences import list_differing_values

Loaded = TypeVar("Loaded")
Models = tuple[BaseClassifier, Sequence[BaseClassifier]]


class MakePart(Protocol):
    """Makes or resumes one ordinary run, with its progress. Raises InterruptedRunError if it is stopped."""

    def __call__(self, spec: RunSpec, out: Path, /, *, parts: RunParts) -> None: ...


class SelectedObjects(Protocol):
    """Dataset and models of a selected run: from the places that its spec names, or objects of a Python program."""

    def load_data(self, spec: SelectedSpec) -> Dataset:
        """With the labels as the base classifiers number them."""

    def load_models(self, spec: SelectedSpec, dataset: Dataset) -> Models:
        """The selector, and every base classifier that the spec names."""

    def of_selector(self, dataset: UnlabelledDataset) -> RunParts: ...

    def of_level(self, level: int) -> RunParts: ...


@dataclass(frozen=True, slots=True)
class NamedObjects:
    """Objects from the places in the spec. fetching: receives the progress of a download."""

    fetching: ProgressCallback | None = None

    def load_data(self, spec: SelectedSpec) -> Dataset:
        dataset = load_requested(spec.data, progress=self.fetching)
        return match_to_model(dataset, load_model(spec.spec_of_level(0, None), dataset))

    def load_models(self, spec: SelectedSpec, dataset: Dataset) -> Models:
        def load_selector(outputs: int | None) -> BaseClassifier:
            model = msgspec.structs.replace(spec.selector, num_classes=outputs)
            return load_model(msgspec.structs.replace(spec.spec_of_selector(), model=model), dataset)

        selector = load_with_outputs(load_selector, outputs=spec.selector.num_classes)
        return selector, [load_model(spec.spec_of_level(level, None), dataset) for level in range(len(spec.models))]

    def of_selector(self, dataset: UnlabelledDataset) -> RunParts:
        return _SelectorParts(self.fetching, dataset=dataset)

    def of_level(self, level: int) -> RunParts:
        return NamedParts(self.fetching)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SelectorParts(NamedParts):
    """Those of the selector, whose classes are levels: the labels of the data say nothing about them."""

    dataset: UnlabelledDataset

    def load_data(self, spec: RunSpec) -> Dataset:
        return self.dataset


def make_selected_run(
    spec: SelectedSpec,
    out: Path,
    *,
    objects: SelectedObjects,
    make_part: MakePart,
    notice: Callable[[str], None] = lambda _: None,
) -> SelectedRun:
    """Make the run in `out`, or resume it if `out` contains one with the same spec."""
    spec = _prepare(spec, out)
    dataset = objects.load_data(spec)
    unlabelled = UnlabelledDataset(dataset)
    run = _begin(spec, out, objects, unlabelled)
    spec = run.spec
    levels = ", ".join(f"{level:g}" for level in spec.levels)
    notice(
        f"selector smoothed with sigma {spec.selector_sigma:g}; levels {levels}, of which "
        f"{spec.selection().sampled} may be sampled for an input"
    )
    notice(f"part {run.selector.name}")
    make_part(spec.spec_of_selector(), run.selector, parts=objects.of_selector(unlabelled))
    for level, inputs in enumerate(choose_inputs(spec, run.read_part(run.selector))):
        if not inputs:
            notice(f"part {run.level(level).name}: no input is sampled at this level")
            continue
        notice(f"part {run.level(level).name}: {len(inputs)} inputs")
        make_part(spec.spec_of_level(level, inputs), run.level(level), parts=objects.of_level(level))
    combined = hold_parts(run.read_parts(_list_labels(spec, dataset)))
    if spec.rigorous:
        confirm_combination(combined)
    run.write_claims(combined.points)
    return run


def _list_labels(spec: SelectedSpec, dataset: Dataset) -> Labels:
    labels = dataset.labels
    return {index: int(labels[index]) if labels[index] >= 0 else None for index in spec.data.list_indices(len(dataset))}


def _prepare(spec: SelectedSpec, out: Path) -> SelectedSpec:
    """The spec, if it can work; of a run that is resumed, with the choices that it has recorded."""
    spec.check()
    for part in spec.list_parts():
        check_spec(part)
    spec = _change_places(spec, name_own_code)
    if not is_selected(out):
        check_can_create(out)
        return spec
    stored = SelectedRun.open(out).spec
    # How α is split was settled when the run was begun, maybe by an earlier version.
    spec = msgspec.structs.replace(spec, upper_alpha=stored.upper_alpha)
    _check_same(stored, spec, out)
    # Places and engines may have changed; everything else is as it was.
    return msgspec.structs.replace(
        stored, selector=spec.selector, models=spec.models, data=spec.data, engine=spec.engine
    )


def _begin(spec: SelectedSpec, out: Path, objects: SelectedObjects, dataset: UnlabelledDataset) -> SelectedRun:
    """The run in `out`, which is created if it does not exist."""
    models = objects.load_models(spec, dataset.labelled)
    check_models(spec, models)  # also on resuming: a model that moved may be another one
    check_labels(spec.data.place, dataset.labelled, spec.models[0].place, models[1][0])
    if is_selected(out):
        return SelectedRun(out, _change_places(spec, with_absolute_places))
    settled, _ = objects.of_selector(dataset).settle(spec.spec_of_selector(), dataset)
    spec = msgspec.structs.replace(spec, noise=settled.noise)
    return SelectedRun.create(out, _change_places(spec, with_absolute_places))


def load_with_outputs(load: Callable[[int | None], Loaded], *, outputs: int | None) -> Loaded:
    """A selector of which so many outputs are expected, or one that shows another number: `check_models` refuses it.

    load: takes the number of outputs, which code that answers with levels instead of scores does not show.
    """
    try:
        return load(outputs)
    except ModelError:
        if outputs is None:
            raise
        return load(None)


def check_models(spec: SelectedSpec, models: Models) -> None:
    """Refuse a selector or levels that do not fit together."""
    selector, levels = models
    if selector.num_classes != len(spec.levels):
        raise ModelError(
            f"the selector {spec.selector.place} has {selector.num_classes} outputs, and {len(spec.levels)} noise "
            "levels were given: it must have one output for each level"
        )
    check_same_classes([(model.place, level) for model, level in zip(spec.models, levels, strict=True)])


def _check_same(stored: SelectedSpec, wanted: SelectedSpec, out: Path) -> None:
    differing = list_differing_values(_comparable(stored, stored), _comparable(wanted, stored), holder="run")
    if differing:
        raise ManifestMismatchError(
            f"{out} was made with other settings; choose another --out, or use the same settings to resume it:\n  "
            + "\n  ".join(differing)
        )


def _comparable(spec: SelectedSpec, stored: SelectedSpec) -> dict[str, Any]:
    """What must be equal. The parts compare the digests of models and data themselves."""
    noise = stored.noise if spec.noise.grid == DETECT else spec.noise
    return to_json(
        msgspec.structs.replace(
            spec,
            selector=ModelSpec(place="", dtype=spec.selector.dtype),
            models=tuple(ModelSpec(place="", dtype=model.dtype) for model in spec.models),
            data=DataSpec(place="", skip=spec.data.skip, max_inputs=spec.data.max_inputs),
            noise=noise.settle(noise.levels),
            batch=None,
            engine=LocalEngineSpec(),
        )
    )


def _change_places(spec: SelectedSpec, change: Callable[[RunSpec], RunSpec]) -> SelectedSpec:
    """The spec after this change of the places of models and data."""

    def move(model: ModelSpec) -> RunSpec:
        return change(msgspec.structs.replace(spec.spec_of_selector(), model=model))

    selector = move(spec.selector)
    return msgspec.structs.replace(
        spec, selector=selector.model, data=selector.data, models=tuple(move(model).model for model in spec.models)
    )
