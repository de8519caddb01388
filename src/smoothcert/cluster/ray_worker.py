"""What an actor does: hold the model, count runs of batches, and answer with whole numbers or with what went wrong."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from smoothcert.cluster.ray_chunks import Chunk
from smoothcert.cluster.ray_model import ModelIdentity, ShippedModel
from smoothcert.errors import ModelError, SmoothcertError
from smoothcert.models.base import BaseClassifier
from smoothcert.records import IntArray, Noise
from smoothcert.sampling import measure_batch
from smoothcert.sampling.picked import PickedVote
from smoothcert.sampling.sampler import new_counter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Counted:
    """The sums of one chunk, the votes of the copies that were picked, and how long it took."""

    sums: tuple[IntArray, ...]
    picked: list[PickedVote]
    seconds: float


@dataclass(frozen=True, slots=True)
class Arrived:
    """Where an actor runs, and which function it would compute."""

    node: str
    identity: ModelIdentity


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception, in a form that every process can read.

    kind and message: of one of our own. error: any other one, where it can be pickled.
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
        return cls(kind=None, message=f"{type(error).__name__}: {error}", error=_if_it_travels(error), trace=trace)

    def raised(self) -> Exception:
        """The exception it stands for, with the lines it came from as a note."""
        found: Exception
        if self.kind is not None:
            # Not by calling the class: some of ours make their message from other arguments.
            found = self.kind.__new__(self.kind)
            found.args = (self.message,)
        else:
            found = self.error or ModelError(f"the model failed: {self.message}")
        found.add_note(f"raised by an actor:\n{self.trace}")
        return found


def _if_it_travels(error: Exception) -> Exception | None:
    try:
        twin = pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a foreign class does when it is taken apart or put together
        return None
    return twin if type(twin) is type(error) and str(twin) == str(error) else None


def _answered(work: Callable[[], T]) -> T | Failure:
    try:
        return work()
    except Exception as error:
        return Failure.of(error)


class Worker:
    """Made an actor by `ray_crew`. All of its methods are called in one thread, one after the other."""

    def __init__(self) -> None:
        self._classifier: BaseClassifier | None = None

    def begin(self) -> str:
        """The node this runs on. Answered as soon as there is a place for the actor."""
        import ray

        return f"{ray.util.get_node_ip_address()} ({ray.get_runtime_context().get_node_id()[:8]})"

    def load(self, model: ShippedModel, identity: ModelIdentity) -> Arrived | Failure:
        """Make the model ready. identity: of the one the driver holds."""
        return _answered(lambda: self._loaded(model, identity))

    def _loaded(self, model: ShippedModel, identity: ModelIdentity) -> Arrived:
        self._classifier = model.unpacked(identity)
        self._classifier.prepare_thread()
        return Arrived(node=self.begin(), identity=ModelIdentity.of(self._classifier))

    def count(self, chunk: Chunk) -> Counted | Failure:
        """The sums over its batches."""
        return _answered(lambda: self._counted(chunk))

    def _counted(self, chunk: Chunk) -> Counted:
        began = time.perf_counter()
        counter = new_counter(self._held, chunk.inputs, chunk.requests, draws=chunk.draws)
        for slices in chunk.batches():
            counter.add(slices)
        return Counted(sums=counter.sums(), picked=counter.picked_votes(), seconds=time.perf_counter() - began)

    def measure(
        self, input_shape: tuple[int, ...], samples: int, noise: Noise, shared: bool, grid: int | None
    ) -> int | Failure:
        """The batch size at which this actor is fastest."""
        return _answered(
            lambda: measure_batch(
                self._held, input_shape, samples=samples, workers=1, noise=noise, shared=shared, grid=grid
            )
        )

    @property
    def _held(self) -> Any:
        assert self._classifier is not None  # `load` is always the first call
        return self._classifier
