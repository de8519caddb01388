"""AdamW, SGD with Nesterov momentum and the moving average against numpy; bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from small_training import SmallDigits
from smoothcert.errors import InputError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import FloatFormat, Optimiser, TrainingConfig, run_training
from smoothcert.training.modules import AveragedModule, Bfloat16Module
from smoothcert.training.optimisers import build_optimiser, collect_state, restore_state

START = np.array([0.5, -1.0, 2.0])
GRADIENTS = np.array([[0.1, -0.2, 0.3], [0.4, 0.0, -0.1], [-0.3, 0.2, 0.2], [0.05, 0.5, -0.6]])
RATES = np.array([0.1, 0.2, 0.05, 0.1])


class Three(torch.nn.Module):
    """Three parameters in double precision."""

    def __init__(self):
        super().__init__()
        self.values = torch.nn.Parameter(torch.from_numpy(START.copy()))


def stepped(optimiser, module, numbers):
    for number in numbers:
        optimiser.param_groups[0]["lr"] = RATES[number]
        module.values.grad = torch.from_numpy(GRADIENTS[number].copy())
        optimiser.step()
    return module.values.detach().numpy().copy()


def adamw_by_hand(*, beta, decay):
    values, first, second = START.copy(), np.zeros(3), np.zeros(3)
    for step, (gradient, rate) in enumerate(zip(GRADIENTS, RATES, strict=True), start=1):
        values = values - rate * decay * values
        first = beta * first + (1 - beta) * gradient
        second = 0.999 * second + 0.001 * gradient**2
        values = values - rate * (first / (1 - beta**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return values


def nesterov_by_hand(*, momentum, decay):
    values, speed = START.copy(), np.zeros(3)
    for gradient, rate in zip(GRADIENTS, RATES, strict=True):
        slope = gradient + decay * values
        speed = momentum * speed + slope
        values = values - rate * (slope + momentum * speed)
    return values


BY_HAND = {
    Optimiser.ADAMW: lambda momentum, decay: adamw_by_hand(beta=momentum, decay=decay),
    Optimiser.SGD: lambda momentum, decay: nesterov_by_hand(momentum=momentum, decay=decay),
}


@pytest.mark.parametrize("which", Optimiser)
@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.0), (0.8, 0.05), (0.0, 0.1)])
def test_steps_by_hand(which, momentum, decay):
    module = Three()
    optimiser = build_optimiser(which, module, rate=1.0, momentum=momentum, weight_decay=decay)
    np.testing.assert_allclose(stepped(optimiser, module, range(4)), BY_HAND[which](momentum, decay), rtol=1e-12)


@pytest.mark.parametrize("which", Optimiser)
def test_the_state_goes_into_a_new_optimiser(which):
    module = Three()
    optimiser = build_optimiser(which, module, rate=1.0, momentum=0.9, weight_decay=0.01)
    assert collect_state(optimiser, module) == {}
    stepped(optimiser, module, range(2))
    stored = {name: value.clone() for name, value in collect_state(optimiser, module).items()}
    other = Three()
    other.load_state_dict(module.state_dict())
    fresh = build_optimiser(which, other, rate=1.0, momentum=0.9, weight_decay=0.01)
    restore_state(fresh, other, stored)
    np.testing.assert_array_equal(stepped(fresh, other, [2, 3]), stepped(optimiser, module, [2, 3]))


def decay_by_hand(step, most):
    return min(most, (1 + step) / (10 + step))


@pytest.mark.parametrize("most", [0.5, 0.999])
def test_the_average_by_hand(most):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).double()
    averaged = AveragedModule(module, decay=most)
    expected = {name: value.detach().numpy().copy() for name, value in module.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    for step in range(30):
        with torch.no_grad():
            for value in module.parameters():
                value += torch.randn(value.shape, generator=generator, dtype=torch.float64)
            module[1].running_mean += 1.0
        averaged.update(module, step=step)
        decay = decay_by_hand(step, most)
        for name, value in module.named_parameters():
            expected[name] = decay * expected[name] + (1 - decay) * value.detach().numpy()
    for name, value in averaged.module.named_parameters():
        np.testing.assert_allclose(value, expected[name], rtol=1e-10)
        assert not value.requires_grad
    assert torch.equal(averaged.module[1].running_mean, module[1].running_mean)
    assert not averaged.module.training


def test_what_is_written_is_the_average_over_all_steps(tmp_path, monkeypatch):
    """The checkpoint equals an average computed in numpy from the weights of every step."""
    seen, real = [], AveragedModule.update

    def watched(self, module, *, step):
        if step == 0:
            seen.append({name: value.double().numpy().copy() for name, value in self.module.named_parameters()})
        seen.append({name: value.detach().double().numpy().copy() for name, value in module.named_parameters()})
        real(self, module, step=step)

    monkeypatch.setattr(AveragedModule, "update", watched)
    config = TrainingConfig(arch="mlp-8", sigma=0.1, seed=1, epochs=2, batch=32, average=0.7)
    run_training(config, SmallDigits(), out=tmp_path / "m.safetensors", device="cpu", threads=1)
    assert len(seen) == 1 + 2 * 5
    average = seen[0]
    for step, now in enumerate(seen[1:]):
        decay = decay_by_hand(step, 0.7)
        average = {name: decay * average[name] + (1 - decay) * now[name] for name in now}
    written = load_checkpoint(tmp_path / "m.safetensors").module.state_dict()
    assert set(written) == set(average)
    for name, value in average.items():
        np.testing.assert_allclose(written[name], value, rtol=1e-4, atol=1e-6)
        assert np.abs(seen[-1][name] - value).max() > 1e-4


@pytest.mark.parametrize("average", [-0.1, 1.0, float("nan")])
def test_impossible_averages_are_refused(average):
    with pytest.raises(InputError, match=r"average is .*: expected a decay in \[0, 1\); 0.999 is usual"):
        TrainingConfig(arch="mlp", sigma=0.1, seed=0, average=average)


def test_bfloat16_trains_weights_that_stay_float32(digits, held_out, tmp_path):
    results = {
        precision: run_training(
            TrainingConfig(arch="mlp-32", sigma=0.25, seed=1, epochs=2, batch=64, precision=precision),
            digits, held_out=held_out, out=tmp_path / f"{precision}.safetensors", device="cpu", threads=1,
        )
        for precision in FloatFormat
    }  # fmt: skip
    exact, half = (results[each].module.state_dict() for each in FloatFormat)
    for name, value in half.items():
        assert value.dtype == torch.float32
        assert not torch.equal(value, exact[name])
        # bfloat16 has 8 bits: its rounding moves the weights, but not far.
        assert (value - exact[name]).norm() < 0.1 * exact[name].norm() + 1e-3, name
    # 445 inputs: 0.05 is more than twice the deviation of either accuracy.
    assert abs(results[FloatFormat.BFLOAT16].accuracy - results[FloatFormat.FLOAT32].accuracy) < 0.05
    written = load_checkpoint(tmp_path / "bfloat16.safetensors").module
    assert all(value.dtype == torch.float32 for value in written.state_dict().values())


def test_products_are_made_in_bfloat16_and_logits_given_back_in_float32():
    module = torch.nn.Linear(64, 4)
    inputs = torch.rand(8, 64, generator=torch.Generator().manual_seed(0))
    logits = Bfloat16Module(module)(inputs)
    assert logits.dtype == torch.float32
    assert torch.equal(logits, logits.to(torch.bfloat16).float())
    assert not torch.equal(logits, module(inputs))
    torch.testing.assert_close(logits, module(inputs), rtol=0.05, atol=0.02)
    logits.sum().backward()
    assert module.weight.grad.dtype == torch.float32
