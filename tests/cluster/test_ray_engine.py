"""Sampling on a real Ray cluster of two nodes on this machine: the tallies are those of the local engine."""

import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ray_clusters import actor_processes, running_cluster
from ray_models import kills_its_actor, logistic_with_pid, refuses_batches
from run_specs import finish_run, make_spec, resumed_spec, without_times
from sample_models import digits_by_brightness, roll_by_side
from smoothcert.cluster import ray_crew
from smoothcert.cluster.ray_engine import RayEngine
from smoothcert.cluster.ray_model import ModelIdentity, pack_model
from smoothcert.cluster.ray_worker import Failure
from smoothcert.data import load_dataset
from smoothcert.errors import ClusterError, InputError, InterruptedRunError, MissingExtraError, ModelError
from smoothcert.models import as_classifier
from smoothcert.records import CertifiedPoint, Noise
from smoothcert.results.opened_runs import open_run
from smoothcert.runs.execution import check_spec
from smoothcert.runs.store import read_manifest
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import LocalEngineSpec, RayEngineSpec, RunSpec

SMOOTHING: dict[str, Any] = {"sigma": 0.25, "seed": 3, "batch": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with running_cluster(nodes=2, folder=folder) as cluster:
        yield cluster.address


@pytest.fixture(scope="module")
def inputs() -> np.ndarray:
    return load_dataset("digits").inputs(range(8))


@pytest.fixture(scope="module")
def logistic() -> object:
    return logistic_with_pid()


def certified(
    smoothed: SmoothedClassifier, inputs: np.ndarray, certificate: str, n: int = 3000
) -> list[CertifiedPoint]:
    return without_times(smoothed.certify(inputs, n0=60, n=n, certificate=certificate, indices=range(len(inputs))))


def test_the_scale_of_features_travels_with_the_model(address: str) -> None:
    """By name, and as code: a function that is local to this test is pickled by value."""

    def own_model(batch: np.ndarray) -> np.ndarray:
        return roll_by_side(batch)

    points = load_dataset("swiss-roll").inputs(range(4))
    settings = {**SMOOTHING, "sigma": [0.2, 0.5], "input_range": None, "num_classes": 2}
    for model, named in ((roll_by_side, "sample_models:roll_by_side"), (own_model, own_model)):
        local = certified(SmoothedClassifier(model, **settings), points, "gaussian", n=1000)
        with RayEngine(named, address=address, actors=1) as engine:
            remote = SmoothedClassifier(model, tallier=engine, **settings)
            assert certified(remote, points, "gaussian", n=1000) == local
        assert local[0].scale is not None


def test_every_kind_of_tally_is_that_of_the_local_engine(address: str, inputs: np.ndarray, logistic: object) -> None:
    progress: list[int] = []
    with RayEngine("ray_models:logistic_with_pid", address=address) as engine:
        assert engine.actors == 2
        for noise, certificate in (
            (Noise.GAUSSIAN, "gaussian"),
            (Noise.GAUSSIAN, "dipole"),
            (Noise.GAUSSIAN, "second-order"),
            (Noise.GAUSSIAN, "gaussian-soft"),
            (Noise.UNIFORM, "uniform-l1"),
        ):
            local = SmoothedClassifier(logistic, noise=noise, **SMOOTHING)
            remote = SmoothedClassifier(logistic, noise=noise, tallier=engine, **SMOOTHING)
            assert certified(remote, inputs, certificate) == certified(local, inputs, certificate)
        predicted = SmoothedClassifier(logistic, tallier=engine, **SMOOTHING).predict(
            inputs, n=5000, indices=range(8), progress=progress.append
        )
        assert sum(progress) == 8 * 5000
        local = SmoothedClassifier(logistic, **SMOOTHING)
        assert without_times(predicted) == without_times(local.predict(inputs, n=5000, indices=range(8)))


def test_the_number_of_actors_and_how_the_model_travels_change_nothing(address: str, inputs: np.ndarray) -> None:
    """Four actors on two processors, a model as an object that carries its code, the batch measured over there."""

    def local_function(batch: np.ndarray) -> np.ndarray:
        return digits_by_brightness(batch)

    here = SmoothedClassifier(local_function, sigma=0.25, seed=3, batch=96)
    with RayEngine(local_function, address=address, actors=4, cpus_per_actor=0.5) as engine:
        there = SmoothedClassifier(local_function, sigma=0.25, seed=3, tallier=engine)
        assert there.check_inputs(inputs).shape == inputs.shape
        assert there.tune(inputs.shape[1:], samples=10) == 128  # too few samples to tell a difference by
        there.batch = 96
        assert certified(there, inputs, "gaussian") == certified(here, inputs, "gaussian")


def test_a_worker_killed_costs_its_chunks_a_retry(
    address: str, folder: Path, inputs: np.ndarray, logistic: object
) -> None:
    drawn = 0
    killed: list[int] = []

    def progress(samples: int) -> None:
        nonlocal drawn
        drawn += samples
        if drawn > 8 * 20_000 // 2 and not killed:
            killed.append(actor_processes(folder)[-1])
            os.kill(killed[0], signal.SIGKILL)

    with RayEngine("ray_models:logistic_with_pid", address=address) as engine:
        remote = SmoothedClassifier(logistic, tallier=engine, **SMOOTHING)
        found = without_times(remote.certify(inputs, n0=60, n=20_000, indices=range(8), progress=progress))
    assert len(killed) == 1
    assert drawn == 8 * 20_060  # what was done twice is told once
    assert found == certified(SmoothedClassifier(logistic, **SMOOTHING), inputs, "gaussian", n=20_000)


def test_an_error_of_the_model_is_the_one_it_is_here(address: str, inputs: np.ndarray) -> None:
    with pytest.raises(ModelError) as here:
        SmoothedClassifier(refuses_batches, **SMOOTHING).certify(inputs, n0=60, n=3000)
    with RayEngine(refuses_batches, address=address) as engine, pytest.raises(ModelError) as there:
        SmoothedClassifier(refuses_batches, tallier=engine, **SMOOTHING).certify(inputs, n0=60, n=3000)
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)
    assert "ray_models.py" in there.value.__notes__[0]


def test_a_chunk_that_ends_its_actors_ends_the_run(
    address: str, inputs: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_crew, "_MOST_LOST", 2)
    smoothed_with = {"sigma": 0.25, "seed": 3, "batch": 2000}  # one batch, so that the chunk is known
    with RayEngine(kills_its_actor, address=address) as engine:
        smoothed = SmoothedClassifier(kills_its_actor, tallier=engine, **smoothed_with)
        with pytest.raises(
            ClusterError, match=r"2 actors ended, one after the other, while they worked on inputs 0 … 7"
        ):
            smoothed.certify(inputs, n0=60, n=3000)


def test_a_node_with_another_model_is_refused(address: str, inputs: np.ndarray) -> None:
    with RayEngine("sample_models:darkness", address=address) as engine:
        smoothed = SmoothedClassifier(digits_by_brightness, tallier=engine, **SMOOTHING)
        with pytest.raises(ModelError, match="another function") as refused:
            smoothed.certify(inputs, n0=60, n=3000)
    here = as_classifier(digits_by_brightness, input_shape=inputs.shape[1:])
    there = as_classifier("sample_models:darkness", input_shape=inputs.shape[1:], num_classes=10)
    assert here.digest in str(refused.value)
    assert there.digest in str(refused.value)


def test_actors_that_find_no_place_are_not_waited_for_without_end(
    address: str, inputs: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_crew, "_SECONDS_WITHOUT_A_PLACE", 3.0)
    with RayEngine(digits_by_brightness, address=address, actors=1, cpus_per_actor=2) as engine:
        smoothed = SmoothedClassifier(digits_by_brightness, tallier=engine, **SMOOTHING)
        with pytest.raises(ClusterError, match=r"each asks for 2 CPUs, and the cluster has 3 nodes with 2 CPUs"):
            smoothed.certify(inputs, n0=60, n=3000)
    with RayEngine(digits_by_brightness, address=address, gpus_per_actor=1) as engine:
        smoothed = SmoothedClassifier(digits_by_brightness, tallier=engine, **SMOOTHING)
        with pytest.raises(ClusterError, match=r"no node holds an actor with 1 CPUs and 1 GPUs"):
            smoothed.certify(inputs, n0=60, n=3000)


def test_a_model_that_actors_cannot_have(address: str, inputs: np.ndarray) -> None:
    handle = sys.stdout

    def unsendable(batch: np.ndarray) -> np.ndarray:
        assert handle
        return digits_by_brightness(batch)

    with RayEngine(unsendable, address=address) as engine:
        smoothed = SmoothedClassifier(unsendable, tallier=engine, **SMOOTHING)
        with pytest.raises(ModelError, match="cannot be sent to other processes"):
            smoothed.certify(inputs, n0=60, n=3000)


SETTINGS: dict[str, Any] = {
    "task": "certify",
    "model": "sample_models:digits_by_brightness",
    "data": "digits",
    "sigma": 0.25,
    "n0": 50,
    "n": 700,
    "alpha": 0.001,
    "max_inputs": 20,
    "seed": 5,
    "batch": 64,
    "num_classes": 10,
}


def spec(**changes: Any) -> RunSpec:
    return make_spec(**(SETTINGS | changes))


def test_runs_with_a_rule_for_sigma_with_a_memory_and_with_neither(address: str, tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "predict": {"task": "predict", "n0": None},
        "rule": {"sigma": None, "sigma_rule": "sample_rules:proven_by_brightness"},
        "memory": {"sigma": None, "sigma_rule": "sample_rules:by_brightness"},
    }
    for name, change in changes.items():
        kept = {kind: str(tmp_path / f"{name}-{kind}.db") if name == "memory" else None for kind in ("here", "there")}
        here = finish_run(spec(**change, memory=kept["here"]), tmp_path / f"{name}-here")
        there = spec(**change, memory=kept["there"], engine="ray", address=address)
        assert finish_run(there, tmp_path / f"{name}-there") == here


def test_questions_shared_noise_and_noise_in_the_first_layer(address: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from smoothcert.models.architectures import build
    from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint

    torch.manual_seed(0)
    network = build("mlp-16", num_classes=10, input_shape=(1, 8, 8))
    path = tmp_path / "network.safetensors"
    save_checkpoint(path, network, CheckpointHeader(arch="mlp-16", num_classes=10, input_shape=(1, 8, 8)))
    for name, more in (
        ("decide", {"decide": "0.1", "n": 4000}),
        ("shared", {"shared_noise": True}),
        ("layer", {"model": str(path), "num_classes": None, "noise_at": "first-layer"}),
    ):
        here = finish_run(spec(**more), tmp_path / f"{name}-here")
        assert finish_run(spec(**more, engine="ray", address=address), tmp_path / f"{name}-there") == here


def test_a_run_is_resumed_by_the_other_engine(address: str, tmp_path: Path) -> None:
    whole = finish_run(spec(), tmp_path / "whole")
    on_ray = spec(engine="ray", address=address, actors=2)
    for first, second in ((spec(), "ray"), (on_ray, "local")):
        out = tmp_path / f"then-{second}"
        with pytest.raises(InterruptedRunError):
            finish_run(first, out, stop_after=1)
        engine = RayEngineSpec(address=address) if second == "ray" else LocalEngineSpec()
        resumed = resumed_spec(out, engine=engine)
        assert resumed.engine == engine
        assert finish_run(resumed, out) == whole
    # Recorded, and not compared.
    assert resumed_spec(tmp_path / "then-local").engine == RayEngineSpec(address=address, actors=2)


def test_a_run_from_python_is_interrupted_and_resumed_by_either_engine(
    address: str, inputs: np.ndarray, tmp_path: Path
) -> None:
    def certify(out: str, progress: Any = False, **settings: Any) -> list[CertifiedPoint]:
        smoothed = SmoothedClassifier(digits_by_brightness, num_classes=10, **SMOOTHING, **settings)
        return without_times(smoothed.certify(inputs, n0=60, n=3000, out=tmp_path / out, progress=progress))

    def stop_late(samples: int) -> None:
        drawn.append(samples)
        if sum(drawn) > 4 * 3060:
            raise KeyboardInterrupt

    whole = certify("whole")
    with RayEngine(digits_by_brightness, address=address, actors=2) as engine:
        assert certify("there", tallier=engine) == whole
        assert read_manifest(tmp_path / "there").spec.engine == RayEngineSpec(address=address, actors=2)
        assert open_run(tmp_path / "there").verify().consistent
        for first, second in (({"tallier": engine}, {}), ({}, {"tallier": engine})):
            drawn: list[int] = []
            out = f"resumed-{len(first)}"
            with pytest.raises(KeyboardInterrupt):
                certify(out, stop_late, **first)
            assert certify(out, **second) == whole


def test_settings_of_the_other_engine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong, words in (
        ({"engine": "spark"}, "use local or ray"),
        ({"actors": 2}, "--actors is about a cluster"),
        ({"engine": "local", "cpus_per_actor": 1.0}, "--cpus-per-actor is about a cluster"),
        ({"engine": "ray", "workers": 2}, "give --actors"),
        ({"engine": "ray", "actors": 0}, "--actors 0 must be at least 1"),
        ({"engine": "ray", "device": "cuda"}, "needs --gpus-per-actor"),
    ):
        with pytest.raises(InputError, match=words):
            check_spec(spec(**wrong))
    with pytest.raises(InputError, match="HOST:PORT"), RayEngine("a:b", address="ray://head:10001"):
        pass
    with pytest.raises(InputError, match="some CPUs or GPUs"):
        RayEngine("a:b", cpus_per_actor=0)
    with pytest.raises(InputError, match="context manager"):
        _ = RayEngine("a:b").actors
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"--engine ray needs ray: pip install 'smoothcert\[ray\]'"):
        check_spec(spec(engine="ray"))


def test_a_cluster_that_is_not_there() -> None:
    with (
        pytest.raises(ClusterError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"),
        RayEngine("sample_models:darkness", address="127.0.0.1:1"),
    ):
        pass


def test_nodes_with_other_software_are_refused() -> None:
    here = ModelIdentity.of(as_classifier(digits_by_brightness, num_classes=10, input_shape=(64,)))
    here.check_agrees(here, node="n")
    other = dataclasses.replace(here, environment={**here.environment, "numpy": "1.0"})
    with pytest.raises(ClusterError, match=r"node n has other software .* numpy 1\.0 there and"):
        here.check_agrees(other, node="n")
    with pytest.raises(ClusterError, match="smoothcert 0000 there"):
        here.check_agrees(dataclasses.replace(here, code="0000"), node="n")
    with pytest.raises(ModelError, match="torch cuda"):
        here.check_agrees(dataclasses.replace(here, backend="torch cuda"), node="n")


def test_errors_travel_whole() -> None:
    for error in (MissingExtraError("torch", "torch", "this"), ValueError("words"), OSError(2, "gone", "file")):
        found = Failure.of(error).to_exception()
        assert type(found) is type(error)
        assert str(found) == str(error)

    class ForeignError(Exception):
        pass

    found = Failure.of(ForeignError("strange")).to_exception()
    assert isinstance(found, ModelError)
    assert "ForeignError: strange" in str(found)


def test_files_travel_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    onnx = pytest.importorskip("onnx")
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    weights = onnx.numpy_helper.from_array(module[1].weight.detach().numpy().T.copy(), "weights")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "weights"], ["y"])],
        "linear",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 10])],
        [weights],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path / "linear.onnx"
    onnx.save(model, path, save_as_external_data=True, location="linear.weights", size_threshold=0)
    here = as_classifier(path, input_shape=(64,))
    package = pack_model(path, {"input_shape": (64,)})
    assert list(package.files or ()) == ["linear.onnx", "linear.weights"]
    for file in tmp_path.iterdir():
        file.unlink()
    there = package.unpack(ModelIdentity.of(here))
    assert there.digest == here.digest
    batch = np.random.default_rng(0).random((9, 64), dtype=np.float32)
    assert (there.classify(batch) == here.classify(batch)).all()
    with pytest.raises(ModelError, match="no file"):
        pack_model(path, {})
