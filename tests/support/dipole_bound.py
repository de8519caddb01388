"""The smallest probability of a class at a distance, from pairs of votes (Levine et al. 2021, Theorem 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.certificates.dipole import DipoleShape
from smoothcert.records import FloatArray


def dipole_lower_bound(both: ArrayLike, one_sided: ArrayLike, *, distance: ArrayLike) -> FloatArray:
    """Smallest possible P(f(x'+ε) = A) at ‖x'-x‖ = distance·σ (Theorem 3).

    Φ(Φ⁻¹(C_N) - r) + Φ(Φ⁻¹((1+C_S)/2) - r) - Φ(Φ⁻¹((1-C_S)/2) - r), r = distance ≥ 0. both: lower bounds on C_S in
    [0, 1), one_sided: on C_N in [0, 1); shapes broadcast. Attained by the union of a half-space and a slab around x.
    The boundaries are rounded down; the sum itself is good to about 1e-15.
    """
    shape = DipoleShape.of(both, one_sided)
    return shape.mass(np.asarray(distance, dtype=np.float64))[0]
