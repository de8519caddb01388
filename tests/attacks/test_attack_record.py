"""The record of an attack: what is on the disk when."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from smoothcert.attacks.attack_record import open_record
from smoothcert.errors import CorruptRunError
from smoothcert.runs.seals import canonical_json


def test_the_settings_are_on_the_disk_before_the_first_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    synced: list[int] = []

    def fsync(_: int) -> None:
        synced.append(path.stat().st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    with open_record(path, {"run": {}, "settings": {"seed": 1}}):
        assert synced == [len(path.read_bytes())]
        assert path.read_bytes().endswith(b"\n")


RESULT = {
    "radius": "0.5", "index": 3, "label": 1, "certified_radius": 0.7, "distance": 0.4, "moved": True, "point": None,
    "prediction": 1, "fate": "unchanged", "answer": 1, "leads": True, "samples": 10, "sigma": 0.25, "counts": [2, 8],
    "invalid": 0, "p_value": 0.1,
}  # fmt: skip


def write_record(path: Path, result: dict[str, object]) -> None:
    """A record with one result, and with the seals that belong to it."""
    documents: list[dict[str, object]] = [
        {"format": "smoothcert attack 3", "run": {}, "settings": {"seed": 1}}, result,
    ]  # fmt: skip
    seal, lines = "", []
    for document in documents:
        seal = hashlib.sha256(f"{seal}\n".encode() + canonical_json(document)).hexdigest()
        lines.append(json.dumps({**document, "seal": seal}))
    path.write_text("\n".join(lines) + "\n")


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path / "a.jsonl", RESULT)
    with open_record(tmp_path / "a.jsonl", {"run": {}, "settings": {"seed": 1}}) as record:
        assert [result.to_json() for result in record.results] == [{**RESULT, "counts": (2, 8), "fate": "unchanged"}]


@pytest.mark.parametrize(
    "change",
    [{"radius": {}}, {"index": "3"}, {"distance": None}, {"counts": 3}, {"counts": [{}]}, {"fate": "?"}, {"more": 1}],
    ids=str,
)
def test_a_result_of_another_shape_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """`"radius": {}` was a TypeError: unhashable."""
    write_record(tmp_path / "a.jsonl", {**RESULT, **change})
    with (
        pytest.raises(CorruptRunError, match=f"a.jsonl is not a record .*{next(iter(change))}"),
        open_record(tmp_path / "a.jsonl", {"run": {}, "settings": {"seed": 1}}),
    ):
        pass
