"""Models that misbehave on the actors of a cluster, and tell which processes they live in."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import ray

from sample_models import digits_by_brightness, logistic_digits

FOLDER = "SMOOTHCERT_TEST_FOLDER"
"""Set before a cluster is started: where models leave the number of their process."""


def logistic_with_pid() -> object:
    """Logistic regression of digits; the process that loads it leaves its number."""
    folder = os.environ.get(FOLDER)
    if folder is not None:
        (Path(folder) / str(os.getpid())).touch()
    return logistic_digits()


def refuses_batches(batch: np.ndarray) -> np.ndarray:
    """Fails when it is asked in earnest, not when it is tried out with two inputs."""
    if len(batch) > 2:
        raise ValueError("this batch is not to my taste")
    return digits_by_brightness(batch)


def kills_its_actor(batch: np.ndarray) -> np.ndarray:
    """Ends the process of an actor when it is asked in earnest."""
    if len(batch) > 16 and ray.get_runtime_context().get_actor_id() is not None:
        os._exit(9)
    return digits_by_brightness(batch)
