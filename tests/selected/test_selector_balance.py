"""Outputs of a selector are shifted so that the radii it gives are largest, on inputs it was not trained on."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import nn

import smoothcert as sc
from smoothcert.data import DatasetPart, load_dataset
from smoothcert.errors import InterruptedRunError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import selector_balance, selector_training
from smoothcert.training.selector_balance import (
    Balance,
    balance_outputs,
    balance_selector,
    sample_logits,
    shift_outputs,
)
from smoothcert.training.selector_report import estimate_exclusions

CPU = torch.device("cpu")


def make_logits(means, *, n=200, seed=0):
    """(m, n, K): normal around `means`, (m, K)."""
    means = np.asarray(means, dtype=np.float32)
    draws = np.random.default_rng(seed).standard_normal((len(means), n, means.shape[1]))
    return means[:, None, :] + draws.astype(np.float32)


def mean_radius(logits, radii, sigma):
    """Written out again, input by input."""
    found = []
    for rows, own in zip(logits, radii, strict=True):
        votes = np.bincount(rows.argmax(axis=1), minlength=rows.shape[1])
        found.append(np.maximum(estimate_exclusions(votes[None], sigma=sigma)[0], own).min())
    return np.mean(found)


def test_a_level_that_is_always_better_is_always_chosen():
    logits = make_logits(np.tile([2.0, 0.0], (50, 1)))
    radii = np.tile([0.5, 1.5], (50, 1))
    balance = balance_outputs(logits, radii, sigma=1.0)
    assert balance.after == pytest.approx(1.5)
    assert balance.before < 1.0
    shifted = logits + np.array(balance.shifts, dtype=np.float32)
    assert (shifted.argmax(axis=2) == 1).all()


def test_what_is_said_of_the_shifts_is_what_they_do():
    generator = np.random.default_rng(1)
    logits = make_logits(generator.normal(size=(40, 3)) * 2)
    radii = generator.uniform(0, 1.5, size=(40, 3))
    balance = balance_outputs(logits, radii, sigma=0.7)
    assert balance.before == pytest.approx(mean_radius(logits, radii, 0.7))
    shifted = logits + np.array(balance.shifts, dtype=np.float32)
    assert balance.after == pytest.approx(mean_radius(shifted, radii, 0.7))
    assert max(balance.shifts) == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("levels", [2, 3])
def test_no_level_alone_is_better(seed, levels):
    generator = np.random.default_rng(seed)
    logits = make_logits(generator.normal(size=(30, levels)) * 3, n=100, seed=seed)
    radii = generator.uniform(0, 2, size=(30, levels)) * (generator.random((30, levels)) < 0.8)
    balance = balance_outputs(logits, radii, sigma=1.0)
    assert balance.after >= balance.before
    assert balance.after >= radii.mean(axis=0).max() - 1e-12


def test_a_selector_that_knows_is_not_overruled():
    """Each level is right for a half and useless for the other, and the logits say which: nothing can be gained."""
    right = np.arange(60) % 2
    logits = make_logits(np.where(right[:, None] == np.arange(2), 20.0, 0.0))
    radii = np.where(right[:, None] == np.arange(2), 1.0, 0.0)
    balance = balance_outputs(logits, radii, sigma=1.0)
    assert balance.before == balance.after == pytest.approx(1.0)


def make_network(outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


def test_outputs_move_by_the_shifts():
    network, inputs = make_network(), torch.randn(5, 4)
    before = network(inputs)
    assert shift_outputs(network, (0.0, -1.5), inputs=inputs)
    assert torch.allclose(network(inputs), before + torch.tensor([0.0, -1.5]), atol=1e-6)


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Conv1d(1, 1, 2)),
    ],
    ids=["no bias", "not the outputs", "no linear layer"],
)
def test_other_networks_are_left_alone(network):
    inputs = torch.ones(5, 1, 4)
    kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    before = network(inputs) if not isinstance(network[-1], nn.Conv1d) else None
    assert before is None or before.shape[-1] == 2
    assert not shift_outputs(network, (-50.0, 0.0), inputs=inputs)
    assert all(torch.equal(tensor, kept[name]) for name, tensor in network.state_dict().items())


def test_logits_that_are_not_finite_change_nothing():
    class Broken(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 2), float("nan"))

    digits = DatasetPart(load_dataset("digits", split="train"), np.arange(10), split="few")
    assert balance_selector(Broken(), digits, np.ones((len(digits), 2)), sigma=0.1, seed=0, device=CPU) is None


def test_a_stop_is_noticed():
    stop = threading.Event()
    stop.set()
    with pytest.raises(InterruptedRunError, match="balanced"):
        sample_logits(
            make_network(), load_dataset("digits", split="train"), sigma=0.1, n=2, seed=0, device=CPU, stop=stop
        )


LEVELS = (0.1, 0.4)


SHIFTS = (-1.5, 0.0)


@pytest.fixture
def few(monkeypatch):
    """Few inputs are enough, and the shifts are the same whatever is better."""
    monkeypatch.setattr(selector_balance, "balance_outputs", lambda *_, **__: Balance(SHIFTS, 0.5, 0.6))
    monkeypatch.setattr(selector_training, "LEAST_BALANCED", 5)
    monkeypatch.setattr(selector_balance, "SAMPLES_BALANCED", 20)
    monkeypatch.setattr(selector_training, "_SAMPLES_REPORTED", 50)


def train(**changes):
    def light(batch):
        shade = batch.reshape(len(batch), -1).mean(axis=1)
        return np.stack([np.full_like(shade, 0.3), shade], axis=1)

    digits = load_dataset("digits", split="train")
    data = digits.inputs(range(200)), (digits.labels[:200] > 4).astype(np.int64)
    settings = {
        "levels": LEVELS, "arch": "mlp-16", "sigma": 0.3, "n": 10, "epochs": 2, "batch": 32, "seed": 4, "threads": 1,
        "device": "cpu", "progress": False, "balance": True,
    }  # fmt: skip
    return sc.train_selector([light], data, **(settings | changes))


def test_the_checkpoint_has_the_shifted_outputs(few, tmp_path):
    _, report = train(balance=False)
    assert report.inputs == 20
    out = tmp_path / "selector.safetensors"
    module, report = train(out=out, average=0.9)
    assert report.inputs == 10  # the other half of what was kept out
    loaded = load_checkpoint(out)
    assert loaded.header.training["balance"] == {"shifts": list(SHIFTS), "before": 0.5, "after": 0.6}
    averaged, _ = train(average=0.9, balance=False)
    bias = next(reversed(averaged.state_dict()))
    assert bias.endswith("bias")
    expected = averaged.state_dict()[bias] + torch.tensor(SHIFTS)
    assert torch.allclose(module.state_dict()[bias], expected)
    assert torch.equal(loaded.module.state_dict()[bias], module.state_dict()[bias])


def test_few_inputs_are_not_balanced():
    module, report = train()
    other, _ = train(balance=False)
    assert report.inputs == 20
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_a_training_interrupted_while_it_is_balanced_is_resumed(few, tmp_path, monkeypatch):
    out = tmp_path / "selector.safetensors"

    def interrupted(*_args, **_kwargs):
        raise InterruptedRunError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(selector_training, "balance_selector", interrupted)
        with pytest.raises(InterruptedRunError):
            train(out=out)
    assert not out.exists()
    module, _ = train(out=out)
    other, _ = train()
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), other.state_dict().values(), strict=True)
    )
