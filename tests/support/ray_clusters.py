"""Real Ray clusters on this machine: a head without processors, and nodes that come and go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli_runner import SUPPORT
from ray_models import FOLDER

_QUICK_TO_NOTICE = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
_SMALL = {"object_store_memory": 80 * 2**20, "include_dashboard": False}


@contextmanager
def running_cluster(*, nodes: int, folder: Path) -> Iterator[Any]:
    """`nodes` nodes with one processor each, beside a head with none; their actors can import the tests' models.

    folder: where `ray_models` leave the numbers of their processes.
    """
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv(FOLDER, str(folder))
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": _QUICK_TO_NOTICE, **_SMALL}
        )
        try:
            for _ in range(nodes):
                cluster.add_node(num_cpus=1, **_SMALL)
            yield cluster
        finally:
            cluster.shutdown()


def actor_processes(folder: Path) -> list[int]:
    """The processes, other than this one, that have loaded a model of `ray_models`, oldest first."""
    found = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    return [int(file.name) for file in found if int(file.name) != os.getpid()]
