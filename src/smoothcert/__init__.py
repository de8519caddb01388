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
    from smoothcert.memory import MemoryKey, RegionMemory, open_memory
    from smoothcert.models import as_classifier, load_classifier
    from smoothcert.records import (
        Bound,
        Bounds,
        CertifiedPoint,
        ConstantSigma,
        Envelope,
        GradientTally,
        Guarantee,
        LipschitzSigma,
        MonotoneEnvelope,
        Noise,
        Norm,
        Outcome,
        PairTally,
        Promise,
        Proof,
        Quantity,
        Reason,
        ReasonCode,
        ScoreTally,
        SemiElastic,
        Settlement,
        Stage,
        StreamId,
        Supposition,
        Tally,
        Verdict,
    )
    from smoothcert.results import Results, compare, open_run
    from smoothcert.results.selected_classifier import SelectedClassifier
    from smoothcert.sigma import Ascent, CallableRule, GridSearch, OptimisedSigma, SigmaRule, SignSearch, load_sigma
    from smoothcert.sigma.knn import KnnSigma
    from smoothcert.sigma.network import SigmaNetwork
    from smoothcert.smoothed import SmoothedClassifier
    from smoothcert.spec import RunManifest, RunSpec
    from smoothcert.training import train, train_selector

__version__ = "0.2.0"

_HOMES = {
    "CERTIFICATES": "certificates",
    "Portfolio": "certificates",
    "get_certificate": "certificates",
    "get_portfolio": "certificates",
    "load_dataset": "data",
    "SmoothcertError": "errors",
    "MemoryKey": "memory",
    "RegionMemory": "memory",
    "open_memory": "memory",
    "as_classifier": "models",
    "load_classifier": "models",
    "Bound": "records",
    "Bounds": "records",
    "CertifiedPoint": "records",
    "ConstantSigma": "records",
    "Envelope": "records",
    "GradientTally": "records",
    "Guarantee": "records",
    "LipschitzSigma": "records",
    "MonotoneEnvelope": "records",
    "Noise": "records",
    "Norm": "records",
    "Outcome": "records",
    "PairTally": "records",
    "Promise": "records",
    "Proof": "records",
    "Quantity": "records",
    "Reason": "records",
    "ReasonCode": "records",
    "RunManifest": "spec",
    "RunSpec": "spec",
    "Results": "results",
    "ScoreTally": "records",
    "SemiElastic": "records",
    "Settlement": "records",
    "Stage": "records",
    "StreamId": "records",
    "Supposition": "records",
    "Tally": "records",
    "Verdict": "records",
    "Ascent": "sigma",
    "CallableRule": "sigma",
    "GridSearch": "sigma",
    "OptimisedSigma": "sigma",
    "SignSearch": "sigma",
    "SigmaRule": "sigma",
    "load_sigma": "sigma",
    "KnnSigma": "sigma.knn",
    "SigmaNetwork": "sigma.network",
    "SelectedClassifier": "results.selected_classifier",
    "SmoothedClassifier": "smoothed",
    "compare": "results",
    "open_run": "results",
    "train": "training",
    "train_selector": "training",
}

__all__ = [
    "CERTIFICATES",
    "Ascent",
    "Bound",
    "Bounds",
    "CallableRule",
    "CertifiedPoint",
    "ConstantSigma",
    "Envelope",
    "GradientTally",
    "GridSearch",
    "Guarantee",
    "KnnSigma",
    "LipschitzSigma",
    "MemoryKey",
    "MonotoneEnvelope",
    "Noise",
    "Norm",
    "OptimisedSigma",
    "Outcome",
    "PairTally",
    "Portfolio",
    "Promise",
    "Proof",
    "Quantity",
    "Reason",
    "ReasonCode",
    "RegionMemory",
    "Results",
    "RunManifest",
    "RunSpec",
    "ScoreTally",
    "SelectedClassifier",
    "SemiElastic",
    "Settlement",
    "SigmaNetwork",
    "SigmaRule",
    "SignSearch",
    "SmoothcertError",
    "SmoothedClassifier",
    "Stage",
    "StreamId",
    "Supposition",
    "Tally",
    "Verdict",
    "as_classifier",
    "compare",
    "get_certificate",
    "get_portfolio",
    "load_classifier",
    "load_dataset",
    "load_sigma",
    "open_memory",
    "open_run",
    "train",
    "train_selector",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"smoothcert.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
