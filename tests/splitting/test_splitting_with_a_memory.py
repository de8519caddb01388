"""A memory of regions under splitting, with a number of evaluations for each input: certain, and never contradicted."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.records import Outcome
from smoothcert.sampling.evaluations import most_evaluations

LEVELS, MOST = 8, 14
GRID = np.array(list(itertools.product(range(LEVELS), repeat=2)), dtype=np.float32) / np.float32(LEVELS - 1)


def classify(batch: np.ndarray) -> np.ndarray:
    """Three classes with crooked borders."""
    x, y = batch[:, 0], batch[:, 1]
    return np.where(x + 0.4 * np.sin(9.0 * y) > 0.55, 1, np.where(y > 0.6, 2, 0)).astype(np.int64)


def level(x: np.ndarray) -> float:
    """A level that jumps from input to input: 2 to 14 evaluations."""
    number = int(round(float(x[0]) * 7) * 5 + round(float(x[1]) * 7) * 3) % 7
    return (2 + 2 * number + 0.5) / (2 * (LEVELS - 1))


def smooth(path: Path | None) -> SmoothedClassifier:
    return SmoothedClassifier(
        classify, sigma=level, evaluations=MOST, noise="splitting", grid=LEVELS, memory=path, num_classes=3,
        input_shape=(2,),
    )  # fmt: skip


def distances(x: np.ndarray) -> np.ndarray:
    """From x to every input, between the float32 numbers that the memory sees; exact in float64."""
    return np.abs(GRID.astype(np.float64) - x.astype(np.float64)).sum(axis=1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_answer_contradicts_a_region(tmp_path: Path, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(GRID))
    with smooth(tmp_path / "memory.sqlite") as smoothed:
        points = smoothed.certify(GRID[order], progress=False)
        answers = np.array([point.prediction for point in smoothed.predict(GRID, progress=False)])
    certified = 0
    for row, point in zip(order, points, strict=True):
        if point.outcome is Outcome.CERTIFIED:
            inside = distances(GRID[row]) <= point.radius
            assert (answers[inside] == point.prediction).all()
            assert point.guarantee is not None
            assert point.guarantee.alpha in (0.0, None)
            certified += int(inside.sum() > 1)
    assert certified > 10
    assert len({point.tallies[0].n for point in points}) > 3


def test_without_a_memory_they_do(tmp_path: Path) -> None:
    """The negative control: what each input would claim by itself is contradicted by the answers of others."""
    with smooth(tmp_path / "memory.sqlite") as smoothed:
        asked = [point.promise for point in smoothed.certify(GRID, progress=False)]
    answers = np.array([point.prediction for point in smooth(None).predict(GRID, progress=False)])
    broken = 0
    for x, promise in zip(GRID, asked, strict=True):
        if promise is not None and promise.asked_label is not None:
            inside = distances(x) <= promise.asked_radius
            broken += int((answers[inside] != promise.asked_label).any())
    assert broken > 0


def test_a_rule_without_the_most_evaluations_is_refused() -> None:
    smoothed = SmoothedClassifier(
        classify, sigma=level, noise="splitting", grid=LEVELS, num_classes=3, input_shape=(2,)
    )
    with pytest.raises(Exception, match="give evaluations too"):
        smoothed.predict(GRID, progress=False)
    assert most_evaluations(smoothed.rule, 5, levels=LEVELS) == 5
