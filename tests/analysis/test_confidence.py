"""The distribution of p_A, and the warning where ACR misleads: small cases by hand, and properties."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from smoothcert.analysis import metrics
from smoothcert.analysis.comparison import compare
from smoothcert.analysis.confidence import PADistribution, summarise_p_a
from smoothcert.analysis.notes import Note, NoteCode
from smoothcert.analysis.summary import summarise
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.analysis.tables import p_a_table, render, summary_table
from smoothcert.records import Outcome
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns, outcome_code

SIGMA = 0.5


def make(p_a: list[float], *, wrong: tuple[int, ...] = (), labels: bool = True, name: str = "run") -> ResultColumns:
    """A run of Gaussian noise with these p_A: certified above 1/2, otherwise abstained."""
    bounds = np.array(p_a)
    certified = bounds > 0.5
    radius = np.array([SIGMA * NormalDist().inv_cdf(p) if p > 0.5 else 0.0 for p in p_a])
    prediction = np.where(certified, 0, NO_CLASS)
    label = np.zeros(len(p_a), dtype=np.int64)
    label[list(wrong)] = 1
    return ResultColumns(
        name=name,
        index=np.arange(len(p_a)),
        label=label if labels else np.full(len(p_a), NO_CLASS),
        prediction=prediction,
        outcome=np.where(certified, outcome_code(Outcome.CERTIFIED), outcome_code(Outcome.ABSTAINED)),
        radius=radius,
        has_radius=True,
        sigma=np.full(len(p_a), SIGMA),
        seconds=np.full(len(p_a), math.nan),
        p_a=bounds,
        alpha=0.001,
    )


TEN = [0.3, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.992, 0.999, 0.9995]


def distribution_of(results: ResultColumns) -> PADistribution:
    found = summarise_p_a(results)
    assert found is not None
    return found


def test_quantiles_and_shares_of_ten_inputs() -> None:
    found = distribution_of(make(TEN))
    assert found.quantiles == {"0.1": 0.0, "0.25": 0.7, "0.5": 0.9, "0.75": 0.992, "0.9": 0.999}
    assert found.share_at_least == {"0.9": 0.6, "0.99": 0.4, "0.999": 0.2}


def test_wrong_answers_count_as_zero_and_unlabelled_ones_do_not() -> None:
    assert distribution_of(make(TEN, wrong=(8, 9))).share_at_least == {"0.9": 0.4, "0.99": 0.2, "0.999": 0.0}
    assert distribution_of(make(TEN, labels=False)) == distribution_of(make(TEN))


def test_an_unknown_p_a_gives_no_distribution() -> None:
    run = make(TEN)
    assert summarise_p_a(replace(run, p_a=np.full(10, math.nan))) is None
    gap = run.p_a.copy()
    gap[5] = math.nan
    assert summarise_p_a(replace(run, p_a=gap)) is None
    abstained = run.p_a.copy()
    abstained[0] = math.nan  # not needed: an abstention counts as 0
    assert summarise_p_a(replace(run, p_a=abstained)) == summarise_p_a(run)


@given(st.lists(st.floats(0.0, 0.99999), min_size=1, max_size=40))
def test_the_share_above_a_threshold_is_the_certified_accuracy_at_its_radius(p_a: list[float]) -> None:
    run = make(p_a)
    for text, share in distribution_of(run).share_at_least.items():
        radius = SIGMA * NormalDist().inv_cdf(float(text))
        assert share == metrics.certified_accuracy(run, radius)


@given(st.lists(st.floats(0.0, 0.99999), min_size=1, max_size=40))
def test_at_least_the_rest_of_the_inputs_reach_a_quantile(p_a: list[float]) -> None:
    run = make(p_a)
    credited = np.where(run.correct, run.p_a, 0.0)
    for text, value in distribution_of(run).quantiles.items():
        assert (credited >= value).mean() >= 1 - float(text) - 1e-12


def test_tables_round_down_with_five_digits() -> None:
    table = p_a_table({"run": distribution_of(make([0.999999, 0.9]))})
    assert table is not None
    assert "0.99999" in render(table, form=TableFormat.TEXT)
    assert "1.0000" not in render(table, form=TableFormat.TEXT)
    assert p_a_table({"run": None}) is None


def test_csv_and_json_have_the_same_numbers() -> None:
    summary = summarise(make(TEN), radii={"0": 0.0})
    row = summary_table([summary], with_p_a=True).to_json()[0]
    document = json.loads(json.dumps(summary.to_json()))["p_a"]
    assert row["p_a_q0.5"] == document["quantiles"]["0.5"] == 0.9
    assert row["p_a_at_least_0.99"] == document["share_at_least"]["0.99"] == 0.4
    assert not any(key.startswith("p_a") for key in summary_table([summary]).to_json()[0])


STEADY = make([0.9] * 18 + [0.3] * 2, name="steady")
DARING = make([0.9999] * 10 + [0.3] * 10, name="daring")


def acr_notes(a: ResultColumns, b: ResultColumns) -> list[Note]:
    return [note for note in compare(a, b).notes if isinstance(note, Note) and note.code is NoteCode.ACR_MISLEADS]


def test_a_run_that_gives_up_hard_inputs_is_reported() -> None:
    (note,) = acr_notes(DARING, STEADY)
    assert metrics.average_certified_radius(DARING) > metrics.average_certified_radius(STEADY)
    assert (note.values["winner"], note.values["loser"]) == ("A", "B")
    assert note.values["radius"] == 0.0
    assert (note.values["accuracy_winner"], note.values["accuracy_loser"]) == (0.5, 0.9)
    assert (note.values["only_winner"], note.values["only_loser"]) == (0, 8)
    assert note.values["probability"] == binomtest(8, 8, alternative="greater").pvalue
    assert str(note).startswith("Warning: A has the larger ACR (0.929 against 0.576), but it certifies fewer inputs")
    (turned,) = acr_notes(STEADY, DARING)
    assert (turned.values["winner"], turned.values["loser"]) == ("B", "A")


def test_a_difference_that_can_be_chance_is_no_warning() -> None:
    (note,) = acr_notes(make([0.9999] * 3 + [0.3]), make([0.9] * 4))
    assert note.values["probability"] == 0.5
    assert str(note).endswith("which can be chance (p = 0.5).")
    assert not str(note).startswith("Warning")


def test_a_run_that_is_better_everywhere_is_not_reported() -> None:
    assert acr_notes(make([0.99] * 10), make([0.9] * 10)) == []
    assert acr_notes(STEADY, STEADY) == []
    assert acr_notes(make([0.99] * 4, labels=False), make([0.9] * 4, labels=False)) == []


@pytest.mark.parametrize("name", ["A: daring", "B: steady"])
def test_a_comparison_shows_both_distributions(name: str) -> None:
    comparison = compare(DARING, STEADY)
    assert comparison.p_a[name] is not None
    assert name in repr(comparison)
    assert "p_A" in comparison._repr_html_()
