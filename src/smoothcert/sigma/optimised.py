"""A noise level chosen for each input to maximise its radius, estimated from few samples.

Nothing is proved about how this σ changes between inputs. It has no envelope, and a radius computed from it alone is
not a certificate: Súkeník et al. (appendix C.2) give a counter-example. A memory of promised regions makes it one.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.scores import gives_scores
from smoothcert.noise import check_sigma
from smoothcert.records import FloatArray, InputArray, IntArray, Noise
from smoothcert.sigma.search_problem import Problem, check_count
from smoothcert.sigma.search_samples import NoisyScores
from smoothcert.sigma.searches import AnySearch, Ascent, GridSearch, SignSearch, parse_search

_RANGE = 4.0
"""Default range of σ: from the start divided by this factor to the start times this factor."""
_TOGETHER = 256
"""Inputs searched at once. Bounds the use of memory."""


@dataclass(frozen=True, slots=True)
class OptimisedSigma:
    """How σ(x) is chosen. `for_model` returns the rule, because the objective depends on the model.

    start: σ₀ (λ₀ for uniform noise). The class with the largest mean score over `selection` draws at σ₀ is kept during
    the search, which starts at σ₀. least, most: bounds of σ; None: σ₀/4 and 4σ₀. noise: σ is the standard deviation of
    Gaussian noise, or the half-width of uniform noise. two_class: maximise the radius of a certificate that bounds the
    strongest other class separately, as in the paper, instead of all other classes together. search: a search, or its
    text (see `parse_search`). seed: of the noise of the search, which is independent of the noise of the certification.
    """

    start: float
    search: AnySearch = field(default_factory=Ascent)
    least: float | None = None
    most: float | None = None
    noise: Noise = Noise.GAUSSIAN
    two_class: bool = False
    seed: int = 0
    selection: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", Noise(self.noise))
        object.__setattr__(self, "search", _to_search(self.search))
        check_sigma(self.start)
        check_count("selection", self.selection)
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed {self.seed} is outside 0 … 2^64-1")
        least, most = self.bounds
        check_sigma(least)
        check_sigma(most)
        # Stored as float, so that equal numbers of any type give equal digests.
        object.__setattr__(self, "start", float(self.start))
        object.__setattr__(self, "least", least)
        object.__setattr__(self, "most", most)
        if not least <= self.start <= most:
            raise InputError(
                f"the search for sigma begins at {self.start:g}, outside its range {least:g} … {most:g}; "
                "give a range that contains the start"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of σ."""
        least = self.start / _RANGE if self.least is None else self.least
        most = self.start * _RANGE if self.most is None else self.most
        return float(least), float(most)

    def for_model(self, classifier: BaseClassifier, *, most_rows: int = 512) -> OptimisedRule:
        """Return the rule for this model. most_rows: largest batch of noisy inputs for the model.

        A smaller number needs less memory. It changes no σ of a torch model on the CPU. On other back ends it may
        change the last bits, as any change of the batch does.
        """
        return OptimisedRule(self, classifier, most_rows=most_rows)

    def to_json(self) -> dict[str, Any]:
        settings = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**settings, "search": str(self.search), "noise": str(self.noise)}


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The result of a search for m inputs.

    sigmas: (m,) float64. labels: (m,) int64, the class at the start. radii: (m,) float64, the estimated radius of that
    class at σ; not a certificate, and negative where another class leads. evaluations: (m,) int64, how many noisy
    copies of the input the model has seen.
    """

    sigmas: FloatArray
    labels: IntArray
    radii: FloatArray
    evaluations: IntArray


class OptimisedRule:
    """σ(x) found by a search: a pure function of the bytes of x, the settings and the model.

    It does not depend on the other inputs of a batch, on their order, or on the run: the noise of a search comes from a
    stream that is identified by the bytes of the input. Thread-safe if the model is.
    """

    envelope: None = None
    """Nothing is proved about how σ changes between inputs."""

    def __init__(self, settings: OptimisedSigma, classifier: BaseClassifier, *, most_rows: int = 512) -> None:
        check_count("most_rows", most_rows)
        if settings.search.needs_scores and not gives_scores(classifier):
            raise InputError(
                f"the search {settings.search.name!r} for sigma needs scores, but {classifier.description} gives only "
                "votes; choose grid or signs, which compare counts of votes"
            )
        self.settings = settings
        self._classifier = classifier
        self._most_rows = most_rows
        self._spent = 0
        self._lock = threading.Lock()

    @property
    def digest(self) -> str:
        content = json.dumps({**self.to_json(), "model": self._classifier.digest}, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def description(self) -> str:
        least, most = self.settings.bounds
        return (
            f"optimised for each input from {self.settings.start:g} within {least:g} … {most:g}, {self.settings.search}"
        )

    @property
    def evaluations_spent(self) -> int:
        """The number of noisy inputs that all searches of this rule have given to the model so far."""
        with self._lock:
            return self._spent

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        return self.search(inputs).sigmas

    def search(self, inputs: InputArray, /) -> SearchResult:
        """inputs: (m, *input_shape) float32."""
        if len(inputs) == 0:
            none: IntArray = np.zeros(0, dtype=np.int64)
            return SearchResult(sigmas=np.zeros(0), labels=none, radii=np.zeros(0), evaluations=none)
        parts = [self._search_part(inputs[at : at + _TOGETHER]) for at in range(0, len(inputs), _TOGETHER)]
        names = [each.name for each in fields(SearchResult)]
        return SearchResult(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "optimised", **self.settings.to_json()}

    def _search_part(self, inputs: InputArray) -> SearchResult:
        settings, search = self.settings, self.settings.search
        samples = NoisyScores(
            self._classifier, inputs, noise=settings.noise, seed=settings.seed, most_rows=self._most_rows
        )
        least, most = settings.bounds
        problem = Problem(
            samples=samples,
            labels=_select_labels(samples, start=settings.start, selection=settings.selection, count=len(inputs)),
            start=settings.start,
            least=least,
            most=most,
            noise=settings.noise,
            two_class=settings.two_class,
        )
        sigmas, radii = search.find(problem)
        if search.check:
            sigmas, radii = _compare_with_start(problem, sigmas, check=search.check, clamp=search.clamp)
        with self._lock:
            self._spent += int(samples.evaluations.sum())
        return SearchResult(sigmas=sigmas, labels=problem.labels, radii=radii, evaluations=samples.evaluations)


def _to_search(search: object) -> AnySearch:
    if isinstance(search, str):
        return parse_search(search)
    if not isinstance(search, Ascent | GridSearch | SignSearch):
        raise InputError(f"{search!r} is no search for sigma: give Ascent, GridSearch, SignSearch, or one as text")
    return search


def _select_labels(samples: NoisyScores, *, start: float, selection: int, count: int) -> IntArray:
    """The class of largest mean score at the start; the lowest of equal ones."""
    means = samples.mean_scores(np.arange(count), np.full((count, 1), start), noises=selection)
    labels: IntArray = means[:, 0, :-1].argmax(axis=1)
    return labels


def _compare_with_start(
    problem: Problem, found: FloatArray, *, check: int, clamp: float
) -> tuple[FloatArray, FloatArray]:
    """Return the level found, or the start unless the level found has a larger radius over fresh, shared draws.

    A search misled by its few draws is then no worse than the start, up to the error of the fresh draws.
    """
    every = problem.every()
    sigmas = np.stack([np.full(len(every), problem.start), found], axis=1)
    radii = problem.radii(every, sigmas, noises=check, clamp=clamp)
    best = radii.argmax(axis=1)
    return sigmas[every, best], radii[every, best]
