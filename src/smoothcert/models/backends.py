"""Which engine computes a torch network: by name, or by a short measurement."""

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
FROM_TORCH = "from torch"
"""What the description of a back end says where the model came from another one."""

_BATCHES = (64, 256)
_ROUNDS = 3
_SECONDS_PER_TURN = 0.1


def check_backend(backend: str | None) -> None:
    """InputError for a word that names no back end; None leaves it to the model."""
    if backend is not None and backend not in BACKENDS:
        raise InputError(f"there is no back end {backend!r}: use {', '.join(BACKENDS[:-1])} or {BACKENDS[-1]}")


def check_own_backend(backend: str | None, *, own: str | None, model: str) -> None:
    """InputError where another back end is asked for than the only one this model has. own: its name, if it has one."""
    if backend is None or backend == own:
        return
    how = "by itself" if own is None else f"by {own}"
    raise InputError(
        f"--backend {backend} is for torch networks, but the model is {model}, which is computed {how}: "
        "leave --backend out"
    )


def named_backend(described: object) -> str | None:
    """TORCH or ONNXRUNTIME, from what a classifier says of its back end; None for any other."""
    name = str(described).partition(" ")[0]
    return name if name in (TORCH, ONNXRUNTIME) else None


def recorded_backend(described: object) -> str | None:
    """What to ask for to have a model computed as a manifest says it was: ONNXRUNTIME for a torch network that was
    exported, None for a model that was computed by its own back end.
    """
    text = str(described)
    return ONNXRUNTIME if text.startswith(ONNXRUNTIME) and FROM_TORCH in text else None


def fastest(classifiers: Sequence[BaseClassifier]) -> BaseClassifier:
    """The one that classifies most inputs a second, with a thread on every core.

    They are measured in turn, several times over, at batch sizes that sampling uses, and the best turn of each counts:
    other programs on the machine can only make a turn slower.
    """
    rates = [0.0] * len(classifiers)
    for batch in _BATCHES * _ROUNDS:
        for place, classifier in enumerate(classifiers):
            asked = classifier.tail if isinstance(classifier, FirstLayerNoise) else classifier
            rates[place] = max(rates[place], forward_rate(asked, batch=batch, seconds=_SECONDS_PER_TURN))
    return classifiers[int(np.argmax(rates))]


def forward_rate(
    classifier: BaseClassifier, *, batch: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Inputs per second of `classify` alone, in a thread on every core, on inputs made beforehand.

    clock: `time.thread_time` counts the seconds a thread was computing, whatever else runs on the machine.
    """
    shape = classifier.input_shape
    assert shape is not None  # no back end but torch's own does without it
    rates: list[float] = []

    def work() -> None:
        classifier.prepare_thread()
        inputs = np.random.default_rng(0).random((batch, *shape), dtype=np.float32)
        classifier.classify(inputs)
        finished, began = 0, clock()
        while True:
            classifier.classify(inputs)
            finished += batch
            elapsed = clock() - began
            if elapsed >= seconds:
                break
        rates.append(finished / elapsed)

    threads = [threading.Thread(target=work) for _ in range(min(usable_cores(), classifier.concurrency))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    classifier.release_threads()
    return sum(rates)
