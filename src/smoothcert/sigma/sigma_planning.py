"""How fast σ may vary before a required radius is lost. For the design of a σ-function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.certificates import envelope_radius, gaussian_radius
from smoothcert.errors import InputError
from smoothcert.noise import check_sigma
from smoothcert.numerics.rounding import format_down
from smoothcert.records import Envelope, FloatArray, LipschitzSigma, SemiElastic
from smoothcert.sigma.level_ratios import practical_largest_ratio, practical_smallest_ratio

USUAL_SHARE = 0.95
_LITTLE_FLOOR = 1e-3
"""The default floor in units of σ: too low to have an effect."""
_STRIDE = 4.0
_STRIDES = 40
_BISECTIONS = 18
_CURVE_POINTS = 25
_CURVE_SPAN = 30.0


@dataclass(frozen=True, slots=True)
class SigmaPlan:
    """The fastest change of σ that still certifies `radius` at an input with these σ and p_a.

    rate: of log σ (semi-elastic). lipschitz: of σ, with `floor`. Both are rounded down: the radius was computed for
    them, without the small margin that `certify` leaves for the error of σ itself. ratios: a point with σ₁/σ₀ outside
    this range is never certified, at any distance. curves: radius over rate and over Lipschitz constant.
    """

    dimension: int
    sigma: float
    p_a: float
    radius: float
    floor: float
    constant_radius: float
    rate: float
    lipschitz: float
    ratios: tuple[float, float]
    rate_curve: tuple[FloatArray, FloatArray]
    lipschitz_curve: tuple[FloatArray, FloatArray]

    def to_json(self) -> dict[str, Any]:
        smallest, largest = self.ratios
        return {
            "dimension": self.dimension,
            "sigma": self.sigma,
            "p_a": self.p_a,
            "radius": self.radius,
            "constant_radius": self.constant_radius,
            "rate": self.rate,
            "lipschitz": self.lipschitz,
            "floor": self.floor,
            "smallest_ratio": smallest,
            "largest_ratio": largest if np.isfinite(largest) else None,
            "rate_curve": np.column_stack(self.rate_curve).tolist(),
            "lipschitz_curve": np.column_stack(self.lipschitz_curve).tolist(),
        }


def plan(
    *, dimension: int, sigma: float, p_a: float, radius: float | None = None, floor: float | None = None
) -> SigmaPlan:
    """Compute a plan. radius: default 95 % of the radius of a constant σ. floor: of a Lipschitz σ; default: none."""
    check_sigma(sigma)
    if dimension < 1:
        raise InputError(f"--dim {dimension} must be at least 1: the number of coordinates of an input")
    if not 0.5 < p_a < 1.0:
        raise InputError(f"--p-a {p_a} must lie between 0.5 and 1: at most half of the votes certify nothing")
    constant = float(gaussian_radius(p_a, sigma=sigma))
    wanted = USUAL_SHARE * constant if radius is None else radius
    if not 0.0 < wanted <= constant:
        raise InputError(
            f"--radius {wanted:g} is not possible: at sigma {sigma:g} and p_a {p_a:g} a constant sigma certifies only "
            f"{format_down(constant, decimals=6)}; use a larger sigma or a better base classifier"
        )
    least = _LITTLE_FLOOR * sigma if floor is None else floor
    if not 0.0 < least <= sigma:
        raise InputError(f"--floor {least:g} must be positive and at most sigma {sigma:g}")

    def by_lipschitz(constant: float) -> Envelope:
        return LipschitzSigma(constant=constant, floor=least)

    point = _PlannedInput(dimension=dimension, sigma=sigma, p_a=p_a)
    rate = point.fastest(SemiElastic, radius=wanted)
    lipschitz = point.fastest(by_lipschitz, radius=wanted)
    return SigmaPlan(
        dimension=dimension,
        sigma=sigma,
        p_a=p_a,
        radius=wanted,
        floor=least,
        constant_radius=constant,
        rate=rate,
        lipschitz=lipschitz,
        ratios=(float(practical_smallest_ratio(p_a, dimension)), float(practical_largest_ratio(p_a, dimension))),
        rate_curve=point.curve(SemiElastic, around=rate),
        lipschitz_curve=point.curve(by_lipschitz, around=lipschitz),
    )


def fastest_rate(*, dimension: int, sigma: float, p_a: float, radius: float) -> float:
    """Return the largest semi-elastic rate at which the radius is certified; 0 if only a constant σ certifies it."""
    return _PlannedInput(dimension=dimension, sigma=sigma, p_a=p_a).fastest(SemiElastic, radius=radius)


@dataclass(frozen=True, slots=True)
class _PlannedInput:
    """An input with its σ and the lower bound on the probability of its class."""

    dimension: int
    sigma: float
    p_a: float

    def radius(self, envelope: Envelope) -> float:
        return float(envelope_radius(self.p_a, sigma=self.sigma, dimension=self.dimension, envelope=envelope))

    def fastest(self, envelope: Callable[[float], Envelope], *, radius: float) -> float:
        """The largest slope, to five digits, for which the radius was computed to be certified; 0 if there is none."""

        def is_certified(slope: float) -> bool:
            return self.radius(envelope(slope)) >= radius

        # Near this slope the radius of a typical input begins to fall.
        low = high = 1.0 / (self.sigma * math.sqrt(self.dimension))
        if is_certified(low):
            high = next((high for high in self._strides(low, _STRIDE) if not is_certified(high)), math.inf)
            if math.isinf(high):
                return low * _STRIDE**_STRIDES
            low = high / _STRIDE
        else:
            low = next((low for low in self._strides(high, 1.0 / _STRIDE) if is_certified(low)), 0.0)
            high = low * _STRIDE
        for _ in range(_BISECTIONS if low else 0):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if is_certified(middle) else (low, middle)
        return low

    @staticmethod
    def _strides(start: float, factor: float) -> list[float]:
        return [start * factor**k for k in range(1, _STRIDES + 1)]

    def curve(self, envelope: Callable[[float], Envelope], *, around: float) -> tuple[FloatArray, FloatArray]:
        """Slopes on a logarithmic scale around `around`, and the radius at each."""
        centre = around if around > 0 else 1e-3 / self.sigma
        slopes = centre * np.logspace(-np.log10(_CURVE_SPAN), np.log10(_CURVE_SPAN), _CURVE_POINTS)
        return slopes, np.array([self.radius(envelope(float(slope))) for slope in slopes])
