"""Everything a training depends on, apart from the data."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from typing import Any

from smoothcert.errors import InputError
from smoothcert.models.architectures import canonical_name
from smoothcert.records import Noise
from smoothcert.settings_text import written
from smoothcert.sigma.base import SigmaRule
from smoothcert.training.augment import Augment
from smoothcert.training.carried_sigma import CarriedSigma
from smoothcert.training.objective import Objective
from smoothcert.training.objectives import NoiseAugmentation, objective_facts
from smoothcert.training.optimisers import Optimiser
from smoothcert.training.schedule import OneCycle, Schedule


class Precision(enum.StrEnum):
    """What forward and backward passes compute with. Weights, and what is certified later, stay float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Settings of one training.

    sigma: the noise level, or a rule that gives one to every input. carried: σ of every training input begins at the
    number `sigma` and is optimised along the way. noise: its kind.
    peak_rate: largest learning rate. average: decay of the moving average of the weights, which is then the network
    that is judged and written; 0 writes the weights as they are. standardise: put a Standardise layer, with the data's
    own mean and deviation, first. patience: stop after this many epochs without better accuracy under noise, on inputs
    that are kept back from the training data for this, and take the weights of the best epoch; None never stops early.
    seed: decides the first weights, the order of the data and all noise.
    """

    arch: str
    sigma: float | SigmaRule
    seed: int
    objective: Objective = field(default_factory=NoiseAugmentation)
    carried: CarriedSigma | None = None
    noise: Noise = Noise.GAUSSIAN
    epochs: int = 10
    batch: int = 256
    optimiser: Optimiser = Optimiser.SGD
    schedule: Schedule = field(default_factory=OneCycle)
    peak_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    average: float = 0.0
    augment: Augment = Augment.NONE
    precision: Precision = Precision.FLOAT32
    standardise: bool = False
    patience: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arch", canonical_name(self.arch))
        self._check_noise()
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
        if not 0 <= self.average < 1:
            raise InputError(f"the decay {self.average} of the moving average is outside [0, 1); 0.999 is usual")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"a patience of {self.patience} epochs is too little; give at least 1, or leave it out")

    def _check_noise(self) -> None:
        if self.noise not in self.objective.noises_allowed:
            raise InputError(f"the objective {self.objective.name} is made for Gaussian noise, not for {self.noise}")
        if isinstance(self.sigma, SigmaRule):
            if self.noise is not Noise.GAUSSIAN:
                raise InputError(f"rules for sigma are for Gaussian noise; give one number with {self.noise} noise")
            if self.carried is not None:
                raise InputError("a sigma optimised along the way begins at one number, not at a rule")
        elif not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma {self.sigma} cannot be trained with: give a finite number that is not negative")
        elif self.carried is not None and self.sigma == 0:
            raise InputError("sigma is optimised from a positive number on; it was 0")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; two trainings with equal settings, data and thread count give equal weights."""
        return {
            "arch": self.arch,
            "objective": objective_facts(self.objective),
            "noise": self.noise.value,
            **self._sigma_facts(),
            "seed": self.seed,
            "epochs": self.epochs,
            "batch": self.batch,
            "optimiser": self.optimiser.value,
            "schedule": written(self.schedule),
            "peak_rate": self.peak_rate,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "average": self.average,
            "augment": self.augment.value,
            "precision": self.precision.value,
            "standardise": self.standardise,
            "patience": self.patience,
        }

    def _sigma_facts(self) -> dict[str, Any]:
        if isinstance(self.sigma, SigmaRule):
            return {"sigma_rule": {**self.sigma.to_json(), "digest": self.sigma.digest}}
        carried = {} if self.carried is None else {"sigma_optimised": written(self.carried)}
        return {"sigma": float(self.sigma), **carried}
