"""Executing a prepared run: shard after shard, each stored before the next begins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from smoothcert.data import Dataset
from smoothcert.errors import InterruptedRunError, ModelMismatchError
from smoothcert.records import CertifiedPoint, InputArray
from smoothcert.runs.preparation import PreparedRun
from smoothcert.sampling.inputs import InputSource
from smoothcert.sampling.sampler import Progress
from smoothcert.smoothed import SmoothedClassifier


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
    try:
        for points in _shards(run, done, progress):
            store.add(points, checks=checks.unsaved())
            if on_shard is not None:
                on_shard(points)
            if stop is not None and stop.is_set() and not store.indices().issuperset(indices):
                raise InterruptedRunError(f"stopped on request; every finished input is stored in {store.path}")
        checks.ask_again()
    except ModelMismatchError as error:
        store.add_failure(str(error))
        raise


def _shards(run: PreparedRun, done: frozenset[int], progress: Progress | None) -> Iterator[list[CertifiedPoint]]:
    source = _read_source(run.dataset, run.indices, run.smoothed)
    pipeline = run.smoothed.pipeline(progress)
    if run.inquiry is not None:
        return pipeline.certify(run.inquiry, source, done=done, check=run.check)
    n, alpha = run.spec.question.n, run.spec.alpha
    return pipeline.predict(source, n=n, alpha=alpha, smoothing=run.smoothed.prediction(n=n, alpha=alpha), done=done)


def _read_source(dataset: Dataset, indices: Sequence[int], smoothed: SmoothedClassifier) -> InputSource:
    def load(positions: Sequence[int]) -> InputArray:
        return smoothed.check_inputs(dataset.inputs([indices[position] for position in positions]))

    # Datasets mark an unlabelled input with a negative label.
    labels = [int(label) if label >= 0 else None for label in dataset.labels[list(indices)]]
    return InputSource(indices=indices, labels=labels, load=load)
