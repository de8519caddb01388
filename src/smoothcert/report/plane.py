"""Inputs in the plane: the certified balls to scale, optionally on an estimate of the decision regions.

This module only draws the regions; the caller evaluates the classifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, SmoothcertError
from smoothcert.numerics.rounding import format_down_as_read, round_step
from smoothcert.records import FloatArray, Norm, Outcome
from smoothcert.records.decision_map import NOT_ASKED, UNDECIDED, DecisionMap, Rectangle
from smoothcert.report.outlines import trace_outline
from smoothcert.report.sources import Source
from smoothcert.runs.result_columns import ResultColumns

_MOST_POINTS = 2000
_WIDTH = 720.0
_LEFT, _BOTTOM, _REST = 50.0, 32.0, 12.0
_TICKS = 6
_SHAPES = {Norm.L2: "disc", Norm.L1: "diamond"}
_FLATTEST = 0.3
"""Least height of the frame relative to its width. It is never higher than wide."""

AnswerRegions = Callable[[Source, Rectangle], DecisionMap | str]
"""Returns the answers of the smoothed classifier of a run, or the reason why there are none."""


@dataclass(frozen=True, slots=True)
class Ball:
    """A certified ball in pixels. colour: number of its class."""

    x: float
    y: float
    r: float
    colour: int


@dataclass(frozen=True, slots=True)
class Dot:
    """An input. colour: of its label, or None. mark: o correct, x wrong, ? no answer."""

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
class Ground:
    """An estimate of the decision regions, drawn below everything else.

    paths: (colour, SVG path) of every answer; not_asked: the path around the points without an answer, or empty. Paths
    are in half cells of `step_x` by `step_y` pixels, from the lower left corner of the frame, y upwards. shares:
    (class, percentage of the evaluated points); undecided: their number. inside: points in a certified ball;
    contradicting: those of them with another answer than the ball. remembered: answers from the memory of the run.
    """

    paths: tuple[tuple[int, str], ...]
    not_asked: str
    step_x: float
    step_y: float
    rows: int
    columns: int
    n: int
    alpha: float
    shares: tuple[tuple[str, str], ...]
    undecided: int
    inside: int
    contradicting: int
    remembered: int


@dataclass(frozen=True, slots=True)
class Plane:
    """A drawing of `width` by `height` pixels, y downwards. left, top, right, bottom: of the frame in it.

    shape: of the balls, disc or diamond. classes: names by colour. left_out: inputs not drawn. ground: the decision
    regions, or None; no_ground: why they were requested but not drawn. can_ask: whether regions can be requested.
    """

    run: int
    width: float
    height: float
    left: float
    top: float
    right: float
    bottom: float
    shape: str
    balls: tuple[Ball, ...]
    dots: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    classes: tuple[str, ...]
    left_out: int
    ground: Ground | None
    no_ground: str
    can_ask: bool


@dataclass(frozen=True, slots=True)
class _Selection:
    """The results that are drawn. places: (m, 2), their inputs."""

    number: int
    source: Source
    results: ResultColumns
    places: FloatArray


@dataclass(frozen=True, slots=True)
class _Scale:
    """From the plane to pixels."""

    frame: Rectangle
    factor: float
    height: float

    def x(self, value: FloatArray | float) -> FloatArray:
        return _LEFT + self.factor * (np.asarray(value) - self.frame.low[0])

    def y(self, value: FloatArray | float) -> FloatArray:
        return self.height - _BOTTOM - self.factor * (np.asarray(value) - self.frame.low[1])


def draw_planes(sources: Sequence[Source], decide: AnswerRegions | None = None) -> tuple[Plane, ...]:
    """The drawings of all results whose inputs are available points of the plane.

    Results of one run by several certificates have the same scale. Results without radii are drawn only with their
    decision regions.
    """
    selections = [
        selection for number, source in enumerate(sources) if (selection := _select_points(number, source)) is not None
    ]
    frames: dict[Path, Rectangle] = {}
    for selection in selections:
        frames[selection.source.place] = _extent(selection, frames.get(selection.source.place))
    drawn = []
    reasons = {number: _reason_not_drawn(source) for number, source in enumerate(sources)}
    for selection in selections:
        frame = frames[selection.source.place]
        has_radius = selection.results.has_radius
        answers = None if decide is None else decide(selection.source, frame)
        if has_radius or isinstance(answers, DecisionMap):
            drawn.append(_plane(selection, frame, answers))
        reasons[selection.number] = answers if isinstance(answers, str) else ""
    if decide is not None and not any(one.ground for one in drawn):
        why = "; ".join(dict.fromkeys(f"{source.name}: {reasons[k]}" for k, source in enumerate(sources)))
        raise InputError(f"there are no decision regions to draw. {why}")
    return tuple(drawn)


def _reason_not_drawn(source: Source) -> str:
    if source.inputs.dataset is None:
        return source.inputs.missing or "its inputs are not available"
    if source.results.scale is not None:
        return "its radii are in a scaled norm, and the picture has one scale for both features"
    shape = " × ".join(map(str, source.inputs.dataset.input_shape))
    return f"its inputs are not points of the plane: their shape is {shape}"


def _select_points(number: int, source: Source) -> _Selection | None:
    dataset = source.inputs.dataset
    if dataset is None or dataset.input_shape != (2,) or source.results.scale is not None:
        return None
    results = source.results.subset(_choose_positions(source.results))
    try:
        places = dataset.inputs(results.index.tolist()).astype(np.float64)
    except (SmoothcertError, OSError):
        return None
    return _Selection(number, source, results, places)


def _plane(selection: _Selection, frame: Rectangle, answers: DecisionMap | str | None) -> Plane:
    source, results = selection.source, selection.results
    factor = (_WIDTH - _LEFT - _REST) / frame.width
    height = factor * frame.height + _BOTTOM + _REST
    scale = _Scale(frame, factor, height)
    decisions = answers if isinstance(answers, DecisionMap) else None
    classes = _classes(results, decisions)
    return Plane(
        run=selection.number,
        width=_WIDTH,
        height=round(height, 1),
        left=_LEFT,
        top=_REST,
        right=_WIDTH - _REST,
        bottom=round(height - _BOTTOM, 1),
        shape=_SHAPES[results.norm],
        balls=_balls(selection, classes, scale),
        dots=_dots(selection, classes, scale),
        x_ticks=tuple(Tick(_pixel(scale.x(t)), f"{t:g}") for t in _ticks(frame.low[0], frame.high[0])),
        y_ticks=tuple(Tick(_pixel(scale.y(t)), f"{t:g}") for t in _ticks(frame.low[1], frame.high[1])),
        classes=tuple(source.inputs.class_name(label) for label in classes),
        left_out=len(source.results) - len(results),
        ground=None if decisions is None else _ground(selection, decisions, classes, scale),
        no_ground=answers if isinstance(answers, str) else "",
        can_ask=source.manifest is not None,
    )


def _pixel(value: FloatArray | float) -> float:
    return round(float(value), 1)


def round_ball(x: float, y: float, radius: float) -> tuple[float, float, float]:
    """Centre and radius of a ball in short numbers.

    The radius is rounded down, and reduced by the ℓ₁ distance by which rounding moves the centre (at least the ℓ₂
    distance), so no point is drawn inside that is outside the certified ball.
    """
    short_x, short_y = _pixel(x), _pixel(y)
    shift = abs(x - short_x) + abs(y - short_y)
    return short_x, short_y, max(0.0, math.floor(100 * (radius - shift)) / 100)


def _choose_positions(results: ResultColumns) -> NDArray[np.int64]:
    """All inputs, or a fixed random subset if there are very many."""
    if len(results) <= _MOST_POINTS:
        return np.arange(len(results))
    return np.sort(np.random.default_rng(0).choice(len(results), size=_MOST_POINTS, replace=False))


def _classes(results: ResultColumns, decisions: DecisionMap | None) -> list[int]:
    """All labels and answers; their positions are their colours."""
    asked = [] if decisions is None else decisions.classes
    both = np.concatenate([results.label[results.labelled], results.prediction[results.decided]])
    return sorted({int(label) for label in np.unique(both)} | set(asked))


def _extent(selection: _Selection, other: Rectangle | None) -> Rectangle:
    """A rectangle around the inputs and another rectangle, with room for most balls; a few huge ones may be cut off."""
    least, most = selection.places.min(axis=0), selection.places.max(axis=0)
    room = float(np.quantile(selection.results.radius, 0.9))
    extra = max(room, 0.03 * float((most - least).max()), 1e-6 * float(np.abs(selection.places).max()), 1e-9)
    low, high = least - extra, most + extra
    if other is not None:
        low, high = np.minimum(low, other.low), np.maximum(high, other.high)
    width, height = high - low
    # A very high or very flat frame is widened.
    missing = np.array([max(height - width, 0.0), max(_FLATTEST * width - height, 0.0)]) / 2
    low, high = low - missing, high + missing
    return Rectangle((float(low[0]), float(low[1])), (float(high[0]), float(high[1])))


def _balls(selection: _Selection, classes: Sequence[int], scale: _Scale) -> tuple[Ball, ...]:
    results = selection.results
    x, y = scale.x(selection.places[:, 0]), scale.y(selection.places[:, 1])
    return tuple(
        Ball(
            *round_ball(float(x[k]), float(y[k]), scale.factor * float(results.radius[k])),
            classes.index(int(results.prediction[k])),
        )
        for k in np.flatnonzero(results.is_outcome(Outcome.CERTIFIED))
    )


def _dots(selection: _Selection, classes: Sequence[int], scale: _Scale) -> tuple[Dot, ...]:
    name, results = selection.source.inputs.class_name, selection.results
    x, y = scale.x(selection.places[:, 0]), scale.y(selection.places[:, 1])
    dots = []
    for k in range(len(results)):
        labelled, decided = bool(results.labelled[k]), bool(results.decided[k])
        label, answer = int(results.label[k]), int(results.prediction[k])
        answered = f"answer {name(answer)}" if decided else "no answer"
        truth = f"label {name(label)}, " if labelled else ""
        mark = "?" if not decided else ("x" if labelled and answer != label else "o")
        colour = classes.index(label) if labelled else (classes.index(answer) if decided else None)
        radius = f", radius {format_down_as_read(float(results.radius[k]), decimals=3)}" if results.has_radius else ""
        text = f"input {int(results.index[k])}: {truth}{answered}{radius}"
        dots.append(Dot(_pixel(x[k]), _pixel(y[k]), colour, mark, text))
    return tuple(dots)


def _ground(selection: _Selection, decisions: DecisionMap, classes: Sequence[int], scale: _Scale) -> Ground:
    answers, asked = decisions.answers, decisions.asked
    rows, columns = answers.shape
    undecided = int((answers == UNDECIDED).sum())
    name = selection.source.inputs.class_name
    counted = [(name(label), int((answers == label).sum())) for label in decisions.classes]
    inside, contradicting = _agreement(selection, decisions)
    return Ground(
        paths=tuple((classes.index(label), trace_outline(answers == label)) for label in decisions.classes),
        not_asked=trace_outline(answers == NOT_ASKED),
        step_x=round(scale.factor * decisions.rectangle.width / columns / 2, 5),
        step_y=round(scale.factor * decisions.rectangle.height / rows / 2, 5),
        rows=rows,
        columns=columns,
        n=decisions.n,
        alpha=decisions.alpha,
        shares=tuple((label, f"{100 * count / asked:.0f} %") for label, count in (*counted, ("undecided", undecided))),
        undecided=undecided,
        inside=inside,
        contradicting=contradicting,
        remembered=decisions.remembered,
    )


def _agreement(selection: _Selection, decisions: DecisionMap) -> tuple[int, int]:
    """The number of evaluated points in a certified ball, and how many of them have another answer than the ball."""
    results = selection.results
    asked = decisions.answers != NOT_ASKED
    points, answers = decisions.points[asked], decisions.answers[asked]
    inside, contradicting = np.zeros(len(points), dtype=np.bool_), np.zeros(len(points), dtype=np.bool_)
    for k in np.flatnonzero(results.is_outcome(Outcome.CERTIFIED)):
        distance = _distances(points - selection.places[k], results.norm)
        within = distance < results.radius[k]
        inside |= within
        contradicting |= within & (answers != UNDECIDED) & (answers != results.prediction[k])
    return int(inside.sum()), int(contradicting.sum())


def _distances(steps: FloatArray, norm: Norm) -> FloatArray:
    match norm:
        case Norm.L2:
            return np.hypot(steps[:, 0], steps[:, 1])
        case Norm.L1:
            return np.asarray(np.abs(steps).sum(axis=1))
        case _:
            assert_never(norm)


def _ticks(low: float, high: float) -> list[float]:
    step = round_step((high - low) / _TICKS)
    first = math.ceil(low / step)
    return [float(f"{k * step:.6g}") for k in range(first, math.floor(high / step) + 1)]
