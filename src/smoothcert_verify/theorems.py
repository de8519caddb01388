"""The certificates: the proofs that each rests on, and whether bounds certify a radius by its theorem.

Each theorem is used forward, at the radius that is claimed. In all of them the class is safe at smaller distances too,
so one distance is enough. To add a certificate, add an entry to `CERTIFICATE_FORMS`; its theorem belongs in this file.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from flint import arb, ctx

from smoothcert_verify import proof_checks as proofs
from smoothcert_verify.arithmetic import (
    MOST_KEPT,
    PRECISIONS,
    ball,
    density,
    exactly,
    is_proved,
    lower_tail,
    point_of_upper_tail,
    upper_tail,
)
from smoothcert_verify.findings import refuse
from smoothcert_verify.noise_forms import NOISES
from smoothcert_verify.varying_theorems import (
    Setting,
    Values,
    envelope_holds,
    find_peak,
    gaussian_holds,
    li_holds,
    lipschitz_holds,
    renyi_holds,
    strongest_other,
)

Theorem = Callable[[Values, Fraction, Setting], bool]

_SLAB_STEPS = 100


@dataclass(frozen=True, slots=True)
class CertificateForm:
    """theorem: whether bounds certify a radius > 0. tight: whether the radius is the largest that the bounds give, but
    for rounding; exact: whether it is the largest float64 that they give. one_level: the theorem for a constant σ,
    where `theorem` is one for a σ that differs from input to input."""

    proofs: tuple[str, ...]
    theorem: Theorem
    tight: bool = True
    one_level: Theorem | None = None
    noise: str = "gaussian"
    exact: bool = False

    @property
    def varying(self) -> bool:
        """Whether σ may differ from input to input."""
        return self.one_level is not None

    @property
    def norm(self) -> str:
        return NOISES[self.noise].norm

    @property
    def needs(self) -> dict[str, str]:
        """The quantities that the theorem takes, with the proofs that bound them."""
        return {quantity: proof for proof in self.proofs for quantity in proofs.PROOFS[proof].bounds}


def certifies(theorem: Theorem, values: Values, radius: Fraction, setting: Setting) -> bool:
    """Whether these bounds prove that the class is the answer at every point closer than the radius (> 0)."""
    return _certifies(theorem, tuple(values.items()), radius, setting)


@functools.lru_cache(maxsize=MOST_KEPT)
def _certifies(theorem: Theorem, values: tuple[tuple[str, Fraction], ...], radius: Fraction, setting: Setting) -> bool:
    """Kept, because many inputs of a run have the same votes."""
    bounds = dict(values)
    top = bounds.get("p-a")
    return (top is None or 0 < top < 1) and theorem(bounds, radius, setting)


def uniform_l1_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Yang et al. 2020: no probability changes by more than ‖δ‖₁/2λ. In rational numbers."""
    return radius <= setting.sigma * (values["p-a"] - strongest_other(values))


def splitting_l1_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Levine and Feizi 2021, Theorem 2: one step of the grid changes at most one vote. In whole numbers."""
    return setting.levels is not None and radius * (setting.levels - 1) <= values["steps"]


WorstCase = Callable[[arb], arb]
"""Distance in standard deviations → the least that the probability can be there, falling with the distance."""


def _keeps_the_lead(mine: WorstCase, other: WorstCase | None, distance: Fraction) -> bool:
    """Levine et al. 2021: A keeps more than half, or more than c, of which "not c" keeps at least so much."""

    def sides() -> tuple[arb, arb]:
        left = mine(ball(distance))
        kept = left if other is None else left.max(other(ball(distance)))
        return arb(1), left + kept

    return is_proved(sides)


def dipole_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Levine et al. 2021, Theorem 3."""
    names = [("both", "one-sided"), ("other-neither", "other-one-sided")]
    shapes = [_union_mass(values[both], values[one]) for both, one in names if both in values]
    return _keeps_the_lead(shapes[0], shapes[1] if len(shapes) > 1 else None, radius / setting.sigma)


def _union_mass(both: Fraction, one_sided: Fraction) -> WorstCase:
    """A half-space of mass C_N and a slab of mass C_S around x."""
    if not (0 <= both < 1 and 0 <= one_sided < 1):
        raise refuse("invalid-value", field="both, one-sided", value=(both, one_sided), expected="from 0 to below 1")

    def mass(r: arb) -> arb:
        total = arb(0)
        if one_sided > 0:
            total += upper_tail(r + point_of_upper_tail(ball(one_sided)))
        if both > 0:
            wall = point_of_upper_tail(ball((1 - both) / 2))
            total += lower_tail(wall - r) - lower_tail(-wall - r)
        return total

    return mass


def second_order_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Levine et al. 2021, Theorem 1."""
    sigma = setting.sigma
    mine = _slab_mass(values["p-a"], values["gradient-norm"] * sigma)
    other = None
    if "other-p" in values:
        other = _slab_mass(1 - values["other-p"], values["other-gradient-norm"] * sigma)
    return _keeps_the_lead(mine, other, radius / sigma)


def _slab_mass(p: Fraction, slope: Fraction) -> WorstCase:
    """The slab between ℓ and u is the worst case for its own mass and slope. It is one for p and the slope given if its
    mass Φ(u) - Φ(ℓ) is at most p and its slope φ(u) - φ(ℓ) at least that."""
    if not p > 0:
        return lambda _: arb(0)
    if p >= 1 or slope < 0:
        raise refuse("invalid-value", field="p, gradient-norm", value=(p, slope), expected="below 1, and 0 or more")
    lower, upper = _slab_ends(p, slope)

    def mass(r: arb) -> arb:
        if lower is None:
            return lower_tail(ball(upper) - r)
        return lower_tail(ball(upper) - r) - lower_tail(ball(lower) - r)

    return mass


@functools.lru_cache(maxsize=1024)
def _slab_ends(p: Fraction, slope: Fraction) -> tuple[Fraction | None, Fraction]:
    """Ends of a slab that was seen to have at most the mass and at least the slope; the lower one is None for -∞."""
    miss = 1 - p
    with ctx.workprec(PRECISIONS[0] + 32):
        guess = _solve_lower_end(miss, slope)
        step = Fraction(1, 2**70)
        while guess is not None and step < 1:
            lower = guess - step
            above = ball(miss) - lower_tail(ball(lower))
            upper = exactly(point_of_upper_tail(above).lower()) - Fraction(1, 2**100)
            if _is_slab_of(lower, upper, p, slope):
                return lower, upper
            step *= 4
        return None, exactly(point_of_upper_tail(ball(miss)).lower())


def _is_slab_of(lower: Fraction, upper: Fraction, p: Fraction, slope: Fraction) -> bool:
    low, high = ball(lower), ball(upper)
    return bool(lower_tail(high) - lower_tail(low) <= ball(p) and density(high) - density(low) >= ball(slope))


def _solve_lower_end(miss: Fraction, slope: Fraction) -> Fraction | None:
    """The ℓ with φ(u) - φ(ℓ) = slope, where P(Z < ℓ or Z > u) = miss; None where no slab has so large a slope.

    The left side falls with ℓ, with the slope φ(ℓ)(ℓ-u), from φ(Φ⁻¹(miss)) to 0 in the symmetric slab.
    """
    whole = ball(miss)
    if not density(point_of_upper_tail(whole)) > ball(slope):
        return None
    high = -point_of_upper_tail(whole / 2).mid()
    low = high - 40
    x = high
    for _ in range(_SLAB_STEPS):
        u = point_of_upper_tail((whole - lower_tail(x)).mid())
        value = (density(u) - density(x) - ball(slope)).mid()
        low, high = (x, high) if value > 0 else (low, x)
        proposed = (x - value / (density(x) * (x - u))).mid()
        following = proposed if low < proposed < high else ((low + high) / 2).mid()
        if abs(following - x) < arb(2) ** -90:
            return exactly(following)
        x = following
    return exactly(low)


def lecuyer_holds(values: Values, radius: Fraction, setting: Setting) -> bool:
    """Cohen et al. 2019, appendix I: σβ/sqrt(2 log(1.25(1+e^β)/(p_A - e^{2β}p_B))) for some 0 < β ≤ 1."""
    top, other = values["p-a"], strongest_other(values)
    if not 0 < other < top:
        return False

    def radius_at(beta: float) -> arb:
        b = arb(beta)
        gap = ball(top) - (2 * b).exp() * ball(other)
        if not gap > 0:
            return arb(0)
        root = (2 * (ball(Fraction(5, 4)) * (1 + b.exp()) / gap).log()).sqrt()
        return ball(setting.sigma) * b / root

    most = min(1.0, 0.5 * math.log(float(top / other)))
    best = find_peak(lambda share: float(radius_at(share * most).mid()), 1e-6, 1.0)
    return is_proved(lambda: (ball(radius), radius_at(best * most)))


_VOTES = {"": (proofs.TOP,), "-two-class": (proofs.TOP, proofs.RUNNER_UP)}
_SCORES = {
    "-soft": (proofs.SCORE_TOP,),
    "-soft-two-class": (proofs.SCORE_TOP, proofs.SCORE_OTHER),
    "-soft-bernstein": (proofs.SCORE_TOP_BERNSTEIN,),
    "-soft-two-class-bernstein": (proofs.SCORE_TOP_BERNSTEIN, proofs.SCORE_OTHER_BERNSTEIN),
}

CERTIFICATE_FORMS: dict[str, CertificateForm] = {
    "dipole": CertificateForm((proofs.PAIR_REGION,), dipole_holds),
    "dipole-separate": CertificateForm((proofs.PAIR_BOTH, proofs.PAIR_ONE_SIDED), dipole_holds),
    "dipole-multi-class": CertificateForm((proofs.PAIRS_OF_EVERY_CLASS,), dipole_holds),
    "second-order": CertificateForm((proofs.TOP, proofs.GRADIENT_HALVES), second_order_holds),
    "second-order-pairs": CertificateForm((proofs.TOP, proofs.GRADIENT_PAIRS), second_order_holds),
    "second-order-multi-class": CertificateForm((proofs.GRADIENTS_OF_EVERY_CLASS,), second_order_holds),
    "splitting-l1": CertificateForm((proofs.EVERY_EVALUATION,), splitting_l1_holds, noise="splitting", exact=True),
    "lipschitz": CertificateForm((proofs.SCORE_TOP,), lipschitz_holds, one_level=gaussian_holds),
    "lipschitz-two-class": CertificateForm(
        (proofs.SCORE_TOP, proofs.SCORE_OTHER), lipschitz_holds, one_level=gaussian_holds
    ),
}
for _suffix, _proofs in {**_VOTES, **_SCORES}.items():
    CERTIFICATE_FORMS |= {
        f"gaussian{_suffix}": CertificateForm(_proofs, gaussian_holds),
        f"envelope{_suffix}": CertificateForm(_proofs, envelope_holds, tight=False, one_level=gaussian_holds),
        f"uniform-l1{_suffix}": CertificateForm(_proofs, uniform_l1_holds, noise="uniform"),
    }
for _suffix, _proofs in _VOTES.items():
    CERTIFICATE_FORMS |= {
        f"lecuyer{_suffix}": CertificateForm(_proofs, lecuyer_holds, tight=False),
        f"li{_suffix}": CertificateForm(_proofs, li_holds, tight=False),
        f"renyi{_suffix}": CertificateForm(_proofs, renyi_holds, tight=False, one_level=gaussian_holds),
    }
