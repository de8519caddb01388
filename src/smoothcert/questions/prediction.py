"""PREDICT: the class with the most votes, or an abstention."""

from __future__ import annotations

import numpy as np

from smoothcert.records import CertifiedPoint, Norm, Outcome, Reason, ReasonCode, Tally, Verdict
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.statistics import alpha_after_noise, plurality, significant_plurality


def predict_votes(
    *,
    index: int,
    label: int | None,
    tally: Tally,
    alpha: float,
    seconds: float,
    norm: Norm = Norm.L2,
    grid: int | None = None,
    scale: FeatureScale | None = None,
    dtype: str | None = None,
    price: float = 0.0,
    certain: bool = False,
) -> CertifiedPoint:
    """PREDICT (Cohen et al. 2019, C.1): the class with the most votes if it is significant at level α.

    norm: of the radii of this classifier. grid: of the noise, if it is on one. scale: of the features, if any. dtype:
    the half precision of the model, if any. price: what the noise takes from α. certain: all evaluations were made, so
    the class with most votes is the answer.
    """
    winner = plurality(tally) if certain else significant_plurality(tally, alpha=alpha_after_noise(alpha, price))
    outcome, reason = (Outcome.PREDICTED, None) if winner is not None else _explain_no_class(tally)
    verdict = Verdict(
        certificate="", prediction=winner, radius=0.0, norm=norm, outcome=outcome, reason=reason, bounds=None
    )
    return CertifiedPoint(
        index=index,
        label=label,
        verdict=verdict,
        sigma=tally.sigma,
        tallies=(tally,),
        seconds=seconds,
        grid=grid,
        scale=scale,
        dtype=dtype,
    )


def _explain_no_class(tally: Tally) -> tuple[Outcome, Reason]:
    if plurality(tally) is None:
        return Outcome.FAILED, Reason(ReasonCode.NO_FINITE_ANSWER, {"invalid": tally.invalid, "n": tally.n})
    winner = int(np.argmax(tally.counts))
    numbers = {"votes": int(tally.counts[winner]), "runner_up": tally.largest_other(winner), "n": tally.n}
    return Outcome.ABSTAINED, Reason(ReasonCode.NO_SIGNIFICANT_CLASS, numbers)
