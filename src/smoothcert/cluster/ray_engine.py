"""Sampling on a Ray cluster: actors that hold the model count the batches of a job, and return sums.

The tallies are equal to those of threads in one process: the same batches, and sums of integers.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from smoothcert.cluster.ray_chunks import ChunkPiece, OpenJob
from smoothcert.cluster.ray_cluster import ActorResources, connect_to_ray, count_fitting_actors, describe_capacity
from smoothcert.cluster.ray_crew import Crew, Task
from smoothcert.cluster.ray_model import ModelIdentity, pack_model
from smoothcert.cluster.ray_worker import LoadedModel
from smoothcert.errors import ClusterError, InputError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.scaled_classifier import ScaledClassifier
from smoothcert.records import AnyTally, InputArray, Noise
from smoothcert.sampling.requests import Request
from smoothcert.sampling.sampler import OnPicked, Progress
from smoothcert.spec import RayEngineSpec

_SECONDS_PER_CHUNK = 1.0
_LEAST_SECONDS_PER_CHUNK = 0.05
_SECONDS_TO_SEND = 0.001
"""What a chunk takes the driver, about. So chunks for very many actors last longer: one is sent at a time."""


class RayEngine:
    """Samples on a Ray cluster, with `SmoothedClassifier(model, tallier=engine)`. Use it as a context manager.

    model: the model of the smoothed classifier: a path, package.module:attribute, or an object that can be pickled.
    Files are sent to the nodes; named code must be installed there. A node that loads another model is refused.
    arguments: of `load_classifier` or `as_classifier`. address: HOST:PORT, or "auto" for the cluster of this machine;
    None starts Ray here, until the context ends. actors: number of actors; by default, as many as the cluster holds.
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
        self._requested_actors = actors
        self._resources = ActorResources(cpus=cpus_per_actor, gpus=gpus_per_actor)
        self._stack = contextlib.ExitStack()
        self._ray: Any = None
        self._crew: Crew | None = None
        self._identity: ModelIdentity | None = None
        self._pace = Pace()

    def __enter__(self) -> Self:
        self._ray = self._stack.enter_context(
            connect_to_ray(self._address, actors=self._requested_actors, resources=self._resources)
        )
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
            raise InputError(
                f"workers={workers} is for threads of one process: on a cluster, give the number of actors"
            )
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
        """The fastest batch size, measured by an actor, because this machine can be of another kind."""
        crew = self._crew_for(classifier, input_shape)
        arguments = (input_shape, math.ceil(samples / crew.size), noise, shared, grid)
        return int(crew.run_task(Task("measure", arguments, about="a measurement of the batch size")))

    @property
    def settings(self) -> RayEngineSpec:
        """What was requested, for the spec of a run."""
        return RayEngineSpec(
            address=self._address,
            actors=self._requested_actors,
            cpus_per_actor=self._resources.cpus,
            gpus_per_actor=self._resources.gpus,
        )

    @property
    def actors(self) -> int:
        """Number of actors, started or not."""
        if self._ray is None:
            raise InputError("the engine is not connected: use it as a context manager, `with RayEngine(…) as …`")
        if self._requested_actors is not None:
            return self._requested_actors
        number = count_fitting_actors(self._ray, self._resources)
        if number < 1:
            raise ClusterError(
                f"no node holds an actor with {self._resources}: {describe_capacity(self._ray)}. Ask for less, or give "
                "--actors if nodes will join"
            )
        return number

    def _crew_for(self, classifier: BaseClassifier, input_shape: Sequence[int] | None = None) -> Crew:
        identity = ModelIdentity.of(classifier)
        if self._crew is not None and identity == self._identity:
            return self._crew
        self._dismiss()
        size = self.actors
        known = {"input_shape": classifier.input_shape or input_shape, "num_classes": classifier.num_classes}
        scale = classifier.scale if isinstance(classifier, ScaledClassifier) else None
        model = pack_model(self._model, {**known, **self._arguments}, scale)
        self._identity = identity
        self._crew = Crew(
            self._ray,
            size=size,
            resources=self._resources,
            load=(self._ray.put(model), identity),
            check=self._check,
        )
        return self._crew

    def _check(self, loaded: LoadedModel) -> None:
        assert self._identity is not None
        self._identity.check_agrees(loaded.identity, node=loaded.node)

    def _dismiss(self) -> None:
        if self._crew is not None:
            self._crew.disband()
        self._crew = self._identity = None

    def __repr__(self) -> str:
        name = self._model if isinstance(self._model, (str, Path)) else type(self._model).__name__
        return (
            f"RayEngine({name}, address={self._address}, actors={self._requested_actors}, each with {self._resources})"
        )


class Pace:
    """A running estimate of the time per batch. It decides the size of chunks, and nothing else."""

    def __init__(self) -> None:
        self._seconds: float | None = None

    def add(self, *, seconds: float, batches: int) -> None:
        each = seconds / batches
        self._seconds = each if self._seconds is None else (self._seconds + each) / 2

    def chunk_size(self, *, batches: int, actors: int) -> int:
        """Batches per chunk: a second of work, or less if some actors would get none.

        It is never so little that the driver could not send a chunk to every actor meanwhile.
        """
        if self._seconds is None:
            return 1
        seconds = max(self._seconds, 1e-9)
        shortest = max(_LEAST_SECONDS_PER_CHUNK, _SECONDS_TO_SEND * actors)
        most, least = math.ceil(max(_SECONDS_PER_CHUNK, shortest) / seconds), math.ceil(shortest / seconds)
        fair = math.ceil(batches / (2 * actors))
        return min(most, max(least, fair))


@dataclass(frozen=True, slots=True)
class _Assignment:
    """A task for the crew, and the piece of a job that it counts."""

    task: Task
    job: OpenJob
    piece: ChunkPiece


class RayTallier:
    """Counts the model's answers under noise, on the actors of a crew. See `Tallier`."""

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
        """For each job, in order, one tally per request. Later jobs begin before earlier ones are done."""
        open_jobs: deque[OpenJob] = deque()
        assignments = self._assign(inputs, jobs, open_jobs)
        pending: dict[Task, _Assignment] = {}
        try:
            more = True
            while more or open_jobs:
                while more and self._crew.has_room:
                    assignment = next(assignments, None)
                    if assignment is None:
                        more = False
                    else:
                        pending[assignment.task] = assignment
                        self._crew.submit(assignment.task)
                while open_jobs and open_jobs[0].is_done:
                    job = open_jobs.popleft()
                    if on_picked is not None:
                        on_picked(job.requests, job.picked)
                    yield job.tallies()
                if pending:
                    self._collect(pending, progress)
        finally:
            self._crew.forget(pending)

    def _assign(
        self, inputs: InputArray, jobs: Iterable[Sequence[Request]], open_jobs: deque[OpenJob]
    ) -> Iterator[_Assignment]:
        """Open one job after the other, and cut it into pieces."""
        for requests in jobs:
            job = OpenJob(inputs, requests, batch=self._batch)
            open_jobs.append(job)
            for piece in job.pieces(lambda job=job: self._chunk_size(job)):  # type: ignore[misc]
                numbers = sorted({request.stream.index for request in piece.chunk.requests})
                about = f"input {numbers[0]}" if len(numbers) == 1 else f"inputs {numbers[0]} … {numbers[-1]}"
                yield _Assignment(Task("count", (piece.chunk,), about=about), job, piece)

    def _chunk_size(self, job: OpenJob) -> int:
        return self._pace.chunk_size(batches=job.number_of_batches, actors=self._crew.size)

    def _collect(self, pending: dict[Task, _Assignment], progress: Progress | None) -> None:
        """Wait for results, and add them to their jobs."""
        for task, counted in self._crew.wait_for_some(pending).items():
            assignment = pending.pop(task)
            assignment.job.add(assignment.piece, counted.sums, counted.picked)
            self._pace.add(seconds=counted.seconds, batches=assignment.piece.batches)
            if progress is not None:
                progress(assignment.piece.samples)
