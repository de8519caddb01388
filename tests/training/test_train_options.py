"""`smoothcert train` with every option: the checkpoint states the given settings."""

from __future__ import annotations

import csv
import json
import threading

import pytest
import typer

from cli_runner import invoke
from smoothcert.cli import train as verb
from smoothcert.data import load_dataset
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import OBJECTIVES, Augment, FloatFormat, Optimiser, TrainingConfig, partial_path, run_training

BASE = [
    "--data", "digits", "--arch", "mlp-8", "--sigma", 0.25, "--epochs", 1, "--batch", 256, "--seed", 4, "--device",
    "cpu", "--threads", 1,
]  # fmt: skip


def command(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(verb.train)
    return invoke(app, *BASE, *arguments)


def facts_of(tmp_path, *arguments):
    result = command("--out", tmp_path / "m.safetensors", *arguments)
    assert result.exit_code == 0, result.output
    return load_checkpoint(tmp_path / "m.safetensors").header.training


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"objective": {"name": "augmentation"}, "noise": "gaussian", "sigma": 0.25, "optimiser": "sgd",
              "peak_rate": 0.1, "schedule": "one-cycle:rise=0.3", "average": 0.0, "augment": "none",
              "precision": "float32", "patience": None, "weight_decay": 1e-4, "standardise": False}),
        (["--optimiser", "adamw"], {"optimiser": "adamw", "peak_rate": 0.001}),
        (["--optimiser", "adamw", "--lr", 0.01], {"optimiser": "adamw", "peak_rate": 0.01}),
        (["--schedule", "step:drops=3,factor=0.5"], {"schedule": "step:drops=3,factor=0.5"}),
        (["--schedule", "one-cycle:rise=0.1"], {"schedule": "one-cycle:rise=0.1"}),
        (["--average", 0.9, "--weight-decay", 0], {"average": 0.9, "weight_decay": 0.0}),
        (["--augment", "flip-crop"], {"augment": "flip-crop"}),
        (["--augment", "shift"], {"augment": "shift"}),
        (["--precision", "bfloat16"], {"precision": "bfloat16"}),
        (["--sigma-rule", "optimised:after=0,rate=0.05"], {
            "sigma": 0.25,
            "sigma_optimised": "optimised:steps=1,noises=4,rate=0.05,within=4.0,after=0.0,clamp=0.0001,two_class=0",
        }),
        (["--sigma-rule", "optimised", "--noise", "uniform"], {"noise": "uniform", "sigma": 0.25}),
        (["--standardise"], {"standardise": True}),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)  # fmt: skip
def test_an_option_is_what_the_checkpoint_says(arguments, expected, tmp_path):
    facts = facts_of(tmp_path, *arguments)
    assert {name: facts[name] for name in expected} == expected


TRAINED = [
    ("gaussian", {"name": "augmentation"}),
    ("stability:weight=1", {"name": "stability", "weight": 1.0}),
    ("consistency:weight=5,noises=3", {"name": "consistency", "weight": 5.0, "entropy": 0.5, "noises": 3}),
    ("macer:weight=1,beta=2,noises=2", {
        "name": "macer", "weight": 1.0, "margin": 8.0, "beta": 2.0, "noises": 2,
    }),
    ("adversarial:radius=0.5,steps=2", {"name": "adversarial", "radius": 0.5, "steps": 2, "warm_up": 0.3}),
    ("smoothadv:radius=0.5,steps=2,noises=2,method=ddn", {
        "name": "smoothadv", "radius": 0.5, "steps": 2, "noises": 2, "method": "ddn", "warm_up": 0.3,
        "consistency": 0.0, "entropy": 0.0,
    }),
    ("smoothmix:steps=2,noises=2", {
        "name": "smoothmix", "weight": 5.0, "steps": 2, "step": 1.0, "noises": 2, "one_step": 0, "warm_up": 0.3,
    }),
    ("exclusion:weight=2,noises=2", {
        "name": "exclusion", "weight": 2.0, "margin": 3.8, "beta": 1.0, "noises": 2, "consistency": 0.5,
        "cross_entropy": 0.1,
    }),
    ("cat-rs:steps=2,noises=2", {
        "name": "cat-rs", "weight": 1.0, "radius": 1.0, "steps": 2, "noises": 2, "warm_up": 0.3,
    }),
]  # fmt: skip


@pytest.mark.parametrize(("text", "settings"), TRAINED)
def test_every_objective_trains(text, settings, tmp_path):
    assert facts_of(tmp_path, "--objective", text)["objective"] == settings
    with (tmp_path / "m.curves.csv").open() as file:
        (line,) = csv.DictReader(file)
    assert float(line["loss"]) > 0


def test_all_objectives_are_among_those():
    assert set(OBJECTIVES) == {settings["name"] for _, settings in TRAINED}


def test_patience_and_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    result = command(
        "--out", tmp_path / "m.safetensors", "--epochs", 30, "--patience", 1, "--lr", 1e-9,
        "--tensorboard", tmp_path / "board",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    # With such a rate nothing is learned: the second epoch is no better than the first.
    assert "seed 4, stopped after epoch 2, weights of epoch 1" in result.stdout
    assert len((tmp_path / "m.curves.csv").read_text().splitlines()) == 3
    assert list((tmp_path / "board").iterdir())


def test_json_tells_what_was_optimised(tmp_path):
    result = command("--out", tmp_path / "m.safetensors", "--sigma-rule", "optimised:after=0", "--json")
    document = json.loads(result.stdout)
    assert document["sigma_trained_with"]["min"] < document["sigma_trained_with"]["max"]
    text = command("--out", tmp_path / "n.safetensors", "--sigma-rule", "optimised:after=0").stdout
    assert f"correct under gaussian noise of {document['sigma_trained_with']['mean']:.4g} on average" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--objective", "magic"],
            "there is no objective 'magic'; choose adversarial, augmentation, cat-rs, consistency, exclusion, macer",
        ),
        (["--objective", "macer:lambda=3"], "'lambda' is unknown; macer takes weight, margin, beta, noises"),
        (["--objective", "smoothadv:steps=two"], "'steps=two' is invalid: expected a whole number"),
        (["--objective", "macer", "--noise", "uniform"], "the objective macer supports gaussian noise, not uniform"),
        (["--schedule", "linear"], "there is no schedule 'linear'; choose one-cycle, step"),
        (["--sigma-rule", "optimised:speed=1"], "'speed' is unknown; optimised takes steps, noises, rate, within"),
        (["--sigma-rule", "optimised", "--sigma", 0], "an optimised sigma starts at a positive number, but sigma is 0"),
        (["--average", 1.5], "average is 1.5: expected a decay in [0, 1)"),
        *[(["--threads", threads], f"threads={threads} is not possible") for threads in (-1, 10**5, 2**63 - 1)],
        (["--patience", 0], "patience is 0: expected at least 1"),
        (["--lr", -1], "learning rate is -1.0: expected a positive finite number"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments, message, tmp_path):
    with pytest.raises(InputError) as refusal:
        command("--out", tmp_path / "m.safetensors", *arguments)
    assert message in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_the_optimised_sigma_needs_a_start(tmp_path):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(verb.train)
    out = tmp_path / "m.safetensors"
    with pytest.raises(InputError, match="a noise level is required: give --sigma"):
        invoke(app, "--data", "digits", "--arch", "mlp-8", "--sigma-rule", "optimised", "--out", out)


def test_resuming_with_other_settings_is_refused_and_with_the_same_it_ends(tmp_path):
    """A training started in Python is resumed from the command line with the same settings."""
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    config = TrainingConfig(arch="mlp-8", sigma=0.25, seed=4, epochs=1, batch=256)
    with pytest.raises(InterruptedRunError):
        run_training(config, load_dataset("digits", split="train"), out=out, device="cpu", threads=1, stop=stop)
    for arguments, message in [
        (["--objective", "consistency"], r"objective was \{'name': 'augmentation'\}, now \{'name': 'consistency'"),
        (["--optimiser", "adamw"], r"optimiser was sgd, now adamw; peak_rate was 0\.1, now 0\.001"),
        (["--schedule", "step"], r"schedule was one-cycle:rise=0\.3, now step:drops=2,factor=0\.1"),
        (["--sigma-rule", "optimised"], "sigma_optimised was None, now optimised:"),
        (["--precision", "bfloat16"], "precision was float32, now bfloat16"),
        (["--patience", 3], "patience was None, now 3"),
    ]:
        with pytest.raises(ManifestMismatchError, match=message):
            command("--out", out, "--resume", *arguments)
    with pytest.raises(InputError, match="unfinished training; add --resume"):
        command("--out", out)
    assert partial_path(out).exists()
    assert command("--out", out, "--resume").exit_code == 0
    assert not partial_path(out).exists()


@pytest.mark.parametrize("kind", [Optimiser, Augment, FloatFormat])
def test_the_verb_offers_every_word(kind):
    assert [str(word) for word in getattr(verb, kind.__name__)] == [str(word) for word in kind]
