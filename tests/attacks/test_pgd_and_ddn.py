"""Attacks against targets whose best perturbation is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from smoothcert.attacks import (
    Assessment,
    FixedNoise,
    FreshNoise,
    PlainTarget,
    SmoothedTarget,
    ddn,
    lengths,
    pgd,
    random_start,
)
from smoothcert.records import Noise, Norm

WEIGHT = torch.tensor([3.0, -4.0, 0.0])


def _linear(x: Tensor) -> Tensor:
    """Class 0 exactly where w·x > 0; the distance to the other class is w·x/5."""
    margin = x @ WEIGHT
    return torch.stack([margin, -margin], dim=1)


INPUTS = torch.tensor([[1.0, 0.0, 0.3], [0.0, -0.5, -2.0], [0.2, 0.1, 0.0]])
LABELS = torch.zeros(3, dtype=torch.int64)
DISTANCES = (INPUTS @ WEIGHT) / 5.0


def test_pgd_finds_the_shortest_way_out_of_a_half_space() -> None:
    target = PlainTarget(_linear, LABELS)
    for share, wrong in ((0.99, False), (1.01, True)):
        points = pgd(target, INPUTS, radius=share * DISTANCES, steps=5)
        torch.testing.assert_close(points - INPUTS, -share * DISTANCES[:, None] * WEIGHT / 5.0)
        assert target(points).wrong.tolist() == [wrong] * 3


@pytest.mark.parametrize("norm", list(Norm))
def test_pgd_never_leaves_the_ball_or_the_bounds(norm: Norm) -> None:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.rand(20, 2, 5, generator=generator)
    weights = torch.randn(10, 4, generator=generator)
    labels = torch.arange(20) % 4
    radius = torch.rand(20, generator=generator) * 2
    target = SmoothedTarget(lambda x: x.flatten(1) @ weights, labels, 0.3, FreshNoise(Noise.GAUSSIAN, 5, generator))
    start = random_start(inputs, radius=3 * radius, generator=generator, norm=norm)
    points = pgd(target, inputs, radius=radius, steps=8, start=start, bounds=(0.0, 1.0), norm=norm)
    assert (lengths(points - inputs, norm=norm) <= radius * (1 + 1e-5)).all()
    assert float(points.min()) >= 0.0
    assert float(points.max()) <= 1.0
    assert (
        PlainTarget(target.forward, labels)(points).losses > PlainTarget(target.forward, labels)(inputs).losses
    ).all()


def test_l1_attacks_spend_everything_on_the_coordinate_that_pays_most() -> None:
    points = pgd(PlainTarget(_linear, LABELS), INPUTS, radius=0.5, steps=4, norm=Norm.L1)
    torch.testing.assert_close(points - INPUTS, torch.tensor([[0.0, 0.5, 0.0]] * 3))


def test_in_bounds_the_way_goes_along_the_border() -> None:
    """The second coordinate may not grow beyond 0, so all of the radius goes into the first."""
    points = pgd(
        PlainTarget(_linear, LABELS[:1]), torch.tensor([[0.0, 0.0, 0.0]]), radius=0.5, steps=10, bounds=(-1.0, 0.0)
    )
    torch.testing.assert_close(points, torch.tensor([[-0.5, 0.0, 0.0]]))


class _Scripted:
    """Says what it was told to say, look by look."""

    def __init__(self, losses: list[float], wrong: list[bool], gradient: float = 1.0) -> None:
        self.script = list(zip(losses, wrong, strict=True))
        self.gradient = gradient
        self.seen: list[float] = []

    def __call__(self, points: Tensor, /) -> Assessment:
        loss, wrong = self.script[len(self.seen)]
        self.seen.append(float(points))
        return Assessment(torch.tensor([loss]), torch.full_like(points, self.gradient), torch.tensor([wrong]))


def test_the_last_point_costs_no_look() -> None:
    target = _Scripted([0.0, 0.0, 0.0], [False] * 3)
    assert float(pgd(target, torch.zeros(1, 1), radius=1.0, steps=3, step_size=0.25)) == 0.75
    assert len(target.seen) == 3


@pytest.mark.parametrize("gradient", [0.0, math.nan, math.inf])
def test_where_there_is_no_gradient_nothing_moves(gradient: float) -> None:
    target = _Scripted([0.0] * 9, [False] * 9, gradient)
    assert float(pgd(target, torch.full((1, 1), 0.5), radius=1.0, steps=4)) == 0.5
    assert float(ddn(target, torch.full((1, 1), 0.5), radius=1.0, steps=4)) == 0.5


def test_no_radius_means_no_move() -> None:
    assert torch.equal(pgd(PlainTarget(_linear, LABELS), INPUTS, radius=0.0, steps=3), INPUTS)


def test_ddn_finds_the_distance_of_a_half_space() -> None:
    target = PlainTarget(_linear, LABELS)
    points = ddn(target, INPUTS, steps=200)
    assert target(points).wrong.all()
    found = lengths(points - INPUTS)
    assert (found >= DISTANCES).all()
    torch.testing.assert_close(found, DISTANCES, rtol=0.06, atol=0.0)


def test_ddn_under_a_cap_stays_below_it_and_ends_at_it_where_nothing_is_found() -> None:
    target = PlainTarget(_linear, LABELS)
    cap = torch.tensor([0.9, 1.1, 2.0]) * DISTANCES
    points = ddn(target, INPUTS, steps=60, radius=cap)
    length = lengths(points - INPUTS)
    assert target(points).wrong.tolist() == [False, True, True]
    assert (length <= cap * (1 + 1e-6)).all()
    torch.testing.assert_close(length[0], cap[0])
    assert length[2] < 1.1 * DISTANCES[2]


@pytest.mark.parametrize("bounds", [None, (-10.0, 10.0)])
def test_ddn_ends_at_its_cap_in_few_steps_where_nothing_is_found(bounds: tuple[float, float] | None) -> None:
    """By itself the norm is 1.05⁴ after four steps."""
    far = INPUTS + 4.0 * WEIGHT / 5.0
    points = ddn(PlainTarget(_linear, LABELS), far, steps=4, radius=torch.tensor([3.0, 2.0, 0.5]), bounds=bounds)
    torch.testing.assert_close(points - far, torch.tensor([3.0, 2.0, 0.5])[:, None] * -WEIGHT / 5.0)


def test_ddn_gives_an_input_back_that_is_wrong_already() -> None:
    assert torch.equal(ddn(PlainTarget(_linear, LABELS + 1), INPUTS, steps=5), INPUTS)


def test_ddn_stays_in_bounds() -> None:
    points = ddn(PlainTarget(_linear, LABELS[:1]), torch.tensor([[0.5, 0.0, 0.0]]), steps=60, bounds=(-1.0, 0.5))
    assert (points >= -1.0).all()
    assert (points <= 0.5).all()
    assert PlainTarget(_linear, LABELS[:1])(points).wrong.all()


def test_a_smoothed_half_space_is_attacked_along_its_normal() -> None:
    noises = FixedNoise(torch.randn(64, 3, 3, generator=torch.Generator().manual_seed(1)), at_once=20)
    points = pgd(SmoothedTarget(_linear, LABELS, 0.5, noises), INPUTS, radius=0.4, steps=10)
    torch.testing.assert_close(points - INPUTS, -0.4 * WEIGHT.expand(3, 3) / 5.0)


def test_attacks_repeat_bit_for_bit_from_the_same_generator() -> None:
    def attacked() -> Tensor:
        generator = torch.Generator().manual_seed(11)
        noises = FreshNoise(Noise.GAUSSIAN, 4, generator)
        start = random_start(INPUTS, radius=0.5, generator=generator)
        forward = lambda x: torch.tanh(_linear(x.sin()))  # noqa: E731
        return pgd(SmoothedTarget(forward, LABELS, 0.5, noises), INPUTS, radius=0.5, steps=5, start=start)

    assert torch.equal(attacked(), attacked())
