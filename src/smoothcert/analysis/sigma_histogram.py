"""The histogram of a sigma that varies with the input, as text and as a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.figures import COLOURS, check_figure_path, open_figure

_BINS = 16
_WIDTH = 44


def text_histogram(sigmas: NDArray[np.float64]) -> str:
    """One line for each bin: its lower end, a bar, and the number of the (m,) values in it."""
    counts, edges = np.histogram(sigmas, bins=_BINS)
    most = max(int(counts.max()), 1)
    lines = [
        f"{low:10.4g}  {'█' * round(_WIDTH * int(count) / most)}{' ' if count else ''}{count}"
        for low, count in zip(edges, counts, strict=False)
    ]
    return "\n".join(lines)


def draw_sigma_histogram(sigmas: NDArray[np.float64], path: Path, *, base_sigma: float, title: str) -> None:
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
