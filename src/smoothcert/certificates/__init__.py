"""Theorems that turn bounds into radii, one a file; this is where they are found by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from smoothcert.certificates.base import Certificate
from smoothcert.certificates.gaussian import (
    GaussianCertificate,
    GaussianTwoClassCertificate,
    gaussian_radius,
    gaussian_two_class_radius,
)
from smoothcert.certificates.historical import HISTORICAL, lecuyer_radius, li_radius
from smoothcert.errors import InputError

CERTIFICATES: Mapping[str, Certificate] = {
    certificate.name: certificate
    for certificate in (GaussianCertificate(), GaussianTwoClassCertificate(), *HISTORICAL)
}

__all__ = [
    "CERTIFICATES",
    "Certificate",
    "gaussian_radius",
    "gaussian_two_class_radius",
    "get_certificate",
    "lecuyer_radius",
    "li_radius",
]


def get_certificate(name: str) -> Certificate:
    """The certificate of that name."""
    if name not in CERTIFICATES:
        near = difflib.get_close_matches(name, CERTIFICATES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(CERTIFICATES)}"
        raise InputError(f"there is no certificate {name!r}; {hint}")
    return CERTIFICATES[name]
