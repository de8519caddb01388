"""Votes of base classifiers under noise at several levels, for each input of a training: what a selector learns from.

They are estimates to train with, and prove nothing. So they are drawn in float32, a few per input.
"""

from __future__ import annotations

import hashlib
import math
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
from smoothcert.models import BaseClassifier, ScoringClassifier
from smoothcert.models.checkpoints import FORMAT_VERSION, read_tensors, write_tensors
from smoothcert.records import FloatArray, IntArray, ScoreTally, Stage, StreamId, TallyKind
from smoothcert.records.score_cells import SCORE_CEILING, SCORE_FLOOR
from smoothcert.sampling import SAMPLING_VERSION, Request, Sampler
from smoothcert.sigma.over_data import Done

_BATCH = 256
_SAMPLES_AT_ONCE = 20_000
"""Samples of one level that are drawn before the next one: a second or two, after which a stop is noticed."""
_MOST_INPUTS_AT_ONCE = 250
"""Scores are counted in a histogram of a quarter of a megabyte for each input."""
_SECONDS_BETWEEN_STATES = 30.0
MOST_PROVED = 3.5
"""Φ⁻¹ of about the largest probability that a certification proves: with 30000 samples at α = .001."""
_LOGS = np.log(np.maximum((SCORE_FLOOR + SCORE_CEILING) / 2, 1e-9))
"""Logarithms of the scores in each cell."""


@dataclass(frozen=True, slots=True)
class LevelVotes:
    """What `n` samples of N inputs at each of K levels say about the input's label.

    votes: (N, K) int64, how many were given the label. depths: (N, K) float64, an estimate of Φ⁻¹ of the probability of
    the label: mean over deviation of the margin of the logits, whose law under noise is about normal (see
    `estimate_depth`); nan where the model gives no scores. It tells probabilities of .99 and .9999 apart by a few
    samples, which votes cannot.
    """

    votes: IntArray
    depths: FloatArray
    levels: tuple[float, ...]
    n: int

    def take(self, rows: IntArray) -> LevelVotes:
        """Those of some inputs."""
        return LevelVotes(self.votes[rows], self.depths[rows], self.levels, self.n)

    @property
    def radii(self) -> FloatArray:
        """(N, K): estimated radius within which a level alone answers the label, σ Φ⁻¹(p); 0 where p is at most ½.

        At most MOST_PROVED · σ. Without scores p = (votes + ½)/(n + 1).
        """
        return np.maximum(self._margins, 0.0)

    @property
    def best(self) -> IntArray:
        """(N,): the level of the largest radius; if none has any, that of largest probability, the first in a tie."""
        best: IntArray = self._scores.argmax(axis=1).astype(np.int64)
        return best

    def soften(self, softness: float) -> NDArray[np.float32]:
        """(N, K) float32: distributions over the levels, proportional to exp(radius / softness).

        A level whose radius is smaller than the best by much less than `softness` is nearly as probable as the best.
        """
        soft: NDArray[np.float32] = special.softmax(self._scores / softness, axis=1).astype(np.float32)
        return soft

    @property
    def _quantiles(self) -> FloatArray:
        by_votes = special.ndtri((self.votes + 0.5) / (self.n + 1))
        quantiles: FloatArray = np.where(np.isnan(self.depths), by_votes, self.depths)
        return np.clip(quantiles, -MOST_PROVED, MOST_PROVED)

    @property
    def _margins(self) -> FloatArray:
        margins: FloatArray = np.asarray(self.levels) * self._quantiles
        return margins

    @property
    def _scores(self) -> FloatArray:
        """The radii; for a probability p below ½ the negative number p - ½, so that the most probable level is best."""
        quantiles = self._quantiles
        return np.where(quantiles > 0, self._margins, special.ndtr(quantiles) - 0.5)


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
    return int(_read(store)[-1]["settings"]["seed"]) if store.exists() else None


class _Votes:
    """Votes that become complete. They are sampled in the order of the inputs, all levels of some inputs at a time."""

    def __init__(self, request: VotesRequest, store: Path | None) -> None:
        self._request = request
        self._store = store
        self._votes = np.zeros((len(request.dataset), len(request.levels)), dtype=np.int64)
        self._depths = np.full(self._votes.shape, np.nan)
        self._done = 0
        self._last_save = time.perf_counter()
        if store is not None and store.exists():
            self._restore(store)

    def complete(self, progress: Done | None, stop: threading.Event | None) -> LevelVotes:
        request, total = self._request, len(self._votes)
        at_once = max(1, min(_MOST_INPUTS_AT_ONCE, _SAMPLES_AT_ONCE // request.n))
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
        return LevelVotes(self._votes, self._depths, request.levels, request.n)

    def _sample(self, rows: slice) -> None:
        request = self._request
        indices = range(rows.start, rows.stop)
        inputs, labels = request.dataset.inputs(rows), request.dataset.labels[rows]
        for number, (classifier, sigma) in enumerate(zip(request.classifiers, request.levels, strict=True)):
            seed = seed_of_level(request.seed, sigma)
            kind = TallyKind.SCORES if _gives_scores(classifier) else TallyKind.VOTES
            requests = [
                Request(
                    row, StreamId(seed, index, Stage.SELECTION), sigma, 0, request.n, kind=kind, label=int(labels[row])
                )
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

    def _save(self) -> None:
        if self._store is None:
            return
        document = {"format": FORMAT_VERSION, "settings": self._request.to_json(), "done": self._done}
        write_tensors(
            self._store, {"votes": torch.from_numpy(self._votes), "depths": torch.from_numpy(self._depths)}, document
        )
        self._last_save = time.perf_counter()

    def _restore(self, store: Path) -> None:
        votes, depths, document = _read(store)
        _check_same(document["settings"], self._request.to_json(), store)
        done = document["done"]
        is_valid = (
            isinstance(done, int) and 0 <= done <= len(self._votes) and votes.shape == depths.shape == self._votes.shape
        )
        if not is_valid or votes.min(initial=0) < 0 or votes.max(initial=0) > self._request.n:
            raise CorruptRunError(f"the votes in {store} are damaged; delete the file to sample them again")
        self._votes[:done], self._depths[:done] = votes[:done], depths[:done]
        self._done = done


def _read(store: Path) -> tuple[IntArray, FloatArray, Mapping[str, Any]]:
    try:
        tensors, document = read_tensors(store)
        if document is None:
            raise ModelError(f"{store} was not written by smoothcert selector train")
        votes, depths = tensors["votes"].numpy(), tensors["depths"].numpy()
        types = (votes.dtype.name, depths.dtype.name)
        if types != ("int64", "float64") or not isinstance(document["settings"]["seed"], int) or "done" not in document:
            raise ModelError(f"{store} holds no votes")
        return votes, depths, document
    except (ModelError, KeyError, TypeError) as error:
        raise CorruptRunError(f"{store} holds no votes of noise levels ({error}); choose another file") from error


def estimate_depth(tally: ScoreTally) -> float:
    """About mean over deviation of log s - log s', of the label's score s and the largest other one s'.

    Their sum of deviations is taken for the deviation of the difference: never too small, and hardly too large, because
    s' falls as s rises. nan if not all samples have a finite answer.
    """
    if tally.invalid or tally.n < 2:
        return math.nan
    own, others = (_describe_logs(cells, hits) for cells, hits in (tally.top_scores(), tally.other_scores()))
    return (own[0] - others[0]) / max(own[1] + others[1], 1e-6)


def _describe_logs(cells: IntArray, hits: IntArray) -> tuple[float, float]:
    """Mean and deviation of the logarithms of scores."""
    logs, n = _LOGS[cells], int(hits.sum())
    mean = float(hits @ logs) / n
    return mean, math.sqrt(float(hits @ (logs - mean) ** 2) / (n - 1))


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
