"""The `train` command from a user's view."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from smoothcert.cli.train import train
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.training import partial_path

BASE = ["--data", "digits", "--arch", "mlp-16", "--sigma", "0.25", "--batch", "64", "--device", "cpu", "--threads", "1"]


def invoke(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train)
    return CliRunner().invoke(app, [*BASE, *map(str, arguments)])


def test_train_writes_a_checkpoint_and_prints_json(tmp_path):
    out = tmp_path / "m.safetensors"
    result = invoke("--epochs", 2, "--seed", 5, "--out", out, "--json", "--standardise")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["model"] == str(out)
    assert document["seed"] == 5
    assert document["noisy_accuracy_split"] == "test"
    assert 0.3 < document["noisy_accuracy"] <= 1
    assert [line.split("  ")[0] for line in result.stderr.splitlines()] == ["epoch 1/2", "epoch 2/2"]
    assert load_checkpoint(out).header.standardise is not None


def test_the_default_seed_is_fresh_and_recorded(tmp_path):
    seeds = []
    for name in ("a", "b"):
        result = invoke("--epochs", 1, "--out", tmp_path / f"{name}.safetensors")
        assert "of the test inputs correct under gaussian noise 0.25" in result.stdout
        seeds.append(load_checkpoint(tmp_path / f"{name}.safetensors").header.training["seed"])
    assert seeds[0] != seeds[1]


def test_existing_output_and_other_endings_are_refused(tmp_path):
    (tmp_path / "m.safetensors").write_text("x")
    assert isinstance(invoke("--out", tmp_path / "m.safetensors").exception, InputError)
    assert "must end in .safetensors" in str(invoke("--out", tmp_path / "m.pth").exception)


PROGRAM = """
import sys
import typer
from smoothcert.cli.train import train
from smoothcert.errors import SmoothcertError
app = typer.Typer(pretty_exceptions_enable=False)
app.command()(train)
try:
    app()
except SmoothcertError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def test_control_c_says_how_to_resume_and_resuming_finishes(tmp_path):
    out = tmp_path / "m.safetensors"
    command = [sys.executable, "-c", PROGRAM, *BASE, "--epochs", "100", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("epoch 2/"):
            break
    os.kill(process.pid, signal.SIGINT)
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == InterruptedRunError.exit_code == 130
    assert "Resume with the same command and --resume" in rest
    assert partial_path(out).exists()
    assert isinstance(invoke("--epochs", 100, "--out", out).exception, InputError)
    differing = invoke("--epochs", 2, "--resume", "--out", out).exception
    assert isinstance(differing, ManifestMismatchError)
    assert "epochs was 100, now 2" in str(differing)
    assert "seed" not in str(differing)
    assert invoke("--epochs", 100, "--resume", "--out", out).exit_code == 0
    assert load_checkpoint(out).header.training["epochs"] == 100


def test_the_module_imports_nothing_heavy():
    program = (
        "import sys, smoothcert.cli.train; print([m for m in ('torch', 'numpy', 'rich.progress') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_torch_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = invoke("--out", tmp_path / "m.safetensors")
    assert "training needs torch: pip install 'smoothcert[torch]'" in str(result.exception)
    with pytest.raises(ImportError):
        raise result.exception
