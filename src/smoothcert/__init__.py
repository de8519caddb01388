"""Certified robustness by randomized smoothing.

The public names are imported when they are first used, so that `import smoothcert` is quick and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert.certificates import CERTIFICATES, Portfolio, get_certificate, get_portfolio
    from smoothcert.data import load_dataset
    from smoothcert.errors import SmoothcertError
    from smoothcert.models import as_classifier, load_classifier
    from smoothcert.records import (
        Bound,
        Bounds,
        CertifiedPoint,
        GradientTally,
        Guarantee,
        Norm,
        Outcome,
        PairTally,
        Proof,
        Quantity,
        RunManifest,
        Stage,
        StreamId,
        Tally,
        Verdict,
    )
    from smoothcert.smoothed import SmoothedClassifier

__version__ = "0.1.0"

_HOMES = {
    "CERTIFICATES": "certificates",
    "Portfolio": "certificates",
    "get_certificate": "certificates",
    "get_portfolio": "certificates",
    "load_dataset": "data",
    "SmoothcertError": "errors",
    "as_classifier": "models",
    "load_classifier": "models",
    "Bound": "records",
    "Bounds": "records",
    "CertifiedPoint": "records",
    "GradientTally": "records",
    "Guarantee": "records",
    "Norm": "records",
    "Outcome": "records",
    "PairTally": "records",
    "Proof": "records",
    "Quantity": "records",
    "RunManifest": "records",
    "Stage": "records",
    "StreamId": "records",
    "Tally": "records",
    "Verdict": "records",
    "SmoothedClassifier": "smoothed",
}

__all__ = [
    "CERTIFICATES",
    "Bound",
    "Bounds",
    "CertifiedPoint",
    "GradientTally",
    "Guarantee",
    "Norm",
    "Outcome",
    "PairTally",
    "Portfolio",
    "Proof",
    "Quantity",
    "RunManifest",
    "SmoothcertError",
    "SmoothedClassifier",
    "Stage",
    "StreamId",
    "Tally",
    "Verdict",
    "as_classifier",
    "get_certificate",
    "get_portfolio",
    "load_classifier",
    "load_dataset",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"smoothcert.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
