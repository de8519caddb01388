"""A node or the driver of a Ray run killed half-way: the run equals the local one, tally for tally."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_runner import command, environment, smoothcert
from ray_clusters import running_cluster
from run_specs import finish_run, make_spec, without_times
from smoothcert.records import CertifiedPoint
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.store import RunStore
from smoothcert.spec import RunSpec

INPUTS = 24
SETTINGS: dict[str, Any] = {
    "task": "certify",
    "model": "sample_models:logistic_digits",
    "data": "digits",
    "sigma": 0.25,
    "n0": 50,
    "n": 20_000,
    "alpha": 0.001,
    "max_inputs": INPUTS,
    "seed": 5,
    "batch": 64,
    "certificate": "dipole",
}


def spec(**changes: Any) -> RunSpec:
    return make_spec(**(SETTINGS | changes))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with running_cluster(nodes=2, folder=tmp_path_factory.mktemp("processes")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[CertifiedPoint]:
    return finish_run(spec(), tmp_path_factory.mktemp("local") / "run")


def stored(out: Path) -> int:
    if not (out / "manifest.json").exists():
        return 0
    with RunStore.open(out) as store:
        return len(store.indices())


def arguments(
    cluster: Any, out: Path, *, model: object = SETTINGS["model"], n: object = SETTINGS["n"]
) -> tuple[object, ...]:
    return (
        "certify", "--model", model, "--data", "digits", "--sigma", 0.25, "--n0", 50, "--n", n,
        "--max", INPUTS, "--seed", 5, "--batch", 64, "--certificate", "dipole", "--out", out,
        "--engine", "ray", "--address", cluster.address,
    )  # fmt: skip


def started(cluster: Any, out: Path, **changes: object) -> subprocess.Popen[str]:
    """A run in a process group of its own, once some of its results are stored."""
    process = subprocess.Popen(
        command(*arguments(cluster, out, **changes)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while process.poll() is None and stored(out) == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("engine", ["ray", "local"])
def test_the_driver_killed_and_the_run_resumed(
    cluster: Any, whole: list[CertifiedPoint], tmp_path: Path, engine: str
) -> None:
    out = tmp_path / "run"
    process = started(cluster, out)
    process.kill()
    _, errors = process.communicate(timeout=60)
    assert 0 < stored(out) < INPUTS, errors
    resumed = smoothcert("certify", "--resume", out, *(("--engine", "local") if engine == "local" else ()))
    assert resumed.returncode == 0, resumed.stderr
    assert ("actors on Ray" in resumed.stderr) is (engine == "ray")
    with RunStore.open(out) as store:
        assert without_times(store.points()) == whole


def test_ctrl_c_stores_what_is_finished_and_says_how_to_resume(cluster: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = started(cluster, out)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"smoothcert certify --resume {out}" in errors
    assert "Traceback" not in errors
    assert output == ""
    assert 0 < stored(out) < INPUTS


def test_a_node_killed_half_way(cluster: Any, whole: list[CertifiedPoint], tmp_path: Path) -> None:
    """Before the last in this file: the node does not come back."""
    on_ray = spec(engine="ray", address=cluster.address)
    left = []

    def on_shard(_: list[CertifiedPoint]) -> None:
        if len(run.store.indices()) >= INPUTS // 2 and not left:
            victim, survivor = sorted(cluster.worker_nodes, key=lambda node: node.node_id)
            cluster.remove_node(victim, allow_graceful=False)
            left.append(survivor)

    with prepare_run(on_ray, tmp_path / "run") as run:
        execute_run(run, on_shard=on_shard)
        found = without_times(run.store.points())
    assert list(cluster.worker_nodes) == left
    assert found == whole


def test_the_head_killed_half_way(cluster: Any, tmp_path: Path) -> None:
    """After the other tests of this file: no cluster is left. Ray would end the driver without a word."""
    out, address = tmp_path / "run", cluster.address
    # It takes longer than the driver waits for the head.
    process = started(cluster, out, model="sample_models:unhurried_digits", n=8000)
    cluster.head_node.kill_gcs_server()
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 8, errors
    assert f"the head of the Ray cluster at {address} has not answered" in errors
    assert "--engine local" in errors
    assert f"inputs are stored. Resume with: smoothcert certify --resume {out}" in errors
    assert "Traceback" not in errors
    resumed = smoothcert("certify", "--resume", out, "--engine", "local")
    assert resumed.returncode == 0, resumed.stderr
