"""Queues of work on a device: the next batch's noise is made while the model computes.

A CUDA card works off a stream in order, and several streams at once. Noise is written on a stream of its own into two
buffers in turn. Events order what must not overlap: the model reads a buffer after its noise is written, and noise is
written to a buffer after the model has read what was there. The processor waits for neither. Where a device has no
streams, everything happens in the order of the program, by the same code.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike

_MOST_AHEAD = 4
"""So many batches may wait for the device: it never runs dry, and progress and interrupts are not far behind."""

T = TypeVar("T")


class Event(Protocol):
    """A point in a stream."""

    def record(self, stream: Any, /) -> None: ...

    def synchronize(self) -> None:
        """Let the processor wait for the point."""


class Streams(Protocol):
    """What is needed of a device with streams."""

    def side_stream(self) -> Any:
        """The stream for noise: one for a device, because memory that is cached belongs to a stream."""

    def current_stream(self) -> Any: ...

    def new_event(self) -> Event: ...

    def use(self, stream: Any, /) -> AbstractContextManager[Any]:
        """Work that is started inside goes to this stream."""

    def keep(self, tensor: torch.Tensor, stream: Any, /) -> None:
        """The memory of the tensor is not given away before the stream is done with it."""


class CudaStreams:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def side_stream(self) -> Any:
        return _side_stream(self._device)

    def current_stream(self) -> Any:
        return torch.cuda.current_stream(self._device)

    def new_event(self) -> Event:
        event: Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        return event

    def use(self, stream: Any) -> AbstractContextManager[Any]:
        return torch.cuda.stream(stream)

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        tensor.record_stream(stream)


@functools.cache
def _side_stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class _OneStream:
    """A device, or the processor, where everything happens in order."""

    def side_stream(self) -> Any:
        return self

    def current_stream(self) -> Any:
        return self

    def new_event(self) -> Event:
        return _Passed()

    def use(self, stream: Any) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass


class _Passed:
    def record(self, stream: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


def streams_of(device: torch.device) -> Streams:
    return CudaStreams(device) if device.type == "cuda" else _OneStream()


class NoiseAhead(Generic[T]):
    """Buffers that are written on a stream of their own, in turn, and read on the current one.

    Batches are numbered from 0; `making` and `reading` are called once for each, in order, and `making` may be a batch
    ahead. buffers: at least two. tensors: their memory.
    """

    def __init__(self, streams: Streams, buffers: Sequence[T], tensors: Sequence[torch.Tensor]) -> None:
        self._streams = streams
        self._buffers = buffers
        self._side = streams.side_stream()
        for tensor in tensors:
            streams.keep(tensor, self._side)
        # What the noise is made of is there when the current stream gets here.
        self._read = [self._mark(streams.current_stream()) for _ in buffers]
        self._written: list[Event | None] = [None for _ in buffers]
        self._waiting: collections.deque[Event] = collections.deque()

    @contextlib.contextmanager
    def making(self, number: int) -> Iterator[T]:
        """Work that is started inside writes to the buffer of this batch."""
        turn = number % len(self._buffers)
        self._side.wait_event(self._read[turn])
        with self._streams.use(self._side):
            yield self._buffers[turn]
        self._written[turn] = self._mark(self._side)

    @contextlib.contextmanager
    def reading(self, number: int) -> Iterator[T]:
        """Work that is started inside reads the buffer of this batch."""
        turn = number % len(self._buffers)
        main, written = self._streams.current_stream(), self._written[turn]
        assert written is not None
        main.wait_event(written)
        yield self._buffers[turn]
        self._read[turn] = self._mark(main)
        self._waiting.append(self._read[turn])
        if len(self._waiting) > _MOST_AHEAD:
            self._waiting.popleft().synchronize()

    def _mark(self, stream: Any) -> Event:
        event = self._streams.new_event()
        event.record(stream)
        return event


def move_to(device: torch.device, values: ArrayLike) -> torch.Tensor:
    """Whole numbers as an int64 tensor on a device; the processor does not wait for the device."""
    numbers = torch.from_numpy(np.array(values, dtype=np.int64))
    if device.type == "cuda":
        numbers = numbers.pin_memory()
    return numbers.to(device, non_blocking=True)
