"""Normal quantiles and differences in fifty digits, for tests that derive a certificate a second time."""

from __future__ import annotations

import mpmath
import numpy as np
from mpmath import mpf
from scipy import special

from smoothcert.records import FloatArray

HALF = mpf(1) / 2


def quantile(probability: mpf) -> mpf:
    """Φ⁻¹ by Newton's method on Φ."""
    if probability > HALF:
        return -quantile(1 - probability)
    z, step = mpf(float(special.ndtri(float(probability)))), mpf(1)
    while abs(step) > mpf(10) ** -24:  # the next step would be its square
        step = (mpmath.ncdf(z) - probability) / mpmath.npdf(z)
        z -= step
    return z


def gaps(radius: FloatArray, truth: list[mpf], sigma: FloatArray) -> FloatArray:
    """(truth - radius)/σ, the difference taken before it is rounded."""
    with mpmath.workdps(50):
        return np.array([float((t - mpf(r)) / mpf(s)) for r, t, s in zip(radius, truth, sigma, strict=True)])
