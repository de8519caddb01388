"""Training under uniform noise: loss and gradient in closed form, evaluation with the same noise, resuming."""

from __future__ import annotations

import dataclasses
import json
import threading

import numpy as np
import pytest
import torch
import typer
from scipy import stats

from cli_runner import invoke
from smoothcert.cli.train import _parse_noise
from smoothcert.cli.train import train as train_command
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.records import Noise
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.rule_files import save_rule
from smoothcert.training import Batch, TrainingConfig, load_state, noisy_accuracy, partial_path, run_training
from smoothcert.training.noisy_inputs import add_batch_noise
from smoothcert.training.objectives.augmentation import NoiseAugmentation

CPU = torch.device("cpu")


def without_seconds(history):
    return [dataclasses.replace(result, seconds=0.0) for result in history]


def assert_same_weights(first, second):
    for name, tensor in first.module.state_dict().items():
        assert torch.equal(tensor, second.module.state_dict()[name]), name


def run(digits, sigma, out, *, noise=Noise.UNIFORM, objective=None, **options):
    config = TrainingConfig(
        arch="mlp-32", sigma=sigma, noise=noise, objective=objective or NoiseAugmentation(), seed=7, epochs=2, batch=64
    )
    return run_training(config, digits, out=out, device="cpu", threads=1, **options)


def test_the_noise_is_uniform_and_each_input_has_its_own_level():
    levels = torch.tensor([0.1, 0.5, 2.0])
    inputs = torch.zeros(3, 2, 100, 100)
    batch = Batch(inputs, torch.zeros(3, dtype=torch.int64), levels, noise=Noise.UNIFORM)
    noise = add_batch_noise(batch, torch.Generator().manual_seed(0)).flatten(1)
    for row, level in zip(noise.double(), levels.double(), strict=True):
        assert stats.kstest((row / level).numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-4
        assert row.abs().max() <= level
    assert torch.equal(inputs, torch.zeros(3, 2, 100, 100))


def test_gaussian_training_noise_is_what_it_was():
    inputs = torch.rand(5, 1, 4, 4)
    batch = Batch(inputs, torch.zeros(5, dtype=torch.int64), 0.25)
    noisy = add_batch_noise(batch, torch.Generator().manual_seed(3))
    drawn = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    assert torch.equal(noisy, drawn * 0.25 + inputs)


def test_loss_and_gradient_of_a_hand_case():
    """Logits (0, w·x) and class 1: the loss is log(1 + exp(-w·x)), its gradient -x/(1 + exp(w·x)), x with noise."""
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, 2.0)

    class TwoClasses(torch.nn.Module):
        def forward(self, inputs):
            return torch.cat([torch.zeros(len(inputs), 1), module(inputs)], dim=1)

    x, half_width = torch.tensor([[0.7], [-0.2], [0.1]]), 0.5
    draws = torch.rand(3, 1, generator=torch.Generator().manual_seed(11)).numpy()
    noisy = x.numpy().astype(np.float64) + half_width * (2.0 * draws.astype(np.float64) - 1.0)
    batch = Batch(x, torch.ones(3, dtype=torch.int64), half_width, noise=Noise.UNIFORM)
    (loss,) = NoiseAugmentation().terms(TwoClasses(), batch, torch.Generator().manual_seed(11)).values()
    loss.backward()
    assert loss.item() == pytest.approx(np.log1p(np.exp(-2.0 * noisy)).mean(), rel=1e-6)
    assert module.weight.grad.item() == pytest.approx((-noisy / (1.0 + np.exp(2.0 * noisy))).mean(), rel=1e-5)


def test_a_half_width_of_zero_is_ordinary_training(digits, tmp_path):
    one = run(digits, 0.0, tmp_path / "a.safetensors")
    other = run(digits, 0.0, tmp_path / "b.safetensors", noise=Noise.GAUSSIAN)
    assert without_seconds(one.history) == without_seconds(other.history)
    assert_same_weights(one, other)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_impossible_half_widths_are_refused(sigma):
    with pytest.raises(InputError, match="expected a finite number, at least 0"):
        TrainingConfig(arch="mlp-32", sigma=sigma, noise=Noise.UNIFORM, seed=7)


class SeesOverstepping(torch.nn.Module):
    """Class 0 where no coordinate is 1 or more away from 0, class 1 elsewhere."""

    def forward(self, inputs):
        inside = (inputs.flatten(1).abs().amax(dim=1) <= 1.0).long()
        return torch.nn.functional.one_hot(1 - inside, 2).float()


class Zeros:
    name, split, labels, num_classes, input_shape = "zeros", "test", np.zeros(500, dtype=np.int64), 2, (8, 8)

    def __len__(self):
        return 500

    def inputs(self, indices):
        return np.zeros((len(self.labels[indices]), 8, 8), dtype=np.float32)


def test_accuracy_is_measured_under_the_noise_asked_for():
    assert noisy_accuracy(SeesOverstepping(), Zeros(), noise=Noise.UNIFORM, sigma=1.0, seed=0, device=CPU) == 1.0
    # Of 64 coordinates one is beyond its deviation but with probability 0.68^64 = 2e-11.
    assert noisy_accuracy(SeesOverstepping(), Zeros(), noise=Noise.GAUSSIAN, sigma=1.0, seed=0, device=CPU) == 0.0


def test_training_judges_under_its_own_noise_and_the_checkpoint_says_which(digits, held_out, tmp_path):
    trained = run(digits, 0.5, tmp_path / "m.safetensors", held_out=held_out)
    facts = load_checkpoint(tmp_path / "m.safetensors").header.training
    assert (facts["objective"], facts["noise"], facts["sigma"]) == ({"name": "augmentation"}, "uniform", 0.5)
    again = {
        noise: noisy_accuracy(trained.module, held_out, noise=noise, sigma=0.5, seed=7, device=CPU)
        for noise in (Noise.UNIFORM, Noise.GAUSSIAN)
    }
    assert facts["noisy_accuracy"] == trained.accuracy == again[Noise.UNIFORM]
    assert again[Noise.UNIFORM] > again[Noise.GAUSSIAN]  # noise of λ has a deviation of 0.58 λ only
    assert trained.accuracy > 0.7


@pytest.mark.parametrize("stop_at", [1, 22, 30])
def test_stopped_and_resumed_ends_with_the_same_bits(digits, tmp_path, stop_at):
    clean = run(digits, 0.5, tmp_path / "clean.safetensors")
    stop, steps, out = threading.Event(), [], tmp_path / "m.safetensors"

    class Stopping(NoiseAugmentation):
        __slots__ = ()

        def terms(self, *arguments):
            steps.append(1)
            if len(steps) == stop_at:
                stop.set()
            return super().terms(*arguments)

    with pytest.raises(InterruptedRunError):
        run(digits, 0.5, out, objective=Stopping(), stop=stop)
    settings = load_state(partial_path(out)).settings
    assert (settings["objective"], settings["noise"], settings["sigma"]) == ({"name": "augmentation"}, "uniform", 0.5)
    with pytest.raises(ManifestMismatchError, match=r"other settings: noise was uniform, now gaussian\."):
        run(digits, 0.5, out, noise=Noise.GAUSSIAN, resume=True)
    resumed = run(digits, 0.5, out, resume=True)
    assert without_seconds(resumed.history) == without_seconds(clean.history)
    assert_same_weights(resumed, clean)


def command(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train_command)
    return invoke(app, *arguments)


@pytest.fixture
def tiny_data(tmp_path):
    """Sixty inputs, class by the first coordinate."""
    x = np.random.default_rng(0).random((60, 4), dtype=np.float32)
    x[:, 0] = np.arange(60) % 2
    np.savez(tmp_path / "tiny.npz", x_train=x, y_train=np.arange(60) % 2)
    return ["--data", tmp_path / "tiny.npz", "--arch", "mlp-16", "--batch", 8, "--device", "cpu", "--threads", 1]


def test_the_verb_trains_with_uniform_noise(tiny_data, tmp_path):
    out = tmp_path / "m.safetensors"
    settings = ["--noise", "uniform", "--sigma", 0.3, "--epochs", 5, "--seed", 3]
    result = command(*tiny_data, *settings, "--out", out)
    assert result.exit_code == 0, result.output
    assert "correct under uniform noise 0.3" in result.stdout
    header = load_checkpoint(out).header.training
    assert (header["objective"], header["noise"], header["sigma"]) == ({"name": "augmentation"}, "uniform", 0.3)
    assert header["noisy_accuracy"] == 1.0  # the noise cannot carry one class into the other
    document = json.loads(command(*tiny_data, *settings, "--out", tmp_path / "b.safetensors", "--json").stdout)
    assert (document["objective"], document["noise"]) == (header["objective"], "uniform")
    assert document["loss"] == header["loss"]
    gaussian = command(*tiny_data, "--sigma", 0.3, "--epochs", 5, "--seed", 3, "--out", tmp_path / "c.safetensors")
    assert "correct under gaussian noise 0.3" in gaussian.stdout
    assert load_checkpoint(tmp_path / "c.safetensors").header.training["noise"] == "gaussian"


def test_the_verb_refuses_rules_and_nothing(tiny_data, tmp_path):
    points = np.eye(4, dtype=np.float32)
    save_rule(tmp_path / "rule.safetensors", KnnSigma(points=points, base_sigma=0.25, rate=0.1, k=1, offset=1.0))
    uniform = [*tiny_data, "--noise", "uniform", "--out", tmp_path / "m.safetensors"]
    with pytest.raises(
        InputError, match="rules for sigma need gaussian noise: with uniform noise, sigma must be one number"
    ):
        command(*uniform, "--sigma-rule", tmp_path / "rule.safetensors")
    with pytest.raises(
        InputError, match="rules for sigma need gaussian noise: with uniform noise, sigma must be one number"
    ):
        command(*uniform, "--sigma", 0.25, "--sigma-rule", tmp_path / "rule.safetensors")
    with pytest.raises(InputError, match="a noise level is required: give --sigma"):
        command(*uniform)


def test_the_command_accepts_every_kind_of_noise_and_no_other(tiny_data, tmp_path):
    assert [_parse_noise(str(noise)) for noise in Noise] == list(Noise)
    with pytest.raises(InputError, match=f"--noise 'unheard-of' is not supported: expected {' or '.join(Noise)}"):
        command(*tiny_data, "--noise", "unheard-of", "--sigma", 0.5, "--out", tmp_path / "m.safetensors")
