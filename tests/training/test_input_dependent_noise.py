"""Training with a noise level per input: the noise follows the rule, and resumed trainings give the same result."""

from __future__ import annotations

import dataclasses
import json
import threading

import numpy as np
import pytest
import torch
import typer

from cli_runner import invoke
from smoothcert.cli.train import train as train_command
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.sigma.callable_rule import CallableRule
from smoothcert.sigma.constant import ConstantRule
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.over_data import spread_evenly
from smoothcert.sigma.rule_files import save_rule
from smoothcert.training import Batch, TrainingConfig, noisy_accuracy, partial_path, run_training
from smoothcert.training.batches import Batches
from smoothcert.training.noise_levels import ConstantLevels, RuleLevels
from smoothcert.training.noisy_inputs import add_batch_noise
from smoothcert.training.objectives.augmentation import NoiseAugmentation

CPU = torch.device("cpu")


def knn(digits, *, rate=0.5):
    return KnnSigma(points=digits.inputs(slice(None)), base_sigma=0.25, rate=rate, k=5, offset=1.2)


def run(digits, sigma, out, *, objective=None, **options):
    config = TrainingConfig(
        arch="mlp-32", sigma=sigma, objective=objective or NoiseAugmentation(), seed=7, epochs=2, batch=64
    )
    return run_training(config, digits, out=out, device="cpu", threads=1, **options)


def without_seconds(history):
    return [dataclasses.replace(result, seconds=0.0) for result in history]


def assert_same_weights(first, second):
    for name, tensor in first.module.state_dict().items():
        assert torch.equal(tensor, second.module.state_dict()[name]), name


def batch_of(inputs, sigma):
    return Batch(inputs, torch.zeros(len(inputs), dtype=torch.int64), sigma)


def test_every_input_gets_noise_of_its_own_level():
    levels = torch.tensor([0.1, 0.5, 2.0])
    inputs = torch.rand(3, 2, 100, 100)
    noise = add_batch_noise(batch_of(inputs, levels), torch.Generator().manual_seed(0)) - inputs
    np.testing.assert_allclose(noise.flatten(1).std(dim=1), levels, rtol=0.02)


def test_equal_levels_give_the_noise_of_one_level_to_the_bit():
    inputs = torch.rand(5, 1, 4, 4)
    one = add_batch_noise(batch_of(inputs, 0.25), torch.Generator().manual_seed(3))
    each = add_batch_noise(batch_of(inputs, torch.full((5,), 0.25)), torch.Generator().manual_seed(3))
    assert torch.equal(one, each)


def test_the_noise_in_a_training_has_the_levels_of_the_rule(digits):
    """Deviation of the noise the network sees, input by input over many epochs, against σ of that input."""
    rule = knn(digits, rate=1.0)
    sigmas = rule.sigmas(digits.inputs(slice(None)))
    assert sigmas.max() > 1.5 * sigmas.min()
    batches = Batches(digits, batch=128, seed=1, device=CPU)
    levels = RuleLevels(rule, digits, digits, device=CPU, progress=None)
    place = {x.tobytes(): i for i, x in enumerate(digits.inputs(slice(None)))}
    squares, counts = np.zeros(len(digits)), np.zeros(len(digits))

    class Spy(torch.nn.Module):
        def forward(self, noisy):
            noise = (noisy - self.clean).flatten(1).double()
            rows = [place[x.tobytes()] for x in self.clean.numpy()]
            squares[rows] += noise.square().sum(dim=1).numpy()
            counts[rows] += noise.shape[1]
            return torch.zeros(len(noisy), 10)

    spy, generator = Spy(), torch.Generator().manual_seed(0)
    for epoch in range(20):
        for rows in batches.epoch(epoch):
            spy.clean = rows.inputs
            level = levels.select(rows, spy, progress=0.0, generator=generator)
            NoiseAugmentation().terms(spy, Batch(rows.inputs, rows.labels, level), generator)
    assert counts.min() == counts.max() == 20 * 64
    # 1280 draws each: the deviation is within 12% of σ for all 1352 inputs but with probability 2e-6.
    np.testing.assert_allclose(np.sqrt(squares / counts), sigmas, rtol=0.12)


def test_a_constant_rule_trains_the_same_network_as_the_number(digits, held_out, tmp_path):
    number = run(digits, 0.25, tmp_path / "number.safetensors", held_out=held_out)
    rule = run(digits, ConstantRule(0.25), tmp_path / "rule.safetensors", held_out=held_out)
    assert_same_weights(number, rule)
    assert without_seconds(number.history) == without_seconds(rule.history)
    other = run(digits, knn(digits), tmp_path / "knn.safetensors", held_out=held_out)
    assert not torch.equal(other.module.layers[0].weight, number.module.layers[0].weight)


def test_the_checkpoint_names_the_rule(digits, tmp_path):
    rule = knn(digits)
    heard = []
    trained = run(digits, rule, tmp_path / "m.safetensors", preparing=lambda done, total: heard.append((done, total)))
    facts = load_checkpoint(tmp_path / "m.safetensors").header.training
    assert (facts["objective"], facts["noise"]) == ({"name": "augmentation"}, "gaussian")
    assert facts["sigma_rule"] == {**rule.to_json(), "digest": rule.digest}
    assert "sigma" not in facts
    assert facts["sigma_trained_with"]["mean"] == rule.sigmas(digits.inputs(slice(None))).mean()
    assert heard[-1] == (len(digits), len(digits))
    assert trained.accuracy > 0.7


@pytest.mark.parametrize("stop_at", [1, 22, 30])
def test_stopped_and_resumed_ends_with_the_same_bits(digits, held_out, tmp_path, stop_at):
    rule = knn(digits)
    clean = run(digits, rule, tmp_path / "clean.safetensors", held_out=held_out)
    stop, steps = threading.Event(), []

    class Stopping(NoiseAugmentation):
        __slots__ = ()

        def terms(self, *arguments):
            steps.append(1)
            if len(steps) == stop_at:
                stop.set()
            return super().terms(*arguments)

    out = tmp_path / "m.safetensors"
    with pytest.raises(InterruptedRunError):
        run(digits, rule, out, objective=Stopping(), held_out=held_out, stop=stop)
    with pytest.raises(ManifestMismatchError, match=r"sigma_rule was .*0\.5.*, now .*0\.6"):
        run(digits, knn(digits, rate=0.6), out, held_out=held_out, resume=True)
    resumed = run(digits, rule, out, held_out=held_out, resume=True)
    assert_same_weights(resumed, clean)
    assert without_seconds(resumed.history) == without_seconds(clean.history)


def test_other_settings_are_refused_before_sigma_is_computed(digits, tmp_path):
    out, stop = tmp_path / "m.safetensors", threading.Event()
    stop.set()
    with pytest.raises(InterruptedRunError):
        run(digits, 0.25, out, stop=stop)

    def never(done, total):
        pytest.fail("sigma was computed for a training that cannot go on")

    with pytest.raises(ManifestMismatchError, match="sigma_rule was None, now"):
        run(digits, knn(digits), out, resume=True, preparing=never)


def test_stopped_while_sigma_is_computed(digits, tmp_path):
    stop = threading.Event()
    with pytest.raises(InterruptedRunError, match="before training"):
        run(digits, knn(digits), tmp_path / "m.safetensors", stop=stop, preparing=lambda done, total: stop.set())
    assert not partial_path(tmp_path / "m.safetensors").exists()


def test_accuracy_is_measured_under_the_levels_of_the_held_out_inputs(held_out):
    """A network that depends only on how noisy its input is: it is correct where the level is low."""
    sigmas = np.where(np.arange(len(held_out)) % 3 == 0, 0.01, 3.0)

    class SeesNoise(torch.nn.Module):
        def forward(self, inputs):
            quiet = (inputs.flatten(1).abs().amax(dim=1) < 1.5).long()
            return torch.nn.functional.one_hot(torch.where(quiet == 1, 0, 9), 10).float()

    class Zeros:
        name, split, labels = "zeros", "test", np.zeros(len(held_out), dtype=np.int64)

        def __len__(self):
            return len(held_out)

        def inputs(self, indices):
            return held_out.inputs(indices)

    right = noisy_accuracy(SeesNoise(), Zeros(), sigma=sigmas, seed=0, device=CPU)
    assert right == np.mean(sigmas == 0.01)
    among = spread_evenly(len(held_out), most=50)
    some = noisy_accuracy(SeesNoise(), Zeros(), sigma=sigmas, seed=0, device=CPU, among=among)
    assert some == np.mean(sigmas[np.linspace(0, len(held_out) - 1, 50).astype(int)] == 0.01)


def test_a_rule_without_sigma_for_an_input_is_named(digits, tmp_path):
    far = KnnSigma(points=digits.inputs([0]), base_sigma=0.25, rate=1e4, k=1, offset=0.0)
    with pytest.raises(InputError, match=r"1351 of 1352 inputs of digits \(train\) have no positive finite sigma"):
        run(digits, far, tmp_path / "m.safetensors")


def test_a_rule_needs_no_envelope_to_be_trained_with(digits, tmp_path):
    rule = CallableRule(lambda x: 0.1 + 0.3 * float(x.mean()), envelope=None)
    assert run(digits, rule, tmp_path / "m.safetensors").accuracy > 0.7


def test_every_row_has_the_level_of_its_index_and_one_number_stays_one(digits):
    rule = knn(digits)
    rows = next(Batches(digits, batch=10, seed=0, device=CPU).epoch(0))
    asked = {"progress": 0.0, "generator": torch.Generator()}
    levels = RuleLevels(rule, digits, digits, device=CPU, progress=None).select(rows, torch.nn.Identity(), **asked)
    np.testing.assert_array_equal(levels.numpy(), rule.sigmas(rows.inputs.numpy()).astype(np.float32))
    np.testing.assert_array_equal(rows.inputs.numpy(), digits.inputs(rows.indices.numpy()))
    assert ConstantLevels(0.25).select(rows, torch.nn.Identity(), **asked) == 0.25


BASE = ["--data", "digits", "--arch", "mlp-16", "--batch", 64, "--epochs", 1, "--device", "cpu", "--threads", 1]


def command(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train_command)
    return invoke(app, *BASE, *arguments)


@pytest.fixture
def rule_file(digits, tmp_path):
    save_rule(tmp_path / "rule.safetensors", knn(digits))
    return tmp_path / "rule.safetensors"


def test_the_verb_takes_a_rule(digits, rule_file, tmp_path):
    result = command("--sigma-rule", rule_file, "--out", tmp_path / "a.safetensors", "--seed", 1)
    assert result.exit_code == 0
    assert "correct under gaussian noise of 0.2" in result.stdout
    both = command(
        "--sigma-rule", rule_file, "--sigma", 0.25, "--out", tmp_path / "b.safetensors", "--seed", 1, "--json"
    )
    document = json.loads(both.stdout)
    assert document["sigma_rule"]["digest"] == knn(digits).digest


def test_the_verb_refuses_contradictions_and_nothing(rule_file, tmp_path):
    with pytest.raises(InputError, match="give --sigma, or a file with --sigma-rule"):
        command("--out", tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=r"--sigma 0\.5 contradicts .* has the base value 0\.25; leave --sigma out"):
        command("--sigma-rule", rule_file, "--sigma", 0.5, "--out", tmp_path / "m.safetensors")
