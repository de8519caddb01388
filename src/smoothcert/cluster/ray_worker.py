"""The actor: it holds the model, counts batches, and returns integer sums or a failure."""

from __future__ import annotations

import functools
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from smoothcert.cluster.ray_chunks import Chunk
from smoothcert.cluster.ray_model import ModelIdentity, PackedModel
from smoothcert.errors import ModelError, SmoothcertError
from smoothcert.models.base import BaseClassifier
from smoothcert.records import IntArray, Noise
from smoothcert.sampling import measure_batch
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.sampler import new_counter

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChunkSums:
    """The sums of one chunk, the votes of the noisy copies that were picked, and the time it took."""

    sums: tuple[IntArray, ...]
    picked: list[PickedVote]
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The node of an actor, and the model that it loaded there."""

    node: str
    identity: ModelIdentity


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception in a form that every process can unpickle.

    kind, message: of a SmoothcertError. error: any other exception, if it can be pickled.
    """

    kind: type[SmoothcertError] | None
    message: str
    error: Exception | None
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, SmoothcertError):
            return cls(kind=type(error), message=str(error), error=None, trace=trace)
        return cls(kind=None, message=f"{type(error).__name__}: {error}", error=_copy_by_pickle(error), trace=trace)

    def to_exception(self) -> Exception:
        """The exception, with its traceback as a note."""
        exception: Exception
        if self.kind is not None:
            # The class is not called, because some of our exceptions take other arguments than a message.
            exception = self.kind.__new__(self.kind)
            exception.args = (self.message,)
        else:
            exception = self.error or ModelError(f"the model failed: {self.message}")
        exception.add_note(f"raised by an actor:\n{self.trace}")
        return exception


def _copy_by_pickle(error: Exception) -> Exception | None:
    try:
        twin = pickle.loads(pickle.dumps(error))
    except Exception:  # foreign classes can raise anything here
        return None
    return twin if type(twin) is type(error) and str(twin) == str(error) else None


def _return_failures(method: Callable[P, T]) -> Callable[P, T | Failure]:
    """Make a method return its exceptions as failures."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T | Failure:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            return Failure.of(error)

    return call


class Worker:
    """The class of the actors that `ray_crew` starts. Ray calls its methods one after the other, in one thread."""

    def __init__(self) -> None:
        self._classifier: BaseClassifier | None = None

    def begin(self) -> str:
        """The node of this actor. The call returns as soon as the actor is placed."""
        import ray

        return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:8]})"

    @_return_failures
    def load(self, model: PackedModel, identity: ModelIdentity) -> LoadedModel:
        """Load the model. identity: of the driver's model."""
        self._classifier = model.unpack(identity)
        self._classifier.prepare_thread()
        return LoadedModel(node=self.begin(), identity=ModelIdentity.of(self._classifier))

    @_return_failures
    def count(self, chunk: Chunk) -> ChunkSums:
        """The sums over the batches of a chunk."""
        began = time.perf_counter()
        counter = new_counter(self._loaded_classifier, chunk.inputs, chunk.requests, draws=chunk.draws)
        for slices in chunk.batches():
            counter.add(slices)
        return ChunkSums(sums=counter.sums(), picked=counter.picked_votes(), seconds=time.perf_counter() - began)

    @_return_failures
    def measure(self, input_shape: tuple[int, ...], samples: int, noise: Noise, shared: bool, grid: int | None) -> int:
        """The fastest batch size of this actor."""
        return measure_batch(
            self._loaded_classifier, input_shape, samples=samples, workers=1, noise=noise, shared=shared, grid=grid
        )

    @property
    def _loaded_classifier(self) -> Any:
        assert self._classifier is not None  # `load` is always the first call
        return self._classifier
