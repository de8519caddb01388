"""The record of an attack: what is on the disk when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smoothcert.attacks.attack_record import open_record


def test_the_settings_are_on_the_disk_before_the_first_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    synced: list[int] = []

    def fsync(_: int) -> None:
        synced.append(path.stat().st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    with open_record(path, {"run": {}, "settings": {"seed": 1}}):
        assert synced == [len(path.read_bytes())]
        assert path.read_bytes().endswith(b"\n")
