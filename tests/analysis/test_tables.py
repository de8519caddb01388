"""Tables, from numbers to text."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results_strategies import runs, simple_run
from smoothcert.analysis.metrics import GoldComparison, certified_accuracy
from smoothcert.analysis.summary import default_radii, parse_radii, summarise, summarise_envelope
from smoothcert.analysis.table_choices import BoundChoice, TableFormat
from smoothcert.analysis.tables import Column, Kind, Table, class_table, gold_table, render, summary_table
from smoothcert.errors import InputError
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns

TABLE = Table(
    columns=(
        Column("run", "run", Kind.NAME),
        Column("points", "points", Kind.COUNT),
        Column("acr", "ACR", Kind.LOWER, best=True),
        Column("certified_0.5", "r=0.5", Kind.FRACTION, best=True),
        Column("lower_0.5", "≥", Kind.LOWER),
    ),
    rows=(("a_b", 500, 1.2367, 0.6674, 0.6), ("c|d", 12, 0.5, None, None)),
    notes=("A note.",),
)


def test_text() -> None:
    assert render(TABLE, form=TableFormat.TEXT).split("\n") == [
        "run  points    ACR  r=0.5      ≥",
        "───  ──────  ─────  ─────  ─────",
        "a_b     500  1.236  0.667  0.600",
        "c|d      12  0.500      –      –",
        "A note.",
    ]


def test_markdown() -> None:
    assert render(TABLE, form=TableFormat.MARKDOWN, digits=2).split("\n") == [
        "| run | points | ACR | r=0.5 | ≥ |",
        "| :--- | ---: | ---: | ---: | ---: |",
        r"| a\_b | 500 | **1.23** | 0.67 | 0.60 |",
        r"| c\|d | 12 | 0.50 | – | – |",
        "",
        "A note.",
    ]


def test_latex() -> None:
    text = render(TABLE, form=TableFormat.LATEX, digits=2)
    assert r"run & points & ACR & r=0.5 & $\geq$ \\" in text
    assert r"a\_b & 500 & \textbf{1.23} & 0.67 & 0.60 \\" in text
    assert r"c|d & 12 & 0.50 & -- & -- \\" in text
    assert text.count(r"\begin{tabular}{lrrrr}") == text.count(r"\end{tabular}") == 1


def test_csv_and_json_are_in_full_precision() -> None:
    rows = list(csv.DictReader(io.StringIO(render(TABLE, form=TableFormat.CSV))))
    assert rows[0]["acr"] == "1.2367"
    assert rows[1] == {"run": "c|d", "points": "12", "acr": "0.5", "certified_0.5": "", "lower_0.5": ""}
    assert render(TABLE, form=TableFormat.CSV, digits=1).split("\n")[1] == "a_b,500,1.2,0.7,0.6"
    assert json.loads(render(TABLE, form=TableFormat.JSON))[0]["acr"] == 1.2367


@pytest.mark.parametrize("form", list(TableFormat))
@pytest.mark.parametrize("digits", [-1, 16])
def test_digits_are_checked(form: TableFormat, digits: int) -> None:
    with pytest.raises(InputError, match="digits"):
        render(TABLE, form=form, digits=digits)


def test_a_lower_bound_prints_as_the_fraction_it_is() -> None:
    # The exact bound for 293 of 500 is 290 of 500, whose float is just below 0.58.
    summary = summarise(simple_run(right=293, wrong=207), radii={"0": 0.0}, bound=BoundChoice())
    assert summary.lower_bound == {"0": 290 / 500}
    assert render(summary_table([summary]), form=TableFormat.TEXT).split("\n")[2].split()[-1] == "0.580"
    envelope = summarise_envelope([simple_run(right=293, wrong=207)], radii={"0": 0.0}, bound=BoundChoice())
    assert render(summary_table([envelope]), form=TableFormat.TEXT).split("\n")[2].split()[-1] == "0.580"


@given(run=runs(), digits=st.integers(0, 6))
def test_printed_bounds_and_acr_never_exceed_the_value(run: ResultColumns, digits: int) -> None:
    summary = summarise(run, radii={"0.5": 0.5}, bound=BoundChoice())
    row = next(csv.DictReader(io.StringIO(render(summary_table([summary]), form=TableFormat.CSV, digits=digits))))
    assert summary.acr is not None
    assert summary.lower_bound is not None
    assert float(row["acr"]) <= summary.acr
    assert float(row["lower_0.5"]) <= float(summary.lower_bound["0.5"] or 0)


def test_summary_of_a_run() -> None:
    run = simple_run(right=5, wrong=2, abstained=2, failed=1)
    summary = summarise(run, radii={"0": 0.0, "1.0": 1.0, "2": 2.0})
    assert summary.certified_accuracy == {"0": 0.5, "1.0": 0.5, "2": 0.0}
    assert (summary.points, summary.acr, summary.abstention, summary.failure) == (10, 0.5, 0.2, 0.1)
    assert (summary.sigma, summary.sigma_range) == (0.25, (0.25, 0.25))
    document = json.loads(json.dumps(summary.to_json(), allow_nan=False))
    assert list(document)[:5] == ["run", "points", "acr", "abstention", "certified_accuracy"]
    assert "lower_bound" not in document


def test_sigma_that_varies_or_is_unknown() -> None:
    run = simple_run(right=2)
    varying = summarise(replace(run, sigma=np.array([0.2, 0.4])), radii={})
    unknown = summarise(replace(run, sigma=np.array([0.2, math.nan])), radii={})
    assert (varying.sigma, varying.sigma_range) == (None, (0.2, 0.4))
    assert (unknown.sigma, unknown.sigma_range) == (None, None)


def test_what_a_run_cannot_say_is_absent() -> None:
    unlabelled = replace(simple_run(right=2), label=np.full(2, NO_CLASS))
    summary = summarise(unlabelled, radii={"0": 0.0}, bound=BoundChoice())
    assert (summary.acr, summary.accuracy, summary.misclassification) == (None, None, None)
    assert (summary.certified_accuracy, summary.lower_bound) == ({"0": None}, {"0": None})
    assert "ACR" not in render(summary_table([summary]), form=TableFormat.TEXT)


def test_failures_have_a_column_only_where_there_are_any() -> None:
    clean, failing = (summarise(simple_run(right=2, failed=f), radii={}) for f in (0, 1))
    assert "failed" not in render(summary_table([clean]), form=TableFormat.TEXT)
    assert "failed" in render(summary_table([clean, failing]), form=TableFormat.TEXT)


def test_class_table() -> None:
    run = simple_run(right=3, wrong=1)
    run = replace(run, label=np.array([0, 0, 0, 2]), prediction=np.array([0, 0, 1, 1]))
    other = replace(run, name="other", label=np.array([0, 0, 0, 0]))
    lines = render(class_table([run, other]), form=TableFormat.CSV, digits=3).split("\n")
    assert lines == ["class,run,other", "0,0.667,0.500", "2,0.000,", "spread,0.333,0.000"]


def test_gold_table_shows_failures_only_where_there_are_any() -> None:
    clean = GoldComparison(0.5, 0.0, 0.25, 0.0, 0.25, 0.0)
    assert render(gold_table({"a": clean}, gold="g"), form=TableFormat.CSV, digits=2).split("\n")[1] == (
        "a,0.50,0.00,0.25,0.00,0.25"
    )
    assert "failed" in render(gold_table({"a": replace(clean, failed=0.1)}, gold="g"), form=TableFormat.CSV)


def test_radii_keep_the_text_they_were_given_with() -> None:
    assert parse_radii("0, 0.250,1e-1,0.250") == {"0": 0.0, "0.250": 0.25, "1e-1": 0.1}


@pytest.mark.parametrize("text", ["", "0,,1", "a", "-1", "nan", "inf", "0;1"])
def test_bad_radii_are_a_sentence(text: str) -> None:
    with pytest.raises(InputError, match="is not a radius"):
        parse_radii(text)


@pytest.mark.parametrize(
    ("largest", "expected"),
    [
        (0.953, ["0", "0.25", "0.5", "0.75"]),
        (3.81, ["0", "0.5", "1", "1.5", "2", "2.5", "3", "3.5"]),
        (0.4, ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.4"]),
        (1e-5, None),
        (0.0, ["0"]),
    ],
)
def test_default_radii_are_round(largest: float, expected: list[str] | None) -> None:
    run = simple_run(right=1, radius=largest) if largest else simple_run(right=0, abstained=1)
    radii = default_radii([run])
    assert expected is None or list(radii) == expected
    assert len(radii) <= 9
    assert all(float(text) == value for text, value in radii.items())
    assert (certified_accuracy(run, list(radii.values()))[1:] > 0).all()


def test_a_table_wider_than_the_terminal_is_stacked() -> None:
    assert render(TABLE, form=TableFormat.TEXT, width=32) == render(TABLE, form=TableFormat.TEXT)
    assert render(TABLE, form=TableFormat.TEXT, width=31).split("\n") == [
        "run       a_b    c|d",
        "points    500     12",
        "ACR     1.236  0.500",
        "r=0.5   0.667      –",
        "≥       0.600      –",
        "A note.",
    ]


def test_stacked_runs_that_do_not_fit_are_continued_below() -> None:
    assert render(TABLE, form=TableFormat.TEXT, width=19).split("\n")[:7] == [
        "run       a_b",
        "points    500",
        "ACR     1.236",
        "r=0.5   0.667",
        "≥       0.600",
        "",
        "run       c|d",
    ]


def test_notes_are_wrapped_between_words() -> None:
    setting = "ascent:steps=100,noises=8,rate=0.5"
    table = replace(TABLE, notes=(f"The levels were found by {setting}.",))
    *_, first, second = render(table, form=TableFormat.TEXT, width=34).split("\n")
    assert (first, second) == ("The levels were found by", f"{setting}.")


def test_without_labels_the_mean_radius_is_shown() -> None:
    run = simple_run(right=2, abstained=2, radius=0.5)
    unlabelled = replace(run, label=np.full(len(run), NO_CLASS))
    summary = summarise(unlabelled, radii={"0": 0.0})
    assert (summary.acr, summary.mean_radius) == (None, 0.25)
    assert "mean radius" in render(summary_table([summary]), form=TableFormat.TEXT)
    assert "mean radius" not in render(summary_table([summarise(run, radii={"0": 0.0})]), form=TableFormat.TEXT)
