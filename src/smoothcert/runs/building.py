"""From a RunSpec to the objects it names: dataset, base classifier, sigma, engine, smoothed classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, assert_never

import msgspec

from smoothcert.certificates import Portfolio, get_portfolio
from smoothcert.cluster.ray_engine import RayEngine
from smoothcert.data import Dataset, ProgressCallback, load_requested
from smoothcert.data.matching import get_feature_names as get_column_names
from smoothcert.data.matching import has_text_labels, match_dataset
from smoothcert.errors import DataError, InputError, RunError
from smoothcert.files import Content
from smoothcert.models import load_classifier
from smoothcert.models.architectures import is_own
from smoothcert.models.backends import FASTEST, get_backend_name
from smoothcert.models.base import BaseClassifier
from smoothcert.models.tabular_names import get_class_names, get_feature_names
from smoothcert.noise import FLOAT, DetectedGrid, detect_grid, to_grid
from smoothcert.noise.input_grid import MEMORY_NEEDS_A_GRID
from smoothcert.records import InputArray
from smoothcert.records.class_names import list_names
from smoothcert.records.feature_scale import measure_deviations
from smoothcert.runs.run_files import SIGMA_RULE
from smoothcert.runs.scales import scale_of
from smoothcert.sampling import Sampler
from smoothcert.sampling.factories import TallierFactory
from smoothcert.sampling.grid_choice import EIGHT_BITS, SCALED_INPUTS
from smoothcert.sigma import OptimisedSigma, SigmaRule, as_rule, load_sigma, make_search
from smoothcert.sigma.levels import list_likely_levels
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import (
    DETECT,
    FIRST_LAYER,
    STD,
    ConstantLevel,
    LocalEngineSpec,
    NoiseSpec,
    OptimisedLevel,
    RayEngineSpec,
    RuleLevel,
    RunManifest,
    RunSpec,
)
from smoothcert.user_code import is_code_name

_INPUTS_TOGETHER = 256
"""Inputs that are read together when the grid of a dataset is detected."""


class RunParts(Protocol):
    """Dataset and classifier of a run: loaded from the places that its spec names, or objects of a Python program."""

    def load_data(self, spec: RunSpec) -> Dataset: ...

    def settle(self, spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
        """The spec with its back end and the grid of its noise; and for float32 why."""

    def settle_scale(self, spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
        """The spec with the numbers of its scale; and what they are, if they were computed here."""

    def open_smoothed(self, spec: RunSpec, dataset: Dataset) -> AbstractContextManager[SmoothedClassifier]:
        """The smoothed classifier of a spec that is settled."""

    def list_files(self, spec: RunSpec) -> Mapping[str, Content]:
        """What is kept with the run, so that it can be resumed."""


@dataclass(frozen=True, slots=True)
class NamedParts:
    """Parts from the places in the spec. fetching: receives the progress of a download."""

    fetching: ProgressCallback | None = None

    def load_data(self, spec: RunSpec) -> Dataset:
        return load_requested(spec.data, progress=self.fetching)

    def settle(self, spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
        return settle_grid(settle_backend(spec, dataset), dataset)

    def settle_scale(self, spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
        return settle_scale(spec, dataset)

    @contextmanager
    def open_smoothed(self, spec: RunSpec, dataset: Dataset) -> Iterator[SmoothedClassifier]:
        with open_engine(spec, dataset) as tallier, build_smoothed(spec, dataset, tallier=tallier) as smoothed:
            yield smoothed

    def list_files(self, spec: RunSpec) -> Mapping[str, Content]:
        if not isinstance(spec.sigma, RuleLevel) or is_code_name(spec.sigma.place):
            return {}
        try:
            return {SIGMA_RULE: Path(spec.sigma.place).read_bytes()}
        except OSError as error:
            raise RunError(f"{spec.sigma.place} cannot be read: {error.strerror or error}") from error


def name_own_code(spec: RunSpec) -> RunSpec:
    """A file of weights whose network is the user's code, as the code with these weights.

    Then the run records the folder of the code, like that of every model that is code.
    """
    model = spec.model
    if model.arch is None or not is_own(model.arch) or model.weights is not None or is_own(model.place):
        return spec
    named = msgspec.structs.replace(model, place=model.arch, weights=model.place, arch=None)
    return msgspec.structs.replace(spec, model=named)


def portfolio_of(spec: RunSpec) -> Portfolio:
    """The certificates of the spec, or the usual one."""
    constant = isinstance(spec.sigma, ConstantLevel) or spec.memory is not None
    names = spec.certificates or (spec.noise.kind.usual_certificate(constant_sigma=constant),)
    return get_portfolio(names, best_of=spec.best_of)


def match_to_model(dataset: Dataset, classifier: BaseClassifier) -> Dataset:
    """The data with its columns and labels as the model takes them; names of classes are the model's, or its own."""
    names = get_class_names(classifier)
    if not names and has_text_labels(dataset) and dataset.num_classes != classifier.num_classes:
        raise DataError(
            f"{dataset.name} has the classes {list_names(dataset.class_names)}, and the model has "
            f"{classifier.num_classes} without names: it is not known which class is which. Give labels as numbers "
            f"0 … {classifier.num_classes - 1}, or in an .npz file class_names of all classes"
        )
    return match_dataset(dataset, class_names=names, feature_names=get_feature_names(classifier))


def match_to_run(dataset: Dataset, manifest: RunManifest) -> Dataset:
    """The data with its columns and labels as the run has them."""
    return match_dataset(dataset, class_names=manifest.model.class_names, feature_names=manifest.data.feature_names)


def _model_arguments(spec: RunSpec, dataset: Dataset) -> dict[str, Any]:
    """Those of `load_classifier`, in this process and on a cluster."""
    model = spec.model
    return {
        "num_classes": model.num_classes,
        "input_shape": dataset.input_shape,
        "device": _device_of_model(spec),
        "arch": model.arch,
        "standardise": model.standardise,
        "noise_at": spec.noise.place,
        "backend": model.backend,
        "dtype": model.precision,
        "weights": model.weights,
        "code_folder": model.code_folder,
    }


def load_model(spec: RunSpec, dataset: Dataset) -> BaseClassifier:
    """The base classifier of the spec, in this process."""
    return load_classifier(spec.model.place, **_model_arguments(spec, dataset))


def _device_of_model(spec: RunSpec) -> str:
    """On a cluster "auto" means what an actor has, whatever this machine has."""
    if not isinstance(spec.engine, RayEngineSpec) or spec.model.device != "auto":
        return spec.model.device
    return "cuda" if spec.engine.gpus_per_actor else "cpu"


def load_rule(spec: RunSpec) -> SigmaRule | OptimisedSigma:
    """The rule for sigma. An optimised one still has to be made for the model."""
    match spec.sigma:
        case ConstantLevel(level=level):
            return as_rule(level)
        case RuleLevel(place=place, code_folder=code_folder):
            return load_sigma(place, code_folder=code_folder)
        case OptimisedLevel() as level:
            return OptimisedSigma(
                level.start,
                search=make_search(level.search, level.settings),
                least=level.least,
                most=level.most,
                noise=spec.noise.kind,
                two_class=level.two_class,
            )
        case _:
            assert_never(spec.sigma)


def settle_backend(spec: RunSpec, dataset: Dataset) -> RunSpec:
    """Measure the fastest back end once, so that the model is the same function wherever it is loaded from now on."""
    if spec.model.backend != FASTEST:
        return spec
    classifier = load_model(spec, dataset)
    model = msgspec.structs.replace(spec.model, backend=get_backend_name(classifier))
    return msgspec.structs.replace(spec, model=model)


def settle_scale(spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
    """The spec with the standard deviations that it requests, of the training part; and what they are."""
    if spec.noise.scale != STD:
        return spec, ""
    train = load_requested(msgspec.structs.replace(spec.data, split="train"))
    # In the order in which the model takes the columns.
    features = get_feature_names(load_model(spec, dataset))
    ordered = match_dataset(train, class_names=(), feature_names=features)
    scale = measure_deviations(ordered.inputs(slice(None)), get_column_names(ordered))
    noise = msgspec.structs.replace(spec.noise, scale=scale.numbers)
    if train.digest == dataset.digest:
        text = f"{dataset.name} itself: it has no other part to train with"
    else:
        text = f"the training part of {dataset.name}"
    return msgspec.structs.replace(spec, noise=noise), text


def settle_grid(spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
    """The spec with the grid of its noise: the requested one, or what the data states or shows; and for float32 why.

    An InputError where the data does not lie on the grid that was requested.
    """
    found = _find_grid(spec, dataset)
    return msgspec.structs.replace(spec, noise=spec.noise.settle(found.levels)), found.reason


def _find_grid(spec: RunSpec, dataset: Dataset) -> DetectedGrid:
    requested = spec.noise.grid
    if not spec.noise.kind.sampled and requested is not None:
        levels = EIGHT_BITS if requested == DETECT else int(requested)
        if not spec.noise.rounds:
            _check_lies_on(dataset, levels)
        return DetectedGrid(levels)
    if spec.noise.scale is not None and requested in (DETECT, None):
        return DetectedGrid(None, SCALED_INPUTS)
    if requested is None:
        exact = f"; the {dataset.levels} levels of {dataset.name} would allow exact noise" if dataset.levels else ""
        return DetectedGrid(None, f"it was requested{exact}")
    if requested != DETECT:
        _check_lies_on(dataset, int(requested))
        return DetectedGrid(int(requested))
    if spec.noise.place == FIRST_LAYER:
        return DetectedGrid(None, "with --noise-at it is drawn in the first layer")
    if dataset.levels is not None:
        return DetectedGrid(dataset.levels)
    if spec.memory is not None:
        return DetectedGrid(None, MEMORY_NEEDS_A_GRID)
    in_unit_range = dataset.input_range is not None and dataset.input_range[0] >= 0 and dataset.input_range[1] <= 1

    def sigmas() -> Sequence[float]:
        return list_likely_levels(load_rule(spec), dataset.inputs([0]))

    return detect_grid(_read_parts(dataset), noise=spec.noise.kind, sigmas=sigmas, in_unit_range=in_unit_range)


def _check_lies_on(dataset: Dataset, levels: int) -> None:
    if dataset.levels == levels:
        return
    for part in _read_parts(dataset):
        try:
            to_grid(part, levels)
        except InputError as error:
            raise DataError(f"{dataset.name} does not lie on --grid {levels}: {error}") from error


def _read_parts(dataset: Dataset) -> Iterator[InputArray]:
    """All inputs, some at a time."""
    for at in range(0, len(dataset), _INPUTS_TOGETHER):
        yield dataset.inputs(range(at, min(at + _INPUTS_TOGETHER, len(dataset))))


@contextmanager
def open_engine(spec: RunSpec, dataset: Dataset) -> Iterator[TallierFactory]:
    """Who draws and counts: the threads of this process, or a cluster."""
    match spec.engine:
        case LocalEngineSpec():
            yield Sampler
        case RayEngineSpec() as ray:
            engine = RayEngine(
                spec.model.place,
                address=ray.address,
                actors=ray.actors,
                cpus_per_actor=ray.cpus_per_actor,
                gpus_per_actor=ray.gpus_per_actor,
                **_model_arguments(spec, dataset),
            )
            with engine:
                yield engine
        case _:
            assert_never(spec.engine)


def build_smoothed(spec: RunSpec, dataset: Dataset, *, tallier: TallierFactory = Sampler) -> SmoothedClassifier:
    """The smoothed classifier of a spec whose grid is settled."""
    scale, is_constant = scale_of(spec.noise), isinstance(spec.sigma, ConstantLevel)
    return SmoothedClassifier(
        load_classifier(spec.model.place, **_model_arguments(spec, dataset)),
        sigma=load_rule(spec),
        sigma_scale=None if scale is None else scale.numbers,
        noise=spec.noise.kind,
        grid=_grid_of(spec.noise),
        evaluations=None if spec.noise.kind.sampled or is_constant else spec.question.n,
        memory=spec.memory,
        seed=spec.seed,
        batch=spec.batch,
        workers=spec.engine.workers if isinstance(spec.engine, LocalEngineSpec) else None,
        input_shape=dataset.input_shape,
        input_range=dataset.input_range,
        shared_noise=spec.noise.shared,
        tallier=tallier,
    )


def _grid_of(noise: NoiseSpec) -> int | str:
    """As `SmoothedClassifier` takes it, which rounds inputs that are split to a grid that is given."""
    if not noise.kind.sampled and not noise.rounds and noise.levels == EIGHT_BITS:
        return DETECT
    return FLOAT if noise.levels is None else noise.levels
