"""A learned noise level: the ℓ2 radius of Bergstrom, Sager and Anderson, Theorem 3, for a Lipschitz σ(x) ≥ σ_min.

The scores are squeezed, ḡ ← (1 - n p_min) ḡ + p_min, so that every class has ḡ in [p_min, 1 - p_min]. Then Φ⁻¹(ḡ) is
Lipschitz with the constant

    L = (1/σ_min) (1 + 2 Lip(σ) R(p_min)),   R(p) = ε₀(p) f(ε₀(p)) / φ(Φ⁻¹(p)),

f the χ²_d density and ε₀(p) its quantile at 1 - p, and the class is kept within (Φ⁻¹(ḡ_y) - Φ⁻¹(ḡ_y'))/(2L). The
squeeze does not change the order of the classes, so the classifier is that of the raw scores. Votes are covered too:
they are scores in {0, 1}.

The proof needs three additions to the printed one:

- In a direction along which σ falls, the worst region is a ball instead of its complement, and R(1 - p) takes the
  place of R(p); the printed proof treats a rising σ only. The interval [p_min, 1 - p_min] is symmetric, so the largest
  value of R over it bounds both.
- σ need not be differentiable: Φ⁻¹(ḡ) is smooth in (x, σ), and along a segment a Lipschitz σ has a derivative almost
  everywhere and is its integral. ReLU networks are covered.
- R must not be larger inside the interval than at p_min. (Otherwise its supremum would replace R(p_min).) The paper
  requires a decreasing R and leaves open for which p_min that holds. It holds on all of (0, 1), for every d. With
  y = log ε₀ and z = Φ⁻¹(1 - p), R = dz/dy, so the claim is that z is a convex function N(y). With k = d/2 the density
  of y is proportional to exp(ky - e^y/2), and therefore
      N''/N' = g,   g = k - e^y/2 + N N',   g' = N'^2 - e^y/2 + N N' g.
  By Mills' ratio g ~ k/N² > 0 as y → -∞, and g → ½ as y → ∞. Let u = 2 N'^2 e^-y. Then (log u)' = 2g - 1, and g' has
  the sign of u - 1 at every zero of g. At the first zero of g, if there is one, g' ≤ 0, since g was positive before.
  If g' < 0, then u < 1, and u falls on while g < 0; at the next zero (there is one, for g ends positive) still u < 1,
  so g' < 0, though g comes from below: a contradiction. If g' = 0, then u = 1 and g'' = -e^y/2 < 0, so g was negative
  just before: a contradiction. Hence g > 0 everywhere.
  `check_factor_decreases` confirms it in floating point for the given d and p_min, as the paper requires, and raises an
  InputError if it cannot.

The radius does not grow with σ(x), because L depends on σ_min only. `envelope` gives the tight radius for the same σ.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.certificates.certificate import known_dimension
from smoothcert.certificates.positive import only_positive
from smoothcert.errors import InputError
from smoothcert.numerics.normal import one_minus_up, quantile_down, quantile_up
from smoothcert.records import (
    ConstantSigma,
    Envelope,
    FloatArray,
    LipschitzSigma,
    Noise,
    Norm,
    Proof,
    Quantity,
    Smoothing,
    Widened,
)

DEFAULT_P_MIN = 1e-7
LARGEST_DIMENSION = 200_000
SMALLEST_P_MIN = 1e-300

_FACTOR_MARGIN = 1e-11
"""Relative; the formula was within 2e-12 of 50-digit values over the whole range."""
_SLOPE_MARGIN = 1e-11
"""Relative to the terms that cancel in the slope."""
_PRODUCT_MARGIN = 1e-15
_GRID = 2049
_STIRLING_FROM = 50.0


def lipschitz_factor(*, dimension: int, p_min: float) -> float:
    """R(p_min) = ε₀ f(ε₀)/φ(Φ⁻¹(p_min)), the weight of the slope of σ in the Lipschitz constant; rounded up.

    dimension: 1 … 200000; p_min: [1e-300, ½). About sqrt(d/2) + Φ⁻¹(1-p_min)/3 for large d.
    InputError where it cannot be confirmed that R decreases on [p_min, 1-p_min].
    """
    check_factor_decreases(dimension=dimension, p_min=p_min)
    return _factor_up(dimension, p_min)


@functools.lru_cache(maxsize=256)
def check_factor_decreases(*, dimension: int, p_min: float) -> None:
    """Raise an InputError unless p ↦ R(p) is confirmed to decrease on [p_min, 1-p_min] (Lemma 3).

    The sign of d/dp log R = -(1/f(ε₀))(d/(2ε₀) - ½) + Φ⁻¹(p)/φ(Φ⁻¹(p)) is that of -g, g = (d - ε₀)/2 - Φ⁻¹(p) R(p), the
    g of the proof above. It is taken on a grid even in Φ⁻¹(p), with room for rounding. g falls towards p = 1, where it
    is about (d/2)/Φ⁻¹(p)², against ⅓ in the middle and ½ near p = 0: the worst case is the end p = 1-p_min, which the
    grid contains. The lemma is true for every d and p, so failures come from the floating-point range alone: d = 1
    below p_min = 1e-160, where ε₀ underflows.
    """
    _check_range(dimension=dimension, p_min=p_min)
    end = -special.ndtri(p_min)
    z = np.linspace(-end, end, _GRID)
    failed = np.abs(z[~_decreases_at(z, dimension)])
    if failed.size == 0:
        return
    reach = np.abs(z)[np.abs(z) < failed.min()]
    advice = f"it holds for p_min >= {special.ndtr(-reach.max()):.1e}" if reach.size else "no p_min will do"
    raise InputError(
        f"p_min {p_min:g} cannot be used in dimension {dimension}: the theorem needs a factor that decreases on "
        f"[p_min, 1-p_min], and that could not be confirmed; in this dimension {advice}"
    )


def lipschitz_constant(
    *, sigma_min: ArrayLike, lipschitz: float, dimension: int, p_min: float = DEFAULT_P_MIN
) -> FloatArray:
    """L = (1/σ_min)(1 + 2 Lip(σ) R(p_min)): Φ⁻¹(ḡ) is L-Lipschitz (Theorem 2). Rounded up.

    sigma_min > 0, any shape, which the result has; lipschitz ≥ 0, an upper bound on that of σ.
    """
    if not (math.isfinite(lipschitz) and lipschitz >= 0):
        raise InputError(
            f"lipschitz {lipschitz} must be a finite number that is not negative: how fast sigma may change"
        )
    slope = 2.0 * lipschitz * lipschitz_factor(dimension=dimension, p_min=p_min)
    return (1.0 + slope) / np.asarray(sigma_min, dtype=np.float64) * (1.0 + _PRODUCT_MARGIN)


def lipschitz_radius(
    p_a: ArrayLike,
    p_b: ArrayLike | None = None,
    *,
    sigma_min: ArrayLike,
    lipschitz: float,
    dimension: int,
    num_classes: int,
    p_min: float = DEFAULT_P_MIN,
    slack: float = 0.0,
    shift: float = 0.0,
) -> FloatArray:
    """R = (Φ⁻¹(ḡ_y) - Φ⁻¹(ḡ_y'))/(2L) (Theorem 3): the class is kept within ‖δ‖₂ < R.

    p_a: lower bounds on the mean raw score of the class, in (0, 1); p_b: upper bounds on that of *every* other class,
    holding at once; 1 - p_a where not given or larger, since the scores of an input add up to at most 1. Shapes
    broadcast with sigma_min. num_classes: at least 2 and below 1/p_min.
    slack: relative error with which σ reaches the noise, at x and elsewhere, in [0, 1). Φ⁻¹(ḡ) changes by at most
    2R(p_min) for each unit of log σ, so each of two classes at each of two points is moved by that much at most.
    shift: σ may differ by lipschitz·(‖δ‖₂ + shift), because it was computed for points that far apart; ≥ 0. On the way
    from one σ to the other log σ changes by lipschitz·shift/σ_min more, so each of two classes is moved by 2R(p_min)
    times that at most.
    Rounded down; 0 where nothing is certified or an argument is out of range. Never NaN.
    """
    _check_classes(num_classes, p_min=p_min)
    if not 0.0 <= slack < 1.0:
        raise InputError(f"slack {slack} must lie in [0, 1): it is a relative error of sigma")
    if not 0.0 <= shift < math.inf:
        raise InputError(f"shift {shift} must be a distance: how far apart the points are that sigma was computed for")
    given = (p_a, 1.0 if p_b is None else p_b, sigma_min)
    top, other, floor = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in given))
    valid = (top > 0) & (top < 1) & (other > 0) & (floor > 0) & np.isfinite(floor)
    top, floor = np.where(valid, top, 0.5), np.where(valid, floor, 1.0)
    other = np.where(valid, np.minimum(other, one_minus_up(top)), 0.5)
    squeezed_top = _squeeze(top, num_classes, p_min) * (1.0 - _PRODUCT_MARGIN)
    squeezed_other = np.minimum(_squeeze(other, num_classes, p_min) * (1.0 + _PRODUCT_MARGIN), 1.0)
    factor = lipschitz_factor(dimension=dimension, p_min=p_min) * (1.0 + _PRODUCT_MARGIN)
    moved = 8.0 * factor * -math.log1p(-slack) + 4.0 * factor * lipschitz * shift / floor
    gap = quantile_down(squeezed_top) - quantile_up(squeezed_other) - moved * (1.0 + _PRODUCT_MARGIN)
    constant = lipschitz_constant(sigma_min=floor, lipschitz=lipschitz, dimension=dimension, p_min=p_min)
    return only_positive(0.5 * gap / constant, where=valid)


@dataclass(frozen=True, slots=True)
class LipschitzCertificate:
    """Theorem 3 for the σ whose envelope is a Lipschitz constant and a floor, or which is constant."""

    name: str
    needs: tuple[Quantity, ...]
    proofs: tuple[Proof, ...]
    p_min: float = DEFAULT_P_MIN
    family: str = "lipschitz"
    norm: Norm = Norm.L2
    noise: Noise = Noise.GAUSSIAN
    varying_sigma: bool = True

    def check_suits(self, smoothing: Smoothing, /) -> None:
        self._facts(smoothing)

    def radius(
        self, quantities: Mapping[Quantity, FloatArray], *, sigma: ArrayLike, smoothing: Smoothing
    ) -> FloatArray:
        dimension, num_classes, envelope, slack, shift = self._facts(smoothing)
        scale = np.asarray(sigma, dtype=np.float64)
        lipschitz, floor = 0.0, scale
        if isinstance(envelope, LipschitzSigma):
            # A σ below the floor contradicts the envelope: NaN certifies nothing.
            kept = np.isfinite(scale) & (scale >= envelope.floor * (1.0 - slack))
            lipschitz, floor = envelope.constant, np.where(kept, envelope.floor, np.nan)
        return lipschitz_radius(
            *(quantities[quantity] for quantity in self.needs),
            sigma_min=floor,
            lipschitz=lipschitz,
            dimension=dimension,
            num_classes=num_classes,
            p_min=self.p_min,
            slack=slack,
            shift=shift,
        )

    def _facts(self, smoothing: Smoothing) -> tuple[int, int, ConstantSigma | LipschitzSigma, float, float]:
        """Dimension, number of classes, envelope, its slack and shift; an InputError if the theorem does not apply."""
        dimension = known_dimension(self.name, smoothing)
        if smoothing.num_classes is None:
            raise InputError(f"the {self.name} radius depends on the number of classes, and that is not known")
        envelope, slack, shift = _without_room(smoothing.envelope)
        if not isinstance(envelope, ConstantSigma | LipschitzSigma):
            raise InputError(
                f"the {self.name} radius needs a sigma with a Lipschitz constant and a floor, or a constant one; of "
                f"this one {dict(envelope.to_json())} is known: use the envelope certificate, which takes any"
            )
        return dimension, smoothing.num_classes, envelope, slack, shift


def _without_room(envelope: Envelope) -> tuple[Envelope, float, float]:
    """The envelope inside all widenings, with their total slack and total shift, both rounded up."""
    # In logarithms: a slack is near 1e-11 and would lose its digits beside 1. The lower end is the wider one.
    logarithm, shift = 0.0, 0.0
    while isinstance(envelope, Widened):
        logarithm += math.log1p(-envelope.slack)
        shift += envelope.shift
        envelope = envelope.inner
    return envelope, -math.expm1(logarithm) * (1.0 + _PRODUCT_MARGIN), shift * (1.0 + _PRODUCT_MARGIN)


LIPSCHITZ = (
    # The binary form: everything but the class is one opponent.
    LipschitzCertificate("lipschitz", (Quantity.TOP_LOWER,), (Proof.SCORE_TOP,)),
    # The strongest other class is bounded separately, at the price of half of α.
    LipschitzCertificate(
        "lipschitz-two-class",
        (Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER),
        (Proof.SCORE_TOP, Proof.SCORE_OTHER),
    ),
)


def _squeeze(score: FloatArray, num_classes: int, p_min: float) -> FloatArray:
    return (1.0 - num_classes * p_min) * score + p_min


@functools.lru_cache(maxsize=256)
def _factor_up(dimension: int, p_min: float) -> float:
    z = np.asarray(-special.ndtri(p_min))
    return float(np.exp(_log_factor(z, _chi_square_point(z, dimension), dimension))) * (1.0 + _FACTOR_MARGIN)


def _decreases_at(z: FloatArray, dimension: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Whether R grows with z = Φ⁻¹(1-p), with room for rounding: (d - ε₀)/2 + zR > 0."""
    point = _chi_square_point(z, dimension)
    in_range = point > np.finfo(np.float64).tiny
    point = np.where(in_range, point, 1.0)
    weighted = z * np.exp(_log_factor(z, point, dimension))
    return in_range & (0.5 * (dimension - point) + weighted > _SLOPE_MARGIN * (dimension + np.abs(weighted)))


def _chi_square_point(z: FloatArray, dimension: int) -> FloatArray:
    """The χ²_d quantile at Φ(z), from the smaller tail."""
    tail = special.ndtr(-np.abs(z))
    half = 0.5 * dimension
    halved: FloatArray = np.where(z > 0, special.gammainccinv(half, tail), special.gammaincinv(half, tail))
    return 2.0 * halved


def _log_factor(z: FloatArray, point: FloatArray, dimension: int) -> FloatArray:
    """log(ε f(ε)/φ(z)) at ε = point; for large d without the difference of numbers of size d log d.

    ε f(ε) = sqrt(k/2π) exp(-k (t - 1 - log t) - δ(k)), k = d/2, t = ε/d, δ Stirling's remainder.
    """
    half = 0.5 * dimension
    excess = point / dimension - 1.0
    logarithm = np.where(excess > -0.5, np.log1p(np.maximum(excess, -0.5)), np.log(point / dimension))
    return 0.5 * z * z + 0.5 * math.log(half) - half * (excess - logarithm) - _stirling_remainder(half)


def _stirling_remainder(k: float) -> float:
    """log Γ(k) - ((k - ½) log k - k + ½ log 2π), to 1e-15."""
    if k < _STIRLING_FROM:
        return math.lgamma(k) - ((k - 0.5) * math.log(k) - k + 0.5 * math.log(2.0 * math.pi))
    return 1.0 / (12.0 * k) - 1.0 / (360.0 * k**3) + 1.0 / (1260.0 * k**5)


def _check_range(*, dimension: int, p_min: float) -> None:
    if not 1 <= dimension <= LARGEST_DIMENSION:
        raise InputError(f"dimension {dimension} is outside 1 … {LARGEST_DIMENSION}, for which the factor was verified")
    if not SMALLEST_P_MIN <= p_min < 0.5:
        raise InputError(f"p_min {p_min} must lie in [{SMALLEST_P_MIN:g}, 0.5); 1e-7 is usual")


def _check_classes(num_classes: int, *, p_min: float) -> None:
    if num_classes < 2:
        raise InputError(f"{num_classes} classes were given: a classifier has at least 2")
    if num_classes * p_min >= 1.0:
        raise InputError(
            f"p_min {p_min:g} is too large for {num_classes} classes: it must stay below {1.0 / num_classes:.3g}"
        )
