"""Reaching a Ray cluster, or starting one on this machine, without its noise."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import ClusterError, InputError, MissingExtraError
from smoothcert.models.devices import usable_cores

_OBJECT_STORE_BYTES = 512 * 2**20
"""For a Ray started here, which carries a model and small sums. Its own choice would be a third of the memory."""

_SECONDS_TO_ANSWER = 10.0


def check_ray_is_installed() -> None:
    """A MissingExtraError that says how to install it, where it is not there."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("ray", "ray", "--engine ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorResources:
    """What each actor reserves on its node. Both may be fractions, as in Ray."""

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if not self.cpus >= 0 or not self.gpus >= 0:
            raise InputError(f"an actor cannot have {self.cpus:g} CPUs and {self.gpus:g} GPUs; give 0 or more of each")
        if self.cpus == 0 and self.gpus == 0:
            raise InputError("an actor must have some CPUs or GPUs; give --cpus-per-actor or --gpus-per-actor")

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs" + (f" and {self.gpus:g} GPUs" if self.gpus else "")

    def fitting(self, *, cpus: float, gpus: float) -> int:
        """How many such actors a node with these resources holds."""
        rooms = [have / each for have, each in ((cpus, self.cpus), (gpus, self.gpus)) if each]
        return int(min(rooms))


@contextlib.contextmanager
def connected(address: str | None, *, actors: int | None, resources: ActorResources) -> Iterator[Any]:
    """The ray package, connected; what was started or connected here is ended again.

    address: HOST:PORT of a cluster, or "auto" for the one this machine belongs to; None starts one here, which ends
    with this process even if it is killed. A connection that the caller made before is used as it is, and left open.
    """
    check_ray_is_installed()
    if address is not None and address != "auto":
        _check_somebody_answers(address)
    import ray

    if ray.is_initialized():
        yield ray
        return
    with _silenced():
        try:
            _connect(ray, address, actors=actors, resources=resources)
            yield ray
        finally:
            ray.shutdown()


def _check_somebody_answers(address: str) -> None:
    """Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InputError(
            f"--address {address} cannot be read: give HOST:PORT of the head, as `ray start` prints it, or auto; "
            "and run this on a machine that belongs to the cluster"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"no Ray cluster answers at {address}: {error}; is it running? See `ray status`") from error


def _connect(ray: Any, address: str | None, *, actors: int | None, resources: ActorResources) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    previous = signal.getsignal(signal.SIGTERM)
    try:
        if address is None:
            cores = usable_cores()
            wanted = (resources.fitting(cpus=cores, gpus=0) if actors is None else actors) * resources.cpus
            ray.init(
                address="local",
                num_cpus=int(max(cores, -(-wanted // 1))),
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                **quiet,
            )
        else:
            ray.init(address=address, **quiet)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        place = "no Ray could be started on this machine" if address is None else f"no Ray cluster answers at {address}"
        hint = "" if address is None else "; run this on a machine of the cluster, see `ray status` there"
        raise ClusterError(f"{place}: {_first_line(error)}{hint}") from error
    finally:
        # Ray puts a handler of its own in the place of ours.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """No usage statistics are sent, and no message of Ray about a dead worker gets into our output."""
    from ray._private import worker

    names = ("RAY_USAGE_STATS_ENABLED", "RAY_USAGE_STATS_PROMPT_ENABLED")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "0"))
    # Ray prints such messages on the standard output even if it is asked to log nothing there; this is its own switch.
    printing = getattr(worker, "_worker_logs_enabled", True)
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = printing
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def fitting_actors(ray: Any, resources: ActorResources) -> int:
    """How many actors the nodes that are alive can hold at once, were they otherwise empty."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(resources.fitting(cpus=each.get("CPU", 0.0), gpus=each.get("GPU", 0.0)) for each in alive)


def described_room(ray: Any) -> str:
    """How large the cluster is, and how much of it is free, for a message."""
    total, free = ray.cluster_resources(), ray.available_resources()
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    return (
        f"the cluster has {nodes} nodes with {total.get('CPU', 0):g} CPUs and {total.get('GPU', 0):g} GPUs, of which "
        f"{free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs are free"
    )
