"""Seals are made with the rows, in the same transaction, and continue where a run is resumed."""

from __future__ import annotations

import dataclasses
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sample_manifests import sample_manifest
from sample_points import POINT
from smoothcert.errors import RunError
from smoothcert.records import CertifiedPoint, StreamId
from smoothcert.runs.seals import canonical_json, document_digest
from smoothcert.runs.store import RunStore
from smoothcert.spec import ModelFacts

MANIFEST = sample_manifest(environment={"é": "1"}, model=ModelFacts(num_classes=10, probe={"é": [1, None]}))


def point(index: int) -> CertifiedPoint:
    (tally,) = POINT.tallies
    own = dataclasses.replace(tally, stream=StreamId(1, index, tally.stream.stage))
    return dataclasses.replace(POINT, index=index, tallies=(own,))


def seals(run: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(run / "results.sqlite")) as connection:
        return connection.execute("SELECT * FROM seals ORDER BY position").fetchall()


def test_the_first_is_that_of_the_manifest(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", MANIFEST):
        pass
    assert seals(tmp_path / "run") == [(0, None, document_digest(MANIFEST.to_json()))]


def test_shards_and_resuming_make_the_same_chain(tmp_path: Path) -> None:
    points = [point(index) for index in range(6)]
    with RunStore.create(tmp_path / "whole", MANIFEST) as store:
        store.add(points)
    with RunStore.create(tmp_path / "parts", MANIFEST) as store:
        store.add(points[:1])
        store.add(points[1:3])
    with RunStore.resume(tmp_path / "parts", MANIFEST) as store:
        store.add(points[3:])
    chain = seals(tmp_path / "whole")
    assert chain == seals(tmp_path / "parts")
    assert [row[:2] for row in chain] == [(0, None), *((index + 1, index) for index in range(6))]
    assert len({row[2] for row in chain}) == 7


def test_a_shard_that_is_refused_leaves_no_seal(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", MANIFEST) as store:
        store.add([point(0)])
        before = seals(tmp_path / "run")
        with pytest.raises(RunError, match="already holds"):
            store.add([point(1), point(0)])
    assert seals(tmp_path / "run") == before


def test_the_order_matters(tmp_path: Path) -> None:
    for name, order in (("forth", (0, 1)), ("back", (1, 0))):
        with RunStore.create(tmp_path / name, MANIFEST) as store:
            store.add([point(index) for index in order])
    assert seals(tmp_path / "forth")[-1][2] != seals(tmp_path / "back")[-1][2]


def test_canonical_json_is_one_text_for_one_document() -> None:
    assert canonical_json({"b": 1.0, "a": ["é", None]}) == b'{"a":["\\u00e9",null],"b":1.0}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})
