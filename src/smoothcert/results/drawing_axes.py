"""Figures on the axes of the caller, or in a new figure that a notebook shows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from smoothcert.analysis.plots import draw_on
from smoothcert.analysis.table_choices import PlotKind
from smoothcert.errors import InputError, MissingExtraError
from smoothcert.runs.result_columns import ResultColumns

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_results(runs: Sequence[ResultColumns], ax: Axes | None, *, kind: str, label: str | None) -> Axes:
    """Draw the runs, which have one name, and return the axes. label: replaces that name in the legend."""
    if kind not in tuple(PlotKind):
        raise InputError(f"kind={kind!r} is not a figure; expected one of {', '.join(PlotKind)}")
    if label is not None:
        runs = [_rename(run, label, alone=len(runs) == 1) for run in runs]
    if ax is None:
        ax = _new_axes()
    draw_on(ax, runs, kind=PlotKind(kind))
    return ax


def _rename(run: ResultColumns, label: str, *, alone: bool) -> ResultColumns:
    return dataclasses.replace(run, name=label if alone else f"{label}@{run.certificate[0]}")


def _new_axes() -> Axes:
    """Of pyplot, so that a notebook shows the figure."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing figures") from error
    return pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")[1]
