"""The one-cycle rate against torch's own scheduler and at its ends; steps by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from smoothcert.errors import InputError
from smoothcert.training import OneCycle, Steps, parse_schedule


@pytest.mark.parametrize("steps", [10, 37, 200])
def test_agrees_with_torch(steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=steps, cycle_momentum=False)
    for step in range(steps):
        assert OneCycle().rate(step, steps=steps, peak=0.1) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        optimizer.step()
        if step + 1 < steps:
            scheduler.step()


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_very_short_trainings_have_positive_rates_up_to_the_peak(steps):
    rates = [OneCycle().rate(step, steps=steps, peak=0.5) for step in range(steps)]
    assert all(0 < rate <= 0.5 for rate in rates)
    assert max(rates) == pytest.approx(0.5, rel=0.5)


def test_the_papers_steps_by_hand():
    """÷10 every 30 of 90 epochs, here of 4 batches: the rate of steps 0 … 119, 120 … 239 and 240 … 359."""
    rates = [Steps().rate(step, steps=360, peak=0.01) for step in range(360)]
    assert rates == pytest.approx([0.01] * 120 + [0.001] * 120 + [0.0001] * 120, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Steps(drops=0), [1.0] * 10),
        (Steps(drops=1, factor=0.5), [1.0] * 5 + [0.5] * 5),
        # Three drops at 2.5, 5 and 7.5 of 10 steps.
        (Steps(drops=3, factor=0.5), [1.0, 1.0, 1.0, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125]),
        (Steps(drops=1, factor=0.0), [1.0] * 5 + [0.0] * 5),
    ],
)
def test_steps_by_hand(schedule, expected):
    assert [schedule.rate(step, steps=10, peak=1.0) for step in range(10)] == pytest.approx(expected)


@pytest.mark.parametrize("rise", [0.0, 0.1, 0.5, 1.0])
def test_the_peak_is_where_the_rise_ends(rise):
    rates = [OneCycle(rise=rise).rate(step, steps=100, peak=0.2) for step in range(100)]
    assert max(rates) == pytest.approx(0.2)
    assert int(np.argmax(rates)) == max(round(100 * rise) - 1, 0)
    assert rates[-1] == pytest.approx(0.2 if rise == 1.0 else 0.2 / 250000)
    assert rates[0] == pytest.approx(0.2 if rise == 0.0 else 0.2 / 25)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [("one-cycle", OneCycle()), ("one-cycle:rise=0.2", OneCycle(rise=0.2)), ("step:drops=3", Steps(drops=3))],
)
def test_schedules_by_their_words(text, schedule):
    assert parse_schedule(text) == schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine", "there is no schedule 'cosine'; choose one-cycle, step"),
        ("step:drops=-1", "drops of step is -1: expected a whole number, at least 0"),
        ("step:drops=1.5", "'drops=1.5' is invalid: expected a whole number after the equals sign"),
        ("step:factor=2", "factor of step is 2.0: expected a finite number, between 0 and 1"),
        ("one-cycle:rise=1.5", "rise of one-cycle is 1.5: expected a finite number, between 0 and 1"),
        ("one-cycle:drops=2", "'drops' is unknown; one-cycle takes rise"),
    ],
)
def test_impossible_schedules_are_refused_in_a_sentence(text, message):
    with pytest.raises(InputError) as refusal:
        parse_schedule(text)
    assert message in str(refusal.value)
