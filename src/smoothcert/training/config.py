"""The settings of a training: everything it depends on, apart from the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from smoothcert.errors import InputError
from smoothcert.models.architectures import canonical_name
from smoothcert.records import Noise
from smoothcert.settings_text import format_settings
from smoothcert.sigma.rule import SigmaRule
from smoothcert.training.carried_sigma import CarriedSigma
from smoothcert.training.choices import Augment, FloatFormat, Optimiser
from smoothcert.training.input_splitting import Splitting
from smoothcert.training.objective import ADDED_NOISES, Objective
from smoothcert.training.objectives import OBJECTIVES, collect_facts
from smoothcert.training.objectives.augmentation import NoiseAugmentation
from smoothcert.training.schedule import OneCycle, Schedule


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Settings of one training.

    arch: the network, or the class of a module of the user as `package.module:attribute`.
    sigma: the noise level, or a rule for it. carried: optimise σ of every training input during the training, starting
    at the number `sigma`. noise: kind of noise. splitting: how inputs are split, if that is the noise; None for the
    defaults.
    peak_rate: largest learning rate. average: decay of a moving average of the weights, which is then evaluated and
    saved; 0 for none. standardise: make a Standardise layer, with the mean and deviation of the data, the first layer.
    patience: stop after this many epochs without better accuracy under noise on a held-back part of the training data,
    and use the weights of the best epoch; None: never stop early. hold_out: share of the data that is held out by a
    seeded shuffle: not trained on, only evaluated; None for data with inputs of their own to evaluate on.
    seed: determines initial weights, order of the data and all noise.
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
    precision: FloatFormat = FloatFormat.FLOAT32
    standardise: bool = False
    patience: int | None = None
    hold_out: float | None = None
    splitting: Splitting | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arch", canonical_name(self.arch))
        self._check_noise()
        if self.epochs < 1:
            raise InputError(f"epochs is {self.epochs}: expected at least 1")
        if self.batch < 2:
            raise InputError(f"batch is {self.batch}: expected at least 2; 256 is usual")
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed is {self.seed}: expected 0 … 2^64-1")
        if not (math.isfinite(self.peak_rate) and self.peak_rate > 0):
            raise InputError(f"learning rate is {self.peak_rate}: expected a positive finite number; 0.1 is usual")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}: expected a number in [0, 1); 0.9 is usual")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InputError(
                f"weight decay is {self.weight_decay}: expected a finite number, at least 0; 0.0001 is usual"
            )
        if not 0 <= self.average < 1:
            raise InputError(f"average is {self.average}: expected a decay in [0, 1); 0.999 is usual")
        if self.patience is not None and self.patience < 1:
            raise InputError(f"patience is {self.patience}: expected at least 1, or None")
        if self.hold_out is not None and not 0 < self.hold_out < 1:
            raise InputError(f"the share to hold out is {self.hold_out}: expected a number between 0 and 1, or None")

    def _check_noise(self) -> None:
        if self.noise not in self.objective.noises_allowed:
            raise InputError(_explain_refusal(self.objective, self.noise))
        if isinstance(self.sigma, SigmaRule):
            if self.noise is not Noise.GAUSSIAN:
                raise InputError(
                    f"rules for sigma need gaussian noise: with {self.noise} noise, sigma must be one number"
                )
            if self.carried is not None:
                raise InputError("an optimised sigma starts at one number: sigma must not be a rule")
        elif not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise InputError(f"sigma is {self.sigma}: expected a finite number, at least 0")
        elif self.carried is not None and self.sigma == 0:
            raise InputError("an optimised sigma starts at a positive number, but sigma is 0")
        self._settle_splitting()

    def _settle_splitting(self) -> None:
        if self.noise is not Noise.SPLITTING:
            if self.splitting is not None:
                raise InputError(
                    f"grid and offset_seed are for splitting, and the noise is {self.noise}: leave them out"
                )
            return
        if self.carried is not None:
            raise InputError("an optimised sigma needs noise that is added; splitting takes one number for all inputs")
        if self.splitting is None:
            object.__setattr__(self, "splitting", Splitting())
        self._splitting_facts()  # the level must be possible

    def to_json(self) -> dict[str, Any]:
        """JSON values. Two trainings with equal settings, data and thread count give equal weights."""
        return {
            "arch": self.arch,
            "objective": collect_facts(self.objective),
            "noise": self.noise.value,
            **self._sigma_facts(),
            **self._splitting_facts(),
            "seed": self.seed,
            "epochs": self.epochs,
            "batch": self.batch,
            "optimiser": self.optimiser.value,
            "schedule": format_settings(self.schedule),
            "peak_rate": self.peak_rate,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "average": self.average,
            "augment": self.augment.value,
            "precision": self.precision.value,
            "standardise": self.standardise,
            "patience": self.patience,
            "hold_out": self.hold_out,
        }

    def _sigma_facts(self) -> dict[str, Any]:
        if isinstance(self.sigma, SigmaRule):
            return {"sigma_rule": {**self.sigma.to_json(), "digest": self.sigma.digest}}
        carried = {} if self.carried is None else {"sigma_optimised": format_settings(self.carried)}
        return {"sigma": float(self.sigma), **carried}

    def _splitting_facts(self) -> dict[str, Any]:
        if self.splitting is None or isinstance(self.sigma, SigmaRule):
            return {}
        return self.splitting.to_json(self.sigma)


def _explain_refusal(objective: Objective, noise: Noise) -> str:
    allowed = ", ".join(sorted(objective.noises_allowed))
    text = f"the objective {objective.name} supports {allowed} noise, not {noise}"
    if noise in ADDED_NOISES:
        return text
    others = ", ".join(sorted(name for name, kind in OBJECTIVES.items() if noise in kind.noises_allowed))
    return (
        f"{text}: its formula, or its attack along a gradient, is about x + noise, and {noise} adds nothing to x. Use "
        f"an objective that needs noisy copies only: {others}"
    )
