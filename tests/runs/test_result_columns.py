"""ResultColumns: a run as columns."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sample_points import POINT, undecided
from smoothcert.errors import InputError, RunError
from smoothcert.records import Norm, Outcome
from smoothcert.runs.result_columns import NO_CLASS, OUTCOMES, ResultColumns, outcome_code


def test_columns_of_points() -> None:
    points = [
        POINT,
        undecided(5, Outcome.ABSTAINED),
        undecided(7, Outcome.FAILED),
        replace(POINT, index=2, label=1),
    ]
    results = ResultColumns.from_points(points, name="a run")
    assert len(results) == 4
    assert results.index.tolist() == [0, 5, 7, 2]
    assert results.decided.tolist() == [True, False, False, True]
    assert results.correct.tolist() == [True, False, False, False]
    assert results.is_outcome(Outcome.FAILED).tolist() == [False, False, True, False]
    assert [OUTCOMES[code] for code in results.outcome] == [point.outcome for point in points]
    assert results.radius.tolist() == [0.5, 0.0, 0.0, 0.5]
    assert results.p_a[0] == 0.97
    assert math.isnan(results.p_a[1])
    assert (results.alpha, results.num_classes, results.has_radius, results.norm) == (0.001, 4, True, Norm.L2)


def test_an_undecided_input_is_never_correct_whatever_its_label() -> None:
    results = ResultColumns.from_points([undecided(0, Outcome.ABSTAINED), undecided(1, Outcome.FAILED)], name="r")
    assert not results.correct.any()
    assert (results.prediction == NO_CLASS).all()
    with pytest.raises(IndexError):
        np.zeros(10)[results.prediction]


def test_an_input_without_label_is_not_correct_even_if_undecided() -> None:
    results = ResultColumns.from_points([undecided(0, Outcome.ABSTAINED, label=None)], name="r")
    assert results.labelled.tolist() == [False]
    assert results.correct.tolist() == [False]


def test_predictions_have_no_radius() -> None:
    predicted = replace(POINT, verdict=replace(POINT.verdict, radius=0.0, outcome=Outcome.PREDICTED))
    assert not ResultColumns.from_points([predicted, undecided(1, Outcome.ABSTAINED)], name="r").has_radius
    assert ResultColumns.from_points([undecided(1, Outcome.ABSTAINED)], name="r").has_radius


def test_no_points_is_an_error() -> None:
    with pytest.raises(RunError, match="no results yet"):
        ResultColumns.from_points([], name="r")


def test_norms_are_not_mixed() -> None:
    with pytest.raises(RunError, match="l1 and l2"):
        ResultColumns.from_points(
            [POINT, replace(POINT, index=1, verdict=replace(POINT.verdict, norm=Norm.L1))], name="r"
        )


def test_subset_by_mask_and_by_position() -> None:
    results = ResultColumns.from_points([replace(POINT, index=k, label=k) for k in range(4)], name="r")
    results = replace(results, extra={"raw_count": np.arange(4.0)})
    assert results.subset(results.correct).index.tolist() == [3]
    reordered = results.subset(np.array([2, 0]))
    assert reordered.index.tolist() == [2, 0]
    assert reordered.extra["raw_count"].tolist() == [2.0, 0.0]


def test_columns_cannot_be_written() -> None:
    results = ResultColumns.from_points([POINT], name="r")
    with pytest.raises(ValueError, match="read-only"):
        results.radius[0] = 9.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"index": np.array([1, 1])}, "more than once"),
        ({"radius": np.array([0.5, math.nan])}, "finite"),
        ({"radius": np.array([0.5, -1.0])}, "finite"),
        ({"radius": np.array([0.5, 0.0])}, "positive radius exactly"),
        ({"prediction": np.array([3, NO_CLASS])}, "class exactly"),
        ({"label": np.array([3, -1])}, "negative label"),
        ({"outcome": np.array([0, 9])}, "outcome code"),
        ({"p_a": np.array([0.5, 1.5])}, "outside"),
        ({"has_radius": False}, "has radii, but has_radius is False"),
        ({"sigma": np.array([0.5])}, "shape"),
        ({"extra": {"raw_count": np.zeros(3)}}, "raw_count"),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], complaint: str) -> None:
    results = ResultColumns.from_points([POINT, replace(POINT, index=1)], name="r")
    with pytest.raises(InputError, match=complaint):
        replace(results, **change)  # type: ignore[arg-type]


def test_codes_are_positions() -> None:
    assert all(OUTCOMES[outcome_code(outcome)] is outcome for outcome in Outcome)
