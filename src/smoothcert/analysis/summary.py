"""The numbers that a results table shows for one run, and the radii it shows them at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from smoothcert.analysis import metrics
from smoothcert.analysis.confidence import PADistribution, summarise_p_a
from smoothcert.analysis.table_choices import BoundChoice
from smoothcert.errors import InputError
from smoothcert.numerics.rounding import round_step
from smoothcert.records import FloatArray
from smoothcert.runs.result_columns import ResultColumns

ENVELOPE_NAME = "envelope"
_MOST_DEFAULT_STEPS = 8
_LEFT_OUT_IF_EMPTY = ("scale", "samples", "samples_per_input", "samples_share", "decided_radii", "lower_bound", "p_a")

Radii = Mapping[str, float]
"""Radii by their text, in the given order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The numbers of one run; None where they are unknown. Fractions are of all `points` inputs.

    certified_accuracy and lower_bound: by the text of the radius; lower_bound is None unless a bound was requested.
    samples: drawn in total, per input, and as a share of the maximum, for runs that stop sampling early.
    decided_radii: the radii such a run decided on. p_a: None if the run has no p_A.
    """

    run: str
    points: int | None
    acr: float | None = None
    abstention: float | None = None
    certified_accuracy: Mapping[str, float | None]
    accuracy: float | None = None
    misclassification: float | None = None
    failure: float | None = None
    mean_radius: float | None = None
    expected_points: int | None = None
    norm: str
    scale: tuple[float, ...] | None = None
    sigma: float | None = None
    sigma_range: tuple[float, float] | None = None
    samples: int | None = None
    samples_per_input: float | None = None
    samples_share: float | None = None
    decided_radii: tuple[float, ...] = ()
    lower_bound: Mapping[str, float | None] | None = None
    p_a: PADistribution | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values in full precision."""
        document = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {
            key: value for key, value in document.items() if key not in _LEFT_OUT_IF_EMPTY or value not in (None, [])
        }


def summarise(results: ResultColumns, *, radii: Radii, bound: BoundChoice | None = None) -> RunSummary:
    """Summarise one run. Accuracies are None if labels are missing; radii above 0 are None if the run has none."""
    labelled = bool(results.labelled.all())
    known = {
        text: radius
        for text, radius in radii.items()
        if labelled and (results.has_radius or radius == 0) and not results.is_unknown_at(radius)
    }
    values = np.array(list(known.values()), dtype=np.float64)
    exact = metrics.certified_accuracy(results, values) if known else values
    lower = None
    if bound is not None:
        # Only a bound needs scipy, which takes longer to import than everything else a table does.
        from smoothcert.analysis.intervals import certified_accuracy_lower_bound

        bounds = certified_accuracy_lower_bound(results, values, choice=bound) if known else values
        lower = _by_text(radii, known, bounds)
    sigma_range = _range(results.sigma)
    samples = None if results.most_samples is None else int(results.extra["samples"].sum())
    return RunSummary(
        run=results.name,
        norm=results.norm.value,
        scale=None if results.scale is None else results.scale.numbers,
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
        decided_radii=results.decided_radii,
        p_a=summarise_p_a(results),
    )


def summarise_envelope(runs: Sequence[ResultColumns], *, radii: Radii, bound: BoundChoice | None = None) -> RunSummary:
    """Summarise the best run at each radius. Values that belong to a single run are None."""
    values = np.array(list(radii.values()), dtype=np.float64)
    best = metrics.envelope(runs, values)
    lower = None
    if bound is not None:
        from smoothcert.analysis.intervals import envelope_lower_bound

        lower = _by_text(radii, radii, envelope_lower_bound(runs, values, choice=bound))
    return RunSummary(
        run=ENVELOPE_NAME,
        norm=runs[0].norm.value,
        scale=None if runs[0].scale is None else runs[0].scale.numbers,
        points=len(runs[0]) if metrics.same_inputs(runs) else None,
        certified_accuracy=_by_text(radii, radii, best),
        lower_bound=lower,
    )


def parse_radii(text: str) -> dict[str, float]:
    """Radii from a comma-separated list such as "0,0.25,0.5", by their text; a repeated text counts once."""
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


def format_radii(radii: Iterable[float]) -> str:
    """Radii as `parse_radii` reads them."""
    return ",".join(_shortest_text(float(radius)) for radius in radii)


def default_radii(runs: Sequence[ResultColumns]) -> dict[str, float]:
    """The radii that the runs decided on; if there are none, at most 9 multiples of a round step, from 0."""
    decided = sorted({radius for run in runs for radius in run.decided_radii})
    if decided:
        return {_shortest_text(radius): radius for radius in decided}
    largest = max((float(run.radius.max()) for run in runs), default=0.0)
    if largest == 0:
        return {"0": 0.0}
    step = round_step(largest / _MOST_DEFAULT_STEPS, factors=(1.0, 2.5, 5.0))
    return {f"{k * step:.6g}": float(f"{k * step:.6g}") for k in range(int(largest / step) + 1)}


def _shortest_text(radius: float) -> str:
    short = f"{radius:g}"
    return short if float(short) == radius else repr(radius)


def _by_text(radii: Radii, known: Radii, values: FloatArray) -> dict[str, float | None]:
    by_text = dict(zip(known, map(float, values), strict=True))
    return {text: by_text.get(text) for text in radii}


def _range(values: FloatArray) -> tuple[float, float] | None:
    return None if np.isnan(values).any() else (float(values.min()), float(values.max()))
