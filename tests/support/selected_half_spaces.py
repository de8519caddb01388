"""A selected sigma made of half-spaces: every smoothed answer, and the true radius of G, in closed form.

The selector takes level 2 where u_s·x > t_s, and the base classifier of level k answers class 1 where u_k·x > t_k.
Smoothing moves none of these borders: P(h(x+σε) = 2) = Φ((u_s·x - t_s)/σ). With x at the origin and every border at a
signed distance, G answers class 1 where (level 1 is taken and u_1·y ≥ d_1) or (level 2 is taken and u_2·y ≥ d_2). So G
changes on the union of two intersections of two half-spaces, and the true radius is the smaller of two distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from smoothcert.records import FloatArray


def distance_to_both(a: FloatArray, b: FloatArray, cosine: FloatArray) -> FloatArray:
    """The distance of the origin from {y: u·y ≥ a and v·y ≥ b}, u and v of length 1 with this cosine between them.

    The nearest point is the origin, the foot on one border if it satisfies the other, or on both borders: the point of
    the plane of u and v with u·y = a and v·y = b.
    """
    area = 1.0 - cosine * cosine
    parallel = area < 1e-14  # opposite borders that face away from each other have no point in common
    square = (a * a + b * b - 2.0 * a * b * cosine) / np.where(parallel, 1.0, area)
    corner = np.where(parallel, np.inf, np.sqrt(np.maximum(square, 0.0)))
    first, second = np.maximum(a, 0.0), np.maximum(b, 0.0)
    by_first = first * cosine >= b - 1e-15  # the foot on the first border, which may be the origin
    by_second = second * cosine >= a - 1e-15
    return np.where(by_first, first, np.where(by_second, second, corner))


@dataclass(frozen=True)
class HalfSpaces:
    """m worlds in d dimensions, each with x at the origin, where level 1 leads and answers class 0.

    selector, first, second: (m,) distances τ > 0, d_1 > 0 and d_2 of the borders; d_2 ≤ 0 where level 2 answers class 1
    at x. u_s, u_1, u_2: (m, d), of length 1. sigmas: (m, 3), of the selector and of both levels.
    """

    selector: FloatArray
    first: FloatArray
    second: FloatArray
    u_s: FloatArray
    u_1: FloatArray
    u_2: FloatArray
    sigmas: FloatArray

    @classmethod
    def draw(cls, count: int, *, dimension: int, seed: int) -> HalfSpaces:
        """Random worlds. A fifth has the border of level 2 along that of the selector, a fifth that of level 1."""
        generator = np.random.default_rng([seed, dimension])

        def directions() -> FloatArray:
            drawn = generator.normal(size=(count, dimension))
            return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))

        u_s, u_1, u_2 = directions(), directions(), directions()
        u_2[::5] = u_s[::5]
        u_1[1::5] = u_s[1::5]
        # No border is farther than three times the noise that shows it, where float64 still holds the probability.
        sigmas = np.exp(generator.uniform(np.log(0.1), np.log(4.0), size=(count, 3)))
        shares = generator.uniform(0.01, 3.0, size=(count, 3))
        second = shares[:, 2] * sigmas[:, 2] * np.where(generator.random(count) < 0.5, 1.0, -1.0)
        return cls(shares[:, 0] * sigmas[:, 0], shares[:, 1] * sigmas[:, 1], second, u_s, u_1, u_2, sigmas)

    def probabilities(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Exactly, at x: of level 1, of class 0 at level 1, and of class 0 at level 2."""
        places = np.stack([self.selector, self.first, self.second], axis=1)
        p = special.ndtr(places / self.sigmas)
        return p[:, 0], p[:, 1], p[:, 2]

    def changes(self, points: FloatArray) -> FloatArray:
        """Whether G answers class 1 at points (m, …, d)."""

        def ahead(u: FloatArray, border: FloatArray) -> FloatArray:
            along = np.einsum("md,m...d->m...", u, points)
            return np.asarray(along > border.reshape(-1, *(1 for _ in along.shape[1:])))

        takes_second = ahead(self.u_s, self.selector)
        return np.where(takes_second, ahead(self.u_2, self.second), ahead(self.u_1, self.first))

    def true_radii(self) -> FloatArray:
        """The distance of x from the points where G answers class 1; not rounded."""
        with_first = np.einsum("md,md->m", self.u_s, self.u_1)
        with_second = np.einsum("md,md->m", self.u_s, self.u_2)
        by_first = distance_to_both(self.first, -self.selector, -with_first)
        by_second = distance_to_both(self.selector, self.second, with_second)
        return np.minimum(by_first, by_second)
