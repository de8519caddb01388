"""Runs from a stranger are shown or refused with an error message, and never reveal files of the reader."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from report_runs import made_run
from smoothcert.data import load_dataset
from smoothcert.errors import CorruptRunError, RunError, SmoothcertError
from smoothcert.report import gallery, javascript, sources
from smoothcert.report.content import ReportRequest, build_content
from smoothcert.report.page import render_page, write_report
from smoothcert.report.plain_text import escape_invisible


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    return made_run(folder / "run", load_dataset("digits"), source="digits", inputs=12)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def rewritten(run: Path, *at: str, value: Any) -> Path:
    """The run with one value of its manifest changed."""
    manifest = json.loads((run / "manifest.json").read_text())
    holder = manifest
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = value
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def why_no_pictures(run: Path, **request: Any) -> str:
    (shown,) = build_content(ReportRequest(runs=(run,), gallery=2, **request)).galleries
    return str(shown.why_no_pictures)


def page_or_refusal(run: Path) -> bytes:
    """The page; empty if the run is refused with one of our errors. Any other exception fails the test."""
    try:
        return render_page(build_content(ReportRequest(runs=(run,), gallery=2)))
    except SmoothcertError:
        return b""


def _nested(depth: int) -> list[Any]:
    whole: list[Any] = []
    inner = whole
    for _ in range(depth):
        inner.append([])
        inner = inner[0]
    return whole


ODD = (None, True, -1, 10**30, 1e308, float("nan"), float("inf"), "x\ud800\0", [[]], {"a": {"b": 1}}, _nested(900))


def _places(document: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in document.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from _places(value, (*at, key))


def test_any_value_of_a_manifest_ends_in_a_page_or_in_a_sentence(run: Path) -> None:
    manifest = (run / "manifest.json").read_text()
    shown = 0
    for place in _places(json.loads(manifest)):
        for value in ODD:
            (run / "manifest.json").write_text(manifest)
            shown += bool(page_or_refusal(rewritten(run, *place, value=value)))
    assert shown > 40


@pytest.mark.parametrize("value", [-1, 0, 2, 1e299])
def test_an_error_probability_that_is_none_is_no_crash(run: Path, value: float) -> None:
    page_or_refusal(rewritten(run, "spec", "alpha", value=value))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE points SET idx = idx - 1000000",
        "UPDATE points SET idx = idx + 4611686018427387904",
        "UPDATE points SET label = 9223372036854775807",
        "UPDATE points SET label = -7",
        "UPDATE points SET sigma = NULL",
        "UPDATE points SET sigma = 1e308",
        "UPDATE points SET sigma = -1.0",
        "UPDATE points SET seconds = 9e999",
        "UPDATE verdicts SET radius = 9e999",
        "UPDATE verdicts SET radius = 1e308 WHERE outcome = 'CERTIFIED'",
        "UPDATE verdicts SET radius = 5e-324 WHERE outcome = 'CERTIFIED'",
        "UPDATE verdicts SET prediction = 9223372036854775807 WHERE outcome = 'CERTIFIED'",
        "UPDATE verdicts SET outcome = 'FAILED', radius = 0.0, prediction = NULL, reason = '<script>alert(1)'",
        "UPDATE verdicts SET reason = json_object('code', '<script>alert(1)')",
        "UPDATE verdicts SET bounds = NULL",
        "UPDATE verdicts SET certificate = '<b>' || certificate",
        "UPDATE tallies SET counts = '{}'",
        "UPDATE tallies SET counts = '[]'",
        """UPDATE tallies SET counts = '{"votes": {"0": 0}, "invalid": 0}', stop = start""",
        "DELETE FROM tallies",
        "DELETE FROM verdicts",
        "DELETE FROM points",
    ],
)
def test_any_row_ends_in_a_page_or_in_a_sentence(run: Path, statement: str) -> None:
    with sqlite3.connect(run / "results.sqlite") as connection:
        connection.execute(statement)
        if "idx" in statement:
            for table in ("verdicts", "tallies"):
                connection.execute(statement.replace("points", table))
    assert b"<script>alert" not in page_or_refusal(run)


def test_nothing_of_a_file_that_a_manifest_names_is_quoted(run: Path, tmp_path: Path) -> None:
    private = tmp_path / "salaries.csv"
    private.write_text("name,secret-word\nAnna,12\n")
    page = render_page(
        build_content(ReportRequest(runs=(rewritten(run, "spec", "data", "place", value=str(private)),), gallery=2))
    )
    assert b"could not be loaded" in page
    assert b"secret-word" not in page
    assert b"Anna" not in page
    # A reader who names the file with --data gets the error message.
    assert "Anna" in why_no_pictures(run, data=str(private))


def test_another_file_of_the_reader_is_not_shown(run: Path) -> None:
    assert "digest differs" in why_no_pictures(rewritten(run, "spec", "data", "place", value="cone"))
    for digest in ("", "0" * 64):
        assert "digest differs" in why_no_pictures(rewritten(run, "digests", "data", value=digest))
    for digest in (None, 7, []):
        with pytest.raises(CorruptRunError, match=r"digests\.data"):
            why_no_pictures(rewritten(run, "digests", "data", value=digest))


def test_pipes_and_devices_are_not_read(run: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    classes = tmp_path / "pictures" / "class"
    classes.mkdir(parents=True)
    os.mkfifo(classes / "picture.png")
    for named in (pipe, classes.parent, "/dev/zero", "/dev/stdin", "a\0b.npz", "x" * 100_000, "~nobody-here/x.npz"):
        assert "could not be" in why_no_pictures(rewritten(run, "spec", "data", "place", value=str(named)))


def test_large_files_are_read_only_for_who_names_them(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_LARGEST_UNASKED", 1000)
    file = tmp_path / "data.csv"
    file.write_text("label,a\n" + "0,0.5\n" * 500)
    assert "could not be loaded" in why_no_pictures(rewritten(run, "spec", "data", "place", value=str(file)))
    assert "digest differs" in why_no_pictures(run, data=str(file))


def test_large_pictures_are_read_one_at_a_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load_dataset("digits")
    asked: list[int] = []

    class Watched:
        name, input_shape, input_range = digits.name, digits.input_shape, digits.input_range

        def inputs(self, indices: list[int]) -> Any:
            asked.append(len(indices))
            return digits.inputs(indices)

    (source,) = sources.load_sources([run])
    watched = dataclasses.replace(source, inputs=sources.Inputs(Watched()))  # type: ignore[arg-type]
    found, why, every = gallery._pictures(watched, [0, 3, 5])
    assert (why, every, sorted(found), asked) == (None, 1, [0, 3, 5], [1, 1, 1])
    monkeypatch.setattr(gallery, "_LARGEST_SIDE", 4)
    assert gallery._pictures(watched, [0])[2] == 2


def test_a_name_is_no_formula_for_a_spreadsheet(run: Path, tmp_path: Path) -> None:
    named = run.rename(tmp_path / '=HYPERLINK("http:evil")')
    shown = build_content(
        ReportRequest(runs=(named, made_run(tmp_path / "@b", load_dataset("digits"), source="digits", inputs=12)))
    )
    tables = [shown.approximate, shown.bounded, shown.class_radii, shown.costs, shown.classes[0].table]
    for table in tables:
        assert table is not None
        cells = [cell for row in csv.reader(io.StringIO(table.copies["CSV"])) for cell in row]
        assert not any(cell.startswith(("=", "+", "@")) for cell in cells)
        assert any(cell.startswith("'=HYPERLINK") for cell in cells)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\u200bb", r"a\u200bb"),
        ("a\u200db", r"a\u200db"),
        ("\u200dé", r"\u200dé"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("é\u200d\u200dé", r"é\u200d\u200dé"),
        ("a\u00adb\u2060\u3164", r"a\u00adb\u2060\u3164"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_takes_no_room_is_shown(text: str, expected: str) -> None:
    assert escape_invisible(text) == expected


def test_only_pages_are_overwritten(run: Path, tmp_path: Path) -> None:
    request = ReportRequest(runs=(run,), gallery=0)
    page = tmp_path / "report.html"
    assert write_report(request, page) == write_report(request, page)
    results = (run / "results.sqlite").read_bytes()
    for wrong in (run / "results.sqlite", run / "manifest.json", run, Path("/dev/null")):
        with pytest.raises(RunError):
            write_report(request, wrong)
    assert (run / "results.sqlite").read_bytes() == results
    assert not Path("/dev/null").is_file()
    (tmp_path / "empty.html").touch()
    assert write_report(request, tmp_path / "empty.html") > 0


def test_a_damaged_cache_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cache" / "charts.js"
    monkeypatch.setattr(javascript, "_cache_file", lambda _: file)
    monkeypatch.setattr(javascript, "_build_bundle", lambda: "whole")
    assert javascript.chart_library() == "whole"
    kept = file.read_bytes()
    monkeypatch.setattr(javascript, "_build_bundle", lambda: "made anew")
    assert javascript.chart_library() == "whole"
    for damaged in (kept[:-1], b"", kept.replace(b"whole", b"alert(1)"), b"\xff\n\xff", b"alert(1)"):
        file.write_bytes(damaged)
        assert javascript.chart_library() == "made anew"
        file.write_bytes(kept)


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.setattr(javascript, "_cache_file", lambda _: tmp_path / "cache" / "charts.js")
    monkeypatch.setattr(javascript, "_build_bundle", lambda: "whole")
    assert javascript.chart_library() == "whole"


@pytest.mark.parametrize("missing", ["jinja2", "vl_convert"])
def test_a_missing_extra_is_named(run: Path, tmp_path: Path, missing: str) -> None:
    blocked = f"import sys; sys.modules[{missing!r}] = None"
    no_cache = "from smoothcert.report import javascript; javascript._read_cache = lambda _: None"
    script = f"{blocked}; {no_cache}; from smoothcert.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", script, "report", str(run), "-o", str(tmp_path / "report.html")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "smoothcert[report]" in done.stderr
    assert "Traceback" not in done.stderr


def test_very_long_texts_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    digits = load_dataset("digits")
    names = np.array([f"{k}" + "n" * 500_000 for k in range(10)])
    np.savez(file, x=(digits.inputs(slice(0, 40)) * 255).astype(np.uint8), y=digits.labels[:40], class_names=names)
    run = made_run(tmp_path / "run", load_dataset(str(file)), source=str(file), inputs=40, grid=256)
    rewritten(run, "data", "name", value="d" * 5_000_000)
    page = render_page(build_content(ReportRequest(runs=(run,))))
    assert len(page) < 5_000_000
    assert "more characters" in page.decode()
