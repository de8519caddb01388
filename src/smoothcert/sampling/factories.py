"""Who draws and counts, made when the classifier and the batch size are known; and the batch size itself."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from smoothcert.models.base import BaseClassifier
from smoothcert.records import Noise
from smoothcert.sampling.batch_size import BatchTuner
from smoothcert.sampling.sampler import Tallier

_GROWTH = 10
"""A call that asks for this many times more samples than the batch size was measured for has it measured again."""


class TallierFactory(Protocol):
    """Threads of this process (`Sampler`), or a cluster (`smoothcert.cluster.ray_engine.RayEngine`)."""

    def __call__(self, classifier: BaseClassifier, /, *, batch: int, workers: int | None) -> Tallier: ...


@runtime_checkable
class MeasuringFactory(Protocol):
    """A factory that measures the best batch size itself, because the samples are not drawn in this process."""

    def measure_batch(
        self,
        classifier: BaseClassifier,
        input_shape: tuple[int, ...],
        *,
        samples: int,
        noise: Noise,
        shared: bool,
        grid: int | None,
    ) -> int: ...


class BatchChoice:
    """The batch size of a smoothed classifier: the given one, or measured by what its calls ask for.

    size: None until it is known. factory: who will draw the samples, in batches of this size.
    """

    def __init__(
        self, given: int | None, factory: TallierFactory, *, workers: int | None, noise: Noise, shared: bool
    ) -> None:
        self.size = given
        self._is_given = given is not None
        self._factory = factory
        self._workers = workers
        self._noise = noise
        self._shared = shared
        self._samples = 0
        self._tuner: BatchTuner | None = None
        self._tuned: tuple[object, ...] = ()

    def replace(self, given: int | None) -> BatchChoice:
        """Another choice, with this size given."""
        return BatchChoice(given, self._factory, workers=self._workers, noise=self._noise, shared=self._shared)

    def tune(self, classifier: BaseClassifier, input_shape: tuple[int, ...], *, samples: int, grid: int | None) -> int:
        """The size for that many samples: measured, unless it was given or measured for more than a tenth."""
        if self.size is None or (not self._is_given and samples >= _GROWTH * self._samples):
            self.size = self._measure(classifier, input_shape, samples=samples, grid=grid)
            self._samples = samples
        return self.size

    def _measure(
        self, classifier: BaseClassifier, input_shape: tuple[int, ...], *, samples: int, grid: int | None
    ) -> int:
        if isinstance(self._factory, MeasuringFactory):
            return self._factory.measure_batch(
                classifier, input_shape, samples=samples, noise=self._noise, shared=self._shared, grid=grid
            )
        if self._tuner is None or self._tuned != (input_shape, grid):
            self._tuner = BatchTuner(
                classifier, input_shape, workers=self._workers, noise=self._noise, shared=self._shared, grid=grid
            )
            self._tuned = (input_shape, grid)
        return self._tuner.choose(samples=samples)
