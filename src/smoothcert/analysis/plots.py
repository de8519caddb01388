"""Figures of results: certified accuracy, envelopes, p_A, classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from smoothcert.analysis import metrics
from smoothcert.analysis.figures import COLOURS, check_figure_path, open_figure
from smoothcert.analysis.table_choices import BoundChoice, PlotKind
from smoothcert.errors import InputError, RunError
from smoothcert.records import FloatArray
from smoothcert.runs.result_columns import ResultColumns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A run beyond the palette repeats a colour with another dash: up to 28 runs look different.
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":")
_MOST_CLASS_BARS = 120
_P_A_BINS = 40

Corner = Literal["upper left", "best"]


@dataclass(frozen=True, slots=True)
class Curve:
    """A non-increasing step function of the radius: on (x[k−1], x[k]] it is y[k]; beyond the last x it is 0."""

    x: FloatArray
    y: FloatArray


def accuracy_curve(results: ResultColumns) -> Curve:
    """Certified accuracy at every radius, exactly: it can change only at a certified radius."""
    x = _breakpoints([results])
    return Curve(x=x, y=metrics.certified_accuracy(results, x))


def draw(
    runs: Sequence[ResultColumns],
    path: Path,
    *,
    kind: PlotKind = PlotKind.ACCURACY,
    title: str | None = None,
    bound: BoundChoice | None = None,
) -> None:
    """Draw the runs and write the figure to `path`, whose suffix is the format. An existing figure is replaced.

    bound: adds the high-probability lower curve to accuracy and envelope figures.
    """
    check_figure_path(path)
    _check_drawable(runs, kind, bound)
    wide = kind is PlotKind.CLASSES and len(runs) > 2
    with open_figure(path, size=(8.4, 4.2) if wide else (6.4, 4.2)) as figure:
        bottom, top = 0.13 if bound is None else 0.17, 0.91 if title else 0.96
        axes = figure.add_axes((0.1, bottom, 0.87, top - bottom))
        _DRAWERS[kind](axes, runs, bound)
        if bound is not None:
            figure.text(0.97, 0.015, _bound_caption(bound, kind), ha="right", fontsize=7, color="#444444")
        if title:
            axes.set_title(title, fontsize=11)


def draw_on(
    axes: Axes, runs: Sequence[ResultColumns], *, kind: PlotKind = PlotKind.ACCURACY, bound: BoundChoice | None = None
) -> None:
    """Draw the runs on axes of the caller, beside what is there."""
    _check_drawable(runs, kind, bound)
    axes.set_autoscalex_on(True)  # an earlier curve may have fixed the limits
    _DRAWERS[kind](axes, runs, bound)


def _check_drawable(runs: Sequence[ResultColumns], kind: PlotKind, bound: BoundChoice | None) -> None:
    if not runs:
        raise InputError("no run was given; a figure needs at least one")
    if bound is not None and kind not in (PlotKind.ACCURACY, PlotKind.ENVELOPE):
        raise InputError(f"a {kind.value} figure has no lower curve: leave the bound out")


def _draw_accuracy(axes: Axes, runs: Sequence[ResultColumns], bound: BoundChoice | None) -> None:
    _require_radii(runs)
    for number, run in enumerate(runs, start=len(axes.lines)):
        curve = accuracy_curve(run)
        _step(axes, curve, number=number, label=run.name)
        if bound is not None:
            # Only a bound needs scipy, which takes longer to import than the curves take to draw.
            from smoothcert.analysis.intervals import certified_accuracy_lower_bound

            lower = certified_accuracy_lower_bound(run, curve.x, choice=bound)
            _shade_down_to(axes, curve, lower, number=number)
    _finish_accuracy(axes, runs)


def _draw_envelope(axes: Axes, runs: Sequence[ResultColumns], bound: BoundChoice | None) -> None:
    _require_radii(runs)
    for number, run in enumerate(runs):
        _step(axes, accuracy_curve(run), number=number, label=run.name, faint=True)
    x = _breakpoints(runs)
    best = Curve(x=x, y=metrics.envelope(runs, x))
    axes.plot(*_close(best), drawstyle="steps-pre", color="#000000", linewidth=1.8, label="envelope")
    if bound is not None:
        from smoothcert.analysis.intervals import envelope_lower_bound

        lower = Curve(x=x, y=envelope_lower_bound(runs, x, choice=bound))
        axes.plot(*_close(lower), drawstyle="steps-pre", color="#000000", linewidth=1.0, linestyle=":")
    _finish_accuracy(axes, runs)


def _draw_p_a(axes: Axes, runs: Sequence[ResultColumns], bound: BoundChoice | None) -> None:
    edges = np.linspace(0.0, 1.0, _P_A_BINS + 1)
    with_p_a = [run for run in runs if np.isfinite(run.p_a).any()]
    for number, run in enumerate(with_p_a or runs):
        shares = metrics.p_a_distribution(run, edges=edges)
        known = int(np.isfinite(run.p_a).sum())
        label = run.name if known == len(run) else f"{run.name}, {known} of {len(run)} inputs"
        axes.stairs(shares, edges, label=label, linewidth=1.5, **_look(number))
        if len(runs) == 1:
            axes.stairs(shares, edges, fill=True, color=COLOURS[0], alpha=0.25)
    axes.axvline(0.5, color="#666666", linewidth=0.8, linestyle=":")
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("lower bound on the probability of the top class")
    axes.set_ylabel("share of inputs")
    _add_legend(axes, len(runs), location="upper left")


def _draw_classes(axes: Axes, runs: Sequence[ResultColumns], bound: BoundChoice | None) -> None:
    by_run = [metrics.class_accuracy(run) for run in runs]
    classes = np.unique(np.concatenate([one.classes for one in by_run]))
    if classes.size * len(runs) > _MOST_CLASS_BARS:
        raise InputError(
            f"{classes.size} classes of {len(runs)} run(s) are too many bars to read (at most {_MOST_CLASS_BARS}); "
            "`table --classes` lists them"
        )
    width = 0.8 / len(runs)
    for number, (run, one) in enumerate(zip(runs, by_run, strict=True)):
        places = np.searchsorted(classes, one.classes) + (number - (len(runs) - 1) / 2) * width
        label = f"{run.name} (spread {one.spread:.3f})"
        axes.bar(places, one.accuracy, width=0.92 * width, color=COLOURS[number % len(COLOURS)], label=label)
    axes.set_xticks(np.arange(classes.size), [str(label) for label in classes])
    axes.grid(visible=False, axis="x")
    legend_rows = -(-len(runs) // 2)
    # The legend is above the tallest bar, with two runs in each row.
    axes.set_ylim(0.0, 1.02 + 0.08 * legend_rows)
    axes.set_yticks(np.linspace(0.0, 1.0, 6))
    axes.set_xlabel("class")
    axes.set_ylabel("accuracy")
    axes.legend(loc="upper center", fontsize=8, ncols=min(len(runs), 2))


_DRAWERS: dict[PlotKind, Callable[[Axes, Sequence[ResultColumns], BoundChoice | None], None]] = {
    PlotKind.ACCURACY: _draw_accuracy,
    PlotKind.ENVELOPE: _draw_envelope,
    PlotKind.P_A: _draw_p_a,
    PlotKind.CLASSES: _draw_classes,
}


def _step(axes: Axes, curve: Curve, *, number: int, label: str, faint: bool = False) -> None:
    width, alpha = (1.0, 0.8) if faint else (1.6, 1.0)
    axes.plot(*_close(curve), drawstyle="steps-pre", label=label, linewidth=width, alpha=alpha, **_look(number))


def _shade_down_to(axes: Axes, curve: Curve, lower: FloatArray, *, number: int) -> None:
    """Draw a band from the curve down to its high-probability bound."""
    x, y = _close(curve)
    colour = COLOURS[number % len(COLOURS)]
    axes.fill_between(x, np.append(lower, 0.0), y, step="pre", color=colour, alpha=0.3, linewidth=0)


def _bound_caption(bound: BoundChoice, kind: PlotKind) -> str:
    mark = "dotted" if kind is PlotKind.ENVELOPE else "lower edge of the band"
    return f"{mark}: holds at each radius with probability {1 - bound.rho:g} ({bound.method.value})"


def _finish_accuracy(axes: Axes, runs: Sequence[ResultColumns]) -> None:
    if not all(run.has_norm_of(runs[0]) for run in runs):
        raise RunError("the radii of the runs are in different norms: draw the runs in separate figures")
    axes.set_xlim(left=0.0)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel(f"radius ({runs[0].norm_symbol})")
    axes.set_ylabel("certified accuracy")
    _add_legend(axes, len(axes.lines), location="best")


def _add_legend(axes: Axes, entries: int, *, location: Corner) -> None:
    if entries > 1:
        axes.legend(loc=location, fontsize=8 if entries > 4 else 9)


def _look(number: int) -> dict[str, Any]:
    colour = COLOURS[number % len(COLOURS)]
    return {"color": colour, "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}


def _breakpoints(runs: Sequence[ResultColumns]) -> FloatArray:
    """0 and every radius at which a curve falls, ascending."""
    radii = [run.radius[run.correct] for run in runs]
    return np.unique(np.concatenate([np.zeros(1), *radii]))


def _close(curve: Curve) -> tuple[FloatArray, FloatArray]:
    """The points to draw, with the final drop to zero."""
    return np.append(curve.x, curve.x[-1]), np.append(curve.y, 0.0)


def _require_radii(runs: Sequence[ResultColumns]) -> None:
    for run in runs:
        if not run.has_radius:
            raise RunError(f"{run.name} has predictions without radii: it has no certified accuracy to draw")
