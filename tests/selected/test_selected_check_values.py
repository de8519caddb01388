"""The numbers of MATH.md, section 9, by the certificate, and by votes that prove them."""

from __future__ import annotations

import math

import pytest
from scipy import special

from selected_points import certify_part, radius_by_definition, selection_of_levels, votes_at
from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.questions.selected_points import combine_points
from smoothcert.records import CertifiedPoint

REACH = 1.2815515655446004
"""Φ⁻¹(.9): how far level 2 is excluded if σ_s = 1, p_1 ≥ .9 and p̄_2 ≤ .1."""


def test_how_far_level_two_is_excluded() -> None:
    leading, other = exclusion_radii(0.9, [math.nan, 0.1], sigma=1.0)
    assert leading == 0.0
    assert REACH * (1 - 1e-12) <= other <= special.ndtri(0.9)
    assert other == pytest.approx(REACH, rel=1e-12)


@pytest.mark.parametrize(
    ("radii", "selected", "published"),
    [((2.0, 1.5), 1.5, REACH), ((2.0, 0.0), REACH, REACH), ((1.0, 1.5), 1.0, 1.0), ((2.0, 3.0), 2.0, REACH)],
)
def test_the_radii_of_section_nine(radii: tuple[float, float], selected: float, published: float) -> None:
    excluded = [float(reach) for reach in exclusion_radii(0.9, [math.nan, 0.1], sigma=1.0)]
    assert selected_radius(excluded, radii) == pytest.approx(selected, rel=1e-12)
    assert selected_radius(excluded, radii) <= selected
    assert radius_by_definition(excluded, radii) == selected_radius(excluded, radii)
    assert published_radius(excluded[1], radii[0]) == pytest.approx(published, rel=1e-12)


def test_on_the_border_between_two_levels_nothing_is_lost() -> None:
    """An undecided selector excludes nothing, and need not mean an abstention."""
    excluded = exclusion_radii(0.5, [math.nan, 0.5], sigma=1.0).tolist()
    assert excluded == [0.0, 0.0]
    assert selected_radius(excluded, [0.75, 2.0]) == 0.75
    assert published_radius(excluded[1], 0.75) == 0.0


def test_three_levels_one_of_which_is_rarely_wanted() -> None:
    """σ_s/2 (Φ⁻¹(.5) - Φ⁻¹(.001)) = 1.545116…; between the first two levels nothing is decided."""
    excluded = exclusion_radii(0.5, [math.nan, 0.5, 0.001], sigma=1.0).tolist()
    assert excluded == pytest.approx([0.0, 0.0, 1.5451161530839073], rel=1e-12)
    assert selected_radius(excluded, [1.25, 2.0, 0.0]) == 1.25
    assert selected_radius(excluded, [1.75, 2.0, 0.0]) == excluded[2]


def _points(leading: int, second: int, *, answers: tuple[int, int]) -> tuple[CertifiedPoint, dict[int, CertifiedPoint]]:
    """A selector with 90 % for level 0, and levels of σ = 1 and 2 whose classes have many votes."""
    (selector,) = certify_part([votes_at([10, 0], [leading, second], sigma=1.0)], alpha=0.025)
    levels = {}
    for level, (label, sigma) in enumerate(zip(answers, (1.0, 2.0), strict=True)):
        counts = [0, 0]
        counts[label] = 100_000
        levels[level] = certify_part([votes_at(counts, counts, sigma=sigma)], alpha=0.0125)[0]
    return selector, levels


@pytest.mark.parametrize("bounds", ["two-class", "multi-class"])
def test_from_votes(bounds: str) -> None:
    """Levels that agree: the smaller of their radii. Levels that differ: where level 2 is excluded, below Φ⁻¹(.9)."""
    selection = selection_of_levels(1.0, 2.0, sigma=1.0, alpha=0.05, bounds=bounds)
    selector, levels = _points(90_000, 10_000, answers=(1, 1))
    point = combine_points(selector, levels, selection, ["selected", "selected-published"])
    assert point.prediction == 1
    assert point.radius == min(levels[0].radius, levels[1].radius) > 3.7
    assert point.sigma == 1.0
    assert 0.99 * REACH < point.further[0].radius < REACH
    assert point.further[0].radius == selector.radius
    selector, levels = _points(90_000, 10_000, answers=(1, 0))
    point = combine_points(selector, levels, selection, ["selected", "selected-published"])
    assert point.prediction == 1
    assert 0.99 * REACH < point.radius < REACH
