"""The training loop: it learns, and after a stop or kill at any point it ends with the same bits."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from smoothcert.data import load_dataset
from smoothcert.errors import (
    CorruptRunError,
    DataError,
    InputError,
    InterruptedRunError,
    ManifestMismatchError,
    ModelError,
    RunBusyError,
)
from smoothcert.files import hold_lock
from smoothcert.models import load_classifier
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import Batch, TrainingConfig, load_state, noisy_accuracy, partial_path, run_training
from smoothcert.training.batches import Batches, channel_statistics, seeded_generator
from smoothcert.training.objectives.augmentation import NoiseAugmentation

CPU = torch.device("cpu")


def config(**changes):
    settings = {"arch": "mlp-32", "sigma": 0.25, "seed": 7, "epochs": 3, "batch": 64}
    return TrainingConfig(**(settings | changes))


def run(digits, out, *, changes=None, **options):
    return run_training(config(**(changes or {})), digits, out=out, device="cpu", **({"threads": 1} | options))


def weights(path):
    return load_checkpoint(path).module.state_dict()


def without_seconds(history):
    """A history without the seconds."""
    return [dataclasses.replace(result, seconds=0.0) for result in history]


def assert_same_weights(first, second):
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_each_epoch_lowers_the_loss_and_the_checkpoint_is_complete(digits, held_out, tmp_path):
    reports = []
    trained = run(digits, tmp_path / "m.safetensors", held_out=held_out, progress=reports.append)
    losses = [result.loss for result in trained.history]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.7 * losses[0]
    assert trained.accuracy > 0.8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.curves.csv", "m.safetensors"]
    loaded = load_checkpoint(tmp_path / "m.safetensors")
    assert loaded.header == trained.header
    assert loaded.header.training["noisy_accuracy"] == trained.accuracy
    assert loaded.header.training["data"] == digits.digest
    assert_same_weights(loaded.module.state_dict(), trained.module.state_dict())
    assert reports[-1].step == reports[-1].steps == 3 * -(-len(digits) // 64)
    assert reports[-1].accuracy == trained.history[-1].accuracy
    assert reports[-1].loss == pytest.approx(losses[-1])


def test_the_trained_model_classifies(digits, held_out, tmp_path):
    trained = run(digits, tmp_path / "m.safetensors", changes={"epochs": 8, "sigma": 0.0})
    votes = load_classifier(tmp_path / "m.safetensors", device="cpu").classify(held_out.inputs(slice(None)))
    accuracy = float(np.mean(votes == held_out.labels))
    assert accuracy > 0.9
    direct = noisy_accuracy(trained.module, held_out, sigma=0.0, seed=1, device=CPU)
    assert direct == pytest.approx(accuracy, abs=0.003)


def test_the_seed_decides_everything(digits, tmp_path):
    torch.manual_seed(1)
    first = run(digits, tmp_path / "a.safetensors", changes={"epochs": 1})
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = run(digits, tmp_path / "b.safetensors", changes={"epochs": 1})
    assert torch.equal(torch.get_rng_state(), before)
    other = run(digits, tmp_path / "c.safetensors", changes={"epochs": 1, "seed": 8})
    assert_same_weights(first.module.state_dict(), again.module.state_dict())
    assert not torch.equal(first.module.layers[0].weight, other.module.layers[0].weight)


@pytest.mark.parametrize("stop_at", [1, 5, 22, 23, 40])
def test_stopped_anywhere_and_resumed_ends_with_the_same_bits(digits, tmp_path, stop_at):
    clean = run(digits, tmp_path / "clean.safetensors")
    out, stop = tmp_path / "m.safetensors", threading.Event()

    class StoppingObjective(NoiseAugmentation):
        """Sets the event while the given step is computed, as a signal handler would."""

        __slots__ = ()

        def terms(self, *batch):
            steps.append(1)
            if len(steps) == stop_at:
                stop.set()
            return super().terms(*batch)

    steps = []
    with pytest.raises(InterruptedRunError, match=f"stopped after {stop_at} of 66 steps.*--resume"):
        run(digits, out, changes={"objective": StoppingObjective()}, stop=stop)
    assert not out.exists()
    resumed = run(digits, out, resume=True)
    assert_same_weights(resumed.module.state_dict(), clean.module.state_dict())
    assert without_seconds(resumed.history) == without_seconds(clean.history)


def test_batch_norm_networks_resume_to_the_same_bits(tmp_path):
    class Images:
        name, split, num_classes, input_shape, digest = "images", "train", 2, (3, 32, 32), "d"
        class_names = ("0", "1")
        labels = np.arange(24) % 2

        def __len__(self):
            return 24

        def inputs(self, indices):
            values = np.random.default_rng(0).random((24, 3, 32, 32), dtype=np.float32)
            return values[indices]

    changes = {"arch": "cifar_resnet8", "batch": 8, "epochs": 2, "standardise": True}
    clean = run(Images(), tmp_path / "clean.safetensors", changes=changes)
    stop = threading.Event()
    with pytest.raises(InterruptedRunError):
        run(Images(), tmp_path / "m.safetensors", changes=changes, stop=stop, progress=lambda report: stop.set())
    resumed = run(Images(), tmp_path / "m.safetensors", changes=changes, resume=True)
    assert_same_weights(resumed.module.state_dict(), clean.module.state_dict())
    assert "1.bn1.running_mean" in clean.module.state_dict()


PROGRAM = """
import sys
from pathlib import Path
from smoothcert.data import load_dataset
from smoothcert.training import TrainingConfig, run_training
config = TrainingConfig(arch="mlp-32", sigma=0.25, seed=7, epochs=15, batch=64)
run_training(config, load_dataset("digits", split="train"), out=Path(sys.argv[1]), resume=True, device="cpu", threads=1)
"""


def test_kill_nine_and_resume_gives_the_same_bits(digits, tmp_path):
    changes = {"epochs": 15}
    run(digits, tmp_path / "clean.safetensors", changes=changes)
    out = tmp_path / "m.safetensors"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(out)])
    deadline = time.monotonic() + 60
    while not partial_path(out).exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not out.exists()
    state = load_state(partial_path(out))
    assert 1 <= state.epoch < 15
    run(digits, out, changes=changes, resume=True)
    assert_same_weights(weights(out), weights(tmp_path / "clean.safetensors"))
    assert not partial_path(out).exists()


@pytest.fixture
def unfinished(digits, tmp_path):
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    with pytest.raises(InterruptedRunError):
        run(digits, out, stop=stop)
    return out


def test_an_unfinished_training_is_not_trampled_on(digits, unfinished):
    before = partial_path(unfinished).read_bytes()
    with pytest.raises(InputError, match="unfinished training; add --resume"):
        run(digits, unfinished)
    assert partial_path(unfinished).read_bytes() == before


def test_resuming_with_other_settings_shows_the_difference(digits, held_out, unfinished):
    other = {"epochs": 5, "sigma": 0.5}
    with pytest.raises(ManifestMismatchError, match=r"epochs was 3, now 5; sigma was 0\.25, now 0\.5"):
        run(digits, unfinished, changes=other, resume=True)
    with pytest.raises(ManifestMismatchError, match="data was"):
        run(held_out, unfinished, resume=True)


@pytest.mark.parametrize("keep", [0, 50, -10])
def test_a_damaged_state_is_refused(digits, unfinished, keep):
    path = partial_path(unfinished)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CorruptRunError, match="is damaged"):
        run(digits, unfinished, resume=True)


def test_an_existing_model_is_never_overwritten(digits, tmp_path):
    out = tmp_path / "m.safetensors"
    out.write_text("precious")
    for resume in (False, True):
        with pytest.raises(InputError, match="never overwritten"):
            run(digits, out, resume=resume)
    assert out.read_text() == "precious"


def test_divergence_is_said(digits, tmp_path):
    with pytest.raises(ModelError, match=r"diverged in epoch 1.*Lower --lr"):
        run(digits, tmp_path / "m.safetensors", changes={"peak_rate": 1e30})
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"batch": 1},
        {"seed": -1},
        {"seed": 2**64},
        {"peak_rate": 0.0},
        {"peak_rate": float("nan")},
        {"momentum": 1.0},
        {"weight_decay": -1.0},
        {"arch": "nothing"},
    ],
)
def test_impossible_settings_are_refused(changes):
    with pytest.raises(InputError):
        config(**changes)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_impossible_noise_is_refused(sigma):
    with pytest.raises(InputError, match="expected a finite number, at least 0"):
        config(sigma=sigma)


def test_a_network_that_does_not_fit_the_data_is_refused(digits, tmp_path):
    with pytest.raises(InputError, match="lenet takes inputs of shape"):
        run(digits, tmp_path / "m.safetensors", changes={"arch": "lenet"})


def test_gaussian_loss_is_cross_entropy_under_noise_of_that_level():
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, inputs):
            seen.append(inputs)
            return inputs[:, :4]

    inputs, labels = torch.full((4000, 10), 0.5), torch.zeros(4000, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    (loss,) = NoiseAugmentation().terms(Spy(), Batch(inputs, labels, 0.3), generator).values()
    noise = seen[0] - inputs
    assert float(noise.std()) == pytest.approx(0.3, rel=0.02)
    assert abs(float(noise.mean())) < 5 * 0.3 / 200
    torch.testing.assert_close(loss, -torch.log_softmax(seen[0][:, :4], dim=1)[:, 0].mean())
    assert torch.equal(inputs, torch.full((4000, 10), 0.5))


def test_every_epoch_sees_every_input_once_in_its_own_order(digits):
    batches = Batches(digits, batch=100, seed=3, device=CPU)
    orders = []
    for epoch in (0, 1):
        labels = torch.cat([batch.labels for batch in batches.epoch(epoch)])
        assert torch.equal(labels.sort().values, torch.from_numpy(np.sort(digits.labels)))
        orders.append(labels)
    assert not torch.equal(*orders)
    assert len(batches) == 14
    rest = torch.cat([batch.labels for batch in batches.epoch(0, first=5)])
    assert torch.equal(rest, orders[0][500:])


def test_large_data_is_read_batch_by_batch_with_the_same_result(digits, monkeypatch):
    loaded = Batches(digits, batch=100, seed=3, device=CPU)
    monkeypatch.setattr("smoothcert.training.batches.PRELOAD_BYTES", 0)
    read = Batches(digits, batch=100, seed=3, device=CPU)
    for batch, same in zip(loaded.epoch(0), read.epoch(0), strict=True):
        assert torch.equal(batch.inputs, same.inputs)
        assert torch.equal(batch.labels, same.labels)
        assert torch.equal(batch.indices, same.indices)


def test_unlabelled_data_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((10, 4), dtype=np.float32))
    dataset = load_dataset(str(tmp_path / "x.npy"), num_classes=2)
    with pytest.raises(DataError, match="without a label"):
        run(dataset, tmp_path / "m.safetensors")


def test_channel_statistics(digits):
    mean, std = channel_statistics(digits)
    values = digits.inputs(slice(None)).astype(np.float64)
    assert mean == pytest.approx((values.mean(),))
    assert std == pytest.approx((values.std(),))


def test_standardisation_is_the_models_first_layer(digits, tmp_path):
    trained = run(digits, tmp_path / "m.safetensors", changes={"standardise": True, "epochs": 1})
    assert trained.header.standardise == channel_statistics(digits)
    assert_same_weights(weights(tmp_path / "m.safetensors"), trained.module.state_dict())


def test_generators_of_different_purposes_differ():
    draws = {
        torch.rand(1, generator=seeded_generator(seed, purpose, number)).item()
        for seed in (0, 1)
        for purpose in ("noise", "order")
        for number in (0, 1)
    }
    assert len(draws) == 8


def test_two_processes_do_not_write_to_one_training(digits, tmp_path) -> None:
    out = tmp_path / "m.safetensors"
    with hold_lock(partial_path(out)), pytest.raises(RunBusyError, match=r"another process is writing to .*m\.safe"):
        run(digits, out)
    run(digits, out)
    assert out.exists()


def test_a_refused_training_leaves_nothing_behind(digits, tmp_path) -> None:
    out = tmp_path / "m.safetensors"
    (tmp_path / "m.curves.csv").write_text("mine\n")
    with pytest.raises(InputError, match=r"m\.curves\.csv exists and is never overwritten"):
        run(digits, out)
    assert (tmp_path / "m.curves.csv").read_text() == "mine\n"
    with pytest.raises(InputError):
        run(digits, tmp_path / "other.safetensors", changes={"arch": "lenet"})  # digits are too small for it
    assert [path.name for path in tmp_path.iterdir()] == ["m.curves.csv"]


def test_a_resumed_training_keeps_its_threads_and_tells_of_others(digits, tmp_path) -> None:
    heard: list[str] = []
    stop = threading.Event()
    stop.set()
    for name, threads, expected in (("same", None, 1), ("other", 2, 2)):
        out = tmp_path / f"{name}.safetensors"
        with pytest.raises(InterruptedRunError):
            run(digits, out, threads=1, stop=stop)
        assert load_state(partial_path(out)).computing["threads"] == 1
        trained = run(digits, out, resume=True, threads=threads, notice=heard.append)
        assert trained.header.training["threads"] == expected
    assert heard == ["the training is resumed, but its bits may differ: threads was 1, now 2"]
