"""`smoothcert advise`: what it prints for several kinds of models and data, and that the printed command runs."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import tabular_models
from cli_runner import invoke, smoothcert
from smoothcert.cli.advise import advise
from smoothcert.cli.certify import certify
from smoothcert.cli.verb import Verb
from smoothcert.errors import InputError, ModelError
from smoothcert.runs import pilot

app = typer.Typer()
app.command(cls=Verb)(advise)
app.command(cls=Verb)(certify)

DIGITS = ("--model", "sample_models:digits_by_brightness", "--data", "digits")


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot, "_VOTING_SECONDS", 0.02)
    monkeypatch.setattr(pilot, "_OTHER_SECONDS", 0.002)
    monkeypatch.setattr(pilot, "_TUNED_SAMPLES", 1)


def advise_json(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(app, "advise", *arguments, "--json").stdout)
    return found


def run_command(command: str, folder: Path) -> None:
    name, *words = shlex.split(command)
    assert name == "smoothcert"
    result = invoke(app, *words, "--out", folder)
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_the_printed_command_runs(tmp_path: Path) -> None:
    """The text and the JSON have one; it takes few samples here, because the budget is short."""
    found = advise_json(*DIGITS, "--sigma", 0.1, "--inputs", 4, "--budget", "20s", "--radius", 0.05)
    assert found["plan"]["decide"] == 0.05
    assert found["found"]["grid"] == 17
    run_command(found["choice"]["command"], tmp_path / "run")


@pytest.mark.slow
def test_every_alternative_runs(tmp_path: Path) -> None:
    model = ("--model", "sample_models:logistic_digits", "--data", "digits")
    found = advise_json(*model, "--sigma", 0.1, "--inputs", 2)
    commands = [one["command"] for one in found["alternatives"] if one["command"] and "1000000" not in one["command"]]
    assert len(commands) >= 6
    for number, command in enumerate(commands):
        short = command.replace("--n 100000", "--n 2000").replace("memory.db", str(tmp_path / "memory.db"))
        run_command(short, tmp_path / str(number))


@pytest.mark.slow
def test_the_text() -> None:
    text = invoke(app, "advise", *DIGITS, "--sigma", "0.05,0.1", "--inputs", 10).stdout
    assert "445 inputs of shape 1x8x8, labelled; noise in exact steps of 17 levels" in " ".join(text.split())
    (command,) = [line.strip() for line in text.splitlines() if line.startswith("  smoothcert certify")]
    assert "--model sample_models:digits_by_brightness --data digits --sigma" in command
    assert "--skip 44 --max 10" in command
    assert text.count("<- used below") == 1
    assert max(len(line) for line in text.splitlines() if "smoothcert certify" not in line) <= 100


@pytest.mark.slow
def test_levels_are_tried_if_none_is_given() -> None:
    found = advise_json(*DIGITS)
    assert [votes["sigma"] for votes in found["found"]["votes"]] == [0.12, 0.25, 0.5, 1.0]
    assert found["plan"]["sigma"] in (0.12, 0.25, 0.5, 1.0)


@pytest.mark.slow
def test_the_other_norm() -> None:
    found = advise_json(*DIGITS, "--norm", "l1", "--sigma", 0.1, "--inputs", 2, "--budget", "1m")
    assert found["found"]["norm"] == "l1"
    assert "--noise uniform" in found["choice"]["command"]
    assert found["choice"]["seconds"] <= 60


@pytest.mark.slow
def test_a_table_without_levels_and_a_scikit_learn_model(tmp_path: Path) -> None:
    table = tabular_models.write_csv(tmp_path / "pets.csv", count=20)
    found = advise_json("--model", "tabular_models:pipeline", "--data", table, "--input-range", "any")
    assert found["found"]["grid"] is None
    assert found["found"]["is_labelled"]
    assert found["found"]["clean_accuracy"] == 1.0
    assert "--input-range any" in found["choice"]["command"]
    scaled = advise_json(
        "--model", "tabular_models:pipeline", "--data", table, "--input-range", "any", "--sigma-scale", "std"
    )
    assert [votes["sigma"] for votes in scaled["found"]["votes"]] == [0.12, 0.25, 0.5, 1.0]
    assert "--sigma-scale std" in scaled["choice"]["command"]


@pytest.mark.slow
def test_without_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", np.random.default_rng(0).random((6, 1, 8, 8), dtype=np.float32))
    arguments = ("--model", "sample_models:digits_by_brightness", "--data", tmp_path / "inputs.npy", "--sigma", 0.1)
    found = advise_json(*arguments)
    assert not found["found"]["is_labelled"]
    assert found["found"]["clean_accuracy"] is None
    assert "unchanged" in invoke(app, "advise", *arguments).stdout


@pytest.mark.slow
def test_an_onnx_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper = onnx.helper
    weights = onnx.numpy_helper.from_array(np.eye(64, 10, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 10])],
        [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "net.onnx")
    found = advise_json("--model", tmp_path / "net.onnx", "--data", "digits", "--sigma", 0.1)
    assert "onnxruntime" in found["found"]["backend"]
    assert not found["found"]["has_other_backend"]


@pytest.mark.slow
def test_a_run_that_exists_is_not_mixed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    usual = Path("runs/certify-digits-sample_models-digits_by_brightness-sigma-0.1")
    usual.mkdir(parents=True)
    command = advise_json(*DIGITS, "--sigma", 0.1)["choice"]["command"]
    assert command.endswith(f"--out {usual}-2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*DIGITS, "--norm", "linf"), "--norm linf is unknown: use l2 or l1"),
        ((*DIGITS, "--budget", "-3m"), "--budget -3m must be a positive time"),
        ((*DIGITS, "--radius", "-1"), "--radius -1 must be"),
        ((*DIGITS, "--sigma", "0"), "sigma"),
        (("--data", "digits"), "advice needs --model"),
        (("--data", "digits", "--model", "missing.pth"), r"there is no file missing\.pth"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises((InputError, ModelError), match=message):
        invoke(app, "advise", *arguments)


def test_a_mistake_is_one_sentence_and_no_traceback() -> None:
    result = smoothcert("advise", "--model", "net.pth")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "smoothcert: advice needs --data\n"
