"""Noise shared between inputs, and noise in the first layer, through whole runs: recorded, resumed, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cli_runner import smoothcert
from run_specs import finish_run, make_spec, resumed_spec
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.architectures import build
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.records import Noise, Stage
from smoothcert.records.sentences import describe_noise
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import read_manifest
from smoothcert.spec import NoiseSpec, RunSpec

SETTINGS: dict[str, Any] = {
    "task": "certify",
    "model": "sample_models:digits_by_brightness",
    "data": "digits",
    "sigma": 0.25,
    "n0": 50,
    "n": 700,
    "alpha": 0.001,
    "max_inputs": 80,
    "seed": 5,
    "batch": 64,
    "num_classes": 10,
    "shared_noise": True,
}


def spec(**changes: Any) -> RunSpec:
    return make_spec(**(SETTINGS | changes))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("models") / "mlp.safetensors"
    module = build("mlp-16", num_classes=10, input_shape=(1, 8, 8))
    save_checkpoint(path, module, CheckpointHeader(arch="mlp-16", num_classes=10, input_shape=(1, 8, 8)))
    return path


def counts(points, stage):
    return [[tally.counts.tolist() for tally in p.tallies if tally.stream.stage is stage] for p in points]


def test_equal_inputs_get_equal_votes_only_where_noise_is_shared(tmp_path: Path) -> None:
    class_of_first = finish_run(spec(max_inputs=1), tmp_path / "one")
    shared = finish_run(spec(), tmp_path / "shared")
    own = finish_run(spec(shared_noise=False), tmp_path / "own")
    assert counts(shared[:1], Stage.ESTIMATION) == counts(class_of_first, Stage.ESTIMATION)
    assert counts(shared, Stage.ESTIMATION) != counts(own, Stage.ESTIMATION)
    assert [tally.stream.index for tally in shared[3].tallies] == [3] * len(shared[3].tallies)
    assert read_manifest(tmp_path / "shared").spec.noise.shared is True
    assert read_manifest(tmp_path / "own").spec.noise.shared is False


def test_a_run_with_shared_noise_resumes_and_recertifies(tmp_path: Path) -> None:
    whole = finish_run(spec(), tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        finish_run(spec(), tmp_path / "stopped", stop_after=1)
    assert finish_run(spec(), tmp_path / "stopped") == whole
    with pytest.raises(ManifestMismatchError, match=r"spec\.noise\.shared: the run has True, now False"):
        finish_run(spec(shared_noise=False), tmp_path / "whole")
    assert recertify_run(tmp_path / "whole", alpha=0.01).spec.noise.shared is True


def test_no_bound_for_the_test_set_where_noise_is_shared(tmp_path: Path) -> None:
    finish_run(spec(), tmp_path / "shared")
    told = smoothcert("table", tmp_path / "shared", "--bound", "exact")
    assert told.returncode != 0
    assert "shared their noise" in told.stderr


def test_noise_in_the_first_layer_is_recorded_and_resumed(tmp_path: Path, network: Path) -> None:
    given = {"model": str(network), "num_classes": None, "shared_noise": False, "noise_at": "first-layer"}
    whole = finish_run(spec(**given), tmp_path / "whole")
    manifest = read_manifest(tmp_path / "whole")
    noise = manifest.spec.noise
    assert noise == NoiseSpec(kind=Noise.GAUSSIAN, grid=None, generator="philox4x32-10", place="first-layer")
    told = describe_noise(noise.levels, first_layer=noise.place == "first-layer")
    assert told == "float32, in the first layer, not sound in floating point"
    assert "noise in the first layer" in manifest.measured.backend
    with pytest.raises(InterruptedRunError):
        finish_run(spec(**given), tmp_path / "stopped", stop_after=1)
    assert finish_run(resumed_spec(tmp_path / "stopped"), tmp_path / "stopped") == whole
    assert finish_run(spec(**given, batch=17, workers=1), tmp_path / "b") == whole
    with pytest.raises(ManifestMismatchError):
        finish_run(spec(**given | {"noise_at": "input"}), tmp_path / "whole")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_at": "second-layer"}, "--noise-at second-layer is unknown: use input or first-layer"),
        ({"noise_at": "first-layer"}, "needs a torch network"),
        ({"noise_at": "first-layer", "noise": "uniform", "certificate": "uniform-l1"}, "needs a torch network"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_run_is_made(tmp_path: Path, changes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        finish_run(spec(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_certificate_from_gradients_is_refused_before_a_run_is_made(tmp_path: Path, network: Path) -> None:
    given = {"model": str(network), "num_classes": None, "noise_at": "first-layer"}
    with pytest.raises(InputError, match="need the noise at the input"):
        finish_run(spec(**given, certificate="second-order"), tmp_path / "run")
    with pytest.raises(InputError, match="uniform noise has another law"):
        finish_run(spec(**given, noise="uniform"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
