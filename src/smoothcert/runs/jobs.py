"""From the settings a person gives to a run that can be started or resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_type_hints

import numpy as np

from smoothcert.certificates import Portfolio, get_portfolio
from smoothcert.cluster.ray_cluster import check_ray_is_installed
from smoothcert.cluster.ray_engine import RayEngine
from smoothcert.data import (
    Dataset,
    ProgressCallback,
    list_datasets,
    load_dataset,
    parse_input_range,
    parse_shape,
)
from smoothcert.errors import CorruptRunError, DataError, InputError, RunError
from smoothcert.memory import lasting_name
from smoothcert.models import NOISE_AT, load_classifier, parse_standardisation
from smoothcert.models.backends import FASTEST, check_backend, named_backend, recorded_backend
from smoothcert.models.probe import check_probe, probe
from smoothcert.noise import (
    DETECT,
    FLOAT,
    GRID_GENERATOR,
    DetectedGrid,
    as_noise,
    asked_grid,
    check_sigma,
    detect_grid,
    to_grid,
)
from smoothcert.noise.self_test import check_noise
from smoothcert.own_code import is_own_code
from smoothcert.questions import Question, parse_question
from smoothcert.questions.answers import check_can_ask, spent_on
from smoothcert.questions.certification import alpha_split, check_can_certify, check_can_predict
from smoothcert.records import InputArray, Noise, RunManifest, noise_in_words
from smoothcert.runs.loop import Study
from smoothcert.runs.manifest import code_digest, environment
from smoothcert.runs.promised_regions import (
    check_key_is_known,
    check_memory_is_there,
    check_promises_are_kept,
    check_there_are_promises,
    memory_notice,
)
from smoothcert.runs.rigorous import rigorous_check
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sampling import Sampler
from smoothcert.sigma import Ascent, OptimisedRule, OptimisedSigma, SigmaRule, load_sigma, parse_search
from smoothcert.smoothed import (
    MEMORY_NEEDS_A_GRID,
    SmoothedClassifier,
    TallierFactory,
    likely_sigmas,
)

SIGMA_RULE = "sigma.safetensors"
"""The copy of the rule for sigma in the directory of a run."""

OPTIMISED = "optimised"
"""The name of the rule that looks for the best sigma of every input …"""
OPTIMISED_TWO_CLASS = "optimised-two-class"
"""… and of the one that looks for the best sigma of a two-class certificate."""

LOCAL, RAY = "local", "ray"
"""The engines …"""
_OF_LOCAL, _OF_RAY = ("workers",), ("address", "actors", "cpus_per_actor", "gpus_per_actor")
"""… and the settings that each has alone."""

_FLOAT_SUFFIX = "-float"
"""Behind the kind of noise, asks for that kind in float32 also where the data lies on a grid, as "float" does alone."""
_INPUTS_TOGETHER = 256
"""Inputs that are looked at together for the grid that a dataset lies on."""

Task = Literal["certify", "predict"]
Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to certify or predict, with what, and how. `seed` and `batch` may be left open until the run is made.

    The noise level is `sigma`, or that of every input by `sigma_rule`, a file or package.module:attribute; or the rule
    is "optimised", and `sigma` is where its `search` begins, within `sigma_range`. memory: a path or a URL.
    noise: gaussian or uniform, in exact steps of the grid that the data lies on, where it does; or float or
    uniform-float. grid: "detect", the default, takes the levels that the data has or, where it does not say, those that
    all its values are found to lie on; a number of levels asks for these, and "float" for none.
    certificate: by default gaussian or uniform-l1, or envelope where sigma varies and there is no memory.
    decide, precision: what is asked of every input, if sampling is to stop when it is answered; radii such as 0.25,0.5.
    backend: what computes a torch model: torch, the default, onnxruntime, or fastest, by a measurement.
    rigorous: confirm every result in ball arithmetic before it is stored.
    engine: "local", the default, with `workers` threads; or "ray", with `actors` on the cluster at `address`.
    """

    task: Task
    model: str
    data: str
    n: int
    alpha: float
    sigma: float | None = None
    sigma_rule: str | None = None
    noise: str = Noise.GAUSSIAN.value
    grid: str = DETECT
    search: str | None = None
    sigma_range: str | None = None
    memory: str | None = None
    n0: int | None = None
    certificate: str | None = None
    decide: str | None = None
    precision: float | None = None
    split: str = "test"
    skip: int = 1
    max_inputs: int | None = None
    seed: int | None = None
    batch: int | None = None
    arch: str | None = None
    standardise: str | None = None
    num_classes: int | None = None
    input_range: str | None = None
    input_shape: str | None = None
    data_root: str | None = None
    device: str = "auto"
    backend: str | None = None
    noise_at: str = NOISE_AT[0]
    shared_noise: bool = False
    rigorous: bool = False
    workers: int | None = None
    engine: str | None = None
    address: str | None = None
    actors: int | None = None
    cpus_per_actor: float | None = None
    gpus_per_actor: float | None = None

    def check(self) -> None:
        """Refuse what cannot work before anything slow is loaded."""
        _ = self.noise_kind
        self._check_grid()
        if self.sigma is not None:
            check_sigma(self.sigma)
        self._check_rule()
        self._check_engine()
        check_backend(self.backend)
        at_least_one = {
            "skip": self.skip,
            "max": self.max_inputs,
            "batch": self.batch,
            "workers": self.workers,
            "actors": self.actors,
        }
        for name, value in at_least_one.items():
            if value is not None and value < 1:
                raise InputError(f"--{name} {value} must be at least 1")
        if self.seed is not None and not 0 <= self.seed < 2**128:
            raise InputError(f"--seed {self.seed} is outside 0 … 2^128-1")
        if self.question is not None:
            check_can_ask(self.question, self.portfolio, n=self.n, alpha=self.alpha, n0=self.n0)
        elif self.task == "certify":
            check_can_certify(self.portfolio, n=self.n, alpha=self.alpha, n0=self.n0)
        else:
            check_can_predict(n=self.n, alpha=self.alpha)

    def _check_grid(self) -> None:
        if self.asked_grid not in (DETECT, FLOAT) and self.asks_for_float:
            raise InputError(f"--noise {self.noise} is noise in float32, and --grid {self.grid} asks for exact steps")

    @property
    def asked_grid(self) -> int | str:
        """Levels, "detect" or "float"."""
        try:
            return asked_grid(int(self.grid) if self.grid.isdecimal() else self.grid)
        except InputError as error:
            raise InputError(
                f"--grid {self.grid} cannot be used: give {DETECT}, {FLOAT} or a number of levels"
            ) from error

    @property
    def asks_for_float(self) -> bool:
        """Whether the name of the noise does, whatever is said of the grid."""
        return self.noise == FLOAT or self.noise.endswith(_FLOAT_SUFFIX)

    def _check_rule(self) -> None:
        if self.optimised:
            self.optimised_sigma()
            return
        for option, given in (("--search", self.search), ("--sigma-range", self.sigma_range)):
            if given is not None:
                raise InputError(f"{option} is about the search for the best sigma: it needs --sigma-rule {OPTIMISED}")
        if self.sigma_rule is not None and self.sigma_rule.startswith("optimi"):
            raise InputError(f"there is no rule {self.sigma_rule!r}: use {OPTIMISED} or {OPTIMISED_TWO_CLASS}")
        if (self.sigma is None) == (self.sigma_rule is None):
            raise InputError(
                "give either --sigma, one level for all inputs, or --sigma-rule, which has its own for each"
            )

    def _check_engine(self) -> None:
        if self.engine not in (None, LOCAL, RAY):
            raise InputError(f"--engine {self.engine} is unknown: use {LOCAL} or {RAY}")
        given = [name for name in (_OF_RAY if self.engine != RAY else _OF_LOCAL) if getattr(self, name) is not None]
        if given and self.engine != RAY:
            raise InputError(f"--{given[0].replace('_', '-')} is about a cluster: it needs --engine {RAY}")
        if given:
            raise InputError(f"--workers are threads of this process; with --engine {RAY} give --actors")
        if self.engine == RAY:
            check_ray_is_installed()
            if self.device not in ("auto", "cpu") and not self.gpus_per_actor:
                raise InputError(f"--device {self.device} needs --gpus-per-actor: an actor has no GPU unless it asks")

    @property
    def model_device(self) -> str:
        """Where the model is asked; on a cluster, what an actor has, whatever this machine has."""
        if self.engine != RAY or self.device != "auto":
            return self.device
        return "cuda" if self.gpus_per_actor else "cpu"

    @property
    def noise_kind(self) -> Noise:
        """What is added, whether on a grid or in float32."""
        if self.noise == FLOAT:
            return Noise.GAUSSIAN
        try:
            return as_noise(self.noise.removesuffix(_FLOAT_SUFFIX))
        except InputError as error:
            known = (*Noise, FLOAT, f"{Noise.UNIFORM}{_FLOAT_SUFFIX}")
            raise InputError(f"there is no noise {self.noise!r}: use {', '.join(known)}") from error

    @property
    def optimised(self) -> bool:
        return self.sigma_rule in (OPTIMISED, OPTIMISED_TWO_CLASS)

    def optimised_sigma(self) -> OptimisedSigma:
        """The search that the settings describe."""
        if self.sigma is None:
            raise InputError(
                f"--sigma-rule {self.sigma_rule} also needs --sigma, where the search begins: the level the model was "
                "trained with"
            )
        least, most = _parse_range(self.sigma_range)
        search = parse_search(Ascent.name if self.search is None else self.search)
        return OptimisedSigma(
            self.sigma,
            search=search,
            least=least,
            most=most,
            noise=self.noise_kind,
            two_class=self.sigma_rule == OPTIMISED_TWO_CLASS,
        )

    @property
    def question(self) -> Question | None:
        """What is asked of every input; None where each gets n samples."""
        return parse_question(decide=self.decide, precision=self.precision)

    @property
    def portfolio(self) -> Portfolio:
        """The certificates asked for, or the usual one."""
        constant = self.sigma_rule is None or self.memory is not None
        usual = self.noise_kind.usual_certificate(constant_sigma=constant)
        return get_portfolio(usual if self.certificate is None else self.certificate)

    def located(self) -> Self:
        """The same job with its files named from the root, so that it can be resumed from another folder."""
        places = {
            "model": self.model,
            "data": self.data,
            "data_root": self.data_root,
            "sigma_rule": self.sigma_rule,
        }
        if self.data in {info.entry.name for info in list_datasets()}:
            del places["data"]  # a name, even where a folder of that name lies around
        if self.optimised:
            del places["sigma_rule"]
        found: dict[str, Any] = {
            key: str(Path(place).resolve()) for key, place in places.items() if place and Path(place).exists()
        }
        if self.memory is not None:
            # A password is never written down: give it again, or keep it where the server's own clients look for it.
            found["memory"] = lasting_name(self.memory)
        return dataclasses.replace(self, **found)

    @classmethod
    def of_run(cls, path: Path, *, task: Task, **moved: str | float | None) -> Self:
        """The job an existing run was made by, with its seed and batch size.

        moved: where model or data lie now, or another device, engine or number of workers; the manifest is still
        compared.
        """
        manifest = read_manifest(path)
        if manifest.task != task:
            raise RunError(f"{path} is a {manifest.task} run: it cannot be gone on with by {task}")
        stored = manifest.extra.get("job")
        hints = get_type_hints(cls)
        fields = {key: value for key, value in stored.items() if key in hints} if isinstance(stored, dict) else {}
        if not all(key == "task" or isinstance(value, hints[key]) for key, value in fields.items()):
            raise CorruptRunError(f"{path} does not say how it was made: a setting in its manifest has the wrong type")
        try:
            job = cls(**fields)
        except TypeError as error:
            raise CorruptRunError(f"{path} does not say how it was made: {error}") from error
        changed: dict[str, Any] = {key: value for key, value in moved.items() if value is not None}
        if changed.get("engine") not in (None, job.engine or LOCAL):
            changed = dict.fromkeys(_OF_LOCAL + _OF_RAY) | changed  # what was said of the other engine
        recorded: dict[str, Any] = {"task": task, "seed": manifest.seed, "batch": manifest.parameters.get("batch")}
        recorded["backend"] = recorded_backend(manifest.model.get("backend"))
        recorded["grid"] = _recorded_grid(manifest)
        if (path / SIGMA_RULE).exists():
            recorded["sigma_rule"] = str(path / SIGMA_RULE)
        return dataclasses.replace(job, **recorded, **changed)


def _recorded_grid(manifest: RunManifest) -> str:
    """The grid that a run was begun with, as a setting; it may have been begun when all noise was float32."""
    grid = manifest.parameters.get("grid")
    if grid is not None and type(grid) is not int:
        raise CorruptRunError(f"the run was made with noise on a grid of {grid!r} levels, which makes no sense")
    return FLOAT if grid is None else str(grid)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run whose store is open for writing; `finished` inputs were there before."""

    study: Study
    indices: list[int]
    store: RunStore
    finished: int


@contextmanager
def prepare(
    job: Job, out: Path, *, notice: Notice = lambda _: None, fetching: ProgressCallback | None = None
) -> Iterator[PreparedRun]:
    """Load everything, then create the run, or resume it if `out` holds one with the same manifest.

    notice hears what is being done; fetching hears how far the download of a dataset is.
    """
    job.check()
    if job.task == "certify":
        job = dataclasses.replace(job, certificate=str(job.portfolio))
    exists = RunStore.exists(out)
    if exists:
        job = _with_recorded_choices(job, out)
        if job.memory is not None:
            check_memory_is_there(job.memory, out)
    else:
        RunStore.check_can_create(out)
    dataset = dataset_for(job, fetching=fetching)
    job = _with_settled_backend(job, dataset)
    found = noise_grid(job, dataset)
    if not job.asks_for_float:
        job = dataclasses.replace(job, grid=FLOAT if found.levels is None else str(found.levels))
    with _tallier_for(job, dataset) as tallier, smoothed_for(job, dataset, tallier=tallier) as smoothed:
        if found.levels is None:
            notice(_float_notice(found))
        yield from _prepared(job, out, smoothed, dataset, tallier, exists=exists, notice=notice)


def _prepared(
    job: Job,
    out: Path,
    smoothed: SmoothedClassifier,
    dataset: Dataset,
    tallier: TallierFactory,
    *,
    exists: bool,
    notice: Notice,
) -> Iterator[PreparedRun]:
    indices = list(range(0, len(dataset), job.skip))[: job.max_inputs]
    _check_first_input(smoothed, dataset, job)
    if job.question is not None:
        size = int(np.prod(dataset.input_shape))
        smoothed.inquiry(job.question, job.portfolio, n=job.n, alpha=job.alpha, size=size)
    elif job.task == "certify":
        size = int(np.prod(dataset.input_shape))
        check_can_certify(job.portfolio, n=job.n, alpha=job.alpha, num_classes=smoothed.classifier.num_classes)
        smoothed.smoothing(job.portfolio, size=size)
        smoothed.inputs_at_once(job.portfolio, n=job.n, size=size)
    if job.memory is not None and exists:
        check_key_is_known(smoothed.memory_key, job.memory, out)
    elif job.memory is not None and job.task == "predict":
        check_there_are_promises(smoothed.memory_key, job.memory)
    batch = smoothed.tune(dataset.input_shape, samples=len(indices) * (job.n + (job.n0 or 0)))
    hands = _hands(smoothed, tallier, batch=batch)
    notice(f"{smoothed.classifier.description}; {smoothed.classifier.backend}, batch {batch}, {hands}")
    if reason := getattr(smoothed.classifier, "as_given", ""):
        notice(f"the model runs as it was given, not as a fused graph: {reason}")
    check_noise(smoothed.noise, sigma=_first_sigma(job, smoothed, dataset), levels=smoothed.grid)
    if smoothed.grid is not None and job.sigma is not None and job.sigma * (smoothed.grid - 1) < 1:
        notice(
            f"the levels of {dataset.name} are {1 / (smoothed.grid - 1):.3g} apart, more than sigma: most values stay "
            "as they are; --noise float would move them all"
        )
    if job.task == "predict" and smoothed.rule.envelope is None and job.memory is None:
        notice("no --memory: regions that were promised for this sigma are not consulted, and may be contradicted")
    study = Study(
        smoothed=smoothed,
        dataset=dataset,
        n=job.n,
        alpha=job.alpha,
        n0=job.n0,
        certificate=job.certificate or "",
        question=job.question,
    )
    manifest = _manifest(job, study, inputs=len(indices))
    begin = RunStore.resume if exists else RunStore.create
    with begin(out, manifest, files=_files(job)) as store:
        if exists:
            check_probe(store.manifest.extra.get("probe"), smoothed.classifier, dataset.input_shape, of=str(out))
        if smoothed.memory is not None:
            check_promises_are_kept(smoothed.memory, store)
            notice(memory_notice(smoothed.memory))
        if job.rigorous:
            study = dataclasses.replace(study, check=rigorous_check(manifest))
        yield PreparedRun(study=study, indices=indices, store=store, finished=len(store.indices()))


def _first_sigma(job: Job, smoothed: SmoothedClassifier, dataset: Dataset) -> float:
    """A noise level of the run; of a search, where it begins."""
    if job.sigma is not None:
        return job.sigma
    return smoothed.sigmas(smoothed.check_inputs(dataset.inputs([0])), [0])[0]


def _float_notice(found: DetectedGrid) -> str:
    """Why these certificates are not sound in floating point."""
    return f"noise is added in float32, and certificates take it for the ideal noise: {found.reason}"


def noise_grid(job: Job, dataset: Dataset) -> DetectedGrid:
    """The grid that the noise goes in steps of: what was asked for, or what the data says or shows.

    An InputError where the data does not lie on the grid that was asked for.
    """
    asked = job.asked_grid
    if job.asks_for_float or asked == FLOAT:
        way = f"--noise {job.noise}" if job.asks_for_float else f"--grid {FLOAT}"
        exact = (
            "" if dataset.levels is None else f"; on the {dataset.levels} levels of {dataset.name} it would be exact"
        )
        return DetectedGrid(None, f"{way} asks for it{exact}")
    if asked != DETECT:
        assert isinstance(asked, int)
        _check_lies_on(dataset, asked)
        return DetectedGrid(asked)
    if job.noise_at != NOISE_AT[0]:
        return DetectedGrid(None, "with --noise-at it is drawn behind a layer")
    if dataset.levels is not None:
        return DetectedGrid(dataset.levels)
    if job.memory is not None:
        return DetectedGrid(None, MEMORY_NEEDS_A_GRID)
    ranged = dataset.input_range is not None and dataset.input_range[0] >= 0 and dataset.input_range[1] <= 1
    return detect_grid(
        _parts(dataset), noise=job.noise_kind, sigmas=lambda: _first_sigmas(job, dataset), in_unit_range=ranged
    )


def _first_sigmas(job: Job, dataset: Dataset) -> Sequence[float]:
    """Noise levels to expect, before the model is there."""
    sigma = _sigma(job)
    return (sigma,) if isinstance(sigma, int | float) else likely_sigmas(sigma, dataset.inputs([0]))


def _check_lies_on(dataset: Dataset, levels: int) -> None:
    if dataset.levels == levels:
        return
    for part in _parts(dataset):
        try:
            to_grid(part, levels)
        except InputError as error:
            raise DataError(f"{dataset.name} does not lie on --grid {levels}: {error}") from error


def _parts(dataset: Dataset) -> Iterator[InputArray]:
    """All inputs, some at a time."""
    for at in range(0, len(dataset), _INPUTS_TOGETHER):
        yield dataset.inputs(range(at, min(at + _INPUTS_TOGETHER, len(dataset))))


def _parse_range(text: str | None) -> tuple[float | None, float | None]:
    if text is None:
        return None, None
    try:
        least, most = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--sigma-range {text!r} cannot be read: expected LEAST,MOST, as in 0.1,1.0") from error
    return least, most


def _files(job: Job) -> dict[str, Path]:
    """What is kept with the run: the rule for sigma, if it is a file, so that the run can be gone on with."""
    if job.sigma_rule is None or job.optimised or is_own_code(job.sigma_rule):
        return {}
    return {SIGMA_RULE: Path(job.sigma_rule)}


def _with_recorded_choices(job: Job, out: Path) -> Job:
    """A seed, batch size, back end or grid that was not asked for is the one the run was begun with."""
    recorded = read_manifest(out)
    open_backend = job.backend in (None, FASTEST)
    return dataclasses.replace(
        job,
        seed=recorded.seed if job.seed is None else job.seed,
        batch=recorded.parameters.get("batch") if job.batch is None else job.batch,
        backend=recorded_backend(recorded.model.get("backend")) if open_backend else job.backend,
        grid=_recorded_grid(recorded) if job.grid == DETECT and not job.asks_for_float else job.grid,
        # A run that was begun with it goes on with it.
        rigorous=job.rigorous or _was_rigorous(recorded),
    )


def _was_rigorous(manifest: RunManifest) -> bool:
    stored = manifest.extra.get("job")
    return isinstance(stored, dict) and stored.get("rigorous") is True


def _with_settled_backend(job: Job, dataset: Dataset) -> Job:
    """Measured once, so that the model is the same function wherever it is loaded from now on."""
    if job.backend != FASTEST:
        return job
    classifier = load_classifier(job.model, **_model_arguments(job, dataset))
    return dataclasses.replace(job, backend=named_backend(classifier.backend))


def dataset_for(job: Job, *, fetching: ProgressCallback | None = None) -> Dataset:
    return load_dataset(
        job.data,
        split=job.split,
        root=None if job.data_root is None else Path(job.data_root),
        input_range=parse_input_range(job.input_range),
        input_shape=parse_shape(job.input_shape),
        progress=fetching,
    )


def _model_arguments(job: Job, dataset: Dataset) -> dict[str, Any]:
    """Those of `load_classifier`, here and wherever else the model is loaded."""
    return {
        "num_classes": job.num_classes,
        "input_shape": dataset.input_shape,
        "device": job.model_device,
        "arch": job.arch,
        "standardise": parse_standardisation(job.standardise),
        "noise_at": job.noise_at,
        "backend": job.backend,
    }


@contextmanager
def _tallier_for(job: Job, dataset: Dataset) -> Iterator[TallierFactory]:
    """Who draws and counts: the threads of this process, or a cluster."""
    if job.engine != RAY:
        yield Sampler
        return
    engine = RayEngine(
        job.model,
        address=job.address,
        actors=job.actors,
        cpus_per_actor=1.0 if job.cpus_per_actor is None else job.cpus_per_actor,
        gpus_per_actor=job.gpus_per_actor or 0.0,
        **_model_arguments(job, dataset),
    )
    with engine:
        yield engine


def _hands(smoothed: SmoothedClassifier, tallier: TallierFactory, *, batch: int) -> str:
    """How many do the work."""
    if isinstance(tallier, RayEngine):
        return f"{tallier.actors} actors on Ray"
    return f"workers {Sampler(smoothed.classifier, batch=batch, workers=smoothed.workers).workers}"


def smoothed_for(job: Job, dataset: Dataset, *, tallier: TallierFactory = Sampler) -> SmoothedClassifier:
    # A number of levels was looked at before, over all inputs, and each input is looked at again.
    grid = job.asked_grid if isinstance(job.asked_grid, int) else noise_grid(job, dataset).levels
    return SmoothedClassifier(
        load_classifier(job.model, **_model_arguments(job, dataset)),
        sigma=_sigma(job),
        noise=job.noise_kind,
        grid=FLOAT if grid is None else grid,
        memory=job.memory,
        seed=job.seed,
        batch=job.batch,
        workers=job.workers,
        input_shape=dataset.input_shape,
        input_range=dataset.input_range,
        shared_noise=job.shared_noise,
        tallier=tallier,
    )


def _sigma(job: Job) -> float | SigmaRule | OptimisedSigma:
    if job.optimised:
        return job.optimised_sigma()
    if job.sigma_rule is not None:
        return load_sigma(job.sigma_rule)
    assert job.sigma is not None  # `check` has seen to it
    return job.sigma


def _check_first_input(smoothed: SmoothedClassifier, dataset: Dataset, job: Job) -> None:
    """The model must take the data's shape and know its classes, before hours are spent."""
    try:
        first = smoothed.check_inputs(dataset.inputs([0]))
    except InputError as error:
        raise DataError(f"{job.data} does not fit {job.model}: {error}") from error
    rule = smoothed.rule  # a search that cannot work with this model says so here, and it is not the data's fault
    try:
        # What a search finds lies within its bounds, and finding it takes long.
        if not isinstance(rule, OptimisedRule):
            smoothed.sigmas(first, [0])
    except InputError as error:
        raise DataError(f"{job.data} does not fit {job.sigma_rule or job.sigma}: {error}") from error
    largest = int(dataset.labels.max())
    if largest >= smoothed.classifier.num_classes:
        raise DataError(
            f"{job.data} has labels up to {largest}, but {job.model} knows only "
            f"{smoothed.classifier.num_classes} classes"
        )


def _split(job: Job) -> dict[str, dict[str, float]]:
    """How α is spent, by what is bounded together. It follows from the parameters, and is there to be read."""
    if job.question is not None:
        return spent_on(job.question, job.portfolio, alpha=job.alpha)
    return {} if job.task == "predict" else alpha_split(job.portfolio, alpha=job.alpha)


def _described_noise(job: Job, grid: int | None) -> str:
    """In words, the kind first; a reader must see what is not sound in floating point."""
    place = ", in the first layer" if job.noise_at != NOISE_AT[0] else ""
    return f"{job.noise_kind} {noise_in_words(grid, place=place)}"


def _manifest(job: Job, study: Study, *, inputs: int) -> RunManifest:
    classifier, dataset = study.smoothed.classifier, study.dataset
    rule = study.smoothed.rule
    parameters: dict[str, Any] = {
        "n": job.n,
        "alpha": job.alpha,
        "skip": job.skip,
        "max": job.max_inputs,
        "inputs": inputs,
        "split": job.split,
        "batch": study.smoothed.batch,
        "noise": _described_noise(job, study.smoothed.grid),
        "independent_noise": not job.shared_noise,
    }
    if study.smoothed.grid is not None:
        parameters |= {"grid": study.smoothed.grid, "generator": GRID_GENERATOR}
    if job.sigma_rule is None:
        parameters |= {"sigma": job.sigma}
    else:
        envelope = None if rule.envelope is None else dict(rule.envelope.to_json())
        parameters |= {"sigma_rule": {**rule.to_json(), "digest": rule.digest}, "envelope": envelope}
    if job.task == "certify":
        parameters |= {"n0": job.n0, "certificate": job.certificate}
    if study.question is not None:
        parameters |= study.question.parameters()
    if (memory := study.smoothed.memory) is not None:
        # Not its identity: whether it is the same memory is told by the promises it keeps.
        parameters |= {"memory": memory.key.digest}
    return RunManifest(
        task=job.task,
        parameters=parameters,
        model={
            "digest": classifier.digest,
            "backend": classifier.backend,
            "num_classes": classifier.num_classes,
        },
        data={
            "digest": dataset.digest,
            "input_shape": list(dataset.input_shape),
            "size": len(dataset),
            "levels": dataset.levels,
            "input_range": None if dataset.input_range is None else [float(end) for end in dataset.input_range],
        },
        seed=study.smoothed.seed,
        environment=environment(),
        code=code_digest(),
        extra={
            "job": dataclasses.asdict(job.located()),
            "model": classifier.description,
            "data": dataset.name,
            "alpha_split": _split(job),
            "probe": probe(classifier, dataset.input_shape),
        },
    )
