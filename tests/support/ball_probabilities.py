"""Probabilities and boundaries of balls under a Gaussian, from the logarithms that `numerics.ball` computes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.numerics.ball import _tails, ball_tails, solve_boundary
from smoothcert.records import FloatArray

_FARTHEST = 1e70


def ball_probability(*, dimension: ArrayLike, centre: ArrayLike, boundary: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """P(inside) and P(outside) of the ball; each keeps its relative accuracy where it is the small one.

    dimension N ≥ 1, centre κ ≥ 0, boundary τ ≤ κ, finite; shapes broadcast. NaN where an argument is out of range, or
    for a small ball so far away (κ above 1e9) that floats no longer place it. Not rounded to a side: the relative error
    is below RELATIVE_ERROR.
    """
    tails = ball_tails(dimension=dimension, centre=centre, boundary=boundary)
    return np.exp(tails.log_inside), np.exp(tails.log_outside)


def noncentral_chi_square(x: ArrayLike, *, dimension: ArrayLike, noncentrality: ArrayLike) -> tuple[FloatArray, ...]:
    """P(X ≤ x) and P(X > x) of the noncentral chi-square law.

    x ≥ 0, noncentrality ≥ 0. Where the noncentrality is large, x no longer determines the boundary to full accuracy;
    use `ball_probability` with the boundary.
    """
    point, nu, lam = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (x, dimension, noncentrality)))
    tails = _tails(nu, lam, point, lam - point)
    return np.exp(tails.log_inside), np.exp(tails.log_outside)


def boundary_of_inside(probability: ArrayLike, *, dimension: ArrayLike, centre: ArrayLike) -> FloatArray:
    """The boundary τ of the ball around κ that holds this probability, in (0, 1). Decreases with the probability.

    Shapes broadcast. Not rounded to a side; good to about 1e-14 of a standard deviation, or of the radius where that is
    smaller, as far as a float next to κ can tell: a ball with a radius below 1e-16 κ has no boundary of its own. NaN
    out of range.
    """
    return _boundary(probability, dimension=dimension, centre=centre, inside=True)


def boundary_of_outside(probability: ArrayLike, *, dimension: ArrayLike, centre: ArrayLike) -> FloatArray:
    """The boundary τ of the ball around κ outside of which this probability lies. Increases with it."""
    return _boundary(probability, dimension=dimension, centre=centre, inside=False)


def _boundary(probability: ArrayLike, *, dimension: ArrayLike, centre: ArrayLike, inside: bool) -> FloatArray:
    given = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (probability, dimension, centre)))
    p, n, kappa = (np.ravel(v) for v in given)
    valid = (p > 0) & (p < 1) & (n >= 1) & np.isfinite(n) & (kappa >= 0) & (kappa <= _FARTHEST)
    out = np.full(p.size, np.nan)
    for wanted in (inside, not inside):
        # The smaller of the two tails determines the boundary more accurately.
        at = np.flatnonzero(valid & ((p <= 0.5) == (wanted == inside)))
        if at.size:
            log_tail = np.log(p[at]) if wanted == inside else np.log1p(-p[at])
            out[at] = solve_boundary(log_tail, n[at], kappa[at], inside=wanted)
    return out.reshape(given[0].shape)
