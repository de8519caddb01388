"""Making a run from a RunSpec: everything is loaded and checked, the store opened, and shard after shard stored."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from smoothcert.cluster.ray_cluster import check_ray_is_installed
from smoothcert.cluster.ray_engine import RayEngine
from smoothcert.data import Dataset, ProgressCallback
from smoothcert.data.matching import get_feature_names, has_text_labels, list_class_names, reads_files
from smoothcert.data.read_ahead import ReadAhead
from smoothcert.errors import DataError, InputError, InterruptedRunError, ModelMismatchError
from smoothcert.models.backends import check_backend
from smoothcert.models.base import BaseClassifier, input_dtype_of, is_on_device
from smoothcert.models.half_precision import check_dtype_fits, read_dtype
from smoothcert.models.probe import check_probe, probe
from smoothcert.models.tabular_names import get_class_names
from smoothcert.noise import check_sigma
from smoothcert.noise.self_test import check_noise
from smoothcert.pipeline import Check
from smoothcert.progress_display import SamplingCount, count_inputs
from smoothcert.questions import Inquiry, check_predict_is_possible, check_question
from smoothcert.records import CertifiedPoint, InputArray
from smoothcert.records.class_names import clip_name
from smoothcert.runs.building import (
    NamedParts,
    RunParts,
    load_rule,
    match_to_model,
    match_to_run,
    name_own_code,
    portfolio_of,
)
from smoothcert.runs.manifest import state_environment
from smoothcert.runs.resumption import (
    check_has_promises,
    check_key_is_known,
    check_memory_exists,
    check_promises_are_kept,
    take_recorded_choices,
    with_absolute_places,
)
from smoothcert.runs.rigorous import make_rigorous_check
from smoothcert.runs.run_database import check_can_create_run
from smoothcert.runs.run_description import make_manifest
from smoothcert.runs.scales import check_scale
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.runs.trained_splitting import describe_other_splitting
from smoothcert.sampling import Sampler
from smoothcert.sampling.given_inputs import check_envelope
from smoothcert.sampling.inputs import InputSource
from smoothcert.sampling.sampler import Progress
from smoothcert.sigma import OptimisedRule
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import (
    ConstantLevel,
    DataFacts,
    EveryEvaluation,
    FixedN,
    OptimisedLevel,
    RayEngineSpec,
    RuleLevel,
    RunManifest,
    RunSpec,
    decode_part,
    to_json,
)

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run whose store is open for writing. inquiry: None for a prediction. finished: inputs that were there before.

    check: raises for points that must not be stored.
    """

    spec: RunSpec
    smoothed: SmoothedClassifier
    dataset: Dataset
    inquiry: Inquiry | None
    indices: list[int]
    store: RunStore
    finished: int
    check: Check | None = None

    @property
    def samples_per_input(self) -> int:
        """The most samples one input takes."""
        return self.spec.question.n + self.spec.question.n0

    @property
    def least_samples_per_input(self) -> int:
        """The least samples one input takes."""
        n = self.spec.question.n if self.inquiry is None else self.inquiry.least_samples
        return n + self.spec.question.n0

    def count(self) -> SamplingCount:
        """How far the run is, for a display."""
        certify = self.inquiry is not None
        count = count_inputs(len(self.indices), self.spec.question, certify=certify, done=self.finished)
        for point in self.store.points(with_tallies=False) if self.finished else ():
            count.add_answer(point)
        return count


def check_spec(spec: RunSpec) -> None:
    """Refuse what cannot work before anything slow is loaded."""
    counts = {
        "skip": spec.data.skip,
        "max": spec.data.max_inputs,
        "batch": spec.batch,
        "workers": getattr(spec.engine, "workers", None),
        "actors": getattr(spec.engine, "actors", None),
    }
    for name, value in counts.items():
        if value is not None and value < 1:
            raise InputError(f"--{name} {value} must be at least 1")
    if spec.seed is not None and not 0 <= spec.seed < 2**128:
        raise InputError(f"--seed {spec.seed} is outside 0 … 2^128-1")
    if isinstance(spec.sigma, ConstantLevel):
        check_sigma(spec.sigma.level)
    check_scale(spec)
    if isinstance(spec.sigma, OptimisedLevel):
        load_rule(spec)
    check_backend(spec.model.backend)
    check_dtype_fits(read_dtype(spec.model.precision), backend=spec.model.backend, noise_at=spec.noise.place)
    if isinstance(spec.engine, RayEngineSpec):
        check_ray_is_installed()
        if spec.model.device not in ("auto", "cpu") and not spec.engine.gpus_per_actor:
            raise InputError(
                f"--device {spec.model.device} needs --gpus-per-actor: an actor has no GPU unless it requests one"
            )
    if spec.task == "predict" and spec.noise.kind.sampled:
        check_predict_is_possible(n=spec.question.n, alpha=spec.alpha)
    elif spec.task != "predict":
        check_question(spec.question, portfolio_of(spec), alpha=spec.alpha)


def _normalise(spec: RunSpec) -> RunSpec:
    """The spec as its manifest will be read back; an InputError that names the field if it could not be."""
    try:
        spec = decode_part(to_json(spec), RunSpec)
    except (TypeError, ValueError) as error:
        with contextlib.suppress(AttributeError, TypeError):
            check_spec(spec)  # names the option, if a value is only out of range
        raise InputError(f"the RunSpec is invalid: {error}") from error
    if spec.task == "recertify":
        raise InputError("a recertified run is made from another run, by `recertify_run`, not by sampling")
    plain = (FixedN(n=spec.question.n), EveryEvaluation(n=spec.question.n))
    if spec.task == "predict" and (spec.certificates or spec.question not in plain):
        raise InputError("a prediction has a fixed n without n0, and no certificates: FixedN(n=…)")
    return spec


@contextlib.contextmanager
def prepare_run(
    spec: RunSpec,
    out: Path,
    *,
    notice: Notice = lambda _: None,
    fetching: ProgressCallback | None = None,
    parts: RunParts | None = None,
) -> Iterator[PreparedRun]:
    """Load everything, then create the run, or resume it if `out` contains one with the same spec.

    notice: receives messages about what is being done. fetching: receives the progress of a download. parts: dataset
    and classifier; by default they are loaded from the places in the spec.
    """
    parts = NamedParts(fetching) if parts is None else parts
    spec = name_own_code(_normalise(spec))
    check_spec(spec)
    if spec.task == "certify":
        portfolio = portfolio_of(spec)
        names = tuple(one.name for one in portfolio.certificates)
        spec = msgspec.structs.replace(spec, certificates=names, best_of=portfolio.best_of)
    exists = RunStore.exists(out)
    if exists:
        spec = take_recorded_choices(spec, read_manifest(out))
        if spec.memory is not None:
            check_memory_exists(spec.memory, out)
    else:
        check_can_create_run(out)
    dataset = parts.load_data(spec)
    spec, measured = parts.settle_scale(spec, dataset)
    if measured:
        notice(f"features are scaled by their standard deviations in {measured}")
    spec, why_float = parts.settle(spec, dataset)
    if spec.noise.levels is None:
        notice(f"noise is added in float32, and certificates treat it as ideal noise: {why_float}")
    with parts.open_smoothed(spec, dataset) as smoothed:
        dataset = match_to_run(dataset, read_manifest(out)) if exists else match_to_model(dataset, smoothed.classifier)
        inquiry = _check_fits(spec, smoothed, dataset)
        smoothed.checks.check_unchanged()  # before a memory or a run says what this model answers
        indices = spec.data.list_indices(len(dataset))
        check_envelope(smoothed, _read_source(dataset, indices, smoothed))
        _check_memory(spec, smoothed, out, exists=exists)
        smoothed.tune(dataset.input_shape, samples=len(indices) * (spec.question.n + spec.question.n0))
        _check_noise(spec, smoothed, dataset)
        for message in _describe(spec, smoothed, dataset):
            notice(message)
        smoothed.open_memory()
        manifest = _make_manifest(spec, smoothed, dataset, inputs=len(indices))
        begin = RunStore.resume if exists else RunStore.create
        with begin(out, manifest, files=parts.list_files(spec)) as store:
            if exists:
                _note_other_versions(store.manifest, manifest, notice)
                check_probe(store.manifest.model.probe, smoothed.classifier, dataset.input_shape, of=str(out))
            if smoothed.memory is not None:
                check_promises_are_kept(smoothed.memory, store)
                memory = smoothed.memory
                notice(f"memory {memory.location}: {len(memory)} promised regions, key {memory.key.digest[:12]}")
            check = make_rigorous_check(manifest) if spec.rigorous and inquiry is not None else None
            yield PreparedRun(spec, smoothed, dataset, inquiry, indices, store, len(store.indices()), check)


def _check_fits(spec: RunSpec, smoothed: SmoothedClassifier, dataset: Dataset) -> Inquiry | None:
    """The model must take the shape of the data and know its classes, and the question must be possible."""
    try:
        first = smoothed.check_inputs(dataset.inputs([0]))
    except InputError as error:
        raise DataError(f"{spec.data.place} does not fit {spec.model.place}: {error}") from error
    rule = smoothed.rule  # a search that cannot work with this model says so here; it is not the data's fault
    try:
        # What a search finds lies within its bounds, and finding it takes long.
        if not isinstance(rule, OptimisedRule):
            smoothed.sigmas(first, [0])
    except InputError as error:
        raise DataError(f"{spec.data.place} does not fit {_name_sigma(spec)}: {error}") from error
    check_labels(spec.data.place, dataset, spec.model.place, smoothed.classifier)
    if spec.task == "predict":
        smoothed.prediction(n=spec.question.n, alpha=spec.alpha)
        return None
    return smoothed.inquiry(spec.question, portfolio_of(spec), alpha=spec.alpha)


def check_labels(data: str, dataset: Dataset, model: str, classifier: BaseClassifier) -> None:
    """Refuse labels that the model does not know. data, model: the names of both."""
    largest, known = int(dataset.labels.max()), classifier.num_classes
    if largest >= known:
        raise DataError(f"{data} has labels up to {largest}, but {model} knows only {known} classes")


def _name_sigma(spec: RunSpec) -> str:
    match spec.sigma:
        case ConstantLevel(level=level):
            return str(level)
        case RuleLevel(place=place):
            return place
        case OptimisedLevel(start=start):
            return f"optimised sigma from {start}"


def _check_memory(spec: RunSpec, smoothed: SmoothedClassifier, out: Path, *, exists: bool) -> None:
    if spec.memory is None:
        return
    if exists:
        check_key_is_known(smoothed.memory_key, spec.memory, out)
    elif spec.task == "predict":
        check_has_promises(smoothed.memory_key, spec.memory)


def _check_noise(spec: RunSpec, smoothed: SmoothedClassifier, dataset: Dataset) -> None:
    """Test the noise generators at a level of this run, on the host and where the model is."""
    sigma = spec.sigma
    if isinstance(sigma, ConstantLevel):
        level = sigma.level
    elif isinstance(sigma, OptimisedLevel):
        level = sigma.start
    else:
        level = smoothed.sigmas(smoothed.check_inputs(dataset.inputs([0])), [0])[0]
    check_noise(smoothed.noise, sigma=level, levels=smoothed.grid)
    if is_on_device(classifier := smoothed.classifier):
        from smoothcert.noise.device_test import check_on_device

        where = classifier.device, input_dtype_of(classifier)
        check_on_device(*where, noise=smoothed.noise, sigma=level, levels=smoothed.grid)


def _describe(spec: RunSpec, smoothed: SmoothedClassifier, dataset: Dataset) -> Iterator[str]:
    """What a user should know before sampling starts."""
    classifier, batch = smoothed.classifier, smoothed.known_batch()
    if isinstance(smoothed.tallier, RayEngine):
        workers = f"{smoothed.tallier.actors} actors on Ray"
    else:
        workers = f"workers {Sampler(classifier, batch=batch, workers=smoothed.workers).workers}"
    yield f"{classifier.description}; {classifier.backend}, batch {batch}, {workers}"
    if reason := getattr(classifier, "as_given", ""):
        yield f"the model runs as it was given, not as a fused graph: {reason}"
    if has_text_labels(dataset) and not get_class_names(classifier):
        classes = ", ".join(f"{place} {clip_name(name)}" for place, name in enumerate(dataset.class_names[:10]))
        yield f"the model does not name its classes; the labels of {dataset.name} are numbered in order: {classes}"
    level = spec.sigma.level if isinstance(spec.sigma, ConstantLevel) else None
    if not spec.noise.kind.sampled:
        rounded = ", to which they are rounded" if spec.noise.rounds else ""
        yield (
            f"{spec.question.n} evaluations of each input on a grid of {smoothed.grid} levels{rounded}; offsets by "
            f"seed {smoothed.seed}, a part of the classifier. Nothing is sampled"
        )
        if other := describe_other_splitting(spec, smoothed):
            yield other
    elif smoothed.grid is not None and level is not None and level * (smoothed.grid - 1) < 1:
        yield (
            f"the levels of {dataset.name} are {1 / (smoothed.grid - 1):.3g} apart, more than sigma: most values stay "
            "as they are; --noise float would move them all"
        )
    if spec.task == "predict" and smoothed.rule.envelope is None and spec.memory is None:
        yield "no --memory: regions that were promised for this sigma are not consulted, and may be contradicted"


def _note_other_versions(stored: RunManifest, now: RunManifest, notice: Notice) -> None:
    changed = [
        f"{name} {stored.environment.get(name, 'none')} → {now.environment.get(name, 'none')}"
        for name in sorted(stored.environment.keys() | now.environment.keys())
        if stored.environment.get(name) != now.environment.get(name)
    ]
    if changed:
        notice(f"the run was begun with other versions: {', '.join(changed)}")


def _make_manifest(spec: RunSpec, smoothed: SmoothedClassifier, dataset: Dataset, *, inputs: int) -> RunManifest:
    ends = dataset.input_range
    data = DataFacts(
        name=dataset.name,
        input_shape=tuple(dataset.input_shape),
        size=len(dataset),
        inputs=inputs,
        levels=dataset.levels,
        input_range=None if ends is None else (float(ends[0]), float(ends[1])),
        feature_names=get_feature_names(dataset),
    )
    manifest = make_manifest(
        with_absolute_places(spec),
        smoothed,
        data,
        data_digest=dataset.digest,
        class_names=list_class_names(dataset, smoothed.classifier.num_classes),
        portfolio=None if spec.task == "predict" else portfolio_of(spec),
        probe=probe(smoothed.classifier, dataset.input_shape),
    )
    return state_environment(manifest)


def execute_run(
    run: PreparedRun,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    on_shard: Callable[[list[CertifiedPoint]], None] | None = None,
) -> None:
    """Store every shard of the run; inputs that the store already holds are skipped.

    stop: when set, the shard in flight is finished and stored, then InterruptedRunError is raised.

    A model that turns out not to be a fixed function, or not to be what was sampled, invalidates the whole run: that is
    stored too, and the ModelError is raised.
    """
    store, indices = run.store, run.indices
    done = frozenset(store.indices())
    remaining = sum(index not in done for index in indices)
    checks = run.smoothed.plan_checks(remaining * run.least_samples_per_input, earlier=store.check_counts())
    source = _read_source(run.dataset, indices, run.smoothed)
    try:
        for points in _shards(run, source, done, progress):
            store.add(points, checks=checks.take_unsaved())
            if on_shard is not None:
                on_shard(points)
            if stop is not None and stop.is_set() and not store.indices().issuperset(indices):
                raise InterruptedRunError(f"stopped on request; every finished input is stored in {store.path}")
        checks.ask_again()
    except ModelMismatchError as error:
        store.add_failure(str(error))
        raise
    finally:
        source.announce(())  # an interrupted run reads no further files


def _shards(
    run: PreparedRun, source: InputSource, done: frozenset[int], progress: Progress | None
) -> Iterator[list[CertifiedPoint]]:
    pipeline = run.smoothed.pipeline(progress)
    if run.inquiry is not None:
        return pipeline.certify(run.inquiry, source, done=done, check=run.check)
    n, alpha = run.spec.question.n, run.spec.alpha
    return pipeline.predict(source, n=n, alpha=alpha, smoothing=run.smoothed.prediction(n=n, alpha=alpha), done=done)


def _read_source(dataset: Dataset, indices: Sequence[int], smoothed: SmoothedClassifier) -> InputSource:
    def read(positions: Sequence[int]) -> InputArray:
        return dataset.inputs([indices[position] for position in positions])

    # Datasets mark an unlabelled input with a negative label.
    labels = [int(label) if label >= 0 else None for label in dataset.labels[list(indices)]]
    if not reads_files(dataset):
        return InputSource(indices, labels, load=lambda positions: smoothed.check_inputs(read(positions)))
    reader = ReadAhead(read)
    return InputSource(
        indices, labels, load=lambda positions: smoothed.check_inputs(reader(positions)), announce=reader.announce
    )
