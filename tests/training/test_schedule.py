"""The one-cycle rate against torch's own scheduler, and at its ends."""

from __future__ import annotations

import pytest
import torch

from smoothcert.training import OneCycle


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
