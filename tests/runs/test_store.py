"""The run on disk: what goes in comes out, nothing is overwritten, one writer, and damage is named."""

import json
import multiprocessing
import sqlite3
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sample_manifests import sample_manifest, sample_spec
from smoothcert.errors import (
    CorruptRunError,
    InputError,
    ManifestMismatchError,
    RunBusyError,
    RunError,
    SmoothcertError,
)
from smoothcert.questions import Votes
from smoothcert.records import CertifiedPoint, Smoothing, Stage, StreamId, Tally
from smoothcert.runs.store import RunStore
from smoothcert.spec import ConstantLevel, ModelSpec, RunManifest
from stored_answers import certify_votes

SEED = 12


def manifest(**of_spec: object) -> RunManifest:
    return sample_manifest(spec=sample_spec(**of_spec), seed=SEED, environment={"numpy": "2"})


def point(index: int, *, votes: int = 900, label: int | None = 1, invalid: int = 0) -> CertifiedPoint:
    def tally(stage: Stage, start: int, counts: list[int], invalid: int) -> Tally:
        stop = start + sum(counts) + invalid
        return Tally(StreamId(SEED, index, stage), 0.25, np.array(counts), invalid, ((start, stop),))

    item = Votes(
        index=index,
        label=label,
        selection=tally(Stage.SELECTION, 0, [10, 90, 0], 0),
        estimation=(
            tally(Stage.ESTIMATION, 0, [10, 90, 0], 0),
            tally(Stage.ESTIMATION, 100, [900 - votes, votes, 0], invalid),
        ),
        seconds=0.5,
    )
    return certify_votes([item], "gaussian-two-class", alpha=0.001, smoothing=Smoothing())[0]


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    points = [point(7), point(3, votes=0), point(5, label=None, invalid=4)]
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add(points[:2])
        store.add(points[2:])
    with RunStore.open(tmp_path / "run") as store:
        assert store.points() == sorted(points, key=lambda p: p.index)
        assert store.manifest == manifest()
        assert store.indices() == {3, 5, 7}
        light = store.points(with_tallies=False)
    assert [p.radius for p in light] == [p.radius for p in sorted(points, key=lambda p: p.index)]
    assert all(p.tallies == () for p in light)


def test_a_result_is_never_overwritten(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add([point(1)])
        with pytest.raises(RunError, match="already holds"):
            store.add([point(2), point(1, votes=0)])
        assert store.points() == [point(1)]
    with pytest.raises(RunError, match="never overwritten"):
        RunStore.create(tmp_path / "run", manifest())


def test_another_manifest_is_refused_with_the_difference(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run", manifest()).close()
    with pytest.raises(ManifestMismatchError, match=r"spec\.sigma\.level: the run has 0\.25, now 0\.5"):
        RunStore.resume(tmp_path / "run", manifest(sigma=ConstantLevel(level=0.5)))
    RunStore.resume(tmp_path / "run", manifest(model=ModelSpec(place="moved/here"))).close()


def test_another_version_of_the_code_or_of_a_library_resumes_the_run(tmp_path: Path) -> None:
    """Only SAMPLING_VERSION says that votes may differ."""
    RunStore.create(tmp_path / "run", manifest()).close()
    stored = manifest()
    digests = msgspec.structs.replace(stored.digests, code="9" * 64)
    later = msgspec.structs.replace(stored, digests=digests, environment={"numpy": "3"})
    with RunStore.resume(tmp_path / "run", later) as store:
        store.add([point(1)])
        assert store.manifest == stored  # what was written stays
    newer = msgspec.structs.replace(stored, sampling_version=stored.sampling_version + 1)
    with pytest.raises(ManifestMismatchError, match=r"sampling_version: the run has 1, now 2"):
        RunStore.resume(tmp_path / "run", newer)


def _hold(path: Path, ready: object, release: object) -> None:
    with RunStore.resume(path, manifest()):
        ready.set()  # type: ignore[attr-defined]
        release.wait(30)  # type: ignore[attr-defined]


def test_a_second_writer_is_refused_but_readers_are_welcome(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunStore.create(path, manifest()) as store:
        store.add([point(1)])
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(path, ready, release))
    other.start()
    try:
        assert ready.wait(30)
        with pytest.raises(RunBusyError, match="another process"):
            RunStore.resume(path, manifest())
        with RunStore.open(path) as store:
            assert len(store.points()) == 1
    finally:
        release.set()
        other.join(30)
    assert other.exitcode == 0
    RunStore.resume(path, manifest()).close()


def test_a_dead_writer_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "run"
    RunStore.create(path, manifest()).close()
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(path, ready, release))
    other.start()
    assert ready.wait(30)
    other.kill()
    other.join(30)
    RunStore.resume(path, manifest()).close()


def test_a_death_while_creating_leaves_a_place_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the results file and before the manifest: the same command must work again."""

    def killed(*_: object, **__: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("smoothcert.runs.store.write_atomically", killed)
        with pytest.raises(SystemExit):
            RunStore.create(tmp_path / "run", manifest())
    assert (tmp_path / "run" / "results.sqlite").exists()
    (tmp_path / "run" / ".manifest.json.abc.part").write_text("half")
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add([point(1)])
    assert not (tmp_path / "run" / ".manifest.json.abc.part").exists()


def test_results_without_a_manifest_are_not_thrown_away(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add([point(1)])
    (tmp_path / "run" / "manifest.json").unlink()
    with pytest.raises(RunError, match="never overwritten"):
        RunStore.create(tmp_path / "run", manifest())
    other = tmp_path / "other"
    other.mkdir()
    (other / "results.sqlite").write_text("somebody's file")
    with pytest.raises(RunError, match="never overwritten"):
        RunStore.create(other, manifest())
    with pytest.raises(RunError, match="is a file"):
        RunStore.create(other / "results.sqlite", manifest())


def test_a_store_opened_for_reading_takes_nothing(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add([point(1)])
    with RunStore.open(tmp_path / "run") as store, pytest.raises(RunError, match="for reading"):
        store.add([point(2)])


def test_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no manifest\.json"):
        RunStore.open(tmp_path)
    with pytest.raises(RunError, match=r"no manifest\.json"):
        RunStore.open(tmp_path / "missing")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"schema": 1}', b"\xff\xfe", b'{"schema":99,"task":1}']
)
def test_damaged_manifest(tmp_path: Path, content: bytes) -> None:
    RunStore.create(tmp_path / "run", manifest()).close()
    (tmp_path / "run" / "manifest.json").write_bytes(content)
    with pytest.raises(CorruptRunError):
        RunStore.open(tmp_path / "run")


def test_manifest_of_another_format(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run", manifest()).close()
    file = tmp_path / "run" / "manifest.json"
    document = json.loads(file.read_text()) | {"schema": 99}
    file.write_text(json.dumps(document))
    with pytest.raises(CorruptRunError, match="format 99"):
        RunStore.open(tmp_path / "run")


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add([point(1), point(2)])
    return tmp_path / "run"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE verdicts SET radius = -1.0",
        "UPDATE verdicts SET radius = 9e999",
        "UPDATE verdicts SET radius = 0.0",
        "UPDATE verdicts SET outcome = 'PERFECT'",
        "UPDATE verdicts SET norm = 'l7'",
        "UPDATE verdicts SET reason = 'some votes prove nothing'",
        'UPDATE verdicts SET reason = \'{"code": "whim"}\'',
        'UPDATE verdicts SET reason = \'{"code": "too-few-votes", "votes": 1, "n": 2}\'',
        "UPDATE verdicts SET reason = '[]'",
        "UPDATE verdicts SET bounds = '{'",
        "UPDATE verdicts SET bounds = '[]'",
        "UPDATE verdicts SET prediction = NULL",
        "UPDATE tallies SET counts = '{\"9\": 1}'",
        'UPDATE tallies SET counts = \'{"votes": {"9": 1}, "invalid": 0}\'',
        "UPDATE tallies SET counts = replace(counts, '\"invalid\": 0', '\"invalid\": 5')",
        "UPDATE tallies SET kind = 'guesses'",
        "UPDATE tallies SET kind = 'pairs'",
        "DELETE FROM verdicts",
        "UPDATE tallies SET stage = 'NOWHERE' WHERE stage = 'SELECTION'",
        "UPDATE tallies SET stop = start",
        "DROP TABLE tallies",
        "DROP TABLE points",
    ],
)
def test_damaged_rows_are_named_not_believed(damaged: Path, change: str) -> None:
    connection = sqlite3.connect(damaged / "results.sqlite")
    connection.execute(change)
    connection.commit()
    connection.close()
    with RunStore.open(damaged) as store, pytest.raises(CorruptRunError):
        store.points()


def test_damaged_file(damaged: Path) -> None:
    file = damaged / "results.sqlite"
    file.write_bytes(b"this is no database" * 100)
    with RunStore.open(damaged) as store, pytest.raises(CorruptRunError):
        store.points()
    file.unlink()
    with pytest.raises(CorruptRunError, match=r"no results\.sqlite"):
        RunStore.open(damaged)


@given(st.binary(max_size=200))
def test_any_manifest_bytes_give_a_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("run")
    (path / "manifest.json").write_bytes(content)
    with pytest.raises(SmoothcertError):
        RunStore.open(path)


def test_tallies_refuse_to_merge_wrongly() -> None:
    first, second = point(1).tallies[1:]
    assert (first + second).n == 1000
    with pytest.raises(InputError, match="counted twice"):
        first + first
    with pytest.raises(InputError, match="different streams"):
        first + point(2).tallies[2]
    with pytest.raises(InputError, match="different streams"):
        point(1).tallies[0] + second
