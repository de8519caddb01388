"""The back ends that can compute a torch network: chosen by name or by a short measurement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from smoothcert.errors import InputError
from smoothcert.models.base import BaseClassifier, FirstLayerNoise
from smoothcert.models.devices import usable_cores

TORCH, ONNXRUNTIME, FASTEST = "torch", "onnxruntime", "fastest"
BACKENDS = (TORCH, ONNXRUNTIME, FASTEST)

_BATCHES = (64, 256)
_ROUNDS = 3
_SECONDS_PER_TURN = 0.1


def check_backend(backend: str | None) -> None:
    """InputError for an unknown back end. None means the default of the model."""
    if backend is not None and backend not in BACKENDS:
        raise InputError(f"there is no back end {backend!r}: use {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}")


def check_only_backend(backend: str | None, *, only: str | None, model: str) -> None:
    """InputError if `backend` is given and is not `only`, the one back end of this model (None: it has no name)."""
    if backend is None or backend == only:
        return
    how = "by itself" if only is None else f"by {only}"
    raise InputError(
        f"--backend {backend} is for torch networks, but the model is {model}, which is computed {how}: "
        "leave --backend out"
    )


def get_backend_name(classifier: object) -> str | None:
    """TORCH or ONNXRUNTIME: the `backend=` that loads the same function again. None if the model has one back end."""
    name = getattr(classifier, "backend_name", None)
    return name if name in (TORCH, ONNXRUNTIME) else None


def choose_fastest(classifiers: Sequence[BaseClassifier]) -> BaseClassifier:
    """The classifier with the highest throughput, with a thread on every core.

    They are measured in turn, several times, at batch sizes that sampling uses. The best turn of each counts: other
    programs on the machine can only make a turn slower.
    """
    rates = [0.0] * len(classifiers)
    for batch in _BATCHES * _ROUNDS:
        for place, classifier in enumerate(classifiers):
            measured = classifier.tail if isinstance(classifier, FirstLayerNoise) else classifier
            rates[place] = max(rates[place], measure_rate(measured, batch=batch, seconds=_SECONDS_PER_TURN))
    return classifiers[int(np.argmax(rates))]


def measure_rate(
    classifier: BaseClassifier, *, batch: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Inputs per second of `classify`, in a thread on every core, on inputs made beforehand.

    clock: `time.thread_time` counts only the seconds in which a thread was computing.
    """
    shape = classifier.input_shape
    assert shape is not None  # only torch's own back end works without it
    rates: list[float] = []

    def work() -> None:
        classifier.prepare_thread()
        inputs = np.random.default_rng(0).random((batch, *shape), dtype=np.float32)
        classifier.classify(inputs)
        finished, elapsed, began = 0, 0.0, clock()
        while elapsed < seconds or finished == 0:
            classifier.classify(inputs)
            finished += batch
            elapsed = clock() - began
        rates.append(finished / elapsed)

    threads = [threading.Thread(target=work) for _ in range(min(usable_cores(), classifier.concurrency))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    classifier.release_threads()
    return sum(rates)
