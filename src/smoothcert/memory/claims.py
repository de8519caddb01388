"""Between a certified point and a memory of regions: what is claimed, and what the point says afterwards."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

from smoothcert.memory import MemoryKey, RegionMemory
from smoothcert.models.base import BaseClassifier
from smoothcert.records import CertifiedPoint, InputArray, Noise, Norm, Outcome, Promise, Settlement, Verdict
from smoothcert.sigma import SigmaRule


def key_for(
    classifier: BaseClassifier,
    rule: SigmaRule,
    *,
    noise: Noise,
    input_shape: tuple[int, ...],
    input_range: tuple[float, float] | None,
    grid: int | None = None,
) -> MemoryKey:
    """What the regions of this smoothed classifier are kept under: change any of it, and it is another classifier."""
    # As whole numbers and floats: the same shape and range, however they were typed, make the same key.
    bounds = None if input_range is None else [float(bound) for bound in input_range]
    preprocessing = json.dumps({"input_shape": [int(size) for size in input_shape], "input_range": bounds})
    return MemoryKey(
        model=classifier.digest,
        sigma_rule=rule.digest,
        # Rounding to a grid is part of the base classifier.
        noise=noise.value if grid is None else f"{noise.value} on {grid} levels",
        norm=noise.norm,
        preprocessing=hashlib.sha256(preprocessing.encode()).hexdigest(),
        dimension=math.prod(input_shape),
    )


def remembered(point: CertifiedPoint, x: InputArray, memory: RegionMemory) -> CertifiedPoint:
    """The point after its region was claimed: with the class and the radius the memory granted.

    An input whose votes settle on nothing claims nothing. If it lies in a promised region, the answer is the class of
    that region all the same, within what remains of it around the input. A failure stays a failure.
    """
    if point.outcome is Outcome.CERTIFIED and point.prediction is not None:
        return _granted(point, memory.claim(x, point.prediction, point.radius))
    promise = memory.lookup(x) if point.outcome is Outcome.ABSTAINED else None
    return point if promise is None else _granted(point, promise)


def _granted(point: CertifiedPoint, promise: Promise) -> CertifiedPoint:
    if promise.radius > 0:
        granted = dataclasses.replace(
            point.verdict,
            prediction=promise.label,
            radius=promise.radius,
            outcome=Outcome.CERTIFIED,
            reason="" if promise.settlement is Settlement.WHOLE else promise.settlement.value,
        )
    else:
        granted = dataclasses.replace(
            point.verdict,
            prediction=promise.label,
            radius=0.0,
            outcome=Outcome.PREDICTED,
            reason="the regions promised before leave no room around this input: only its own answer is kept",
        )
    return dataclasses.replace(point, verdict=granted, promise=promise)


def promised(promise: Promise, *, index: int, label: int | None, norm: Norm, grid: int | None = None) -> CertifiedPoint:
    """The answer to an input that lies in a promised region: nothing is sampled, so there is no noise level either."""
    verdict = Verdict(
        certificate="",
        prediction=promise.label,
        radius=0.0,
        norm=norm,
        outcome=Outcome.PREDICTED,
        reason=f"the input lies in the region promised at position {promise.position} of the memory",
        bounds=None,
    )
    return CertifiedPoint(
        index=index, label=label, verdict=verdict, sigma=math.nan, tallies=(), seconds=0.0, promise=promise, grid=grid
    )
