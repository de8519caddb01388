"""How fast a device samples, and which part of that is the network."""

from __future__ import annotations

import sys
import time

import torch

from smoothcert.diagnosis.findings import Speed
from smoothcert.diagnosis.vote_checks import SHAPES, make_classifier
from smoothcert.models.backends import measure_rate
from smoothcert.models.base import BaseClassifier, DeviceClassifier, is_on_device
from smoothcert.records import Noise
from smoothcert.sampling.batch_size import BatchTuner

_SAMPLES = 100_000
_SECONDS = 0.5
_LEVELS = 256


def measure_speed(arch: str, device: torch.device, *, accelerated: bool) -> Speed:
    """At the batch size that a run with n = 100000 would choose, with exact noise."""
    classifier = make_classifier(arch, device, accelerated=accelerated)
    tuner = BatchTuner(classifier, SHAPES[arch], noise=Noise.GAUSSIAN, grid=_LEVELS)
    batch = tuner.choose(samples=_SAMPLES)
    sampling = max(tuner.measure(batch, seconds=_SECONDS) for _ in range(2))
    bare = max(_measure_bare(classifier, batch=batch, shape=SHAPES[arch]) for _ in range(2))
    return Speed(network=arch, batch=batch, bare=bare, sampling=sampling)


def _measure_bare(classifier: BaseClassifier, *, batch: int, shape: tuple[int, ...]) -> float:
    """Inputs per second of the network alone, on inputs that are on its device already."""
    if not is_on_device(classifier):
        return measure_rate(classifier, batch=batch, seconds=_SECONDS)
    inputs = torch.rand((batch, *shape), device=classifier.device)
    _run(classifier, inputs, seconds=0.0)
    return _run(classifier, inputs, seconds=_SECONDS)


def _run(classifier: DeviceClassifier, inputs: torch.Tensor, *, seconds: float) -> float:
    """Reading one number at the end of a turn waits for all of its kernels."""
    done, turns, began = 0, 1, time.perf_counter()
    while True:
        for _ in range(turns):
            votes = classifier.classify_tensor(inputs)
        int(votes.sum())
        done += turns * len(inputs)
        elapsed = time.perf_counter() - began
        if elapsed >= seconds:
            return done / elapsed
        turns *= 2


def read_peak_memory(device: torch.device) -> tuple[str, int | None]:
    """(of what, bytes): the most that this process has used so far; None where the system does not tell."""
    if device.type == "cuda":
        return "of the card", int(torch.cuda.max_memory_allocated(device))
    if device.type == "mps":
        return "of the GPU at the end", int(torch.mps.driver_allocated_memory())
    try:
        import resource
    except ImportError:  # Windows
        return "of the process", None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return "of the process", peak if sys.platform == "darwin" else 1024 * peak
