"""Connect to a Ray cluster, or start one on this machine, without its log output."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import ClusterError, InputError, MissingExtraError
from smoothcert.models.devices import usable_cores

_OBJECT_STORE_BYTES = 512 * 2**20
"""For a Ray started here: it holds a model and small sums. Ray's default is a third of the memory."""

_SECONDS_TO_ANSWER = 10.0
_SECONDS_WITHOUT_HEAD = 20.0
"""Ray itself ends the process after a minute, without an exception."""
_SECONDS_BETWEEN_LOOKS = 5.0
_STANDARD_ERROR = 2
_REFUSED_TOKEN = b"InvalidAuthToken"


def check_ray_is_installed() -> None:
    """Raise a MissingExtraError, with the command that installs Ray, if it is missing."""
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("ray", "ray", "--engine ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorResources:
    """The resources that each actor reserves on its node. Fractions are allowed, as in Ray."""

    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if not self.cpus >= 0 or not self.gpus >= 0:
            raise InputError(f"{self.cpus:g} CPUs and {self.gpus:g} GPUs per actor are invalid: give 0 or more of each")
        if self.cpus == 0 and self.gpus == 0:
            raise InputError("an actor needs some CPUs or GPUs: give --cpus-per-actor or --gpus-per-actor")

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs" + (f" and {self.gpus:g} GPUs" if self.gpus else "")

    def count_fitting(self, *, cpus: float, gpus: float) -> int:
        """Number of such actors that fit on a node with these resources."""
        fits = [have / each for have, each in ((cpus, self.cpus), (gpus, self.gpus)) if each]
        return int(min(fits))


@contextlib.contextmanager
def connect_to_ray(address: str | None, *, actors: int | None, resources: ActorResources) -> Iterator[Any]:
    """Connect, and yield the ray package. On exit, the connection and a cluster started here are closed.

    address: HOST:PORT of a cluster, or "auto" for the cluster of this machine; None starts one here, which ends with
    this process even if it is killed. An existing connection is used and left open.
    """
    check_ray_is_installed()
    if address is not None and address != "auto":
        _check_reachable(address)
    import ray

    if ray.is_initialized():
        yield ray
        return
    with _silence_ray():
        try:
            _connect(ray, address, actors=actors, resources=resources)
            yield ray
        finally:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise a ClusterError at once. Ray itself would retry for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise InputError(
            f"--address {address} is invalid: give HOST:PORT of the head node, as `ray start` prints it, or auto, and "
            "run this on a machine of the cluster"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {error}. Check with `ray status` that it is running"
        ) from error


def _connect(ray: Any, address: str | None, *, actors: int | None, resources: ActorResources) -> None:
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "address": address}
    if address is None:
        cores = usable_cores()
        wanted = (resources.count_fitting(cpus=cores, gpus=0) if actors is None else actors) * resources.cpus
        settings |= {
            "address": "local",
            "num_cpus": int(max(cores, -(-wanted // 1))),
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
        }
    previous = signal.getsignal(signal.SIGTERM)
    messages = io.BytesIO()
    try:
        with _keep_messages(messages):
            ray.init(**settings)
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as error:
        raise _explain_failure(ray, error, address, messages.getvalue()) from error
    finally:
        # Ray replaces our signal handler.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _keep_messages(kept: io.BytesIO) -> Iterator[None]:
    """Write to `kept` what the process prints on its standard error. Ray's C++ code prints there, every second."""
    if sys.stderr is None:  # a process without a terminal, where nothing is printed
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        before = os.dup(_STANDARD_ERROR)
        os.dup2(file.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, _STANDARD_ERROR)
            os.close(before)
            file.seek(0)
            kept.write(file.read())


def _explain_failure(ray: Any, error: Exception, address: str | None, messages: bytes) -> ClusterError:
    """messages: what Ray printed meanwhile. The exception does not say that a token was refused."""
    summary = summarise_ray_error(error).rstrip(".")
    if address is None:
        return ClusterError(f"Ray could not be started on this machine: {summary}")
    if _REFUSED_TOKEN in messages or isinstance(error, getattr(ray.exceptions, "AuthenticationError", ())):
        return ClusterError(
            f"the Ray cluster at {address} requires its token, and this process has sent none or another one. Copy "
            "~/.ray/auth_token of the head to this machine and every node, and set RAY_AUTH_MODE=token for this "
            "command and for `ray start`. `ray start --head` asks for a token as soon as that file exists; with "
            "RAY_AUTH_MODE=disabled it does not"
        )
    return ClusterError(
        f"no Ray cluster answers at {address}: {summary}. Run this on a machine of the cluster, and check it with "
        "`ray status`"
    )


@contextlib.contextmanager
def _silence_ray() -> Iterator[None]:
    """Send no usage statistics, and keep Ray's messages about dead workers out of our output."""
    from ray._private import worker

    names = ("RAY_USAGE_STATS_ENABLED", "RAY_USAGE_STATS_PROMPT_ENABLED")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "0"))
    # Ray prints them to the standard output even with log_to_driver=False. This flag is what Ray itself checks.
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


def summarise_ray_error(error: BaseException) -> str:
    """One line for a message: the last exception of a traceback in Ray's text, or its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    exceptions = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))]
    return exceptions[-1] if exceptions else lines[0]


@contextlib.contextmanager
def translate_ray_errors(ray: Any) -> Iterator[None]:
    """Turn exceptions of Ray about the cluster into a ClusterError."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"the Ray cluster failed: {summarise_ray_error(error)}. Finished results are stored, and the run can be "
            "resumed, also on another cluster or with --engine local"
        ) from error


class HeadWatch:
    """Notices that the head of the cluster is gone, before Ray ends this process for it."""

    def __init__(self, ray: Any) -> None:
        self._address = str(ray.get_runtime_context().gcs_address)
        self._last_answer = self._last_look = time.monotonic()

    def check(self) -> None:
        """Raise a ClusterError if the head has not answered for too long. Looks every few seconds."""
        if time.monotonic() - self._last_look < _SECONDS_BETWEEN_LOOKS:
            return
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_BETWEEN_LOOKS).close()
        except OSError as error:
            if self._last_look - self._last_answer > _SECONDS_WITHOUT_HEAD:
                raise ClusterError(
                    f"the head of the Ray cluster at {self._address} has not answered for "
                    f"{_SECONDS_WITHOUT_HEAD:.0f} s ({error}). Finished results are stored: start the cluster again "
                    "and resume the run with --address HOST:PORT of the new head, or with --engine local"
                ) from error
        else:
            self._last_answer = time.monotonic()
        self._last_look = time.monotonic()


def count_fitting_actors(ray: Any, resources: ActorResources) -> int:
    """Number of actors that fit on the living nodes, if nothing else ran there."""
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(resources.count_fitting(cpus=each.get("CPU", 0.0), gpus=each.get("GPU", 0.0)) for each in alive)


def describe_capacity(ray: Any) -> str:
    """Total and free resources of the cluster, for a message."""
    total, free = ray.cluster_resources(), ray.available_resources()
    nodes = sum(bool(node["Alive"]) for node in ray.nodes())
    return (
        f"the cluster has {nodes} nodes with {total.get('CPU', 0):g} CPUs and {total.get('GPU', 0):g} GPUs, of which "
        f"{free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs are free"
    )
