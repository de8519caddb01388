"""Votes of base classifiers under noise at several levels, for each input of a training: what a selector learns from.

They are estimates to train with, and prove nothing. So they are drawn in float32, a few per input.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.data import Dataset
from smoothcert.errors import CorruptRunError, InterruptedRunError, ManifestMismatchError, ModelError
from smoothcert.files import hold_lock
from smoothcert.models import BaseClassifier, ScoringClassifier
from smoothcert.models.checkpoints import FORMAT_VERSION, read_tensors, write_tensors
from smoothcert.records import ScoreTally, Stage, StreamId, TallyKind
from smoothcert.sampling import SAMPLING_VERSION, Request, Sampler
from smoothcert.sigma.over_data import Done
from smoothcert.training.level_votes import DepthCurve, LevelVotes, choose_spread, estimate_depth, fit_curve

_BATCH = 256
_SAMPLES_AT_ONCE = 20_000
"""Samples of one level that are drawn before the next one: a second or two, after which a stop is noticed."""
_MOST_INPUTS_AT_ONCE = 250
"""Scores are counted in a histogram of a quarter of a megabyte for each input."""
_SECONDS_BETWEEN_STATES = 30.0
_CALIBRATED_ON, _SAMPLES_OF_CALIBRATION = 200, 1000
"""Inputs of a level, and samples of each, by which its depths are calibrated."""


@dataclass(frozen=True, slots=True)
class VotesRequest:
    """What is sampled: `n` votes of each input of `dataset` at each level, of the base classifier of that level.

    classifiers: one for each level. workers: threads; None for one per core.
    """

    dataset: Dataset
    classifiers: Sequence[BaseClassifier]
    levels: tuple[float, ...]
    n: int
    seed: int
    workers: int | None = None

    def to_json(self) -> dict[str, Any]:
        """What votes depend on. Stored votes are used only if it is equal."""
        return {
            "data": self.dataset.digest,
            "models": [classifier.digest for classifier in self.classifiers],
            "levels": list(self.levels),
            "n": self.n,
            "seed": self.seed,
            "sampling": SAMPLING_VERSION,
        }


def sample_level_votes(
    request: VotesRequest,
    store: Path | None,
    *,
    progress: Done | None = None,
    stop: threading.Event | None = None,
) -> LevelVotes:
    """Sample the votes, or read those that `store` holds already and sample the rest.

    store: a file (.safetensors) that is written twice a minute and remains; None to store nothing. progress is called
    with (inputs done, all inputs). When `stop` is set, what was sampled is stored and InterruptedRunError is raised.
    """
    found = _Votes(request, store)
    if store is None or found.is_complete:
        return found.complete(progress, stop)
    with hold_lock(store):
        return _Votes(request, store).complete(progress, stop)


def read_votes_seed(store: Path) -> int | None:
    """The seed of stored votes; None if there are none."""
    return int(_read(store)[-1]["settings"]["seed"]) if store.exists() else None


class _Votes:
    """Votes that become complete. They are sampled in the order of the inputs, all levels of some inputs at a time."""

    def __init__(self, request: VotesRequest, store: Path | None) -> None:
        self._request = request
        self._store = store
        self._votes = np.zeros((len(request.dataset), len(request.levels)), dtype=np.int64)
        self._depths = np.full(self._votes.shape, np.nan)
        self._curves: tuple[DepthCurve | None, ...] | None = None
        self._done = 0
        self._last_save = time.perf_counter()
        if store is not None and store.exists():
            self._restore(store)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be sampled or written."""
        return self._curves is not None and self._done == len(self._votes)

    def complete(self, progress: Done | None, stop: threading.Event | None) -> LevelVotes:
        request, total = self._request, len(self._votes)
        at_once = max(1, min(_MOST_INPUTS_AT_ONCE, _SAMPLES_AT_ONCE // request.n))
        while self._done < total:
            self._sample(slice(self._done, min(self._done + at_once, total)))
            if progress is not None:
                progress(self._done, total)
            self._check_stop(stop)
            if time.perf_counter() - self._last_save > _SECONDS_BETWEEN_STATES:
                self._save()
        if self._curves is None:
            self._curves = tuple(self._calibrate(number) for number in range(len(request.levels)))
            self._save()
        return LevelVotes(self._votes, self._depths, request.levels, request.n, self._curves)

    def _check_stop(self, stop: threading.Event | None) -> None:
        if stop is None or not stop.is_set():
            return
        self._save()
        where = "nothing was stored" if self._store is None else f"the votes so far are in {self._store}"
        raise InterruptedRunError(
            f"stopped while the levels were sampled, after {self._done} of {len(self._votes)} inputs; {where}. Resume "
            "with the same command"
        )

    def _sample(self, rows: slice) -> None:
        request = self._request
        indices = range(rows.start, rows.stop)
        inputs, labels = request.dataset.inputs(rows), request.dataset.labels[rows]
        for number, (classifier, sigma) in enumerate(zip(request.classifiers, request.levels, strict=True)):
            kind = TallyKind.SCORES if _gives_scores(classifier) else TallyKind.VOTES
            stream = StreamId(seed_of_level(request.seed, sigma), 0, Stage.SELECTION)
            requests = [
                Request(row, replace(stream, index=index), sigma, 0, request.n, kind=kind, label=int(labels[row]))
                for row, index in enumerate(indices)
            ]
            tallies = Sampler(classifier, batch=_BATCH, workers=request.workers).tally(inputs, requests)
            self._votes[rows, number] = [
                tally.independent_votes().counts[label] for tally, label in zip(tallies, labels, strict=True)
            ]
            self._depths[rows, number] = [
                estimate_depth(tally) if isinstance(tally, ScoreTally) else math.nan for tally in tallies
            ]
        self._done = rows.stop

    def _calibrate(self, number: int) -> DepthCurve | None:
        """What the depths of a level mean, from more votes of some inputs, in streams of their own."""
        request, depths = self._request, self._depths[:, number]
        known = np.flatnonzero(~np.isnan(depths))
        if len(known) == 0:
            return None
        chosen = known[choose_spread(depths[known], most=_CALIBRATED_ON)]
        sigma, n = request.levels[number], _SAMPLES_OF_CALIBRATION
        stream = StreamId(seed_of_level(request.seed, sigma), 0, Stage.ESTIMATION)
        requests = [Request(row, replace(stream, index=int(index)), sigma, 0, n) for row, index in enumerate(chosen)]
        sampler = Sampler(request.classifiers[number], batch=_BATCH, workers=request.workers)
        tallies = sampler.tally(request.dataset.inputs(chosen), requests)
        labels = request.dataset.labels[chosen]
        votes = [tally.independent_votes().counts[label] for tally, label in zip(tallies, labels, strict=True)]
        return fit_curve(depths[chosen], np.array(votes), n=n)

    def _save(self) -> None:
        if self._store is None:
            return
        document = {"format": FORMAT_VERSION, "settings": self._request.to_json(), "done": self._done}
        tensors = {"votes": self._votes, "depths": self._depths}
        for number, curve in enumerate(self._curves or ()):
            empty = np.zeros(0)
            tensors[f"curve/{number}/depths"] = empty if curve is None else curve.depths
            tensors[f"curve/{number}/quantiles"] = empty if curve is None else curve.quantiles
        write_tensors(self._store, {name: torch.from_numpy(array) for name, array in tensors.items()}, document)
        self._last_save = time.perf_counter()

    def _restore(self, store: Path) -> None:
        tensors, document = _read(store)
        _check_same(document["settings"], self._request.to_json(), store)
        votes, depths, done = tensors["votes"], tensors["depths"], document["done"]
        is_valid = isinstance(done, int) and 0 <= done <= len(self._votes)
        if not is_valid or not votes.shape == depths.shape == self._votes.shape:
            raise CorruptRunError(f"the votes in {store} are damaged; delete the file to sample them again")
        self._votes[:done], self._depths[:done] = votes[:done], depths[:done]
        self._done = done
        if "curve/0/depths" in tensors:
            parts = [[tensors[f"curve/{k}/{name}"] for name in ("depths", "quantiles")] for k in range(votes.shape[1])]
            self._curves = tuple(DepthCurve(*part) if len(part[0]) else None for part in parts)


def _read(store: Path) -> tuple[dict[str, NDArray[Any]], Mapping[str, Any]]:
    try:
        tensors, document = read_tensors(store)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        if document is None:
            raise ModelError(f"{store} was not written by smoothcert selector train")
        types = (arrays["votes"].dtype.name, arrays["depths"].dtype.name)
        if types != ("int64", "float64") or not isinstance(document["settings"]["seed"], int) or "done" not in document:
            raise ModelError(f"{store} holds no votes")
        return arrays, document
    except (ModelError, KeyError, TypeError) as error:
        raise CorruptRunError(f"{store} holds no votes of noise levels ({error}); choose another file") from error


def _gives_scores(classifier: BaseClassifier) -> bool:
    return isinstance(classifier, ScoringClassifier) and classifier.gives_scores


def _check_same(stored: Mapping[str, Any], wanted: Mapping[str, Any], store: Path) -> None:
    differences = [
        f"{name} was {stored.get(name)}, now {wanted.get(name)}"
        for name in sorted({*stored, *wanted})
        if stored.get(name) != wanted.get(name)
    ]
    if differences:
        raise ManifestMismatchError(
            f"{store} holds votes that were sampled otherwise: {'; '.join(differences)}. Name another file for the "
            "votes, or use the old settings"
        )


def seed_of_level(seed: int, sigma: float) -> int:
    """Levels share no stream."""
    return int.from_bytes(hashlib.sha256(f"smoothcert selector {seed} {sigma!r}".encode()).digest()[:16], "big")
