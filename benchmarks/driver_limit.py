"""How many chunks a second the driver of a cluster can deal out, and how busy that keeps many GPUs.

    python benchmarks/driver_limit.py [--actors 8,64,1000,10000] [--shape 3,224,224]

Ray is not started and nothing is classified. The actors are objects of this process, given to the code that deals out
chunks (cluster/ray_chunks.py, ray_crew.py, ray_engine.py) in place of Ray. Printed are

- chunks a second of processor time of the driver, where every actor answers at once and a chunk is one batch;
- the share of their time that actors work in the simulation of a run: groups of inputs with selection and estimation,
  as `Pipeline` makes them, at a given rate of samples. The clock of the simulation is the processor time of the driver,
  and jumps to the next answer where the driver waits. What Ray takes the driver for each chunk is an assumption, too.

The time of these stand-ins is subtracted. The network is not in the figures.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from smoothcert.cluster.ray_chunks import Chunk
from smoothcert.cluster.ray_cluster import ActorResources
from smoothcert.cluster.ray_crew import Crew
from smoothcert.cluster.ray_engine import Pace, RayTallier
from smoothcert.cluster.ray_worker import ChunkSums, LoadedModel
from smoothcert.records import Stage, StreamId
from smoothcert.sampling import Request, inputs_per_shard, segments

CLASSES, SELECTION = 1000, 100
LEAST_CHUNKS, MOST_GROUPS = 20_000, 200


@dataclass(eq=False, slots=True)
class Answer:
    """What a call returns. ready: on the clock of the simulation."""

    value: Any
    ready: float


class FakeRay:
    """What the driver uses of Ray. rate: samples per second of an actor; None answers at once. send: seconds that Ray
    takes the driver for each chunk.

    now: seconds on the clock of the simulation. driver: seconds of processor time outside this class. worked: seconds
    that actors worked. chunks: counted so far.
    """

    class exceptions:  # noqa: N801 (as Ray names it)
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

    def __init__(self, *, rate: float | None, send: float = 0.0) -> None:
        self.rate, self.send = rate, send
        self.now = self.driver = self.worked = 0.0
        self.chunks = 0
        self._head = socket.create_server(("127.0.0.1", 0))
        self._left = time.process_time()

    def __enter__(self) -> None:
        """The driver calls Ray: its own time ends here."""
        spent = time.process_time() - self._left
        self.driver += spent
        self.now += spent

    def __exit__(self, *_: object) -> None:
        self._left = time.process_time()

    def get_runtime_context(self) -> Any:
        """The driver looks every few seconds whether the head answers: here a socket does."""
        return SimpleNamespace(gcs_address=f"127.0.0.1:{self._head.getsockname()[1]}")

    def remote(self, **_: object) -> Any:
        return lambda _: FakeKind(self)

    def wait(self, answers: Sequence[Answer], *, num_returns: int, timeout: float) -> tuple[list[Answer], list[Answer]]:
        with self:
            first = min(answer.ready for answer in answers)
            if timeout:
                self.now = max(self.now, first)
            ready = [answer for answer in answers if answer.ready <= self.now]
            return ready[:num_returns], []

    def get(self, answer: Answer) -> Any:
        return answer.value

    def cancel(self, answer: Answer) -> None:
        pass

    def kill(self, actor: object) -> None:
        pass

    def count(self, chunk: Chunk) -> tuple[Any, float]:
        """All votes for class 0, and the seconds that the actor takes."""
        requests, fields = len(chunk.requests), chunk.places
        rows = fields[:, 3] - fields[:, 2]
        votes = np.zeros((requests, CLASSES + 1), dtype=np.int64)
        np.add.at(votes[:, 0], fields[:, 1], rows)
        seconds = 0.0 if self.rate is None else float(rows.sum()) / self.rate
        self.chunks += 1
        self.worked += seconds
        self.now += self.send
        # Without a rate chunks stay small: a batch takes longer than a chunk should.
        return ChunkSums(sums=(votes,), picked=[], seconds=seconds if self.rate else 1e6), seconds


@dataclass(slots=True)
class FakeKind:
    ray: FakeRay

    def remote(self) -> FakeActor:
        return FakeActor(self.ray)


@dataclass(slots=True)
class FakeMethod:
    actor: FakeActor
    name: str

    def remote(self, *arguments: Any) -> Answer:
        return self.actor.call(self.name, arguments)


@dataclass(slots=True)
class FakeActor:
    """One actor; it answers its calls one after the other. free: when it has answered those so far."""

    ray: FakeRay
    free: float = 0.0
    methods: dict[str, FakeMethod] = field(default_factory=dict)

    def __getattr__(self, name: str) -> FakeMethod:
        return FakeMethod(self, name)

    def call(self, name: str, arguments: tuple[Any, ...]) -> Answer:
        with self.ray:
            value: Any = None
            if name == "load":
                value = LoadedModel(node="here", identity=cast(Any, None))
            elif name == "count":
                value, seconds = self.ray.count(*arguments)
                self.free = max(self.free, self.ray.now) + seconds
            return Answer(value, self.free)


def make_tallier(ray: FakeRay, *, actors: int, batch: int) -> RayTallier:
    crew = Crew(ray, size=actors, resources=ActorResources(cpus=1.0, gpus=1.0), load=(), check=lambda _: None)
    return RayTallier(crew, Pace(), batch=batch)


def list_requests(inputs: int, stage: Stage, spans: Sequence[tuple[int, int]], first: int) -> list[Request]:
    return [
        Request(row, StreamId(0, first + row, stage), 0.5, start, stop, grid=256)
        for row in range(inputs)
        for start, stop in spans
    ]


def run_group(tallier: RayTallier, inputs: np.ndarray, *, n: int, first: int) -> None:
    """Selection, then estimation input by input, as for a fixed n."""
    (_,) = tallier.tally_each(inputs, [list_requests(len(inputs), Stage.SELECTION, [(0, SELECTION)], first)])
    jobs: Iterator[list[Request]] = (
        [
            Request(row, StreamId(0, first + row, Stage.ESTIMATION), 0.5, start, stop, grid=256)
            for start, stop in segments(n)
        ]
        for row in range(len(inputs))
    )
    for _ in tallier.tally_each(inputs, jobs):
        pass


def measure_limit(actors: int, shape: tuple[int, ...], *, batch: int, n: int) -> float:
    """Chunks per second of processor time of the driver."""
    ray = FakeRay(rate=None)
    tallier = make_tallier(ray, actors=actors, batch=batch)
    inputs = np.zeros((inputs_per_shard(samples_per_input=SELECTION, batch=batch), *shape), dtype=np.float32)
    run_group(tallier, inputs, n=batch, first=0)  # the actors are ready
    ray.chunks, ray.driver = 0, 0.0
    for number in itertools.count(1):
        run_group(tallier, inputs, n=n, first=number * len(inputs))
        if ray.chunks >= LEAST_CHUNKS:
            return ray.chunks / ray.driver
    raise AssertionError


def simulate_run(
    actors: int, shape: tuple[int, ...], *, batch: int, n: int, rate: float, send: float
) -> tuple[float, float]:
    """The share of their time that actors work, and the chunks per second."""
    ray = FakeRay(rate=rate, send=send)
    tallier = make_tallier(ray, actors=actors, batch=batch)
    inputs = np.zeros((inputs_per_shard(samples_per_input=SELECTION, batch=batch), *shape), dtype=np.float32)
    run_group(tallier, inputs, n=n, first=0)  # the actors are ready, and the pace is known
    began, chunks, worked = ray.now, ray.chunks, ray.worked
    for number in range(1, MOST_GROUPS):
        run_group(tallier, inputs, n=n, first=number * len(inputs))
        if ray.chunks >= LEAST_CHUNKS // 4:
            break
    elapsed = ray.now - began
    return (ray.worked - worked) / (actors * elapsed), (ray.chunks - chunks) / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", default="8,64,1000,10000")
    parser.add_argument("--shape", default="3,224,224", help="of an input; its values travel with every chunk")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=2000.0, help="samples per second of an actor, an assumption")
    parser.add_argument("--send", type=float, default=0.001, help="seconds of Ray for each chunk, an assumption")
    asked = parser.parse_args()
    shape = tuple(int(side) for side in asked.shape.split(","))
    print("actors   chunks/s, at most   simulated: actors at work   chunks/s")
    for actors in (int(count) for count in asked.actors.split(",")):
        limit = measure_limit(actors, shape, batch=asked.batch, n=asked.n)
        used, dealt = simulate_run(actors, shape, batch=asked.batch, n=asked.n, rate=asked.rate, send=asked.send)
        print(f"{actors:6d}   {limit:17.0f}   {used:25.1%}   {dealt:8.0f}", flush=True)


if __name__ == "__main__":
    main()
