"""Figures about sigma: the histogram of its values, and the radius against the rate at which it changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from smoothcert.analysis.figures import COLOURS, check_figure_path, open_figure
from smoothcert.records import FloatArray

_BINS = 16
_WIDTH = 44


def format_sigma_histogram(sigmas: FloatArray) -> str:
    """One line for each bin: its lower end, a bar, and the number of the (m,) values in it."""
    counts, edges = np.histogram(sigmas, bins=_BINS)
    most = max(int(counts.max()), 1)
    lines = [
        f"{low:10.4g}  {'█' * round(_WIDTH * int(count) / most)}{' ' if count else ''}{count}"
        for low, count in zip(edges, counts, strict=False)
    ]
    return "\n".join(lines)


def draw_sigma_histogram(sigmas: FloatArray, path: Path, *, base_sigma: float, title: str) -> None:
    """Write a png, svg or pdf; lines mark the base value and the mean."""
    check_figure_path(path)
    with open_figure(path) as figure:
        axes = figure.add_subplot()
        axes.hist(sigmas, bins=4 * _BINS, color=COLOURS[0])
        axes.axvline(base_sigma, color=COLOURS[6], linestyle="--", label=f"base {base_sigma:g}")
        axes.axvline(float(sigmas.mean()), color=COLOURS[1], label=f"mean {sigmas.mean():.4g}")
        axes.set_xlabel("sigma")
        axes.set_ylabel("inputs")
        axes.set_title(title)
        axes.legend()


def draw_plan(
    curves: Mapping[str, tuple[FloatArray, FloatArray]],
    fastest: Mapping[str, float],
    path: Path,
    *,
    constant_radius: float,
    radius: float,
    title: str,
) -> None:
    """Write a png, svg or pdf. curves: (slopes, radii) by name; fastest: the largest slope that keeps `radius`."""
    check_figure_path(path)
    with open_figure(path) as figure:
        axes = figure.add_subplot()
        for colour, (name, (slopes, radii)) in zip(COLOURS, curves.items(), strict=False):
            axes.semilogx(slopes, radii, color=colour, label=f"{name} (up to {fastest[name]:.4g})")
            axes.plot([fastest[name]], [radius], "o", color=colour)
        axes.axhline(constant_radius, color=COLOURS[6], linewidth=1, linestyle="--", label="constant sigma")
        axes.axhline(radius, color=COLOURS[6], linewidth=1, linestyle=":", label="promised")
        axes.set_ylim(bottom=0.0)
        axes.set_xlabel("how fast sigma changes, per unit of distance")
        axes.set_ylabel("certified radius")
        axes.set_title(title)
        axes.legend(loc="lower left")
        figure.tight_layout()
