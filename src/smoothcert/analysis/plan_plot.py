"""The figure of `smoothcert plan`: the certified radius against the rate at which σ changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from smoothcert.analysis.figures import COLOURS, check_figure_path, open_figure
from smoothcert.records import FloatArray


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
