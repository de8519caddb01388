"""`certify --rigorous`: what is not confirmed is neither stored nor claimed; a run keeps what it was begun with."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cli_runner import invoke
from run_specs import make_spec
from smoothcert.cli.main import app
from smoothcert.errors import UnverifiedError
from smoothcert.memory import RegionMemory, open_memory
from smoothcert.records import CertifiedPoint
from smoothcert.runs import rigorous
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.store import RunStore
from smoothcert.spec import RunSpec
from verified_runs import SPLIT

pytest.importorskip("flint")

SETTINGS: dict[str, Any] = {
    "task": "certify",
    "model": "sample_models:digits_by_brightness",
    "data": "digits",
    "n": 500,
    "n0": 20,
    "alpha": 0.001,
    "sigma": 0.25,
    "max_inputs": 3,
    "seed": 1,
    "batch": 64,
    "rigorous": True,
}


def spec(**changes: Any) -> RunSpec:
    return make_spec(**(SETTINGS | changes))


def finished(wanted: RunSpec, out: Path) -> list[CertifiedPoint]:
    with prepare_run(wanted, out) as run:
        execute_run(run)
    with RunStore.open(out) as store:
        return store.points()


def too_large(point: CertifiedPoint) -> CertifiedPoint:
    if point.radius == 0:
        return point
    return dataclasses.replace(point, verdict=dataclasses.replace(point.verdict, radius=point.radius * (1 + 1e-9)))


def sabotage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours: radii that are too large by a part in 10⁹."""
    honest = rigorous.document_of
    monkeypatch.setattr(rigorous, "document_of", lambda point, manifest: honest(too_large(point), manifest))


def test_confirmed_results_are_those_of_any_run(tmp_path: Path) -> None:
    plain = finished(spec(rigorous=False), tmp_path / "plain")
    assert [point.verdict for point in finished(spec(), tmp_path / "run")] == [point.verdict for point in plain]
    assert any(point.radius > 0 for point in plain)


def test_where_every_evaluation_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ("--model", SETTINGS["model"], "--data", "digits", "--max", 2, "--batch", 64, "--workers", 1)
    given = ("certify", *data, *SPLIT, "--rigorous", "--out")
    invoke(app, *given, tmp_path / "run")
    with RunStore.open(tmp_path / "run") as store:
        assert any(point.radius > 0 for point in store.points())
    sabotage(monkeypatch)
    with pytest.raises(UnverifiedError, match="not confirmed"):
        invoke(app, *given, tmp_path / "sabotaged")


def test_what_is_not_confirmed_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    with pytest.raises(UnverifiedError, match="not confirmed"):
        finished(spec(), tmp_path / "run")
    with RunStore.open(tmp_path / "run") as store:
        assert not any(point.radius > 0 for point in store.points())


def test_nor_is_anything_claimed_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    place = tmp_path / "memory.sqlite"
    with prepare_run(spec(memory=str(place)), tmp_path / "run") as run:
        with pytest.raises(UnverifiedError):
            execute_run(run)
        key = run.smoothed.memory_key
    memory = open_memory(place, key)
    try:
        assert isinstance(memory, RegionMemory)
        assert len(memory) == 0
    finally:
        memory.close()


def test_a_run_is_resumed_as_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with prepare_run(spec(), tmp_path / "run"):
        pass
    sabotage(monkeypatch)
    with pytest.raises(UnverifiedError):
        finished(spec(rigorous=False), tmp_path / "run")
