"""A training with every kind of state: images, a convolutional network, changing noise levels, moving averages.

Run as a program, it resumes the training that writes the given path, stores its state after every batch, prints that,
and waits a little, so that it can be killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.data import load_dataset
from smoothcert.records import FloatArray, IntArray
from smoothcert.training import (
    Augment,
    CarriedSigma,
    Objective,
    Optimiser,
    TrainedModel,
    TrainingConfig,
    TrainingState,
    run_training,
    training_loop,
)
from smoothcert.training.objectives.consistency import Consistency
from smoothcert.training.objectives.smoothadv import SmoothAdv


class SmallDigits:
    """7 by 7 pixels of some digits."""

    name, num_classes, input_shape, class_names, input_range = "small", 10, (1, 7, 7), (), (0.0, 1.0)

    def __init__(self, count: int = 150, *, split: str = "train", labels: Sequence[int] | None = None) -> None:
        digits = load_dataset("digits", split=split)
        self.split = split
        self.digest = f"{split} {count}"
        self.labels: IntArray = digits.labels[:count] if labels is None else np.asarray(labels)
        self._inputs = np.ascontiguousarray(digits.inputs(slice(0, count))[:, :, :7, :7])

    def __len__(self) -> int:
        return len(self._inputs)

    def inputs(self, indices: Any) -> FloatArray:
        return self._inputs[indices]


OBJECTIVES: dict[str, Objective] = {
    "smoothadv": SmoothAdv(radius=0.5, steps=2, noises=2, consistency=1.0),
    "consistency": Consistency(weight=2.0, noises=2),
}


def everything(objective: Objective, **changes: Any) -> TrainingConfig:
    settings = {
        "arch": "small_net", "sigma": 0.25, "seed": 5, "objective": objective, "epochs": 3, "batch": 24,
        "optimiser": Optimiser.ADAMW, "peak_rate": 0.003, "average": 0.9, "carried": CarriedSigma(after=0.2, rate=0.2),
        "augment": Augment.FLIP_CROP, "standardise": True, "patience": 2,
    }  # fmt: skip
    return TrainingConfig(**(settings | changes))


def train_everything(name: str, out: Path, **options: Any) -> TrainedModel:
    return run_training(everything(OBJECTIVES[name]), SmallDigits(), out=out, device="cpu", threads=1, **options)


def _saved_slowly(save: Any) -> Any:
    def slowly(path: Path, state: TrainingState) -> None:
        save(path, state)
        print(state.epoch, state.batch, flush=True)
        time.sleep(0.2)

    return slowly


if __name__ == "__main__":
    training_loop._SECONDS_BETWEEN_STATES = 0.0
    training_loop.save_state = _saved_slowly(training_loop.save_state)  # type: ignore[attr-defined]
    train_everything(sys.argv[1], Path(sys.argv[2]), resume=True)
