"""Sampling on a Ray cluster: jobs are dealt out to actors that hold the model; only sums come back.

The tallies are those of the threads of one process: the same batches, added up as whole numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from smoothcert.cluster.ray_chunks import OpenJob, Piece
from smoothcert.cluster.ray_cluster import ActorResources, connected, described_room, fitting_actors
from smoothcert.cluster.ray_crew import Crew, Task
from smoothcert.cluster.ray_model import ModelIdentity, shipped
from smoothcert.cluster.ray_worker import Arrived
from smoothcert.errors import ClusterError, InputError
from smoothcert.models.base import BaseClassifier
from smoothcert.records import AnyTally, InputArray, Noise
from smoothcert.sampling.requests import Request
from smoothcert.sampling.sampler import OnPicked, Progress

_SECONDS_PER_CHUNK = 1.0
_LEAST_SECONDS_PER_CHUNK = 0.05
"""Dealing out a chunk takes about a millisecond."""


class RayEngine:
    """Who draws and counts, for `SmoothedClassifier(model, tallier=engine)`: actors on a Ray cluster.

    model: the same as that of the smoothed classifier: a path, package.module:attribute, or an object that can be
    pickled; `arguments` are those of `load_classifier` or `as_classifier`. A file is sent to the nodes, code that is
    named must be installed there. A node where the model comes out as another function is refused.

    address: HOST:PORT, or "auto" for the cluster this machine belongs to; None starts Ray here. actors: how many; by
    default as many as the cluster holds. Use this as a context manager: on leaving, the actors end, and Ray with them
    if it was started here.
    """

    def __init__(
        self,
        model: object,
        *,
        address: str | None = None,
        actors: int | None = None,
        cpus_per_actor: float = 1.0,
        gpus_per_actor: float = 0.0,
        **arguments: Any,
    ) -> None:
        if actors is not None and actors < 1:
            raise InputError(f"actors={actors} must be at least 1")
        self._model = model
        self._arguments = arguments
        self._address = address
        self._asked = actors
        self._resources = ActorResources(cpus=cpus_per_actor, gpus=gpus_per_actor)
        self._stack = contextlib.ExitStack()
        self._ray: Any = None
        self._crew: Crew | None = None
        self._identity: ModelIdentity | None = None
        self._pace = Pace()

    def __enter__(self) -> Self:
        self._ray = self._stack.enter_context(connected(self._address, actors=self._asked, resources=self._resources))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._dismiss()
        finally:
            self._ray = None
            self._stack.close()

    def __call__(self, classifier: BaseClassifier, /, *, batch: int, workers: int | None = None) -> RayTallier:
        if batch < 1:
            raise InputError(f"batch={batch} must be at least 1")
        if workers is not None:
            raise InputError(f"workers={workers} are threads of one process; on a cluster give the number of actors")
        return RayTallier(self._crew_for(classifier), self._pace, batch=batch)

    def measure_batch(
        self,
        classifier: BaseClassifier,
        input_shape: tuple[int, ...],
        *,
        samples: int,
        noise: Noise,
        shared: bool,
        grid: int | None,
    ) -> int:
        """The best batch size, measured by an actor: this machine may be of another kind."""
        crew = self._crew_for(classifier, input_shape)
        arguments = (input_shape, math.ceil(samples / crew.size), noise, shared, grid)
        return int(crew.result(Task("measure", arguments, about="a measurement of the batch size")))

    @property
    def actors(self) -> int:
        """How many there are, or will be."""
        if self._ray is None:
            raise InputError("the engine is not connected yet: use it as a context manager, `with RayEngine(…) as …`")
        if self._asked is not None:
            return self._asked
        found = fitting_actors(self._ray, self._resources)
        if found < 1:
            raise ClusterError(
                f"no node holds an actor with {self._resources}: {described_room(self._ray)}. Ask for less, or give "
                "--actors if nodes will join"
            )
        return found

    def _crew_for(self, classifier: BaseClassifier, input_shape: Sequence[int] | None = None) -> Crew:
        identity = ModelIdentity.of(classifier)
        if self._crew is not None and identity == self._identity:
            return self._crew
        self._dismiss()
        size = self.actors
        known = {"input_shape": classifier.input_shape or input_shape, "num_classes": classifier.num_classes}
        model = shipped(self._model, {**known, **self._arguments})
        self._identity = identity
        self._crew = Crew(
            self._ray,
            size=size,
            resources=self._resources,
            load=(self._ray.put(model), identity),
            check=self._check,
        )
        return self._crew

    def _check(self, arrived: Arrived) -> None:
        assert self._identity is not None
        self._identity.check_agrees(arrived.identity, node=arrived.node)

    def _dismiss(self) -> None:
        if self._crew is not None:
            self._crew.disband()
        self._crew = self._identity = None

    def __repr__(self) -> str:
        name = self._model if isinstance(self._model, (str, Path)) else type(self._model).__name__
        return f"RayEngine({name}, address={self._address}, actors={self._asked}, each with {self._resources})"


class Pace:
    """How long a batch takes, as far as is known; it decides how much is dealt out at once, and nothing else."""

    def __init__(self) -> None:
        self._seconds: float | None = None

    def add(self, *, seconds: float, batches: int) -> None:
        each = seconds / batches
        self._seconds = each if self._seconds is None else (self._seconds + each) / 2

    def chunk_size(self, *, batches: int, actors: int) -> int:
        """How many of the batches of a job make a chunk: a second of work, less where some actors would get none."""
        if self._seconds is None:
            return 1
        most, least = (math.ceil(time / max(self._seconds, 1e-9)) for time in _CHUNK_TIMES)
        fair = math.ceil(batches / (2 * actors))
        return min(most, max(least, fair))


_CHUNK_TIMES = (_SECONDS_PER_CHUNK, _LEAST_SECONDS_PER_CHUNK)


class RayTallier:
    """Counts what the model answers under noise, on the actors of a crew. See `Tallier`."""

    def __init__(self, crew: Crew, pace: Pace, *, batch: int) -> None:
        self._crew = crew
        self._pace = pace
        self._batch = batch

    def tally_each(
        self,
        inputs: InputArray,
        jobs: Iterable[Sequence[Request]],
        *,
        progress: Progress | None = None,
        on_picked: OnPicked | None = None,
    ) -> Iterator[list[AnyTally]]:
        """For each job, in order, one tally per request. Later jobs are begun before earlier ones are done."""
        opened: deque[OpenJob] = deque()
        pieces = self._pieces(inputs, jobs, opened)
        out: dict[Task, tuple[OpenJob, Piece]] = {}
        try:
            more = True
            while more or opened:
                while more and self._crew.has_room:
                    found = next(pieces, None)
                    if found is None:
                        more = False
                    else:
                        out[found[0]] = found[1:]
                        self._crew.submit(found[0])
                while opened and opened[0].is_done:
                    job = opened.popleft()
                    if on_picked is not None:
                        on_picked(job.requests, job.picked)
                    yield job.tallies()
                if out:
                    self._take_in(out, progress)
        finally:
            self._crew.forget(out)

    def _pieces(
        self, inputs: InputArray, jobs: Iterable[Sequence[Request]], opened: deque[OpenJob]
    ) -> Iterator[tuple[Task, OpenJob, Piece]]:
        for requests in jobs:
            job = OpenJob(inputs, requests, batch=self._batch)
            opened.append(job)
            for piece in job.pieces(lambda job=job: self._chunk_size(job)):  # type: ignore[misc]
                numbers = sorted({request.stream.index for request in piece.chunk.requests})
                about = f"input {numbers[0]}" if len(numbers) == 1 else f"inputs {numbers[0]} … {numbers[-1]}"
                yield Task("count", (piece.chunk,), about=about), job, piece

    def _chunk_size(self, job: OpenJob) -> int:
        return self._pace.chunk_size(batches=job.number_of_batches, actors=self._crew.size)

    def _take_in(self, out: dict[Task, tuple[OpenJob, Piece]], progress: Progress | None) -> None:
        for task, counted in self._crew.answers(out):
            job, piece = out.pop(task)
            job.add(piece, counted.sums, counted.picked)
            self._pace.add(seconds=counted.seconds, batches=piece.batches)
            if progress is not None:
                progress(piece.samples)
