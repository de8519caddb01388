"""Make or resume a selected run: the selector first, then each level for the inputs that it is sampled for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from smoothcert.data import Dataset, ProgressCallback, load_requested
from smoothcert.data.unlabelled import UnlabelledDataset
from smoothcert.errors import ManifestMismatchError, ModelError
from smoothcert.models.tabular_names import get_class_names
from smoothcert.runs.building import NamedParts, RunParts, load_model
from smoothcert.runs.execution import check_spec
from smoothcert.runs.resumption import with_absolute_places
from smoothcert.runs.selected_claims import SelectedRun, check_can_create, is_selected
from smoothcert.runs.selected_combining import choose_inputs, make_claims
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.spec import DETECT, DataSpec, LocalEngineSpec, ModelSpec, RunSpec, to_json
from smoothcert.spec_differences import list_differing_values


class MakePart(Protocol):
    """Makes or resumes one ordinary run, with its progress. Raises InterruptedRunError if it is stopped."""

    def __call__(self, spec: RunSpec, out: Path, /, *, parts: RunParts) -> None: ...


@dataclass(frozen=True, slots=True)
class _SelectorParts(NamedParts):
    """Those of the selector, whose classes are levels: the labels of the data say nothing about them."""

    def load_data(self, spec: RunSpec) -> Dataset:
        return UnlabelledDataset(load_requested(spec.data, progress=self.fetching))


def make_selected_run(
    spec: SelectedSpec,
    out: Path,
    *,
    make_part: MakePart,
    notice: Callable[[str], None],
    fetching: ProgressCallback | None = None,
) -> SelectedRun:
    """Make the run in `out`, or resume it if `out` contains one with the same spec."""
    run = _begin(spec, out, fetching)
    spec = run.spec
    levels = ", ".join(f"{level:g}" for level in spec.levels)
    notice(
        f"selector smoothed with sigma {spec.selector_sigma:g}; levels {levels}, of which {spec.sampled} are sampled"
    )
    notice(f"part {run.selector.name}")
    make_part(spec.spec_of_selector(), run.selector, parts=_SelectorParts(fetching))
    for level, inputs in enumerate(choose_inputs(run)):
        if not inputs:
            notice(f"part {run.level(level).name}: no input is sampled at this level")
            continue
        notice(f"part {run.level(level).name}: {len(inputs)} inputs")
        make_part(spec.spec_of_level(level, inputs), run.level(level), parts=NamedParts(fetching))
    run.write_claims(make_claims(run))
    return run


def _begin(spec: SelectedSpec, out: Path, fetching: ProgressCallback | None) -> SelectedRun:
    spec.check()
    selector = spec.spec_of_selector()
    for part in (selector, *(spec.spec_of_level(level, None) for level in range(len(spec.levels)))):
        check_spec(part)
    if is_selected(out):
        stored = SelectedRun.open(out)
        _check_same(stored.spec, spec, out)
        # Places and engines may have changed; everything else is as it was.
        return SelectedRun(out, _move(stored.spec, spec))
    check_can_create(out)
    dataset = load_requested(spec.data, progress=fetching)
    settled, _ = NamedParts(fetching).settle(selector, UnlabelledDataset(dataset))
    spec = msgspec.structs.replace(spec, noise=settled.noise)
    check_models(spec, dataset)
    return SelectedRun.create(out, _with_absolute_places(spec))


def check_models(spec: SelectedSpec, dataset: Dataset) -> None:
    """Refuse a selector or levels that do not fit together."""
    selector = load_model(spec.spec_of_selector(), dataset)
    check_selector_outputs(spec.levels, selector.num_classes, spec.selector.place)
    classes: tuple[int, tuple[str, ...]] | None = None
    for level in range(len(spec.models)):
        model = load_model(spec.spec_of_level(level, None), dataset)
        own = (model.num_classes, get_class_names(model))
        if classes is not None and own != classes:
            raise ModelError(
                f"the base classifiers of all levels must have the same classes: {spec.models[0].place} has "
                f"{classes[0]}, and {spec.models[level].place} has {own[0]}"
                + (", with other names" if own[0] == classes[0] else "")
            )
        classes = own


def check_selector_outputs(levels: tuple[float, ...], outputs: int, name: str) -> None:
    if outputs != len(levels):
        raise ModelError(
            f"the selector {name} has {outputs} outputs, and {len(levels)} noise levels were given: it must have one "
            "output for each level"
        )


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
            selector=ModelSpec(place=""),
            models=tuple(ModelSpec(place="") for _ in spec.models),
            data=DataSpec(place="", skip=spec.data.skip, max_inputs=spec.data.max_inputs),
            noise=noise.settle(noise.levels),
            batch=None,
            rigorous=False,
            engine=LocalEngineSpec(),
        )
    )


def _move(stored: SelectedSpec, wanted: SelectedSpec) -> SelectedSpec:
    return _with_absolute_places(
        msgspec.structs.replace(
            stored, selector=wanted.selector, models=wanted.models, data=wanted.data, engine=wanted.engine
        )
    )


def _with_absolute_places(spec: SelectedSpec) -> SelectedSpec:
    def move(model: ModelSpec) -> RunSpec:
        return with_absolute_places(msgspec.structs.replace(spec.spec_of_selector(), model=model))

    selector = move(spec.selector)
    return msgspec.structs.replace(
        spec, selector=selector.model, data=selector.data, models=tuple(move(model).model for model in spec.models)
    )
