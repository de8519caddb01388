"""Draw a noise level that a smoothed selector chooses, and both certificates of one point.

    python docs/figures/selected_sigma.py -o docs/images/selected-sigma.png

Nothing is sampled: selector and classifiers are half-planes, whose radii are exact.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from scipy.special import ndtr

from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius

SELECTOR_SIGMA, POINT, REACH = 1.0, (-0.35, 0.0), 2.2
LEFT, RIGHT = "#4477aa", "#ee6677"
BOUNDARIES = {LEFT: (1.35, 0.25), RIGHT: (1.15, -0.4)}
"""For each level the boundary of its classifier: height above the origin, and slope."""


def measure_radii() -> tuple[float, float]:
    """Published and sharper radius of the point."""
    lower = float(ndtr(-POINT[0] / SELECTOR_SIGMA))
    excluded = exclusion_radii(lower, [math.nan, 1 - lower], sigma=SELECTOR_SIGMA).tolist()
    radii = [_distance_to_boundary(*boundary) for boundary in BOUNDARIES.values()]
    return published_radius(excluded[1], radii[0]), selected_radius(excluded, radii)


def _distance_to_boundary(height: float, slope: float) -> float:
    return (height + slope * POINT[0] - POINT[1]) / math.hypot(1.0, slope)


def draw(path: Path) -> None:
    """The plane: which level is selected where, where the class changes, and the two certified discs."""
    published, sharper = measure_radii()
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(-REACH, 0, color=LEFT, alpha=0.12, lw=0)
    axes.axvspan(0, REACH, color=RIGHT, alpha=0.12, lw=0)
    axes.axvline(0, color="black", lw=1.2)
    axes.text(-REACH + 0.08, -1.32, "σ = 0.25\nis selected", color=LEFT, va="bottom")
    axes.text(REACH - 0.08, -1.32, "σ = 1\nis selected", color=RIGHT, va="bottom", ha="right")
    for (colour, (height, slope)), side in zip(BOUNDARIES.items(), (-1, 1), strict=True):
        ends = np.array([0.0, side * REACH])
        axes.plot(ends, height + slope * ends, color=colour, lw=2.2)
        axes.plot(-ends, height - slope * ends, color=colour, lw=1.2, ls=":")
    axes.text(-REACH + 0.08, 1.62, "another class", color="#555555")
    axes.add_patch(Circle(POINT, sharper, fill=False, ec="black", lw=2.2))
    axes.add_patch(Circle(POINT, published, fill=False, ec="black", lw=1.4, ls="--"))
    axes.plot(*POINT, "ko", ms=5)
    axes.text(POINT[0] - 0.05, -published - 0.06, f"published: {published:.2f}", ha="center", va="top", fontsize=9)
    axes.text(POINT[0] - 0.05, 0.70, f"sharper: {sharper:.2f}", ha="center", va="top", fontsize=9)
    axes.set(xlim=(-REACH, REACH), ylim=(-1.4, 1.9), aspect="equal", xticks=[], yticks=[])
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
