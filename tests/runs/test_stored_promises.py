"""Promises in the store of a run: they come back as they were, and a run without their table is refused."""

from __future__ import annotations

import dataclasses
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sample_manifests import sample_manifest, sample_spec
from sample_points import POINT, undecided
from smoothcert.errors import CorruptRunError, InputError
from smoothcert.records import CertifiedPoint, Noise, Outcome, Promise, Settlement
from smoothcert.runs.load import load_results
from smoothcert.runs.run_database import RESULTS
from smoothcert.runs.store import RunStore
from smoothcert.spec import DataFacts, FixedN, ModelFacts, NoiseSpec

DIGEST = "ab" * 32
MANIFEST = sample_manifest(
    spec=sample_spec(question=FixedN(n=10, n0=1), noise=NoiseSpec(kind=Noise.GAUSSIAN, grid=256, generator="chacha20")),
    model=ModelFacts(num_classes=4),
    data=DataFacts(name="data", input_shape=(4,), size=5, inputs=5),
)
GRID = MANIFEST.grid


def promise(settlement: Settlement, *, position: int, label: int = 3, radius: float = 0.5) -> Promise:
    asked = None if settlement is Settlement.INHERITED else (label if settlement is not Settlement.OVERRULED else 1)
    return Promise(
        label=label,
        radius=radius,
        position=position,
        settlement=settlement,
        asked_label=asked,
        asked_radius=0.0 if asked is None else 0.75,
        memory=DIGEST,
        entry="e" * 64,
    )


def numbered(index: int, kept: Promise | None) -> CertifiedPoint:
    tallies = tuple(
        dataclasses.replace(tally, stream=dataclasses.replace(tally.stream, index=index)) for tally in POINT.tallies
    )
    return dataclasses.replace(POINT, index=index, promise=kept, tallies=tallies, grid=GRID)


POINTS = [
    *(numbered(at, promise(one, position=at + 1)) for at, one in enumerate(Settlement)),
    dataclasses.replace(undecided(4, Outcome.ABSTAINED), grid=GRID),
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunStore.create(tmp_path / "run", MANIFEST) as store:
        store.add(POINTS)
    return tmp_path / "run"


def stored(path: Path) -> list[CertifiedPoint]:
    with RunStore.open(path) as store:
        return store.points()


def altered(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path / RESULTS)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_they_come_back(run: Path) -> None:
    assert stored(run) == POINTS
    with RunStore.open(run) as store:
        assert [point.promise for point in store.points(with_tallies=False)] == [point.promise for point in POINTS]


@pytest.mark.parametrize("radius", [0.0, 5e-324, 0.1 + 0.2, 1e300])
def test_a_radius_comes_back_to_the_bit(tmp_path: Path, radius: float) -> None:
    kept = promise(Settlement.CUT, position=2**62, radius=radius)
    with RunStore.create(tmp_path / "run", MANIFEST) as store:
        store.add([numbered(0, kept)])
    assert stored(tmp_path / "run")[0].promise == kept


def test_an_input_the_memory_answered_has_no_sigma(tmp_path: Path) -> None:
    point = dataclasses.replace(numbered(0, promise(Settlement.INHERITED, position=1)), sigma=math.nan, tallies=())
    with RunStore.create(tmp_path / "run", MANIFEST) as store:
        store.add([point])
    (back,) = stored(tmp_path / "run")
    assert math.isnan(back.sigma)
    assert dataclasses.replace(back, sigma=0.0) == dataclasses.replace(point, sigma=0.0)


def test_the_note_and_the_positions(run: Path) -> None:
    results = load_results(run)
    (note,) = results.notes
    assert "1 whole, 1 cut, 1 overruled, 1 inherited" in note
    assert "as long as the memory is kept and consulted" in note
    assert results.extra["position"][:4].tolist() == [1, 2, 3, 4]
    assert math.isnan(results.extra["position"][4])


def test_a_run_without_a_memory_has_neither(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", MANIFEST) as store:
        store.add([dataclasses.replace(point, promise=None) for point in POINTS])
    results = load_results(tmp_path / "run")
    assert "position" not in results.extra
    assert results.notes == []


class TestMissingTables:
    """Every run has all tables: a run that lacks one is damaged, or was made by an earlier version."""

    @pytest.fixture
    def lacking(self, run: Path, tmp_path: Path) -> Path:
        shutil.copytree(run, tmp_path / "lacking")
        altered(tmp_path / "lacking", "DROP TABLE seals")
        altered(tmp_path / "lacking", "DROP TABLE promises")
        return tmp_path / "lacking"

    def test_it_is_not_read(self, lacking: Path) -> None:
        for read in (stored, load_results):
            with pytest.raises(CorruptRunError, match="no such table: promises"):
                read(lacking)

    def test_it_is_not_resumed(self, lacking: Path) -> None:
        with RunStore.resume(lacking, MANIFEST) as store:
            with pytest.raises(CorruptRunError, match="no such table"):
                store.add([numbered(at, None) for at in (5, 6)])
            assert store.indices() == set(range(5))

    def test_a_promise_is_not_lost_in_silence(self, lacking: Path) -> None:
        """Half a shard must not be stored."""
        with RunStore.resume(lacking, MANIFEST) as store:
            with pytest.raises(CorruptRunError, match="promises"):
                store.add([numbered(5, None), numbered(6, promise(Settlement.WHOLE, position=9))])
            assert store.indices() == set(range(5))

    def test_nothing_is_stored_without_a_seal(self, run: Path) -> None:
        altered(run, "DELETE FROM seals")
        with RunStore.resume(run, MANIFEST) as store:
            with pytest.raises(CorruptRunError, match="seals are missing"):
                store.add([numbered(5, None)])
            assert store.indices() == set(range(5))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE promises SET radius = -1 WHERE idx = 1",
        "UPDATE promises SET radius = 9e999 WHERE idx = 1",
        "UPDATE promises SET settlement = 'LOST' WHERE idx = 1",
        "UPDATE promises SET asked_label = NULL WHERE idx = 1",
        "UPDATE promises SET settlement = 'INHERITED' WHERE idx = 1",
        "ALTER TABLE promises DROP COLUMN memory",
    ],
)
def test_damage_is_told(run: Path, damage: str) -> None:
    altered(run, damage)
    with pytest.raises(CorruptRunError, match=RESULTS):
        stored(run)


def test_a_promise_checks_itself() -> None:
    good = promise(Settlement.WHOLE, position=1)
    for wrong in ({"radius": -0.5}, {"radius": math.inf}, {"radius": math.nan}, {"asked_label": None}):
        with pytest.raises(InputError):
            dataclasses.replace(good, **wrong)
    with pytest.raises(InputError):
        dataclasses.replace(promise(Settlement.INHERITED, position=1), asked_label=2)


def test_float_noise_is_said_under_every_table_of_radii(tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", sample_manifest(model=MANIFEST.model, data=MANIFEST.data)) as store:
        store.add([dataclasses.replace(point, promise=None) for point in POINTS])
    (note,) = load_results(tmp_path / "run").notes
    assert "not sound in floating point" in note
