"""Figures 3, 11, 12 and 13 of Súkeník, Kuvshinov and Günnemann (2022), drawn from this package.

python docs/figures/varying_sigma.py [-o docs/images]

Figure 3: how small σ₁/σ₀ may be before nothing is certified, by Theorem 4 and in truth. Figure 11: the Rényi radius
against the dimension, beside the tight one. Figure 12: the worst-case probability ξ against the distance, beside that
of a linear classifier. Figure 13: the certified radius of a linear classifier, for a constant and a semi-elastic σ.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from scipy.special import ndtr

from smoothcert.certificates import envelope_radius, gaussian_radius, renyi_radius, worst_case_probability
from smoothcert.records import FloatArray, IntArray, SemiElastic
from smoothcert.sigma.level_ratios import practical_smallest_ratio, simple_smallest_ratio, smallest_ratio
from smoothcert.statistics.binomial import clopper_pearson_lower

COLOURS = ("#1f5fa8", "#d1603d", "#3c8d5a", "#7d5ba6")
GREY = "#777777"
SAMPLES, ALPHA = 100_000, 0.001
CIFAR10 = 3072


def thresholds() -> Figure:
    """Figure 3."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    size = np.arange(10, 3073)
    for panel, p_a in zip(axes, (0.9, 0.999), strict=True):
        panel.plot(size, practical_smallest_ratio(p_a, size), color=COLOURS[1], label="practical: ξ(0) = ½")
        panel.plot(size, smallest_ratio(p_a, size), color=COLOURS[0], label="Theorem 4")
        panel.plot(size, simple_smallest_ratio(p_a, size), color=COLOURS[0], linestyle=":", label="Corollary 5")
        panel.set(xlabel="dimension", xlim=(0, 3072), ylim=(0.6, 1.0))
        panel.set_title(f"p_A = {p_a:g}; nothing is certified below the lines", fontsize=10)
    axes[0].set(ylabel="σ₁ / σ₀")
    axes[1].legend(frameon=False, loc="lower right")
    return figure


def renyi() -> Figure:
    """Figure 11: p_A = .99, σ₀ = 1, σ₁ = .8."""
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    size = np.arange(1, 101, dtype=np.int64)
    tight = tight_radius(0.99, sigma=1.0, other_sigma=0.8, dimension=size)
    loose = renyi_radius(0.99, 0.01, sigma=1.0, other_sigma=0.8, dimension=size)
    axes.axhline(float(gaussian_radius(0.99, sigma=1.0)), color=GREY, linewidth=0.8, linestyle="--")
    axes.text(99, 2.36, "σ₁ = σ₀", color=GREY, ha="right", fontsize=9)
    axes.plot(size, tight, color=COLOURS[1], label="tight (Neyman–Pearson)")
    axes.plot(size, loose, color=COLOURS[0], label="Rényi (Theorem 14)")
    axes.set(xlabel="dimension", ylabel="certified radius", xlim=(0, 100), ylim=(0.0, 2.55))
    axes.set_title("p_A = 0.99, σ₀ = 1, σ₁ = 0.8", fontsize=10)
    axes.legend(frameon=False, loc="center right")
    return figure


def tight_radius(p_a: float, *, sigma: float, other_sigma: float, dimension: IntArray) -> FloatArray:
    """Where ξ reaches ½, for two given levels, by halving; 0 where it starts above. For drawing, not a certificate."""
    low = np.zeros(len(dimension))
    high = np.full(len(dimension), float(gaussian_radius(p_a, sigma=sigma)))
    for _ in range(30):
        middle = 0.5 * (low + high)
        chance = worst_case_probability(p_a, sigma=sigma, other_sigma=other_sigma, distance=middle, dimension=dimension)
        low, high = np.where(chance < 0.5, middle, low), np.where(chance < 0.5, high, middle)
    return low


def worst_cases() -> Figure:
    """Figure 12. Top: ξ for smaller and larger σ₁ by dimension; middle: by σ₁ and by p_B; bottom: the two compared."""
    figure, axes = plt.subplots(3, 2, figsize=(9, 9.6), layout="constrained", sharex=True, sharey=True)
    by_size = [(n, f"N = {n}") for n in (10, 30, 90)]
    draw_cases(axes[0, 0], "[1, 0.8, N, 0.01]", [(1.0, 0.8, n, 0.01, name) for n, name in by_size])
    draw_cases(axes[0, 1], "[1, 1.25, N, 0.01]", [(1.0, 1.25, n, 0.01, name) for n, name in by_size])
    levels = (0.6, 0.8, 0.95)
    draw_cases(axes[1, 0], "[1, σ₁, 100, 0.01]", [(1.0, s, 100, 0.01, f"σ₁ = {s:g}") for s in levels])
    chances = (0.1, 0.01, 0.001)
    draw_cases(axes[1, 1], "[1, 0.8, 100, p_B]", [(1.0, 0.8, 100, p, f"p_B = {p:g}") for p in chances])
    for panel, p_b in zip(axes[2], (0.01, 0.001), strict=True):
        pair = [(1.0, 0.85, 100, p_b, "ξ, σ₁ = 0.85"), (1.0, 1 / 0.85, 100, p_b, "ξ, σ₁ = 1/0.85")]
        draw_cases(panel, f"[1, 0.85 and 1/0.85, 100, {p_b:g}]", pair)
        panel.set(xlabel="distance")
    for panel in axes[:, 0]:
        panel.set(ylabel="probability of the opponent")
    return figure


def draw_cases(axes: Axes, title: str, cases: list[tuple[float, float, int, float, str]]) -> None:
    """ξ (solid) and the linear classifier (dotted) for [σ₀, σ₁, N, p_B]."""
    distance = np.linspace(0.0, 4.0, 161)
    for colour, (sigma, other, size, p_b, name) in zip(COLOURS, cases, strict=False):
        chance = worst_case_probability(1.0 - p_b, sigma=sigma, other_sigma=other, distance=distance, dimension=size)
        border = float(gaussian_radius(1.0 - p_b, sigma=sigma))
        axes.plot(distance, chance, color=colour, label=name)
        axes.plot(distance, ndtr((distance - border) / other), color=colour, linestyle=":")
    axes.axhline(0.5, color="black", linewidth=0.8)
    axes.set(xlim=(0.0, 4.0), ylim=(-0.02, 1.03))
    axes.set_title(f"{title}; linear classifier dotted", fontsize=10)
    axes.legend(frameon=False, loc="lower right", fontsize=9)


def linear_boundary() -> Figure:
    """Figure 13: radius against the distance from the boundary; n = 100000 votes, as many as expected, α = .001."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for panel, sigma in zip(axes, (0.12, 0.5), strict=True):
        distance = np.linspace(0.0, 5.0 * sigma, 201)
        votes = np.rint(SAMPLES * ndtr(distance / sigma)).astype(np.int64)
        p_a = clopper_pearson_lower(votes, SAMPLES, alpha=ALPHA)
        panel.plot(distance, distance, color=GREY, linestyle="--", linewidth=0.8, label="the truth")
        panel.plot(distance, gaussian_radius(p_a, sigma=sigma), color="black", label="constant σ")
        for colour, rate in zip(COLOURS, (0.005, 0.01, 0.02), strict=False):
            radius = envelope_radius(p_a, sigma=sigma, dimension=CIFAR10, envelope=SemiElastic(rate))
            panel.plot(distance, radius, color=colour, label=f"semi-elastic, r = {rate:g}")
        panel.set(xlabel="distance from the boundary", xlim=(0.0, 5.0 * sigma), ylim=(0.0, 4.2 * sigma))
        panel.set_title(f"σ_b = {sigma:.2f}, N = {CIFAR10}", fontsize=10)
    axes[0].set(ylabel="certified radius")
    axes[0].legend(frameon=False, loc="lower right")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "thresholds.png": thresholds,
    "renyi-radius.png": renyi,
    "worst-case-probability.png": worst_cases,
    "linear-boundary.png": linear_boundary,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(__file__).parents[1] / "images", help="folder for the images"
    )
    folder = parser.parse_args().output
    for name, draw in FIGURES.items():
        figure = draw()
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=90)
        plt.close(figure)
        # A palette makes the files three times smaller, and lines in a few colours lose nothing by it.
        Image.open(drawn).convert("RGB").quantize(64).save(folder / f"varying-sigma-{name}", optimize=True)


if __name__ == "__main__":
    main()
