"""A selected sigma on a line: a selector and classifiers that cut the line into pieces, with all probabilities exact.

Unlike half-spaces these have any number of levels and classes, levels that are taken in several places, and pieces
without a finite answer. A classifier that looks at one coordinate alone is the same in every dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from smoothcert.records import FloatArray, IntArray


@dataclass(frozen=True)
class Pieces:
    """m step functions on the line. edges: (m, e), increasing. answers: (m, e + 1). count: of different answers."""

    edges: FloatArray
    answers: IntArray
    count: int

    @classmethod
    def draw(cls, generator: np.random.Generator, worlds: int, *, edges: int, count: int, spread: float) -> Pieces:
        places = np.sort(generator.normal(size=(worlds, edges)) * spread, axis=1)
        return cls(places, generator.integers(0, count, size=(worlds, edges + 1)), count)

    def smooth(self, points: FloatArray, sigmas: FloatArray) -> FloatArray:
        """P(answer at x + σε) for points (m, p) and σ (m,): (m, p, count)."""
        ends = (self.edges[:, None, :] - points[:, :, None]) / sigmas[:, None, None]
        below = special.ndtr(ends)
        zeros = np.zeros((*below.shape[:2], 1))
        masses = np.diff(np.concatenate([zeros, below, zeros + 1.0], axis=2), axis=2)
        own = self.answers[:, None, :, None] == np.arange(self.count)
        found: FloatArray = (masses[..., None] * own).sum(axis=2)
        return found


@dataclass(frozen=True)
class LineWorlds:
    """m worlds: a selector at its noise, and a classifier at the noise of each level. sigmas: (m, K)."""

    selector: Pieces
    selector_sigmas: FloatArray
    levels: tuple[Pieces, ...]
    sigmas: FloatArray

    @classmethod
    def draw(cls, count: int, *, levels: int, classes: int, seed: int) -> LineWorlds:
        generator = np.random.default_rng([seed, levels, classes])
        sigmas = np.sort(np.exp(generator.uniform(np.log(0.2), np.log(2.0), size=(count, levels))), axis=1)
        return cls(
            Pieces.draw(generator, count, edges=2 * levels, count=levels, spread=1.5),
            np.exp(generator.uniform(np.log(0.2), np.log(2.0), size=count)),
            tuple(Pieces.draw(generator, count, edges=3, count=classes, spread=2.0) for _ in range(levels)),
            sigmas,
        )

    def taken(self, points: FloatArray) -> FloatArray:
        """The probability of every level at points (m, p): (m, p, K)."""
        return self.selector.smooth(points, self.selector_sigmas)

    def classes(self, points: FloatArray) -> FloatArray:
        """The probability of every class at every level: (m, p, K, classes)."""
        each = [level.smooth(points, self.sigmas[:, k]) for k, level in enumerate(self.levels)]
        return np.stack(each, axis=2)

    def answer(self, points: FloatArray) -> tuple[IntArray, FloatArray]:
        """G at points (m, p), and by how much it is decided: the smaller lead of both stages."""
        levels, classes = self.taken(points), self.classes(points)
        chosen = levels.argmax(axis=2)
        of_level = np.take_along_axis(classes, chosen[:, :, None, None], axis=2)[:, :, 0, :]
        lead = np.minimum(_lead(levels), _lead(of_level))
        return of_level.argmax(axis=2), lead


def _lead(chances: FloatArray) -> FloatArray:
    ordered = np.sort(chances, axis=-1)
    return np.asarray(ordered[..., -1] - ordered[..., -2])
