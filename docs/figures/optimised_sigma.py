"""The unit disc, certified with a sigma of its own for every input: first come, first served.

Left, what each input would be granted by itself; the discs contradict each other. Middle and right, what a memory
grants when the inputs come in one order and in the other. Draws docs/images/optimised-sigma-order.png.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from numpy.typing import NDArray

from smoothcert import CertifiedPoint, GridSearch, OptimisedSigma, SmoothedClassifier

IMAGES = Path(__file__).parents[1] / "images"
COLOURS = {0: "#4477aa", 1: "#ee6677"}
INPUTS: NDArray[np.float32] = np.array([[6.0, 0.0], [0.0, 0.0], [-1.6, 1.2]], dtype=np.float32)


def unit_disc(points: NDArray[np.float32]) -> NDArray[np.int64]:
    """Class 1 inside the unit disc, class 0 outside."""
    return (np.linalg.norm(points, axis=1) <= 1.0).astype(np.int64)


def granted(order: Sequence[int], memory: Path) -> list[CertifiedPoint]:
    """What the inputs get in this order."""
    sigma = OptimisedSigma(0.25, search=GridSearch(points=25, noises=500), least=0.1, most=4.0)
    smoothed = SmoothedClassifier(unit_disc, sigma=sigma, memory=memory, num_classes=2, input_range=None, seed=1)
    return [smoothed.certify(INPUTS[[one]], n=20_000, indices=[one])[0] for one in order]


def alone(memory: Path) -> list[CertifiedPoint]:
    """What each would get if it were the only one."""
    return [granted([one], memory / f"{one}.sqlite")[0] for one in range(len(INPUTS))]


def draw(axes: Axes, points: Sequence[CertifiedPoint], title: str) -> None:
    axes.add_patch(Circle((0.0, 0.0), 1.0, facecolor="#f6d5d9", edgecolor="none", zorder=0))
    for number, point in enumerate(points, start=1):
        x, y = (float(value) for value in INPUTS[point.index])
        if point.prediction is None:
            axes.plot(x, y, "x", color="black")
            continue
        colour = COLOURS[point.prediction]
        axes.add_patch(Circle((x, y), point.radius, facecolor=colour, alpha=0.25, edgecolor=colour))
        axes.plot(x, y, "o", color=colour, markersize=4)
        settled = "" if point.promise is None else point.promise.settlement.name.lower()
        axes.annotate(f"{number}. {settled}", (x, y), textcoords="offset points", xytext=(5, 5), fontsize=8)
    axes.set_xlim(-10.0, 16.0)
    axes.set_ylim(-9.5, 9.5)
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=9)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pictures = {
            "each by itself: they contradict each other": alone(place),
            "a memory, the far input first": granted([0, 1, 2], place / "far-first.sqlite"),
            "a memory, the centre first": granted([1, 0, 2], place / "centre-first.sqlite"),
        }
    figure, frames = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for axes, (title, points) in zip(frames, pictures.items(), strict=True):
        draw(axes, points, title)
        for point in points:
            settled = "" if point.promise is None else point.promise.settlement.name
            print(f"{title}: {INPUTS[point.index]} sigma {point.sigma:.3f} class {point.prediction} "
                  f"radius {math.floor(point.radius * 1000) / 1000} {settled}")  # fmt: skip
    figure.savefig(IMAGES / "optimised-sigma-order.png", dpi=130)


if __name__ == "__main__":
    main()
