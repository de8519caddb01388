"""Bounds from tallies: what is bounded, at what price, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.records import Proof, Quantity, Side, Stage, StreamId, Tally
from smoothcert.statistics import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    plurality,
    prove,
    significant_plurality,
    split_alpha,
)


def tally(*counts: int, invalid: int = 0, stage: Stage = Stage.ESTIMATION) -> Tally:
    n = sum(counts) + invalid
    return Tally(StreamId(1, 2, stage), sigma=0.25, counts=np.array(counts), invalid=invalid, ranges=((0, n),))


BOTH = (Proof.TOP, Proof.RUNNER_UP)


def test_alpha_is_split_and_adds_up() -> None:
    proven = prove([tally(900, 60, 40)], [0], BOTH, alpha=0.001)
    assert math.fsum(proven.spent.values()) <= 0.001
    top = proven.values[Proof.TOP][Quantity.TOP_LOWER]
    other = proven.values[Proof.RUNNER_UP][Quantity.RUNNER_UP_UPPER]
    assert top == clopper_pearson_lower(900, 1000, alpha=0.0005)
    assert other == clopper_pearson_upper(60, 1000, alpha=0.0005)
    assert (Quantity.TOP_LOWER.side, Quantity.RUNNER_UP_UPPER.side) == (Side.LOWER, Side.UPPER)


@given(st.floats(1e-300, 0.49), st.integers(1, 7))
def test_shares_never_exceed_the_total(alpha: float, parts: int) -> None:
    shares = split_alpha(alpha, list(Proof)[:parts])
    assert math.fsum(shares.values()) <= alpha


def test_every_other_class_counts_also_the_invalid_votes() -> None:
    assert tally(50, 10, 39, invalid=41).largest_other(0) == 41
    assert tally(50, 10, 39, invalid=1).largest_other(0) == 39
    assert tally(50, 10, 39).largest_other(2) == 50


def test_selection_votes_cannot_prove() -> None:
    with pytest.raises(InputError, match="cannot also prove"):
        prove([tally(90, 10, stage=Stage.SELECTION)], [0], BOTH, alpha=0.001)


def test_plurality_ties_go_to_the_lowest_class() -> None:
    assert plurality(tally(5, 7, 7)) == 1


def test_plurality_of_invalid_votes_is_nothing() -> None:
    assert plurality(tally(5, 7, 0, invalid=8)) is None
    assert plurality(tally(0, 0, invalid=3)) is None


def test_predict_needs_significance() -> None:
    assert significant_plurality(tally(11, 0), alpha=0.001) == 0
    assert significant_plurality(tally(10, 0), alpha=0.001) is None
    assert significant_plurality(tally(5000, 4900), alpha=0.001) is None
    assert significant_plurality(tally(100, 0, invalid=99), alpha=0.001) is None
