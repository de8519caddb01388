"""The figures of docs/shape-of-the-votes.md that no verb draws.

python docs/figures/shape_of_the_votes.py bounds -o docs/images/second-order-bounds.png
python docs/figures/shape_of_the_votes.py rings RUN -o docs/images/swiss-roll-rings.png

`bounds` draws Theorem 1 of Levine et al. (2021) in the form of their figure 1. `rings` takes a run on swiss-roll that
carries second-order and gaussian, and draws both radii around some of its inputs in the form of their figure 2.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Annulus
from scipy.special import ndtri

from smoothcert import load_dataset
from smoothcert.certificates import gaussian_radius, second_order_radius
from smoothcert.certificates.second_order import largest_gradient_norm, second_order_lower_bound
from smoothcert.runs.load import load_results

FIRST, SECOND = "#c0392b", "#1f5fa8"
CLASSES = ("#1f5fa8", "#d1603d")


def bounds(output: Path) -> None:
    """Left: how low the probability of a class can be at a distance. Right: radius against the gradient's norm."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    distance = np.linspace(0.0, 2.0, 201)
    for gradient, colour, name in ((np.inf, FIRST, "gradient unknown"), (0.0, SECOND, "gradient zero")):
        lowest = second_order_lower_bound(0.8, gradient, distance=distance)
        left.plot(distance, ndtri(lowest), color=colour, label=name)
    left.axhline(0.0, color="black", linewidth=0.8)
    left.set(xlabel="distance, in standard deviations", ylabel="Φ⁻¹ of the smallest possible p")
    left.set_title("p = 0.8 at the input; below 0 the class may change", fontsize=10)
    left.legend(frameon=False)
    for p in (0.6, 0.7, 0.8, 0.9, 0.95, 0.99):
        gradient = np.linspace(0.0, float(largest_gradient_norm(p, sigma=1.0)), 101)
        (line,) = right.plot(gradient, second_order_radius(p, gradient, sigma=1.0), label=f"p = {p:g}")
        right.plot(gradient[[0, -1]], [gaussian_radius(p, sigma=1.0)] * 2, color=line.get_color(), linestyle=":")
    right.set(xlabel="norm of the gradient of p, times σ", ylabel="certified radius / σ", xlim=(0.0, 0.48))
    right.set_title("second order (solid) and first order (dotted)", fontsize=10)
    right.legend(frameon=False, loc="upper right")
    figure.savefig(output, dpi=110)


def rings(run: Path, output: Path) -> None:
    """Rings of both radii around every sixth input that is certified correctly by both."""
    second, first = (load_results(Path(f"{run}@{name}")) for name in ("second-order", "gaussian"))
    data = load_dataset("swiss-roll", split="test")
    place = np.asarray(data.inputs([int(index) for index in second.index]))
    figure, axes = plt.subplots(figsize=(6.4, 6.4), layout="constrained")
    for label, colour in enumerate(CLASSES):
        mine = (second.label == label) & second.correct
        axes.scatter(*place[mine].T, s=9, color=colour, alpha=0.45, linewidths=0)
    axes.scatter(*place[~second.correct].T, s=9, color="black", linewidths=0, label="wrong or not certified")
    chosen = np.flatnonzero(second.correct & first.correct)[::6]
    for at in chosen:
        colour = CLASSES[int(second.label[at])]
        inner, outer = float(first.radius[at]), float(second.radius[at])
        if outer > inner:
            axes.add_patch(Annulus(place[at], outer, outer - inner, facecolor=colour, alpha=0.3, linewidth=0))
        axes.add_patch(plt.Circle(place[at], inner, fill=False, edgecolor=colour, linewidth=0.9))
        axes.scatter(*place[at], s=14, color=colour, zorder=3)
    axes.set(aspect="equal", xticks=[], yticks=[])
    axes.set_title("line: first-order radius; band: what second order adds", fontsize=10)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    figure.savefig(output, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=("bounds", "rings"))
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    if given.figure == "bounds":
        bounds(given.output)
    elif given.run is None:
        parser.error("rings needs a run on swiss-roll")
    else:
        rings(given.run, given.output)


if __name__ == "__main__":
    main()
