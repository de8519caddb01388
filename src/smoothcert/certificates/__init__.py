"""Theorems that turn bounds into radii, one per file, and the registry that finds them by name."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from smoothcert.certificates.certificate import Certificate
from smoothcert.certificates.dipole import DIPOLE, dipole_multi_class_radius, dipole_radius
from smoothcert.certificates.envelope import ENVELOPE, envelope_radius, envelope_two_class_radius
from smoothcert.certificates.gaussian import GAUSSIAN, GAUSSIAN_SOFT, gaussian_radius, gaussian_two_class_radius
from smoothcert.certificates.historical import (
    HISTORICAL,
    lecuyer_radius,
    li_radius,
    renyi_envelope_radius,
    renyi_radius,
)
from smoothcert.certificates.lipschitz import LIPSCHITZ, lipschitz_constant, lipschitz_radius
from smoothcert.certificates.portfolio import Portfolio, split_names
from smoothcert.certificates.second_order import (
    SECOND_ORDER,
    second_order_multi_class_radius,
    second_order_radius,
)
from smoothcert.certificates.splitting_l1 import SPLITTING_L1, splitting_l1_radius
from smoothcert.certificates.uniform_l1 import UNIFORM_L1, uniform_l1_radius, uniform_l1_two_class_radius
from smoothcert.certificates.worst_regions import worst_case_probability
from smoothcert.errors import InputError
from smoothcert.records import Quantity, Smoothing

_ALL: tuple[Certificate, ...] = (
    *GAUSSIAN,
    *DIPOLE,
    *SECOND_ORDER,
    *GAUSSIAN_SOFT,
    *ENVELOPE,
    *LIPSCHITZ,
    *UNIFORM_L1,
    *SPLITTING_L1,
    *HISTORICAL,
)

CERTIFICATES: Mapping[str, Certificate] = {certificate.name: certificate for certificate in _ALL}

_NORMS = {Quantity.GRADIENT_NORM_UPPER, Quantity.OTHER_GRADIENT_NORM_UPPER}
_PAIRS = (
    (Quantity.PAIR_BOTH_LOWER, Quantity.PAIR_ONE_SIDED_LOWER),
    (Quantity.OTHER_NEITHER_LOWER, Quantity.OTHER_ONE_SIDED_LOWER),
)
_MAY_BE_ZERO = {quantity for pair in _PAIRS for quantity in pair}
_ROUNDING = 1e-9
"""Allowed rounding error of probabilities typed with a few digits."""

__all__ = [
    "CERTIFICATES",
    "Certificate",
    "Portfolio",
    "dipole_multi_class_radius",
    "dipole_radius",
    "envelope_radius",
    "envelope_two_class_radius",
    "gaussian_radius",
    "gaussian_two_class_radius",
    "get_certificate",
    "get_portfolio",
    "lecuyer_radius",
    "li_radius",
    "lipschitz_constant",
    "lipschitz_radius",
    "radius_of_family",
    "renyi_envelope_radius",
    "renyi_radius",
    "second_order_multi_class_radius",
    "second_order_radius",
    "splitting_l1_radius",
    "uniform_l1_radius",
    "uniform_l1_two_class_radius",
    "worst_case_probability",
]


def get_certificate(name: str) -> Certificate:
    """The certificate of that name."""
    if name not in CERTIFICATES:
        raise InputError(f"there is no certificate {name!r}; {_hint(name, CERTIFICATES)}")
    return CERTIFICATES[name]


def get_portfolio(
    chosen: str | Certificate | Sequence[str | Certificate] | Portfolio, *, best_of: bool = False
) -> Portfolio:
    """The portfolio given by a name, "a,b", "best-of(a,b)", a certificate, or a sequence of names and certificates."""
    if isinstance(chosen, Portfolio):
        return dataclasses.replace(chosen, best_of=True) if best_of else chosen
    if isinstance(chosen, str):
        names, marked = split_names(chosen)
        return Portfolio(tuple(get_certificate(name) for name in names), best_of=best_of or marked)
    several = list(chosen) if isinstance(chosen, Sequence) else [chosen]
    if several and all(isinstance(one, str) for one in several):
        return get_portfolio(",".join(map(str, several)), best_of=best_of)
    return Portfolio(tuple(get_certificate(one) if isinstance(one, str) else one for one in several), best_of=best_of)


def radius_of_family(
    family: str, quantities: Mapping[Quantity, float], *, sigma: float, smoothing: Smoothing | None = None
) -> float:
    """The radius by the form of a theorem that takes exactly these quantities; 0 if nothing is certified."""
    if family in CERTIFICATES:
        family = CERTIFICATES[family].family  # the given quantities decide which form is used
    forms = [certificate for certificate in CERTIFICATES.values() if certificate.family == family]
    if not forms:
        families = dict.fromkeys(certificate.family for certificate in CERTIFICATES.values())
        raise InputError(f"there is no certificate {family!r}; {_hint(family, families)}")
    form = next((form for form in forms if set(form.needs) == set(quantities)), None)
    if form is None:
        combinations = dict.fromkeys(" and ".join(f"--{quantity}" for quantity in form.needs) for form in forms)
        wanted = ", or ".join(combinations)
        given = " and ".join(f"--{quantity}" for quantity in quantities) or "nothing"
        was = "were" if len(quantities) > 1 else "was"
        raise InputError(f"the {family} radius needs {wanted}; {given} {was} given")
    _check_values(quantities, sigma=sigma)
    if smoothing is not None and smoothing.varying and not form.varying_sigma:
        raise InputError(f"the {family} radius holds for a constant sigma only; for one that varies use envelope")
    values = {q: np.asarray(value) for q, value in quantities.items()}
    return float(form.radius(values, sigma=sigma, smoothing=smoothing or Smoothing()))


def _check_values(quantities: Mapping[Quantity, float], *, sigma: float) -> None:
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"--sigma {sigma} must be a positive finite number")
    for quantity, value in quantities.items():
        if quantity is Quantity.SAFE_STEPS:
            if not (value >= 0 and value == int(value)):
                raise InputError(f"--{quantity} {value:g} must be a whole number of at least 0")
        elif quantity in _NORMS:
            if not value >= 0.0:
                raise InputError(
                    f"--{quantity} {value} must be at least 0 (inf: unknown): it is the length of a vector"
                )
        elif quantity in _MAY_BE_ZERO:
            if not 0.0 <= value < 1.0:
                raise InputError(f"--{quantity} {value} must lie in [0, 1): it is a probability bounded by sampling")
        elif not 0.0 < value < 1.0:
            raise InputError(
                f"--{quantity} {value} must lie strictly between 0 and 1: it is a probability bounded by sampling"
            )
    for both, one_sided in _PAIRS:
        if both in quantities and quantities[both] + 2.0 * quantities[one_sided] > 1.0 + _ROUNDING:
            raise InputError(
                f"--{both} {quantities[both]} and --{one_sided} {quantities[one_sided]} cannot both be true: the "
                f"second vote alone is as likely as the first vote alone, so {both} + 2 x {one_sided} is at most 1"
            )


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
