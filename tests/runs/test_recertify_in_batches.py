"""Recertifying a stored run a few inputs at a time gives what all at once give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.errors import InputError, RunError
from smoothcert.runs import store
from smoothcert.runs.recertification import recertify_run, recertify_stored
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.store import RunStore
from verified_runs import altered, copy_of, make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four inputs are two batches."""
    monkeypatch.setattr(store, "_BATCH", 3)


def columns(results: ResultColumns) -> dict[str, Any]:
    names = ("index", "label", "prediction", "outcome", "radius", "sigma", "seconds", "p_a", "certificate")
    found = {name: getattr(results, name).tolist() for name in names} | {"reason": list(map(str, results.reason))}
    return found | {"extra": {name: values.tolist() for name, values in results.extra.items()}}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("votes", {"alpha": 0.01}),
        ("votes", {"n": 150, "certificate": ["gaussian", "li"]}),
        ("dipole", {"certificate": "gaussian"}),
        ("abstaining", {"alpha": 0.1}),
        ("decide", {"alpha": 0.01}),
    ],
)
def test_the_same_as_all_at_once(folder: Path, tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    run = make_run(kind, folder / kind) if not (folder / kind / kind).exists() else folder / kind / kind
    together = recertify_run(run, **changes)
    results, spec = recertify_stored(run, tmp_path / "out", **changes)
    expected = together.results(name="out")
    assert spec == together.spec
    assert [one.name for one in results] == [one.name for one in expected]
    for one, other in zip(results, expected, strict=True):
        np.testing.assert_equal(columns(one), columns(other))
        assert one.notes == other.notes
    with RunStore.open(tmp_path / "out") as stored:
        assert stored.points() == list(together.points)
        assert [point for batch in stored.batches() for point in batch] == list(together.points)
        assert max(map(len, stored.batches())) == 3


def test_two_levels_in_two_batches(folder: Path, tmp_path: Path) -> None:
    """Fails where only the inputs of one batch are compared; no run is left."""
    run = copy_of(make_run("votes", folder / "levels"), tmp_path)
    altered(run / "results.sqlite", "UPDATE tallies SET sigma = 0.5 WHERE idx = 180")
    with pytest.raises(InputError, match=r"sigma from 0.25 to 0.5, so it is not constant"):
        recertify_stored(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*.part"))


def test_an_existing_directory(folder: Path, tmp_path: Path) -> None:
    """An empty one is used, and so is one that an interrupted command left; any other is refused."""
    run = make_run("votes", folder / "existing")
    (tmp_path / "empty").mkdir()
    recertify_stored(run, tmp_path / "empty")
    left = tmp_path / "left"
    with RunStore.create(left, store.read_manifest(run)):
        pass
    (left / "manifest.json").unlink()
    recertify_stored(run, left)
    with RunStore.open(left) as stored:
        assert len(stored.points()) == 4
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.txt").write_text("precious")
    for place in (left, tmp_path / "own"):
        with pytest.raises(RunError, match="existing results are never overwritten"):
            recertify_stored(run, place)
