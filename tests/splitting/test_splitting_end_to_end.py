"""`SmoothedClassifier` under splitting on tiny grids: against plain Python, and attacked with all inputs there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError
from smoothcert.records import CertifiedPoint, Outcome, ReasonCode
from splitting_worlds import TableWorld, look_up, make_world, offset_by_hand, survived_changes, winner_by_definition


def as_function(world: TableWorld) -> Callable[[np.ndarray], np.ndarray]:
    """The table as logits; NaN where it has no valid answer."""
    table, steps, classes = world.table, world.steps, world.classes

    def answer(batch: np.ndarray) -> np.ndarray:
        labels = look_up(batch.reshape(len(batch), -1), table, steps)
        logits = np.zeros((len(batch), classes))
        logits[np.arange(len(batch)), labels.clip(0, classes - 1)] = 1.0
        logits[labels == classes] = np.nan
        return logits

    return answer


def make_smoothed(world: TableWorld, *, seed: int | None, **settings: Any) -> SmoothedClassifier:
    return SmoothedClassifier(
        as_function(world),
        noise="splitting",
        evaluations=world.evaluations,
        grid=world.steps + 1,
        seed=seed,
        num_classes=world.classes,
        input_shape=(world.size,),
        **settings,
    )


def votes_by_hand(world: TableWorld, k: tuple[int, ...]) -> tuple[int, ...]:
    counts = [0] * (world.classes + 1)
    for shown in world.shown(k):
        place = 0
        for x in shown:
            place = place * (4 * world.steps + 1) + int(x * 4 * world.steps)
        counts[int(world.table[place])] += 1
    return tuple(counts)


def on_grid(world: TableWorld) -> np.ndarray:
    return (world.inputs / world.steps).astype(np.float32)


def with_drawn_offsets(world: TableWorld, *, seed: int) -> TableWorld:
    offsets = tuple(offset_by_hand(i, seed=seed, evaluations=world.evaluations) for i in range(world.size))
    return TableWorld(world.size, world.steps, world.evaluations, offsets, world.classes, world.table)


WORLDS = [
    {"size": 1, "steps": 6, "evaluations": 7, "classes": 2},
    {"size": 2, "steps": 4, "evaluations": 2},
    {"size": 2, "steps": 6, "evaluations": 12, "missing": 0.15},
    {"size": 2, "steps": 6, "evaluations": 9, "missing": 0.4},
    {"size": 3, "steps": 3, "evaluations": 5, "classes": 4},
]


@pytest.mark.parametrize("settings", WORLDS)
@pytest.mark.parametrize("seed", [None, 2**77 + 5])
@pytest.mark.parametrize("batch", [None, 5])
def test_every_point_is_that_of_plain_python(settings: dict[str, Any], seed: int | None, batch: int | None) -> None:
    world = with_drawn_offsets(make_world(3, lead=0.5, **settings), seed=0 if seed is None else seed)
    smoothed = make_smoothed(world, seed=seed, batch=batch, workers=1)
    certified = smoothed.certify(on_grid(world))
    predicted = smoothed.predict(on_grid(world))
    for k, point, other in zip(world.inputs.tolist(), certified, predicted, strict=True):
        votes = votes_by_hand(world, tuple(k))
        (tally,) = point.tallies
        assert (*tally.independent_votes().counts.tolist(), tally.independent_votes().invalid) == votes
        assert tally.ranges == ((0, world.evaluations),)
        label = winner_by_definition(votes[:-1], votes[-1])
        assert other.prediction == label
        check_outcome(world, point, votes, label)


def test_all_outcomes_are_among_them() -> None:
    worlds = [with_drawn_offsets(make_world(3, lead=0.5, **settings), seed=0) for settings in WORLDS]
    outcomes = [point.outcome for one in worlds for point in make_smoothed(one, seed=0).certify(on_grid(one))]
    assert min(outcomes.count(one) for one in (Outcome.CERTIFIED, Outcome.ABSTAINED, Outcome.FAILED)) > 3


def check_outcome(world: TableWorld, point: CertifiedPoint, votes: tuple[int, ...], label: int | None) -> None:
    if label is None:
        assert (point.outcome, point.radius) == (Outcome.FAILED, 0.0)
        return
    steps = survived_changes(votes, label)
    assert Fraction(point.radius) <= Fraction(steps, world.steps) < Fraction(math.nextafter(point.radius, math.inf))
    assert (point.outcome is Outcome.CERTIFIED) == (steps >= 1)
    assert point.prediction == (label if steps >= 1 else None)
    if steps < 1:
        assert point.outcome is Outcome.ABSTAINED
        assert point.reason is not None
        assert point.reason.code is ReasonCode.LEAD_TOO_SMALL
    else:
        assert point.guarantee is not None
        assert point.guarantee.is_certain


def attack_with_all_inputs(smoothed: SmoothedClassifier, k: np.ndarray, steps: int) -> tuple[int, int]:
    """How many inputs are certified, and how many of them have another answer one step beyond the radius."""
    x = (k / steps).astype(np.float32)
    certified = smoothed.certify(x)
    answers = np.array([-1 if point.prediction is None else point.prediction for point in smoothed.predict(x)])
    distances = np.abs(k[:, None] - k[None]).sum(axis=2)
    count, beyond = 0, 0
    for row, point in enumerate(certified):
        if point.outcome is not Outcome.CERTIFIED:
            continue
        safe = math.floor((Fraction(point.radius) + Fraction(1, 10**9)) * steps)
        assert safe >= 1
        assert (answers[distances[row] <= safe] == point.prediction).all()
        count += 1
        beyond += bool((answers[distances[row] == safe + 1] != point.prediction).any())
    return count, beyond


def test_no_input_within_a_certified_radius_has_another_answer() -> None:
    counted, beyond = 0, 0
    for number, settings in enumerate(WORLDS * 2):
        world = make_world(number, lead=0.3, **settings)
        count, changed = attack_with_all_inputs(make_smoothed(world, seed=number), world.inputs, world.steps)
        counted, beyond = counted + count, beyond + changed
    assert counted > 100
    assert beyond > counted // 10


@pytest.mark.parametrize(("size", "steps", "evaluations"), [(2, 10, 16), (3, 5, 11), (4, 3, 8)])
def test_small_networks_are_attacked_with_all_inputs(size: int, steps: int, evaluations: int) -> None:
    torch.manual_seed(size)
    network = torch.nn.Sequential(torch.nn.Linear(size, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    with torch.no_grad():
        network[0].weight *= 6.0
        network[0].bias.copy_(-network[0].weight @ torch.full((size,), 0.5))
    smoothed = SmoothedClassifier(
        network, noise="splitting", evaluations=evaluations, grid=steps + 1, input_shape=(size,), device="cpu"
    )
    k = np.array(list(itertools.product(range(steps + 1), repeat=size)))
    count, beyond = attack_with_all_inputs(smoothed, k, steps)
    assert count > len(k) // 4
    assert beyond > 0


def test_another_seed_is_another_classifier_and_the_same_one_is_the_same() -> None:
    world = make_world(5, size=2, steps=6, evaluations=12, lead=0.3)

    def counts(seed: int | None) -> list[Any]:
        return [point.tallies[0].counts.tolist() for point in make_smoothed(world, seed=seed).certify(on_grid(world))]

    assert counts(None) == counts(0) == counts(0)
    assert counts(0) != counts(1)


def test_inputs_are_rounded_to_a_grid_that_was_given_and_8_bits_are_checked() -> None:
    world = make_world(5, size=2, steps=6, evaluations=12, lead=0.3)
    smoothed, near = make_smoothed(world, seed=0), on_grid(world).clip(0.05, 0.95)
    assert [point.prediction for point in smoothed.predict(near)] == [
        point.prediction for point in smoothed.predict(np.rint(near * 6) / np.float32(6))
    ]
    eight_bits = SmoothedClassifier(as_function(world), noise="splitting", evaluations=12, num_classes=3)
    with pytest.raises(InputError, match="grid"):
        eight_bits.certify(near)
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        smoothed.certify(on_grid(world) + 1)


@pytest.mark.parametrize("asked", [{"n": 1000}, {"n0": 7}, {"alpha": 0.01}, {"decide": 0.5}, {"precision": 0.1}])
def test_settings_about_samples_are_refused(asked: dict[str, Any]) -> None:
    world = make_world(5, size=2, steps=6, evaluations=12)
    with pytest.raises(InputError, match="about samples, and splitting has none"):
        make_smoothed(world, seed=0).certify(on_grid(world), **asked)
