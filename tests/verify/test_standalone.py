"""The checker without smoothcert: a copy of the package with numpy and python-flint, and nothing else."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flint")

import flint
import numpy as np

import smoothcert_verify
from smoothcert.runs.certificate_documents import write_certificates
from verified_runs import altered, copy_of, make_run

PACKAGE = Path(smoothcert_verify.__file__).parent


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which python -S imports the standard library, numpy, flint and the checker alone."""
    folder = tmp_path_factory.mktemp("clean")
    shutil.copytree(PACKAGE, folder / "smoothcert_verify", ignore=shutil.ignore_patterns("__pycache__"))
    for module in (np, flint):
        package = Path(str(module.__file__)).parent
        for name in (package.name, f"{package.name}.libs", f"python_{package.name}.libs"):
            if (package.parent / name).exists():
                (folder / name).symlink_to(package.parent / name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return kept | {"PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("standalone")
    make_run("votes", folder)
    make_run("memory", folder)
    write_certificates(folder / "votes", folder / "certificates")
    return folder


def run_python(clean: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", "-s", *map(str, arguments)]
    return subprocess.run(command, env=clean, cwd="/", capture_output=True, text=True, check=False)


def verify(clean: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_python(clean, "-m", "smoothcert_verify", *arguments)


@pytest.mark.parametrize("module", ["smoothcert", "torch", "msgspec", "scipy"])
def test_nothing_else_can_be_imported(clean: dict[str, str], module: str) -> None:
    """The negative control."""
    assert "ModuleNotFoundError" in run_python(clean, "-c", f"import {module}").stderr


def test_a_certificate(clean: dict[str, str], made: Path) -> None:
    done = verify(clean, made / "certificates" / "certificate-000060.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 input, 1 bound and 1 radius checked: all is proved" in done.stdout
    assert "input 60: except with probability at most" in done.stdout


def test_runs_certificates_and_a_memory(clean: dict[str, str], made: Path) -> None:
    memory = ("--memory", made / "memory.sqlite", "--json")
    done = verify(clean, made / "votes", made / "certificates", made / "memory", *memory)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["consistent"] is True
    assert [place["inputs"] for place in found["places"]] == [4, 4, 4]
    assert [place["radii"] for place in found["places"]] == [4, 4, 4]
    assert found["memories"][0]["claims"] == 4


def test_discrepancies_are_found(clean: dict[str, str], made: Path, tmp_path: Path) -> None:
    run = copy_of(made / "votes", tmp_path)
    altered(run / "results.sqlite", "UPDATE verdicts SET radius = radius * 1.01 WHERE idx = 60")
    (run / "attack.jsonl").write_text('{"format": "smoothcert attack 3", "seal": "0"}\n')
    done = verify(clean, run, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    found = [(one["code"], one["where"]) for one in json.loads(done.stdout)["places"][0]["discrepancies"]]
    assert found == [
        ("seal-broken", "input 60"),
        ("radius-not-certified", "input 60: gaussian"),
        ("line-seal-broken", "attack.jsonl"),
    ]


def test_what_cannot_be_done_is_said(clean: dict[str, str], made: Path, tmp_path: Path) -> None:
    for arguments, message in [
        ((made / "votes", "--replay", "model", 1), "needs smoothcert, which is not installed"),
        ((made / "votes", "--data", "digits"), "needs smoothcert, which is not installed"),
        ((tmp_path / "none",), "does not exist"),
        ((made / "votes", "--memory", tmp_path / "none"), "does not exist"),
        ((made / "votes", "--replay-batch", 1), "need --replay MODEL K"),
    ]:
        done = verify(clean, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_smoothcert_is_only_imported_by_a_replay_and_inside_functions() -> None:
    for file in PACKAGE.glob("*.py"):
        tree = ast.parse(file.read_text())
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {
            node: (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name for node in found
        }
        using = {node for node, name in names.items() if name.split(".")[0] == "smoothcert"}
        if file.name != "replay_model.py":
            assert not using, file.name
        assert not using & set(tree.body), file.name
