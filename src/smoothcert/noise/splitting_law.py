"""The law of splitting, which is not added: see `splitting.py`."""

from __future__ import annotations

from typing import final

from smoothcert.noise.law import NoiseLaw
from smoothcert.records import FloatArray, Noise, TallyKind


@final
class SplittingLaw(NoiseLaw):
    noise = Noise.SPLITTING
    tallies = frozenset({TallyKind.VOTES})
    stays_after_linear_layer = False

    def estimated_radius(self, own: FloatArray, other: FloatArray, *, sigma: FloatArray, clamp: float) -> FloatArray:
        """λ (own - other); nothing is clamped."""
        margin: FloatArray = own - other
        return sigma * margin

    def steepest_estimate(self, *, clamp: float) -> float:
        return 1.0
