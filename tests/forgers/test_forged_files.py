"""Files with something more in them, and numbers that are none: refused by the checker, and by every other reader."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flint")

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import CorruptRunError, ModelError, RunError
from smoothcert.memory.log import StoredKey
from smoothcert.memory.opening import parse_key
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sigma.rule_files import load_rule
from smoothcert.strict_json import strict_loads
from verified_runs import copy_of, make_run, resealed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    make_run("envelope", folder)
    make_run("votes", folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return copy_of(made / "votes", tmp_path)


@pytest.fixture
def ruled(made: Path, tmp_path: Path) -> Path:
    return copy_of(made / "envelope", tmp_path)


def assert_refused(run: Path, reason: str) -> None:
    result = invoke(app, "verify", run)
    assert result.exit_code == 1, result.stdout
    assert re.search(reason, result.stdout), result.stdout


def split(content: bytes) -> tuple[dict[str, dict[str, object]], bytes]:
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header: object, tensors: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + tensors


def _with_another_tensor(content: bytes) -> bytes:
    header, tensors = split(content)
    header["more"] = {"dtype": "U8", "shape": [3], "data_offsets": [len(tensors), len(tensors) + 3]}
    return joined(header, tensors + b"abc")


def _with_a_gap(content: bytes) -> bytes:
    header, tensors = split(content)
    header["points"]["data_offsets"] = [1, len(tensors) + 1]
    return joined(header, b"\0" + tensors)


def _with_infinity(content: bytes) -> bytes:
    header, tensors = split(content)
    document = header["__metadata__"]["smoothcert-sigma"]
    assert isinstance(document, str)
    header["__metadata__"]["smoothcert-sigma"] = document.replace('"most": null', '"most": Infinity')
    return joined(header, tensors)


class TestRuleForSigma:
    def test_as_it_was(self, ruled: Path) -> None:
        file = ruled / "sigma.safetensors"
        file.write_bytes(joined(*split(file.read_bytes())))
        assert invoke(app, "verify", ruled).exit_code == 0

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda content: content + b"\0", "the tensors take .* bytes, and the file has"),
            (lambda content: content + b"x" * 4096, "the tensors take .* bytes, and the file has"),
            (lambda content: content[:-1], "the tensors take .* bytes, and the file has"),
            (_with_a_gap, "do not follow one another without a gap"),
            (_with_another_tensor, r"tensors that do not belong to such a rule: \['more'\]"),
            (_with_infinity, "Infinity is not a number"),
        ],
    )
    def test_changed(self, ruled: Path, change: Callable[[bytes], bytes], reason: str) -> None:
        file = ruled / "sigma.safetensors"
        changed = change(file.read_bytes())
        assert changed != file.read_bytes()
        file.write_bytes(changed)
        assert_refused(ruled, f"sigma.safetensors: this is not a rule for sigma: .*{reason}")

    @pytest.mark.parametrize("change", [lambda content: content + b"\0", _with_a_gap, _with_infinity])
    def test_it_is_not_loaded_either(self, ruled: Path, change: Callable[[bytes], bytes]) -> None:
        file = ruled / "sigma.safetensors"
        file.write_bytes(change(file.read_bytes()))
        with pytest.raises(ModelError):
            load_rule(file)


NUMBERS = ["Infinity", "-Infinity", "NaN", "1e999", "-1e999"]


class TestNumbersThatAreNone:
    @pytest.mark.parametrize("number", NUMBERS)
    @pytest.mark.parametrize("field", ['"alpha": 0.001', '"level": 0.25', '"schema": 3', '"levels": 17'])
    def test_in_a_manifest(self, run: Path, field: str, number: str) -> None:
        file = run / "manifest.json"
        name = field.partition(":")[0]
        text = file.read_text()
        assert field in text
        file.write_text(text.replace(field, f"{name}: {number}", 1))
        assert_refused(run, "not a number|too large")
        with pytest.raises(CorruptRunError):
            read_manifest(run)
        with pytest.raises(RunError):
            invoke(app, "table", run)

    def test_a_name_twice_in_a_manifest(self, run: Path) -> None:
        file = run / "manifest.json"
        file.write_text(file.read_text().replace('"alpha": 0.001', '"alpha": 0.001, "alpha": 0.001', 1))
        assert_refused(run, "the same name twice")
        with pytest.raises(CorruptRunError):
            read_manifest(run)

    @pytest.mark.parametrize("number", NUMBERS)
    @pytest.mark.parametrize(("table", "column"), [("verdicts", "bounds"), ("tallies", "counts")])
    def test_in_results(self, run: Path, table: str, column: str, number: str) -> None:
        with closing(sqlite3.connect(run / "results.sqlite")) as connection:
            rowid, text = connection.execute(f"SELECT rowid, {column} FROM {table} LIMIT 1").fetchone()
            text = re.sub(r": [0-9][0-9.e-]*", f": {number}", text, count=1)
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (text, rowid))
            connection.commit()
        resealed(run)
        assert_refused(run, f"{column}: .*(not a number|too large)")
        with RunStore.open(run) as store, pytest.raises(CorruptRunError):
            store.points()

    def test_in_the_key_of_a_memory(self) -> None:
        from smoothcert.errors import RegionMemoryError

        stored = StoredKey(1, "0" * 64, '{"dimension": Infinity}', "i")
        with pytest.raises(RegionMemoryError, match="Infinity is not a JSON number"):
            parse_key(stored, location="here")

    def test_what_is_json_is_read_as_ever(self) -> None:
        value = {"a": [1, -2.5, 1e-320, True, None, "NaN"], "b": {"c": 2**200}}
        assert strict_loads(json.dumps(value)) == value
        assert np.isfinite(strict_loads("1.7976931348623157e308"))


def test_nothing_else_changes(made: Path, tmp_path: Path) -> None:
    """The positive control: copies of both runs, sealed anew, are proved."""
    for kind in ("votes", "envelope"):
        run = Path(shutil.copytree(made / kind, tmp_path / kind))
        resealed(run)
        assert invoke(app, "verify", run).exit_code == 0
