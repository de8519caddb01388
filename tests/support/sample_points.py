"""One certified point, and what it looks like when nothing was certified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from smoothcert.records import (
    Bound,
    Bounds,
    CertifiedPoint,
    Norm,
    Outcome,
    Proof,
    Quantity,
    Side,
    Stage,
    StreamId,
    Tally,
    Verdict,
)

POINT = CertifiedPoint(
    index=0,
    label=3,
    verdict=Verdict(
        certificate="gaussian",
        prediction=3,
        radius=0.5,
        norm=Norm.L2,
        outcome=Outcome.CERTIFIED,
        reason=None,
        bounds=Bounds(
            label=3,
            quantities={Quantity.TOP_LOWER: Bound(value=0.97, side=Side.LOWER, alpha=0.001, method="exact")},
            spent={Proof.TOP: 0.001},
        ),
    ),
    sigma=0.25,
    tallies=(
        Tally(
            stream=StreamId(seed=1, index=0, stage=Stage.ESTIMATION),
            sigma=0.25,
            counts=np.array([0, 0, 1, 9]),
            invalid=0,
            ranges=((0, 10),),
        ),
    ),
    seconds=1.5,
)


def undecided(index: int, outcome: Outcome, label: int | None = 0) -> CertifiedPoint:
    verdict = replace(POINT.verdict, prediction=None, radius=0.0, outcome=outcome, bounds=None)
    return replace(POINT, index=index, label=label, verdict=verdict, tallies=())
