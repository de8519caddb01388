"""Two published claims that do not hold, each in a figure; takes seconds and needs no network and no data.

python docs/figures/contradicted_claims.py [-o docs/images]

learned-sigma: Bergstrom, Sager and Anderson, Figure 1. The largest radius that their Theorem 3 can give at the settings
of their experiment. two-class-criterion: Súkeník, Kuvshinov and Günnemann, appendix B.5. A classifier with three
classes whose answer changes within the radius that the remark certifies. All probabilities are exact.
"""

from __future__ import annotations

import argparse
import io
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from PIL import Image
from scipy import optimize, special, stats

from smoothcert.certificates import (
    envelope_radius,
    envelope_two_class_radius,
    gaussian_radius,
    lipschitz_constant,
    lipschitz_radius,
    worst_case_probability,
)
from smoothcert.records import FloatArray, LipschitzSigma, SemiElastic

BLUE, ORANGE, GREEN, GREY, BLACK = "#1f5fa8", "#d1603d", "#3c8d5a", "#777777", "#222222"


# ------------------------------------------------------------------------- Bergstrom, Sager and Anderson, Figure 1


@dataclass(frozen=True, slots=True)
class LearnedSigma:
    """The settings of their section 4."""

    dimension: int = 784
    num_classes: int = 10
    sigma_min: float = 0.65
    lipschitz: float = 0.5
    p_min: float = 1e-7

    def constant(self) -> float:
        """L of their equation (5)."""
        return float(self.constants(np.array([self.lipschitz]))[0])

    def constants(self, lipschitz: FloatArray) -> FloatArray:
        make = {"sigma_min": self.sigma_min, "dimension": self.dimension, "p_min": self.p_min}
        return np.array([float(lipschitz_constant(lipschitz=float(one), **make)) for one in lipschitz])

    def largest_radius(self) -> float:
        """Φ⁻¹(1-p_min)/L: mean scores lie in [p_min, 1-p_min], so no two of them are further apart."""
        return float(-special.ndtri(self.p_min)) / self.constant()

    def slope_for(self, radius: float) -> float:
        """The Lip(σ) at which the largest radius is this one."""
        without, with_it = self.constants(np.array([0.0, self.lipschitz]))
        wanted = float(-special.ndtri(self.p_min)) / radius
        return self.lipschitz * (wanted - float(without)) / float(with_it - without)

    def radius(self, score: FloatArray) -> FloatArray:
        """Theorem 3 for the raw mean score of the class, if all other classes together have the rest."""
        return lipschitz_radius(
            score,
            sigma_min=self.sigma_min,
            lipschitz=self.lipschitz,
            dimension=self.dimension,
            num_classes=self.num_classes,
            p_min=self.p_min,
        )

    def tight_radius(self, score: float, *, sigma: float, lipschitz: float | None = None) -> float:
        """The largest radius that any theorem can give that knows the mean score, σ(x), Lip(σ) and σ_min."""
        envelope = LipschitzSigma(self.lipschitz if lipschitz is None else lipschitz, self.sigma_min)
        return float(envelope_radius(score, sigma=sigma, dimension=self.dimension, envelope=envelope))


def draw_learned_sigma() -> Figure:
    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    by_score, by_slope = figure.subplots(1, 2)
    paper = LearnedSigma()
    draw_radius_by_score(by_score, paper)
    draw_radius_by_slope(by_slope, paper)
    return figure


def draw_radius_by_score(axes: Axes, paper: LearnedSigma) -> None:
    z = np.linspace(0.0, -float(special.ndtri(paper.p_min)), 201)
    score = special.ndtr(z)
    for sigma, at, colour in ((1.0, 2.4, GREY), (0.5, 3.7, GREEN), (0.25, 3.7, BLUE)):
        axes.plot(z, gaussian_radius(score, sigma=sigma), color=colour)
        axes.text(at, (at - 0.05) * sigma - 0.03, f"constant σ = {sigma:g}", color=colour, va="top", fontsize=10)
    axes.plot(z, paper.radius(score), color=ORANGE, linewidth=3)
    axes.annotate(
        f"their theorem: never above {paper.largest_radius():.4f}",
        (4.0, float(paper.radius(special.ndtr(np.array([4.0])))[0])),
        (2.0, 0.36),
        color=ORANGE,
        fontsize=10,
        fontweight="bold",
        va="center",
        arrowprops={"arrowstyle": "->", "color": ORANGE},
    )
    ticks = (0.5, 0.9, 0.99, 0.999, 1 - 1e-4, 1 - 1e-5, 1 - 1e-7)
    axes.set_xticks(
        special.ndtri(np.array(ticks)), ["½", ".9", ".99", ".999", "1-10⁻⁴", "1-10⁻⁵", "1-10⁻⁷"], fontsize=8
    )
    axes.set(xlabel="mean score of the class", ylabel="certified radius", xlim=(0, z[-1]), ylim=(0.0, 2.75))
    axes.set_title("What each method certifies, whatever the network", fontsize=11)


def draw_radius_by_slope(axes: Axes, paper: LearnedSigma) -> None:
    slopes = np.geomspace(5e-4, 1.0, 25)
    best = -float(special.ndtri(paper.p_min))
    axes.loglog(slopes, best / paper.constants(slopes), color=ORANGE, linewidth=3, label="their theorem")
    for sigma, style in ((1.0, "--"), (0.65, ":")):
        tight = [paper.tight_radius(1.0 - paper.p_min, sigma=sigma, lipschitz=float(slope)) for slope in slopes]
        axes.loglog(
            slopes,
            tight,
            color=BLACK,
            linestyle=style,
            linewidth=1.2,
            label=f"no theorem can give more, if σ(x) = {sigma:g}",
        )
    axes.plot([paper.lipschitz], [paper.largest_radius()], "o", color=ORANGE, markersize=8)
    axes.annotate(
        f"the paper: Lip(σ) = {paper.lipschitz:g}\nL = {paper.constant():.2f}, radius ≤ {paper.largest_radius():.4f}",
        (paper.lipschitz, paper.largest_radius()),
        (0.0007, 0.33),
        color=ORANGE,
        fontsize=10,
        fontweight="bold",
        va="center",
        arrowprops={"arrowstyle": "->", "color": ORANGE},
    )
    for sigma, colour in ((0.5, GREEN), (0.25, BLUE)):
        axes.axhline(best * sigma, color=colour, linewidth=1.0)
        axes.text(0.95, best * sigma * 1.05, f"constant σ = {sigma:g}", color=colour, fontsize=10, ha="right")
    axes.set(xlabel="Lip(σ), how fast σ may change", ylabel="largest radius, mean score 1-10⁻⁷")
    axes.set(xlim=(5e-4, 1.0), ylim=(0.05, 8.0))
    axes.set_yticks([0.1, 0.2, 0.5, 1.0, 2.0, 5.0], ["0.1", "0.2", "0.5", "1", "2", "5"])
    axes.legend(frameon=False, loc="lower left", fontsize=9)
    axes.set_title("Why: the faster σ may change, the less can be certified", fontsize=11)


# --------------------------------------------------------------- Súkeník, Kuvshinov and Günnemann, appendix B.5


@dataclass(frozen=True)
class ThreeClasses:
    """A disk (class B) in a ring (class C), and A elsewhere: the worst regions for A and B, for x₁ at a distance.

    σ(x) = σ₀ e^{-r‖x‖}, which is semi-elastic with rate r. x₀ = 0, and x₁ = (distance, 0). p_a and p_b are the
    probabilities of A and B at x₀; C has the rest.
    """

    p_a: float = 0.50
    p_b: float = 0.27
    sigma: float = 1.0
    rate: float = 0.5
    dimension: int = 2

    def sigma_at(self, distance: float) -> float:
        return self.sigma * math.exp(-self.rate * distance)

    @cached_property
    def remark_radius(self) -> float:
        """Where no class of probability p_b at x₀ can reach ½: the criterion with p_b in place of 1-p_a."""
        return float(optimize.brentq(self._worst_lead, 1e-6, 2.0 * self.sigma, xtol=1e-12))

    def _worst_lead(self, distance: float) -> float:
        ends = np.array([self.sigma_at(distance), self.sigma**2 / self.sigma_at(distance)])
        case = {"sigma": self.sigma, "distance": distance, "dimension": self.dimension}
        return float(worst_case_probability(1.0 - self.p_b, other_sigma=ends, **case).max()) - 0.5

    @cached_property
    def sound_radius(self) -> float:
        envelope = SemiElastic(self.rate)
        given = {"sigma": self.sigma, "dimension": self.dimension, "envelope": envelope}
        return float(envelope_two_class_radius(self.p_a, self.p_b, **given))

    @cached_property
    def distance(self) -> float:
        """Of x₁: 95 % of the radius of the remark."""
        return 0.95 * self.remark_radius

    @cached_property
    def centre(self) -> float:
        """Of disk and ring, on the first axis: where the ratio of the densities of x₁ and x₀ is largest."""
        a, mine, other = self.distance, self.sigma**2, self.sigma_at(self.distance) ** 2
        return a * mine / (mine - other)

    @cached_property
    def disk(self) -> float:
        """Radius of the disk, which has probability p_b at x₀."""
        return self._radius(self.p_b)

    @cached_property
    def ring(self) -> float:
        """Outer radius of the ring."""
        return self._radius(1.0 - self.p_a)

    def _radius(self, chance: float) -> float:
        square = stats.ncx2.ppf(chance, self.dimension, (self.centre / self.sigma) ** 2)
        return self.sigma * math.sqrt(float(square))

    def probabilities(self, distance: float) -> tuple[float, float, float]:
        """Of A, B and C at (distance, 0) under the noise of that point."""
        level, gap = self.sigma_at(distance), self.centre - distance
        inside = [
            float(stats.ncx2.cdf((radius / level) ** 2, self.dimension, (gap / level) ** 2))
            for radius in (self.disk, self.ring)
        ]
        return 1.0 - inside[1], inside[0], inside[1] - inside[0]

    @cached_property
    def crossing(self) -> float:
        """Where B overtakes A on the way to x₁: no larger radius is true of this classifier."""

        def lead(distance: float) -> float:
            a, b, _ = self.probabilities(distance)
            return a - b

        return float(optimize.brentq(lead, 0.0, self.distance, xtol=1e-12))


OTHER_SIZES = (ThreeClasses(dimension=49, rate=0.05), ThreeClasses(dimension=784, rate=0.01))


def draw_two_class_criterion() -> Figure:
    case = ThreeClasses()
    figure = Figure(figsize=(10.5, 4.6), layout="constrained")
    plane, chances = figure.subplots(1, 2, width_ratios=(1, 1.25))
    draw_regions(plane, case)
    draw_probabilities(chances, case)
    return figure


def draw_regions(axes: Axes, case: ThreeClasses) -> None:
    axes.set_facecolor("#dbe6f3")
    axes.add_patch(Circle((case.centre, 0.0), case.ring, color="#d5e8db"))
    axes.add_patch(Circle((case.centre, 0.0), case.disk, color="#f4d5c9"))
    for place, name in ((0.0, "x₀"), (case.distance, "x₁")):
        level = case.sigma_at(place)
        axes.add_patch(Circle((place, 0.0), level, fill=False, linestyle="--", linewidth=1.2, color=BLACK))
        axes.plot([place], [0.0], "o", color=BLACK, markersize=5)
        axes.text(place + 0.05, 0.1, name, fontsize=11)
    axes.text(0.0, -1.05 * case.sigma, f"noise at x₀:\nσ = {case.sigma:.2f}", ha="center", va="top", fontsize=9)
    level = case.sigma_at(case.distance)
    axes.text(case.distance + level + 0.06, 0.0, f"noise at x₁:\nσ = {level:.2f}", va="center", fontsize=9)
    for x, y, name, colour in (
        (-1.1, 1.3, "A", BLUE),
        (case.centre + 0.3, -0.7, "B", ORANGE),
        (case.centre, 0.5 * (case.disk + case.ring), "C", GREEN),
    ):
        axes.text(x, y, name, color=colour, fontsize=16, fontweight="bold", ha="center", va="center")
    axes.set(xlim=(-1.5, 2.1), ylim=(-1.8, 1.8), aspect="equal")
    axes.set_title("The classifier: disk B in a ring C, A elsewhere", fontsize=11)


def draw_probabilities(axes: Axes, case: ThreeClasses) -> None:
    way = np.linspace(0.0, 1.02 * case.remark_radius, 101)
    curves = np.array([case.probabilities(float(distance)) for distance in way])
    for column, name, colour in ((0, "A", BLUE), (1, "B", ORANGE), (2, "C", GREEN)):
        axes.plot(way, curves[:, column], color=colour, linewidth=2.5)
        axes.text(way[-1] + 0.008, curves[-1, column], name, color=colour, fontsize=14, fontweight="bold", va="center")
    axes.axhline(0.5, color=GREY, linewidth=0.8)
    axes.axvspan(case.crossing, case.remark_radius, color=ORANGE, alpha=0.13)
    middle = 0.5 * (case.crossing + case.remark_radius)
    words = "the remark certifies A;\nthe answer is B"
    axes.text(middle, 0.535, words, ha="center", va="bottom", color=ORANGE, fontsize=11, fontweight="bold")
    for place, words, colour, y in (
        (case.sound_radius, f"our radius\n{case.sound_radius:.3f}", BLACK, 0.08),
        (case.remark_radius, f"radius of the remark\n{case.remark_radius:.3f}", ORANGE, 0.08),
    ):
        axes.axvline(place, color=colour, linewidth=1.2, linestyle="--")
        axes.text(place - 0.006, y, words, color=colour, fontsize=9, ha="right", va="center")
    axes.text(0.006, 0.505, "½: the remark asks only that B stays below", color=GREY, fontsize=8, va="bottom")
    axes.set(xlabel="distance from x₀", ylabel="probability under the noise of the point")
    axes.set(xlim=(0.0, way[-1] * 1.06), ylim=(0.05, 0.62))
    axes.set_title("What it answers on the way to x₁", fontsize=11)


FIGURES = {
    "contradicted-learned-sigma.png": draw_learned_sigma,
    "contradicted-two-class-criterion.png": draw_two_class_criterion,
}


def describe() -> str:
    """The numbers of the page docs/explanation/contradicted-claims.md."""
    paper, case = LearnedSigma(), ThreeClasses()
    lines = [
        f"L = {paper.constant():.2f}; no radius above {paper.largest_radius():.4f},"
        f" {float(paper.radius(np.array([1.0 - 1e-12]))[0]):.4f} with ten classes",
        *(
            f"any theorem, score 1-1e-7, sigma(x) = {sigma:g}: {paper.tight_radius(1.0 - 1e-7, sigma=sigma):.4f};"
            f" constant sigma: {float(gaussian_radius(1.0 - 1e-7, sigma=sigma)):.3f}"
            for sigma in (0.65, 1.0)
        ),
        f"as much as a constant sigma = .5 from Lip(sigma) = {paper.slope_for(0.5 * -special.ndtri(paper.p_min)):.4f}",
        f"disk {case.disk:.4f}, ring {case.ring:.4f}, centre ({case.centre:.4f}, 0)",
        f"radius of the remark {case.remark_radius:.4f}; B overtakes A at {case.crossing:.4f};"
        f" our radius {case.sound_radius:.4f}",
    ]
    for place in (0.0, case.distance):
        a, b, c = case.probabilities(place)
        lines.append(f"at {place:.4f}, sigma {case.sigma_at(place):.4f}: A {a:.4f}, B {b:.4f}, C {c:.4f}")
    for other in OTHER_SIZES:
        a, b, _ = other.probabilities(other.distance)
        lines += [
            f"N {other.dimension}, rate {other.rate:g}: radius of the remark {other.remark_radius:.4f};"
            f" B overtakes A at {other.crossing:.4f}; our radius {other.sound_radius:.4f}",
            f"  at {other.distance:.4f}: A {a:.4f}, B {b:.4f}",
        ]
    remark = case.sigma * float(-special.ndtri(case.p_b))
    a, b = special.ndtr(np.array([-0.95 * remark, -0.05 * remark]) / case.sigma)
    lines.append(f"constant sigma: radius of the remark {remark:.4f}; at {0.95 * remark:.4f}: A {a:.4f}, B {b:.4f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(__file__).parents[1] / "images", help="folder for the images"
    )
    folder = parser.parse_args().output
    print(describe())
    for name, draw in FIGURES.items():
        drawn = io.BytesIO()
        draw().savefig(drawn, dpi=110)
        # A palette makes the files three times smaller, and lines in a few colours lose nothing by it.
        Image.open(drawn).convert("RGB").quantize(64).save(folder / name, optimize=True)


if __name__ == "__main__":
    main()
