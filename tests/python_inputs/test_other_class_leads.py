"""An abstention says so where selection picked another class than the one that leads in estimation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smoothcert.questions.verdicts import explain_other_leader
from smoothcert.records import Outcome, ReasonCode, Stage, StreamId, Tally
from smoothcert.smoothed import SmoothedClassifier


def thirds(batch: np.ndarray) -> np.ndarray:
    """Three classes of about equal probability under any noise: by the angle of two coordinates."""
    angle = np.arctan2(batch[:, 0] - 0.5, batch[:, 1] - 0.5)
    return (np.floor((angle + np.pi) / (2 * np.pi / 3)).astype(np.int64)) % 3


CENTRE = np.full((40, 2), 0.5, dtype=np.float32)


@pytest.mark.parametrize("question", [{}, {"certificate": "dipole"}, {"decide": 0.1}, {"precision": 0.05}])
def test_it_is_the_reason_where_it_happened(question: dict[str, Any]) -> None:
    smoothed = SmoothedClassifier(thirds, sigma=0.25, num_classes=3, seed=3, batch=64, workers=1, grid="float")
    points = smoothed.certify(CENTRE, n0=5, n=300, **question)
    found = 0
    for point in points:
        estimation = [tally for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION]
        counts = sum(tally.independent_votes().counts for tally in estimation)
        selected = int(np.argmax(point.tally(Stage.SELECTION).counts))  # type: ignore[union-attr]
        assert point.outcome is Outcome.ABSTAINED
        assert point.reason is not None
        leads = int(counts.max()) > int(counts[selected])  # type: ignore[union-attr, index]
        assert (point.reason.code is ReasonCode.OTHER_CLASS_LEADS) == leads
        if leads:
            found += 1
            leader = int(np.argmax(counts))
            assert point.reason.numbers == {
                "votes": int(counts[selected]),  # type: ignore[index]
                "n": int(counts.sum()),  # type: ignore[union-attr]
                "label": selected,
                "leader": leader,
                "leader_votes": int(counts[leader]),  # type: ignore[index]
            }
            assert f"selection picked class {selected}, but class {leader} leads in estimation" in str(point.reason)
    assert 0 < found < len(points)


def tally(counts: list[int], invalid: int = 0) -> Tally:
    total = sum(counts) + invalid
    return Tally(
        stream=StreamId(seed=0, index=0, stage=Stage.ESTIMATION),
        sigma=0.25,
        counts=np.array(counts),
        invalid=invalid,
        ranges=((0, total),),
    )


def test_a_tie_and_invalid_answers_lead_nothing() -> None:
    assert explain_other_leader(tally([5, 5, 0]), 1) is None
    assert explain_other_leader(tally([1, 0], invalid=9), 0) is None
    reason = explain_other_leader(tally([5, 6, 6]), 0)
    assert reason is not None
    assert reason.numbers["leader"] == 1
