"""A noise level for each input that makes its radius, estimated from few samples, as large as it can be.

Nothing is proved about how such a σ moves from one input to the next, so it has no envelope, and a radius computed from
it is no certificate by itself: Súkeník et al. (appendix C.2) give a counter-example. It becomes one through a memory of
what has been promised before.
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
from smoothcert.settings_text import parse_worded, settings_of
from smoothcert.sigma.search_ascent import Ascent
from smoothcert.sigma.search_grid import GridSearch
from smoothcert.sigma.search_problem import Problem, check_count
from smoothcert.sigma.search_samples import NoisyScores
from smoothcert.sigma.search_signs import SignSearch

__all__ = [
    "Ascent",
    "GridSearch",
    "OptimisedRule",
    "OptimisedSigma",
    "SearchResult",
    "SignSearch",
    "make_search",
    "parse_search",
]

AnySearch = Ascent | GridSearch | SignSearch

_SEARCHES: dict[str, type[AnySearch]] = {kind.name: kind for kind in (Ascent, GridSearch, SignSearch)}
_RANGE = 4.0
"""σ is looked for within this factor of its start, unless told otherwise."""
_TOGETHER = 256
"""Inputs searched at once, so that memory does not grow with their number."""


@dataclass(frozen=True, slots=True)
class OptimisedSigma:
    """How σ(x) is chosen; `for_model` makes it a rule, because what it maximises depends on the model.

    start: σ₀ (λ₀ for uniform noise). The class is the one of largest mean score over `selection` draws at σ₀, and it
    stays; the search begins at σ₀. least, most: σ is kept between them; None: a quarter of σ₀, four times σ₀.
    noise: σ is the standard deviation of Gaussian noise, or the half-width of uniform noise. two_class: maximise the
    radius of a certificate that bounds the strongest other class on its own, as the paper does, instead of one that
    takes all others for one opponent. search: also as text, see `parse_search`. seed: of the noise the search draws,
    which is never that of the certification.
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
        object.__setattr__(self, "search", _as_search(self.search))
        check_sigma(self.start)
        check_count("selection", self.selection)
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed {self.seed} is outside 0 … 2^64-1")
        least, most = self.bounds
        check_sigma(least)
        check_sigma(most)
        # However they were typed, the same numbers make the same rule, with the same digest.
        object.__setattr__(self, "start", float(self.start))
        object.__setattr__(self, "least", least)
        object.__setattr__(self, "most", most)
        if not least <= self.start <= most:
            raise InputError(
                f"the search for sigma begins at {self.start:g}, outside its range {least:g} … {most:g}; "
                "give a range that holds the start"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of σ."""
        least = self.start / _RANGE if self.least is None else self.least
        most = self.start * _RANGE if self.most is None else self.most
        return float(least), float(most)

    def for_model(self, classifier: BaseClassifier, *, most_rows: int = 512) -> OptimisedRule:
        """The rule for this model. most_rows: noisy inputs handed to the model at once, at most.

        A smaller number needs less memory. It changes no σ of a torch model on the processor; elsewhere it may change
        the last bits, as any other batch may.
        """
        return OptimisedRule(self, classifier, most_rows=most_rows)

    def to_json(self) -> dict[str, Any]:
        least, most = self.bounds
        return {
            "start": self.start,
            "least": least,
            "most": most,
            "search": str(self.search),
            "noise": str(self.noise),
            "two_class": self.two_class,
            "seed": self.seed,
            "selection": self.selection,
        }


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """What a search found for m inputs.

    sigmas: (m,) float64. labels: (m,) int64, the class at the start. radii: (m,) float64, the radius of that class
    estimated at σ: no certificate, and negative where another class leads. evaluations: (m,) int64, how many noisy
    copies of the input the model has seen; a forward pass of one row counts one.
    """

    sigmas: FloatArray
    labels: IntArray
    radii: FloatArray
    evaluations: IntArray


class OptimisedRule:
    """σ(x) found by a search: a pure function of the bytes of x, the settings and the model.

    It does not depend on the other inputs of a batch, on their order, or on the run: the noise of a search is drawn
    from a stream named by the bytes of the input. Any number of threads may use it that may use the model.
    """

    def __init__(self, settings: OptimisedSigma, classifier: BaseClassifier, *, most_rows: int = 512) -> None:
        check_count("most_rows", most_rows)
        if settings.search.needs_scores and not gives_scores(classifier):
            raise InputError(
                f"the search {settings.search.name!r} for sigma follows the slope of scores, and "
                f"{classifier.description} gives only votes; choose grid or signs, which compare counts of votes"
            )
        self.settings = settings
        self._classifier = classifier
        self._most_rows = most_rows
        self._spent = 0
        self._lock = threading.Lock()

    @property
    def envelope(self) -> None:
        """Nothing is proved about how σ moves."""
        return None

    @property
    def digest(self) -> str:
        told = json.dumps({**self.to_json(), "model": self._classifier.digest}, sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    @property
    def description(self) -> str:
        least, most = self.settings.bounds
        return (
            f"optimised for each input from {self.settings.start:g} within {least:g} … {most:g}, {self.settings.search}"
        )

    @property
    def evaluations_spent(self) -> int:
        """Noisy inputs that all searches of this rule have shown to the model so far."""
        with self._lock:
            return self._spent

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        return self.search(inputs).sigmas

    def search(self, inputs: InputArray, /) -> SearchResult:
        """inputs: (m, *input_shape) float32."""
        parts = [self._searched(inputs[at : at + _TOGETHER]) for at in range(0, len(inputs), _TOGETHER)]
        if not parts:
            none: IntArray = np.zeros(0, dtype=np.int64)
            return SearchResult(sigmas=np.zeros(0), labels=none, radii=np.zeros(0), evaluations=none)
        names = [each.name for each in fields(SearchResult)]
        return SearchResult(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "optimised", **self.settings.to_json()}

    def _searched(self, inputs: InputArray) -> SearchResult:
        settings, search = self.settings, self.settings.search
        samples = NoisyScores(
            self._classifier, inputs, noise=settings.noise, seed=settings.seed, most_rows=self._most_rows
        )
        least, most = settings.bounds
        problem = Problem(
            samples=samples,
            labels=_labels(samples, start=settings.start, selection=settings.selection, count=len(inputs)),
            start=settings.start,
            least=least,
            most=most,
            noise=settings.noise,
            two_class=settings.two_class,
        )
        sigmas, radii = search.find(problem)
        if search.check:
            sigmas, radii = _better(problem, sigmas, check=search.check, clamp=search.clamp)
        with self._lock:
            self._spent += int(samples.evaluations.sum())
        return SearchResult(sigmas=sigmas, labels=problem.labels, radii=radii, evaluations=samples.evaluations)


def parse_search(text: str) -> AnySearch:
    """A search from its name and settings: "ascent", "grid:points=200,noises=1"; str() of a search gives it back."""
    return parse_worded(text, _SEARCHES, what="search for sigma")


def make_search(name: str, settings: Mapping[str, Any]) -> AnySearch:
    """A search from its name and some of its settings."""
    if name not in _SEARCHES:
        raise InputError(f"there is no search for sigma {name!r}; choose {', '.join(_SEARCHES)}")
    try:
        return _SEARCHES[name](**settings)
    except TypeError as error:
        raise InputError(f"the search {name} cannot take the settings {dict(settings)}: {error}") from error


def search_settings(search: AnySearch) -> dict[str, Any]:
    """The settings of a search that are not None, as plain JSON; `make_search` takes them back."""
    return settings_of(search)


def _as_search(search: object) -> AnySearch:
    if isinstance(search, str):
        return parse_search(search)
    if not isinstance(search, Ascent | GridSearch | SignSearch):
        raise InputError(f"{search!r} is no search for sigma: give Ascent, GridSearch, SignSearch, or one as text")
    return search


def _labels(samples: NoisyScores, *, start: float, selection: int, count: int) -> IntArray:
    """The class of largest mean score at the start; of equal ones the lowest."""
    means = samples.mean_scores(np.arange(count), np.full((count, 1), start), noises=selection)
    labels: IntArray = means[:, 0, :-1].argmax(axis=1)
    return labels


def _better(problem: Problem, found: FloatArray, *, check: int, clamp: float) -> tuple[FloatArray, FloatArray]:
    """The start or what was found, where the radius over fresh draws, shared by both, is larger; if equal the start.

    A search that was misled by its few draws so ends no worse than it began, but for the error of these.
    """
    every = problem.every()
    sigmas = np.stack([np.full(len(every), problem.start), found], axis=1)
    radii = problem.radii(every, sigmas, noises=check, clamp=clamp)
    best = radii.argmax(axis=1)
    return sigmas[every, best], radii[every, best]
