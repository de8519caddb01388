"""Training of base classifiers under noise, of σ networks and of selectors. Does not depend on certificates.

Names are imported when first used: `choices` and this package need no torch, everything else does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert.training.carried_sigma import CarriedSigma
    from smoothcert.training.choices import Augment, FloatFormat, Optimiser, SigmaObjective
    from smoothcert.training.config import TrainingConfig
    from smoothcert.training.curves import curves_path
    from smoothcert.training.evaluation import noisy_accuracy
    from smoothcert.training.holding_out import HELD_OUT_SHARE, describe_hold_out, held_out_path
    from smoothcert.training.input_splitting import Splitting, read_splitting
    from smoothcert.training.module_selector import choose_seeds, find_arch, train_selector, votes_path
    from smoothcert.training.module_training import train
    from smoothcert.training.objective import Batch, Objective
    from smoothcert.training.objectives import OBJECTIVES, parse_objective
    from smoothcert.training.schedule import OneCycle, Schedule, Steps, parse_schedule
    from smoothcert.training.selector_report import SelectorReport
    from smoothcert.training.selector_training import SelectorConfig, TrainedSelector, train_selector_network
    from smoothcert.training.state import EpochResult, History, TrainingState, choose_seed, load_state, partial_path
    from smoothcert.training.training_loop import TrainedModel, TrainingProgress, print_epoch
    from smoothcert.training.training_run import run_training

__all__ = [
    "HELD_OUT_SHARE",
    "OBJECTIVES",
    "Augment",
    "Batch",
    "CarriedSigma",
    "EpochResult",
    "FloatFormat",
    "History",
    "Objective",
    "OneCycle",
    "Optimiser",
    "Schedule",
    "SelectorConfig",
    "SelectorReport",
    "SigmaObjective",
    "Splitting",
    "Steps",
    "TrainedModel",
    "TrainedSelector",
    "TrainingConfig",
    "TrainingProgress",
    "TrainingState",
    "choose_seed",
    "choose_seeds",
    "curves_path",
    "describe_hold_out",
    "find_arch",
    "held_out_path",
    "load_state",
    "noisy_accuracy",
    "parse_objective",
    "parse_schedule",
    "partial_path",
    "print_epoch",
    "read_splitting",
    "run_training",
    "train",
    "train_selector",
    "train_selector_network",
    "votes_path",
]

_NAMES_BY_MODULE = {
    "carried_sigma": ("CarriedSigma",),
    "choices": ("Augment", "Optimiser", "FloatFormat", "SigmaObjective"),
    "config": ("TrainingConfig",),
    "curves": ("curves_path",),
    "evaluation": ("noisy_accuracy",),
    "holding_out": ("HELD_OUT_SHARE", "describe_hold_out", "held_out_path"),
    "input_splitting": ("Splitting", "read_splitting"),
    "module_selector": ("choose_seeds", "find_arch", "train_selector", "votes_path"),
    "module_training": ("train",),
    "objective": ("Batch", "Objective"),
    "objectives": ("OBJECTIVES", "parse_objective"),
    "schedule": ("OneCycle", "Schedule", "Steps", "parse_schedule"),
    "selector_report": ("SelectorReport",),
    "selector_training": ("SelectorConfig", "TrainedSelector", "train_selector_network"),
    "state": ("EpochResult", "History", "TrainingState", "choose_seed", "load_state", "partial_path"),
    "training_loop": ("TrainedModel", "TrainingProgress", "print_epoch"),
    "training_run": ("run_training",),
}
_MODULES = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name] != "choices":
        from smoothcert.models.devices import import_torch

        import_torch("training")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
