"""`--sigma-scale`: a run from a csv file to a checked certificate, in the scaled norm and said so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli_runner import environment, invoke, smoothcert
from smoothcert.cli.main import app
from smoothcert.errors import RunError, SmoothcertError
from smoothcert.runs.store import RunStore, read_manifest
from tabular_models import FEATURES, make_frame, write_csv

MODEL = "tabular_models:two_logits"
SETTINGS = ("--sigma", 0.5, "--input-range", "any", "--n0", 20, "--n", 300, "--seed", 1, "--batch", 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scales")


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    return write_csv(folder / "animals.csv", count=6, classes=("0", "1"))


@pytest.fixture(scope="module")
def run(folder: Path, data: Path) -> Path:
    done = certify(data, folder / "run", "--sigma-scale", "std")
    assert done.exit_code == 0, done.output
    assert "features are scaled by their standard deviations in animals itself" in done.stderr
    assert "noise is added in float32" in done.stderr
    assert "radii are in the scaled l2 norm" in done.stdout
    return folder / "run"


def certify(data: Path, out: Path, *more: object, verb: str = "certify", model: str = MODEL):
    settings = SETTINGS if verb == "certify" else (*SETTINGS[:4], *SETTINGS[6:])
    return invoke(app, verb, "--model", model, "--data", data, *settings, *more, "--out", out)


def refuse(data: Path, out: Path, *more: object, model: str = MODEL) -> str:
    """The message of the error."""
    with pytest.raises(SmoothcertError) as caught:
        certify(data, out, *more, model=model)
    return str(caught.value)


def test_the_numbers_are_in_the_manifest(run: Path) -> None:
    frame, _ = make_frame(6, seed=1)
    expected = np.std(frame.to_numpy().astype(np.float64), axis=0)
    assert read_manifest(run).spec.noise.scale == pytest.approx(expected, rel=1e-12)
    with RunStore.open(run) as store:
        assert any("scaled l2 distance" in str(point.guarantee) for point in store.points())


def test_it_is_resumed_by_the_same_command_and_by_resume(run: Path, data: Path) -> None:
    assert "6 of 6 inputs are already" in certify(data, run, "--sigma-scale", "std").stderr
    assert "6 of 6 inputs are already" in invoke(app, "certify", "--resume", run).stderr
    numbers = ",".join(map(repr, read_manifest(run).spec.noise.scale or ()))
    assert "6 of 6 inputs are already" in certify(data, run, "--sigma-scale", numbers).stderr
    assert "spec.noise.scale" in refuse(data, run, "--sigma-scale", "1,2,3")
    assert "spec.noise.scale" in refuse(data, run)


def test_it_is_verified_with_its_samples(run: Path, data: Path, folder: Path) -> None:
    checked = invoke(app, "verify", run, "--replay", MODEL, 3)
    assert checked.exit_code == 0, checked.output
    assert "the change |x'_j - x_j| of each feature is divided by its scale s_j" in checked.stdout
    invoke(app, "export", run, "--format", "certificate", "-o", folder / "certificates")
    one = sorted((folder / "certificates").glob("*.json"))[0]
    assert len(json.loads(one.read_text())["smoothing"]["noise"]["scale"]) == 3
    stated = invoke(app, "verify", one)
    assert stated.exit_code == 0
    assert "in scaled l2 distance" in stated.stdout
    again = invoke(app, "recertify", run, "--alpha", 0.01, "--out", folder / "again")
    assert "radii are in the scaled l2 norm" in again.stdout
    assert invoke(app, "verify", folder / "again", "--replay", MODEL, 1).exit_code == 0


def test_what_tables_exports_and_pages_say(run: Path, data: Path, folder: Path) -> None:
    (document,) = json.loads(invoke(app, "table", run, "--json").stdout)
    assert document["scale"] == list(read_manifest(run).spec.noise.scale or ())
    exported = invoke(app, "export", run, "--format", "json", "-o", folder / "run.json")
    assert "does not state the norm" not in exported.stderr
    assert json.loads((folder / "run.json").read_text())["scale"] == document["scale"]
    assert "does not state the norm" in invoke(app, "export", run, "-o", folder / "run.tsv").stderr
    invoke(app, "report", run, "-o", folder / "page.html", "--data", data)
    page = (folder / "page.html").read_text()
    assert "after the change of each feature was divided by its scale" in page
    assert "radii are in the scaled l2 norm" in page


def test_runs_of_other_scales_are_not_compared(run: Path, data: Path, folder: Path) -> None:
    certify(data, folder / "other", "--sigma-scale", "10,5,3")
    with pytest.raises(RunError, match="norms of different scales"):
        invoke(app, "compare", run, folder / "other")
    table = invoke(app, "table", run, folder / "other").stdout
    assert table.count("in the scaled l2 norm") == 2
    with pytest.raises(RunError, match="different norms"):
        invoke(app, "plot", run, folder / "other", "-o", folder / "x.png")
    invoke(app, "report", run, folder / "other", "-o", folder / "two.html")
    assert "their radii cannot be compared" in (folder / "two.html").read_text()


def test_it_is_attacked_in_scaled_units(run: Path, data: Path) -> None:
    attacked = invoke(app, "attack", run, "--radius", "certified", "--radius", "3", "--steps", 5, "--n", 300)
    assert attacked.exit_code == 0, attacked.output
    assert "distances are in the scaled l2 norm" in attacked.output
    lines = [json.loads(line) for line in (run / "attack.jsonl").read_text().splitlines()[1:]]
    assert any(line["distance"] > 0.5 for line in lines)
    assert any(line["fate"] == "changed" for line in lines if line["radius"] == "3"), "three deviations are enough"
    assert not any(line["fate"] == "changed" for line in lines if line["radius"] == "certified")
    checked = invoke(app, "verify", run, "--data", data)
    assert checked.exit_code == 0, checked.output


def test_predictions_have_a_scale_too(data: Path, folder: Path) -> None:
    done = certify(data, folder / "predicted", "--sigma-scale", "10,5,3", verb="predict")
    assert done.exit_code == 0, done.output
    assert read_manifest(folder / "predicted").spec.noise.scale == (10.0, 5.0, 3.0)
    assert invoke(app, "verify", folder / "predicted", "--replay", MODEL, 2).exit_code == 0


def test_memory_and_the_checker(data: Path, folder: Path) -> None:
    memory = folder / "memory.sqlite"
    done = certify(data, folder / "remembering", "--sigma-scale", "10,5,3", "--memory", memory)
    assert done.exit_code == 0, done.output
    checked = invoke(app, "verify", folder / "remembering", "--memory", memory, "--data", data)
    assert checked.exit_code == 0, checked.output
    assert "gaussian on scaled features" in invoke(app, "memory", "stats", memory).output


def test_the_training_part_is_measured_if_there_is_one(folder: Path) -> None:
    draw = np.random.default_rng(0)
    train = (draw.normal(size=(200, 3)) * [1.0, 10.0, 100.0]).astype(np.float32)
    np.savez(folder / "parts.npz", x_train=train, y_train=np.arange(200) % 2, x_test=train[:4], y_test=[0, 1, 0, 1])
    done = certify(folder / "parts.npz", folder / "parts", "--sigma-scale", "std")
    assert done.exit_code == 0, done.output
    assert "standard deviations in the training part of parts" in done.stderr
    expected = np.std(train.astype(np.float64), axis=0)
    assert read_manifest(folder / "parts").spec.noise.scale == pytest.approx(expected, rel=1e-12)


def test_columns_are_measured_in_the_order_of_the_model(folder: Path) -> None:
    turned = write_csv(folder / "turned.csv", columns=tuple(reversed(FEATURES)))
    few = ("--max", 1, "--n0", 4, "--n", 12)  # a model of frames is slow
    done = certify(turned, folder / "turned", "--sigma-scale", "std", *few, model="tabular_models:pipeline")
    assert done.exit_code == 0, done.output
    expected = np.std(make_frame(2, seed=1)[0].to_numpy().astype(np.float64), axis=0)
    assert read_manifest(folder / "turned").spec.noise.scale == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sigma-scale", "1,2"), "inputs have 3 features, and 2 numbers were given for the scale"),
        (("--sigma-scale", "1,0,2"), "the scale of feature 1 is 0"),
        (("--sigma-scale", "1,nan,2"), "the scale of feature 1 is nan"),
        (("--sigma-scale", "deviation"), "expected std, or a number for each feature such as 0.1,2,30"),
        (("--sigma-scale", "std", "--grid", "256"), "lie on no grid: leave --grid out"),
        (("--sigma-scale", "std", "--noise-at", "first-layer"), "leave --noise-at out"),
        (("--sigma-scale", "std", "--sigma-rule", "optimised"), "--sigma-scale is for one level"),
    ],
)
def test_what_is_refused(data: Path, tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    assert message in refuse(data, tmp_path / "run", *options)
    assert not (tmp_path / "run").exists()


def test_a_constant_feature_and_images(tmp_path: Path) -> None:
    frame, _ = make_frame(6, seed=1)
    frame.assign(weight=7.0, label=[0, 1] * 3).to_csv(tmp_path / "constant.csv", index=False)
    message = refuse(tmp_path / "constant.csv", tmp_path / "run", "--sigma-scale", "std")
    assert "the standard deviation of feature 'weight' is 0" in message
    np.savez(tmp_path / "images.npz", x=np.random.default_rng(0).random((4, 1, 8, 8)), y=[0, 1, 2, 3])
    for scale in ("std", "1,2,3"):
        message = refuse(
            tmp_path / "images.npz",
            tmp_path / "run",
            "--sigma-scale",
            scale,
            model="sample_models:digits_by_brightness",
        )
        assert "for tables, and inputs here have the shape (1, 8, 8)" in message


def test_the_checker_alone_states_it(run: Path, folder: Path) -> None:
    invoke(app, "export", run, "--format", "certificate", "-o", folder / "alone")
    command = [sys.executable, "-m", "smoothcert_verify", str(sorted((folder / "alone").glob("*.json"))[1])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "in scaled l2 distance" in done.stdout


def test_help_names_it() -> None:
    assert "--sigma-scale" in smoothcert("certify", "--help").stdout
