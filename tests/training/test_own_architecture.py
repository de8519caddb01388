"""`train --arch own_networks:Net`: the user's network, its checkpoints, and that only code named by the user is run."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest
import torch
import typer

import own_networks
from cli_runner import invoke, smoothcert
from smoothcert.cli import train as verb
from smoothcert.cli.certify import certify
from smoothcert.cli.sigma_train import train_sigma
from smoothcert.data import DatasetPart, load_dataset
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError, ModelError
from smoothcert.models import load_classifier
from smoothcert.models.checkpoints import CheckpointHeader, load_checkpoint, save_checkpoint
from smoothcert.runs.store import read_manifest
from smoothcert.training import TrainingConfig, partial_path, run_training
from smoothcert.training.batches import Batches
from smoothcert_verify.replay_model import ReplayData, open_model

SETTINGS = ["--data", "digits", "--sigma", 0.25, "--batch", 64, "--seed", 4, "--device", "cpu", "--threads", 1]


def command(arch, out, *arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(verb.train)
    return invoke(app, *SETTINGS, "--arch", arch, "--out", out, *arguments)


def run(arch, out, *, epochs=2, **options):
    config = TrainingConfig(arch=arch, sigma=0.25, seed=4, epochs=epochs, batch=64)
    return run_training(config, load_dataset("digits", split="train"), out=out, device="cpu", threads=1, **options)


def assert_same_weights(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished training of an own network by the command line."""
    out = tmp_path_factory.mktemp("own") / "net.safetensors"
    result = command("own_networks:Net", out, "--epochs", 3)
    assert result.exit_code == 0, result.output
    return out, result


def test_the_checkpoint_names_the_network_and_loads_for_whom_names_it_too(trained):
    out, result = trained
    loaded = load_checkpoint(out, arch="own_networks:Net")
    assert loaded.header.arch == loaded.header.training["arch"] == "own_networks:Net"
    assert loaded.header.num_classes == 10
    assert isinstance(loaded.module, own_networks.Net)
    assert loaded.header.training["noisy_accuracy"] > 0.7
    held_out = load_dataset("digits", split="test")
    votes = load_classifier(out, arch="own_networks:Net", device="cpu").classify(held_out.inputs(slice(None)))
    assert np.mean(votes == held_out.labels) > 0.8
    assert f"smoothcert certify --model {out} --arch own_networks:Net --data digits --sigma 0.25" in result.stdout


def test_certify_takes_the_checkpoint(trained, tmp_path):
    out, _ = trained
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(certify)
    arguments = ["--data", "digits", "--sigma", 0.25, "--n", 100, "--max", 5, "--out", tmp_path / "run", "--model", out]
    with pytest.raises(ModelError, match="add --arch own_networks:Net"):
        invoke(app, *arguments)
    assert invoke(app, *arguments, "--arch", "own_networks:Net").exit_code == 0
    model = read_manifest(tmp_path / "run").spec.model
    # Recorded as the code and its weights, so that a resumed run and an attack find both.
    assert (model.place, model.weights, model.arch) == ("own_networks:Net", str(out), None)


def test_code_that_only_a_file_names_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "traitor.py").write_text("import pathlib\npathlib.Path('was_here').touch()\nNet = None\n")
    monkeypatch.chdir(tmp_path)
    network = own_networks.Net()
    save_checkpoint(tmp_path / "ours.safetensors", network, CheckpointHeader("traitor:Net", 10, (1, 8, 8)))
    torch.save({"arch": "traitor:Net", "state_dict": network.state_dict()}, tmp_path / "theirs.pth")
    for name in ("ours.safetensors", "theirs.pth"):
        with pytest.raises(ModelError, match=r"never imported\. If you trust traitor:Net, add --arch traitor:Net"):
            load_classifier(tmp_path / name, device="cpu", input_shape=(1, 8, 8))
    assert "traitor" not in sys.modules
    assert not (tmp_path / "was_here").exists()


def test_a_replay_does_not_import_what_the_run_names(trained):
    out, _ = trained

    class Forged:
        manifest = {  # noqa: RUF012
            "spec": {
                "model": {
                    "num_classes": None, "device": "cpu", "arch": "own_networks:Net", "standardise": None,
                    "backend": None,
                }
            }
        }  # fmt: skip
        noise = {"place": "input"}  # noqa: RUF012

    with pytest.raises(ModelError, match="never imported"):
        open_model(Forged, ReplayData(load_dataset("digits")), place=str(out))


def test_the_network_may_have_moved_but_must_fit(trained):
    out, _ = trained
    assert isinstance(load_checkpoint(out, arch="own_networks:make_net").module, own_networks.Net)
    with pytest.raises(ModelError, match="does not fit WideNet"):
        load_checkpoint(out, arch="own_networks:WideNet")
    with pytest.raises(ModelError, match=r"weights of own_networks:Net, but arch lenet was given"):
        load_checkpoint(out, arch="lenet")


def test_weights_of_other_programs_are_loaded_by_model_and_weights(tmp_path):
    torch.save(own_networks.Net().state_dict(), tmp_path / "net.pt")
    with pytest.raises(ModelError, match=r"load it with --model own_networks:Net --weights .*net\.pt"):
        load_checkpoint(tmp_path / "net.pt", arch="own_networks:Net")


def test_dropout_is_seeded_and_a_stopped_training_resumes_to_the_same_bits(tmp_path):
    before = torch.get_rng_state()
    clean = run("own_networks:Net", tmp_path / "clean.safetensors")
    assert torch.equal(torch.get_rng_state(), before)
    out, stop = tmp_path / "m.safetensors", threading.Event()
    for _ in range(3):
        torch.rand(3)  # the state of the global generator must not matter
        stop.clear()
        with pytest.raises(InterruptedRunError):
            run("own_networks:Net", out, resume=True, stop=stop, progress=lambda report: stop.set())
    resumed = run("own_networks:Net", out, resume=True)
    assert_same_weights(resumed.module.state_dict(), clean.module.state_dict())
    assert [each.accuracy for each in resumed.history] == [each.accuracy for each in clean.history]


def test_resuming_with_a_changed_network_is_refused(tmp_path, monkeypatch):
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    with pytest.raises(InterruptedRunError):
        run("own_networks:Net", out, stop=stop)
    with pytest.raises(ManifestMismatchError, match="arch was own_networks:Net, now own_networks:WideNet"):
        run("own_networks:WideNet", out, resume=True)
    monkeypatch.setattr(own_networks, "Net", own_networks.WideNet)
    with pytest.raises(ManifestMismatchError, match="has another network than own_networks:Net is now"):
        run("own_networks:Net", out, resume=True)
    assert partial_path(out).exists()


@pytest.mark.parametrize(
    ("count", "batch", "sizes"), [(65, 64, [65]), (66, 64, [64, 2]), (128, 64, [64, 64]), (3, 2, [3])]
)
def test_no_batch_has_a_single_input(count, batch, sizes):
    """Layers with batch statistics cannot be trained on one."""
    digits = load_dataset("digits", split="train")
    part = DatasetPart(digits, np.arange(count), split="train")
    batches = Batches(part, batch=batch, seed=1, device=torch.device("cpu"))
    found = [rows.indices for rows in batches.epoch(0)]
    assert [len(indices) for indices in found] == sizes
    assert len(batches) == len(sizes)
    assert sorted(torch.cat(found).tolist()) == list(range(count))
    config = TrainingConfig(arch="own_networks:Net", sigma=0.25, seed=4, epochs=1, batch=batch)
    run_training(config, part, out=None, device="cpu", threads=1)


@pytest.mark.parametrize("name", ["LazyNet", "TiedNet", "Volume", "ManyLogits"])
def test_unusual_networks_make_the_round_trip(name, tmp_path):
    out = tmp_path / "m.safetensors"
    trained = run(f"own_networks:{name}", out, epochs=1)
    loaded = load_checkpoint(out, arch=f"own_networks:{name}")
    assert_same_weights(loaded.module.state_dict(), trained.module.state_dict())
    assert loaded.header.num_classes == (12 if name == "ManyLogits" else 10)
    again = run(f"own_networks:{name}", tmp_path / "again.safetensors", epochs=1)
    assert_same_weights(again.module.state_dict(), trained.module.state_dict())
    held_out = load_dataset("digits", split="test").inputs(slice(0, 50))
    code = load_classifier(f"own_networks:{name}", weights=out, device="cpu", input_shape=(1, 8, 8))
    file = load_classifier(out, arch=f"own_networks:{name}", device="cpu")
    assert np.array_equal(code.classify(held_out), file.classify(held_out))


def test_a_standardising_layer_in_front(tmp_path):
    out = tmp_path / "m.safetensors"
    assert command("own_networks:Net", out, "--epochs", 1, "--standardise").exit_code == 0
    loaded = load_checkpoint(out, arch="own_networks:Net")
    assert loaded.header.standardise is not None
    assert isinstance(loaded.module[1], own_networks.Net)


@pytest.mark.parametrize(
    ("arch", "error", "message"),
    [
        ("own_networks:not_a_network", ModelError, "is a dict, not a network"),
        ("own_networks:NeedsWidth", ModelError, "needs the argument width"),
        ("own_networks:leave", ModelError, "ended while it was imported: SystemExit"),
        ("own_networks:Missing", ModelError, "has no .*Missing"),
        ("no_such_module_here:Net", ModelError, "no_such_module_here cannot be imported"),
        ("own_networks:FewLogits", ModelError, "gives 3 logits, but digits has 10 classes"),
        ("own_networks:NoLogits", ModelError, "answers with a dict: expected logits"),
        ("own_networks:Flat", ModelError, r"fails for an input of shape \(1, 8, 8\)|values of shape \(1, 1, 8, 10\)"),
        ("own_networks:Frozen", ModelError, "has no parameters to train"),
        ("own networks:Net", InputError, "there is no architecture 'own networks:Net'"),
        ("lennet", InputError, "did you mean lenet"),
        ("transformer", InputError, "package.module:attribute for your own"),
    ],
)
def test_what_cannot_be_trained_is_said_before_the_first_step(arch, error, message, tmp_path):
    with pytest.raises(error, match=message):
        command(arch, tmp_path / "m.safetensors", "--epochs", 1)
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_sigma_train_takes_the_checkpoint(trained, tmp_path):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train_sigma)
    arguments = [
        "--data", "digits", "--sigma-min", 0.2, "--lipschitz", 0.01, "--epochs", 1, "--max", 100, "--hidden", 8,
        "--model", trained[0], "--out", tmp_path / "rule.safetensors",
    ]  # fmt: skip
    with pytest.raises(ModelError, match="add --arch own_networks:Net"):
        invoke(app, *arguments)
    assert invoke(app, *arguments, "--arch", "own_networks:Net").exit_code == 0
    assert (tmp_path / "rule.safetensors").exists()


@pytest.mark.slow
def test_the_installed_command_finds_the_network_in_the_current_folder(tmp_path):
    (tmp_path / "mynet.py").write_text("from own_networks import Net\n")
    out = tmp_path / "m.safetensors"
    done = smoothcert("train", *SETTINGS, "--epochs", 1, "--arch", "mynet:Net", "--out", out, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"smoothcert certify --model {out} --arch mynet:Net" in done.stdout
