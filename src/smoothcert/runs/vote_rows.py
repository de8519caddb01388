"""The votes of a point by class, for people and other programs."""

from __future__ import annotations

from typing import Any

from smoothcert.records import AnyTally, CertifiedPoint, IntArray, PairTally, Stage

STAGES = {"selection": Stage.SELECTION, "estimation": Stage.ESTIMATION, "prediction": Stage.PREDICTION}
"""The stages that have votes, by their names in exports."""


def count_votes(tally: AnyTally) -> tuple[IntArray, int]:
    """Votes by class (num_classes,), and the number of samples without a finite answer. Together they are `tally.n`.

    Both votes of a pair are counted; bounds on the probability of one class use the first of them only.
    """
    if isinstance(tally, PairTally):
        votes = 2 * tally.both + tally.first_only + tally.second_only
        return votes[:-1], int(votes[-1])
    return tally.counts, tally.invalid


def list_votes(point: CertifiedPoint) -> dict[str, dict[str, Any]] | None:
    """By stage {"counts": votes by class, "invalid": samples without a finite answer}; None if nothing was sampled."""
    votes = {}
    for name, stage in STAGES.items():
        tally = point.tally(stage)
        if tally is not None:
            counts, invalid = count_votes(tally)
            votes[name] = {"counts": counts.tolist(), "invalid": invalid}
    return votes or None
