"""Theorems that turn bounds into radii, one a file; this is where they are found by name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping

import numpy as np

from smoothcert.certificates.base import Certificate
from smoothcert.certificates.gaussian import (
    GaussianCertificate,
    GaussianTwoClassCertificate,
    gaussian_radius,
    gaussian_two_class_radius,
)
from smoothcert.certificates.historical import HISTORICAL, lecuyer_radius, li_radius
from smoothcert.errors import InputError
from smoothcert.records import Quantity

_ALL: tuple[Certificate, ...] = (GaussianCertificate(), GaussianTwoClassCertificate(), *HISTORICAL)

CERTIFICATES: Mapping[str, Certificate] = {certificate.name: certificate for certificate in _ALL}

__all__ = [
    "CERTIFICATES",
    "Certificate",
    "gaussian_radius",
    "gaussian_two_class_radius",
    "get_certificate",
    "lecuyer_radius",
    "li_radius",
    "radius_of_family",
]


def get_certificate(name: str) -> Certificate:
    """The certificate of that name."""
    if name not in CERTIFICATES:
        raise InputError(f"there is no certificate {name!r}; {_hint(name, CERTIFICATES)}")
    return CERTIFICATES[name]


def radius_of_family(family: str, quantities: Mapping[Quantity, float], *, sigma: float) -> float:
    """One radius by the form of a theorem that needs exactly these quantities; 0 if nothing is certified."""
    forms = [certificate for certificate in CERTIFICATES.values() if certificate.family == family]
    if not forms:
        families = dict.fromkeys(certificate.family for certificate in CERTIFICATES.values())
        raise InputError(f"there is no certificate {family!r}; {_hint(family, families)}")
    form = next((form for form in forms if set(form.needs) == set(quantities)), None)
    if form is None:
        wanted = " or ".join(" and ".join(f"--{quantity}" for quantity in form.needs) for form in forms)
        given = " and ".join(f"--{quantity}" for quantity in quantities) or "nothing"
        raise InputError(f"the {family} radius needs {wanted}; {given} was given")
    _check_values(quantities, sigma=sigma)
    return float(form.radius({q: np.asarray(value) for q, value in quantities.items()}, sigma=sigma))


def _check_values(quantities: Mapping[Quantity, float], *, sigma: float) -> None:
    if not (math.isfinite(sigma) and sigma > 0):
        raise InputError(f"--sigma {sigma} must be a positive finite number")
    for quantity, value in quantities.items():
        if not 0.0 < value < 1.0:
            raise InputError(
                f"--{quantity} {value} must lie strictly between 0 and 1: it is a probability bounded by sampling"
            )


def _hint(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
