"""The histogram of a comparison, in the terminal and as a figure: the increase of the certified radius in percent.

See figures 5 and 6 of Levine et al. (2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.analysis.comparison import Comparison
from smoothcert.analysis.figures import COLOURS, check_figure_path, open_figure
from smoothcert.errors import InputError, RunError
from smoothcert.numerics.rounding import round_step
from smoothcert.records import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

BINS_IN_TERMINAL = 16
BINS_IN_FIGURE = 40
_MOST_BINS = 200
_BAR_LENGTH = 48
# Radii of logs are decimals: 0.21 / 0.2 must be on the edge at 5 %, not a rounding error beside it.
_PERCENT_DECIMALS = 9
_LEAST_WIDTH = 1e-6
_INCREASE, _DECREASE, _UNCHANGED = COLOURS[0], COLOURS[1], "#444444"


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """The inputs for which both runs certify the same class, by the increase of the radius in percent.

    edges: (k+1,) ascending, including 0. counts: (k,), bin j has edges[j] ≤ increase < edges[j+1]. below, above:
    increase < edges[0], and ≥ edges[k]. unchanged: inputs with equal radii, which are in no bin.
    """

    edges: FloatArray
    counts: IntArray
    below: int
    above: int
    unchanged: int

    def to_json(self) -> dict[str, Any]:
        return {
            "edges_percent": self.edges.tolist(),
            "counts": self.counts.tolist(),
            "below": self.below,
            "above": self.above,
            "unchanged": self.unchanged,
        }


def make_histogram(comparison: Comparison, edges: FloatArray) -> Histogram:
    """Count the inputs between the edges, which `choose_edges` computes."""
    increase = comparison.increase_percent
    rounded = np.round(increase, _PERCENT_DECIMALS)
    zero = int(np.searchsorted(edges, 0.0))
    # Position 0 is below the first edge, position k+1 above the last. A change that rounds to 0 counts by its sign.
    position = np.searchsorted(edges, rounded, side="right")
    position = np.where(increase < 0, np.minimum(position, zero), position)
    counts = np.bincount(position[increase != 0], minlength=edges.size + 1)
    return Histogram(
        edges=edges,
        counts=counts[1:-1].astype(np.int64),
        below=int(counts[0]),
        above=int(counts[-1]),
        unchanged=int((increase == 0).sum()),
    )


def choose_edges(comparison: Comparison, *, bins: str | None = None, most: int = BINS_IN_TERMINAL) -> FloatArray:
    """Edges in percent, including 0.

    bins: as typed: edges such as "-5,0,5,10", or the width of a bin such as "0.5"; None chooses a round width for about
    `most` bins. Unless edges are given, they are multiples of the width from the 1 % to the 99 % quantile of the data.
    """
    given = None if bins is None else _parse_bins(bins)
    if given is not None and given.size > 1:
        return given
    low, high = _span(comparison.increase_percent)
    if given is not None:
        width = float(given[0])
    elif low == high:
        return np.array([-1.0, 0.0, 1.0])
    else:
        width = round_step(max((high - low) / most, _LEAST_WIDTH))
    first, last = min(math.floor(low / width), -1), max(math.floor(high / width) + 1, 1)
    if last - first > _MOST_BINS:
        raise InputError(f"a width of {width:g} % gives {last - first:.4g} bins; expected at most {_MOST_BINS}")
    return np.array([float(f"{k * width:.12g}") for k in range(first, last + 1)])


def format_histogram(comparison: Comparison, *, bins: str | None = None) -> str:
    """The histogram in rows of at most 80 characters, then the inputs without a ratio. No final newline."""
    counts = make_histogram(comparison, choose_edges(comparison, bins=bins))
    rows = _list_rows(counts)
    for label, missing in (("only A", comparison.only_a), ("only B", comparison.only_b)):
        if missing.any():
            rows.append((label, int(missing.sum())))
    label_width = max(len(label) for label, _ in rows)
    count_width = max(len(str(count)) for _, count in rows)
    tallest = max(count for _, count in rows)
    length = min(_BAR_LENGTH, 80 - label_width - count_width - 4)
    lines = [f"{label:>{label_width}}  {count:>{count_width}}  {_bar(count, tallest, length)}" for label, count in rows]
    return "\n".join(["increase of the radius from B to A in percent, number of inputs", *map(str.rstrip, lines)])


def draw_comparison(comparison: Comparison, path: Path, *, bins: str | None = None, title: str | None = None) -> None:
    """Draw the histogram and write it to `path`, whose suffix is the format. An existing figure is replaced."""
    check_figure_path(path)
    if not comparison.both.any():
        raise RunError(
            f"{comparison.name_a} and {comparison.name_b} certify no input as the same class: there is no ratio to draw"
        )
    counts = make_histogram(comparison, choose_edges(comparison, bins=bins, most=BINS_IN_FIGURE))
    heading = f"{comparison.name_a} relative to {comparison.name_b}" if title is None else title
    if title is None and len(heading) > 64:
        heading = f"{comparison.name_a}\nrelative to {comparison.name_b}"
    with open_figure(path) as figure:
        top = 0.87 if "\n" in heading else 0.92
        axes = figure.add_axes((0.1, 0.18, 0.87, top - 0.18))
        _draw_ends(axes, comparison, counts)
        smaller, larger = _draw_bars(axes, counts)
        unchanged = _draw_unchanged(axes, counts)
        mean = _draw_mean(axes, comparison, counts)
        axes.set_xlabel(f"increase of the certified radius ({comparison.norm_symbol}) in percent")
        axes.set_ylabel("number of inputs")
        axes.locator_params(axis="y", integer=True)
        axes.grid(visible=False, axis="x")
        axes.legend(handles=[larger, unchanged, smaller, mean], loc="upper right", fontsize=8)
        axes.set_title(heading, fontsize=11)


def _parse_bins(text: str) -> FloatArray:
    """One positive width, or ascending edges, to which 0 is added."""
    problem = f"bins are {text!r}; expected a width in percent such as 0.5, or ascending edges such as -5,0,5,10"
    try:
        numbers = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise InputError(problem) from None
    ascending = bool((np.diff(numbers) > 0).all()) and (numbers.size > 1 or numbers[0] > 0)
    if not (np.isfinite(numbers).all() and ascending):
        raise InputError(problem)
    if numbers.size > _MOST_BINS:
        raise InputError(f"{numbers.size} edges of bins were given; expected at most {_MOST_BINS}")
    return numbers if numbers.size == 1 else np.union1d(numbers, 0.0)


def _span(increase: FloatArray) -> tuple[float, float]:
    """The range of the increase without 1 % of the inputs at each end, extended to include 0."""
    increase = np.round(increase, _PERCENT_DECIMALS)
    if not increase.any():
        return 0.0, 0.0
    # Quantiles at data points, so that up to a hundred inputs are covered completely.
    low = float(np.quantile(increase, 0.01, method="lower"))
    high = float(np.quantile(increase, 0.99, method="higher"))
    if low == high == 0:
        low, high = float(increase.min()), float(increase.max())
    return min(low, 0.0), max(high, 0.0)


def _list_rows(counts: Histogram) -> list[tuple[str, int]]:
    """Label and count of every row of the text, with "unchanged" at 0."""
    texts = [f"{edge:+g}" if edge else "0" for edge in counts.edges]
    width = max(map(len, texts))
    spans = [f"{left} to {right:>{width}}" for left, right in pairwise(texts)]
    rows = list(zip(spans, counts.counts.tolist(), strict=True))
    rows.insert(int(np.searchsorted(counts.edges, 0.0)), ("unchanged", counts.unchanged))
    below = [(f"< {texts[0]}", counts.below)] if counts.below else []
    above = [(f"≥ {texts[-1]}", counts.above)] if counts.above else []
    return [*below, *rows, *above]


def _bar(count: int, tallest: int, length: int) -> str:
    """A bar in eighths of a character; every count above 0 is visible."""
    eighths = math.ceil(8 * length * count / tallest) if count else 0
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _draw_bars(axes: Axes, counts: Histogram) -> tuple[BarContainer, BarContainer]:
    """The bins below and above 0, each side in its colour."""
    widths, below_zero = np.diff(counts.edges), counts.edges[:-1] < 0

    def draw_side(name: str, colour: str, shown: Any, beyond: int) -> BarContainer:
        return axes.bar(
            counts.edges[:-1][shown],
            counts.counts[shown],
            width=widths[shown],
            align="edge",
            color=colour,
            edgecolor="white",
            linewidth=0.4,
            label=f"{name}: {int(counts.counts[shown].sum()) + beyond}",
        )

    smaller = draw_side("smaller", _DECREASE, below_zero, counts.below)
    return smaller, draw_side("larger", _INCREASE, ~below_zero, counts.above)


def _draw_unchanged(axes: Axes, counts: Histogram) -> Artist:
    """A pin at 0 for equal radii, which have no width for a bar."""
    (stem,) = axes.plot([0.0, 0.0], [0.0, counts.unchanged], color=_UNCHANGED, linewidth=1.6, zorder=3)
    outline: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.8, "markersize": 6}
    stem.set(marker="o", markevery=[1], label=f"unchanged: {counts.unchanged}", **outline)
    return stem


def _draw_mean(axes: Axes, comparison: Comparison, counts: Histogram) -> Artist:
    mean = float(comparison.increase_percent.mean())
    inside = counts.edges[0] <= mean <= counts.edges[-1]
    label = f"mean: {mean:+z.2f} %{'' if inside else ', beyond the edge'}".replace("-", "−")
    look: dict[str, Any] = {"color": "#000000", "linewidth": 1.0, "linestyle": "--" if inside else " "}
    return axes.axvline(mean if inside else 0.0, label=label, zorder=2.5, **look)


def _draw_ends(axes: Axes, comparison: Comparison, counts: Histogram) -> None:
    """Separate hatched bars for inputs beyond the edges and for inputs that only one run certifies."""
    low, high = float(counts.edges[0]), float(counts.edges[-1])
    slot = 0.1 * (high - low)
    left = [(f"below\n{_format_percent(low)}", counts.below), ("only\nB", int(comparison.only_b.sum()))]
    right = [(f"from\n{_format_percent(high)}", counts.above), ("only\nA", int(comparison.only_a.sum()))]
    step = round_step((high - low) / 8)
    places = [float(f"{k * step:.12g}") for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    ticks = {place: _format_percent(place) for place in places}
    for start, direction, ends, colour in ((low, -1, left, _DECREASE), (high, 1, right, _INCREASE)):
        for number, (label, count) in enumerate((end for end in ends if end[1]), start=1):
            place = start + direction * slot * (number - 0.3)
            axes.bar(place, count, width=0.4 * slot, color=colour, alpha=0.6, hatch="/////", edgecolor="white")
            axes.annotate(str(count), (place, count), (0, 2), textcoords="offset points", ha="center", fontsize=8)
            ticks = {tick: text for tick, text in ticks.items() if abs(tick - place) > 0.75 * slot} | {place: label}
    axes.set_xticks(list(ticks), list(ticks.values()), fontsize=9)


def _format_percent(percent: float) -> str:
    return f"{percent:+g}".replace("-", "−") if percent else "0"
