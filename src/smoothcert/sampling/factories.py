"""Who draws and counts, made when the classifier and the batch size are known."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from smoothcert.models.base import BaseClassifier
from smoothcert.records import Noise
from smoothcert.sampling.batch_size import measure_batch
from smoothcert.sampling.sampler import Tallier


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


def measure_batch_for(
    factory: TallierFactory,
    classifier: BaseClassifier,
    input_shape: tuple[int, ...],
    *,
    samples: int,
    workers: int | None,
    noise: Noise,
    shared: bool,
    grid: int | None,
) -> int:
    """The best batch size for that many samples, measured where they will be drawn."""
    if isinstance(factory, MeasuringFactory):
        return factory.measure_batch(classifier, input_shape, samples=samples, noise=noise, shared=shared, grid=grid)
    return measure_batch(
        classifier, input_shape, samples=samples, workers=workers, noise=noise, shared=shared, grid=grid
    )
