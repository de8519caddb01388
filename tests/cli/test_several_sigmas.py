"""`certify --sigma A,B`: one ordinary run for each level, and one table of all."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli_runner import invoke
from smoothcert.cli import running
from smoothcert.cli.main import app
from smoothcert.errors import InputError, InterruptedRunError, RunError
from smoothcert.runs.store import read_manifest
from smoothcert.spec import ConstantLevel

RUN = ("--model", "sample_models:digits_by_brightness", "--num-classes", 10, "--data", "digits", "--batch", 64)
SMALL = ("--n0", 20, "--n", 300, "--max", 6, "--seed", 1)
CERTIFY = ("certify", *RUN, *SMALL)


def read_votes(run: Path) -> list[Any]:
    with running.RunStore.open(run) as store:
        return [(point.index, point.verdict.prediction, point.verdict.radius) for point in store.points()]


@pytest.mark.slow
def test_each_level_is_the_run_it_would_be_alone(tmp_path: Path) -> None:
    out = tmp_path / "x"
    done = invoke(app, *CERTIFY, "--sigma", "0.12,0.5", "--out", out)
    assert [f"run {k} of 2: {out / name}" in done.stderr for k, name in ((1, "sigma-0.12"), (2, "sigma-0.5"))] == [
        True
    ] * 2
    assert [line.split()[0] for line in done.stdout.splitlines()[2:4]] == ["sigma-0.12", "sigma-0.5"]
    assert f"smoothcert table {out / 'sigma-0.12'} {out / 'sigma-0.5'}" in done.stderr
    for level in (0.12, 0.5):
        alone = tmp_path / f"{level}"
        invoke(app, *CERTIFY, "--sigma", level, "--out", alone)
        assert read_manifest(out / f"sigma-{level:g}").spec.sigma == ConstantLevel(level=level)
        assert read_votes(out / f"sigma-{level:g}") == read_votes(alone)
    rows = json.loads(invoke(app, *CERTIFY, "--sigma", "0.12,0.5", "--out", out, "--json").stdout)
    assert [(row["run"], row["points"]) for row in rows] == [("sigma-0.12", 6), ("sigma-0.5", 6)]
    assert invoke(app, "certify", "--resume", out / "sigma-0.5").exit_code == 0


@pytest.mark.slow
def test_without_out_each_run_has_its_usual_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke(app, *CERTIFY, "--sigma", "0.12,0.5")
    assert sorted(path.name.rpartition("-")[2] for path in (tmp_path / "runs").iterdir()) == ["0.12", "0.5"]


@pytest.mark.slow
def test_the_same_command_resumes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = running.execute_run

    def interrupt(run: Any, **settings: Any) -> None:
        if run.spec.sigma == ConstantLevel(level=0.25):
            raise KeyboardInterrupt
        execute(run, **settings)

    command = (*CERTIFY, "--sigma", "0.12,0.25,0.5", "--out", tmp_path / "x")
    with monkeypatch.context() as patch:
        patch.setattr(running, "execute_run", interrupt)
        with pytest.raises(InterruptedRunError, match=r"0 of 6 inputs are stored\. Repeat the command to resume"):
            invoke(app, *command)
    assert not (tmp_path / "x" / "sigma-0.5").exists()
    done = invoke(app, *command)
    assert "6 of 6 inputs are already in" in done.stderr
    assert (tmp_path / "x" / "sigma-0.5").exists()


def test_a_stop_during_the_last_shard_starts_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = running.execute_run

    def stop_at_the_end(run: Any, *, stop: Any, **settings: Any) -> None:
        execute(run, stop=stop, **settings)
        stop.set()

    monkeypatch.setattr(running, "execute_run", stop_at_the_end)
    with pytest.raises(InterruptedRunError, match=r"stopped after run 1 of 2\. Repeat the command to resume"):
        invoke(app, *CERTIFY, "--sigma", "0.12,0.5", "--out", tmp_path / "x")
    assert not (tmp_path / "x" / "sigma-0.5").exists()


@pytest.mark.parametrize(
    ("sigma", "words"),
    [
        ("0.12,-1", "sigma"),
        ("0.12,", "expected a number, or several such as 0.12,0.25,0.5"),
        ("small", "expected a number, or several"),
        ("0.25,0.250", "the same level twice"),
    ],
)
def test_all_levels_are_checked_before_the_first_run(tmp_path: Path, sigma: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        invoke(app, *CERTIFY, "--sigma", sigma, "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_several_levels_and_a_rule_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="either --sigma, one level for all inputs, or --sigma-rule"):
        invoke(app, *CERTIFY, "--sigma", "0.12,0.5", "--sigma-rule", "rule.safetensors", "--out", tmp_path / "x")


@pytest.mark.slow
def test_runs_are_not_put_into_a_run(tmp_path: Path) -> None:
    out = tmp_path / "x"
    invoke(app, *CERTIFY, "--sigma", 0.25, "--out", out)
    with pytest.raises(RunError, match="is a run itself"):
        invoke(app, *CERTIFY, "--sigma", "0.12,0.5", "--out", out)


@pytest.mark.slow
def test_predictions(tmp_path: Path) -> None:
    command = ("predict", *RUN, "--n", 200, "--max", 25, "--seed", 1, "--out", tmp_path / "p", "--sigma")
    text = invoke(app, *command, 0.25).stdout
    lines = text.splitlines()
    assert lines[0].split() == ["index", "label", "prediction", "outcome"]
    assert lines[22] == "… and 5 more; --json lists all"
    assert sum(map(int, lines[23].replace(",", "").split()[2::3] or [0])) <= 25
    assert "class " in lines[23]
    (document,) = json.loads(invoke(app, *command, 0.25, "--json").stdout)
    assert [answer["index"] for answer in document["answers"]] == list(range(25))
    assert {answer["outcome"] for answer in document["answers"]} <= {"predicted", "abstained"}
    assert "answers" not in json.loads(invoke(app, "table", tmp_path / "p", "--json").stdout)[0]
    both = invoke(app, *command[:-2], tmp_path / "q", "--sigma", "0.12,0.5").stdout
    assert both.index("sigma-0.12:") < both.index("sigma-0.5:")
