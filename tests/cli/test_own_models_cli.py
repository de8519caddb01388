"""A class of one's own from the command line: weights, random weights, and runs that are used from another folder."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cli_runner import invoke, smoothcert
from smoothcert.cli.main import app
from smoothcert.cluster.ray_model import ModelIdentity, pack_model
from smoothcert.errors import ManifestMismatchError, ModelError
from smoothcert.models import load_classifier
from smoothcert.models.checkpoints import CheckpointHeader, ForeignCheckpointWarning, save_checkpoint
from smoothcert.models.imported_models import RandomWeightsWarning
from smoothcert.models.votes import LogitsWarning
from smoothcert.runs.store import read_manifest
from smoothcert.user_code import RecordedFolderWarning

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(2, 3)

    def forward(self, x):
        return self.out(x)

class Wordy(Net):
    def __init__(self):
        super().__init__()
        self.load_state_dict({"out.weight": torch.tensor([[9.0, 0], [0, 9], [-9, 1]]), "out.bias": torch.zeros(3)})

    def forward(self, x):
        return {"logits": self.out(x), "loss": None}

def level(x):
    return 0.25
"""
SMALL = ("--sigma", 0.25, "--n0", 20, "--n", 200, "--batch", 64, "--seed", 1, "--workers", 1, "--device", "cpu")
QUICK = ("--steps", 2, "--draws", 10, "--n", 200, "--max", 2)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project in the current folder: code, weights, data."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "cli_net.py").write_text(CODE)
    torch.manual_seed(3)
    torch.save({"out.weight": 9 * torch.randn(3, 2), "out.bias": torch.zeros(3)}, folder / "net.pt")
    points = np.random.default_rng(0).integers(0, 256, (4, 2)).astype(np.uint8)
    np.savez(folder / "points.npz", x=points, y=np.array([0, 1, 1, 0]))
    monkeypatch.chdir(folder)
    yield folder
    forget()


def forget() -> None:
    """As in another process, which has not imported the code."""
    sys.modules.pop("cli_net", None)


def certify(project: Path, out: str = "run", *more: object) -> Path:
    arguments = ("--model", "cli_net:Net", "--weights", "net.pt", "--data", "points.npz", *SMALL)
    done = invoke(app, "certify", *arguments, "--out", out, *more)
    assert done.exit_code == 0, done.output
    forget()
    return project / out


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


def test_a_run_is_used_from_another_folder(project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = certify(project)
    spec = json.loads((run / "manifest.json").read_text())["spec"]["model"]
    assert (spec["weights"], spec["code_folder"]) == (str(project / "net.pt"), str(project))
    monkeypatch.chdir(elsewhere)
    for arguments in (
        ("certify", "--resume", run),
        ("attack", run, *QUICK),
        ("report", run, "--regions", "--region-points", 4, "--region-samples", 100, "-o", elsewhere / "page.html"),
    ):
        with pytest.warns(RecordedFolderWarning, match=str(project)):
            done = invoke(app, *arguments)
        assert done.exit_code == 0, done.output
        forget()


def test_the_network_of_a_checkpoint_is_found_from_another_folder(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = CheckpointHeader("cli_net:Net", 3, (2,), class_names=("cat", "dog", "bird"))
    save_checkpoint(project / "net.safetensors", load_module(project / "net.pt"), header)
    arguments = ("--model", "net.safetensors", "--arch", "cli_net:Net", "--data", "points.npz", *SMALL)
    assert invoke(app, "certify", *arguments, "--out", "run").exit_code == 0
    forget()
    run = project / "run"
    manifest = read_manifest(run)
    assert manifest.spec.model.code_folder == str(project)
    assert manifest.model.class_names == ("cat", "dog", "bird")
    monkeypatch.chdir(elsewhere)
    (elsewhere / "net.safetensors").write_bytes((project / "net.safetensors").read_bytes())
    for command in (
        ("certify", "--resume", run),
        ("certify", "--resume", run, "--model", elsewhere / "net.safetensors"),
        ("attack", run, *QUICK),
        ("report", run, "--regions", "--region-points", 4, "--region-samples", 100, "-o", elsewhere / "page.html"),
    ):
        with pytest.warns(RecordedFolderWarning, match=str(project)):
            done = invoke(app, *command)
        assert done.exit_code == 0, done.output
        forget()


def load_module(weights: Path) -> torch.nn.Module:
    network = torch.nn.Module()
    network.out = torch.nn.Linear(2, 3)
    network.load_state_dict(torch.load(weights))
    return network


def test_a_rule_for_sigma_is_found_from_another_folder(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ("--model", "plane_rules:bold_on_the_right", "--data", "points.npz", "--n", 200, "--batch", 64)
    assert invoke(app, "predict", *model, "--sigma-rule", "cli_net:level", "--out", "run").exit_code == 0
    forget()
    monkeypatch.chdir(elsewhere)
    with pytest.warns(RecordedFolderWarning):
        assert invoke(app, "predict", "--resume", project / "run").exit_code == 0


def test_code_of_the_same_name_that_is_another_function_is_refused(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = certify(project)
    monkeypatch.chdir(elsewhere)
    Path("cli_net.py").write_text(CODE.replace("return self.out(x)", "return -self.out(x)"))
    with pytest.raises(ManifestMismatchError, match=r"digests.model"):
        invoke(app, "certify", "--resume", run)


def test_verify_does_not_import_from_the_folder_of_a_manifest(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author of a run must not choose what its auditor runs."""
    pytest.importorskip("flint")
    run = certify(project)
    assert invoke(app, "verify", run, "--replay", "cli_net:Net", 1).exit_code == 0
    forget()
    monkeypatch.chdir(elsewhere)
    assert invoke(app, "verify", run).exit_code == 0
    assert "cli_net" not in sys.modules
    with pytest.raises(ModelError, match="cli_net cannot be imported"):
        invoke(app, "verify", run, "--replay", "cli_net:Net", 1)
    assert "cli_net" not in sys.modules


def test_report_and_table_import_nothing(project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = certify(project)
    monkeypatch.chdir(elsewhere)
    assert invoke(app, "report", run, "-o", elsewhere / "page.html").exit_code == 0
    assert invoke(app, "table", run).exit_code == 0
    assert "cli_net" not in sys.modules


def test_weights_that_were_moved(project: Path) -> None:
    pytest.importorskip("flint")
    run = certify(project)
    (project / "net.pt").rename(project / "moved.pt")
    with pytest.raises(ModelError, match=r"net.pt with the weights of cli_net:Net: give its place by --weights"):
        invoke(app, "certify", "--resume", run)
    for arguments in (
        ("certify", "--resume", run, "--weights", "moved.pt"),
        ("attack", run, *QUICK, "--weights", "moved.pt"),
        ("verify", run, "--replay", "cli_net:Net", 1, "--replay-weights", "moved.pt"),
    ):
        assert invoke(app, *arguments).exit_code == 0


def test_runs_of_two_files_of_weights_have_folders_of_their_own(project: Path) -> None:
    given = ("certify", "--model", "cli_net:Net", "--data", "points.npz", *SMALL)
    torch.save({"out.weight": torch.randn(3, 2), "out.bias": torch.zeros(3)}, "other.pt")
    for weights in ("net.pt", "other.pt"):
        assert invoke(app, *given, "--weights", weights).exit_code == 0
    assert len(list(Path("runs").iterdir())) == 2


def test_random_weights_are_recorded_and_shown(project: Path) -> None:
    given = ("certify", "--model", "cli_net:Net", "--data", "points.npz", *SMALL, "--out", "run")
    with pytest.warns(RandomWeightsWarning, match="untrained network that exists only in this process"):
        done = invoke(app, *given)
    assert done.exit_code == 0
    assert "run: the weights of the model were random" in done.output
    assert "the weights of the model were random" in invoke(app, "table", "run").output
    assert json.loads(Path("run/manifest.json").read_text())["model"]["has_random_weights"] is True
    pytest.importorskip("flint")
    assert invoke(app, "verify", "run").exit_code == 0
    with pytest.warns(RandomWeightsWarning), pytest.raises(ManifestMismatchError, match=r"digests.model"):
        invoke(app, "certify", "--resume", "run")


def test_attack_on_a_network_that_answers_with_a_dictionary(project: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LogitsWarning)
        made = invoke(app, "certify", "--model", "cli_net:Wordy", "--data", "points.npz", *SMALL, "--out", "run")
        assert made.exit_code == 0, made.output
        attacked = invoke(app, "attack", "run", *QUICK, "--gradient", "exact")
    assert attacked.exit_code == 0, attacked.output


@pytest.mark.filterwarnings(r"ignore:`torch\.jit\.:DeprecationWarning")
def test_attack_on_a_torchscript_file(project: Path) -> None:
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 3), torch.zeros(2, 2)), "script.pt")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignCheckpointWarning)
        made = invoke(app, "certify", "--model", "script.pt", "--data", "points.npz", *SMALL, "--out", "run")
        assert made.exit_code == 0, made.output
        attacked = invoke(app, "attack", "run", *QUICK, "--gradient", "exact")
    assert attacked.exit_code == 0, attacked.output


def test_weights_travel_to_a_cluster_as_bytes(project: Path) -> None:
    arguments = {"input_shape": (2,), "weights": "net.pt", "device": "cpu", "code_folder": None}
    here = load_classifier("cli_net:Net", **arguments)  # type: ignore[arg-type]
    packed = pack_model("cli_net:Net", arguments)
    (project / "net.pt").unlink()
    assert packed.unpack(ModelIdentity.of(here)).digest == here.digest


def test_in_processes_of_their_own(project: Path, elsewhere: Path) -> None:
    given = ("--model", "cli_net:Net", "--weights", "net.pt", "--data", "points.npz", *SMALL, "--out", "run")
    made = smoothcert("certify", *given, cwd=project)
    assert made.returncode == 0, made.stderr
    resumed = smoothcert("certify", "--resume", project / "run", cwd=elsewhere)
    assert resumed.returncode == 0, resumed.stderr
    assert f"imported from {project}, which the run recorded" in resumed.stderr
    assert "4 of 4 inputs are already in" in resumed.stderr


def test_folders_of_images_are_certified_in_the_size_that_was_requested(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flint")
    rng = np.random.default_rng(0)
    for number, side in enumerate((6, 6, 9)):
        place = project / "pictures" / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (side, side, 3)).astype(np.uint8)).save(place / f"{number}.png")
    (project / "cli_net.py").write_text(
        "def model(batch):\n    flat = batch.reshape(len(batch), -1)\n    return flat[:, :2] - flat[:, 2:4]\n"
    )
    given = ("certify", "--model", "cli_net:model", "--data", "pictures", *SMALL)
    with pytest.raises(Exception, match=r"2 sizes, HEIGHT,WIDTH = 6,6 \(2 images\), 9,9 \(1 images\)"):
        invoke(app, *given, "--out", "native")
    for name, option in (("resized", ("--resize", "5,4")), ("grey", ("--input-shape", "1,4,4"))):
        assert invoke(app, *given, *option, "--out", name).exit_code == 0
        forget()
        manifest = json.loads(Path(name, "manifest.json").read_text())
        assert manifest["data"]["input_shape"] == {"resized": [3, 5, 4], "grey": [1, 4, 4]}[name]
        assert manifest["spec"]["noise"]["grid"] == 256
        assert invoke(app, "certify", "--resume", name).exit_code == 0
        assert invoke(app, "verify", name, "--replay", "cli_net:model", 1).exit_code == 0
    monkeypatch.chdir(project.parent)
    assert invoke(app, "report", project / "resized", "-o", project / "page.html").exit_code == 0
    assert "could not be loaded" not in (project / "page.html").read_text()
