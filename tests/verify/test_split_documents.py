"""Certificates under splitting: counted votes, whole steps, and the largest float64 radius that they give."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flint")

from certified_documents import split_document
from forged_documents import at, both, forged, in_spec, in_verdict
from smoothcert_verify import check_document
from smoothcert_verify.samples import Samples
from smoothcert_verify.texts import describe_guarantee

Document = dict[str, Any]


def codes(document: Document) -> set[str]:
    return {finding.code for finding in check_document(document).discrepancies}


def counted(votes: Sequence[int], invalid: int = 0) -> Samples:
    return Samples("ESTIMATION", "votes", 0.5, ((0, sum(votes) + invalid),), tuple(votes), invalid)


def lead_after(votes: Sequence[int], label: int, steps: int) -> bool:
    """Whether no way to move so many votes, one at a time, makes another class lead. votes: of invalid answers last."""
    if steps == 0:
        return max(range(len(votes)), key=lambda c: (votes[c], -c)) == label
    places = range(len(votes))
    taken = [[n - (c == a) + (c == b) for c, n in enumerate(votes)] for a in places for b in places]
    return all(lead_after(one, label, steps - 1) for one in taken if min(one) >= 0)


@given(st.lists(st.integers(0, 7), min_size=2, max_size=3), st.integers(0, 4))
def test_steps_by_trying_all_changes_of_votes(votes: list[int], invalid: int) -> None:
    samples = counted(votes, invalid)
    label = samples.plurality()
    if label is None or sum(votes) < 2:
        return
    steps = samples.count_safe_steps(label)
    together = [*votes, invalid]
    if steps <= 2:
        assert lead_after(together, label, steps)
    if steps <= 1 and steps < votes[label]:
        assert not lead_after(together, label, steps + 1)


@pytest.mark.parametrize(
    ("votes", "label", "steps"),
    [((300, 100, 41), 0, 100), ((100, 300, 41), 1, 99), ((441, 0, 0), 0, 220), ((0, 441, 0), 1, 220)],
)
def test_known_radii(votes: tuple[int, ...], label: int, steps: int) -> None:
    document = split_document(votes, levels=256)
    assert check_document(document).discrepancies == []
    verdict = document["verdicts"][0]
    assert verdict["prediction"] == label
    assert verdict["bounds"]["quantities"]["steps"]["value"] == steps
    assert Fraction(verdict["radius"]) <= Fraction(steps, 255) < Fraction(math.nextafter(verdict["radius"], 1))


@pytest.mark.parametrize("votes", [(300, 100, 41), (221, 220, 0), (100, 300, 41), (222, 219, 0)])
@pytest.mark.parametrize("levels", [256, 17, 11])
def test_the_next_float_is_another_radius(votes: tuple[int, ...], levels: int) -> None:
    """Also where steps/q is no float64: the radius is not rounded up, and is the largest one."""
    document = split_document(votes, levels=levels)
    assert codes(document) == set()
    radius = document["verdicts"][0]["radius"]
    larger = forged(document, in_verdict(radius=math.nextafter(radius, math.inf)))
    if radius == 0:
        larger = forged(larger, in_verdict(outcome="certified", prediction=0, reason=None))
    else:
        assert codes(forged(document, in_verdict(radius=math.nextafter(radius, 0.0)))) == {"radius-too-small"}
        certain = f"for certain, the smoothed classifier answers class {document['verdicts'][0]['prediction']}"
        assert certain in describe_guarantee(document)
    assert codes(larger) == {"radius-not-certified"}


@pytest.mark.parametrize(("votes", "invalid"), [((3, 3, 0), 0), ((3, 2, 0), 3), ((2, 3, 0), 0), ((2, 3, 2), 3)])
def test_a_lead_that_one_vote_ends(votes: tuple[int, ...], invalid: int) -> None:
    document = split_document(votes, invalid=invalid)
    assert codes(document) == set()
    verdict = document["verdicts"][0]
    assert verdict["reason"] == {
        "code": "lead-too-small",
        "votes": 3,
        "runner_up": max(invalid, *(n for c, n in enumerate(votes) if c != verdict["bounds"]["label"])),
        "n": sum(votes) + invalid,
        "label": verdict["bounds"]["label"],
    }
    for name in ("votes", "runner_up", "n", "label"):
        other = verdict["reason"] | {name: verdict["reason"][name] + 1}
        assert codes(forged(document, in_verdict(reason=other))) == {"reason-differs"}
    assert codes(forged(document, in_verdict(reason=None))) == {"reason-differs"}
    other = {"code": "too-few-votes", "votes": 3, "n": sum(votes) + invalid, "label": verdict["bounds"]["label"]}
    assert codes(forged(document, in_verdict(reason=other))) == {"reason-differs"}


def test_a_certified_radius_that_is_withheld() -> None:
    """`lead-too-small` can be said only where there are no safe steps."""
    document = split_document((20, 5, 0))
    reason = {"code": "lead-too-small", "votes": 20, "runner_up": 5, "n": 25, "label": 0}
    hidden = in_verdict(outcome="abstained", radius=0.0, prediction=None, reason=reason)
    assert codes(forged(document, hidden)) == {"radius-too-small"}


def test_answers_that_are_not_finite() -> None:
    """They are a class after all others: they lose a tie, and win with one vote more."""
    tied = split_document((4, 0, 0), invalid=4)
    assert tied["verdicts"][0]["outcome"] == "abstained"
    failed = split_document((4, 0, 0), invalid=5)
    assert failed["verdicts"][0]["outcome"] == "failed"
    led = split_document((6, 0, 0), invalid=4)
    assert led["verdicts"][0]["radius"] == 1 / 16
    assert [codes(document) for document in (tied, failed, led)] == [set()] * 3
    abstained = in_verdict(outcome="abstained", reason={"code": "no-finite-answer", "invalid": 5, "n": 9})
    assert codes(forged(failed, abstained)) == {"no-class-selected"}


class TestPredictions:
    @pytest.mark.parametrize("votes", [(5, 4, 0), (4, 4, 1), (0, 9, 0)])
    def test_they_are_the_class_with_most_votes(self, votes: tuple[int, ...]) -> None:
        document = split_document(votes, task="predict")
        assert codes(document) == set()
        verdict = document["verdicts"][0]
        assert (verdict["outcome"], verdict["prediction"]) == ("predicted", votes.index(max(votes)))
        other = forged(document, in_verdict(prediction=(verdict["prediction"] + 1) % 3))
        assert codes(other) == {"not-the-selected-class"}

    def test_they_never_abstain(self) -> None:
        document = split_document((5, 4, 0), task="predict")
        reason = {"code": "no-significant-class", "votes": 5, "runner_up": 4, "n": 9}
        abstained = forged(document, in_verdict(outcome="abstained", prediction=None, reason=reason))
        assert codes(abstained) == {"impossible-outcome"}

    def test_without_a_finite_answer(self) -> None:
        failed = split_document((4, 0, 0), invalid=5, task="predict")
        assert failed["verdicts"][0]["outcome"] == "failed"
        assert codes(failed) == set()
        assert "impossible-outcome" in codes(forged(failed, in_verdict(outcome="predicted", prediction=0, reason=None)))


def test_sampled_votes_are_not_every_evaluation() -> None:
    """Somebody who has a sample of the votes cannot use the theorem, whatever else of the run he states."""
    document = split_document((20, 5, 0))
    for kind in ("gaussian", "uniform"):
        noise = both(at("smoothing", "noise", "kind", to=kind), in_spec("noise", "kind", to=kind))
        assert codes(forged(document, noise)) == {"question-of-other-noise"}
        fixed = both(noise, in_spec("question", to={"kind": "fixed-n", "n": 25, "n0": 0}))
        assert codes(forged(document, fixed)) == {"invalid-value"}
        paid = both(fixed, in_spec("alpha", to=0.001), in_verdict(norm="l2" if kind == "gaussian" else "l1"))
        found = codes(forged(document, paid, selected_before))
        assert {"certificate-of-other-noise", "not-every-evaluation", "alpha-not-spent"} <= found


def selected_before(document: Document) -> None:
    """A selection tally, as samples need one."""
    tally = json.loads(json.dumps(document["tallies"][0]))
    document["run"]["spec"]["question"]["n0"] = tally["stop"]
    document["tallies"].insert(0, tally | {"stage": "SELECTION"})
