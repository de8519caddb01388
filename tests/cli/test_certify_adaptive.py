"""`certify --decide` and `--precision` on the command line: what is printed, what is refused, and what a kill costs."""

from __future__ import annotations

import csv
import json
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from cli_runner import command, environment, smoothcert

MODEL = ("--model", "sample_models:logistic_digits", "--data", "digits", "--sigma", 0.25)
SMALL = ("--n0", 20, "--n", 2000, "--alpha", 0.01, "--max", 70, "--seed", 1, "--batch", 128)
DECIDE = ("--decide", "0.2,0.1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("decide") / "run"
    done = smoothcert("certify", *MODEL, *SMALL, *DECIDE, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


def rows(out: Path) -> list[tuple[object, ...]]:
    """Everything but the seconds."""
    connection = sqlite3.connect(out / "results.sqlite", timeout=30)
    try:
        verdicts = connection.execute("SELECT * FROM verdicts ORDER BY idx, place").fetchall()
        return verdicts + connection.execute("SELECT * FROM tallies ORDER BY idx, stage, start").fetchall()
    finally:
        connection.close()


def test_the_table_shows_the_decided_radii_and_what_was_spent(run: Path) -> None:
    shown = smoothcert("table", run)
    heading = shown.stdout.splitlines()[0].split()
    assert heading[-3:] == ["samples", "r=0.1", "r=0.2"]
    assert "samples for 70 inputs" in shown.stdout
    assert "selection included" in shown.stdout
    assert "only the radii 0.1, 0.2 were decided" in shown.stdout
    (found,) = json.loads(smoothcert("table", run, "--json").stdout)
    drawn = sum(row[3] - row[2] for row in rows(run) if row[1] in ("SELECTION", "ESTIMATION"))
    assert found["samples"] == drawn
    assert found["samples_per_input"] == pytest.approx(drawn / 70)
    assert found["samples_share"] == pytest.approx(drawn / (70 * 2020))
    assert found["samples_share"] < 0.7
    assert found["decided_radii"] == [0.1, 0.2]
    assert set(found["certified_accuracy"]) == {"0.1", "0.2"}


def test_other_radii_are_not_shown_as_if_they_were_known(run: Path) -> None:
    (found,) = json.loads(smoothcert("table", run, "--json", "--radii", "0.1,0.15,0.2,0.3").stdout)
    accuracy = found["certified_accuracy"]
    assert accuracy["0.15"] == accuracy["0.2"]
    assert accuracy["0.3"] is None
    shown = smoothcert("table", run, "--radii", "0.15,0.2,0.3").stdout
    assert "r=0.15 not decided: the figure is that of the next larger decided radius" in shown
    refused = smoothcert("table", run, "--classes", "--radii", "0.3")
    assert refused.returncode == 5
    assert "did not decide radius 0.3" in refused.stderr


def test_exports_say_how_many_samples_an_input_took(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    assert smoothcert("export", run, "--format", "csv", "-o", out).returncode == 0
    found = list(csv.DictReader(out.read_text().splitlines()))
    assert {float(row["radius"]) for row in found} <= {0.0, 0.1, 0.2}
    assert all(84 <= float(row["samples"]) <= 2020 for row in found)


def test_recertify_stays_with_the_question(run: Path) -> None:
    shown = smoothcert("recertify", run, "--alpha", 0.001, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)[0]["decided_radii"] == [0.1, 0.2]
    refused = smoothcert("recertify", run, "--certificate", "gaussian-two-class")
    assert refused.returncode == 2
    assert "anytime-valid" in refused.stderr
    refused = smoothcert("recertify", run, "--n", 30)
    assert refused.returncode == 2
    assert "first looked at after 64" in refused.stderr


def test_precision(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = smoothcert("certify", *MODEL, *SMALL[:-6], "--max", 8, "--seed", 1, "--precision", 0.1, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "samples for 8 inputs" in done.stdout
    assert "were decided" not in done.stdout
    compared = smoothcert("compare", out, out)
    assert compared.returncode == 0, compared.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--decide", "0.1,much"), "expected radii such as"),
        (("--decide", "0.1", "--precision", "0.1"), "use one of them"),
        (("--decide", "-0.1"), "positive finite"),
        (("--precision", "0"), "positive finite"),
        (("--decide", "0.9"), "can never decide a radius of 0.9"),
        (("--decide", "0.1", "--certificate", "dipole"), "no anytime-valid test"),
        (("--decide", "0.1", "--certificate", "gaussian", "--certificate", "li"), "name one"),
        (("--decide", "0.1", "--n", "5"), "use n ≥"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = smoothcert("certify", *MODEL, *SMALL, *words, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_another_question_is_another_run(run: Path) -> None:
    done = smoothcert("certify", *MODEL, *SMALL, "--decide", "0.1", "--out", run)
    assert done.returncode == 5
    assert "spec.question.radii" in done.stderr
    resumed = smoothcert("certify", "--resume", run, "--decide", "0.1")
    assert resumed.returncode == 2
    assert "leave --decide out" in resumed.stderr


def test_killed_and_resumed(run: Path, tmp_path: Path) -> None:
    """Killed while the second shard of six inputs is drawn, and resumed by one worker."""
    out = tmp_path / "run"
    process = subprocess.Popen(
        command("certify", *MODEL, *SMALL, *DECIDE, "--out", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if (out / "manifest.json").exists() and rows(out):
            break
        time.sleep(0.005)
    process.kill()
    process.wait(timeout=60)
    resumed = smoothcert("certify", "--resume", out, "--workers", 1)
    assert resumed.returncode == 0, resumed.stderr
    assert rows(out) == rows(run)
