"""Runs from Python: the run that the command line would make, of a live classifier and arrays.

What has a place, a model file or named code, keeps it. Inputs, labels and fitted rules are written into the directory
of the run. Other objects are named by a marker that no file has; their digests decide whether they are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import numpy as np

from smoothcert.certificates import CERTIFICATES, Portfolio
from smoothcert.cluster.ray_engine import RayEngine
from smoothcert.data import Dataset
from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.user_files import RawData, make_dataset
from smoothcert.errors import InputError
from smoothcert.files import Content
from smoothcert.memory import RegionMemory
from smoothcert.models.backends import FASTEST, get_backend_name
from smoothcert.noise import to_grid
from smoothcert.progress_display import ProgressOption, show_progress
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.run_files import INPUTS, SIGMA_RULE, place_of_object
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sampling.inputs import InputSource
from smoothcert.sigma import ConstantRule, OptimisedRule, OptimisedSigma
from smoothcert.sigma.rule_files import StorableRule, dump_rule
from smoothcert.sigma.searches import search_settings
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import (
    ConstantLevel,
    DataSpec,
    EngineSpec,
    LocalEngineSpec,
    ModelSpec,
    NoiseSpec,
    OptimisedLevel,
    QuestionSpec,
    RuleLevel,
    RunSpec,
    SigmaSpec,
)

_EIGHT_BITS = 256


def make_run(
    smoothed: SmoothedClassifier,
    x: Any,
    labels: Sequence[int | None] | None,
    question: QuestionSpec,
    out: Path,
    *,
    alpha: float,
    portfolio: Portfolio | None,
    progress: ProgressOption,
) -> None:
    """Make or resume the run in `out`. portfolio: None for a prediction.

    An interrupt is raised again after every finished shard was stored.
    """
    _take_recorded_backend(smoothed, out)
    dataset = _make_dataset(smoothed.read_source(x, labels), smoothed, out)
    spec = spec_of_classifier(smoothed, question, out, alpha=alpha, portfolio=portfolio)
    with prepare_run(spec, out, parts=LiveParts(smoothed, dataset)) as run:
        count = run.count()
        try:
            with show_progress(progress, count) as on_samples:
                execute_run(run, progress=on_samples, on_shard=count.add_points)
        except KeyboardInterrupt as interrupt:
            stored = len(run.store.indices())
            interrupt.add_note(f"{stored} of {len(run.indices)} inputs are stored in {out}; the same call resumes")
            raise


def spec_of_classifier(
    smoothed: SmoothedClassifier, question: QuestionSpec, out: Path, *, alpha: float, portfolio: Portfolio | None
) -> RunSpec:
    """The spec of a run in `out` of this classifier, which has seen the inputs."""
    given = smoothed.given
    return RunSpec(
        task="predict" if portfolio is None else "certify",
        model=ModelSpec(
            place=_place_of_model(given.model),
            num_classes=given.adapting["num_classes"],
            backend=given.adapting["backend"],
            device=given.adapting["device"],
        ),
        data=DataSpec(place=str((out / INPUTS).resolve()), input_range=smoothed.input_range),
        noise=NoiseSpec(kind=smoothed.noise, place=given.adapting["noise_at"], shared=smoothed.shared_noise).settle(
            smoothed.grid
        ),
        sigma=_spec_of_sigma(smoothed, out),
        question=question,
        alpha=alpha,
        certificates=() if portfolio is None else _list_names(portfolio),
        best_of=portfolio is not None and portfolio.best_of,
        memory=_place_of_memory(given.memory),
        seed=given.seed,
        batch=given.batch,
        engine=_spec_of_engine(smoothed),
    )


def _place_of_model(model: object) -> str:
    return str(model) if isinstance(model, str | Path) else place_of_object(f"{type(model).__name__} object")


def _place_of_memory(memory: RegionMemory | str | Path | None) -> str | None:
    if memory is None:
        return None
    return memory.location if isinstance(memory, RegionMemory) else str(memory)


def _spec_of_sigma(smoothed: SmoothedClassifier, out: Path) -> SigmaSpec:
    rule = smoothed.rule
    if isinstance(rule, ConstantRule):
        return ConstantLevel(level=rule.sigma)
    if isinstance(rule, OptimisedRule):
        return _spec_of_search(rule.settings)
    if isinstance(rule, StorableRule):
        return RuleLevel(place=str((out / SIGMA_RULE).resolve()))
    return RuleLevel(place=place_of_object(rule.description))


def _spec_of_search(sigma: OptimisedSigma) -> OptimisedLevel:
    return OptimisedLevel(
        start=sigma.start,
        search=sigma.search.name,
        settings=search_settings(sigma.search),
        least=sigma.least,
        most=sigma.most,
        two_class=sigma.two_class,
    )


def _spec_of_engine(smoothed: SmoothedClassifier) -> EngineSpec:
    if isinstance(smoothed.tallier, RayEngine):
        return smoothed.tallier.settings
    return LocalEngineSpec(workers=smoothed.workers)


def _list_names(portfolio: Portfolio) -> tuple[str, ...]:
    for certificate in portfolio.certificates:
        if CERTIFICATES.get(certificate.name) is not certificate:
            raise InputError(
                f"a run names its certificates, and {certificate.name} is not one of smoothcert's: use one of "
                f"{', '.join(CERTIFICATES)}, or leave out= away"
            )
    return tuple(certificate.name for certificate in portfolio.certificates)


def _take_recorded_backend(smoothed: SmoothedClassifier, out: Path) -> None:
    """The fastest back end is measured once: a resumed run has the one it was begun with."""
    if smoothed.given.adapting["backend"] == FASTEST and RunStore.exists(out):
        smoothed.given.adapting["backend"] = read_manifest(out).spec.model.backend


def _make_dataset(source: InputSource, smoothed: SmoothedClassifier, out: Path) -> ArrayDataset:
    """The dataset that INPUTS will hold: the inputs as they are certified, 8-bit images as bytes."""
    inputs = source.load(range(len(source)))
    stored: Any = inputs
    if smoothed.grid == _EIGHT_BITS and smoothed.input_range is not None and tuple(smoothed.input_range) == (0, 1):
        stored = to_grid(inputs, _EIGHT_BITS).astype(np.uint8).reshape(inputs.shape)
    labels = np.array([-1 if label is None else label for label in source.labels], dtype=np.int64)
    raw = RawData(inputs=stored, labels=labels if (labels >= 0).any() else None)
    return make_dataset(out / INPUTS, raw, split=DataSpec(place="").split, input_range=smoothed.input_range)


@dataclass(frozen=True, slots=True)
class LiveParts:
    """Parts of a run that are objects of this program. The classifier of the run is a copy with the run's seed."""

    smoothed: SmoothedClassifier
    dataset: ArrayDataset

    def load_data(self, spec: RunSpec) -> Dataset:
        return self.dataset

    def settle(self, spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
        if spec.model.backend == FASTEST:
            measured = get_backend_name(self.smoothed.classifier)
            spec = msgspec.structs.replace(spec, model=msgspec.structs.replace(spec.model, backend=measured))
        return spec, "see `SmoothedClassifier.grid`"

    @contextmanager
    def open_smoothed(self, spec: RunSpec, dataset: Dataset) -> Iterator[SmoothedClassifier]:
        # Not closed: the memory belongs to the classifier that was given.
        twin = self.smoothed.derive(seed=spec.seed)
        twin.batch = spec.batch
        yield twin

    def list_files(self, spec: RunSpec) -> Mapping[str, Content]:
        files: dict[str, Content] = {INPUTS: self._write_inputs}
        rule = self.smoothed.rule
        if isinstance(rule, StorableRule):
            files[SIGMA_RULE] = dump_rule(rule)
        return files

    def _write_inputs(self, stream: IO[bytes]) -> None:
        arrays = {"x": self.dataset.stored}
        if (self.dataset.labels >= 0).any():
            arrays["y"] = self.dataset.labels
        np.savez(stream, **cast(Any, arrays))
