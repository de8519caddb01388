"""The actors of a run: started, fed, and replaced when they or their nodes die.

The driver keeps the account itself. Each actor has a few tasks waiting, so that it is never idle while an answer
travels. When an actor dies its tasks go back to the head of the queue and another one is started, wherever the cluster
has room. A task is a pure function of its arguments, so doing it again changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from smoothcert.cluster.ray_cluster import ActorResources, described_room
from smoothcert.cluster.ray_worker import Arrived, Failure, Worker
from smoothcert.errors import ClusterError

_WAITING_PER_ACTOR = 3
_MOST_LOST = 5
"""Actors that may die over one task, or one after the other before they are ready, until it is taken for its fault."""
_SECONDS_WITHOUT_A_PLACE = 60.0
_TICK_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class Task:
    """A call of a method of `Worker`. lost: how many actors died while they worked on it. about: for messages."""

    method: str
    arguments: tuple[Any, ...]
    about: str
    lost: int = 0


@dataclass(slots=True, eq=False)
class _Member:
    """One actor. calls: tasks by the reference of their answer, in the order in which they are done; None marks the two
    calls that make it ready.
    """

    handle: Any
    calls: dict[Any, Task | None] = field(default_factory=dict)
    placed: bool = False
    ready: bool = False


class Crew:
    """Actors that hold a model.

    load: the arguments of `Worker.load`. check: refuses an actor that would compute another function.
    """

    def __init__(
        self,
        ray: Any,
        *,
        size: int,
        resources: ActorResources,
        load: tuple[Any, ...],
        check: Callable[[Arrived], None],
    ) -> None:
        self.size = size
        self._ray = ray
        self._resources = resources
        self._load = load
        self._check = check
        self._kind = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_restarts=0)(Worker)
        self._queue: deque[Task] = deque()
        self._done: dict[Task, Any] = {}
        self._members: list[_Member] = []
        self._failed_starts = 0
        self._last_placed = time.monotonic()
        for _ in range(size):
            self._start_one()

    @property
    def has_room(self) -> bool:
        """Whether another task would keep somebody busy."""
        held = sum(task is not None for member in self._members for task in member.calls.values())
        return len(self._queue) + held < self.size * _WAITING_PER_ACTOR

    def submit(self, task: Task) -> None:
        self._queue.append(task)

    def forget(self, tasks: Iterable[Task]) -> None:
        """Nobody waits for these any more; what has not begun is not done."""
        unwanted = set(tasks)
        self._queue = deque(task for task in self._queue if task not in unwanted)
        self._done = {task: answer for task, answer in self._done.items() if task not in unwanted}
        for member in self._members:
            for call in [call for call, task in member.calls.items() if task in unwanted]:
                del member.calls[call]
                with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
                    self._ray.cancel(call)

    def result(self, task: Task) -> Any:
        """The answer to one task."""
        self.submit(task)
        ((_, answer),) = self.answers({task})
        return answer

    def answers(self, wanted: Collection[Task]) -> list[tuple[Task, Any]]:
        """Wait until some of these tasks are done: all that are, with their answers.

        An exception in the model is raised here, as the one it was. A ClusterError where no actor finds a place, or
        where they die again and again.
        """
        while not (found := [task for task in self._done if task in wanted]):
            self._hand_out()
            calls = {call: member for member in self._members for call in member.calls}
            done, _ = self._ray.wait(list(calls), num_returns=1, timeout=_TICK_SECONDS)
            if done:
                done, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
            for call in done:
                self._take(calls[call], call)
            self._check_patience()
        return [(task, self._done.pop(task)) for task in found]

    def disband(self) -> None:
        """End all actors."""
        for member in self._members:
            self._kill(member)
        self._members.clear()
        self._queue.clear()

    def _start_one(self) -> None:
        member = _Member(self._kind.remote())
        member.calls[member.handle.begin.remote()] = None
        member.calls[member.handle.load.remote(*self._load)] = None
        self._members.append(member)

    def _hand_out(self) -> None:
        while self._queue:
            free = [each for each in self._members if each.ready and len(each.calls) < _WAITING_PER_ACTOR]
            if not free:
                return
            member = min(free, key=lambda each: len(each.calls))
            task = self._queue.popleft()
            member.calls[getattr(member.handle, task.method).remote(*task.arguments)] = task

    def _take(self, member: _Member, call: Any) -> None:
        """Note the answer of a call that is done."""
        if call not in member.calls:  # lost together with an earlier one
            return
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise ClusterError(f"an actor cannot do its work: {_told(error)}") from error
        except self._ray.exceptions.RayError as error:
            self._replace(member, error)
            return
        if isinstance(answer, Failure):
            raise answer.raised()
        task = member.calls.pop(call)
        member.placed = True
        self._last_placed = time.monotonic()
        if isinstance(answer, Arrived):
            self._check(answer)
            member.ready = True
            self._failed_starts = 0
        if task is not None:
            self._done[task] = answer

    def _replace(self, member: _Member, error: Exception) -> None:
        """Another actor for one that died; its tasks are first in the queue again."""
        self._members.remove(member)
        self._kill(member)
        tasks = [task for task in member.calls.values() if task is not None]
        member.calls.clear()
        self._queue.extendleft(reversed(tasks))
        if not member.ready:
            self._failed_starts += 1
            if self._failed_starts == _MOST_LOST:
                raise ClusterError(
                    f"{_MOST_LOST} actors ended, one after the other, before they had the model: {_told(error)}. "
                    "Is the same smoothcert installed on every node, and does the model fit in its memory?"
                ) from error
        elif tasks:
            tasks[0].lost += 1  # the others were waiting behind it
            if tasks[0].lost == _MOST_LOST:
                raise ClusterError(
                    f"{_MOST_LOST} actors ended, one after the other, while they worked on {tasks[0].about}: "
                    f"{_told(error)}. Does the model crash, or need more memory than a node has?"
                ) from error
        self._start_one()

    def _kill(self, member: _Member) -> None:
        # A kill that fails finds the actor, or the whole cluster, dead already.
        with contextlib.suppress(Exception):
            self._ray.kill(member.handle)

    def _check_patience(self) -> None:
        if any(member.placed for member in self._members):
            self._last_placed = time.monotonic()
        elif time.monotonic() - self._last_placed > _SECONDS_WITHOUT_A_PLACE:
            raise ClusterError(
                f"no actor found a place for {_SECONDS_WITHOUT_A_PLACE:.0f} s: each asks for {self._resources}, and "
                f"{described_room(self._ray)}. Wait for room or ask for less; what is finished is stored, and the run "
                "can be gone on with"
            )


def _told(error: Exception) -> str:
    """What Ray says, in one line: the last line of a traceback, or the sentence it begins with."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    named = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return named[-1] if named else lines[0]
