"""What a certificate states, in words: written again from its numbers, to be compared with what stands there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_OUTCOMES = {
    "certified": "a class was certified with a positive radius",
    "predicted": "a class was predicted; no radius was asked for",
    "abstained": "the votes do not settle on one class",
    "failed": "no valid statement can be made about this input",
}
_FROM_ANOTHER_CLAIM = ("OVERRULED", "INHERITED")
_IN_FLOAT = "The noise was added in float32 and is taken for the ideal one: not sound in floating point."


def statement_of(document: Mapping[str, Any]) -> str:
    """The sentence that follows from the first verdict, its bounds, the promise and the noise of a well-formed
    document.

    Whatever is malformed raises one of KeyError, TypeError, ValueError, IndexError, AttributeError or OverflowError.
    """
    verdict, promise = document["verdicts"][0], document["promise"]
    bounds = verdict["bounds"]
    if verdict["outcome"] != "certified" or verdict["prediction"] is None or (promise is None and bounds is None):
        return str(verdict["reason"]) or f"Nothing is certified: {_OUTCOMES[verdict['outcome']]}."
    voted = promise is None or promise["settlement"] not in _FROM_ANOTHER_CLAIM
    alpha = math.fsum(bounds["spent"].values()) if bounds is not None and voted else None
    stated = _promise(verdict, promise, alpha)
    return f"{stated} {_IN_FLOAT}" if document["smoothing"]["grid"] is None else stated


def _promise(verdict: Mapping[str, Any], promise: Mapping[str, Any] | None, alpha: float | None) -> str:
    label, radius, norm = verdict["prediction"], verdict["radius"], verdict["norm"]
    if promise is None:
        return (
            f"Except with probability at most {alpha!r} over the sampling, the smoothed classifier answers class "
            f"{label} at every point closer than {radius!r} in {norm} distance."
        )
    kept = (
        f"From position {promise['position']} of the memory {promise['memory'][:12]} on, and for as long as that "
        f"memory lives and is consulted, the answer is class {label} at every point within {radius!r} in {norm} "
        "distance."
    )
    if alpha is None:
        return f"{kept} It was promised by an earlier claim, in whose region this input lies."
    return (
        f"{kept} Except with probability at most {alpha!r} over the sampling of this one claim, the classifier "
        "smoothed with the sigma of this input would answer so too."
    )
