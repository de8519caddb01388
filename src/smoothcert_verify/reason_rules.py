"""Why a verdict is not a plain certificate: the codes and numbers that its tallies or its promise give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from smoothcert_verify.findings import refuse
from smoothcert_verify.json_values import Number, Shape, Text, is_same
from smoothcert_verify.run_facts import RunFacts
from smoothcert_verify.samples import SCORE_CELLS, Samples

Reason = Mapping[str, Any] | None

_OF_SETTLEMENT = {
    "WHOLE": None,
    "CUT": {"code": "region-cut"},
    "OVERRULED": {"code": "region-overruled"},
    "INHERITED": {"code": "region-inherited"},
}
_MEAN_ERROR = 1e-12
"""Relative, of a mean that was computed in floating point."""


def check_reason_shape(value: Any, field: str) -> None:
    """Null, or a code with numbers."""
    if value is None:
        return
    if not isinstance(value, Mapping) or not isinstance(value.get("code"), str):
        raise refuse("invalid-value", field=field, value=value, expected="null, or an object with a code")
    for name, item in value.items():
        shape: Shape = Text() if name == "code" else Number()
        shape(item, f"{field}.{name:.40}")


def is_one_of(reason: Reason, known: list[Reason]) -> bool:
    """Whether a stored reason is one of these: equal codes and numbers, means of scores but for rounding."""
    return any(_agree(reason, other) for other in known)


def _agree(one: Reason, other: Reason) -> bool:
    if one is None or other is None:
        return one is other
    if one.keys() != other.keys():
        return False
    return all(
        abs(one[name] - other[name]) <= _MEAN_ERROR * abs(other[name])
        if name == "mean" and type(one[name]) is float
        else is_same(one[name], other[name])
        for name in one
    )


def explain_promise(settlement: str, *, radius: float) -> Reason:
    """What a memory made of a claim."""
    return _OF_SETTLEMENT[settlement] if radius > 0 else {"code": "no-room-in-memory"}


def explain_failure(samples: Samples) -> Reason:
    """The samples settle on no class."""
    return {"code": "no-finite-answer", "invalid": samples.invalid, "n": samples.draws}


def explain_prediction(outcome: str, samples: Samples) -> Reason:
    if outcome == "failed":
        return explain_failure(samples)
    best = samples.plurality()
    if outcome != "abstained" or best is None:
        return None
    votes, runner_up = samples.votes[best], samples.largest_other(best)
    return {"code": "no-significant-class", "votes": votes, "runner_up": runner_up, "n": samples.draws}


def explain_abstention(samples: Samples | None, label: int, run: RunFacts, *, soft: bool) -> list[Reason]:
    """The samples certify nothing. soft: whether the certificate is about scores.

    Where another class leads, the reason may say so; runs of earlier versions do not.
    """
    votes, n = (0, 0) if samples is None else (samples.votes[label], samples.draws)
    counted = {"votes": votes, "n": n, "label": label}
    scored = soft and samples is not None and samples.scores is not None
    others = [] if samples is None or scored else _name_leader(samples, counted)
    if samples is not None and not run.is_sampled:
        return [{"code": "lead-too-small", "runner_up": samples.largest_other(label), **counted}]
    if run.radii is not None:
        smallest = {"radius": float(min(run.radii))}
        known: list[Reason] = [
            {"code": "radius-impossible", **smallest},
            {"code": "radius-undecided", **smallest, **counted, "limit": run.n},
        ]
        # Votes that are all for the class refute nothing.
        return [*others, *known, {"code": "radius-refuted", **smallest, **counted}] if votes < n else known
    if run.width is not None:
        return [*others, {"code": "below-precision", "width": run.width, **counted, "limit": run.n}]
    if samples is None:
        return []
    if scored:
        return [{"code": "low-mean-score", "mean": _mean_score(samples), "n": n, "label": label}]
    return [*others, {"code": "too-few-paired-votes" if samples.kind == "pairs" else "too-few-votes", **counted}]


def _name_leader(samples: Samples, counted: Mapping[str, int]) -> list[Reason]:
    """The reason that another class has more votes than the selected one; nothing if none has."""
    most = max(samples.votes)
    if most <= counted["votes"]:
        return []
    leader = {"leader": samples.votes.index(most), "leader_votes": most}
    return [{"code": "other-class-leads", **counted, **leader}]


def _mean_score(samples: Samples) -> float:
    """Each score is read as the lower end of its cell, sin² of equal steps; an answer that is not finite as 0."""
    assert samples.scores is not None
    steps = np.arange(SCORE_CELLS) - 1
    ends = np.sin(0.5 * np.pi * np.maximum(steps, 0) / (SCORE_CELLS - 2)) ** 2
    return math.fsum((ends * samples.scores.own).tolist()) / samples.draws
