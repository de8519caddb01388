"""A file without a test split: a fifth is held out, said so, never trained on and never called test."""

from __future__ import annotations

import csv
import json
import threading

import numpy as np
import pytest
import typer

import smoothcert as sc
from cli_runner import invoke
from smoothcert.cli import train as verb
from smoothcert.cli.certify import certify
from smoothcert.cli.sigma import app as sigma_app
from smoothcert.data import DatasetPart, load_dataset, load_splits
from smoothcert.errors import DataError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import TrainingConfig, curves_path, held_out_path, run_training
from smoothcert.training.holding_out import hold_out

SETTINGS = [
    "--arch", "mlp-8", "--sigma", 0.25, "--epochs", 2, "--batch", 32, "--seed", 4, "--device", "cpu", "--threads", 1,
]  # fmt: skip


def command(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(verb.train)
    return invoke(app, *SETTINGS, *arguments)


@pytest.fixture
def file(tmp_path):
    """250 labelled 8-bit images, all different, without splits."""
    values = np.random.default_rng(0)
    labels = np.arange(250) % 5
    images = values.integers(0, 200, (250, 1, 4, 4), dtype=np.uint8)
    images[:, 0, 0] = 50 * labels[:, None]
    np.savez(tmp_path / "mine.npz", x=images, y=labels)
    return tmp_path / "mine.npz"


def rows(dataset):
    return {row.tobytes() for row in dataset.inputs(slice(None))}


def test_a_fifth_is_held_out_and_said(file, tmp_path):
    out = tmp_path / "m.safetensors"
    result = command("--data", file, "--out", out)
    assert result.exit_code == 0, result.output
    assert "mine has no test split: 20% of its 250 inputs are held out by a seeded shuffle" in result.stderr
    assert "of the held-out inputs correct under gaussian noise 0.25" in result.stdout
    assert "epoch 2/2" in result.stderr
    assert "held-out accuracy under noise" in result.stderr
    assert "test inputs" not in result.output
    assert f"{file} also holds the inputs that were trained on: certify the 50 held-out inputs" in result.stdout
    assert f"smoothcert certify --model {out} --data {held_out_path(out)} --sigma 0.25" in result.stdout
    facts = load_checkpoint(out).header.training
    assert (facts["hold_out"], facts["noisy_accuracy_split"]) == (0.2, "held-out")
    with curves_path(out).open() as lines:
        assert {line["evaluated_on"] for line in csv.DictReader(lines)} == {"held-out"}


def test_the_held_out_file_has_what_was_not_trained_on_and_certifies(file, tmp_path):
    out = tmp_path / "m.safetensors"
    result = command("--data", file, "--out", out, "--json")
    place = json.loads(result.stdout)["held_out"]
    held_out, whole = load_dataset(place), load_dataset(str(file))
    trained_on, expected = hold_out(whole, share=0.2, seed=4)
    assert rows(held_out) == rows(expected)
    assert len(rows(held_out)) == 50
    assert rows(trained_on) | rows(held_out) == rows(whole)
    assert not rows(trained_on) & rows(held_out)
    assert np.array_equal(held_out.labels, expected.labels)
    assert held_out.levels == 256
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(certify)
    run = tmp_path / "run"
    assert invoke(
        app, "--model", out, "--data", place, "--sigma", 0.25, "--n", 100, "--max", 3, "--out", run
    ).exit_code == 0  # fmt: skip


def test_the_network_never_sees_a_held_out_input(file, tmp_path):
    class Watching:
        """Remembers which inputs were read while the data was split."""

        def __init__(self, whole):
            self.whole, self.read = whole, set()

        def __getattr__(self, name):
            return getattr(self.whole, name)

        def __len__(self):
            return len(self.whole)

        def inputs(self, indices):
            self.read |= set(np.arange(len(self))[indices].tolist())
            return self.whole.inputs(indices)

    watched = Watching(load_dataset(str(file)))
    trained_on, held_out = hold_out(watched, share=0.2, seed=4)
    trained_on.inputs(slice(None))
    assert watched.read == set(trained_on.indices.tolist())
    assert not watched.read & set(held_out.indices.tolist())
    assert trained_on.digest != held_out.digest != watched.digest


def test_resuming_compares_the_rule_and_the_seed(file, tmp_path):
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    whole = load_dataset(str(file), split="train")
    settings = {"arch": "mlp-8", "sigma": 0.25, "seed": 4, "epochs": 2, "batch": 32}
    with pytest.raises(InterruptedRunError):
        run_training(TrainingConfig(**settings, hold_out=0.2), whole, out=out, device="cpu", threads=1, stop=stop)
    assert not held_out_path(out).exists()
    for changes, message in [
        ({}, "hold_out was 0.2, now None"),
        ({"hold_out": 0.1}, r"hold_out was 0\.2, now 0\.1"),
        ({"hold_out": 0.2, "seed": 5}, "seed was 4, now 5"),
    ]:
        with pytest.raises(ManifestMismatchError, match=message):
            run_training(TrainingConfig(**(settings | changes)), whole, out=out, resume=True, device="cpu", threads=1)
    assert command("--data", file, "--out", out, "--resume").exit_code == 0
    clean = tmp_path / "clean.safetensors"
    assert command("--data", file, "--out", clean).exit_code == 0
    first, second = (load_checkpoint(path).module.state_dict() for path in (out, clean))
    assert all(bool((first[name] == second[name]).all()) for name in first)
    assert rows(load_dataset(str(held_out_path(out)))) == rows(load_dataset(str(held_out_path(clean))))


def test_an_old_held_out_file_is_not_overwritten(file, tmp_path):
    held_out_path(tmp_path / "m.safetensors").write_text("precious")
    with pytest.raises(sc.SmoothcertError, match=r"held-out\.npz exists and is never overwritten"):
        command("--data", file, "--out", tmp_path / "m.safetensors")


def test_files_with_splits_are_trained_on_whole(tmp_path):
    values = np.random.default_rng(0).random((60, 4), dtype=np.float32)
    labels = np.arange(60) % 3
    np.savez(tmp_path / "split.npz", x_train=values[:40], y_train=labels[:40], x_test=values[40:], y_test=labels[40:])
    out = tmp_path / "m.safetensors"
    result = command("--data", tmp_path / "split.npz", "--out", out)
    assert "of the test inputs correct" in result.stdout
    assert "held" not in result.output
    assert load_checkpoint(out).header.training["hold_out"] is None
    assert not held_out_path(out).exists()


def test_a_training_split_alone_is_held_out_from_as_well(tmp_path):
    values = np.random.default_rng(0).random((60, 4), dtype=np.float32)
    np.savez(tmp_path / "train.npz", x_train=values, y_train=np.arange(60) % 3)
    result = command("--data", tmp_path / "train.npz", "--out", tmp_path / "m.safetensors")
    assert "of the held-out inputs correct" in result.stdout


@pytest.mark.parametrize("dtype", [np.float32, np.bool_])
def test_the_file_keeps_values_range_and_class_names(dtype, tmp_path):
    values = np.random.default_rng(0).integers(0, 2, (60, 4)).astype(dtype)
    scale = 3 if dtype is np.float32 else 1
    np.savez(
        tmp_path / "own.npz", x=values * values.dtype.type(scale), y=np.arange(60) % 2,
        class_names=np.array(["cat", "dog"]),
    )  # fmt: skip
    out = tmp_path / "m.safetensors"
    result = command("--data", tmp_path / "own.npz", "--out", out, "--input-range", "0,5")
    assert "--input-range 0,5" in result.stdout
    held_out = load_dataset(str(held_out_path(out)), input_range=(0.0, 5.0))
    assert held_out.class_names == ("cat", "dog")
    assert held_out.levels == (None if dtype is np.float32 else 2)
    assert set(np.unique(held_out.inputs(slice(None)))) == {0.0, float(scale)}


def test_python_says_it_by_a_warning(file):
    with pytest.warns(UserWarning, match="mine has no test split: 20% of its 250 inputs are held out"):
        trained = sc.train("mlp-8", file, sigma=0.25, epochs=1, seed=4, device="cpu")
    assert trained.history[0].evaluated_on == "held-out"


def test_too_few_inputs(tmp_path):
    np.savez(tmp_path / "two.npz", x=np.zeros((2, 4), np.float32), y=[0, 1])
    with pytest.raises(DataError, match="1 held out leave too few to train on"):
        command("--data", tmp_path / "two.npz", "--out", tmp_path / "m.safetensors")


def test_sigma_fit_does_not_call_training_inputs_test(file, tmp_path):
    assert load_splits(str(file))[1] is None
    result = invoke(sigma_app, "fit", "--data", file, "--sigma", 0.25, "--out", tmp_path / "rule.safetensors")
    assert result.exit_code == 0, result.output
    assert "train inputs" in result.stdout
    assert "test inputs" not in result.stdout


def test_a_part_is_a_dataset():
    digits = load_dataset("digits", split="test")
    part = DatasetPart(digits, np.array([3, 5, 8]), split="held-out")
    assert len(part) == 3
    assert np.array_equal(part.inputs([2, 0]), digits.inputs([8, 3]))
    assert np.array_equal(part.labels, digits.labels[[3, 5, 8]])
    assert (part.name, part.num_classes, part.input_shape) == ("digits", 10, (1, 8, 8))
    assert (part.class_names, part.input_range, part.levels) == (digits.class_names, (0.0, 1.0), 17)
