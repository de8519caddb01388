"""Whatever a disk refuses, and whenever: no traceback, and a message that names the file."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from failing_calls import FailingCommands
from verified_runs import MODEL, make_run

pytestmark = pytest.mark.slow
_EXPORTS = ("smoothcert.runs.load", "smoothcert.runs.exports", "smoothcert.runs.tsv", "smoothcert.runs.store")
MODULES: dict[str, tuple[str, ...]] = {
    "certify": ("smoothcert.runs.execution", "sample_models", "sklearn.linear_model", "scipy.stats"),
    "export": _EXPORTS,
    "export csv": _EXPORTS,
    "export json": _EXPORTS,
    "report": ("smoothcert.report.page", "smoothcert.report.sources", *_EXPORTS),
    "plot": ("smoothcert.analysis.figures", "smoothcert.analysis.plots", "matplotlib.pyplot", *_EXPORTS),
    "train": ("smoothcert.training.training_run", "smoothcert.cli.train", "torch"),
}
"""What a command imports: once, before it is run again and again."""
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO)
POINTS = 4
"""Calls from which on the disk fails, one after another with the next error."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run("votes", tmp_path_factory.mktemp("runs"))


def list_commands(run: Path, out: Path) -> dict[str, tuple[object, ...]]:
    return {
        "certify": (
            "certify", "--model", MODEL, "--data", "digits", "--sigma", 0.25, "--n0", 20, "--n", 100, "--skip", 600,
            "--seed", 1, "--batch", 64, "--workers", 1, "--out", out / "run",
        ),
        "export": ("export", run, "-o", out / "x.tsv"),
        "export csv": ("export", run, "--format", "csv", "-o", out / "x.csv"),
        "export json": ("export", run, "--format", "json", "-o", out / "x.json"),
        "report": ("report", run, "-o", out / "x.html"),
        "plot": ("plot", run, "-o", out / "x.svg"),
        "train": (
            "train", "--data", "digits", "--arch", "mlp-8", "--sigma", 0.25, "--epochs", 1, "--batch", 256, "--seed",
            1, "--device", "cpu", "--threads", 1, "--out", out / "m.safetensors",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_the_file_is_named(run: Path, tmp_path: Path, name: str) -> None:
    """Fails for an error of fsync or write that goes through: those name no file."""
    out, failures = tmp_path / "failing", 0
    with FailingCommands(out, "smoothcert.cli.main", *MODULES[name]) as commands:
        words = list_commands(run, out)[name]
        out.mkdir()
        clean = commands.run(*words)
        assert (clean.code, clean.calls > 0) == (0, True), clean
        shutil.rmtree(out)
        for number, at in enumerate(range(1, clean.calls + 1, max(1, clean.calls // POINTS))):
            out.mkdir()
            ended = commands.run(*words, at=at, code=ERRORS[number % len(ERRORS)])
            shutil.rmtree(out)
            if ended.code == 0:
                continue  # what was left to do could fail without harm
            failures += 1
            assert "Traceback" not in ended.errors
            assert str(out) in ended.errors, (at, ended.errors)
    assert failures > 0
