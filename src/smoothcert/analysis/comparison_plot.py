"""The histogram of a comparison, as in figures 5 and 6 of Levine et al. (2021): by how many percent the certified
radius grew or shrank, and for how many inputs. In the terminal and as a figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothcert.analysis.comparison import Comparison
from smoothcert.analysis.figures import COLOURS, check_figure_path, written_figure
from smoothcert.errors import InputError, RunError
from smoothcert.records import FloatArray, IntArray, Norm

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

BINS_IN_TERMINAL = 16
BINS_IN_FIGURE = 40
_MOST_BINS = 200
_BAR_LENGTH = 48
# Radii of logs are decimals: 0.21 / 0.2 should lie on the edge at 5 %, not a rounding error beside it.
_PERCENT_DECIMALS = 9
_LEAST_WIDTH = 1e-6
_INCREASE, _DECREASE, _UNCHANGED = COLOURS[0], COLOURS[1], "#444444"


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Inputs that both runs certify alike, by the increase of the radius in percent: the counts sum to all of them.

    edges: (k+1,) ascending, 0 among them. counts: (k,), bin j holds edges[j] ≤ increase < edges[j+1], but the
    unchanged, whose radii are equal, are apart. below, above: increase < edges[0], and ≥ edges[k].
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


def histogram(comparison: Comparison, edges: FloatArray) -> Histogram:
    """Count the inputs between the given edges, as `bin_edges` makes them."""
    increase = comparison.increase_percent
    rounded = np.round(increase, _PERCENT_DECIMALS)
    zero = int(np.searchsorted(edges, 0.0))
    # Position 0 is below the first edge, position k+1 above the last; a change too small to round counts by its sign.
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


def bin_edges(comparison: Comparison, *, bins: str | None = None, most: int = BINS_IN_TERMINAL) -> FloatArray:
    """Edges in percent, 0 among them.

    bins: as typed: edges such as "-5,0,5,10", or the width of a bin such as "0.5"; None chooses a round width.
    Unless the edges are given, they are multiples of the width that span the data but for a hundredth at each
    end, in at most about `most` bins when the width is free too.
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
        width = _round_width(max((high - low) / most, _LEAST_WIDTH))
    first, last = min(math.floor(low / width), -1), max(math.floor(high / width) + 1, 1)
    if last - first > _MOST_BINS:
        raise InputError(f"bins {width:g} % wide would be {last - first:.4g} in number; expected at most {_MOST_BINS}")
    return np.array([float(f"{k * width:.12g}") for k in range(first, last + 1)])


def text_histogram(comparison: Comparison, *, bins: str | None = None) -> str:
    """The histogram in rows of at most 80 characters, without a final newline; then the inputs without a ratio."""
    found = histogram(comparison, bin_edges(comparison, bins=bins))
    rows = _rows(found)
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
    """Draw the histogram and write it to `path`, whose suffix says the format. An existing figure is replaced."""
    check_figure_path(path)
    if not comparison.both.any():
        raise RunError(
            f"{comparison.name_a} and {comparison.name_b} certify no input as the same class: there is no ratio to draw"
        )
    found = histogram(comparison, bin_edges(comparison, bins=bins, most=BINS_IN_FIGURE))
    with written_figure(path) as figure:
        heading = title or _title(comparison)
        top = 0.87 if "\n" in heading else 0.92
        axes = figure.add_axes((0.1, 0.18, 0.87, top - 0.18))
        _draw_ends(axes, comparison, found)
        smaller, larger = _draw_bars(axes, found)
        unchanged = _draw_unchanged(axes, found)
        mean = _draw_mean(axes, comparison, found)
        norm = "ℓ₂" if comparison.norm is Norm.L2 else "ℓ₁"
        axes.set_xlabel(f"increase of the certified radius ({norm}) in percent")
        axes.set_ylabel("number of inputs")
        axes.locator_params(axis="y", integer=True)
        axes.grid(visible=False, axis="x")
        axes.legend(handles=[larger, unchanged, smaller, mean], loc="upper right", fontsize=8)
        axes.set_title(heading, fontsize=11)


def _parse_bins(text: str) -> FloatArray:
    """One positive width, or ascending edges with 0 put among them."""
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
    """The least and the largest increase but for a hundredth of the inputs at each end, stretched to hold 0."""
    increase = np.round(increase, _PERCENT_DECIMALS)
    if not increase.any():
        return 0.0, 0.0
    # Taken at inputs, so that up to a hundred of them are spanned whole.
    low = float(np.quantile(increase, 0.01, method="lower"))
    high = float(np.quantile(increase, 0.99, method="higher"))
    if low == high == 0:
        low, high = float(increase.min()), float(increase.max())
    return min(low, 0.0), max(high, 0.0)


def _round_width(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least `least`, up to a rounding error."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((factor * power for factor in (1, 2, 5) if factor * power >= least), 10 * power)


def _rows(found: Histogram) -> list[tuple[str, int]]:
    texts = [f"{edge:+g}" if edge else "0" for edge in found.edges]
    width = max(map(len, texts))
    rows = [(f"< {texts[0]}", found.below)] if found.below else []
    for left, right, edge, count in zip(texts, texts[1:], found.edges, found.counts.tolist(), strict=False):
        if edge == 0:
            rows.append(("unchanged", found.unchanged))
        rows.append((f"{left} to {right:>{width}}", count))
    if found.edges[-1] == 0:
        rows.append(("unchanged", found.unchanged))
    return [*rows, (f"≥ {texts[-1]}", found.above)] if found.above else rows


def _bar(count: int, tallest: int, length: int) -> str:
    """A bar in eighths of a character; the smallest count above 0 still shows."""
    eighths = math.ceil(8 * length * count / tallest) if count else 0
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _draw_bars(axes: Axes, found: Histogram) -> tuple[BarContainer, BarContainer]:
    """The bins below and above 0, each side in its colour."""
    sides: list[BarContainer] = []
    widths, below_zero = np.diff(found.edges), found.edges[:-1] < 0
    for name, colour, shown, beyond in (
        ("smaller", _DECREASE, below_zero, found.below),
        ("larger", _INCREASE, ~below_zero, found.above),
    ):
        sides.append(
            axes.bar(
                found.edges[:-1][shown],
                found.counts[shown],
                width=widths[shown],
                align="edge",
                color=colour,
                edgecolor="white",
                linewidth=0.4,
                label=f"{name}: {int(found.counts[shown].sum()) + beyond}",
            )
        )
    return sides[0], sides[1]


def _draw_unchanged(axes: Axes, found: Histogram) -> Artist:
    """A pin at 0, as high as there are equal radii: a bar would need a width, and they have none."""
    (stem,) = axes.plot([0.0, 0.0], [0.0, found.unchanged], color=_UNCHANGED, linewidth=1.6, zorder=3)
    outline: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.8, "markersize": 6}
    stem.set(marker="o", markevery=[1], label=f"unchanged: {found.unchanged}", **outline)
    return stem


def _draw_mean(axes: Axes, comparison: Comparison, found: Histogram) -> Artist:
    mean = float(comparison.increase_percent.mean())
    inside = found.edges[0] <= mean <= found.edges[-1]
    label = f"mean: {mean:+z.2f} %{'' if inside else ', beyond the edge'}".replace("-", "−")
    look: dict[str, Any] = {"color": "#000000", "linewidth": 1.0, "linestyle": "--" if inside else " "}
    return axes.axvline(mean if inside else 0.0, label=label, zorder=2.5, **look)


def _draw_ends(axes: Axes, comparison: Comparison, found: Histogram) -> None:
    """Hatched bars apart for what lies beyond the edges, and for the inputs that one run alone certifies."""
    low, high = float(found.edges[0]), float(found.edges[-1])
    slot = 0.1 * (high - low)
    left = [(f"below\n{_signed(low)}", found.below), ("only\nB", int(comparison.only_b.sum()))]
    right = [(f"from\n{_signed(high)}", found.above), ("only\nA", int(comparison.only_a.sum()))]
    ticks = {tick: _signed(tick) for tick in _ticks(low, high)}
    for start, direction, ends, colour in ((low, -1, left, _DECREASE), (high, 1, right, _INCREASE)):
        for number, (label, count) in enumerate((end for end in ends if end[1]), start=1):
            place = start + direction * slot * (number - 0.3)
            axes.bar(place, count, width=0.4 * slot, color=colour, alpha=0.6, hatch="/////", edgecolor="white")
            axes.annotate(str(count), (place, count), (0, 2), textcoords="offset points", ha="center", fontsize=8)
            ticks = {tick: text for tick, text in ticks.items() if abs(tick - place) > 0.75 * slot} | {place: label}
    axes.set_xticks(list(ticks), list(ticks.values()), fontsize=9)


def _ticks(low: float, high: float) -> list[float]:
    step = _round_width((high - low) / 8)
    return [float(f"{k * step:.12g}") for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _signed(percent: float) -> str:
    return f"{percent:+g}".replace("-", "−") if percent else "0"


def _title(comparison: Comparison) -> str:
    one_line = f"{comparison.name_a} relative to {comparison.name_b}"
    return one_line if len(one_line) <= 64 else one_line.replace(" relative to ", "\nrelative to ")
