"""Optimised σ: on models with a closed-form radius, it follows the derivative of the radius."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from scipy.stats import chi2

from smoothcert.errors import InputError
from smoothcert.records import Noise
from smoothcert.sigma.constant import ConstantRule
from smoothcert.training import CarriedSigma, TrainingConfig
from smoothcert.training.batches import Rows
from smoothcert.training.carried_sigma import CarriedLevels


class Certain(torch.nn.Module):
    """Class 1 with a score that its input alone decides: the mean of the input, whatever the noise adds to it.

    The score is held in the first coordinate; noise in it is rounded away.
    """

    def forward(self, inputs):
        score = inputs[:, 0].div(1000.0).round().div(1000.0).double()
        return torch.stack([(1 - score).log(), score.log()], dim=1)


def rows_of(inputs, indices=None):
    chosen = np.arange(len(inputs)) if indices is None else np.asarray(indices)
    return Rows(
        indices=torch.from_numpy(chosen),
        inputs=torch.from_numpy(np.asarray(inputs, dtype=np.float32)),
        labels=torch.zeros(len(inputs), dtype=torch.int64),
    )


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def moved(levels, rows, module, *, progress=1.0, generator=None):
    return levels.select(rows, module, progress=progress, generator=generator or seeded()).numpy()


SCORES = np.array([0.6, 0.9, 0.2, 0.999])
INPUTS = np.stack([1e6 * SCORES, np.zeros(4)], axis=1)
LEADING = np.maximum(SCORES, 1 - SCORES)


@pytest.mark.parametrize("steps", [1, 3])
def test_where_the_score_does_not_depend_on_noise_the_slope_is_its_quantile(steps):
    """R = σ·Φ⁻¹(p), p the score of the leading class, so each step adds start·rate·Φ⁻¹(p)."""
    levels = CarriedLevels(CarriedSigma(steps=steps, rate=0.05), start=0.5, count=4, noise=Noise.GAUSSIAN)
    given = moved(levels, rows_of(INPUTS), Certain())
    expected = 0.5 + steps * 0.5 * 0.05 * ndtri(LEADING)
    np.testing.assert_allclose(given, expected, rtol=1e-5)
    assert given.dtype == np.float32
    np.testing.assert_allclose(levels.state().numpy(), expected, rtol=1e-5)
    assert levels.mean == levels.evaluation == pytest.approx(expected.mean(), rel=1e-5)
    assert levels.summary()["sigma_trained_with"]["max"] == levels.state().max()


def test_a_sure_score_is_cut_off_at_the_clamp():
    levels = CarriedLevels(CarriedSigma(rate=0.05, clamp=0.01), start=0.5, count=4, noise=Noise.GAUSSIAN)
    expected = 0.5 + 0.5 * 0.05 * ndtri(np.minimum(LEADING, 0.99))
    np.testing.assert_allclose(moved(levels, rows_of(INPUTS), Certain()), expected, rtol=1e-5)


def test_with_uniform_noise_the_slope_is_the_margin():
    """R = λ·(p - (1-p))."""
    levels = CarriedLevels(CarriedSigma(rate=0.05), start=0.5, count=4, noise=Noise.UNIFORM)
    expected = 0.5 + 0.5 * 0.05 * (2 * LEADING - 1)
    np.testing.assert_allclose(moved(levels, rows_of(INPUTS), Certain()), expected, rtol=1e-5)


class Ball(torch.nn.Module):
    """Class 1 inside the unit ball."""

    def forward(self, inputs):
        inside = 1e6 * (1.0 - inputs.square().sum(dim=1))
        return torch.stack([-inside, inside], dim=1)


@pytest.mark.parametrize(("sigma", "goes"), [(0.15, "up"), (0.3, "down")])
def test_in_the_middle_of_a_ball(sigma, goes):
    """P(inside) = P(χ²_8 ≤ 1/σ²): R rises with σ until the noise reaches the border, then falls."""

    def radius(level):
        return level * ndtri(np.clip(chi2.cdf(1.0 / level**2, 8), 1e-3, 1 - 1e-3))

    slope = (radius(1.01 * sigma) - radius(0.99 * sigma)) / (0.02 * sigma)
    assert (slope > 0) == (goes == "up")
    plan = CarriedSigma(noises=40_000, rate=0.01, clamp=1e-3)
    levels = CarriedLevels(plan, start=sigma, count=1, noise=Noise.GAUSSIAN)
    after = float(moved(levels, rows_of(np.zeros((1, 8))), Ball())[0])
    # 40000 draws give the slope within some ten percent.
    assert after - sigma == pytest.approx(sigma * 0.01 * slope, rel=0.3)


def test_a_half_space_has_the_same_radius_at_any_level():
    """R is the distance to the boundary for every σ, so its derivative is 0."""

    class HalfSpace(torch.nn.Module):
        def forward(self, inputs):
            return torch.stack([-1e6 * inputs[:, 0], 1e6 * inputs[:, 0]], dim=1)

    levels = CarriedLevels(CarriedSigma(noises=40_000, rate=1.0), start=0.5, count=1, noise=Noise.GAUSSIAN)
    after = float(moved(levels, rows_of([[0.3, 0.0]]), HalfSpace())[0])
    assert after == pytest.approx(0.5, abs=0.1)


def test_it_stays_within_its_factor():
    plan = CarriedSigma(rate=10.0, within=1.5, steps=5)
    levels = CarriedLevels(plan, start=0.5, count=2, noise=Noise.GAUSSIAN)
    np.testing.assert_allclose(moved(levels, rows_of(INPUTS[:2]), Certain()), 0.75)
    down = CarriedLevels(CarriedSigma(rate=10.0, within=1.5, noises=64), start=0.3, count=1, noise=Noise.GAUSSIAN)
    np.testing.assert_allclose(moved(down, rows_of(np.zeros((1, 8))), Ball()), 0.3 / 1.5)


def test_nothing_moves_and_nothing_is_drawn_before_its_time():
    levels = CarriedLevels(CarriedSigma(after=0.3), start=0.5, count=4, noise=Noise.GAUSSIAN)
    generator = seeded()
    module = Certain()
    for progress in (0.0, 0.1, 0.2999):
        given = moved(levels, rows_of(INPUTS), module, progress=progress, generator=generator)
        np.testing.assert_array_equal(given, np.full(4, 0.5, dtype=np.float32))
    assert torch.equal(generator.get_state(), seeded().get_state())
    assert (moved(levels, rows_of(INPUTS), module, progress=0.3, generator=generator) > 0.5).all()
    assert not torch.equal(generator.get_state(), seeded().get_state())


def test_only_the_inputs_met_move_and_they_go_on_where_they_were():
    levels = CarriedLevels(CarriedSigma(rate=0.05), start=0.5, count=10, noise=Noise.GAUSSIAN)
    step = 0.5 * 0.05 * ndtri(0.9)
    for _ in range(2):
        moved(levels, rows_of(INPUTS[[1]], [7]), Certain())
    expected = np.full(10, 0.5)
    expected[7] += 2 * step
    np.testing.assert_allclose(levels.state().numpy(), expected, rtol=1e-5)


def test_the_state_is_restored_to_the_bit_and_is_a_copy():
    levels = CarriedLevels(CarriedSigma(), start=0.5, count=4, noise=Noise.GAUSSIAN)
    moved(levels, rows_of(INPUTS), Certain())
    stored = levels.state()
    assert stored.dtype == torch.float64
    kept = stored.clone()
    other = CarriedLevels(CarriedSigma(), start=0.5, count=4, noise=Noise.GAUSSIAN)
    other.restore(stored)
    np.testing.assert_array_equal(other.state(), levels.state())
    np.testing.assert_array_equal(moved(other, rows_of(INPUTS), Certain()), moved(levels, rows_of(INPUTS), Certain()))
    assert torch.equal(stored, kept)


def test_the_network_is_asked_in_evaluation_mode_and_learns_nothing():
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
    module.train()
    levels = CarriedLevels(CarriedSigma(), start=0.5, count=4, noise=Noise.GAUSSIAN)
    given = levels.select(rows_of(INPUTS / 1e6), module, progress=1.0, generator=seeded())
    assert not given.requires_grad
    assert module[0].num_batches_tracked.item() == 0
    assert module.training
    assert module[0].training


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps=0 of a search for sigma must be a whole number, at least 1"),
        ({"noises": 1.5}, "noises=1.5 of a search for sigma must be a whole number, at least 1"),
        ({"rate": 0.0}, "rate=0.0 of the optimised sigma must be a positive number; 0.02 is usual"),
        ({"rate": float("nan")}, "rate=nan of the optimised sigma must be a positive number"),
        ({"within": 0.5}, "within=0.5 of the optimised sigma must be a factor of at least 1; 4 is usual"),
        ({"after": 1.5}, "after=1.5 of the optimised sigma must be a fraction between 0 and 1"),
        ({"clamp": 0.5}, "clamp=0.5 of a search for sigma must lie between 0 and 0.5"),
    ],
)
def test_impossible_settings_are_refused_in_a_sentence(settings, message):
    with pytest.raises(InputError) as refusal:
        CarriedSigma(**settings)
    assert message in str(refusal.value)


def test_it_begins_at_one_positive_number():
    with pytest.raises(InputError, match="starts at one number: sigma must not be a rule"):
        TrainingConfig(arch="mlp", sigma=ConstantRule(0.25), carried=CarriedSigma(), seed=0)
    with pytest.raises(InputError, match="an optimised sigma starts at a positive number, but sigma is 0"):
        TrainingConfig(arch="mlp", sigma=0.0, carried=CarriedSigma(), seed=0)


def test_inputs_kept_back_are_no_part_of_the_mean():
    levels = CarriedLevels(
        CarriedSigma(after=0.0), start=0.5, count=4, noise=Noise.GAUSSIAN, held_back=np.array([1, 3])
    )
    levels.restore(torch.tensor([0.2, 9.0, 0.4, 9.0], dtype=torch.float64))
    assert levels.mean == levels.evaluation == levels.training == pytest.approx(0.3)
    assert levels.summary()["sigma_trained_with"]["max"] == 0.4
