"""The command `compare`."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import Result

from cli_runner import invoke, smoothcert
from smoothcert.cli.compare import compare
from smoothcert.errors import InputError, RunError
from smoothcert.records import Norm
from smoothcert.runs import load

app = typer.Typer()
app.command()(compare)

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
LOG_A = (
    "0\t0\t0\t0.6\t1\t1.0\n1\t0\t0\t0.2\t1\t1.0\n2\t1\t1\t0.5\t1\t1.0\n3\t1\t1\t0.2399\t1\t1.0\n"
    "4\t1\t-1\t0.0\t0\t1.0\n5\t1\t0\t0.9\t0\t1.0\n"
)
LOG_B = (
    "0\t0\t0\t0.4\t1\t1.0\n1\t0\t0\t0.4\t1\t1.0\n2\t1\t1\t0.5\t1\t1.0\n3\t1\t-1\t0.0\t0\t1.0\n"
    "4\t1\t1\t0.1\t1\t1.0\n5\t1\t0\t0.3\t0\t1.0\n9\t0\t0\t0.3\t1\t1.0\n"
)


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "first", LOG_A), write(tmp_path / "second", LOG_B)


def write(path: Path, rows: str, header: str = HEADER) -> Path:
    path.write_text(header + rows)
    return path


def call(*arguments: object) -> Result:
    return invoke(app, *arguments)


def test_text_fits_eighty_columns_and_rounds_radii_down(logs: tuple[Path, Path]) -> None:
    printed = call(*logs).stdout
    lines = printed.split("\n")
    assert all(len(line) <= 80 for line in lines)
    assert lines[2].split() == ["6", "5", "3", "1", "1", "0", "1", "1", "1"]
    # The mean of 0.6, 0.2, 0.5, 0.2399 and 0 is 0.30798; to nearest it would be 0.308.
    assert ["A:", "first", "0.307", "0.433"] in [line.split() for line in lines]
    assert ["B:", "second", "0.280", "0.433"] in [line.split() for line in lines]
    # The ratios are 1.5, 0.5 and 1.
    ratios = ["1.000", "0.909", "0.500", "0.550", "0.750", "1.000", "1.250", "1.450", "1.500", "0.333"]
    assert ratios in [line.split() for line in lines]
    assert "increase of the radius" in printed
    assert "Left out: 1 input only in B." in printed
    assert "Not both runs state sigma and alpha" in printed


def test_json_is_complete_and_lists_inputs_when_asked(logs: tuple[Path, Path]) -> None:
    document = json.loads(call(*logs, "--json", "--bins", "-60,0,60").stdout)
    assert document["mean_radius_a"] == pytest.approx((0.6 + 0.2 + 0.5 + 0.2399) / 5, rel=1e-15)
    assert document["histogram"] == {
        "edges_percent": [-60, 0, 60], "counts": [1, 1], "below": 0, "above": 0, "unchanged": 1
    }  # fmt: skip
    assert len(document["notes"]) == 2
    assert "inputs" not in document
    inputs = json.loads(call(*logs, "--format", "json", "--inputs", "--wrong-too").stdout)["inputs"]
    assert [row["index"] for row in inputs] == [0, 1, 2, 3, 4, 5]
    assert inputs[5]["ratio"] == pytest.approx(3.0)
    assert inputs[4]["class_a"] is None


def test_csv_is_one_row_or_one_row_an_input(logs: tuple[Path, Path]) -> None:
    result = call(*logs, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(result.stdout))
    assert (row["run_a"], row["run_b"], row["counted"], row["ratio_max"]) == (
        "first",
        "second",
        "5",
        "1.4999999999999998",
    )
    # Sentences would break the file, so they are printed to standard error.
    assert "only in B" in result.stderr
    rows = list(csv.DictReader(io.StringIO(call(*logs, "--format", "csv", "--inputs", "--digits", "3").stdout)))
    assert [row["radius_a"] for row in rows] == ["0.600", "0.200", "0.500", "0.239", "0.000"]
    assert rows[3]["ratio"] == ""


@pytest.mark.parametrize(
    ("form", "mark"), [("markdown", "| A: first | **0.307** |"), ("latex", r"A: first & \textbf{0.307} &")]
)
def test_documents(logs: tuple[Path, Path], form: str, mark: str) -> None:
    printed = call(*logs, "--format", form).stdout
    assert mark in printed
    assert "Not both runs state" in printed
    listing = call(*logs, "--format", form, "--inputs").stdout
    assert "radius A" in listing
    assert "0.239" in listing


def test_text_listing_comes_with_the_rest(logs: tuple[Path, Path]) -> None:
    printed = call(*logs, "--inputs").stdout
    assert printed.index("A larger") < printed.index("increase of the radius") < printed.index("radius A")
    assert ["3", "1", "1", "–", "0.239", "0.000", "–"] in [line.split() for line in printed.split("\n")]


def test_contradictions_are_loud(tmp_path: Path, logs: tuple[Path, Path]) -> None:
    other = write(tmp_path / "other", "0\t0\t1\t0.4\t0\t1.0\n1\t0\t0\t0.4\t1\t1.0\n")
    printed = call(logs[0], other).stdout
    assert "CONTRADICTION: 1 input is certified as different classes by the two runs (index" in printed
    assert "CONTRADICTION" in call(logs[0], other, "--format", "csv").stderr
    assert json.loads(call(logs[0], other, "--json").stdout)["conflicting"] == 1


def test_figure_is_written_beside_the_numbers(logs: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = tmp_path / "figure.svg"
    printed = call(*logs, "-o", figure, "--title", "Mine").stdout
    assert "A larger" in printed
    assert printed.endswith(f"wrote {figure}\n")
    assert "<!-- Mine -->" in figure.read_text()
    result = call(*logs, "-o", figure, "--json")
    assert json.loads(result.stdout)["both"] == 3
    assert result.stderr == f"wrote {figure}\n"


def test_mistakes_are_sentences(logs: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = logs
    relabelled = write(tmp_path / "relabelled", "0\t3\t0\t0.4\t0\t1.0\n")
    elsewhere = write(tmp_path / "elsewhere", "77\t0\t0\t0.4\t1\t1.0\n")
    predictions = write(tmp_path / "predictions", "0\t0\t0\t1\t1.0\n", "idx\tlabel\tpredict\tcorrect\ttime\n")
    undecided = write(tmp_path / "undecided", "0\t0\t-1\t0.0\t0\t1.0\n")
    for other, problem in (
        (relabelled, "disagree on the labels of 1 of 1 common inputs"),
        (elsewhere, "no input is in all of"),
        (predictions, "predictions without radii"),
        (tmp_path / "absent", "does not exist"),
    ):
        with pytest.raises(RunError, match=problem):
            call(a, other)
    with pytest.raises(RunError, match="no ratio to draw"):
        call(a, undecided, "-o", tmp_path / "figure.png")
    with pytest.raises(InputError, match="expected a width in percent"):
        call(a, b, "--bins", "wide")
    with pytest.raises(InputError, match="text above a figure"):
        call(a, b, "--title", "Mine")
    with pytest.raises(InputError, match=r"expected \.png"):
        call(a, b, "-o", tmp_path / "figure.jpg")
    assert not list(tmp_path.glob("figure*"))
    assert call(a, b, "--format", "html").exit_code == 2
    assert call(a, b, "--digits", "99").exit_code == 2
    assert call(a).exit_code == 2


def test_norms_must_agree(logs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A log does not state its norm, so the norm of one run is changed after reading."""
    a, b = load.load_all(logs)
    monkeypatch.setattr(load, "load_pair", lambda *paths: (a, replace(b, norm=Norm.L1)))
    with pytest.raises(RunError, match="first has radii in l2 and second in l1") as refused:
        call(*logs)
    assert refused.value.exit_code == 5


def test_exit_codes_of_the_program(logs: tuple[Path, Path], tmp_path: Path) -> None:
    assert smoothcert("compare", *logs).returncode == 0
    refused = smoothcert("compare", logs[0], tmp_path / "absent")
    assert (refused.returncode, refused.stdout) == (5, "")
    assert refused.stderr.startswith("smoothcert: ")
    assert refused.stderr.count("\n") == 1
    assert smoothcert("compare", *logs, "--bins", "0").returncode == 2


def test_runs_of_our_own(tmp_path: Path) -> None:
    """Run directories state sigma and alpha, so both are compared; one run is recertified at another alpha."""
    run, again = tmp_path / "run", tmp_path / "again"
    model = ("--model", "sample_models:digits_by_brightness", "--num-classes", 10, "--data", "digits")
    sampling = ("--sigma", 0.25, "--n0", 20, "--n", 300, "--max", 6, "--seed", 1, "--batch", 64)
    made = smoothcert("certify", *model, *sampling, "--out", run)
    assert made.returncode == 0, made.stderr
    redone = smoothcert("recertify", run, "--alpha", "0.05", "--out", again)
    assert redone.returncode == 0, redone.stderr
    document = json.loads(smoothcert("compare", again, run, "--json", "--wrong-too").stdout)
    assert document["common"] == 6
    assert document["both"] > 0
    # More error probability never certifies less.
    assert document["b_larger"] == document["only_b"] == document["conflicting"] == 0
    assert document["ratio_min"] >= 1
    assert document["notes"] == ["The runs differ in alpha: A has 0.05, B has 0.001."]


def test_no_heavy_import(logs: tuple[Path, Path]) -> None:
    code = (
        "import sys; from pathlib import Path; from smoothcert.cli.compare import compare;"
        "assert 'numpy' not in sys.modules; compare(*map(Path, sys.argv[1:]));"
        "found = {'torch', 'scipy', 'matplotlib', 'pandas', 'rich'} & set(sys.modules); assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code, *map(str, logs)], check=True, timeout=60, stdout=subprocess.DEVNULL)
