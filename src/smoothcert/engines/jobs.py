"""From the settings a person gives to a run that can be started or resumed."""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from smoothcert.certificates import get_certificate
from smoothcert.certification import check_can_certify, check_can_predict
from smoothcert.data import Dataset, ProgressCallback, load_dataset, parse_input_range
from smoothcert.engines.local import Study
from smoothcert.errors import CorruptRunError, DataError, InputError
from smoothcert.models import load_classifier
from smoothcert.records import RunManifest
from smoothcert.runs.manifest import code_digest, environment
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.smoothed import SmoothedClassifier

Task = Literal["certify", "predict"]
Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to certify or predict, with what, and how. `seed` and `batch` may be left open until the run is made."""

    task: Task
    model: str
    data: str
    sigma: float
    n: int
    alpha: float
    n0: int | None = None
    certificate: str = "gaussian"
    split: str = "test"
    skip: int = 1
    max_inputs: int | None = None
    seed: int | None = None
    batch: int | None = None
    arch: str | None = None
    num_classes: int | None = None
    input_range: str | None = None
    data_root: str | None = None
    device: str = "auto"
    workers: int | None = None

    def check(self) -> None:
        """Refuse what cannot work before anything slow is loaded."""
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"--sigma {self.sigma} must be a positive finite number, in the units of the input")
        if self.skip < 1 or (self.max_inputs is not None and self.max_inputs < 1):
            raise InputError("--skip and --max must be at least 1")
        if (self.batch is not None and self.batch < 1) or (self.workers is not None and self.workers < 1):
            raise InputError("--batch and --workers must be at least 1")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise InputError(f"--seed {self.seed} is outside 0 … 2^64-1")
        if self.task == "certify":
            if self.n0 is None or self.n0 < 1:
                raise InputError(f"--n0 {self.n0} must be at least 1: some samples must choose the class")
            check_can_certify(get_certificate(self.certificate), n=self.n, alpha=self.alpha)
        else:
            check_can_predict(n=self.n, alpha=self.alpha)

    @classmethod
    def of_run(cls, path: Path) -> Self:
        """The job an existing run was made by, with its seed and batch size."""
        manifest = read_manifest(path)
        try:
            stored = dict(manifest.extra["job"])
            known = {field.name for field in dataclasses.fields(cls)}
            job = cls(**{key: value for key, value in stored.items() if key in known})
            return dataclasses.replace(job, seed=manifest.seed, batch=manifest.parameters["batch"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptRunError(f"{path} does not say how it was made ({error}); give all settings again") from error


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
    exists = RunStore.exists(out)
    if exists:
        job = _with_recorded_choices(job, out)
    dataset = load_dataset(
        job.data,
        split=job.split,
        root=None if job.data_root is None else Path(job.data_root),
        input_range=parse_input_range(job.input_range),
        progress=fetching,
    )
    indices = list(range(0, len(dataset), job.skip))[: job.max_inputs]
    smoothed = _smoothed(job, dataset)
    _check_first_input(smoothed, dataset, job)
    if smoothed.batch is None:
        notice("measuring the best batch size …")
    batch = smoothed.tune(dataset.input_shape)
    notice(f"{smoothed.classifier.description}; {smoothed.classifier.backend}, batch {batch}")
    study = Study(smoothed=smoothed, dataset=dataset, n=job.n, alpha=job.alpha, n0=job.n0, certificate=job.certificate)
    manifest = _manifest(job, study)
    with RunStore.resume(out, manifest) if exists else RunStore.create(out, manifest) as store:
        yield PreparedRun(study=study, indices=indices, store=store, finished=len(store.indices()))


def _with_recorded_choices(job: Job, out: Path) -> Job:
    """A seed or batch size that was not asked for is the one the run was begun with."""
    recorded = read_manifest(out)
    return dataclasses.replace(
        job,
        seed=recorded.seed if job.seed is None else job.seed,
        batch=recorded.parameters.get("batch") if job.batch is None else job.batch,
    )


def _smoothed(job: Job, dataset: Dataset) -> SmoothedClassifier:
    classifier = load_classifier(
        job.model,
        num_classes=job.num_classes,
        input_shape=dataset.input_shape,
        device=job.device,
        arch=job.arch,
    )
    return SmoothedClassifier(
        classifier,
        sigma=job.sigma,
        seed=secrets.randbits(63) if job.seed is None else job.seed,
        batch=job.batch,
        workers=job.workers,
        input_shape=dataset.input_shape,
        input_range=dataset.input_range,
    )


def _check_first_input(smoothed: SmoothedClassifier, dataset: Dataset, job: Job) -> None:
    """The model must take the data's shape and know its classes, before hours are spent."""
    try:
        smoothed.check_inputs(dataset.inputs([0]))
    except InputError as error:
        raise DataError(f"{job.data} does not fit {job.model}: {error}") from error
    largest = int(dataset.labels.max())
    if largest >= smoothed.classifier.num_classes:
        raise DataError(
            f"{job.data} has labels up to {largest}, but {job.model} knows only "
            f"{smoothed.classifier.num_classes} classes"
        )


def _manifest(job: Job, study: Study) -> RunManifest:
    classifier, dataset = study.smoothed.classifier, study.dataset
    parameters: dict[str, Any] = {
        "sigma": job.sigma,
        "n": job.n,
        "alpha": job.alpha,
        "skip": job.skip,
        "max": job.max_inputs,
        "split": job.split,
        "batch": study.smoothed.batch,
        "noise": "gaussian float32",
        "independent_noise": True,
    }
    if job.task == "certify":
        parameters |= {"n0": job.n0, "certificate": job.certificate}
    return RunManifest(
        task=job.task,
        parameters=parameters,
        model={
            "digest": classifier.digest,
            "backend": classifier.backend,
            "num_classes": classifier.num_classes,
            "description": classifier.description,
        },
        data={
            "name": dataset.name,
            "digest": dataset.digest,
            "input_shape": list(dataset.input_shape),
            "size": len(dataset),
            "levels": dataset.levels,
        },
        seed=study.smoothed.seed,
        environment=environment(),
        code=code_digest(),
        extra={"job": dataclasses.asdict(job)},
    )
