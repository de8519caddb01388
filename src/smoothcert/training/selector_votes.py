"""Votes of base classifiers under noise at several levels, for each input of a training: what a selector learns from.

They are estimates to train with, and prove nothing. So they are drawn in float32, a few per input.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from smoothcert.data import Dataset
from smoothcert.errors import CorruptRunError, InterruptedRunError, ManifestMismatchError, ModelError
from smoothcert.files import hold_lock
from smoothcert.models import BaseClassifier
from smoothcert.models.checkpoints import FORMAT_VERSION, read_tensors, write_tensors
from smoothcert.records import FloatArray, IntArray, Stage, StreamId
from smoothcert.sampling import SAMPLING_VERSION, Request, Sampler
from smoothcert.sigma.over_data import Done

_BATCH = 256
_SAMPLES_AT_ONCE = 20_000
"""Samples of one level that are drawn before the next one: a second or two, after which a stop is noticed."""
_SECONDS_BETWEEN_STATES = 30.0


@dataclass(frozen=True, slots=True)
class LevelVotes:
    """votes: (N, K) int64, how many of `n` samples at each level were given the input's label. levels: the K levels."""

    votes: IntArray
    levels: tuple[float, ...]
    n: int

    @property
    def radii(self) -> FloatArray:
        """(N, K): estimated radius within which a level alone answers the label, σ Φ⁻¹(p), 0 where p is at most ½.

        p = (votes + ½)/(n + 1), so that n votes of n mean a finite radius.
        """
        return np.maximum(self._margins, 0.0)

    @property
    def best(self) -> IntArray:
        """(N,): the level of the largest radius; if none has any, that with most votes, the first in a tie."""
        best: IntArray = self._scores.argmax(axis=1).astype(np.int64)
        return best

    def soften(self, softness: float) -> NDArray[np.float32]:
        """(N, K) float32: distributions over the levels, proportional to exp(radius / softness).

        A level whose radius is smaller than the best by much less than `softness` is nearly as probable as the best.
        """
        soft: NDArray[np.float32] = special.softmax(self._scores / softness, axis=1).astype(np.float32)
        return soft

    @property
    def _shares(self) -> FloatArray:
        shares: FloatArray = (self.votes + 0.5) / (self.n + 1)
        return shares

    @property
    def _margins(self) -> FloatArray:
        margins: FloatArray = np.asarray(self.levels) * special.ndtri(self._shares)
        return margins

    @property
    def _scores(self) -> FloatArray:
        """The radii, and below ½ how much is missing: negative numbers, which order the levels by their votes."""
        return np.where(self._shares > 0.5, self._margins, self._shares - 0.5)


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
    if store is None:
        return _Votes(request, None).complete(progress, stop)
    with hold_lock(store):
        return _Votes(request, store).complete(progress, stop)


def read_votes_seed(store: Path) -> int | None:
    """The seed of stored votes; None if there are none."""
    return int(_read(store)[1]["settings"]["seed"]) if store.exists() else None


class _Votes:
    """Votes that become complete. They are sampled in the order of the inputs, all levels of some inputs at a time."""

    def __init__(self, request: VotesRequest, store: Path | None) -> None:
        self._request = request
        self._store = store
        self._votes = np.zeros((len(request.dataset), len(request.levels)), dtype=np.int64)
        self._done = 0
        self._last_save = time.perf_counter()
        if store is not None and store.exists():
            self._restore(store)

    def complete(self, progress: Done | None, stop: threading.Event | None) -> LevelVotes:
        request, total = self._request, len(self._votes)
        at_once = max(1, _SAMPLES_AT_ONCE // request.n)
        begun = self._done
        while self._done < total:
            self._sample(slice(self._done, min(self._done + at_once, total)))
            if progress is not None:
                progress(self._done, total)
            if stop is not None and stop.is_set() and self._done < total:
                self._save()
                where = "nothing was stored" if self._store is None else f"the votes so far are in {self._store}"
                raise InterruptedRunError(
                    f"stopped while the levels were sampled, after {self._done} of {total} inputs; {where}. Resume "
                    "with the same command"
                )
            if time.perf_counter() - self._last_save > _SECONDS_BETWEEN_STATES:
                self._save()
        if self._done > begun:
            self._save()
        return LevelVotes(self._votes, request.levels, request.n)

    def _sample(self, rows: slice) -> None:
        request = self._request
        indices = range(rows.start, rows.stop)
        inputs, labels = request.dataset.inputs(rows), request.dataset.labels[rows]
        for number, (classifier, sigma) in enumerate(zip(request.classifiers, request.levels, strict=True)):
            seed = _seed_of_level(request.seed, sigma)
            requests = [
                Request(row, StreamId(seed, index, Stage.SELECTION), sigma, 0, request.n)
                for row, index in enumerate(indices)
            ]
            tallies = Sampler(classifier, batch=_BATCH, workers=request.workers).tally(inputs, requests)
            self._votes[rows, number] = [
                tally.independent_votes().counts[label] for tally, label in zip(tallies, labels, strict=True)
            ]
        self._done = rows.stop

    def _save(self) -> None:
        if self._store is None:
            return
        document = {"format": FORMAT_VERSION, "settings": self._request.to_json(), "done": self._done}
        write_tensors(self._store, {"votes": torch.from_numpy(self._votes)}, document)
        self._last_save = time.perf_counter()

    def _restore(self, store: Path) -> None:
        votes, document = _read(store)
        _check_same(document["settings"], self._request.to_json(), store)
        done = document["done"]
        is_valid = isinstance(done, int) and 0 <= done <= len(self._votes) and votes.shape == self._votes.shape
        if not is_valid or votes.min(initial=0) < 0 or votes.max(initial=0) > self._request.n:
            raise CorruptRunError(f"the votes in {store} are damaged; delete the file to sample them again")
        self._votes[:done] = votes[:done]
        self._done = done


def _read(store: Path) -> tuple[IntArray, Mapping[str, Any]]:
    try:
        tensors, document = read_tensors(store)
        if document is None:
            raise ModelError(f"{store} was not written by smoothcert selector train")
        votes = tensors["votes"].numpy()
        if votes.dtype != np.int64 or not isinstance(document["settings"]["seed"], int) or "done" not in document:
            raise ModelError(f"{store} holds no votes")
        return votes, document
    except (ModelError, KeyError, TypeError) as error:
        raise CorruptRunError(f"{store} holds no votes of noise levels ({error}); choose another file") from error


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


def _seed_of_level(seed: int, sigma: float) -> int:
    """Levels share no stream."""
    return int.from_bytes(hashlib.sha256(f"smoothcert selector {seed} {sigma!r}".encode()).digest()[:16], "big")
