"""`certify --rigorous`: what is not confirmed is neither stored nor claimed; a run keeps what it was begun with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from smoothcert.runs.jobs import Job, prepare

from smoothcert.errors import UnverifiedError
from smoothcert.memory import RegionMemory, open_memory
from smoothcert.records import CertifiedPoint
from smoothcert.runs import rigorous
from smoothcert.runs.execution import run_study
from smoothcert.runs.store import RunStore

pytest.importorskip("flint")

JOB = Job(
    task="certify", model="sample_models:digits_by_brightness", data="digits", n=500, n0=20, alpha=0.001, sigma=0.25,
    max_inputs=3, seed=1, batch=64, rigorous=True,
)  # fmt: skip


def finished(job: Job, out: Path) -> list[CertifiedPoint]:
    with prepare(job, out) as run:
        run_study(run.study, run.indices, run.store)
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
    plain = finished(dataclasses.replace(JOB, rigorous=False), tmp_path / "plain")
    assert [point.verdict for point in finished(JOB, tmp_path / "run")] == [point.verdict for point in plain]
    assert any(point.radius > 0 for point in plain)


def test_what_is_not_confirmed_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    with pytest.raises(UnverifiedError, match="not confirmed"):
        finished(JOB, tmp_path / "run")
    with RunStore.open(tmp_path / "run") as store:
        assert not any(point.radius > 0 for point in store.points())


def test_nor_is_anything_claimed_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)
    place = tmp_path / "memory.sqlite"
    with prepare(dataclasses.replace(JOB, memory=str(place)), tmp_path / "run") as run:
        with pytest.raises(UnverifiedError):
            run_study(run.study, run.indices, run.store)
        key = run.study.smoothed.memory_key
    memory = open_memory(place, key)
    try:
        assert isinstance(memory, RegionMemory)
        assert len(memory) == 0
    finally:
        memory.close()


def test_a_run_goes_on_as_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with prepare(JOB, tmp_path / "run"):
        pass
    sabotage(monkeypatch)
    with pytest.raises(UnverifiedError):
        finished(dataclasses.replace(JOB, rigorous=False), tmp_path / "run")
