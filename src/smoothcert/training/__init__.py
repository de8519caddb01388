"""Training base classifiers under noise. Needs torch; knows nothing of certificates."""

from smoothcert.training.augment import Augment
from smoothcert.training.carried_sigma import CarriedSigma
from smoothcert.training.config import Precision, TrainingConfig
from smoothcert.training.curves import curves_path
from smoothcert.training.evaluation import noisy_accuracy
from smoothcert.training.loop import TrainedModel, TrainingProgress, train
from smoothcert.training.objective import Batch, Objective
from smoothcert.training.objectives import (
    OBJECTIVES,
    Adversarial,
    Consistency,
    Macer,
    NoiseAugmentation,
    SmoothAdv,
    SmoothMix,
    Stability,
    parse_objective,
)
from smoothcert.training.optimisers import Optimiser
from smoothcert.training.schedule import OneCycle, Schedule, Steps, parse_schedule
from smoothcert.training.state import EpochResult, TrainingState, load_state, partial_path

__all__ = [
    "OBJECTIVES",
    "Adversarial",
    "Augment",
    "Batch",
    "CarriedSigma",
    "Consistency",
    "EpochResult",
    "Macer",
    "NoiseAugmentation",
    "Objective",
    "OneCycle",
    "Optimiser",
    "Precision",
    "Schedule",
    "SmoothAdv",
    "SmoothMix",
    "Stability",
    "Steps",
    "TrainedModel",
    "TrainingConfig",
    "TrainingProgress",
    "TrainingState",
    "curves_path",
    "load_state",
    "noisy_accuracy",
    "parse_objective",
    "parse_schedule",
    "partial_path",
    "train",
]
