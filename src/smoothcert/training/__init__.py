"""Training base classifiers under noise. Needs torch; knows nothing of certificates."""

from smoothcert.training.config import TrainingConfig
from smoothcert.training.evaluation import noisy_accuracy
from smoothcert.training.gaussian import GaussianAugmentation
from smoothcert.training.loop import TrainedModel, TrainingProgress, train
from smoothcert.training.objective import Batch, Objective
from smoothcert.training.state import EpochResult, TrainingState, load_state, partial_path
from smoothcert.training.uniform import UniformAugmentation

__all__ = [
    "Batch",
    "EpochResult",
    "GaussianAugmentation",
    "Objective",
    "TrainedModel",
    "TrainingConfig",
    "TrainingProgress",
    "TrainingState",
    "UniformAugmentation",
    "load_state",
    "noisy_accuracy",
    "partial_path",
    "train",
]
