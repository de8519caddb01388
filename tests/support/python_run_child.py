"""A program that makes a run; tests interrupt and kill it. Arguments: the run, and a pause for each batch."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from sample_models import digits_by_brightness
from smoothcert import SmoothedClassifier, load_dataset

INPUTS = 24


def classifier(*, sigma: float = 0.25, seed: int | None = 5) -> SmoothedClassifier:
    return SmoothedClassifier(
        digits_by_brightness, sigma=sigma, num_classes=10, seed=seed, batch=64, workers=1, grid=17
    )


def digits() -> tuple[np.ndarray, np.ndarray]:
    data = load_dataset("digits")
    return data.inputs(slice(0, INPUTS)), data.labels[:INPUTS]


if __name__ == "__main__":
    x, y = digits()
    pause = float(sys.argv[2])
    # The pause gives a test the time to interrupt; it is not part of the model.
    classifier().certify(x, labels=y, n0=20, n=2000, out=Path(sys.argv[1]), progress=lambda _: time.sleep(pause))
