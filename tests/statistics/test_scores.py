"""Bounds from histograms of scores: the safe side of every cell, the order of the bets, samples without an answer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from smoothcert.errors import InputError
from smoothcert.records import FloatArray, Proof, Quantity, ScoreTally, Stage, StreamId
from smoothcert.records.score_cells import SCORE_CELLS, score_cell
from smoothcert.statistics import betting_lower, betting_upper, mean_score, prove
from smoothcert.statistics.score_bounds import (
    _in_random_order,
    other_score_upper,
    other_score_upper_by_bernstein,
    top_score_lower,
    top_score_lower_by_bernstein,
)

SCORE = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1e-9, 1 - 1e-9]))


def tally_of(
    top: object, other: object | None = None, *, invalid: int = 0, index: int = 0, start: int = 0, label: int = 0
) -> ScoreTally:
    """Of two classes; where nothing is said the other one has the rest of the score."""
    first: FloatArray = np.asarray(top, dtype=np.float64)
    second = 1.0 - first if other is None else np.asarray(other, dtype=np.float64)
    both = score_cell(np.stack([first, second])) + np.array([[0], [SCORE_CELLS]])
    cells, hits = np.unique(both, return_counts=True)
    won = int((first >= second).sum())
    counts = np.array([won, first.size - won])
    return ScoreTally(
        StreamId(3, index, Stage.ESTIMATION),
        0.5,
        counts=counts,
        invalid=invalid,
        label=label,
        cells=cells,
        hits=hits,
        ranges=((start, start + first.size + invalid),),
    )


def bounds_of(tally: ScoreTally, alpha: float = 0.001) -> list[float]:
    """Lower and upper bound by betting, lower and upper bound by Bernstein."""
    return [
        float(bound([tally], [tally.label], alpha)[0])
        for bound in (
            top_score_lower,
            other_score_upper,
            top_score_lower_by_bernstein,
            other_score_upper_by_bernstein,
        )
    ]


@settings(max_examples=60)
@given(st.lists(SCORE, min_size=2, max_size=200), st.integers(0, 5), st.floats(1e-6, 0.4))
def test_bounds_lie_on_the_safe_side_of_the_means(scores: list[float], invalid: int, alpha: float) -> None:
    top = np.array(scores)
    tally = tally_of(top, invalid=invalid)
    mean_top = top.sum() / tally.n
    mean_other = ((1.0 - top).sum() + invalid) / tally.n
    lower, upper, lower_bernstein, upper_bernstein = bounds_of(tally, alpha)
    for found in (lower, lower_bernstein):
        assert 0.0 <= found <= mean_top + 1e-15
    for found in (upper, upper_bernstein):
        assert mean_other - 1e-15 <= found <= 1.0


def test_cells_cost_next_to_nothing() -> None:
    """At n = 10000 the bounds of the exact scores, in the same order, differ by less than half a cell."""
    top = np.random.default_rng(2).beta(9, 1, size=10_000)
    tally = tally_of(top)
    lower, upper, *_ = bounds_of(tally)
    order = _in_random_order(tally, np.sort(top), np.ones(top.size, dtype=np.int64))
    exact = betting_lower(order, alpha=0.001)
    assert exact - 1e-4 < lower < exact
    other = _in_random_order(tally, np.sort(1 - top), np.ones(top.size, dtype=np.int64))
    assert betting_upper(other, alpha=0.001) < upper + 5e-5
    assert upper < betting_upper(other, alpha=0.001) + 2e-4


def test_a_classifier_that_is_always_certain_loses_nothing() -> None:
    n = 1000
    lower, upper, *_ = bounds_of(tally_of(np.ones(n)))
    assert lower == pytest.approx(betting_lower(np.ones(n), alpha=0.001), abs=1.1e-12)
    assert upper == betting_upper(np.zeros(n), alpha=0.001)


def test_votes_as_scores() -> None:
    """0 and 1 are exact, so the mean is the share of the votes."""
    top = np.repeat([1.0, 0.0], [900, 100])
    tally = tally_of(top)
    assert mean_score(tally) == 0.9
    assert tally.independent_votes().counts.tolist() == [900, 100]


def test_a_sample_without_an_answer_is_an_opponent() -> None:
    top = np.full(900, 0.95)
    spoilt = tally_of(top, invalid=100)
    certain = tally_of(np.append(top, np.zeros(100)))
    assert bounds_of(spoilt)[0] == bounds_of(certain)[0]
    assert bounds_of(spoilt)[1] == bounds_of(certain)[1]
    assert bounds_of(spoilt)[0] < bounds_of(tally_of(top))[0] - 0.05


@given(st.lists(SCORE, min_size=4, max_size=100), st.integers(1, 3))
def test_bounds_depend_on_the_samples_not_on_how_they_were_cut(scores: list[float], cut: int) -> None:
    top = np.array(scores)
    parts = tally_of(top[:cut]), tally_of(top[cut:], start=cut)
    assert bounds_of(parts[0] + parts[1]) == bounds_of(tally_of(top)) == bounds_of(tally_of(top[::-1]))


def test_the_strongest_opponent_bounds_each_of_them() -> None:
    """Three classes: the mean of the largest other score is at least the largest mean of the others."""
    scores = np.random.default_rng(5).dirichlet([6, 1, 1], size=5000)
    tally = tally_of(scores[:, 0], scores[:, 1:].max(axis=1))
    _, upper, _, upper_bernstein = bounds_of(tally)
    assert scores[:, 1:].mean(axis=0).max() < scores[:, 1:].max(axis=1).mean() < upper < upper_bernstein


def test_the_order_is_random_but_fixed_by_the_stream() -> None:
    values, hits = np.array([0.0, 1.0]), np.array([50, 50])
    first = tally_of(np.repeat([0.0, 1.0], 50))
    sequence = _in_random_order(first, values, hits)
    np.testing.assert_array_equal(sequence, _in_random_order(first, values, hits))
    assert sorted(sequence) == [0.0] * 50 + [1.0] * 50
    others = [
        _in_random_order(dataclasses.replace(first, stream=StreamId(3, index, Stage.ESTIMATION)), values, hits)
        for index in range(1, 2001)
    ]
    assert not any(np.array_equal(sequence, other) for other in others)
    # Every place holds a one in half of the streams: 100 binomial counts, each outside 5.5 deviations with 4e-8.
    ones = np.sum(others, axis=0)
    assert (np.abs(ones - 1000) < 5.5 * np.sqrt(500)).all()
    # Neighbours are all but independent: given 50 of 100, P(both one) = 49/198.
    both = sum(int((other[:-1] * other[1:]).sum()) for other in others)
    assert abs(both / (2000 * 99) - 49 / 198) < 0.01
    assert stats.kstest(_in_random_order(first, np.linspace(0, 1, 100), np.ones(100, int)), "uniform").pvalue > 1e-6


def test_two_bounds_share_alpha() -> None:
    tally = tally_of(np.random.default_rng(1).beta(5, 1, size=500))
    together = prove([tally], [0], [Proof.SCORE_TOP, Proof.SCORE_OTHER], alpha=0.02)
    assert set(together.spent.values()) == {0.01}
    np.testing.assert_array_equal(
        together.values[Proof.SCORE_TOP][Quantity.TOP_LOWER], top_score_lower([tally], [0], 0.01)
    )
    np.testing.assert_array_equal(
        together.values[Proof.SCORE_OTHER][Quantity.RUNNER_UP_UPPER], other_score_upper([tally], [0], 0.01)
    )


def test_betting_beats_bernstein() -> None:
    lower, upper, lower_bernstein, upper_bernstein = bounds_of(
        tally_of(np.random.default_rng(1).beta(9, 1, size=10_000))
    )
    assert lower_bernstein < lower < 0.9
    assert 0.1 < upper < upper_bernstein


def test_too_many_samples_to_bet_on() -> None:
    n = 10**9
    tally = ScoreTally(
        StreamId(0, 0, Stage.ESTIMATION),
        0.5,
        counts=np.array([n, 0]),
        invalid=0,
        label=0,
        cells=np.array([SCORE_CELLS - 1, SCORE_CELLS]),
        hits=np.array([n, n]),
        ranges=((0, n),),
    )
    for bound in (top_score_lower, other_score_upper):
        with pytest.raises(InputError, match="use the -bernstein form"):
            bound([tally], [0], 0.001)
    assert top_score_lower_by_bernstein([tally], [0], 0.001)[0] > 1 - 2e-8


@pytest.mark.parametrize(
    "bound", [top_score_lower, other_score_upper, top_score_lower_by_bernstein, other_score_upper_by_bernstein]
)
def test_another_class_is_refused(bound: object) -> None:
    with pytest.raises(InputError, match="scores of class 1: the score of class 0 was not sampled"):
        bound([tally_of(np.ones(9), label=1)], [0], 0.01)  # type: ignore[operator]
