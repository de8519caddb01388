"""Inputs in the plane, with everything that is known of the decision regions: the certified balls, to scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.errors import SmoothcertError
from smoothcert.numerics.rounding import format_down_as_read
from smoothcert.records import FloatArray, Norm, Outcome
from smoothcert.report.sources import Source
from smoothcert.runs.results import Results

_MOST_POINTS = 2000
_WIDTH = 720.0
_MARGIN = 44.0
_TICKS = 6


@dataclass(frozen=True, slots=True)
class Region:
    """A certified ball in pixels: x, y, r. colour: number of its class. diamond: an ℓ₁ ball."""

    x: float
    y: float
    r: float
    colour: int


@dataclass(frozen=True, slots=True)
class Dot:
    """An input. colour: of its label; None where it has none. mark: o certified right, x wrong, ? no answer."""

    x: float
    y: float
    colour: int | None
    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Plane:
    """A drawing of `width` by `height` pixels, y downwards. classes: names by colour. left_out: inputs not drawn."""

    run: int
    width: float
    height: float
    margin: float
    diamonds: bool
    regions: tuple[Region, ...]
    dots: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    classes: tuple[str, ...]
    left_out: int


def plane(number: int, source: Source) -> Plane | None:
    """The drawing, if the inputs are points of the plane and can be had."""
    dataset = source.inputs.dataset
    if dataset is None or dataset.input_shape != (2,) or not source.results.has_radius:
        return None
    chosen = _chosen(source.results)
    results = source.results.subset(chosen)
    try:
        places = dataset.inputs(results.index.tolist()).astype(np.float64)
    except (SmoothcertError, OSError):
        return None
    low, high = _extent(places, results.radius)
    scale = (_WIDTH - 2 * _MARGIN) / (high[0] - low[0])
    height = scale * (high[1] - low[1]) + 2 * _MARGIN
    x = _MARGIN + scale * (places[:, 0] - low[0])
    y = height - _MARGIN - scale * (places[:, 1] - low[1])
    classes = _classes(results)
    return Plane(
        run=number,
        width=_WIDTH,
        height=round(height, 1),
        margin=_MARGIN,
        diamonds=source.results.norm is Norm.L1,
        regions=_regions(results, classes, x, y, scale),
        dots=_dots(source, results, classes, x, y),
        x_ticks=tuple(Tick(round(_MARGIN + scale * (t - low[0]), 1), f"{t:g}") for t in _ticks(low[0], high[0])),
        y_ticks=tuple(
            Tick(round(height - _MARGIN - scale * (t - low[1]), 1), f"{t:g}") for t in _ticks(low[1], high[1])
        ),
        classes=tuple(source.inputs.class_name(label) for label in classes),
        left_out=len(source.results) - len(results),
    )


def _chosen(results: Results) -> np.typing.NDArray[np.int64]:
    """All inputs, or a fixed random part of very many."""
    if len(results) <= _MOST_POINTS:
        return np.arange(len(results))
    return np.sort(np.random.default_rng(0).choice(len(results), size=_MOST_POINTS, replace=False))


def _classes(results: Results) -> list[int]:
    """Labels and answers that occur; their positions are their colours."""
    both = np.concatenate([results.label[results.labelled], results.prediction[results.decided]])
    return [int(label) for label in np.unique(both)]


def _extent(places: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A rectangle around the inputs, with room for most of the balls; a few huge ones may be cut off."""
    room = float(np.quantile(radius, 0.9)) if radius.size else 0.0
    span = places.max(axis=0) - places.min(axis=0)
    extra = max(room, 0.03 * float(span.max()), 1e-9)
    return places.min(axis=0) - extra, places.max(axis=0) + extra


def _regions(
    results: Results, classes: Sequence[int], x: FloatArray, y: FloatArray, scale: float
) -> tuple[Region, ...]:
    certified = np.flatnonzero(results.is_outcome(Outcome.CERTIFIED))
    # Radii go down: a ball is never drawn larger than it was proved.
    return tuple(
        Region(
            round(float(x[k]), 1),
            round(float(y[k]), 1),
            math.floor(100 * scale * float(results.radius[k])) / 100,
            classes.index(int(results.prediction[k])),
        )
        for k in certified
    )


def _dots(source: Source, results: Results, classes: Sequence[int], x: FloatArray, y: FloatArray) -> tuple[Dot, ...]:
    name = source.inputs.class_name
    dots = []
    for k in range(len(results)):
        labelled, decided = bool(results.labelled[k]), bool(results.decided[k])
        label, answer = int(results.label[k]), int(results.prediction[k])
        said = f"answer {name(answer)}" if decided else "no answer"
        truth = f"label {name(label)}, " if labelled else ""
        mark = "?" if not decided else ("x" if labelled and answer != label else "o")
        colour = classes.index(label) if labelled else (classes.index(answer) if decided else None)
        radius = format_down_as_read(float(results.radius[k]), decimals=3)
        text = f"input {int(results.index[k])}: {truth}{said}, radius {radius}"
        dots.append(Dot(round(float(x[k]), 1), round(float(y[k]), 1), colour, mark, text))
    return tuple(dots)


def _ticks(low: float, high: float) -> list[float]:
    least = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(part * power for part in (1.0, 2.0, 5.0, 10.0) if part * power >= least)
    first = math.ceil(low / step)
    return [float(f"{k * step:.6g}") for k in range(first, math.floor(high / step) + 1)]
