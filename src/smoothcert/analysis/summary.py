"""One run in a line: the numbers a results table shows, and the radii it shows them at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.analysis import metrics
from smoothcert.analysis.options import BoundChoice
from smoothcert.errors import InputError
from smoothcert.numerics.rounding import round_step
from smoothcert.runs.results import Results

ENVELOPE_NAME = "envelope"
_MOST_DEFAULT_STEPS = 8

Radii = Mapping[str, float]
"""Radii by the text they were asked for with, in the order of asking."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What is known of one run; None where the run cannot say. Fractions are of all `points` inputs.

    certified_accuracy and lower_bound: by the text of the radius. lower_bound is None when none was asked
    for. samples: drawn in all, per input, and as a share of what a fixed number would have been, where sampling stopped
    when it had an answer; decided_radii: those that were asked about.
    """

    run: str
    norm: str
    points: int | None
    expected_points: int | None
    sigma: float | None
    sigma_range: tuple[float, float] | None
    acr: float | None
    mean_radius: float | None
    accuracy: float | None
    abstention: float | None
    misclassification: float | None
    failure: float | None
    certified_accuracy: Mapping[str, float | None]
    lower_bound: Mapping[str, float | None] | None
    samples: int | None = None
    samples_per_input: float | None = None
    samples_share: float | None = None
    decided_radii: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values in full precision."""
        document: dict[str, Any] = {
            "run": self.run,
            "points": self.points,
            "acr": self.acr,
            "abstention": self.abstention,
            "certified_accuracy": dict(self.certified_accuracy),
            "accuracy": self.accuracy,
            "misclassification": self.misclassification,
            "failure": self.failure,
            "mean_radius": self.mean_radius,
            "expected_points": self.expected_points,
            "norm": self.norm,
            "sigma": self.sigma,
            "sigma_range": None if self.sigma_range is None else list(self.sigma_range),
        }
        if self.samples is not None:
            document |= {
                "samples": self.samples,
                "samples_per_input": self.samples_per_input,
                "samples_share": self.samples_share,
            }
        if self.decided_radii:
            document["decided_radii"] = list(self.decided_radii)
        return document if self.lower_bound is None else document | {"lower_bound": dict(self.lower_bound)}


def summarise(results: Results, *, radii: Radii, bound: BoundChoice | None = None) -> RunSummary:
    """The line of one run. Accuracies are None where labels are missing, radii above 0 where the run has none."""
    labelled = bool(results.labelled.all())
    known = {
        text: radius
        for text, radius in radii.items()
        if labelled and (results.has_radius or radius == 0) and not results.says_nothing_of(radius)
    }
    values = np.array(list(known.values()), dtype=np.float64)
    exact = metrics.certified_accuracy(results, values) if known else values
    lower = None
    if bound is not None:
        # scipy, which only a bound needs, takes longer to import than everything else a table does.
        from smoothcert.analysis.intervals import certified_accuracy_lower_bound

        bounds = certified_accuracy_lower_bound(results, values, choice=bound) if known else values
        lower = _by_text(radii, known, bounds)
    sigma_range = _range(results.sigma)
    samples = None if results.most_samples is None else int(results.extra["samples"].sum())
    return RunSummary(
        run=results.name,
        norm=results.norm.value,
        points=len(results),
        expected_points=results.expected,
        sigma=sigma_range[0] if sigma_range is not None and sigma_range[0] == sigma_range[1] else None,
        sigma_range=sigma_range,
        acr=metrics.average_certified_radius(results) if labelled and results.has_radius else None,
        mean_radius=metrics.mean_radius(results) if results.has_radius else None,
        accuracy=metrics.accuracy(results) if labelled else None,
        abstention=metrics.abstention_rate(results),
        misclassification=metrics.misclassification_rate(results) if labelled else None,
        failure=metrics.failure_rate(results),
        certified_accuracy=_by_text(radii, known, exact),
        lower_bound=lower,
        samples=samples,
        samples_per_input=None if samples is None else samples / len(results),
        samples_share=None if samples is None else samples / (len(results) * (results.most_samples or 1)),
        decided_radii=results.asked,
    )


def summarise_envelope(runs: Sequence[Results], *, radii: Radii, bound: BoundChoice | None = None) -> RunSummary:
    """The line of the best run at each radius; what belongs to a single run is None."""
    values = np.array(list(radii.values()), dtype=np.float64)
    best = metrics.envelope(runs, values)
    lower = None
    if bound is not None:
        from smoothcert.analysis.intervals import envelope_lower_bound

        lower = _by_text(radii, radii, envelope_lower_bound(runs, values, choice=bound))
    return RunSummary(
        run=ENVELOPE_NAME,
        norm=runs[0].norm.value,
        points=len(runs[0]) if metrics.same_inputs(runs) else None,
        expected_points=None,
        sigma=None,
        sigma_range=None,
        acr=None,
        mean_radius=None,
        accuracy=None,
        abstention=None,
        misclassification=None,
        failure=None,
        certified_accuracy=_by_text(radii, radii, best),
        lower_bound=lower,
    )


def parse_radii(text: str) -> dict[str, float]:
    """Radii from a comma-separated list such as "0,0.25,0.5", by their text; the same text twice counts once."""
    radii: dict[str, float] = {}
    for token in (part.strip() for part in text.split(",")):
        try:
            radius = float(token)
        except ValueError:
            radius = math.nan
        if not (math.isfinite(radius) and radius >= 0):
            raise InputError(f"{token!r} is not a radius; expected numbers of at least 0 such as 0,0.25,0.5")
        radii[token] = radius
    return radii


def default_radii(runs: Sequence[Results]) -> dict[str, float]:
    """0 and the multiples of a round step up to the largest certified radius: at most nine in all.

    Where some runs only know about certain radii, those.
    """
    decided = sorted({radius for run in runs for radius in run.asked})
    if decided:
        return {_shortest(radius): radius for radius in decided}
    largest = max((float(run.radius.max()) for run in runs), default=0.0)
    if largest == 0:
        return {"0": 0.0}
    step = round_step(largest / _MOST_DEFAULT_STEPS, factors=(1.0, 2.5, 5.0))
    return {f"{k * step:.6g}": float(f"{k * step:.6g}") for k in range(int(largest / step) + 1)}


def _shortest(radius: float) -> str:
    short = f"{radius:g}"
    return short if float(short) == radius else repr(radius)


def _by_text(radii: Radii, known: Radii, values: np.typing.NDArray[np.float64]) -> dict[str, float | None]:
    found = dict(zip(known, map(float, values), strict=True))
    return {text: found.get(text) for text in radii}


def _range(values: np.typing.NDArray[np.float64]) -> tuple[float, float] | None:
    return None if np.isnan(values).any() else (float(values.min()), float(values.max()))
