"""The actors of a run: start them, give them tasks, and replace them when they or their nodes die.

The driver keeps track of all tasks. Each actor has a few tasks waiting, so that it is not idle while an answer travels.
When an actor dies, its tasks return to the head of the queue and a new actor is started wherever the cluster has room.
A task is a pure function of its arguments, so repeating it changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from smoothcert.cluster.ray_cluster import (
    ActorResources,
    HeadWatch,
    describe_capacity,
    summarise_ray_error,
    translate_ray_errors,
)
from smoothcert.cluster.ray_worker import Failure, LoadedModel, Worker
from smoothcert.errors import ClusterError

_WAITING_PER_ACTOR = 3
_MOST_LOST = 5
"""Actors that may die during one task, or in a row before they are ready, before the run is given up."""
_SECONDS_WITHOUT_A_PLACE = 60.0
_TICK_SECONDS = 1.0


@dataclass(slots=True, eq=False)
class Task:
    """A call of a method of `Worker`. about: the subject, for messages. lost: actors that died during it."""

    method: str
    arguments: tuple[Any, ...]
    about: str
    lost: int = 0


@dataclass(slots=True, eq=False)
class _Member:
    """One actor. calls: tasks by the reference of their answer, in order of execution; None for the first two calls.

    placed: whether it has a node. ready: whether it has loaded the model. listed: where it is in `Crew._free`, if it
    is.
    """

    handle: Any
    calls: dict[Any, Task | None] = field(default_factory=dict)
    placed: bool = False
    ready: bool = False
    listed: int | None = None


class Crew:
    """Actors that hold a model. load: the arguments of `Worker.load`. check: refuses an actor with another model.

    Of thousands of actors none is looked at for the task of another: they are listed by the number of their calls, and
    their first calls by themselves.
    """

    def __init__(
        self,
        ray: Any,
        *,
        size: int,
        resources: ActorResources,
        load: tuple[Any, ...],
        check: Callable[[LoadedModel], None],
    ) -> None:
        self.size = size
        self._ray = ray
        self._resources = resources
        self._load = load
        self._check = check
        self._kind = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_restarts=0)(Worker)
        self._queue: deque[Task] = deque()
        self._done: dict[Task, Any] = {}
        self._members: dict[_Member, None] = {}
        self._first_calls: dict[Any, _Member] = {}
        self._free = [dict[_Member, None]() for _ in range(_WAITING_PER_ACTOR)]
        self._assigned = 0
        self._failed_starts = 0
        self._last_placed = time.monotonic()
        with translate_ray_errors(ray):
            self._head = HeadWatch(ray)
            for _ in range(size):
                self._start_actor()

    @property
    def has_room(self) -> bool:
        """Whether the actors can take another task."""
        return len(self._queue) + self._assigned < self.size * _WAITING_PER_ACTOR

    def submit(self, task: Task) -> None:
        self._queue.append(task)

    def forget(self, tasks: Iterable[Task]) -> None:
        """Drop tasks whose answers are no longer needed, and cancel those that have not begun."""
        unwanted = set(tasks)
        self._queue = deque(task for task in self._queue if task not in unwanted)
        self._done = {task: answer for task, answer in self._done.items() if task not in unwanted}
        for member in self._members:
            for call in [call for call, task in member.calls.items() if task in unwanted]:
                self._remove_call(member, call)
                with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
                    self._ray.cancel(call)

    def run_task(self, task: Task) -> Any:
        """Submit one task and wait for its answer."""
        self.submit(task)
        return self.wait_for_some({task})[task]

    def wait_for_some(self, wanted: Collection[Task]) -> dict[Task, Any]:
        """Wait until some of these tasks are done, and return the answers of all that are.

        Exceptions of the model are raised here. Raises a ClusterError if no actor finds a place, or if actors die
        repeatedly.
        """
        with translate_ray_errors(self._ray):
            while not (finished := [task for task in self._done if task in wanted]):
                self._head.check()
                self._wait_once()
        return {task: self._done.pop(task) for task in finished}

    def _wait_once(self) -> None:
        """Hand out tasks, and take the answers that there are after a moment."""
        self._assign_tasks()
        calls = list(self._first_calls)  # an actor answers in order
        done, _ = self._ray.wait(calls, num_returns=1, timeout=_TICK_SECONDS)
        if done:
            done, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        for call in done:
            self._receive(self._first_calls[call], call)
        self._check_progress()

    def disband(self) -> None:
        """End all actors."""
        for member in self._members:
            self._kill(member)
        for listed in self._free:
            listed.clear()
        self._members.clear()
        self._first_calls.clear()
        self._queue.clear()
        self._assigned = 0

    def _start_actor(self) -> None:
        member = _Member(self._kind.remote())
        self._members[member] = None
        self._add_call(member, member.handle.begin.remote(), None)
        self._add_call(member, member.handle.load.remote(*self._load), None)

    def _assign_tasks(self) -> None:
        """Give tasks to the ready members with the fewest calls."""
        while self._queue:
            member = next((next(iter(listed)) for listed in self._free if listed), None)
            if member is None:
                return
            task = self._queue.popleft()
            self._add_call(member, getattr(member.handle, task.method).remote(*task.arguments), task)

    def _add_call(self, member: _Member, call: Any, task: Task | None) -> None:
        if not member.calls:
            self._first_calls[call] = member
        member.calls[call] = task
        self._assigned += task is not None
        self._list(member)

    def _remove_call(self, member: _Member, call: Any) -> Task | None:
        task = member.calls.pop(call)
        self._assigned -= task is not None
        if self._first_calls.pop(call, None) is not None and member.calls:
            self._first_calls[next(iter(member.calls))] = member
        self._list(member)
        return task

    def _list(self, member: _Member) -> None:
        """List a member by the number of its calls, if it can take another."""
        if member.listed is not None:
            del self._free[member.listed][member]
        calls = len(member.calls)
        member.listed = calls if member.ready and member in self._members and calls < _WAITING_PER_ACTOR else None
        if member.listed is not None:
            self._free[member.listed][member] = None

    def _receive(self, member: _Member, call: Any) -> None:
        """Take the answer of a finished call."""
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise ClusterError(f"an actor failed: {summarise_ray_error(error)}") from error
        except self._ray.exceptions.RayError as error:
            self._replace(member, error)
            return
        if isinstance(answer, Failure):
            raise answer.to_exception()
        task = self._remove_call(member, call)
        member.placed = True
        self._last_placed = time.monotonic()
        if isinstance(answer, LoadedModel):
            self._check(answer)
            member.ready = True
            self._list(member)
            self._failed_starts = 0
        if task is not None:
            self._done[task] = answer

    def _replace(self, member: _Member, error: Exception) -> None:
        """Start a new actor for one that died, and put its tasks at the head of the queue."""
        del self._members[member]
        self._kill(member)
        tasks = [task for call in list(member.calls) if (task := self._remove_call(member, call)) is not None]
        self._queue.extendleft(reversed(tasks))
        if not member.ready:
            self._failed_starts += 1
            if self._failed_starts == _MOST_LOST:
                raise ClusterError(
                    f"{_MOST_LOST} actors ended, one after the other, before they had loaded the model: "
                    f"{summarise_ray_error(error)}. Check that every node has the same smoothcert, and enough "
                    "memory for the model"
                ) from error
        elif tasks:
            tasks[0].lost += 1  # the others were waiting behind it
            if tasks[0].lost == _MOST_LOST:
                raise ClusterError(
                    f"{_MOST_LOST} actors ended, one after the other, while they worked on {tasks[0].about}: "
                    f"{summarise_ray_error(error)}. Check whether the model crashes or needs too much memory"
                ) from error
        self._start_actor()

    def _kill(self, member: _Member) -> None:
        # If this fails, the actor or the whole cluster is already dead.
        with contextlib.suppress(Exception):
            self._ray.kill(member.handle)

    def _check_progress(self) -> None:
        """Raise a ClusterError if no actor has had a place for too long."""
        if any(member.placed for member in self._members):
            self._last_placed = time.monotonic()
        elif time.monotonic() - self._last_placed > _SECONDS_WITHOUT_A_PLACE:
            raise ClusterError(
                f"no actor found a place for {_SECONDS_WITHOUT_A_PLACE:.0f} s: each asks for {self._resources}, and "
                f"{describe_capacity(self._ray)}. Wait for room or ask for less. Finished results are stored, and "
                "the run can be resumed"
            )
