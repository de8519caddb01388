"""σ chosen among a few levels by a smoothed selector: dual smoothing (Sun, Mao, Vechev, ICLR 2026), and a sharper form.

H(x) is the level that the selector h takes most often at x + σ_s ε; G(x) is the class that the base classifier of level
H(x) takes most often at x + σ_H(x) ε. σ is constant wherever H is, so neither an envelope nor a memory is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothcert.certificates.gaussian import gaussian_two_class_radius
from smoothcert.errors import InputError
from smoothcert.records import FloatArray


def exclusion_radii(lower: float, uppers: Sequence[float], *, sigma: float) -> FloatArray:
    """How far each level stays unselected: E_k = σ_s/2 (Φ⁻¹(p_j) - Φ⁻¹(p̄_k)), Cohen et al. (2019), Theorem 1.

    lower: a lower bound on the probability p_j that the selector answers the leading level j. uppers: (K,) upper bounds
    on the probability of each level, all bounds holding at once; nan for the leading level, which nothing excludes, so
    that its entry is 0. sigma: noise level σ_s of the selector. At every distance below E_k level j is more probable
    than level k. Returns (K,) float64, rounded down, 0 where nothing is proved.
    """
    bounds = np.asarray(uppers, dtype=np.float64)
    leading = np.isnan(bounds)
    return np.where(leading, 0.0, gaussian_two_class_radius(lower, np.where(leading, 0.5, bounds), sigma=sigma))


def published_radius(selector_radius: float, level_radius: float) -> float:
    """min(R_s, R_j): H = j within R_s, and level j alone answers the class within R_j (dual smoothing).

    Both radii hold at once. Exact: a minimum rounds nothing.
    """
    return min(_checked(selector_radius), _checked(level_radius))


def selected_radius(excluded: Sequence[float], radii: Sequence[float]) -> float:
    """min over k of max(E_k, R_k): the distance below which every level that may be selected answers the class.

    excluded: (K,) distances below which level k is not selected, 0 for a level that is not excluded. radii: (K,)
    distances below which level k alone answers the class, 0 where that is not proved. All hold at once.

    Let r be a distance below the result, and x' a point at distance r. H(x') = k implies r ≥ E_k, so r < R_k, and level
    k answers the class at x'. Exact: minima and maxima round nothing. With one level sampled it is the published form
    for the same bounds on the selector.
    """
    if len(excluded) != len(radii) or not radii:
        raise InputError(f"{len(excluded)} exclusions and {len(radii)} radii: one of each is needed for every level")
    pairs = zip(map(_checked, excluded), map(_checked, radii), strict=True)
    return min(max(exclusion, radius) for exclusion, radius in pairs)


def _checked(radius: float) -> float:
    if not (np.isfinite(radius) and radius >= 0):
        raise InputError(f"{radius} is not a radius: a finite number of at least 0 was expected")
    return float(radius)
