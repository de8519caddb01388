"""Adversarial models on the command line: user code in its own module, in another process."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import textwrap
from pathlib import Path

import numpy as np
import pytest

from adversarial_models import SIZE
from cli_runner import smoothcert
from run_specs import finish_run, make_spec
from smoothcert.errors import InputError, InterruptedRunError, ModelError, RunError

REFUSED = {ModelError.exit_code, InputError.exit_code}

MODELS = """
    import os

    import torch
    from torch import nn

    from smoothcert.models.standardise import Standardise


    def bright(threshold=6.0):
        layer = nn.Linear(64, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.ones(2, 64) * torch.tensor([[1.0], [-1.0]]))
            layer.bias.copy_(torch.tensor([-threshold, threshold]))
        return layer


    def clamp(module, arguments):
        return (arguments[0].clamp(0.0, 1.0),)


    clamps_before = bright()
    clamps_before.register_forward_pre_hook(clamp)


    class AskedAllclose(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = bright()

        def forward(self, inputs):
            inside = inputs.clamp(0.0, 1.0)
            return self.head(inputs if torch.allclose(inputs, inside) else inside)


    asked_allclose = AskedAllclose()


    class Raises(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = bright()

        def forward(self, inputs):
            try:
                torch.linalg.cholesky(torch.diag_embed(inputs.amin(dim=1, keepdim=True) + 1e-3))
            except RuntimeError:
                return self.head(inputs.clamp(0.0, 1.0))
            return self.head(inputs)


    raises = Raises()


    class Clipping(Standardise):
        def forward(self, inputs):
            return super().forward(inputs.clamp(0.0, 1.0))


    def two_layers(first):
        last = nn.Linear(2, 2)
        with torch.no_grad():
            last.weight.copy_(torch.eye(2))
            last.bias.zero_()
        return nn.Sequential(first, bright(), nn.Hardtanh(-50.0, 50.0), last)


    clips_first = two_layers(Clipping((0.0,), (1.0,)))
    plain_first = two_layers(Standardise((0.0,), (1.0,)))
    hook_on_root = two_layers(Standardise((0.0,), (1.0,)))
    hook_on_root.register_forward_pre_hook(clamp)


    class BatchMean(nn.Module):
        def forward(self, inputs):
            margin = (inputs.mean() + 0.01).expand(len(inputs))
            return torch.stack([margin, -margin], dim=1)


    class RowPosition(nn.Module):
        def forward(self, inputs):
            margin = inputs.mean(dim=1)
            margin = torch.where(torch.arange(len(inputs)) == 0, margin, margin.abs() + 0.1)
            return torch.stack([margin, -margin], dim=1)


    batch_mean, row_position = BatchMean(), RowPosition()


    class Threshold(nn.Module):
        def __init__(self, threshold):
            super().__init__()
            self.head, self.threshold = bright(0.0), threshold

        def forward(self, inputs):
            logits = self.head(inputs)
            return torch.stack([logits[:, 0] - self.threshold, -logits[:, 0]], dim=1)


    threshold = Threshold(float(os.environ.get("ROOM_THRESHOLD", "-20")))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models, and forty black images of 64 pixels; class 0 is right."""
    folder = tmp_path_factory.mktemp("room")
    (folder / "models_of_the_room.py").write_text(textwrap.dedent(MODELS))
    np.savez(folder / "black.npz", x=np.zeros((40, SIZE), dtype=np.uint8), y=np.zeros(40, dtype=np.int64))
    return folder


@pytest.fixture(autouse=True)
def _importable(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the module importable here and in other processes."""
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")])))


def certify(place: Path, model: str, out: Path, *options: object) -> subprocess.CompletedProcess[str]:
    return smoothcert(
        "certify", "--model", f"models_of_the_room:{model}", "--data", place / "black.npz", "--sigma", 0.5, "--seed", 3,
        "--max", 2, "--num-classes", 2, "--device", "cpu", "--out", out, *options,
    )  # fmt: skip


def predictions(out: Path) -> list[int | None]:
    connection = sqlite3.connect(out / "results.sqlite")
    try:
        return [row[0] for row in connection.execute("SELECT prediction FROM verdicts ORDER BY idx")]
    finally:
        connection.close()


def assert_told(told: subprocess.CompletedProcess[str], codes: set[int]) -> None:
    """The command refuses the model with a message."""
    assert told.returncode in codes, told.stdout + told.stderr
    assert "smoothcert: " in told.stderr
    assert "Traceback" not in told.stderr


def test_a_clamping_hook_is_kept(place: Path, tmp_path: Path) -> None:
    """All defaults. Fails if the hook is dropped: class 1 with radius .72 instead of class 0."""
    told = certify(place, "clamps_before", tmp_path / "run")
    assert told.returncode == 0, told.stderr
    assert predictions(tmp_path / "run") == [0, 0]


def test_a_branch_on_values_is_kept_and_it_is_said_why_that_is_slower(place: Path, tmp_path: Path) -> None:
    """Fails if one branch is frozen, or if the slower mode is not reported."""
    told = certify(place, "asked_allclose", tmp_path / "run", "--n", 4000)
    assert told.returncode == 0, told.stderr
    assert predictions(tmp_path / "run") == [0, 0]
    assert "eager" in told.stderr
    assert "torch.export" in told.stderr or "because" in told.stderr


def test_an_operation_that_fails_for_some_values_is_followed(place: Path, tmp_path: Path) -> None:
    """Fails if a trace contains the branch without the failure, or if tracing ends the process."""
    told = certify(place, "raises", tmp_path / "run", "--n", 2000)
    if told.returncode == 0:
        assert predictions(tmp_path / "run") == [0, 0]
    else:
        assert_told(told, REFUSED)


def test_onnxruntime_refuses_a_branch_on_values(place: Path, tmp_path: Path) -> None:
    """Fails if the export contains one branch."""
    told = certify(place, "asked_allclose", tmp_path / "run", "--n", 4000, "--backend", "onnxruntime")
    if told.returncode == 0:
        assert predictions(tmp_path / "run") == [0, 0]
    else:
        assert_told(told, REFUSED)


@pytest.mark.parametrize("model", ["clips_first", "hook_on_root"])
def test_noise_in_the_first_layer_is_refused_behind_other_code(place: Path, tmp_path: Path, model: str) -> None:
    """Fails if a subclass of Standardise is treated as affine, or if a hook on the root is ignored: class 1 then."""
    told = certify(place, model, tmp_path / "run", "--n", 4000, "--noise-at", "first-layer", "--noise", "float")
    if told.returncode == 0:
        assert predictions(tmp_path / "run") == [0, 0]
    else:
        assert_told(told, REFUSED)


def test_noise_in_a_linear_first_layer_is_drawn(place: Path, tmp_path: Path) -> None:
    """The control: without clipping, class 1 is right."""
    told = certify(place, "plain_first", tmp_path / "run", "--n", 4000, "--noise-at", "first-layer", "--noise", "float")
    assert told.returncode == 0, told.stderr
    assert predictions(tmp_path / "run") == [1, 1]


@pytest.mark.parametrize("model", ["batch_mean", "row_position"])
def test_dependence_on_the_batch_stops_the_run(place: Path, tmp_path: Path, model: str) -> None:
    """Fails if one row per batch is checked: radius 1.6 instead of 0."""
    told = certify(place, model, tmp_path / "run", "--n", 10_000, "--batch", 4096)
    assert_told(told, {ModelError.exit_code})


def test_a_run_is_not_resumed_with_another_threshold(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if plain attributes are not part of a model's identity: 5 inputs of class 0 then, and 35 of class 1."""
    out = tmp_path / "run"
    spec = make_spec(
        model="models_of_the_room:threshold", data=str(place / "black.npz"), sigma=0.5, n0=20, n=1000,
        alpha=0.001, seed=3, batch=100, certificate="gaussian", num_classes=2, device="cpu",
    )  # fmt: skip
    with pytest.raises(InterruptedRunError):
        finish_run(spec, out, stop_after=1)
    begun = predictions(out)
    assert 0 < len(begun) < 40
    assert set(begun) == {0}
    monkeypatch.setenv("ROOM_THRESHOLD", "20")
    told = smoothcert("certify", "--resume", out)
    assert_told(told, {RunError.exit_code, ModelError.exit_code})
    assert predictions(out) == begun
    monkeypatch.setenv("ROOM_THRESHOLD", "-20")
    again = smoothcert("certify", "--resume", out)
    assert again.returncode == 0, again.stderr
    assert predictions(out) == [0] * 40
