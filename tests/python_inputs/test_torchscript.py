"""TorchScript: modules and files are base classifiers, and programs that reach for files are refused."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import InputError, ModelError
from smoothcert.models import load_classifier
from smoothcert.models.checkpoints import ForeignCheckpointWarning
from smoothcert.models.votes import LogitsWarning
from smoothcert.smoothed import SmoothedClassifier

pytestmark = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.:DeprecationWarning")

SIZE = 64
INPUTS = np.random.default_rng(0).random((3, SIZE), dtype=np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(2)
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Two(Net):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        return self.layers(x), x


class Saving(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) + torch.from_file("secret", False, 1, dtype=torch.float32)


def scripted(kind: str) -> Any:
    net = Net().eval()
    return torch.jit.trace(net, torch.zeros(2, SIZE)) if kind == "trace" else torch.jit.script(net)


def save(module: Any, path: Path) -> Path:
    torch.jit.save(module, str(path))
    return path


def votes(model: Any) -> list[Any]:
    smoothed = SmoothedClassifier(model, sigma=0.25, seed=3, batch=64, workers=1)
    points = smoothed.certify(INPUTS, n0=20, n=200)
    assert smoothed.checks.asked > 0
    return [[tally.counts.tolist() for tally in point.tallies] for point in points]  # type: ignore[union-attr]


PLAIN = votes(Net())


@pytest.mark.parametrize("kind", ["trace", "script"])
def test_modules(kind: str) -> None:
    assert votes(scripted(kind)) == PLAIN


def test_a_script_in_training_mode_is_evaluated_and_left_as_it_was() -> None:
    script = torch.jit.script(Net().train())
    assert votes(script) == PLAIN
    assert script.training
    assert all(part.training for part in script.modules())


@pytest.mark.parametrize("suffix", [".pt", ".pth"])
def test_files(suffix: str, tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / f"net{suffix}")
    with pytest.warns(ForeignCheckpointWarning, match="TorchScript program.*SHA-256"):
        assert votes(path) == PLAIN


def test_a_file_that_answers_with_a_tuple(tmp_path: Path) -> None:
    path = save(torch.jit.script(Two().eval()), tmp_path / "two.pt")
    with (
        pytest.warns(ForeignCheckpointWarning),
        pytest.warns(LogitsWarning, match="the first of its 2 parts is taken as its logits"),
    ):
        assert votes(path) == PLAIN


def test_equal_files_have_equal_digests(tmp_path: Path) -> None:
    paths = [save(scripted("script"), tmp_path / name) for name in ("one.pt", "two.pt")]
    with pytest.warns(ForeignCheckpointWarning):
        one, two = (load_classifier(path, input_shape=(SIZE,)) for path in paths)
    assert one.digest == two.digest


def test_on_the_command_line(tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / "net.pt")
    given = ("--data", "digits", "--sigma", 0.25, "--max", 2, "--n0", 20, "--n", 100, "--batch", 64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForeignCheckpointWarning)
        result = invoke(app, "certify", "--model", path, *given, "--out", tmp_path / "run")
        again = invoke(app, "certify", "--model", path, *given, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert again.exit_code == 0, again.output


def test_a_program_that_reaches_for_files_is_refused(tmp_path: Path) -> None:
    path = save(torch.jit.script(Saving().eval()), tmp_path / "evil.pt")
    with pytest.raises(ModelError, match="its program calls from_file"):
        load_classifier(path, input_shape=(SIZE,))


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / "net.pt")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(archive.namelist()[-1], b"other")
    with pytest.raises(ModelError, match="two entries of one name"):
        load_classifier(path, input_shape=(SIZE,))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/code/__torch__.py", "class Net: pass")
    with pytest.raises(ModelError, match="cannot be loaded as TorchScript"):
        load_classifier(path, input_shape=(SIZE,))


def test_options_of_other_files_are_refused(tmp_path: Path) -> None:
    path = save(scripted("script"), tmp_path / "net.pt")
    with pytest.raises(InputError, match="leave arch and standardise out"):
        load_classifier(path, input_shape=(SIZE,), arch="mlp")
