"""Runs by onnxruntime: the manifest says so, a resumed run keeps it, and other models refuse it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli_runner import invoke
from run_specs import finish_run, make_spec, resumed_spec
from smoothcert.cli.main import app
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.architectures import build
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.records import Outcome
from smoothcert.runs import building
from smoothcert.runs.execution import check_spec, prepare_run
from smoothcert.runs.store import read_manifest
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import RunSpec


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "net.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = build("mlp", num_classes=10, input_shape=(1, 8, 8))
    save_checkpoint(path, module, CheckpointHeader("mlp", 10, (1, 8, 8)))
    return str(path)


Make = Callable[..., RunSpec]


@pytest.fixture
def spec(model: str) -> Make:
    settings = {
        "model": model,
        "data": "digits",
        "sigma": 0.1,
        "n0": 20,
        "n": 300,
        "alpha": 0.01,
        "max_inputs": 40,
        "seed": 5,
        "batch": 64,
        "device": "cpu",
        "backend": "onnxruntime",
    }
    return lambda **changes: make_spec(**(settings | changes))


def backend(run: Path) -> str:
    return read_manifest(run).measured.backend


def test_the_manifest_says_which_back_end_was_certified(spec: Make, tmp_path: Path) -> None:
    points = finish_run(spec(), tmp_path / "onnxruntime")
    by_torch = finish_run(spec(backend=None), tmp_path / "torch")
    assert backend(tmp_path / "onnxruntime") == "onnxruntime cpu from torch"
    assert backend(tmp_path / "torch") == "torch cpu frozen"
    manifests = [read_manifest(tmp_path / name) for name in ("onnxruntime", "torch")]
    assert manifests[0].digests.model != manifests[1].digests.model
    assert "onnxruntime" in manifests[0].environment
    # Twelve thousand votes, of which at most a tie to seven digits may differ.
    assert sum(a == b for a, b in zip(points, by_torch, strict=True)) >= 39
    assert any(point.outcome is Outcome.CERTIFIED for point in points)


def test_another_back_end_cannot_resume_a_run(spec: Make, tmp_path: Path) -> None:
    finish_run(spec(), tmp_path / "run")
    with pytest.raises(ManifestMismatchError, match=r"measured\.backend"):
        finish_run(spec(backend="torch"), tmp_path / "run")


def test_a_run_is_resumed_with_the_back_end_it_was_begun_with(spec: Make, tmp_path: Path) -> None:
    whole = finish_run(spec(), tmp_path / "whole")
    for again in (None, "fastest", "onnxruntime"):
        out = tmp_path / f"stopped-{again}"
        with pytest.raises(InterruptedRunError):
            finish_run(spec(), out, stop_after=1)
        assert finish_run(spec(backend=again), out) == whole
    assert resumed_spec(tmp_path / "whole").model.backend == "onnxruntime"


@pytest.mark.parametrize("chosen", ["torch", "onnxruntime"])
def test_what_was_measured_is_settled_for_good(
    spec: Make, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured once: the model that is used is loaded by the name of the back end, and so it is when resumed."""
    asked: list[str | None] = []
    load = building.load_classifier

    def measured(*arguments: object, backend: str | None, **settings: object) -> object:
        asked.append(backend)
        return load(*arguments, backend=chosen if backend == "fastest" else backend, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(building, "load_classifier", measured)
    with prepare_run(spec(backend="fastest"), tmp_path / "run"):
        assert asked == ["fastest", chosen]
    stored = read_manifest(tmp_path / "run")
    assert stored.measured.backend.startswith(chosen)
    assert stored.spec.model.backend == chosen
    finish_run(resumed_spec(tmp_path / "run"), tmp_path / "run")
    finish_run(spec(backend="fastest"), tmp_path / "run")
    assert asked == ["fastest", chosen, chosen, chosen]


def test_runs_of_other_models_resume_without_a_word_about_back_ends(tmp_path: Path) -> None:
    settings = {
        "model": "sample_models:digits_by_brightness",
        "data": "digits",
        "sigma": 0.25,
        "n0": 20,
        "n": 200,
        "alpha": 0.01,
        "max_inputs": 3,
        "seed": 5,
        "batch": 64,
        "num_classes": 10,
    }
    whole = finish_run(make_spec(**settings), tmp_path / "run")
    assert resumed_spec(tmp_path / "run").model.backend is None
    assert finish_run(make_spec(**settings), tmp_path / "run") == whole
    for backend in ("torch", "onnxruntime", "fastest"):
        with pytest.raises(InputError, match="is for torch networks"):
            finish_run(make_spec(**settings, backend=backend), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_unknown_back_end_is_refused_before_anything_is_loaded(spec: Make) -> None:
    with pytest.raises(InputError, match="there is no back end 'openvino'"):
        check_spec(spec(backend="openvino", model="nowhere"))


def test_from_the_command_line(model: str, tmp_path: Path) -> None:
    given = (
        "--model", model, "--data", "digits", "--sigma", 0.1, "--n", 200, "--max", 3, "--seed", 1, "--batch", 64,
        "--device", "cpu",
    )  # fmt: skip
    for verb in ("certify", "predict"):
        out = tmp_path / verb
        begun = invoke(app, verb, *given, "--backend", "onnxruntime", "--out", out)
        assert "onnxruntime cpu from torch" in begun.stderr
        assert "3 of 3 inputs are already in" in invoke(app, verb, "--resume", out).stderr
    with pytest.raises(InputError, match="leave --backend out"):
        invoke(app, "certify", "--resume", tmp_path / "certify", "--backend", "torch")


def test_in_python(model: str) -> None:
    smoothed = SmoothedClassifier(model, sigma=0.1, input_shape=(1, 8, 8), backend="onnxruntime")
    assert smoothed.classifier.backend == "onnxruntime cpu from torch"
