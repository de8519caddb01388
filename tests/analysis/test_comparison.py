"""Comparison of two runs: small cases by hand, properties, and published logs recounted independently."""

from __future__ import annotations

import csv
import math
import statistics
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results_strategies import runs, simple_run
from smoothcert.analysis.comparison import (
    Comparison,
    compare,
    comparison_tables,
    flat_table,
    inputs_table,
    summarise_comparison,
)
from smoothcert.analysis.comparison_plot import choose_edges, draw_comparison, format_histogram, make_histogram
from smoothcert.analysis.notes import Note, NoteCode
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.analysis.tables import render
from smoothcert.errors import InputError, MissingExtraError, RunError
from smoothcert.records import Norm, Outcome
from smoothcert.runs.load import load_all
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns, outcome_code

NONE = -1
Row = tuple[int, int, int, float]
"""(index, label, class, radius), with NONE for no label and for no class."""


def make(name: str, rows: list[Row], **changes: object) -> ResultColumns:
    m = len(rows)
    index, label, prediction, radius = (np.array(column) for column in zip(*rows, strict=True))
    certified, decided = radius > 0, prediction != NONE
    outcome = np.where(decided, outcome_code(Outcome.PREDICTED), outcome_code(Outcome.ABSTAINED))
    results = ResultColumns(
        name=name,
        index=index,
        label=np.where(label == NONE, NO_CLASS, label),
        prediction=np.where(decided, prediction, NO_CLASS),
        outcome=np.where(certified, outcome_code(Outcome.CERTIFIED), outcome),
        radius=radius,
        has_radius=True,
        sigma=np.full(m, 0.25),
        seconds=np.full(m, math.nan),
        p_a=np.full(m, math.nan),
        alpha=0.001,
    )
    return replace(results, **changes)  # type: ignore[arg-type]


A = make(
    "a",
    [
        (0, 0, 0, 0.6),  # larger
        (1, 0, 0, 0.2),  # smaller
        (2, 1, 1, 0.5),  # equal
        (3, 1, 1, 0.3),  # B abstains
        (4, 1, NONE, 0.0),  # A abstains
        (5, 2, 2, 0.1),  # B certifies another class
        (6, 2, 0, 0.9),  # both wrong alike
        (7, 2, 2, 0.0),  # a radius of 0 certifies nothing
        (8, 2, 0, 0.7),  # both wrong, differently
        (20, 0, 0, 9.0),  # not in B
    ],
)
B = make(
    "b",
    [
        (8, 2, 1, 0.7),
        (7, 2, NONE, 0.0),
        (6, 2, 0, 0.3),
        (5, 2, 0, 0.4),
        (4, 1, 1, 0.8),
        (3, 1, NONE, 0.0),
        (2, 1, 1, 0.5),
        (1, 0, 0, 0.4),
        (0, 0, 0, 0.4),
        (30, 0, 0, 9.0),
        (31, 0, 0, 9.0),
    ],
)


def test_counts_and_means_by_hand() -> None:
    found = summarise_comparison(compare(A, B))
    assert (found.common, found.counted) == (9, 6)
    assert (found.both, found.only_a, found.only_b, found.conflicting) == (3, 1, 1, 1)
    assert (found.a_larger, found.b_larger, found.equal) == (1, 1, 1)
    assert found.share_larger == pytest.approx(1 / 3)
    # B certifies a wrong class for input 5, which counts as radius 0.
    assert found.mean_radius_a == pytest.approx((0.6 + 0.2 + 0.5 + 0.3 + 0 + 0.1) / 6)
    assert found.mean_radius_b == pytest.approx((0.4 + 0.4 + 0.5 + 0 + 0.8 + 0) / 6)
    assert found.mean_radius_both_a == pytest.approx(1.3 / 3)
    assert found.mean_radius_both_b == pytest.approx(1.3 / 3)
    # The ratios are 1.5, 0.5 and 1.
    assert found.ratio_mean == pytest.approx(1.0)
    assert found.ratio_geometric_mean == pytest.approx(0.75 ** (1 / 3))
    assert (found.ratio_min, found.ratio_median, found.ratio_max) == pytest.approx((0.5, 1.0, 1.5))
    assert (found.ratio_q05, found.ratio_q25) == pytest.approx((0.55, 0.75))
    assert (found.ratio_q75, found.ratio_q95) == pytest.approx((1.25, 1.45))


def test_wrong_classes_count_when_asked_for() -> None:
    found = summarise_comparison(compare(A, B, wrong_too=True))
    assert (found.counted, found.both, found.only_a, found.only_b, found.conflicting) == (8, 4, 1, 1, 2)
    assert found.ratio_max == pytest.approx(3.0)
    assert found.mean_radius_b == pytest.approx((0.4 + 0.4 + 0.5 + 0 + 0.8 + 0.4 + 0.3 + 0.7) / 8)


def test_listing_has_every_counted_input_in_order() -> None:
    rows = inputs_table(compare(A, B)).to_json()
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert rows[0] == {
        "index": 0, "label": 0, "class_a": 0, "class_b": 0, "radius_a": 0.6, "radius_b": 0.4, "ratio": 0.6 / 0.4
    }  # fmt: skip
    assert rows[3] | {"index": 3, "class_b": None, "radius_b": 0.0, "ratio": None} == rows[3]
    assert rows[4] | {"class_a": None, "class_b": 1, "radius_a": 0.0, "ratio": None} == rows[4]
    assert rows[5] | {"class_a": 2, "class_b": 0, "ratio": None} == rows[5]


def test_unlabelled_inputs_count_where_certified_and_borrow_labels() -> None:
    unlabelled = [(0, NONE, 1, 0.5), (1, NONE, 1, 0.5), (2, NONE, NONE, 0.0)]
    found = compare(make("a", unlabelled), make("b", unlabelled))
    assert found.index.tolist() == [0, 1]
    assert inputs_table(found).to_json()[0]["label"] is None
    # B knows that input 1 is of class 0, so A's certificate of class 1 is wrong there.
    labelled = make("b", [(0, 1, 1, 0.5), (1, 0, 1, 0.5), (2, 0, NONE, 0.0)])
    assert compare(make("a", unlabelled), labelled).index.tolist() == [0]


def test_notes_say_what_differs() -> None:
    contradiction, acr, *others = compare(A, B).notes
    assert contradiction == Note(NoteCode.CONTRADICTION, {"indices": (5, 8), "probability": 0.002})
    text = str(contradiction)
    assert text.startswith("CONTRADICTION: 2 inputs are certified as different classes by the two runs (index 5, 8)")
    assert "at most 0.002 for an input" in text
    assert isinstance(acr, Note)
    assert acr.code is NoteCode.ACR_MISLEADS
    assert list(map(str, others)) == ["Left out: 1 input only in A.", "Left out: 2 inputs only in B."]


def test_notes_on_settings() -> None:
    one = make("a", [(0, 0, 0, 0.5), (1, 0, 0, 0.5)], expected=7)
    other = replace(one, name="b", sigma=np.array([0.25, 0.5]), alpha=0.01, expected=None)
    assert list(map(str, compare(one, one).notes)) == ["a: unfinished: 2 of 7 inputs."] * 2
    assert list(map(str, compare(one, other).notes[1:])) == [
        "The runs differ in sigma: A has 0.25, B has 0.25 to 0.5.",
        "The runs differ in alpha: A has 0.001, B has 0.01.",
    ]
    silent = replace(other, sigma=np.full(2, math.nan), alpha=None)
    (unknown,) = compare(silent, silent).notes
    assert "sigma and alpha" in str(unknown)


def test_different_classes_at_different_sigma_are_no_contradiction() -> None:
    one = make("a", [(k, 0, 0, 0.5) for k in range(7)])
    other = replace(one, prediction=np.ones(7), sigma=np.full(7, 0.5))
    note = compare(one, other).notes[0]
    assert str(note).startswith("7 inputs are certified as different classes by the two runs (index 0, 1, 2, 3, 4, …)")
    assert "CONTRADICTION" not in str(note)
    silent = replace(other, sigma=np.full(7, math.nan), alpha=None)
    assert "the sum of their two alphas" in str(compare(one, silent).notes[0])


def test_runs_that_cannot_be_compared() -> None:
    with pytest.raises(
        RunError, match="disagree on the labels of 1 of 9 common inputs, the first of index 4 \\(1 and 2"
    ):
        compare(A, replace(B, label=np.where(B.index == 4, 2, B.label)))
    with pytest.raises(RunError, match="a has radii in l2 and b in l1"):
        compare(A, replace(B, norm=Norm.L1))
    with pytest.raises(RunError, match="no input is in all of a, b"):
        compare(A, replace(B, index=B.index + 100))
    predictions = make("p", [(0, 0, 0, 0.0)], has_radius=False)
    for pair in ((A, predictions), (predictions, A)):
        with pytest.raises(RunError, match="p has predictions without radii"):
            compare(*pair)


def test_nothing_certified_is_a_result_without_ratios() -> None:
    nothing = simple_run(right=0, wrong=2, abstained=2)
    comparison = compare(nothing, nothing)
    found = summarise_comparison(comparison)
    assert (found.common, found.counted, found.both) == (4, 0, 0)
    assert found.mean_radius_a is None
    assert found.ratio_mean is None
    assert found.share_larger is None
    assert inputs_table(comparison).rows == ()
    assert "unchanged  0" in format_histogram(comparison)


# Positive normal numbers, so that a ratio is exact up to rounding.
_POSITIVE = st.one_of(st.floats(1e-6, 1e3), st.sampled_from([0.25, 0.5, 1.0]))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[ResultColumns, ResultColumns]:
    """Two runs about the same labels, over different inputs in different orders."""
    labels = draw(st.lists(st.integers(-1, 2), min_size=1, max_size=25))

    def one(name: str) -> ResultColumns:
        chosen = draw(st.permutations(range(len(labels))))
        kept = [0, *(k for k in chosen if k and draw(st.booleans()))]
        rows: list[Row] = []
        for k in draw(st.permutations(kept)):
            certified = draw(st.integers(0, 3)) > 0
            rows.append((k, labels[k], draw(st.integers(0, 2)) if certified else NONE, draw(_POSITIVE) * certified))
        return make(name, rows)

    return one("a"), one("b")


@given(pair=pairs(), wrong_too=st.booleans())
def test_swapping_inverts_ratios_and_swaps_winners(pair: tuple[ResultColumns, ResultColumns], wrong_too: bool) -> None:
    forth, back = compare(*pair, wrong_too=wrong_too), compare(*pair[::-1], wrong_too=wrong_too)
    f, b = summarise_comparison(forth), summarise_comparison(back)
    assert forth.index.tolist() == back.index.tolist()
    assert forth.ratio == pytest.approx(1 / back.ratio, rel=1e-14, nan_ok=True)
    assert (f.a_larger, f.b_larger, f.equal, f.only_a, f.only_b) == (
        b.b_larger, b.a_larger, b.equal, b.only_b, b.only_a
    )  # fmt: skip
    assert (f.conflicting, f.mean_radius_a, f.mean_radius_both_b) == (
        b.conflicting, b.mean_radius_b, b.mean_radius_both_a
    )  # fmt: skip
    if f.ratio_geometric_mean is not None and b.ratio_geometric_mean is not None:
        assert f.ratio_geometric_mean * b.ratio_geometric_mean == pytest.approx(1.0, rel=1e-12)


@given(pair=pairs(), wrong_too=st.booleans())
def test_parts_make_the_whole(pair: tuple[ResultColumns, ResultColumns], wrong_too: bool) -> None:
    comparison = compare(*pair, wrong_too=wrong_too)
    found = summarise_comparison(comparison)
    assert found.counted == found.both + found.only_a + found.only_b + found.conflicting
    assert found.both == found.a_larger + found.b_larger + found.equal
    for bins in (None, "-5,5,6", "1,2", "-2,-1"):
        bars = make_histogram(comparison, choose_edges(comparison, bins=bins))
        smaller = int(bars.counts[bars.edges[:-1] < 0].sum()) + bars.below
        larger = int(bars.counts[bars.edges[:-1] >= 0].sum()) + bars.above
        assert (larger, smaller, bars.unchanged) == (found.a_larger, found.b_larger, found.equal)


@given(run=runs(), wrong_too=st.booleans())
def test_a_run_ties_with_itself(run: ResultColumns, wrong_too: bool) -> None:
    found = summarise_comparison(compare(run, run, wrong_too=wrong_too))
    assert found.equal == found.both == found.counted
    if found.both:
        assert found.ratio_min == found.ratio_max == found.ratio_mean == found.ratio_geometric_mean == 1.0


@given(pair=pairs(), seed=st.integers(0, 100))
def test_order_of_rows_is_irrelevant(pair: tuple[ResultColumns, ResultColumns], seed: int) -> None:
    a, b = pair
    shuffled = a.subset(np.random.default_rng(seed).permutation(len(a)))
    one, other = compare(a, b), compare(shuffled, b)
    assert summarise_comparison(one) == summarise_comparison(other)
    assert inputs_table(one) == inputs_table(other)
    assert one.notes == other.notes


@given(a=runs(), b=runs())
def test_every_output_exists_for_every_pair(a: ResultColumns, b: ResultColumns) -> None:
    """Radii down to the smallest float: quotients that overflow or underflow must not be printed."""
    comparison = compare(a, replace(b, label=np.full(len(b), NO_CLASS)), wrong_too=True)
    found = summarise_comparison(comparison)
    assert all(math.isfinite(value) for value in found.to_json().values() if isinstance(value, float))
    for form in TableFormat:
        for table in (*comparison_tables(found), flat_table(found), inputs_table(comparison)):
            assert render(table, form=form) != "None"
    assert all(len(line) <= 80 for line in format_histogram(comparison).split("\n"))


def ratios(*values: float) -> Comparison:
    """A comparison with these ratios, over radii of 1."""
    a = make("a", [(k, 0, 0, value) for k, value in enumerate(values)])
    return compare(a, make("b", [(k, 0, 0, 1.0) for k in range(len(values))]))


def test_bins_hold_their_left_edge_and_ties_are_apart() -> None:
    # 100·(1.05 − 1) is 5.000000000000004 and 100·(1.1 − 1) is 10.000000000000009: both must be on their edges.
    values = (0.5, 0.95, 0.97, 1.0, 1.0, math.nextafter(1, 2), 1.02, 1.05, 1.0999, 1.1, 3.0)
    bars = make_histogram(ratios(*values), choose_edges(ratios(*values), bins="-5,5,10"))
    assert bars.edges.tolist() == [-5, 0, 5, 10]
    assert (bars.below, bars.counts.tolist(), bars.above, bars.unchanged) == (1, [2, 2, 2], 2, 2)
    almost = make_histogram(ratios(math.nextafter(1, 0)), np.array([-5.0, 0.0, 5.0]))
    assert (almost.counts.tolist(), almost.unchanged) == ([1, 0], 0)


def test_chosen_edges_span_the_data_but_for_outliers() -> None:
    assert choose_edges(ratios(0.97, 1.0, 1.12), most=16).tolist() == list(range(-3, 14))
    assert choose_edges(ratios(0.97, 1.0, 1.12), bins="5").tolist() == [-5, 0, 5, 10, 15]
    assert choose_edges(ratios(1.0, 1.0)).tolist() == [-1, 0, 1]
    crowd = ratios(*np.linspace(0.95, 1.05, 1000), 50.0)
    assert choose_edges(crowd)[-1] < 10
    assert make_histogram(crowd, choose_edges(crowd)).above < 12


@pytest.mark.parametrize("bins", ["", "x", "0", "-1", "nan", "5,5", "3,1", "0,inf"])
def test_bins_that_make_no_sense(bins: str) -> None:
    with pytest.raises(InputError, match="expected a width in percent"):
        choose_edges(ratios(1.5), bins=bins)


def test_too_many_bins() -> None:
    with pytest.raises(InputError, match="at most 200"):
        choose_edges(ratios(0.5, 1.5), bins="0.01")
    with pytest.raises(InputError, match="at most 200"):
        choose_edges(ratios(0.5, 1.5), bins=",".join(map(str, range(300))))


def test_text_histogram_by_hand() -> None:
    text = format_histogram(compare(A, B), bins="-60,-20,60")
    assert text.split("\n")[1:] == [
        "-60 to -20  1  " + "█" * 48,
        "-20 to   0  0",
        " unchanged  1  " + "█" * 48,
        "  0 to +60  1  " + "█" * 48,
        "    only A  1  " + "█" * 48,
        "    only B  1  " + "█" * 48,
    ]
    beyond = format_histogram(ratios(0.1, 0.1, 1.0, 2.0), bins="-1,1").split("\n")[1:]
    assert [line[:9].strip() for line in beyond] == ["< -1", "-1 to  0", "unchanged", "0 to +1", "≥ +1"]
    assert beyond[0].endswith("2  " + "█" * 48)
    assert beyond[-1].endswith("1  " + "█" * 24)
    assert format_histogram(ratios(0.5), bins="-60,0").split("\n")[-1].split() == ["unchanged", "0"]


SIGNATURES = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


@pytest.mark.parametrize("suffix", list(SIGNATURES))
def test_figure_in_every_format_twice_the_same(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for file in files:
        draw_comparison(compare(A, B), file, bins="-40,0,10,20")
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(SIGNATURES[suffix])
    assert first == second


def test_figure_says_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "figure.svg"
    # Ratios 1.5, 0.5 and 1: one beyond each edge. svg contains every text as a comment.
    draw_comparison(compare(A, B), file, bins="-40,0,10,20")
    text = file.read_text()
    ElementTree.fromstring(text)
    for label in ("a relative to b", "larger: 1", "smaller: 1", "unchanged: 1", "mean: +0.00 %", "below", "from"):
        assert f"<!-- {label} -->" in text, label
    draw_comparison(ratios(0.9, 5.0), file, bins="-10,10", title="A title")
    assert "<!-- A title -->" in file.read_text()
    assert "<!-- mean: +195.00 %, beyond the edge -->" in file.read_text()
    long = compare(replace(A, name="x" * 60), B)
    draw_comparison(long, file)
    assert "<!-- relative to b -->" in file.read_text()


def test_what_cannot_be_drawn_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"expected \.png, \.svg, \.pdf"):
        draw_comparison(compare(A, B), tmp_path / "figure.jpg")
    with pytest.raises(RunError, match="no ratio to draw"):
        draw_comparison(compare(A, make("b", [(0, 0, NONE, 0.0)])), tmp_path / "figure.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="needs matplotlib"):
        draw_comparison(compare(A, B), tmp_path / "figure.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "folder",
    [
        "small_mnist/small_mnist_net/noise_0.25/test",
        "cifar10/resnet110/noise_0.25/test",
        "imagenet/resnet50/noise_0.25/test",
    ],
)
def test_published_logs_counted_again(shared_reference: Path, folder: str) -> None:
    """The same numbers from the same files in plain Python, without code of the library."""
    paths = [shared_reference / "levine2021" / "certify" / folder / name for name in ("dipole_N_100000", "N_100000")]
    by_run: list[dict[str, tuple[bool, float]]] = []
    for path in paths:
        with path.open(newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
        by_run.append({row["idx"]: (row["correct"] == "1", float(row["radius"])) for row in rows})
    a, b = ({idx: radius if right else 0.0 for idx, (right, radius) in run.items()} for run in by_run)
    both = [idx for idx in a if idx in b and a[idx] > 0 and b[idx] > 0]
    quotients = [a[idx] / b[idx] for idx in both]
    counted = [idx for idx in a if idx in b and (a[idx] > 0 or b[idx] > 0)]

    found = summarise_comparison(compare(*load_all(paths)))
    assert found.common == len(set(a) & set(b))
    assert (found.counted, found.both) == (len(counted), len(both))
    assert found.only_a == sum(b[idx] == 0 for idx in counted)
    assert found.only_b == sum(a[idx] == 0 for idx in counted)
    assert found.a_larger == sum(a[idx] > b[idx] for idx in both)
    assert found.b_larger == sum(a[idx] < b[idx] for idx in both)
    assert found.conflicting == 0
    assert found.ratio_mean == pytest.approx(statistics.fmean(quotients), rel=1e-13)
    assert found.ratio_median == pytest.approx(statistics.median(quotients), rel=1e-13)
    assert found.ratio_geometric_mean == pytest.approx(statistics.geometric_mean(quotients), rel=1e-12)
    assert found.mean_radius_a == pytest.approx(sum(a[idx] for idx in counted) / len(counted), rel=1e-13)
    assert found.mean_radius_both_b == pytest.approx(statistics.fmean(b[idx] for idx in both), rel=1e-13)
