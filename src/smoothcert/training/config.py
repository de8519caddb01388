"""Everything a training depends on, apart from the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import InputError
from smoothcert.models.architectures import canonical_name
from smoothcert.training.objective import Objective


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Settings of one training: SGD with Nesterov momentum under a one-cycle rate.

    peak_rate: largest learning rate. standardise: put a Standardise layer, with the data's own mean and
    deviation, first. seed: decides the first weights, the order of the data and all noise.
    """

    arch: str
    objective: Objective
    seed: int
    epochs: int = 10
    batch: int = 256
    peak_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    standardise: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "arch", canonical_name(self.arch))
        if self.epochs < 1:
            raise InputError(f"{self.epochs} epochs cannot be trained; give at least 1")
        if self.batch < 2:
            raise InputError(f"a batch of {self.batch} is too small; give at least 2, 256 is usual")
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed {self.seed} is outside 0 … 2^64-1")
        if not (math.isfinite(self.peak_rate) and self.peak_rate > 0):
            raise InputError(f"learning rate {self.peak_rate} is not a positive finite number; 0.1 is usual")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum {self.momentum} is outside [0, 1); 0.9 is usual")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(f"weight decay {self.weight_decay} is negative or not finite; 0.0001 is usual")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; two trainings with equal settings, data and thread count give equal weights."""
        return {
            "arch": self.arch,
            "objective": dict(self.objective.settings),
            "seed": self.seed,
            "epochs": self.epochs,
            "batch": self.batch,
            "peak_rate": self.peak_rate,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "standardise": self.standardise,
        }
