"""The link between certified points and a memory: which key, what is claimed, and the point that results."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.regions import RegionMemory
from smoothcert.records import CertifiedPoint, InputArray, Noise, Norm, Outcome, Promise, Settlement, Verdict

NORM_OF_NOISE = {Noise.GAUSSIAN: Norm.L2, Noise.UNIFORM: Norm.L1}
"""The norm in which regions are promised: the norm of all theorems about this noise."""


def memory_key(
    *,
    model_digest: str,
    sigma_digest: str,
    noise: Noise,
    grid: int | None,
    input_shape: tuple[int, ...],
    input_range: tuple[float, float] | None,
) -> MemoryKey:
    """Return the key of a smoothed classifier. A change of any argument makes another classifier.

    grid: levels of the grid that inputs with noise are rounded to; None: no rounding.
    """
    # Converted to int and float, so that equal shapes and ranges give equal keys whatever their Python types are.
    bounds = None if input_range is None else [float(bound) for bound in input_range]
    preprocessing = json.dumps({"input_shape": [int(size) for size in input_shape], "input_range": bounds})
    return MemoryKey(
        model=model_digest,
        sigma_rule=sigma_digest,
        # Rounding to a grid is part of the base classifier.
        noise=noise.value if grid is None else f"{noise.value} on {grid} levels",
        norm=NORM_OF_NOISE[noise],
        preprocessing=hashlib.sha256(preprocessing.encode()).hexdigest(),
        dimension=math.prod(input_shape),
    )


def claim_region(point: CertifiedPoint, x: InputArray, memory: RegionMemory) -> CertifiedPoint:
    """Claim the region of a certified point and return the point with the class and radius the memory granted.

    An abstained point claims nothing. If it lies in a promised region, it gets the class of that region and the radius
    that remains of it around x. A failed point is returned unchanged.
    """
    if point.outcome is Outcome.CERTIFIED and point.prediction is not None:
        return _apply_promise(point, memory.claim(x, point.prediction, point.radius))
    promise = memory.lookup(x) if point.outcome is Outcome.ABSTAINED else None
    return point if promise is None else _apply_promise(point, promise)


def _apply_promise(point: CertifiedPoint, promise: Promise) -> CertifiedPoint:
    if promise.radius > 0:
        outcome = Outcome.CERTIFIED
        reason = "" if promise.settlement is Settlement.WHOLE else promise.settlement.value
    else:
        outcome = Outcome.PREDICTED
        reason = "the regions promised before leave no room around this input: only its own answer is kept"
    verdict = dataclasses.replace(
        point.verdict, prediction=promise.label, radius=max(promise.radius, 0.0), outcome=outcome, reason=reason
    )
    return dataclasses.replace(point, verdict=verdict, promise=promise)


def point_from_promise(
    promise: Promise, *, index: int, label: int | None, norm: Norm, grid: int | None = None
) -> CertifiedPoint:
    """Return the point of an input that lies in a promised region. Nothing is sampled, so sigma is NaN."""
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
