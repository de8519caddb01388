"""A program that certifies some inputs for a while. Argument: the `progress` of the call."""

from __future__ import annotations

import sys
import time

import numpy as np

from smoothcert import CertifiedPoint, SmoothedClassifier

SECONDS = 1.6
INPUTS = 8
SAMPLES, BATCH = 2000, 64


def slow_model(batch: np.ndarray) -> np.ndarray:
    if len(batch) > 32:  # not where the model is asked again about single copies
        time.sleep(SECONDS / INPUTS / (SAMPLES // BATCH))
    return (batch.reshape(len(batch), -1).mean(axis=1) > 0.5).astype(np.int64)


def certify(option: bool | None) -> list[CertifiedPoint]:
    x = np.repeat(np.array([0.2, 0.8], dtype=np.float32), INPUTS // 2)[:, None] * np.ones((1, 4), dtype=np.float32)
    smoothed = SmoothedClassifier(slow_model, sigma=0.01, num_classes=2, grid="float", batch=BATCH, workers=1)
    return list(smoothed.certify(x, labels=[0] * INPUTS, n0=10, n=SAMPLES, progress=option))


if __name__ == "__main__":
    points = certify({"None": None, "True": True, "False": False}[sys.argv[1]])
    print(sum(bool(point.correct) for point in points), "of", len(points))
