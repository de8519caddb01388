"""`python -m experiments` from a user's view."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_runner import SUPPORT, invoke
from cli_runner import environment as support_environment
from experiments.__main__ import app
from experiments.reproduction import list_recipes
from smoothcert.errors import InputError

CONE = ("sukenik-cone", "--only", "N=2, constant")
REPOSITORY = SUPPORT.parent.parent


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "experiments", *map(str, arguments)]


def environment() -> dict[str, str]:
    usual = support_environment()
    return {**usual, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), usual["PYTHONPATH"]])}


def experiments(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=environment(), timeout=300, check=False
    )


QUICK = [name for name in list_recipes() if name != "cohen-tables"]


def test_list_shows_every_recipe() -> None:
    text = invoke(app, "--list").stdout
    assert [line.split()[0] for line in text.splitlines()] == list_recipes()
    facts = json.loads(invoke(app, "--list", "--json").stdout)
    assert {fact["name"]: fact["rows"] for fact in facts}["jeong-mnist"] == 22


def test_the_module_is_light() -> None:
    program = "import sys, experiments.__main__; print([m for m in ('torch', 'numpy', 'tomllib') if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "NAME is required"),
        (("levine",), r"no recipe 'levine'.*levine-small-mnist"),
        (("cohen-mnist", "--only", "dipole"), "no row of cohen-mnist matches dipole"),
        (("cohen-mnist", "--logs", "nowhere"), "nowhere is not a folder"),
    ],
)
def test_usage_errors_are_explained(
    words: tuple[str, ...], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=complaint):
        invoke(app, *words)
    assert list(tmp_path.iterdir()) == []


def test_status_runs_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = invoke(app, "cohen-mnist", "--status").stdout
    assert "lenet-0.25.safetensors: not started" in text
    assert "0 of 3 rows are finished, in runs/reproduce/cohen-mnist." in text
    assert "Not finished (3 of 3 rows): gaussian 0.25; gaussian 0.50; gaussian 1.00." in text
    document = json.loads(invoke(app, "cohen-mnist", "--status", "--json").stdout)
    assert document["rows"] == []
    assert [step["state"] for step in document["steps"]] == ["not started"] * 6
    assert list(tmp_path.iterdir()) == []


def test_without_the_logs_a_table_of_logs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only named folders are searched, even if another folder could hold the logs."""
    (tmp_path / "shared" / "reference").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("SMOOTHCERT_LOGS", raising=False)
    with pytest.raises(
        InputError, match=r"authors released: give their folder with --logs DIR or in .*SMOOTHCERT_LOGS"
    ):
        invoke(app, "cohen-tables")
    monkeypatch.setenv("SMOOTHCERT_LOGS", "nowhere")
    with pytest.raises(InputError, match="SMOOTHCERT_LOGS nowhere is not a folder"):
        invoke(app, "cohen-tables")


def test_the_logs_may_be_named_by_the_environment(
    shared_reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMOOTHCERT_LOGS", str(shared_reference))
    document = json.loads(invoke(app, "cohen-tables", "--out", tmp_path / "out", "--json").stdout)
    assert document["missing"] == []


def test_cohen_tables_from_the_released_logs(shared_reference: Path, tmp_path: Path) -> None:
    words = ("cohen-tables", "--logs", shared_reference, "--out", tmp_path / "out")
    document = json.loads(invoke(app, *words, "--json").stdout)
    assert document["missing"] == []
    by_table: dict[str, list[dict[str, float]]] = {}
    for row in document["rows"]:
        by_table.setdefault(row["table"], []).append(row)
    cohen2, cohen3, sukenik4, cohen4, jeong = by_table.values()
    assert [f"{row['ours']:.2f}" for row in cohen2] == [f"{row['paper']:.2f}" for row in cohen2]
    assert len(cohen2) == 21
    assert max(abs(row["difference"]) for row in cohen3) <= 0.025
    assert [f"{row['ours']:.3f}" for row in sukenik4] == [f"{row['paper']:.3f}" for row in sukenik4]
    assert max(abs(row["difference"]) for row in cohen4) <= 0.03
    assert max(abs(row["difference"]) for row in jeong) <= 0.003
    page = (tmp_path / "out" / "result.md").read_text()
    assert "| ImageNet 0.50 | certified at 1.5 | 0.29 | 0.286 | -0.004 | 500 | – |" in page
    assert json.loads(invoke(app, *words, "--json").stdout) == document  # the same again
    quick = json.loads(invoke(app, *words[:3], "--out", tmp_path / "quick", "--quick", "--json").stdout)
    assert quick["rows"] == document["rows"]


def test_an_interrupted_run_says_how_to_resume_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "cone"
    process = subprocess.Popen(
        command(*CONE, "--out", out, "--threads", 1), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (out / "mlp-2.safetensors.partial").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"Resume with: python -m experiments sukenik-cone --out {out} --threads 1 --only 'N=2, constant'" in errors
    assert "Traceback" not in errors
    assert printed == ""
    assert not (out / "mlp-2.safetensors").exists()
    assert "Not finished" in (out / "result.md").read_text()
    done = experiments(*CONE, "--out", out, "--threads", 1, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (accuracy, acr) = document["rows"]
    assert (accuracy["paper"], accuracy["points"], accuracy["n"], acr["paper"]) == (0.943, 200, 10_000, None)
    assert 0.85 < accuracy["ours"] <= 1
    assert accuracy["difference"] == pytest.approx(accuracy["ours"] - 0.943)
    again = experiments(*CONE, "--out", out, "--json")
    assert json.loads(again.stdout) == document
    assert "[1/" not in again.stderr


@pytest.mark.network
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", QUICK)
def test_every_quick_recipe_runs_through(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        command(name, "--quick", "--out", tmp_path / "out", "--json"), capture_output=True, text=True,
        env=environment(), cwd=tmp_path, timeout=1100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["missing"] == []
    assert not document["comparable"]
    assert document["rows"]
    assert all(row["ours"] is not None for row in document["rows"])
    assert "NOT comparable" in (tmp_path / "out" / "result.md").read_text()
