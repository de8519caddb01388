"""Models that misbehave, importable by name from the command line too."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CLASSES = 10


def sound(batch: np.ndarray) -> np.ndarray:
    """The correct answers."""
    return batch.reshape(len(batch), -1)[:, :CLASSES].astype(np.float64)


def filled(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def answer(batch: np.ndarray) -> np.ndarray:
        return np.full((len(batch), CLASSES), value)

    # A class or a function of no arguments would be called when it is imported; this one takes a batch.
    return answer


all_nan, all_inf, all_minus_inf, ties = map(filled, (np.nan, np.inf, -np.inf, 0.0))


def negative_zeros(batch: np.ndarray) -> np.ndarray:
    logits = np.full((len(batch), CLASSES), -0.0)
    logits[:, 7] = 0.0
    return logits


def nan_now_and_then(batch: np.ndarray) -> np.ndarray:
    logits = np.zeros((len(batch), CLASSES))
    logits[:, 3] = np.where(batch.reshape(len(batch), -1)[:, 0] > 0, np.nan, 1.0)
    return logits


class Later:
    """Answers two inputs correctly, to show the number of classes, and other batches by `way`."""

    def __init__(self, way: Callable[[np.ndarray], Any]) -> None:
        self.way = way

    def __call__(self, batch: np.ndarray) -> Any:
        return sound(batch) if len(batch) == 2 else self.way(batch)


def _raised(error: BaseException) -> Callable[[np.ndarray], Any]:
    def answer(_: np.ndarray) -> Any:
        raise error

    return answer


too_many_rows = Later(lambda batch: np.zeros((len(batch) + 1, CLASSES)))
too_many_columns = Later(lambda batch: np.zeros((len(batch), CLASSES + 1)))
words = Later(lambda batch: np.array(["a"] * len(batch)))
ragged = Later(lambda batch: [[1, 2], [3]] + [[1]] * (len(batch) - 2))
complex_numbers = Later(lambda batch: np.zeros((len(batch), CLASSES), dtype=complex))
nothing = Later(lambda batch: None)
out_of_range = Later(lambda batch: np.full(len(batch), 99))
below_range = Later(lambda batch: np.full(len(batch), -1))
beyond_64_bits = Later(lambda batch: np.full(len(batch), 2**64 - 1, dtype=np.uint64))
leaves = Later(_raised(SystemExit(0)))
stops_iteration = Later(_raised(StopIteration()))
generator_exit = Later(_raised(GeneratorExit()))
runs_out_of_memory = Later(lambda batch: np.empty(10**13))
calls_itself = Later(lambda batch: calls_itself(batch))

REFUSED = (
    "too_many_rows", "too_many_columns", "words", "ragged", "complex_numbers", "nothing", "out_of_range", "below_range",
    "beyond_64_bits", "leaves", "stops_iteration", "generator_exit", "runs_out_of_memory", "calls_itself",
)  # fmt: skip
"""Their names."""


class Fails:
    """Fails at its 200th call with several inputs."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.calls += len(batch) > 1
        if self.calls == 200:
            raise RuntimeError("the cable came off")
        return sound(batch)


class Moody:
    """A random class for every call."""

    def __init__(self) -> None:
        self.moods = np.random.default_rng(0)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        logits = np.zeros((len(batch), CLASSES))
        logits[:, self.moods.integers(3)] = 1.0
        return logits


class Slow:
    """Takes a minute for every batch after the first few, which are used to try and measure it."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.calls += len(batch) == 64
        if self.calls > 12:
            print("a long thought", file=sys.stderr, flush=True)
            time.sleep(60)
        return sound(batch)


class Announced:
    """A base classifier with the attributes of the protocol."""

    num_classes: Any = CLASSES
    input_shape = None
    digest = "d"
    description = "announced"
    backend = "mine"
    concurrency: Any = 1

    def __init__(self, way: Callable[[np.ndarray], Any] | None = None, **attributes: Any) -> None:
        self.way = way or (lambda batch: np.full(len(batch), 3))
        self.__dict__.update(attributes)

    def classify(self, batch: np.ndarray) -> Any:
        return self.way(batch)

    def prepare_thread(self) -> None: ...

    def release_threads(self) -> None: ...


announced = {
    "raises": Announced(_raised(RuntimeError("boom"))),
    "leaves": Announced(_raised(SystemExit(0))),
    "raises in threads": Announced(_raised(RuntimeError("boom")), concurrency=4),
    "no votes": Announced(lambda batch: None),
    "floats": Announced(lambda batch: np.full(len(batch), 3.0)),
    "too few": Announced(lambda batch: np.full(1, 3)),
    "class 11 of 10": Announced(lambda batch: np.full(len(batch), 11)),
    "class of a billion": Announced(lambda batch: np.full(len(batch), 10**9)),
    "no threads": Announced(concurrency=0),
    "ten classes": Announced(num_classes="ten"),
}
(
    raises,
    leaves_as_announced,
    raises_in_threads,
    no_votes,
    floats,
    too_few,
    class_eleven,
    class_billion,
    no_threads,
    ten,
) = announced.values()
ANNOUNCED = (
    "raises", "leaves_as_announced", "raises_in_threads", "no_votes", "floats", "too_few", "class_eleven",
    "class_billion", "no_threads", "ten",
)  # fmt: skip
"""Their names."""


class Estimator:
    """An object with the interface of a scikit-learn classifier."""

    classes_ = np.arange(CLASSES)

    def __init__(self, way: Callable[[np.ndarray], Any]) -> None:
        self.way = way

    def predict(self, rows: np.ndarray) -> Any:
        return self.way(rows)


estimator_type_error = Estimator(_raised(TypeError("of the wrong type")))
estimator_leaves = Estimator(_raised(SystemExit(0)))
estimator_nothing = Estimator(lambda rows: None)
estimator_words = Estimator(lambda rows: np.array(["a"] * len(rows)))
estimator_nan = Estimator(lambda rows: np.full(len(rows), np.nan))
estimator_too_few = Estimator(lambda rows: np.zeros(1, dtype=int))
ESTIMATORS = tuple(name for name in dir() if name.startswith("estimator_"))
"""Their names."""
