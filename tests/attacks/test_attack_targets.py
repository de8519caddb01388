"""Losses and gradients of targets against closed forms, finite differences, and themselves in other chunks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from smoothcert.attacks import AttackObjective, EstimatedTarget, FixedNoise, FreshNoise, PlainTarget, SmoothedTarget
from smoothcert.attacks.attack_noise import unit_noise
from smoothcert.records import Noise

OBJECTIVES = list(AttackObjective)


def _network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4)).double()


def _batch(size: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return torch.rand(size, 3, 4, generator=generator, dtype=torch.float64), torch.arange(size) % 4


def _noises(points: Tensor, draws: int) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.stack([unit_noise(Noise.GAUSSIAN, points, generator=generator) for _ in range(draws)])


def _by_definition(
    module: nn.Module, points: Tensor, labels: Tensor, noises: Tensor, *, sigma: float, soft: bool
) -> Tensor:
    answers = torch.stack([module(points + sigma * noise).softmax(dim=1) for noise in noises])
    scores = answers[:, range(len(labels)), labels]
    return -scores.mean(dim=0).log() if soft else -scores.log().mean(dim=0)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("at_once", [None, 1, 3, 7])
def test_losses_and_gradients_are_those_of_the_definition_in_any_chunks(
    objective: AttackObjective, at_once: int | None
) -> None:
    module, (points, labels) = _network(), _batch()
    noises = _noises(points, 7)
    target = SmoothedTarget(module, labels, 0.5, FixedNoise(noises, at_once=at_once), objective)
    seen = target(points)
    leaf = points.clone().requires_grad_()
    losses = _by_definition(module, leaf, labels, noises, sigma=0.5, soft=objective is AttackObjective.SOFT_VOTE)
    (gradients,) = torch.autograd.grad(losses.sum(), leaf)
    torch.testing.assert_close(seen.losses, losses.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen.gradients, gradients, rtol=1e-10, atol=1e-12)
    mean = torch.stack([module(points + 0.5 * noise).softmax(dim=1) for noise in noises]).mean(dim=0)
    assert seen.wrong.tolist() == (mean.argmax(dim=1) != labels).tolist()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients_are_finite_differences_of_the_losses(objective: AttackObjective) -> None:
    module, (points, labels) = _network(), _batch()
    target = SmoothedTarget(module, labels, 0.7, FixedNoise(_noises(points, 6), at_once=4), objective)
    direction = torch.randn(points.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    ahead, behind = target(points + 1e-5 * direction).losses, target(points - 1e-5 * direction).losses
    slopes = (target(points).gradients * direction).flatten(1).sum(dim=1)
    torch.testing.assert_close(slopes, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_hopeless_label_has_a_finite_loss_and_gradient(objective: AttackObjective) -> None:
    """The softmax of the label underflows to 0 in every draw; its logarithm does not."""
    weight = torch.tensor([[1e4, 0.0], [0.0, 0.0]])
    points = torch.ones(1, 2)
    noises = torch.zeros(4, 1, 2)
    target = SmoothedTarget(lambda x: x @ weight.T, torch.tensor([1]), 1.0, FixedNoise(noises, at_once=3), objective)
    seen = target(points)
    torch.testing.assert_close(seen.losses, torch.tensor([1e4]))
    torch.testing.assert_close(seen.gradients, torch.tensor([[1e4, 0.0]]), rtol=1e-4, atol=0.0)
    assert seen.wrong.tolist() == [True]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_where_the_softmax_is_too_sure_for_a_gradient_it_is_that_of_the_margin(objective: AttackObjective) -> None:
    """exp of -1000 is 0 in any dtype; the second input is not that sure, and keeps its own gradient."""
    weight = torch.tensor([[1e3, 0.0], [0.0, 2e3], [-1e3, 0.0]])
    points = torch.tensor([[1.0, 0.0], [1e-3, 0.0]])
    noises = FixedNoise(torch.zeros(3, 2, 2), at_once=2)
    seen = SmoothedTarget(lambda x: x @ weight.T, torch.tensor([0, 0]), 1.0, noises, objective)(points)
    assert float(seen.losses[0]) == 0.0
    torch.testing.assert_close(seen.gradients[0] / seen.gradients[0].norm(), torch.tensor([-1.0, 2.0]) / 5**0.5)
    shares = (weight @ points[1]).softmax(dim=0)
    torch.testing.assert_close(seen.gradients[1], shares @ weight - weight[0], rtol=1e-4, atol=1e-2)


def test_parameters_and_mode_of_the_module_are_left_alone() -> None:
    module, (points, labels) = _network().train(), _batch()
    module.append(nn.Dropout(0.0))
    seen = SmoothedTarget(module, labels, 0.5, FixedNoise(_noises(points, 3)))(points)
    plain = PlainTarget(module, labels)(points)
    assert module.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in module.parameters())
    for one in (seen, plain):
        assert not one.losses.requires_grad
        assert not one.gradients.requires_grad


def test_it_works_where_gradients_are_switched_off() -> None:
    module, (points, labels) = _network(), _batch()
    with torch.no_grad():
        seen = SmoothedTarget(module, labels, 0.5, FixedNoise(_noises(points, 3)))(points)
    assert seen.gradients.abs().sum() > 0


def test_a_plain_target_is_a_smoothed_one_without_noise() -> None:
    module, (points, labels) = _network(), _batch()
    plain = PlainTarget(module, labels)(points)
    smoothed = SmoothedTarget(module, labels, 0.0, FixedNoise(_noises(points, 2)))(points)
    torch.testing.assert_close(plain.losses, smoothed.losses)
    torch.testing.assert_close(plain.gradients, smoothed.gradients)
    assert plain.wrong.tolist() == smoothed.wrong.tolist()


def test_votes_and_mean_softmax_may_disagree() -> None:
    """Two draws in three vote for class 0 by a little, the third for class 1 by a lot."""
    noises = torch.tensor([0.1, 0.1, -5.0]).view(3, 1, 1)
    forward = lambda x: torch.cat([x, -x], dim=1)  # noqa: E731
    for by_votes, wrong in ((False, True), (True, False)):
        target = SmoothedTarget(forward, torch.tensor([0]), 1.0, FixedNoise(noises, at_once=2), by_votes=by_votes)
        assert target(torch.zeros(1, 1)).wrong.tolist() == [wrong]


def test_sigma_may_be_one_for_each_input_or_a_function_of_the_points() -> None:
    module, (points, labels) = _network(), _batch()
    noises = FixedNoise(_noises(points, 3))
    levels = torch.linspace(0.1, 0.9, len(points), dtype=torch.float64)
    each = SmoothedTarget(module, labels, levels, noises)(points)
    asked: list[Tensor] = []

    def rule(at: Tensor) -> Tensor:
        asked.append(at)
        return levels

    by_rule = SmoothedTarget(module, labels, rule, noises)(points)
    assert asked[0] is points
    torch.testing.assert_close(each.gradients, by_rule.gradients)
    alone = SmoothedTarget(module, labels[2:3], float(levels[2]), FixedNoise(noises.noises[:, 2:3]))(points[2:3])
    torch.testing.assert_close(each.losses[2:3], alone.losses)


@pytest.mark.parametrize("kind", [kind for kind in Noise if kind.sampled])
def test_fresh_noise_is_new_at_every_look_and_does_not_depend_on_the_chunks(kind: Noise) -> None:
    points = torch.zeros(2, 3)
    looks = []
    for at_once in (None, 1, 4):
        noises = FreshNoise(kind, 10, torch.Generator().manual_seed(8), at_once=at_once)
        looks.append([torch.cat(list(noises.chunks(points))) for _ in range(2)])
    assert looks[0][0].shape == (10, 2, 3)
    assert not torch.equal(looks[0][0], looks[0][1])
    for other in looks[1:]:
        assert torch.equal(looks[0][0], other[0])
        assert torch.equal(looks[0][1], other[1])


def _many(kind: Noise, points: Tensor, *, draws: int) -> FixedNoise:
    """All at once: `FreshNoise` draws one after the other, so that chunks change nothing."""
    like = points.expand(draws, *points.shape)
    return FixedNoise(unit_noise(kind, like, generator=torch.Generator().manual_seed(2)), at_once=50_000)


def test_the_gradient_of_a_smoothed_linear_vote_is_the_normal_density() -> None:
    """f votes 0 exactly if w·x > b, so P(0) = Φ((w·x - b)/(σ|w|)) and ∇P = φ(·)·w/(σ|w|)."""
    weight, offset, sigma = torch.tensor([3.0, -4.0], dtype=torch.float64), 0.5, 0.5

    def votes(x: Tensor) -> Tensor:
        first = x @ weight > offset
        return torch.stack([first, ~first], dim=1).to(torch.float64)

    points = torch.tensor([[0.3, 0.1], [-0.2, 0.0]], dtype=torch.float64)
    noises = _many(Noise.GAUSSIAN, points, draws=200_000)
    seen = EstimatedTarget(votes, torch.tensor([0, 0]), sigma, noises)(points)
    margins = (points @ weight - offset) / (sigma * 5.0)
    chances = 0.5 * (1 + torch.erf(margins / math.sqrt(2)))
    density = torch.exp(-(margins**2) / 2) / math.sqrt(2 * math.pi)
    torch.testing.assert_close(seen.losses, -chances.log(), rtol=0.02, atol=0.01)
    exact = -(density / chances)[:, None] * weight / (sigma * 5.0)
    torch.testing.assert_close(seen.gradients, exact, rtol=0.02, atol=0.01)
    assert seen.wrong.tolist() == [False, True]


def test_the_gradient_of_a_smoothed_ball_points_at_its_centre() -> None:
    """A class that is a ball around c: moving away from c lowers its probability; the exact slope by differences."""
    centre, sigma = torch.tensor([0.2, -0.1, 0.4], dtype=torch.float64), 0.4

    def votes(x: Tensor) -> Tensor:
        within = (x - centre).square().sum(dim=1) < 0.5
        return torch.stack([within, ~within], dim=1).to(torch.float64)

    point = torch.tensor([[0.6, -0.1, 0.4]], dtype=torch.float64)
    noises = _many(Noise.GAUSSIAN, point, draws=400_000)
    seen = EstimatedTarget(votes, torch.tensor([0]), sigma, noises)(point)
    from scipy.stats import ncx2

    def loss(x: float) -> float:
        return -math.log(ncx2.cdf(0.5 / sigma**2, 3, ((x - 0.2) / sigma) ** 2))

    assert seen.gradients[0, 0].item() == pytest.approx((loss(0.6 + 1e-4) - loss(0.6 - 1e-4)) / 2e-4, rel=0.03)
    assert seen.gradients[0, 1:].abs().max() < 0.03


def test_under_uniform_noise_the_estimate_is_exact_for_linear_answers() -> None:
    slope = torch.tensor([0.2, -0.1], dtype=torch.float64)

    def answers(x: Tensor) -> Tensor:
        first = 0.5 + x @ slope
        return torch.stack([first, 1 - first], dim=1)

    point = torch.zeros(1, 2).double()
    noises = _many(Noise.UNIFORM, point, draws=200_000)
    seen = EstimatedTarget(answers, torch.tensor([0]), 0.5, noises, Noise.UNIFORM)(point)
    torch.testing.assert_close(seen.gradients, -slope[None] / 0.5, rtol=0.02, atol=0.005)


def test_unanimous_votes_have_no_gradient_and_no_votes_have_a_finite_loss() -> None:
    points, noises = torch.zeros(1, 2), FreshNoise(Noise.GAUSSIAN, 10, torch.Generator().manual_seed(3))
    for first in (1.0, 0.0):
        seen = EstimatedTarget(
            lambda x, first=first: torch.full((len(x), 2), 1 - first).index_fill(1, torch.tensor([0]), first),
            torch.tensor([0]),
            0.5,
            noises,
        )(points)
        assert torch.isfinite(seen.losses).all()
        assert seen.gradients.abs().max() == 0
        assert seen.wrong.tolist() == [first == 0.0]
