"""The crew's account of its actors, with objects of this process in place of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smoothcert.cluster.ray_cluster import ActorResources
from smoothcert.cluster.ray_crew import Crew, Task
from smoothcert.cluster.ray_worker import LoadedModel


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


@dataclass(eq=False)
class Call:
    actor: FakeActor
    method: str
    arguments: tuple[Any, ...]
    is_done: bool = False


@dataclass(eq=False)
class FakeActor:
    """Answers when the test says so. calls: all that it got."""

    calls: list[Call] = field(default_factory=list)
    is_dead: bool = False

    def __getattr__(self, name: str) -> Any:
        actor = self

        class Method:
            @staticmethod
            def remote(*arguments: Any) -> Call:
                actor.calls.append(Call(actor, name, arguments, is_done=name in ("begin", "load")))
                return actor.calls[-1]

        return Method

    def waiting(self) -> list[Call]:
        return [call for call in self.calls if not call.is_done]


class FakeRay:
    """before_wait: called with this object before each wait for an answer. looked_at: calls given to wait."""

    class exceptions:  # noqa: N801 (as Ray names it)
        RayError = RayError
        RayTaskError = RayTaskError

    def __init__(self, before_wait: Callable[[FakeRay], None] = lambda _: None) -> None:
        self.actors: list[FakeActor] = []
        self.cancelled: list[Call] = []
        self.looked_at: list[int] = []
        self._before_wait = before_wait

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:0")

    def remote(self, **_: object) -> Any:
        ray = self

        class Kind:
            @staticmethod
            def remote() -> FakeActor:
                ray.actors.append(FakeActor())
                return ray.actors[-1]

        return lambda _: Kind

    def wait(self, calls: list[Call], *, num_returns: int, timeout: float) -> tuple[list[Call], list[Call]]:
        if timeout:
            self._before_wait(self)
        self.looked_at.append(len(calls))
        return [call for call in calls if call.is_done or call.actor.is_dead][:num_returns], []

    def get(self, call: Call) -> Any:
        if call.actor.is_dead:
            raise RayError("the actor died")
        if call.method == "load":
            return LoadedModel(node="here", identity=cast(Any, None))
        return call.arguments

    def cancel(self, call: Call) -> None:
        self.cancelled.append(call)

    def kill(self, actor: FakeActor) -> None:
        actor.is_dead = True


def make_crew(ray: FakeRay, *, size: int) -> Crew:
    return Crew(ray, size=size, resources=ActorResources(cpus=1.0, gpus=0.0), load=(), check=lambda _: None)


def make_tasks(count: int) -> Iterator[Task]:
    return (Task("count", (number,), about=f"input {number}") for number in range(count))


def answer_first(ray: FakeRay) -> None:
    """Every actor answers the first of its calls."""
    for actor in ray.actors:
        for call in actor.waiting()[:1]:
            call.is_done = True


def work_through(crew: Crew, count: int) -> list[int]:
    """The numbers of all tasks, in the order of their answers, as `RayTallier` asks for them."""
    tasks, pending, found = make_tasks(count), set[Task](), list[int]()
    more = True
    while more or pending:
        while more and crew.has_room:
            task = next(tasks, None)
            if task is None:
                more = False
            else:
                crew.submit(task)
                pending.add(task)
        if pending:
            for task, answer in crew.wait_for_some(pending).items():
                pending.remove(task)
                found += answer
    return found


def test_every_task_is_answered_once_and_no_actor_has_more_than_three() -> None:
    most = list[int]()

    def before_wait(ray: FakeRay) -> None:
        most.append(max((len(actor.waiting()) for actor in ray.actors), default=0))
        answer_first(ray)

    crew = make_crew(FakeRay(before_wait), size=4)
    assert sorted(work_through(crew, 50)) == list(range(50))
    assert max(most) == 3
    assert crew.has_room


def test_tasks_go_to_those_with_the_fewest() -> None:
    ray = FakeRay()
    crew = make_crew(ray, size=3)
    crew.run_task(Task("begin", (0,), about="a start"))  # the actors are ready
    for task in make_tasks(6):
        crew.submit(task)
    crew._assign_tasks()
    assert [len(actor.waiting()) for actor in ray.actors] == [2, 2, 2]
    assert crew.has_room
    for task in make_tasks(3):
        crew.submit(task)
    assert not crew.has_room


def test_only_the_first_call_of_an_actor_is_waited_for() -> None:
    """Fails where the driver looks at all calls of all actors for every answer."""
    ray = FakeRay(answer_first)
    crew = make_crew(ray, size=5)
    work_through(crew, 100)
    assert max(ray.looked_at) <= 5


def test_tasks_of_an_actor_that_dies_are_done_by_others() -> None:
    def before_wait(ray: FakeRay) -> None:
        working = [actor for actor in ray.actors if actor.waiting() and not actor.is_dead]
        if working and len(ray.actors) == 3:
            working[0].is_dead = True
        else:
            answer_first(ray)

    ray = FakeRay(before_wait)
    crew = make_crew(ray, size=3)
    assert sorted(work_through(crew, 40)) == list(range(40))
    assert len(ray.actors) == 4
    assert not ray.actors[0].waiting() or ray.actors[0].is_dead


def test_forgotten_tasks_make_room() -> None:
    ray = FakeRay()
    crew = make_crew(ray, size=2)
    crew.run_task(Task("begin", (0,), about="a start"))
    tasks = list(make_tasks(6))
    for task in tasks:
        crew.submit(task)
    crew._assign_tasks()
    assert not crew.has_room
    crew.forget(tasks[:5])
    assert len(ray.cancelled) == 5
    assert crew.has_room
    for call in tasks[5:]:
        assert call not in crew._queue
    ray._before_wait = answer_first
    for actor in ray.actors:
        for waiting in actor.waiting():
            waiting.is_done = True
    assert crew.wait_for_some({tasks[5]}) == {tasks[5]: (5,)}
    crew.disband()
    assert all(actor.is_dead for actor in ray.actors)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_count_of_assigned_tasks_returns_to_nothing(size: int) -> None:
    crew = make_crew(FakeRay(answer_first), size=size)
    work_through(crew, 30)
    assert crew._assigned == 0
    assert not crew._first_calls
    assert sum(map(len, crew._free)) == size
