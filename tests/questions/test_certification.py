"""From votes to points: selection and proof stay apart, α is spent once, and fewer samples give what they should."""

import numpy as np
import pytest

from smoothcert.certificates import get_portfolio
from smoothcert.errors import InputError
from smoothcert.questions import Votes, check_predict_is_possible, check_question
from smoothcert.records import (
    Guarantee,
    Norm,
    Outcome,
    Quantity,
    Reason,
    ReasonCode,
    Smoothing,
    Stage,
    StreamId,
    Tally,
)
from smoothcert.spec import FixedN
from smoothcert.statistics import clopper_pearson_lower, clopper_pearson_upper
from stored_answers import answer_again, certify_votes, fixed_inquiry


def votes(selection: list[int], estimation: list[int], *, invalid_selection: int = 0, invalid: int = 0) -> Votes:
    def tally(stage: Stage, counts: list[int], bad: int) -> Tally:
        return Tally(StreamId(1, 0, stage), 0.25, np.array(counts), bad, ((0, sum(counts) + bad),))

    return Votes(
        index=0,
        label=0,
        selection=tally(Stage.SELECTION, selection, invalid_selection),
        estimation=(tally(Stage.ESTIMATION, estimation, invalid),),
        seconds=0.0,
    )


def certify(item: Votes, name: str = "gaussian", alpha: float = 0.001):  # type: ignore[no-untyped-def]
    return certify_votes([item], name, alpha=alpha, smoothing=Smoothing())[0]


def test_the_class_comes_from_the_selection_votes_alone() -> None:
    """The estimation votes favour class 1; a pipeline that peeked at them would certify it."""
    point = certify(votes([60, 40], [100, 9900]))
    assert point.outcome is Outcome.ABSTAINED
    assert point.bounds is not None
    assert point.bounds.label == 0


def test_quoted_radius_end_to_end() -> None:
    point = certify(votes([100, 0], [95_126, 4_874]))
    assert point.outcome is Outcome.CERTIFIED
    assert point.radius == pytest.approx(0.40909610, abs=1e-8)
    assert point.guarantee is not None
    assert point.guarantee.alpha == 0.001
    assert "class 0" in str(point.guarantee)
    assert point.correct


def test_invalid_votes_never_help() -> None:
    clean = certify(votes([100, 0], [9000, 1000]), "gaussian-two-class")
    dirty = certify(votes([100, 0], [9000, 500], invalid=500), "gaussian-two-class")
    worse = certify(votes([100, 0], [9000, 0], invalid=1000), "gaussian-two-class")
    assert worse.radius == clean.radius
    assert dirty.radius > clean.radius  # the strongest opponent is weaker, and is one of the two


def test_all_invalid_is_a_failure_with_a_reason() -> None:
    point = certify(votes([10, 10], [50, 50], invalid_selection=80))
    assert point.outcome is Outcome.FAILED
    assert point.reason == Reason(ReasonCode.NO_FINITE_ANSWER, {"invalid": 80, "n": 100})
    assert "80 of 100" in str(point.reason)
    assert point.prediction is None
    assert point.radius == 0.0


def test_alpha_recorded_is_alpha_spent() -> None:
    point = certify(votes([100, 0], [9000, 1000]), "gaussian-two-class", alpha=0.01)
    assert point.bounds is not None
    assert point.bounds.alpha == 0.01
    lower, upper = (point.bounds.quantities[q] for q in (Quantity.TOP_LOWER, Quantity.RUNNER_UP_UPPER))
    assert (lower.alpha, upper.alpha) == (0.005, 0.005)
    assert lower.value == clopper_pearson_lower(9000, 10_000, alpha=0.005)
    assert upper.value == clopper_pearson_upper(1000, 10_000, alpha=0.005)


def test_the_sentence_never_claims_certainty() -> None:
    guarantee = Guarantee(label=1, radius=0.5, norm=Norm.L2, alpha=1e-7)
    assert "at most 1e-07" in str(guarantee)
    assert "closer than 0.5" in str(guarantee)


def test_smaller_alpha_smaller_radius() -> None:
    (first,) = [certify(votes([100, 0], [9000, 1000]))]
    (second,) = answer_again([first], fixed_inquiry("gaussian", alpha=1e-6, smoothing=Smoothing()))
    (third,) = answer_again([first], fixed_inquiry("gaussian", alpha=0.001, smoothing=Smoothing()))
    assert second.radius < first.radius
    assert third == first


def check(name: str, *, n: int, n0: int = 100, alpha: float = 0.001) -> None:
    check_question(FixedN(n=n, n0=n0), get_portfolio(name), alpha=alpha)


def test_n_too_small_says_the_smallest_useful_one() -> None:
    with pytest.raises(InputError, match=r"n=9 at alpha=0\.001 can never certify.*p > 0\.464.*n ≥ 10, and 100000"):
        check("gaussian", n=9)
    check("gaussian", n=10)
    with pytest.raises(InputError, match="n ≥ 11"):
        check("gaussian-two-class", n=10)
    check("gaussian-two-class", n=11)
    with pytest.raises(InputError, match="n ≥ 11"):
        check_predict_is_possible(n=10, alpha=0.001)
    check_predict_is_possible(n=11, alpha=0.001)
    for n in (0, -5, 10**20, 1e3):
        with pytest.raises(InputError, match=rf"^n={n} is invalid: expected an integer from 1 to \d+"):
            check("gaussian", n=n)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=rf"^n0={n} is invalid: expected an integer from 1 to \d+"):
            check("gaussian", n=100, n0=n)  # type: ignore[arg-type]


@pytest.mark.parametrize("alpha", [0.0, 0.5, -0.1, float("nan"), 5e-324])
def test_alpha_out_of_range(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        check("gaussian", n=1000, alpha=alpha)
