"""Between a certified point and a memory of regions: what is claimed, and what the point says afterwards."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math

from smoothcert.memory import MemoryKey, RegionMemory
from smoothcert.records import (
    CertifiedPoint,
    InputArray,
    Noise,
    Outcome,
    Promise,
    Reason,
    ReasonCode,
    Settlement,
    Smoothing,
    Verdict,
)

_REASONS = {
    Settlement.CUT: ReasonCode.REGION_CUT,
    Settlement.OVERRULED: ReasonCode.REGION_OVERRULED,
    Settlement.INHERITED: ReasonCode.REGION_INHERITED,
}


def _name_noise(noise: Noise, grid: int | None, *, scaled: bool, offsets: int | None) -> str:
    if scaled:
        return f"{noise.value} on scaled features"
    if offsets is not None:
        return f"{noise.value} with offsets {offsets} on {grid} levels"
    return noise.value if grid is None else f"{noise.value} on {grid} levels"


def memory_key(
    *,
    model_digest: str,
    sigma_digest: str,
    noise: Noise,
    grid: int | None,
    input_shape: tuple[int, ...],
    input_range: tuple[float, float] | None,
    scaled: bool = False,
    offsets: int | None = None,
) -> MemoryKey:
    """The key of the regions of one smoothed classifier: if any of this changes, it is another classifier.

    scaled: inputs, and so regions, are divided by a scale, which is a part of the model. offsets: the seed of those of
    splitting.
    """
    # As integers and floats, so that equal shapes and ranges give the same key.
    bounds = None if input_range is None else [float(bound) for bound in input_range]
    preprocessing = json.dumps({"input_shape": [int(size) for size in input_shape], "input_range": bounds})
    return MemoryKey(
        model=model_digest,
        sigma_rule=sigma_digest,
        # Rounding to a grid is part of the base classifier.
        noise=_name_noise(noise, grid, scaled=scaled, offsets=offsets),
        norm=noise.norm,
        preprocessing=hashlib.sha256(preprocessing.encode()).hexdigest(),
        dimension=math.prod(input_shape),
    )


def claim_region(point: CertifiedPoint, x: InputArray, memory: RegionMemory) -> CertifiedPoint:
    """Claim the region of a certified point; the result has the class and the radius that the memory granted.

    An abstention claims nothing. If it lies in a promised region, the answer is the class of that region, within what
    remains of it around the input. A failure stays a failure.
    """
    if point.outcome is Outcome.CERTIFIED and point.prediction is not None:
        return _apply_promise(point, memory.claim(x, point.prediction, point.radius))
    promise = memory.lookup(x) if point.outcome is Outcome.ABSTAINED else None
    return point if promise is None else _apply_promise(point, promise)


def _apply_promise(point: CertifiedPoint, promise: Promise) -> CertifiedPoint:
    if promise.radius > 0:
        outcome, code = Outcome.CERTIFIED, _REASONS.get(promise.settlement)
    else:
        outcome, code = Outcome.PREDICTED, ReasonCode.NO_ROOM_IN_MEMORY
    verdict = dataclasses.replace(
        point.verdict,
        prediction=promise.label,
        radius=promise.radius,
        outcome=outcome,
        reason=None if code is None else Reason(code, {}),
    )
    return dataclasses.replace(point, verdict=verdict, promise=promise)


def point_from_promise(promise: Promise, *, index: int, label: int | None, smoothing: Smoothing) -> CertifiedPoint:
    """The answer to an input that lies in a promised region. Nothing is sampled, so it has no noise level."""
    verdict = Verdict(
        certificate="",
        prediction=promise.label,
        radius=0.0,
        norm=smoothing.norm,
        outcome=Outcome.PREDICTED,
        reason=Reason(ReasonCode.IN_PROMISED_REGION, {"position": promise.position}),
        bounds=None,
    )
    return CertifiedPoint(
        index=index,
        label=label,
        verdict=verdict,
        sigma=math.nan,
        tallies=(),
        seconds=0.0,
        promise=promise,
        grid=smoothing.grid,
        scale=smoothing.scale,
        dtype=smoothing.dtype,
    )
