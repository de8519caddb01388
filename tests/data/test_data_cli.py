from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smoothcert.cli.data import app
from smoothcert.data.fetching import PUBLISHED
from smoothcert.errors import DataError

_RUN = "from smoothcert.cli.data import app; app()"


def test_list_as_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["list", "--root", str(tmp_path), "--json"])
    assert result.exit_code == 0
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["digits"] | {"where": ""} == {
        "name": "digits",
        "summary": "8x8 handwritten digits",
        "shape": [1, 8, 8],
        "classes": 10,
        "sizes": {"train": 1352, "test": 445},
        "levels": 17,
        "input_range": [0.0, 1.0],
        "here": True,
        "where": "",
    }
    assert not rows["cifar10"]["here"]
    assert rows["imagenet"]["sizes"] == {"train": None, "test": None}


@pytest.mark.parametrize(("columns", "described"), [("80", False), ("160", True)])
def test_list_as_a_table(tmp_path: Path, columns: str, described: bool) -> None:
    result = CliRunner().invoke(app, ["list", "--root", str(tmp_path)], env={"COLUMNS": columns})
    assert result.exit_code == 0
    assert "fashion-mnist" in result.stdout
    assert ("two interleaved spirals" in result.stdout) == described
    assert max(map(len, result.stdout.splitlines())) <= int(columns)


def test_list_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(sorted({'torch', 'sklearn', 'scipy', 'PIL', 'numpy'} & {*sys.modules})))\n"
        + _RUN
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "list", "--root", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_fetch_from_a_folder(tmp_path: Path, mini_mnist, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PUBLISHED, "mnist", mini_mnist.spec)
    mini_mnist.write_idx(tmp_path / "given")
    arguments = ["fetch", "mnist", "--from", str(tmp_path / "given"), "--root", str(tmp_path / "root")]
    first = CliRunner().invoke(app, [*arguments, "--json"])
    assert first.exit_code == 0
    assert json.loads(first.stdout) == {
        "name": "mnist",
        "folder": str(tmp_path / "root" / "mnist"),
        "source": f"the place you gave, {tmp_path / 'given'}",
        "fetched": True,
        "bytes": sum(piece.size for piece in mini_mnist.spec.files),
    }
    second = CliRunner().invoke(app, arguments)
    assert "already stored and intact" in second.stdout


def test_fetch_of_what_needs_no_fetching() -> None:
    result = CliRunner().invoke(app, ["fetch", "cone-18"])
    assert result.stdout.strip() == "cone is generated, the same everywhere: nothing to fetch"


def test_errors_reach_the_handler_with_their_exit_code(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "minst", "--root", str(tmp_path)])
    assert isinstance(result.exception, DataError)
    assert result.exception.exit_code == 3
    assert "did you mean" in str(result.exception)
