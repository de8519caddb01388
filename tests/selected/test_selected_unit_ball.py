"""The counter-example to a σ of each input's own (docs/explanation/varying-sigma.md), with a selector instead.

Class 1 is the unit ball of the plane. Certified with σ = 20 the point (50, 0) gets class 0 within more than 50, and the
origin with σ = .25 gets class 1: they contradict each other. A smoothed selector that chooses between these levels
never does: certified regions of different classes have no point in common.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from selected_points import selection_of_levels
from smoothcert.certificates import gaussian_radius
from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.questions.selected_points import choose_levels, combine_points
from smoothcert.records import CertifiedPoint, FloatArray, IntArray, Stage
from smoothcert.smoothed import SmoothedClassifier

LEVELS = (0.25, 20.0)
FAR, NEAR = np.array([50.0, 0.0]), np.array([0.0, 0.0])
BORDER = 10.0
"""The selector takes the small level within this distance of the origin."""


def _chance_of_ball(distance: FloatArray, radius: float, sigma: float) -> FloatArray:
    """P(‖x+ε‖ < radius) in the plane, exactly."""
    return np.asarray(special.chndtr((radius / sigma) ** 2, 2, (distance / sigma) ** 2))


def _certify(points: FloatArray, *, sigma: float) -> tuple[IntArray, FloatArray, FloatArray]:
    """Class, radius of the sharper form, and of the published one, with exact probabilities."""
    distance = np.linalg.norm(points, axis=1)
    small = np.clip(_chance_of_ball(distance, BORDER, sigma), 1e-12, 1 - 1e-12)
    ball = np.clip(np.stack([_chance_of_ball(distance, 1.0, level) for level in LEVELS]), 1e-12, 1 - 1e-12)
    own = (ball > 0.5).astype(np.int64)
    reach = gaussian_radius(np.maximum(ball, 1 - ball), sigma=np.array(LEVELS)[:, None])
    labels, selected, published = np.zeros(len(points), np.int64), np.zeros(len(points)), np.zeros(len(points))
    for row in range(len(points)):
        p = float(small[row])
        leading = 0 if p >= 0.5 else 1
        uppers = [math.nan, 1 - p] if leading == 0 else [p, math.nan]
        excluded = exclusion_radii(max(p, 1 - p), uppers, sigma=sigma).tolist()
        radii = {
            label: selected_radius(excluded, np.where(own[:, row] == label, reach[:, row], 0.0).tolist())
            for label in (0, 1)
        }
        labels[row] = max(radii, key=lambda one: radii[one])
        selected[row] = radii[int(labels[row])]
        if own[leading, row] == labels[row]:
            published[row] = published_radius(max(excluded), float(reach[leading, row]))
    return labels, selected, published


def _contradictions(points: FloatArray, labels: IntArray, radii: FloatArray) -> int:
    """Pairs of points with different classes whose open balls have a point in common."""
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    meet = (radii[:, None] + radii[None] > apart * (1 + 1e-9)) & (radii[:, None] > 0) & (radii[None] > 0)
    return int((meet & (labels[:, None] != labels[None])).sum()) // 2


def _points() -> FloatArray:
    generator = np.random.default_rng(4)
    ways = generator.normal(size=(300, 2))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    lengths = np.concatenate(
        [generator.uniform(0, 2, 100), generator.uniform(5, 15, 100), generator.uniform(0, 80, 100)]
    )
    return np.concatenate([[FAR, NEAR], ways * lengths[:, None]])


@pytest.mark.parametrize("sigma", [0.25, 2.0, 8.0])
def test_certified_regions_never_contradict_each_other(sigma: float) -> None:
    points = _points()
    labels, selected, published = _certify(points, sigma=sigma)
    for radii in (selected, published):
        assert _contradictions(points, labels, radii) == 0
        assert (radii > 0).sum() > 100
        assert radii[0] + radii[1] <= 50.0
    assert {int(labels[0]), int(labels[1])} == {0, 1}
    assert selected[1] > 0.8  # the ball is still certified at the origin
    assert selected[0] > 1.5


def test_without_the_selectors_part_they_do() -> None:
    """The negative control: the radius of each point's own level, which is the counter-example."""
    points = _points()
    distance = np.linalg.norm(points, axis=1)
    sigma = np.where(distance > BORDER, LEVELS[1], LEVELS[0])
    ball = np.stack([_chance_of_ball(distance, 1.0, level) for level in LEVELS])
    chance = np.where(distance > BORDER, ball[1], ball[0])
    radii = gaussian_radius(np.maximum(chance, 1 - chance), sigma=sigma)
    assert radii[0] > 50.0
    assert _contradictions(points, (chance > 0.5).astype(np.int64), radii) > 100


def _in_ball(batch: np.ndarray) -> np.ndarray:
    return (np.square(batch.astype(np.float64)).sum(axis=1) < 1.0).astype(np.int64)


def _level(batch: np.ndarray) -> np.ndarray:
    return (np.square(batch.astype(np.float64)).sum(axis=1) > BORDER**2).astype(np.int64)


@pytest.mark.slow
def test_neither_do_they_when_sampled() -> None:
    """By the sampler: the points of the counter-example and some between, selector and levels at their own shares."""
    between = [[float(at), 0.0] for at in (0.5, 3.0, 8.0, 9.5, 10.5, 13.0, 20.0, 35.0)]
    points = np.array([FAR, NEAR, *between], dtype=np.float32)
    selection = selection_of_levels(*LEVELS, sigma=2.0, alpha=0.001)
    common = {"num_classes": 2, "batch": 5000, "input_range": None}
    selectors = SmoothedClassifier(_level, sigma=2.0, seed=1, **common).certify(
        points, n0=50, n=5000, alpha=selection.selector_alpha
    )
    levels = [
        SmoothedClassifier(_in_ball, sigma=sigma, seed=2 + k, **common).certify(
            points, n0=50, n=5000, alpha=selection.level_alpha
        )
        for k, sigma in enumerate(LEVELS)
    ]
    found: list[CertifiedPoint] = []
    for row, selector in enumerate(selectors):
        votes = selector.tally(Stage.SELECTION)
        assert votes is not None
        chosen = {k: levels[k][row] for k in choose_levels(votes, sampled=2)}
        found.append(combine_points(selector, chosen, selection, ["selected", "selected-published"]))
    assert (found[0].prediction, found[1].prediction) == (0, 1)
    for radii in ([point.radius for point in found], [point.further[0].radius for point in found]):
        labels = np.array([-1 if point.prediction is None else point.prediction for point in found])
        assert _contradictions(points.astype(np.float64), labels, np.array(radii)) == 0
        assert radii[0] > 5.0
        assert radii[0] + radii[1] <= 50.0
    naive = [levels[1][0].radius, levels[0][1].radius]
    assert naive[0] > 50.0
