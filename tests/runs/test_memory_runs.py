"""Runs that claim their regions from a memory: in the order of the inputs, however they are computed or stopped."""

from __future__ import annotations

import dataclasses
import gc
import json
import multiprocessing
import os
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from damaged_memories import put_back
from memory_models import in_unit_ball, plane_points
from run_specs import finish_run, make_spec, resumed_spec, without_times
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError, RegionMemoryError, RunError
from smoothcert.memory import Claim, open_existing
from smoothcert.records import CertifiedPoint, Norm, Outcome, Settlement
from smoothcert.runs.execution import _read_source, _shards, execute_run, prepare_run
from smoothcert.runs.load import load_results
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.spec import OptimisedLevel, RunSpec

POINTS = 60


def spec(data: Path, memory: Path | str | None, **changes: object) -> RunSpec:
    settings: dict[str, object] = {
        "task": "certify", "model": "memory_models:ball_and_doubt", "data": str(data), "num_classes": 2,
        "sigma": 0.25, "sigma_rule": "optimised", "search": "grid:points=7,noises=16,check=16", "sigma_range": "0.05,4",
        "memory": None if memory is None else str(memory), "n0": 30, "n": 200, "alpha": 0.001, "seed": 5, "batch": 64,
        "input_range": "any",
    }  # fmt: skip
    return make_spec(**{**settings, **changes})  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Whole:
    """A finished run that was never stopped, and its memory; nobody may change them."""

    data: Path
    memory: Path
    run: Path
    points: list[CertifiedPoint]
    claims: list[Claim]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    data, memory = plane_points(folder / "points.npz"), folder / "memory.sqlite"
    points = finish_run(spec(data, memory), folder / "run")
    return Whole(data, memory, folder / "run", points, claims_of(memory))


def claims_of(memory: Path | str) -> list[Claim]:
    with open_existing(memory) as opened:
        return list(opened.claims())


def facts(claims: list[Claim]) -> list[tuple[object, ...]]:
    """Everything but the time."""
    return [
        (one.position, one.centre.tobytes(), one.label, one.radius, one.asked_label, one.asked_radius, one.settlement)
        for one in claims
    ]


def copied(memory: Path, to: Path) -> Path:
    """A copy of a database that may still be open somewhere."""
    with closing(sqlite3.connect(memory)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to


def assert_consistent(memory: Path | str) -> None:
    with open_existing(memory) as opened:
        audit = opened.audit()
    assert audit.consistent, audit.problems


class TestWhatARunHolds:
    def test_every_kind_of_settlement_occurs(self, whole: Whole) -> None:
        """Otherwise the other tests here would prove little."""
        settled = {point.promise.settlement for point in whole.points if point.promise is not None}
        assert settled == set(Settlement)
        assert any(point.outcome is Outcome.ABSTAINED for point in whole.points)

    def test_claims_are_made_in_the_order_of_the_inputs(self, whole: Whole) -> None:
        claiming = [
            point for point in whole.points if point.promise and point.promise.settlement is not Settlement.INHERITED
        ]
        assert [point.promise.position for point in claiming if point.promise] == list(range(1, len(claiming) + 1))
        inputs = np.load(whole.data)["x"]
        for point, claim in zip(claiming, whole.claims, strict=True):
            assert np.array_equal(inputs[point.index], claim.centre)
            assert (point.prediction, point.radius) == (claim.label, claim.radius)

    def test_the_points_come_back_from_the_store(self, whole: Whole) -> None:
        with RunStore.open(whole.run) as store:
            assert without_times(store.points()) == whole.points

    def test_the_manifest(self, whole: Whole) -> None:
        manifest = read_manifest(whole.run)
        with open_existing(whole.memory) as memory:
            assert manifest.digests.memory == memory.key.digest
        assert manifest.spec.certificates == ("gaussian",)
        assert manifest.sigma is not None
        assert manifest.sigma.rule["kind"] == "optimised"
        assert (manifest.sigma.rule["least"], manifest.sigma.rule["most"]) == (0.05, 4.0)
        assert manifest.sigma.envelope is None
        assert isinstance(manifest.spec.sigma, OptimisedLevel)
        assert (manifest.spec.sigma.least, manifest.spec.sigma.most) == (0.05, 4.0)
        assert manifest.spec.memory == str(whole.memory.resolve())

    def test_consistent(self, whole: Whole) -> None:
        assert_consistent(whole.memory)

    def test_the_note_counts_the_conflicts(self, whole: Whole) -> None:
        results = load_results(whole.run)
        counted = Counter(point.promise.settlement for point in whole.points if point.promise is not None)
        (note,) = [note for note in results.notes if "memory" in note]
        for settlement in Settlement:
            assert f"{counted[settlement]} {settlement.name.lower()}" in note
        positions = [point.promise.position if point.promise else None for point in whole.points]
        assert [None if np.isnan(at) else int(at) for at in results.extra["position"]] == positions


class TestOrder:
    def test_workers_change_nothing(self, tmp_path: Path) -> None:
        """A torch model, which several threads may use; conflicts included."""
        pytest.importorskip("torch")
        data = plane_points(tmp_path / "points.npz", count=40)
        made = []
        for workers in (1, 2):
            memory = tmp_path / f"{workers}.sqlite"
            settings = spec(data, memory, model="memory_models:torch_ball", num_classes=None, workers=workers)
            made.append((finish_run(settings, tmp_path / str(workers)), facts(claims_of(memory))))
        assert made[0] == made[1]
        settled = {point.promise.settlement for point in made[0][0] if point.promise}
        assert {Settlement.CUT, Settlement.OVERRULED} <= settled

    def test_batch_changes_no_promise(self, whole: Whole, tmp_path: Path) -> None:
        other = finish_run(spec(whole.data, tmp_path / "memory.sqlite", batch=1000), tmp_path / "run")
        assert [point.promise for point in other] == [point.promise for point in whole.points]
        assert facts(claims_of(tmp_path / "memory.sqlite")) == facts(whole.claims)

    def test_another_order_of_inputs_is_another_result(self, whole: Whole, tmp_path: Path) -> None:
        """Who comes first owns the region; each order is consistent in itself."""
        with np.load(whole.data) as stored:
            np.savez(tmp_path / "turned.npz", x=stored["x"][::-1], y=stored["y"][::-1])
        other = finish_run(spec(tmp_path / "turned.npz", tmp_path / "memory.sqlite"), tmp_path / "run")
        assert [point.prediction for point in other[::-1]] != [point.prediction for point in whole.points]
        assert_consistent(tmp_path / "memory.sqlite")


class TestStoppedAndResumed:
    @pytest.mark.parametrize("stop_after", [1, 4, 9])
    def test_by_a_stop(self, whole: Whole, tmp_path: Path, stop_after: int) -> None:
        memory, out = tmp_path / "memory.sqlite", tmp_path / "run"
        with pytest.raises(InterruptedRunError):
            finish_run(spec(whole.data, memory), out, stop_after=stop_after)
        with RunStore.open(out) as store:
            assert 0 < len(store.indices()) < POINTS
        assert finish_run(spec(whole.data, memory), out) == whole.points
        assert finish_run(resumed_spec(out), out) == whole.points  # nothing is left to do
        assert facts(claims_of(memory)) == facts(whole.claims)

    def test_after_every_shard(self, whole: Whole, tmp_path: Path) -> None:
        memory, out = tmp_path / "memory.sqlite", tmp_path / "run"
        while True:
            try:
                points = finish_run(spec(whole.data, memory), out, stop_after=1)
                break
            except InterruptedRunError:
                continue
        assert points == whole.points
        assert facts(claims_of(memory)) == facts(whole.claims)

    @pytest.mark.parametrize("lost", range(12))
    def test_between_the_claims_and_the_store(self, whole: Whole, tmp_path: Path, lost: int) -> None:
        """As by kill -9: the claims of a shard are in the memory, but its points are not in the run."""
        memory, out = tmp_path / "memory.sqlite", tmp_path / "run"
        claim_without_storing(spec(whole.data, memory), out, shard=lost)
        assert finish_run(spec(whole.data, memory), out) == whole.points
        assert facts(claims_of(memory)) == facts(whole.claims)

    def test_an_abstention_before_the_claim_that_covers_it(self, tmp_path: Path) -> None:
        """The input abstained when its turn came. What was claimed after it must not change that on resuming."""
        x = np.array(
            [[0, 8], [1, 8], [0, -20], [2, 8]], dtype=np.float32
        )  # only the third is sure, and covers the rest
        np.savez(tmp_path / "x.npz", x=x, y=in_unit_ball(x))
        own = {"sigma": None, "sigma_rule": "memory_models:small_in_doubt", "search": None, "sigma_range": None}
        runs = [spec(tmp_path / "x.npz", tmp_path / f"{name}.sqlite", n=500, batch=1000, **own) for name in "ab"]
        never_stopped = finish_run(runs[0], tmp_path / "a")
        kept = [point.promise.settlement if point.promise else None for point in never_stopped]
        assert kept == [None, None, Settlement.WHOLE, Settlement.INHERITED]
        claim_without_storing(runs[1], tmp_path / "b", shard=0)
        assert finish_run(runs[1], tmp_path / "b") == never_stopped

    def test_moved_memory(self, whole: Whole, tmp_path: Path) -> None:
        memory, out = tmp_path / "memory.sqlite", tmp_path / "run"
        with pytest.raises(InterruptedRunError):
            finish_run(spec(whole.data, memory), out, stop_after=3)
        copied(memory, tmp_path / "moved.sqlite")
        moved = resumed_spec(out, memory=str(tmp_path / "moved.sqlite"))
        assert finish_run(moved, out) == whole.points

    def test_resuming_from_another_folder(self, whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InterruptedRunError):
            finish_run(spec(whole.data, "memory.sqlite"), Path("run"), stop_after=3)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert finish_run(resumed_spec(Path("../run")), Path("../run")) == whole.points


def claim_without_storing(settings: RunSpec, out: Path, *, shard: int) -> None:
    """Work up to this shard, and drop it after its claims were made."""
    at = 0
    with prepare_run(settings, out) as run:
        source = _read_source(run.dataset, run.indices, run.smoothed)
        for points in _shards(run, source, frozenset(), None):
            if at == shard:
                return
            run.store.add(points)
            at += 1
    raise AssertionError(f"there are only {at} shards")


class TestOtherMemories:
    @pytest.fixture
    def stopped(self, whole: Whole, tmp_path: Path) -> tuple[Path, Path]:
        """A run with some promises, and its memory."""
        memory, out = tmp_path / "memory.sqlite", tmp_path / "run"
        with pytest.raises(InterruptedRunError):
            finish_run(spec(whole.data, memory), out, stop_after=6)
        return memory, out

    def stored(self, out: Path) -> list[CertifiedPoint]:
        with RunStore.open(out) as store:
            return store.points()

    def test_missing(self, stopped: tuple[Path, Path]) -> None:
        memory, out = stopped
        before = self.stored(out)
        for part in memory.parent.glob("memory.sqlite*"):
            part.unlink()
        with pytest.raises(RunError, match=r"memory\.sqlite does not exist, but .*run has promised regions in one"):
            finish_run(resumed_spec(out), out)
        assert not memory.exists()  # and none was made
        assert self.stored(out) == before

    def test_another(self, stopped: tuple[Path, Path], whole: Whole, tmp_path: Path) -> None:
        """Of the same classifier, with the regions of another run."""
        _, out = stopped
        plane_points(tmp_path / "others.npz", seed=9)
        finish_run(spec(tmp_path / "others.npz", tmp_path / "other.sqlite"), tmp_path / "other")
        count = len(claims_of(tmp_path / "other.sqlite"))
        with pytest.raises(RunError, match=r"does not hold \d+ of the \d+ regions .* in a new run"):
            finish_run(resumed_spec(out, memory=str(tmp_path / "other.sqlite")), out)
        assert len(claims_of(tmp_path / "other.sqlite")) == count

    def test_that_of_another_classifier(self, stopped: tuple[Path, Path], whole: Whole, tmp_path: Path) -> None:
        _, out = stopped
        settings = spec(whole.data, tmp_path / "other.sqlite", sigma=0.3, max_inputs=5)
        finish_run(settings, tmp_path / "other")
        with pytest.raises(RunError, match="does not hold"):
            finish_run(resumed_spec(out, memory=str(tmp_path / "other.sqlite")), out)

    def test_put_back(self, stopped: tuple[Path, Path], whole: Whole, tmp_path: Path) -> None:
        memory, out = stopped
        copied(memory, tmp_path / "earlier.sqlite")
        with closing(sqlite3.connect(tmp_path / "earlier.sqlite")) as connection:
            last = connection.execute("SELECT max(position) FROM claims").fetchone()[0]
        put_back(tmp_path / "earlier.sqlite", last - 2)
        with pytest.raises(RunError) as caught:
            finish_run(resumed_spec(out, memory=str(tmp_path / "earlier.sqlite")), out)
        message = str(caught.value)
        assert f"the first at position {last - 1}" in message
        assert "does not hold 2 of the" in message
        assert "restored to an earlier state" in message
        # Also when others have claimed since: the places are taken by something else.
        plane_points(tmp_path / "others.npz", seed=9)
        finish_run(spec(tmp_path / "others.npz", tmp_path / "earlier.sqlite"), tmp_path / "other")
        with pytest.raises(RunError, match="does not hold"):
            finish_run(resumed_spec(out, memory=str(tmp_path / "earlier.sqlite")), out)

    def test_no_memory_any_more(self, stopped: tuple[Path, Path], whole: Whole) -> None:
        _, out = stopped
        with pytest.raises(InputError, match=r"this sigma has no envelope: .*--memory FILE"):
            finish_run(spec(whole.data, None), out)
        with pytest.raises(ManifestMismatchError, match="memory"):
            finish_run(spec(whole.data, None, sigma_rule=None, search=None, sigma_range=None), out)

    def test_something_else(self, stopped: tuple[Path, Path], tmp_path: Path) -> None:
        _, out = stopped
        (tmp_path / "text").write_text("no database at all, but long enough to have a header")
        with pytest.raises(RegionMemoryError, match="not a SQLite database"):
            finish_run(resumed_spec(out, memory=str(tmp_path / "text")), out)


class TestSharing:
    def test_the_same_run_twice_claims_nothing_new(self, whole: Whole, tmp_path: Path) -> None:
        memory = copied(whole.memory, tmp_path / "memory.sqlite")
        again = finish_run(spec(whole.data, memory), tmp_path / "again")
        for one, other in zip(whole.points, again, strict=True):
            if other.promise is not None and other.promise.settlement is not Settlement.INHERITED:
                assert other == one
        assert facts(claims_of(memory)) == facts(whole.claims)

    def test_the_same_data_with_other_noise_keeps_all_classes(self, whole: Whole, tmp_path: Path) -> None:
        memory = copied(whole.memory, tmp_path / "memory.sqlite")
        again = finish_run(spec(whole.data, memory, seed=6), tmp_path / "again")
        promised = {point.index: point.prediction for point in whole.points if point.prediction is not None}
        answers = {point.index: point.prediction for point in again}
        assert {index: answers[index] for index in promised} == promised
        assert_consistent(memory)

    def test_predict_follows(self, whole: Whole, tmp_path: Path) -> None:
        memory = copied(whole.memory, tmp_path / "memory.sqlite")
        settings = spec(whole.data, memory, task="predict", n0=None, seed=77)
        points = finish_run(settings, tmp_path / "predict")
        certified = {point.index: point for point in whole.points if point.prediction is not None}
        for point in points:
            if point.index in certified:
                assert point.prediction == certified[point.index].prediction
                assert point.promise is not None
        assert len(claims_of(memory)) == len(whole.claims)
        with RunStore.open(tmp_path / "predict") as store:
            back = store.points()
        assert without_times(back) == points
        assert [np.isnan(point.sigma) for point in back] == [not point.tallies for point in points]
        results = load_results(tmp_path / "predict")
        assert len(results) == POINTS

    def test_uniform_predictions_of_both_kinds_fit_in_one_run(self, tmp_path: Path) -> None:
        """Some answered by the memory, some by votes: one run, one norm."""
        data = plane_points(tmp_path / "points.npz")
        finish_run(spec(data, tmp_path / "memory.sqlite", noise="uniform", max_inputs=6), tmp_path / "certify")
        settings = spec(data, tmp_path / "memory.sqlite", noise="uniform", task="predict", n0=None)
        points = finish_run(settings, tmp_path / "predict")
        assert {point.promise is not None for point in points} == {True, False}
        results = load_results(tmp_path / "predict")
        assert results.norm is Norm.L1

    def test_two_processes_at_once(self, tmp_path: Path) -> None:
        """Different data into one file: whatever the interleaving, the memory is consistent and no claim is lost."""
        memory = tmp_path / "memory.sqlite"
        files = [plane_points(tmp_path / f"{seed}.npz", count=40, seed=seed) for seed in (1, 2)]
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=certify_elsewhere, args=(spec(file, memory), tmp_path / file.stem)) for file in files
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout=240)
        assert [process.exitcode for process in processes] == [0, 0]
        assert_consistent(memory)
        log = {claim.position: claim for claim in claims_of(memory)}
        positions: list[int] = []
        for file in files:
            with RunStore.open(tmp_path / file.stem) as store:
                points = store.points(with_tallies=False)
            assert len(points) == 40
            mine = [point for point in points if point.promise and point.promise.asked_label is not None]
            own = [point.promise.position for point in mine if point.promise]
            assert own == sorted(own)  # in the order of its inputs
            positions += own
            for point in mine:
                assert point.promise is not None
                claim = log[point.promise.position]
                assert (claim.label, claim.radius) == (point.promise.label, point.promise.radius)
        assert sorted(positions) == sorted(log)

    def test_two_threads_of_runs(self, whole: Whole, tmp_path: Path) -> None:
        """Two runs over the same data at once: every input of both gets an answer, and the answers agree."""
        memory = tmp_path / "memory.sqlite"
        found: dict[int, list[CertifiedPoint]] = {}
        threads = [
            threading.Thread(
                target=lambda seed=seed: found.update(
                    {seed: finish_run(spec(whole.data, memory, seed=seed, max_inputs=25), tmp_path / str(seed))}
                )
            )
            for seed in (1, 2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(found) == {1, 2}
        assert_consistent(memory)
        with open_existing(memory) as opened:
            inputs = np.load(whole.data)["x"]
            for points in found.values():
                for point in points:
                    kept = opened.lookup(inputs[point.index])
                    assert point.prediction is None or (kept is not None and kept.label == point.prediction)


def certify_elsewhere(settings: RunSpec, out: Path) -> None:
    with prepare_run(settings, out) as run:
        execute_run(run)


class TestRefusals:
    @pytest.mark.parametrize("several", ["gaussian,gaussian-two-class", "best-of(gaussian,gaussian-two-class)"])
    def test_several_certificates(self, whole: Whole, tmp_path: Path, several: str) -> None:
        with pytest.raises(InputError, match="name one certificate"):
            finish_run(spec(whole.data, tmp_path / "memory.sqlite", certificate=several), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        "changes", [{}, {"alpha": 0.01}, {"n": 100}, {"certificate": "gaussian-two-class"}], ids=str
    )
    def test_recertify(self, whole: Whole, changes: dict[str, object]) -> None:
        with pytest.raises(RunError, match="regions that a memory has promised"):
            recertify_run(whole.run, **changes)  # type: ignore[arg-type]

    def test_a_place_where_no_memory_can_be(self, whole: Whole, tmp_path: Path) -> None:
        for place, words in ((tmp_path, "is a directory"), (tmp_path / "no" / "where.sqlite", "does not exist")):
            with pytest.raises(RegionMemoryError, match=words):
                finish_run(spec(whole.data, place), tmp_path / "run")
        assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server of these tests; it asks for no password, and takes any."""
    pytest.importorskip("psycopg")
    from postgres_server import NoServerError, running_server

    try:
        with running_server() as address:
            yield address.replace("tester@", "tester:geheim@")
    except NoServerError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def test_a_run_on_a_server(server: str, whole: Whole, tmp_path: Path) -> None:
    """The same results as on a file, stopped and resumed; the password is in no file and no message."""
    heard: list[str] = []
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        finish_run(spec(whole.data, server), out, stop_after=4)
    with prepare_run(spec(whole.data, server), out, notice=heard.append) as run:
        execute_run(run)
        assert without_times(run.store.points()) == whole.points
        assert "geheim" not in repr(run.smoothed)
    gc.collect()  # a connection that was left open would warn now
    assert facts(claims_of(server)) == facts(whole.claims)
    assert any("memory postgresql://tester@" in line for line in heard)
    assert not any("geheim" in line for line in heard)
    for file in out.iterdir():
        assert b"geheim" not in file.read_bytes(), file
    stored = json.loads((out / "manifest.json").read_text())["spec"]["memory"]
    assert stored == server.replace(":geheim", "")
    assert finish_run(resumed_spec(out), out) == whole.points


def test_an_unreachable_server(whole: Whole, tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    address = "postgresql://tester:geheim@127.0.0.1:1/nowhere"
    with pytest.raises(RegionMemoryError, match="cannot be reached") as caught:
        finish_run(spec(whole.data, address), tmp_path / "run")
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "geheim" not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert not (tmp_path / "run").exists()


def test_a_copy_of_a_run_is_a_run(whole: Whole, tmp_path: Path) -> None:
    """A run directory can be taken along; its table needs no memory."""
    shutil.copytree(whole.run, tmp_path / "copy")
    assert load_results(tmp_path / "copy").notes[0].startswith("copy: regions kept by a memory")
