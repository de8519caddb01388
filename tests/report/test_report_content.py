"""The content of the page, without a browser: the figures of `table`, notices, classes, galleries and planes."""

from __future__ import annotations

import base64
import csv
import html.parser
import io
import json
import math
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.special import ndtr

from cli_runner import invoke, smoothcert
from report_runs import hostile_run, made_run
from smoothcert.analysis.metrics import certified_accuracy
from smoothcert.analysis.plots import accuracy_curve
from smoothcert.analysis.table_choices import BoundChoice
from smoothcert.cli.main import app
from smoothcert.data import load_dataset
from smoothcert.errors import CorruptRunError, InputError, RunError
from smoothcert.records import Noise
from smoothcert.report import charts
from smoothcert.report.chart_parts import COLOURS
from smoothcert.report.content import ReportRequest, build_content
from smoothcert.report.gallery import add_noise, as_pixels, choose, encode_png, picture_shape
from smoothcert.report.notices import Weight, count_unanimous
from smoothcert.report.page import render_page, write_report
from smoothcert.report.plain_text import encode_for_script, escape_invisible, hide_folders, hide_folders_in_document
from smoothcert.report.plane import draw_planes
from smoothcert.report.sources import load_sources
from smoothcert.runs.load import load_all
from smoothcert.runs.store import RunStore
from verified_runs import KINDS, make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("made")
    digits = load_dataset("digits")
    first = made_run(folder / "first", digits, source="digits", inputs=60)
    return first, made_run(folder / "second", digits, source="digits", inputs=60, seed=1, sigma=0.5)


class Reader(html.parser.HTMLParser):
    """The cells of every table by its id, and all tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self.tags: list[str] = []
        self._table: str | None = None
        self._text: str | None = None
        self._value: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if tag == "table":
            self._table = str(given["id"])
            self.tables[self._table] = []
        elif tag == "tr" and self._table is not None:
            self.tables[self._table].append([])
        elif tag in ("td", "th"):
            self._text, self._value = "", None
        elif tag == "data":
            self._value = given["value"]

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._table is not None and self._text is not None:
            self.tables[self._table][-1].append((self._text, self._value))
            self._text = None
        elif tag == "table":
            self._table = None


def written(tmp_path: Path, *arguments: object) -> str:
    out = tmp_path / "report.html"
    result = invoke(app, "report", *arguments, "-o", out)
    assert result.exit_code == 0, result.output
    return out.read_text(encoding="utf-8")


def test_figures_equal_those_of_table_to_the_digit(runs: tuple[Path, Path], tmp_path: Path) -> None:
    radii = "0,0.1,0.25,0.5"
    page = Reader(written(tmp_path, *runs, "--radii", radii))
    documents = json.loads(invoke(app, "table", *runs, "--radii", radii, "--bound", "exact", "--json").stdout)
    titles, *rows = page.tables["table-certified"]
    for document, row in zip(documents, rows, strict=True):
        cells = {title: cell for (title, _), cell in zip(titles, row, strict=True)}
        assert cells["run"][0] == document["run"]
        for title, key in (("points", "points"), ("ACR", "acr"), ("accuracy", "accuracy"), ("sigma", "sigma")):
            assert json.loads(str(cells[title][1])) == document[key]
        assert json.loads(str(cells["abstained"][1])) == document["abstention"]
        for text in radii.split(","):
            assert json.loads(str(cells[f"r={text}"][1])) == document["certified_accuracy"][text]
    titles, *rows = page.tables["table-bounded"]
    for document, row in zip(documents, rows, strict=True):
        cells = {title: cell for (title, _), cell in zip(titles, row, strict=True)}
        for text in radii.split(","):
            assert json.loads(str(cells[f"r={text}"][1])) == document["lower_bound"][text]


def test_printed_figures_are_those_of_the_text_table(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = Reader(written(tmp_path, *runs))
    printed = invoke(app, "table", *runs).stdout.splitlines()
    for line, row in zip([printed[0], *printed[2:4]], page.tables["table-certified"], strict=True):
        assert re.split(r"\s{2,}", line.strip()) == [text for text, _ in row]


def test_classes_equal_those_of_table(runs: tuple[Path, Path], tmp_path: Path) -> None:
    page = Reader(written(tmp_path, runs[0], "--radii", "0,0.25"))
    (document,) = json.loads(invoke(app, "table", runs[0], "--radii", "0.25", "--classes", "--json").stdout)
    rows = page.tables["table-classes-1"][1:]
    assert {row[0][0]: json.loads(str(row[1][1])) for row in rows[:-1]} == document["classes"]
    assert (rows[-1][0][0], json.loads(str(rows[-1][1][1]))) == ("spread", document["class_spread"])


@pytest.mark.parametrize(("title", "form"), [("LaTeX", "latex"), ("Markdown", "markdown")])
def test_copies_are_what_table_prints(title: str, form: str, runs: tuple[Path, Path]) -> None:
    shown = build_content(ReportRequest(runs=runs, radii="0,0.25", gallery=0))
    printed = invoke(app, "table", *runs, "--radii", "0,0.25", "--format", form).stdout
    # `table` prints the distribution of p_A below the table that is copied.
    copied, below = printed.split("\n\n", 1)
    assert copied == shown.approximate.copies[title]
    assert "p_A" in below.replace("\\", "")


def test_the_copied_csv_has_the_columns_that_table_prints(runs: tuple[Path, Path]) -> None:
    shown = build_content(ReportRequest(runs=runs, radii="0,0.25", gallery=0))
    printed = invoke(app, "table", *runs, "--radii", "0,0.25", "--format", "csv").stdout.splitlines()
    copied = shown.approximate.copies["CSV"].splitlines()
    # `table` appends the columns of p_A, which the report shows as a table of its own.
    for whole, part in zip(csv.reader(printed), csv.reader(copied), strict=True):
        assert whole[: len(part)] == part
    assert all(key.startswith("p_a_") for key in printed[0].split(",")[len(copied[0].split(",")) :])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_a_page(kind: str, tmp_path: Path) -> None:
    run = make_run(kind, tmp_path)
    page = written(tmp_path, run)
    shown = build_content(ReportRequest(runs=(run,)))
    assert shown.headline.sentence in html.unescape(page)
    titles = {remark.title for remark in shown.remarks}
    assert ("float noise" in titles) == (kind in ("float-noise", "scaled"))
    assert ("shared noise" in titles) == (kind == "shared-noise")
    assert ("several certificates" in titles) == (kind == "dipole")
    assert (shown.bounded is None) == (kind in ("shared-noise", "predict", "predict-memory"))
    assert ("sigma" in shown.charts) == (kind == "envelope")


def test_a_certificate_from_the_gallery_is_verified(tmp_path: Path) -> None:
    run = make_run("votes", tmp_path)
    (gallery,) = build_content(ReportRequest(runs=(run,))).galleries
    for card in gallery.cards:
        assert card.certificate is not None
        file = tmp_path / card.certificate_name
        file.write_bytes(base64.b64decode(card.certificate.partition(",")[2]))
        assert smoothcert("verify", file).returncode == 0


def test_the_curve_is_exact_where_it_is_drawn_and_never_above(tmp_path: Path) -> None:
    digits = load_dataset("digits")
    run = made_run(tmp_path / "run", digits, source="digits", inputs=len(digits), n=100_000)
    (source,) = load_sources([run])
    whole = accuracy_curve(source.results)
    thinned = charts.thin(np.linspace(0.0, 1.0, 3000) ** 2)
    assert thinned[0] == 0
    assert thinned[-1] == 1
    assert thinned.size <= 500
    steps = charts.compute_curves([source], BoundChoice()).steps
    drawn = [(row["r"], row["y"]) for row in steps[:-1]]
    assert [y for _, y in drawn] == pytest.approx(certified_accuracy(source.results, whole.x).tolist(), abs=1e-6)
    assert all(row["low"] <= row["y"] for row in steps)
    assert steps[-1]["y"] == 0


def test_probes_print_the_figures_rounded_as_everywhere(runs: tuple[Path, Path]) -> None:
    sources = load_sources(runs)
    for row in charts.compute_curves(sources, BoundChoice()).probes:
        for k, source in enumerate(sources):
            true = float(certified_accuracy(source.results, row["r"]))
            assert float(row[f"a{k}"]) == pytest.approx(true, abs=0.00051)
            assert float(row[f"b{k}"]) <= true


def test_inputs_that_won_every_vote_are_counted(tmp_path: Path) -> None:
    digits = load_dataset("digits")
    run = made_run(tmp_path / "run", digits, source="digits", inputs=len(digits), n=200)
    with RunStore.open(run) as store:
        counts = [int(point.tallies[0].independent_votes().counts.max()) for point in store.points()]
    assert counts.count(200) > 0
    assert counts.count(199) > 0
    (source,) = load_sources([run])
    assert count_unanimous(source) == counts.count(200)


def test_unfinished_runs_and_logs_are_called_so(runs: tuple[Path, Path], tmp_path: Path) -> None:
    digits = load_dataset("digits")
    short = made_run(tmp_path / "short", digits, source="digits", inputs=20)
    manifest = json.loads((short / "manifest.json").read_text())
    manifest["data"]["inputs"] = 100
    (short / "manifest.json").write_text(json.dumps(manifest))
    log = tmp_path / "log.tsv"
    invoke(app, "export", runs[0], "-o", log)
    shown = build_content(ReportRequest(runs=(short, log)))
    titles = [remark.title for remark in shown.remarks]
    assert "unfinished" in titles
    assert "log" in titles
    assert "different inputs" in titles
    assert shown.refused
    assert shown.galleries[1].cards[0].certificate is None


def test_varying_sigma_without_envelope_is_a_warning(tmp_path: Path) -> None:
    digits = load_dataset("digits")
    rule = {"rule": {"kind": "made up"}}
    bare = made_run(tmp_path / "bare", digits, source="digits", inputs=20, **rule)
    kept = made_run(tmp_path / "kept", digits, source="digits", inputs=20, **rule, memory="0" * 64)
    found = {
        r.runs: r.weight for r in build_content(ReportRequest(runs=(bare, kept))).remarks if r.title == "heuristic σ"
    }
    assert found == {("bare",): Weight.SERIOUS, ("kept",): Weight.CAUTION}


def test_a_remark_about_several_runs_is_made_once(tmp_path: Path) -> None:
    digits = load_dataset("digits")
    both = [made_run(tmp_path / name, digits, source="digits", inputs=20, grid=None) for name in ("a", "b")]
    (remark,) = [r for r in build_content(ReportRequest(runs=tuple(both))).remarks if r.title == "float noise"]
    assert remark.runs == ("a", "b")


def test_a_manifest_with_odd_values_has_a_page(runs: tuple[Path, Path], tmp_path: Path) -> None:
    odd = shutil.copytree(runs[0], tmp_path / "odd@run")
    manifest = json.loads((odd / "manifest.json").read_text())
    manifest["spec"]["data"] |= {"place": "digits", "split": "../..", "root": "\u0000"}
    manifest["model"]["description"] = "<b>"
    (odd / "manifest.json").write_text(json.dumps(manifest))
    shown = build_content(ReportRequest(runs=(odd,)))
    assert b"&lt;b&gt;" in render_page(shown)
    assert "could not be loaded" in str(shown.galleries[0].why_no_pictures)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("data", "split", ["x"]),
        ("data", "place", 7),
        ("data", "input_range", "a,b"),
        ("noise", "kind", 5),
        ("noise", "grid", "many"),
        ("sigma", "level", "1"),
        ("question", "n", None),
        ("model", "num_classes", "ten"),
    ],
)
def test_a_manifest_with_values_of_the_wrong_type_is_refused_by_name(
    runs: tuple[Path, Path], tmp_path: Path, part: str, name: str, value: Any
) -> None:
    odd = shutil.copytree(runs[0], tmp_path / "odd")
    manifest = json.loads((odd / "manifest.json").read_text())
    manifest["spec"][part][name] = value
    (odd / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CorruptRunError, match=rf"not a valid manifest.*{part}"):
        build_content(ReportRequest(runs=(odd,)))


def test_many_runs_fit_on_a_page(tmp_path: Path) -> None:
    digits = load_dataset("digits")
    many = [made_run(tmp_path / f"r{k}", digits, source="digits", inputs=15, seed=k) for k in range(9)]
    shown = build_content(ReportRequest(runs=tuple(many)))
    assert len({(run.number % COLOURS, run.dash) for run in shown.runs}) == 9
    assert "classes" not in shown.charts
    assert len(shown.galleries) == 4
    assert len(shown.pairs) == 6
    assert shown.pairs_left_out == 30
    assert len(render_page(shown)) < 5_000_000


def test_of_very_many_classes_the_weakest_are_shown(tmp_path: Path) -> None:
    lines = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"]
    lines += [f"{k}\t{k}\t{k if k % 10 else k + 1}\t0.5\t{int(k % 10 > 0)}\t1.0" for k in range(200)]
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    shown = build_content(ReportRequest(runs=(log,), radii="0"))
    *rows, spread = shown.classes[0].table.rows
    assert len(rows) == charts.MOST_CLASSES
    assert {row[0][0] for row in rows} >= {str(k) for k in range(0, 200, 10)}
    (document,) = json.loads(invoke(app, "table", log, "--radii", "0", "--classes", "--json").stdout)
    assert spread[1][1] == document["class_spread"]
    assert "30 of 200 classes" in render_page(shown).decode()


def test_the_guarantee_says_what_it_supposes(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert "supposes" not in build_content(ReportRequest(runs=(runs[0],))).headline.guarantee
    digits = load_dataset("digits")
    run = made_run(tmp_path / "run", digits, source="digits", inputs=15, grid=None, memory="0" * 64)
    assert "floating point" in build_content(ReportRequest(runs=(run,))).headline.guarantee
    assert "memory" in build_content(ReportRequest(runs=(run,))).headline.guarantee


def test_different_data_is_said(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = made_run(tmp_path / "cone", load_dataset("cone"), source="cone", inputs=60)
    assert "different data" in {remark.title for remark in build_content(ReportRequest(runs=(runs[0], other))).remarks}


def test_a_contradiction_is_serious(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = shutil.copytree(runs[0], tmp_path / "other")
    with sqlite3.connect(other / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET prediction = (prediction + 5) % 10 WHERE outcome = 'CERTIFIED'")
    serious = [r for r in build_content(ReportRequest(runs=(runs[0], other))).remarks if r.weight is Weight.SERIOUS]
    assert [remark.title for remark in serious] == ["contradiction"]


def test_two_models_that_disagree_are_no_contradiction(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = shutil.copytree(runs[0], tmp_path / "other")
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["digests"]["model"] = "1" * 64
    (other / "manifest.json").write_text(json.dumps(manifest))
    with sqlite3.connect(other / "results.sqlite") as connection:
        connection.execute("UPDATE verdicts SET prediction = (prediction + 5) % 10 WHERE outcome = 'CERTIFIED'")
    shown = build_content(ReportRequest(runs=(runs[0], other)))
    assert "contradiction" not in {remark.title for remark in shown.remarks}
    (pair,) = shown.pairs
    assert "they certify different classes" in pair.sentence
    assert any("differ in model" in note for note in pair.notes)


def test_where_nothing_is_certified_the_page_says_so_and_draws_nothing(tmp_path: Path) -> None:
    shown = build_content(ReportRequest(runs=(make_run("abstaining", tmp_path),)))
    assert shown.nothing_certified
    assert not {"accuracy", "classes"} & set(shown.charts)
    assert shown.headline.sentence.startswith("None of 4 test inputs of digits is classified correctly")
    assert "there is no curve to draw" in render_page(shown).decode()


def test_without_radii_nothing_is_called_weak_or_strong(tmp_path: Path) -> None:
    shown = build_content(ReportRequest(runs=(make_run("predict", tmp_path),)))
    (gallery,) = shown.galleries
    assert not shown.certified
    assert not gallery.certified
    assert {card.kind for card in gallery.cards} <= {"answered", "wrong", "abstained", "failed"}
    page = render_page(shown).decode()
    assert "nothing certified" not in page
    assert 'class="ball"' not in page


def test_every_input_is_in_a_bin_of_its_votes(runs: tuple[Path, Path]) -> None:
    sources = load_sources(runs)
    edges, places = charts.normal_bins([source.results.p_a for source in sources])
    assert (edges[0], edges[-1]) == (0.0, 1.0)
    assert edges[1:-1] == pytest.approx(ndtr(places[1:-1]), abs=1e-15)
    chart = charts.draw_p_a_chart(sources)
    assert chart is not None
    for number, spread in enumerate(charts.p_a_spreads(sources)):
        # The last corner of an outline repeats the bin before it.
        rows = [row for row in chart["data"]["values"] if row["run"] == number][:-1]
        assert sum(row["share"] for row in rows) == pytest.approx(1.0, abs=1e-5)
        filled = [row for row in rows if row["share"] > 0]
        assert filled[0]["from"] <= spread.quantiles[0] <= filled[0]["to"]
        assert filled[-1]["from"] <= spread.quantiles[-1] <= filled[-1]["to"]


def test_classes_are_first_shown_at_the_radius_of_the_headline(runs: tuple[Path, Path]) -> None:
    shown = build_content(ReportRequest(runs=runs, radii="0,0.1,0.25,0.5,3"))
    assert shown.classes[shown.class_at].text == shown.headline.radius
    assert f"smaller than {shown.headline.radius} " in shown.headline.sentence


def test_data_that_is_not_what_was_certified_is_not_shown(runs: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    np.savez(other, x=np.zeros((445, 1, 8, 8), dtype=np.uint8), y=np.zeros(445, dtype=np.int64))
    (gallery,) = build_content(ReportRequest(runs=(runs[0],), data=str(other))).galleries
    assert "digest differs" in str(gallery.why_no_pictures)
    assert all(card.picture is None for card in gallery.cards)
    (absent,) = build_content(ReportRequest(runs=(runs[0],), data=str(tmp_path / "absent.npz"))).galleries
    assert "could not be loaded" in str(absent.why_no_pictures)


def test_a_log_is_shown_with_data_only_if_the_labels_agree(runs: tuple[Path, Path], tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    invoke(app, "export", runs[0], "-o", log)
    (same,) = build_content(ReportRequest(runs=(log,), data="digits")).galleries
    assert same.cards[0].picture is not None
    (other,) = build_content(ReportRequest(runs=(log,), data="cone")).galleries
    assert "other labels" in str(other.why_no_pictures)


def test_the_gallery_is_a_choice_of_every_kind(runs: tuple[Path, Path]) -> None:
    (results,) = load_all([runs[0]])
    chosen = choose(results, most=20)
    assert len(chosen) == len({position for _, position in chosen}) == 20
    assert {kind for kind, _ in chosen} == {"weakest", "middling", "strongest", "wrong", "abstained"}
    radii = results.radius[results.correct]
    by_kind = {kind: [results.radius[p] for k, p in chosen if k == kind] for kind, _ in chosen}
    assert min(by_kind["weakest"]) == radii.min()
    assert max(by_kind["strongest"]) == radii.max()
    assert all(results.prediction[p] != results.label[p] for kind, p in chosen if kind == "wrong")
    assert choose(results, most=1000) == choose(results, most=len(results))
    assert choose(results, most=20) == chosen


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_png_is_read_by_another_program(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=shape, dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode_png(pixels)))), pixels)


def test_pictures_only_of_pictures() -> None:
    assert picture_shape((1, 8, 8)) == (8, 8)
    assert picture_shape((3, 32, 32)) == (32, 32, 3)
    assert picture_shape((28, 28)) == (28, 28)
    assert picture_shape((2,)) is None
    assert picture_shape((4, 8, 8)) is None
    with pytest.raises(InputError):
        encode_png(np.zeros((2, 2, 4), dtype=np.uint8))


def test_noise_of_a_picture_has_the_level_and_the_grid() -> None:
    plain = np.full((200, 200), 0.5, dtype=np.float32)
    moved = add_noise(plain, 3, sigma=0.25, noise=Noise.GAUSSIAN, grid=17) - plain
    assert np.allclose(np.rint(moved * 16), moved * 16, atol=1e-4)
    assert float(moved.std()) == pytest.approx(0.25, abs=0.01)
    assert np.array_equal(moved, add_noise(plain, 3, sigma=0.25, noise=Noise.GAUSSIAN, grid=17) - plain)
    uniform = add_noise(plain, 3, sigma=0.25, noise=Noise.UNIFORM, grid=None) - plain
    assert float(np.abs(uniform).max()) <= 0.25
    assert as_pixels(moved * 100, (0.0, 1.0)).max() == 255


def test_discs_in_the_plane_are_to_scale_and_not_too_large(tmp_path: Path) -> None:
    cone = load_dataset("cone")
    run = made_run(tmp_path / "run", cone, source="cone", inputs=100, grid=None)
    (source,) = load_sources([run])
    (drawing,) = draw_planes([source])
    places = cone.inputs(list(range(100)))
    ticks = {float(tick.text): tick.at for tick in drawing.x_ticks}
    (one, at_one), *_, (other, at_other) = sorted(ticks.items())
    scale = (at_other - at_one) / (other - one)
    certified = np.flatnonzero(source.results.radius > 0)
    assert len(drawing.balls) == certified.size
    for region, k in zip(drawing.balls, certified, strict=True):
        assert region.x == pytest.approx(at_one + scale * (places[k, 0] - one), abs=0.2)
        assert region.r == pytest.approx(scale * source.results.radius[k], rel=0.01, abs=0.12)
    span = [region.r / source.results.radius[k] for region, k in zip(drawing.balls, certified, strict=True)]
    assert max(span) <= scale * 1.001
    assert build_content(ReportRequest(runs=(run,))).planes


def test_text_is_shown_and_never_obeyed() -> None:
    assert escape_invisible("a\u202eb\x00c\ud800") == r"a\u202eb\u0000c\ud800"
    assert escape_invisible("עברית 😀 é\n\t") == "עברית 😀 é\n\t"


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.lists(inner), max_leaves=5))
def test_json_in_a_script_is_the_same_value_without_markup(value: Any) -> None:
    text = encode_for_script([value])
    assert not set(text) & set("<>&\u2028\u2029")
    assert text.isascii()
    if json.dumps(value).isascii() and not re.search(r"\\[urbf]", json.dumps(value)):
        assert json.loads(text) == [value]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    run = hostile_run(tmp_path)
    page = written(tmp_path, run, "--title", "</title><script>alert(8)</script>")
    found = Reader(page)
    # Only the data, the chart library and the script of the page.
    assert found.tags.count("script") == 3
    assert found.tags.count("style") == 1
    pictures = len(re.findall(r'<img src="data:image/png;base64,', page))
    assert found.tags.count("img") == pictures
    assert pictures > 0
    assert "\u202e" not in page
    assert "49" not in re.findall(r"\$\{alert\(5\)\} (\S+)", page)
    assert "alert(1)" in html.unescape(page)


def test_the_same_runs_give_the_same_bytes(runs: tuple[Path, Path]) -> None:
    shown = build_content(ReportRequest(runs=runs))
    assert render_page(shown) == render_page(build_content(ReportRequest(runs=runs)))


def test_ten_thousand_inputs_stay_small(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    draw = np.random.default_rng(0)
    inputs = draw.integers(0, 256, size=(10_000, 3, 32, 32), dtype=np.uint8)
    np.savez(file, x=inputs, y=draw.integers(0, 10, size=10_000))
    dataset = load_dataset(str(file))
    runs = [
        made_run(tmp_path / f"run-{k}", dataset, source=str(file), inputs=10_000, seed=k, n=100_000, grid=256)
        for k in range(2)
    ]
    size = write_report(ReportRequest(runs=tuple(runs)), tmp_path / "report.html")
    assert size < 5_000_000


def test_what_cannot_be_reported_is_said_in_a_sentence(tmp_path: Path, runs: tuple[Path, Path]) -> None:
    with pytest.raises(RunError, match="does not exist"):
        build_content(ReportRequest(runs=(tmp_path / "nothing",)))
    with pytest.raises(InputError, match="not a radius"):
        build_content(ReportRequest(runs=runs, radii="a"))
    with pytest.raises(InputError, match="gallery"):
        build_content(ReportRequest(runs=runs, gallery=-1))
    with pytest.raises(RunError, match="cannot be written"):
        write_report(ReportRequest(runs=runs, gallery=0), tmp_path / "no" / "report.html")


def test_unlabelled_inputs_have_a_page(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", load_dataset("digits"), source="digits", inputs=30)
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute("UPDATE points SET label = NULL")
    shown = build_content(ReportRequest(runs=(run,)))
    assert "no labels" in shown.headline.sentence
    assert "accuracy" not in shown.charts
    assert render_page(shown)


def test_numbers_of_the_cards_are_finite(runs: tuple[Path, Path]) -> None:
    for gallery in build_content(ReportRequest(runs=runs)).galleries:
        assert all(math.isfinite(card.width) and 0 <= card.width <= 100 for card in gallery.cards)


def test_the_gallery_begins_with_the_run_of_the_headline(runs: tuple[Path, Path]) -> None:
    for order in (runs, runs[::-1]):
        content = build_content(ReportRequest(runs=order, radii="0,0.25"))
        assert f"(run {content.runs[content.galleries[0].run].name}," in content.headline.sentence
        assert sorted(gallery.run for gallery in content.galleries) == [0, 1]


def test_folders_of_this_machine_are_shown_only_on_request(tmp_path: Path) -> None:
    digits = load_dataset("digits")
    place = "/home/somebody/secret project/digits.npz".replace(" ", "-")
    run = made_run(tmp_path / "run", digits, source=place, inputs=12)
    hidden, shown = (
        build_content(ReportRequest(runs=(run,), paths=paths)).runs[0].manifest or "" for paths in (False, True)
    )
    assert place in shown
    assert "somebody" not in hidden
    assert "…/digits.npz" in hidden


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/me/net.pt", "…/net.pt"),
        ("~/models/net.pt", "…/net.pt"),
        ("C:\\Users\\me\\net.pt", "…/net.pt"),
        ("read from /data/x/y.npz, then scaled", "read from …/y.npz, then scaled"),
        ("runs/mnist", "runs/mnist"),
        ("mynet:Net", "mynet:Net"),
        ("0.13/0.31", "0.13/0.31"),
        ("postgresql://server/regions", "postgresql://server/regions"),
    ],
)
def test_only_absolute_paths_lose_their_folders(text: str, expected: str) -> None:
    assert hide_folders(text) == expected
    assert hide_folders_in_document({"place": [text, 1, {"a": text}]}) == {"place": [expected, 1, {"a": expected}]}
