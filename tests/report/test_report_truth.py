"""The page states what is proved and no more: every kind of run, figure and rounding."""

from __future__ import annotations

import html.parser
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_runner import invoke
from report_runs import made_run
from smoothcert.cli.main import app
from smoothcert.data import load_dataset
from smoothcert.records import CertifiedPoint, Noise, Outcome, Reason, ReasonCode, Stage
from smoothcert.report.chart_parts import shorten_down
from smoothcert.report.content import Content, ReportRequest, build_content
from smoothcert.report.headline import percent
from smoothcert.report.page import render_page
from smoothcert.runs.store import RunStore
from verified_runs import KINDS, make_run


class Figures(html.parser.HTMLParser):
    """Every number on a page with its full value, and by gallery every bar with its radius."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.printed: list[tuple[str, float]] = []
        self.bars: list[list[tuple[float, float]]] = []
        self._value: float | None = None
        self._radius = 0.0
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "data":
            self._value = float(str(given["value"]))
        elif tag == "div" and given.get("class") == "gallery":
            self.bars.append([])
        elif tag == "li" and "data-radius" in given:
            self._radius = float(str(given["data-radius"]))
        elif tag == "rect" and given.get("x") == "2":
            self.bars[-1].append((self._radius, float(str(given["width"]))))

    def handle_data(self, data: str) -> None:
        if self._value is not None:
            self.printed.append((data.replace(",", ""), self._value))
            self._value = None


def shown_of(*runs: Path, **request: Any) -> Content:
    return build_content(ReportRequest(runs=runs, **request))


def cells_of(shown: Any) -> list[dict[str, Any]]:
    """The rows of a table, by the keys of its columns."""
    return [{column.key: value for column, (_, value, _) in zip(shown.columns, row, strict=True)} for row in shown.rows]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_the_figures_of_table_and_no_others(kind: str, tmp_path: Path) -> None:
    run = make_run(kind, tmp_path)
    shown = shown_of(run)
    documents = json.loads(invoke(app, "table", run, "--json").stdout)
    for document, cells, card in zip(documents, cells_of(shown.approximate), shown.runs, strict=True):
        assert (cells["run"], cells["points"]) == (document["run"], document["points"])
        for key in ("acr", "accuracy", "abstention", "misclassification", "failure"):
            assert cells.get(key) == (document[key] if key != "failure" else document[key] or None)
        for text, share in document["certified_accuracy"].items():
            assert cells.get(f"certified_{text}") == share
        facts = {what: value for what, _, value in card.facts}
        assert facts["inputs"] == document["points"]
        assert facts.get("average certified radius") == document["acr"]
        assert facts.get("accuracy") == document["accuracy"]
    assert (shown.bounded is None) == (kind in ("shared-noise", "predict", "predict-memory"))
    if shown.bounded is not None:
        documents = json.loads(invoke(app, "table", run, "--bound", "exact", "--json").stdout)
        for document, cells in zip(documents, cells_of(shown.bounded), strict=True):
            assert {f"lower_{text}": low for text, low in document["lower_bound"].items()}.items() <= cells.items()
    _check_roundings(shown)
    _check_who_won_every_vote(run, shown)


def _check_roundings(shown: Content) -> None:
    """A printed number differs from its full value by less than a unit of the last decimal; bars are never too long."""
    page = Figures(render_page(shown))
    assert page.printed
    for text, value in page.printed:
        decimals = len(text.partition(".")[2])
        assert abs(float(text) - value) < 10.0**-decimals
    for table in (shown.approximate, shown.bounded, shown.class_radii):
        for row in table.rows if table is not None else ():
            for column, (text, value, _) in zip(table.columns if table is not None else (), row, strict=True):
                if column.kind.name == "LOWER" and value is not None:
                    assert float(text) <= float(value) + 1e-12
    for bars in page.bars:
        largest = max((radius for radius, _ in bars), default=0.0)
        assert all(width <= (196 * radius / largest if largest else 0.0) + 1e-9 for radius, width in bars)


def _check_who_won_every_vote(run: Path, shown: Content) -> None:
    with RunStore.open(run) as store:
        points = store.points()
    for card in shown.runs:
        facts = {what: value for what, _, value in card.facts}
        if "won every vote" in facts:
            assert facts["won every vote"] == sum(_won_every_vote(point) for point in points)


def _won_every_vote(point: CertifiedPoint) -> bool:
    tally = point.tally(Stage.ESTIMATION)
    assert tally is not None
    votes = tally.independent_votes()
    return point.outcome is Outcome.CERTIFIED and int(votes.counts[point.prediction]) == votes.n


@pytest.mark.parametrize(("kind", "sharing"), [("votes", "gaussian-two-class"), ("dipole", "dipole-multi-class")])
def test_who_won_every_vote_is_known_however_alpha_is_shared(kind: str, sharing: str, tmp_path: Path) -> None:
    first, shared = make_run(kind, tmp_path), tmp_path / "shared"
    # With α shared by ten bounds, each bound is as low as one vote less would make it.
    invoke(app, "recertify", first, "--certificate", sharing, "--out", shared)
    counts = [dict(fact[::2] for fact in shown_of(run).runs[0].facts)["won every vote"] for run in (first, shared)]
    assert counts[0] == counts[1] > 0


@given(st.floats(min_value=1e-12, max_value=1e6))
def test_what_is_drawn_of_a_radius_is_never_more(value: float) -> None:
    assert shorten_down(value) <= value
    assert shorten_down(value) == pytest.approx(value, rel=2e-6)
    assert shorten_down(0.0) == 0.0


def test_a_curve_is_drawn_at_no_larger_radius(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", load_dataset("digits"), source="digits", inputs=60)
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET radius = 0.49999999 WHERE outcome = 'CERTIFIED'")
    shown = shown_of(run)
    assert max(row["r"] for row in shown.charts["accuracy"]["data"]["values"]) < 0.49999999
    assert all(row["q4"] < 0.49999999 for row in shown.charts["classes"]["data"]["values"])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "run", load_dataset("digits"), source="digits", inputs=30)


def test_almost_all_is_not_all() -> None:
    assert percent(9999, 10_000).replace("\N{NO-BREAK SPACE}", " ") == "99.9 %"
    assert percent(10_000, 10_000).replace("\N{NO-BREAK SPACE}", " ") == "100.0 %"
    assert percent(2, 3).replace("\N{NO-BREAK SPACE}", " ") == "66.7 %"


def test_a_log_does_not_borrow_the_guarantee_of_a_run(run: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    assert invoke(app, "export", run, "-o", log).exit_code == 0
    both = shown_of(log, run).headline
    assert "log.tsv does not state an error probability" in both.guarantee
    assert "0.001" in both.guarantee
    assert "How the logs among them were made is not known" in both.how
    assert "0.001" not in shown_of(log).headline.guarantee


def test_what_was_done_is_told_of_all_runs(run: Path, tmp_path: Path) -> None:
    other = made_run(tmp_path / "other", load_dataset("digits"), source="digits", inputs=30, n=500, noise=Noise.UNIFORM)
    told = shown_of(run, other).headline.how
    assert "500 or 1,000 times" in told
    assert "Gaussian or uniform" in told


def test_the_best_run_is_chosen_among_those_in_one_norm(run: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    with sqlite3.connect(other / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET norm = 'l1', radius = 10 * radius")
    sentence = shown_of(run, other).headline.sentence
    assert "(run run)" in sentence
    assert "best of" not in sentence
    assert "the best of 2" in shown_of(run, run).headline.sentence


def test_the_guarantee_names_what_is_taken_for_granted(tmp_path: Path) -> None:
    votes = shown_of(make_run("votes", tmp_path)).headline
    assert "answers each noisy input by itself" in votes.guarantee
    assert "(the vote)" in votes.guarantee
    soft = shown_of(make_run("soft", tmp_path)).headline
    assert "(the mean score)" in soft.guarantee
    assert "averaged" in soft.how
    assert "vote" not in soft.how
    memory = shown_of(make_run("memory", tmp_path / "kept")).headline
    assert "promised before" in memory.how


def test_the_bound_is_said_to_be_for_one_radius(run: Path) -> None:
    page = render_page(shown_of(run)).decode()
    assert "for one radius and one run, chosen before looking" in page


def test_one_pixel_has_the_size_of_its_colours(run: Path, tmp_path: Path) -> None:
    assert "change of size 1." in shown_of(run).headline.guarantee
    file = tmp_path / "data.npz"
    draw = np.random.default_rng(0)
    np.savez(file, x=draw.integers(0, 256, size=(20, 3, 8, 8), dtype=np.uint8), y=draw.integers(0, 3, size=20))
    colour = made_run(tmp_path / "colour", load_dataset(str(file)), source=str(file), inputs=20, grid=256)
    assert "change of size 1.73." in shown_of(colour).headline.guarantee
    assert "change of size" not in shown_of(run, colour).headline.guarantee
    np.savez(file, x=draw.random((20, 6)).astype(np.float32), y=draw.integers(0, 3, size=20))
    features = made_run(tmp_path / "features", load_dataset(str(file)), source=str(file), inputs=20, grid=None)
    assert b"one pixel" not in render_page(shown_of(features))


def test_labels_that_are_there_are_not_denied(run: Path) -> None:
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("UPDATE points SET label = NULL WHERE idx >= 10")
    assert "known for 10 of them only" in shown_of(run).headline.sentence


def test_a_reason_is_that_of_the_certificate_shown(tmp_path: Path) -> None:
    run = make_run("dipole", tmp_path)
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute(
            "UPDATE verdicts SET outcome = 'ABSTAINED', radius = 0.0, prediction = NULL, "
            "reason = json_object('code', 'radius-impossible', 'radius', 1.5 + place)"
        )
    reasons = [{card.reason for card in gallery.cards} for gallery in shown_of(run).galleries]
    of_dipole, of_gaussian = (Reason(ReasonCode.RADIUS_IMPOSSIBLE, {"radius": radius}) for radius in (1.5, 2.5))
    assert reasons == [{str(of_dipole)}, {str(of_gaussian)}]


def test_radii_that_were_not_asked_about_have_no_figure(tmp_path: Path) -> None:
    run = make_run("decide", tmp_path)
    shown = shown_of(run, radii="0.1,0.3,0.5")
    (cells,) = cells_of(shown.approximate)
    assert cells.get("certified_0.5") is None
    assert all("a0" not in row for row in shown.probes if row["r"] > 0.3)
    assert max(row["r"] for row in shown.charts["accuracy"]["data"]["values"]) <= 0.3


def test_a_contradiction_is_told_of_the_runs_it_is_between_however_many_there_are(run: Path, tmp_path: Path) -> None:
    runs = [run, *(Path(shutil.copytree(run, tmp_path / f"copy-{k}")) for k in range(4))]
    with sqlite3.connect(runs[-1] / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET prediction = (prediction + 5) % 10 WHERE outcome = 'CERTIFIED'")
    shown = shown_of(*runs, gallery=0)
    assert shown.pairs_left_out > 0
    named = {remark.runs for remark in shown.remarks if remark.title == "contradiction"}
    assert named == {("copy-3", "run"), *(("copy-3", f"copy-{k}") for k in range(3))}


def test_a_recertified_run_says_so_and_forgets_nothing(tmp_path: Path) -> None:
    run = make_run("recertified", tmp_path)
    again = tmp_path / "again"
    invoke(app, "recertify", run, "--alpha", 0.05, "--out", again)
    for one in (run, again):
        shown = shown_of(one)
        assert {"recertified", "chosen seed"} <= {remark.title for remark in shown.remarks}
        assert "of digits" in shown.headline.sentence
        assert all(card.picture is not None for card in shown.galleries[0].cards)
    assert "recertified" not in {remark.title for remark in shown_of(make_run("votes", tmp_path)).remarks}


def test_the_headline_has_the_largest_telling_radius_in_whatever_order_they_are_given(run: Path) -> None:
    sentences = {shown_of(run, radii=radii, gallery=0).headline.sentence for radii in ("0,0.05,0.1", "0.1,0,0.05")}
    assert len(sentences) == 1
    assert "smaller than 0.1 " in sentences.pop().replace(",", " ")


def test_classes_have_names_only_where_all_runs_mean_the_same(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    runs = []
    for name, classes in (("pets", ("cat", "dog")), ("cars", ("lorry", "van")), ("more-pets", ("cat", "dog"))):
        file = tmp_path / f"{name}.npz"
        pixels = draw.integers(0, 256, size=(20, 1, 4, 4), dtype=np.uint8)
        np.savez(file, x=pixels, y=np.arange(20) % 2, class_names=np.array(classes))
        runs.append(made_run(tmp_path / name, load_dataset(str(file)), source=str(file), inputs=20, grid=256))

    def classes_of(*shown: Path) -> tuple[list[str], list[str]]:
        page = shown_of(*shown, gallery=0)
        return page.charts["classes"]["params"][1]["value"], [row[0][0] for row in page.classes[0].table.rows[:-1]]

    assert classes_of(runs[0], runs[1]) == (["0", "1"], ["0", "1"])
    assert classes_of(runs[0], runs[2]) == (["cat", "dog"], ["0 cat", "1 dog"])
