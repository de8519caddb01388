"""Running a study in this process: shard after shard, each stored before the next begins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from smoothcert.data import Dataset
from smoothcert.errors import InterruptedRunError, ModelMismatchError
from smoothcert.questions import Question
from smoothcert.questions.questions import looks
from smoothcert.questions.rounds import INPUTS_AT_ONCE
from smoothcert.records import CertifiedPoint
from smoothcert.runs.store import RunStore
from smoothcert.sampling.sampler import Progress
from smoothcert.smoothed import Check, SmoothedClassifier

_PREDICTED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Study:
    """What is done to each input: its settings, and how many samples an input takes in all.

    question: what is asked of every input, where sampling stops when it is answered; then n is the most it takes.
    check: raises for certified points that must not be used.
    """

    smoothed: SmoothedClassifier
    dataset: Dataset
    n: int
    alpha: float
    n0: int | None = None
    certificate: str = ""
    question: Question | None = None
    check: Check | None = None

    @property
    def samples_per_input(self) -> int:
        return self.n + (self.n0 or 0)

    @property
    def least_samples_per_input(self) -> int:
        """What is drawn for an input whose question is answered at the first look."""
        return (self.n if self.question is None else looks(self.n)[0]) + (self.n0 or 0)

    def group_size(self) -> int:
        """Inputs that share their first batches; fixed by the settings, so that resuming repeats the same groups."""
        if self.question is not None:
            return INPUTS_AT_ONCE
        if self.n0 is not None:
            return self.smoothed.group_size(self.n0)
        # Whole shards, and so many that a cluster can begin the next ones before one is done.
        shard = self.smoothed.group_size(self.n)
        return shard * max(1, _PREDICTED_AT_ONCE // shard)

    def shards(
        self, indices: Sequence[int], *, done: frozenset[int], progress: Progress | None
    ) -> Iterator[list[CertifiedPoint]]:
        """Results for one group of inputs, a shard at a time; shards that are `done` are passed over."""
        inputs = self.dataset.inputs(list(indices))
        # Datasets mark an unlabelled input with a negative label.
        known = [int(label) if label >= 0 else None for label in self.dataset.labels[list(indices)]]
        if self.n0 is None:
            return self.smoothed.predict_shards(
                inputs,
                n=self.n,
                alpha=self.alpha,
                labels=known,
                indices=indices,
                done=done,
                progress=progress,
            )
        return self.smoothed.certify_shards(
            inputs, n0=self.n0, n=self.n, alpha=self.alpha, certificate=self.certificate,
            question=self.question, labels=known, indices=indices, done=done, check=self.check, progress=progress,
        )  # fmt: skip


def run_study(
    study: Study,
    indices: Sequence[int],
    store: RunStore,
    *,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
    on_shard: Callable[[list[CertifiedPoint]], None] | None = None,
) -> None:
    """Work through `indices`, storing every shard; what the store already holds is not done again.

    stop: when set, the shard in flight is finished and stored, then InterruptedRunError is raised.

    A model that is found not to be a fixed function, or not to be what was sampled, spoils all of the run: that is
    stored too, and the ModelError raised.
    """
    done = frozenset(store.indices())
    open_inputs = sum(index not in done for index in indices)
    checks = study.smoothed.plan_checks(open_inputs * study.least_samples_per_input, earlier=store.check_counts())
    size = study.group_size()
    try:
        for at in range(0, len(indices), size):
            group = indices[at : at + size]
            if done.issuperset(group):
                continue
            for points in study.shards(group, done=done, progress=progress):
                store.add(points, checks=checks.unsaved())
                if on_shard is not None:
                    on_shard(points)
                if stop is not None and stop.is_set() and not store.indices().issuperset(indices):
                    raise InterruptedRunError(f"stopped on request; every finished input is stored in {store.path}")
        checks.ask_again()
    except ModelMismatchError as error:
        store.add_failure(str(error))
        raise
