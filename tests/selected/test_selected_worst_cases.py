"""Worst cases for given bounds: selectors and classifiers with these probabilities, where G changes at the radius.

A level that takes the top end of the line, the leading level the bottom end, and the other levels what lies between in
thin slices: that is the selector that changes soonest (Cohen et al. 2019, Theorem 2). Each base classifier is a
half-space. All borders are across one direction, so that selector and classifier change at the same point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import special

from selected_lines import Pieces
from smoothcert.certificates import gaussian_radius
from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.records import FloatArray, IntArray

SLICES = 40


@dataclass(frozen=True)
class WorstCase:
    """p, q: of the leading level 0 and of the level K-1 that is to be taken. others: K-2. class_0: (K,) of class 0."""

    p: float
    q: float
    others: int
    class_0: tuple[float, ...]
    sigma: float
    sigmas: tuple[float, ...]

    @property
    def levels(self) -> int:
        return self.others + 2

    def selector(self) -> Pieces:
        """From the bottom: level 0, slices of the other levels of equal mass, level K-1."""
        slices = SLICES * self.others
        masses = np.linspace(self.p, 1 - self.q, slices + 1)
        answers = [0, *(1 + at % self.others for at in range(slices)), self.levels - 1] if self.others else [0, 1]
        edges = special.ndtri(masses[: len(answers) - 1]) * self.sigma
        return Pieces(edges[None, :], np.array([answers]), self.levels)

    def taken(self, points: FloatArray) -> FloatArray:
        return self.selector().smooth(points[None, :], np.array([self.sigma]))[0]

    def answer(self, points: FloatArray) -> IntArray:
        """G on the line: class 0 below the border of the level that is taken."""
        borders = np.array(self.sigmas) * special.ndtri(self.class_0)
        return (points >= borders[self.taken(points).argmax(axis=1)]).astype(np.int64)

    def radii(self) -> tuple[float, float]:
        """Certified, by both forms, for class 0."""
        taken = self.taken(np.zeros(1))[0]
        uppers = [math.nan, *taken[1:].tolist()]
        excluded = exclusion_radii(float(taken[0]), uppers, sigma=self.sigma).tolist()
        radii = gaussian_radius(self.class_0, sigma=self.sigmas)
        reach = float(gaussian_radius(float(taken[0]), sigma=self.sigma))
        return selected_radius(excluded, radii.tolist()), published_radius(reach, float(radii[0]))


CASES = [
    # Two levels: the other class is answered by level 2 as soon as it is taken, or later, or level 1 gives way first.
    WorstCase(0.9, 0.1, 0, (0.999, 0.2), 1.0, (1.0, 1.0)),
    WorstCase(0.9, 0.1, 0, (0.999, 0.93), 1.0, (1.0, 1.0)),
    WorstCase(0.9, 0.1, 0, (0.85, 0.999), 0.5, (0.25, 2.0)),
    WorstCase(0.5, 0.5, 0, (0.99, 0.8), 0.5, (0.25, 0.5)),
    WorstCase(0.999, 0.001, 0, (0.99999, 0.01), 2.0, (2.0, 0.25)),
    # Three and more: level K-1 has a bound of its own, beyond which it overtakes the leading one.
    WorstCase(0.6, 0.3, 1, (0.9999, 0.9999, 0.1), 1.0, (1.0, 1.0, 1.0)),
    WorstCase(0.7, 0.2, 2, (0.9999, 0.9999, 0.9999, 0.1), 0.7, (1.0, 1.0, 1.0, 1.0)),
    WorstCase(0.45, 0.25, 3, (0.999, 0.999, 0.999, 0.999, 0.7), 1.0, (1.0, 1.0, 1.0, 1.0, 0.2)),
    WorstCase(0.45, 0.25, 3, (0.9, 0.999, 0.999, 0.999, 0.97), 1.0, (0.3, 1.0, 1.0, 1.0, 0.2)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_answer_changes_just_beyond_the_radius_and_nowhere_inside(case: WorstCase) -> None:
    assert case.taken(np.zeros(1))[0, [0, -1]] == pytest.approx([case.p, case.q], rel=1e-9)
    radius, published = case.radii()
    assert radius >= published * (1 - 1e-12)
    inside = np.linspace(-1.0, 1.0, 2001) * radius * (1 - 1e-9)
    assert (case.answer(inside) == 0).all()
    beyond = np.linspace(radius * (1 + 1e-9), radius * (1 + 1e-6), 5)
    assert case.answer(beyond).max() == 1


def test_the_cases_are_not_all_of_one_kind() -> None:
    """Radii from the exclusion of level K-1, from that level itself, and from the leading one; gains, and none."""
    kinds = set()
    for case in CASES:
        radius, published = case.radii()
        radii = gaussian_radius(case.class_0, sigma=case.sigmas)
        kinds.add("leading" if radius == radii[0] else "last" if radius == radii[-1] else "exclusion")
        kinds.add("gains" if radius > published * 1.01 else "no gain")
    assert kinds == {"leading", "last", "exclusion", "gains", "no gain"}


@pytest.mark.slow
def test_no_selector_with_these_probabilities_changes_sooner() -> None:
    """10⁴ selectors of random pieces, each against the bound for its own probabilities."""
    generator = np.random.default_rng(7)
    count = 10_000
    pieces = Pieces.draw(generator, count, edges=7, count=4, spread=1.2)
    sigmas = np.exp(generator.uniform(np.log(0.3), np.log(3.0), size=count))
    taken = pieces.smooth(np.zeros((count, 1)), sigmas)[:, 0]
    leading = taken.argmax(axis=1)
    p = np.clip(taken[np.arange(count), leading], 1e-12, 1 - 1e-12)[:, None]
    reach = exclusion_radii(p, np.clip(taken, 1e-12, 1.0), sigma=sigmas[:, None])  # type: ignore[arg-type]
    closest = np.inf
    for share in (-1.0, -0.999, -0.7, -0.3, 0.3, 0.7, 0.999, 1.0):
        for k in range(4):
            there = pieces.smooth((share * reach[:, k])[:, None], sigmas)[:, 0]
            lead = there[np.arange(count), leading] - there[:, k]
            others = (leading != k) & (reach[:, k] > 0)
            assert (lead[others] >= -1e-9).all()
            closest = min(closest, float(lead[others].min()))
    assert closest < 1e-3  # the bound is nearly reached by chance
