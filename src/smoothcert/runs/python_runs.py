"""Runs from Python: the run that the command line would make, of a live classifier and arrays.

Inputs, labels and fitted rules are written into the directory of the run. Digests decide whether a model or a rule that
has no place is the same when the run is resumed.
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
from smoothcert.data import Dataset
from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.user_files import RawData, make_dataset
from smoothcert.errors import InputError
from smoothcert.files import Content
from smoothcert.models.backends import FASTEST, get_backend_name
from smoothcert.progress_display import ProgressOption, show_progress
from smoothcert.runs.building import RunParts
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.kept_form import list_labels, to_kept_form
from smoothcert.runs.live_specs import spec_of_classifier
from smoothcert.runs.run_files import INPUTS, SIGMA_RULE
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sampling.inputs import InputSource
from smoothcert.sigma.rule_files import StorableRule, dump_rule
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import DataSpec, QuestionSpec, RunSpec


def make_run(
    smoothed: SmoothedClassifier,
    x: Any,
    *,
    labels: Sequence[int | None] | None,
    question: QuestionSpec,
    portfolio: Portfolio | None,
    alpha: float,
    out: Path,
    progress: ProgressOption,
) -> None:
    """Make or resume the run in `out`. portfolio: None for a prediction.

    An interrupt is raised again after every finished shard was stored.
    """
    if portfolio is not None:
        _check_names(portfolio)
    _take_recorded_backend(smoothed, out)
    dataset = keep_dataset(smoothed.read_source(x, labels, keep_all=True), smoothed, out)
    spec = spec_of_classifier(smoothed, question, alpha=alpha, portfolio=portfolio, out=out)
    execute_live(spec, out, parts=LiveParts(smoothed, dataset), progress=progress)


def execute_live(spec: RunSpec, out: Path, *, parts: RunParts, progress: ProgressOption) -> None:
    """Make or resume a run of objects of this program."""
    with prepare_run(spec, out, parts=parts) as run:
        count = run.count()
        try:
            with show_progress(progress, count) as on_samples:
                execute_run(run, progress=on_samples, on_shard=count.add_points)
        except KeyboardInterrupt as interrupt:
            stored = len(run.store.indices())
            interrupt.add_note(f"{stored} of {len(run.indices)} inputs are stored in {out}; the same call resumes")
            raise


def _check_names(portfolio: Portfolio) -> None:
    for certificate in portfolio.certificates:
        if CERTIFICATES.get(certificate.name) is not certificate:
            raise InputError(
                f"a run names its certificates, and {certificate.name} is not one of smoothcert's: use one of "
                f"{', '.join(CERTIFICATES)}, or leave out= away"
            )


def _take_recorded_backend(smoothed: SmoothedClassifier, out: Path) -> None:
    """The fastest back end is measured once: a resumed run has the one it was begun with."""
    if smoothed.given.adapting["backend"] == FASTEST and RunStore.exists(out):
        smoothed.given.adapting["backend"] = read_manifest(out).spec.model.backend


def keep_dataset(source: InputSource, smoothed: SmoothedClassifier, out: Path) -> ArrayDataset:
    """The dataset that INPUTS will hold."""
    stored = to_kept_form(source.load(range(len(source))), smoothed)
    labels = list_labels(source)
    # With the names the labels are positions among them, here and wherever the file is read.
    known = labels if (labels >= 0).any() else None
    raw = RawData(
        inputs=stored,
        labels=known,
        class_names=smoothed.class_names,
        classes=len(smoothed.class_names),
        feature_names=source.feature_names,
    )
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

    def settle_scale(self, spec: RunSpec, dataset: Dataset) -> tuple[RunSpec, str]:
        return spec, ""

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
        if self.smoothed.class_names:
            arrays["class_names"] = np.array(self.smoothed.class_names)
        if self.dataset.feature_names:
            arrays["feature_names"] = np.array(self.dataset.feature_names)
        np.savez(stream, **cast(Any, arrays))
