"""The log of a memory is computed again; every changed field of it is found, and so are regions that meet."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certified_documents import manifest
from cli_runner import invoke
from forging import CLAIM_COLUMNS, rechained
from memory_models import plane_points
from postgres_server import NoServerError, running_server
from smoothcert.cli.main import app
from smoothcert.memory import MemoryKey, open_memory
from smoothcert.memory.distances import ExactDistance
from smoothcert.records import Norm
from smoothcert_verify.document_checks import PROMISE, CheckedInput
from smoothcert_verify.findings import MalformedError, MemoryPlaceError
from smoothcert_verify.memory_log import MemoryReport, verify_memory
from smoothcert_verify.run_checks import verify_run
from smoothcert_verify.run_facts import read_run
from verified_runs import altered, changed

NOISE_OF_NORM = {"l2": "gaussian", "l1": "uniform"}


def certify(folder: Path, memory: object, *, out: str) -> Path:
    data = ("--model", "memory_models:ball_and_doubt", "--num-classes", 2, "--data", folder / "points.npz")
    rule = ("--sigma-rule", "optimised", "--sigma", 0.25, "--sigma-range", "0.05,4")
    small = ("--search", "grid:points=7,noises=16,check=16", "--n0", 20, "--n", 200, "--seed", 1, "--batch", 64)
    invoke(
        app, "certify", *data, "--input-range", "any", *rule, *small, "--memory", memory, "--out", folder / out
    )  # fmt: skip
    return folder / out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """points.npz, memory.sqlite and a run with regions that were cut and claims that were overruled."""
    place = tmp_path_factory.mktemp("memory")
    plane_points(place / "points.npz")
    certify(place, place / "memory.sqlite", out="run")
    return place


@pytest.fixture
def memory(folder: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    with closing(sqlite3.connect(folder / "memory.sqlite")) as old, closing(sqlite3.connect(tmp_path / "m")) as new:
        old.backup(new)
    return tmp_path / "m"


def inputs_of(run: Path) -> list[CheckedInput]:
    report = verify_run(run)
    assert report.discrepancies == []
    return report.entries


def with_document(one: CheckedInput, **parts: Any) -> CheckedInput:
    """The same input with other parts of its document, whose run is read again."""
    document = json.loads(json.dumps(one.read_again() | parts))
    return CheckedInput.of(document, read_run(document["run"]), one.read_again)


def codes(report: MemoryReport) -> list[str]:
    return [finding.code for finding in report.discrepancies]


@pytest.fixture(scope="module")
def documents(folder: Path) -> list[CheckedInput]:
    return inputs_of(folder / "run")


def one_report(memory: object, documents: list[CheckedInput]) -> MemoryReport:
    (report,) = verify_memory(str(memory), documents)
    return report


def test_a_fresh_memory_is_consistent(folder: Path, documents: list[CheckedInput]) -> None:
    report = one_report(folder / "memory.sqlite", documents)
    assert report.discrepancies == []
    with closing(sqlite3.connect(folder / "memory.sqlite")) as connection:
        settled = dict(connection.execute("SELECT settlement, count(*) FROM claims GROUP BY settlement"))
    assert report.claims == sum(settled.values())
    assert settled.keys() == {"WHOLE", "CUT", "OVERRULED"}
    # What was cut touches its neighbour almost: only whole numbers tell.
    assert report.counter.exact >= settled["CUT"] + settled["OVERRULED"]
    assert report.promises == sum(one.promise is not None for one in documents)


def test_a_postgres_memory(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "points.npz", tmp_path)
    try:
        with running_server() as address:
            run = certify(tmp_path, address, out="run")
            report = one_report(address, inputs_of(run))
            assert report.discrepancies == []
            assert report.claims > 0
            with pytest.raises(MemoryPlaceError) as refused:
                verify_memory(address.replace("tester@", "nobody:secret@"), inputs_of(run))
            assert "secret" not in str(refused.value)
    except NoServerError as error:
        pytest.skip(str(error))


class TestMutations:
    @pytest.mark.parametrize("column", CLAIM_COLUMNS)
    @pytest.mark.parametrize("which", ["ASC", "DESC"])
    def test_every_column_of_a_claim(
        self, memory: Path, documents: list[CheckedInput], column: str, which: str
    ) -> None:
        with closing(sqlite3.connect(memory)) as connection:
            query = f"SELECT position, {column} FROM claims ORDER BY position {which} LIMIT 1"
            position, value = connection.execute(query).fetchone()
            new = bytes([value[0] ^ 1]) + value[1:] if isinstance(value, bytes) else changed(value)
            if column == "position":
                new = 10**6
            connection.execute(f"UPDATE claims SET {column} = ? WHERE position = ?", (new, position))
            connection.commit()
        assert one_report(memory, documents).discrepancies

    @pytest.mark.parametrize("column", ["digest", "key", "identity"])
    def test_every_column_of_a_memory(self, memory: Path, documents: list[CheckedInput], column: str) -> None:
        altered(memory, f"UPDATE memories SET {column} = substr({column}, 2) || 'x'")
        assert one_report(memory, documents).discrepancies

    @pytest.mark.parametrize("position", ["1", "7", "(SELECT max(position) FROM claims)"])
    def test_a_claim_is_deleted(self, memory: Path, documents: list[CheckedInput], position: str) -> None:
        altered(memory, f"DELETE FROM claims WHERE position = {position}")
        assert one_report(memory, documents).discrepancies

    @pytest.mark.parametrize(
        "change",
        [
            "UPDATE heads SET claims = claims + 1",
            "UPDATE heads SET entry = identity",
            "UPDATE heads SET identity = substr(identity, 2) || 'x'",
            "UPDATE heads SET key = key || ' '",
            "UPDATE heads SET memory = 9",
            "DELETE FROM heads",
        ],
    )
    def test_the_head_is_kept_apart(self, memory: Path, documents: list[CheckedInput], change: str) -> None:
        altered(memory, change)
        assert "other-head" in codes(one_report(memory, documents))

    def test_claims_that_no_promise_needs_are_missed_too(self, memory: Path, documents: list[CheckedInput]) -> None:
        altered(memory, "DELETE FROM claims WHERE position > 1")
        first = [one for one in documents if one.promise and one.promise["position"] == 1]
        assert first
        assert "other-head" in codes(one_report(memory, first))

    def test_an_earlier_version_is_refused(self, memory: Path, documents: list[CheckedInput]) -> None:
        with closing(sqlite3.connect(memory, isolation_level=None)) as connection:
            connection.execute("PRAGMA user_version = 1")
        with pytest.raises(MemoryPlaceError, match="format 1; only format 2"):
            verify_memory(str(memory), documents)

    def test_two_claims_change_places(self, memory: Path, documents: list[CheckedInput]) -> None:
        altered(
            memory,
            "UPDATE claims SET position = -1 WHERE position = 3",
            "UPDATE claims SET position = 3 WHERE position = 4",
            "UPDATE claims SET position = 4 WHERE position = -1",
        )
        assert one_report(memory, documents).discrepancies

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("label", 5), ("radius", 9.0), ("position", 10**6), ("settlement", "WHOLE?"), ("asked_label", 7),
            ("asked_radius", 1e-3), ("memory", "0" * 32), ("entry", "0" * 64), ("position", "1"), ("radius", None),
        ],
    )  # fmt: skip
    def test_every_field_of_a_promise(
        self, folder: Path, documents: list[CheckedInput], field: str, value: object
    ) -> None:
        first = next(place for place, one in enumerate(documents) if one.promise is not None)
        promise = (documents[first].promise or {}) | {field: value}
        if type(value) is not type((documents[first].promise or {})[field]) or value == "WHOLE?":
            with pytest.raises(MalformedError):  # a document with such a promise is refused before
                PROMISE(promise, "promise")
            return
        others = [*documents[:first], with_document(documents[first], promise=promise), *documents[first + 1 :]]
        assert one_report(folder / "memory.sqlite", others).discrepancies

    def test_it_is_the_memory_of_another_model(self, folder: Path, documents: list[CheckedInput]) -> None:
        run = documents[0].read_again()["run"]
        told = with_document(documents[0], run=run | {"digests": run["digests"] | {"model": "0" * 64}})
        (found,) = [
            f for f in one_report(folder / "memory.sqlite", [told]).discrepancies if f.code == "another-classifier"
        ]
        assert found.values["field"] == "model"

    def test_it_is_not_there(self, folder: Path, documents: list[CheckedInput]) -> None:
        run = documents[0].read_again()["run"]
        told = with_document(documents[0], run=run | {"digests": run["digests"] | {"memory": "0" * 64}})
        assert codes(one_report(folder / "memory.sqlite", [told])) == ["no-such-memory"]


class TestForgery:
    """With a new chain, what cannot be is found all the same."""

    @pytest.mark.parametrize(
        "change",
        [
            # What was cut had no room for more: one step of a float is too much.
            "UPDATE claims SET radius = radius * (1 + 4e-16), asked_radius = asked_radius + 1 WHERE settlement = 'CUT'",
            "UPDATE claims SET radius = radius + 1e-9, asked_radius = asked_radius + 1 WHERE settlement = 'OVERRULED'",
            "UPDATE claims SET label = 1 - label, asked_label = 1 - asked_label WHERE position = 1",
            "UPDATE claims SET asked_radius = asked_radius / 2 WHERE position = 1",
            "UPDATE claims SET settlement = 'WHOLE' WHERE settlement = 'CUT'",
            "UPDATE claims SET settlement = 'CUT' WHERE position = 1",
            "UPDATE claims SET settlement = 'INHERITED' WHERE position = 1",
            "UPDATE claims SET radius = 9e999 WHERE position = 1",
            "UPDATE claims SET label = -1 WHERE position = 1",
            "UPDATE claims SET centre = x'00' WHERE position = 1",
        ],
    )
    def test_claims(self, memory: Path, documents: list[CheckedInput], change: str) -> None:
        altered(memory, change)
        rechained(memory)
        found = one_report(memory, documents).discrepancies
        of_promises = {"another-log", "differs"}
        assert [finding for finding in found if finding.code not in of_promises]


@pytest.fixture(scope="module", params=["l2", "l1"])
def claims(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    norm = Norm(request.param)
    place = tmp_path_factory.mktemp("many") / "memory.sqlite"
    shape = json.dumps({"input_shape": [12], "input_range": None})
    key = MemoryKey(
        model="0" * 64,
        sigma_rule="4" * 64,
        noise=NOISE_OF_NORM[norm.value],
        norm=norm,
        preprocessing=hashlib.sha256(shape.encode()).hexdigest(),
        dimension=12,
    )
    generator = np.random.default_rng(5)
    with open_memory(place, key) as memory:
        for _ in range(400):
            x = generator.random(12).astype(np.float32)
            memory.claim(x, int(generator.integers(3)), float(generator.random()) * (1.0 if norm == "l2" else 3.0))
    return place, key.noise, key.digest


class TestGeometry:
    """Many regions, by the memory itself: consistent, and one step larger is not."""

    @staticmethod
    def promised(noise: str, digest: str) -> CheckedInput:
        described = manifest(certificate="gaussian", noise=noise, sigma=None, shape=(12,), memory=digest)
        run = json.loads(json.dumps(described.to_json()))
        return CheckedInput(read_run(run), 0, None, None, None, (), dict)

    def test_consistent(self, claims: tuple[Path, str, str]) -> None:
        place, *named = claims
        report = one_report(place, [self.promised(*named)])
        assert report.discrepancies == []
        assert report.claims == 400
        assert report.counter.exact > 100

    def test_every_cut_region_one_step_larger(self, claims: tuple[Path, str, str], tmp_path: Path) -> None:
        place, *named = claims
        shutil.copy(place, tmp_path / "m")
        with closing(sqlite3.connect(tmp_path / "m")) as connection:
            rows = connection.execute("SELECT position, radius FROM claims WHERE settlement = 'CUT'").fetchall()
            for position, radius in rows:
                larger = float(np.nextafter(radius, np.inf))
                connection.execute("UPDATE claims SET radius = ? WHERE position = ?", (larger, position))
            connection.commit()
        rechained(tmp_path / "m")
        found = codes(one_report(tmp_path / "m", [self.promised(*named)]))
        meeting = [code for code in found if code == "regions-meet"]
        # Some rooms end where no float32 is; those that were cut to touch are all found.
        assert len(meeting) >= 0.9 * len(rows) > 10

    def test_it_agrees_with_the_memory_s_own_arithmetic(self) -> None:
        from smoothcert_verify.memory_geometry import Regions

        generator = np.random.default_rng(1)
        centres = (generator.normal(size=(6, 5)) * 10.0 ** generator.integers(-30, 30, size=(6, 5))).astype(np.float32)
        for norm in Norm:
            nothing = np.zeros(6)
            whole = nothing.astype(np.int64)
            regions = Regions(whole, whole, nothing, nothing.astype(bool), centres, norm.value, {})
            for one in range(6):
                for other in range(6):
                    theirs = ExactDistance.between(centres[one], centres[other], norm=norm)
                    for length in (Fraction(0), Fraction(1, 3), Fraction(float(abs(centres).max()))):
                        assert regions.are_farther(one, other, length) == theirs.exceeds(length)


class TestWhereInputsLie:
    """With the data at hand: an input is the centre of its claim, or lies inside a region as deep as it says."""

    @pytest.fixture
    def inputs(self, folder: Path) -> np.ndarray:
        points: np.ndarray = next(iter(np.load(folder / "points.npz").values()))
        return points.reshape(len(points), -1).astype(np.float32)

    @pytest.fixture
    def inherited(self, documents: list[CheckedInput]) -> CheckedInput:
        """An answer within a region; where the run has none, one that a claim of its own is made into."""
        own = next(one for one in documents if one.promise and one.promise["settlement"] == "WHOLE")
        inherited = {"settlement": "INHERITED", "asked_label": None, "asked_radius": 0.0}
        return with_document(own, promise=(own.promise or {}) | inherited)

    def measured(self, folder: Path, one: CheckedInput, inputs: np.ndarray) -> list[str]:
        (report,) = verify_memory(str(folder / "memory.sqlite"), [one], inputs=inputs.__getitem__)
        assert report.unmeasured == 0
        return codes(report)

    def test_honest(self, folder: Path, documents: list[CheckedInput], inputs: np.ndarray) -> None:
        (report,) = verify_memory(str(folder / "memory.sqlite"), documents, inputs=inputs.__getitem__)
        assert (report.discrepancies, report.unmeasured) == ([], 0)
        resting = [one for one in documents if one.by_another_claim]
        assert resting
        assert one_report(folder / "memory.sqlite", documents).unmeasured == len(resting)

    def test_one_step_more_than_the_region(self, folder: Path, inherited: CheckedInput, inputs: np.ndarray) -> None:
        """At the centre all of the region remains; half of a point away, half of it does."""
        assert inherited.promise is not None
        radius, index = inherited.promise["radius"], inherited.index
        assert self.measured(folder, inherited, inputs) == []
        moved = inputs.copy()
        moved[index, 0] += np.float32(radius / 2)
        away = abs(Fraction(float(moved[index, 0])) - Fraction(float(inputs[index, 0])))
        remaining = float(Fraction(radius) - away)
        while Fraction(remaining) + away > Fraction(radius):
            remaining = float(np.nextafter(remaining, 0))
        inherited.promise["radius"] = remaining
        assert self.measured(folder, inherited, moved) == []
        larger = float(np.nextafter(remaining, 1))
        while Fraction(larger) + away <= Fraction(radius):
            larger = float(np.nextafter(larger, 1))
        inherited.promise["radius"] = larger
        assert "not-in-region" in self.measured(folder, inherited, moved)

    def test_the_claim_of_another_input(self, folder: Path, documents: list[CheckedInput], inputs: np.ndarray) -> None:
        shifted = np.roll(inputs, 1, axis=0)
        found = self.measured(folder, documents[0], shifted)
        assert "claim-of-another-input" in found


class TestPlaces:
    def test_nothing_there(self, tmp_path: Path, documents: list[CheckedInput]) -> None:
        with pytest.raises(MemoryPlaceError, match="does not exist"):
            verify_memory(str(tmp_path / "none"), documents)

    def test_no_database(self, tmp_path: Path, documents: list[CheckedInput]) -> None:
        (tmp_path / "text").write_text("not a database, but long enough to look like one" * 40)
        with pytest.raises(MemoryPlaceError, match="cannot be read as a memory"):
            verify_memory(str(tmp_path / "text"), documents)

    def test_a_run_is_no_memory(self, folder: Path, documents: list[CheckedInput]) -> None:
        with pytest.raises(MemoryPlaceError, match="something else"):
            verify_memory(str(folder / "run" / "results.sqlite"), documents)

    def test_an_address_is_not_repeated(self, documents: list[CheckedInput]) -> None:
        with pytest.raises(MemoryPlaceError) as refused:
            verify_memory("mysql://me:secret@there", documents)
        assert "secret" not in str(refused.value)

    def test_nothing_is_written(self, folder: Path, documents: list[CheckedInput], memory: Path) -> None:
        before = memory.read_bytes()
        one_report(memory, documents)
        assert memory.read_bytes() == before
