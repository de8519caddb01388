"""Runs of every kind are proved; whatever is changed in one is found.

A verifier that only recomputed radii would miss labels, seconds, digests, seeds and missing inputs; one that only
compared digests would believe whoever makes new ones. Both are tried here.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from smoothcert.runs.certificate_documents import write_certificates
from smoothcert_verify.reports import Report
from smoothcert_verify.run_checks import verify_certificates, verify_run
from verified_runs import KINDS, SPLIT_KINDS, altered, changed, copy_of, leaves, make_run, resealed, with_change

TABLES = {
    "points": ("idx", "label", "sigma", "seconds"),
    "verdicts": ("idx", "place", "certificate", "prediction", "radius", "norm", "outcome", "reason", "bounds"),
    "tallies": ("idx", "stage", "start", "stop", "sigma", "kind", "num_classes", "counts", "sums"),
    "promises": (
        "idx", "label", "radius", "position", "settlement", "asked_label", "asked_radius", "memory", "entry",
    ),
    "seals": ("position", "idx", "seal"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def votes(folder: Path) -> Path:
    return make_run("votes", folder / "of votes")


@pytest.fixture(scope="module")
def remembered(folder: Path) -> Path:
    return make_run("memory", folder / "of a memory")


def checked(run: Path, *, unfinished: bool = False) -> Report:
    return verify_run(run, unfinished=unfinished)


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.discrepancies]


def first_radius(run: Path) -> float:
    with closing(sqlite3.connect(run / "results.sqlite")) as connection:
        radius = connection.execute("SELECT radius FROM verdicts WHERE idx = 0").fetchone()[0]
    return float(radius)


@pytest.mark.parametrize("kind", [*KINDS, *SPLIT_KINDS])
def test_a_fresh_run_is_proved(kind: str, folder: Path, tmp_path: Path) -> None:
    run = make_run(kind, folder / "fresh" / kind)
    report = checked(run)
    assert report.discrepancies == []
    files = write_certificates(run, tmp_path / "certificates")
    exported = verify_certificates(tmp_path / "certificates")
    assert exported.discrepancies == []
    assert (exported.inputs, exported.bounds, exported.radii) == (report.inputs, report.bounds, report.radii)
    assert len(files) == report.inputs > 0


def test_what_is_counted(votes: Path) -> None:
    report = checked(votes)
    assert (report.inputs, report.bounds) == (4, 4)
    assert 0 < report.radii <= 4
    assert report.alpha == pytest.approx(0.001 * report.radii)


def test_float_noise_is_remarked_on(folder: Path) -> None:
    for kind, expected in (("uniform", []), ("float-noise", [("float-noise", 4)])):
        remarks = checked(make_run(kind, folder / "float")).remarks
        assert [(remark.code, inputs) for remark, inputs in remarks] == expected


class TestMutations:
    """Each changes one field of a run, and each must be found."""

    def test_every_field_of_the_manifest(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        manifest = json.loads((run / "manifest.json").read_text())
        places = [at for at, _ in leaves(manifest)]
        assert len(places) > 50
        for at in places:
            (run / "manifest.json").write_text(json.dumps(with_change(manifest, at)))
            assert checked(run).discrepancies, f"{at} was changed and nobody noticed"

    @pytest.mark.parametrize("field", ["schema", "spec", "seed", "digests", "measured", "recertified_from"])
    def test_a_field_of_the_manifest_is_missing(self, votes: Path, tmp_path: Path, field: str) -> None:
        run = copy_of(votes, tmp_path)
        manifest = json.loads((run / "manifest.json").read_text())
        del manifest[field]
        (run / "manifest.json").write_text(json.dumps(manifest))
        assert checked(run).discrepancies

    @pytest.mark.parametrize(("table", "column"), [(table, column) for table in TABLES for column in TABLES[table]])
    def test_every_column_of_every_table(self, remembered: Path, tmp_path: Path, table: str, column: str) -> None:
        run = copy_of(remembered, tmp_path)
        with closing(sqlite3.connect(run / "results.sqlite")) as connection:
            rowid, value = connection.execute(f"SELECT rowid, {column} FROM {table} ORDER BY rowid LIMIT 1").fetchone()
            new = b"x" if column == "sums" else -5 if (column, value) == ("idx", None) else changed(value)
            if column in ("idx", "position"):
                new = 999_999
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, rowid))
            connection.commit()
        assert checked(run).discrepancies

    @pytest.mark.parametrize("table", list(TABLES))
    @pytest.mark.parametrize("which", ["ASC", "DESC"])
    def test_a_row_is_deleted(self, remembered: Path, tmp_path: Path, table: str, which: str) -> None:
        run = copy_of(remembered, tmp_path)
        altered(
            run / "results.sqlite",
            f"DELETE FROM {table} WHERE rowid = (SELECT rowid FROM {table} ORDER BY rowid {which} LIMIT 1)",
        )
        assert checked(run).discrepancies

    def test_an_input_is_deleted_with_all_its_rows(self, remembered: Path, tmp_path: Path) -> None:
        for index in (0, 60, 180):
            run = copy_of(remembered, tmp_path)
            altered(run / "results.sqlite", *(f"DELETE FROM {table} WHERE idx = {index}" for table in TABLES))
            assert "missing-inputs" in codes(checked(run))

    @pytest.mark.parametrize("toward", [0.0, math.inf])
    def test_a_radius_by_one_unit_in_the_last_place(self, votes: Path, tmp_path: Path, toward: float) -> None:
        run = copy_of(votes, tmp_path)
        radius = first_radius(run)
        altered(
            run / "results.sqlite", f"UPDATE verdicts SET radius = {math.nextafter(radius, toward)!r} WHERE idx = 0"
        )
        assert any(finding.where.startswith("input 0") for finding in checked(run).discrepancies)

    def test_two_inputs_change_places(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        for table in ("points", "verdicts", "tallies"):
            altered(
                run / "results.sqlite",
                f"UPDATE {table} SET idx = -1 WHERE idx = 120",
                f"UPDATE {table} SET idx = 120 WHERE idx = 180",
                f"UPDATE {table} SET idx = 180 WHERE idx = -1",
            )
        assert codes(checked(run)).count("seal-broken") == 2

    def test_two_seals_change_places(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        altered(
            run / "results.sqlite",
            "UPDATE seals SET position = -1 WHERE position = 1",
            "UPDATE seals SET position = 1 WHERE position = 2",
            "UPDATE seals SET position = 2 WHERE position = -1",
        )
        assert checked(run).discrepancies

    def test_an_input_is_put_in(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        altered(run / "results.sqlite", "INSERT INTO points SELECT 1, label, sigma, seconds FROM points WHERE idx = 0")
        assert ("not-sealed", "input 1") in [(finding.code, finding.where) for finding in checked(run).discrepancies]

    @pytest.mark.parametrize("name", ["manifest.json", "results.sqlite"])
    def test_a_file_is_missing_or_damaged(self, votes: Path, tmp_path: Path, name: str) -> None:
        run = copy_of(votes, tmp_path)
        (run / name).write_bytes(b"{" + (run / name).read_bytes()[1:200])
        assert checked(run).discrepancies
        (run / name).unlink()
        (finding,) = checked(run).discrepancies
        assert (finding.code, finding.values["name"]) == ("missing-file", name)

    def test_the_rule_for_sigma_is_another(self, folder: Path, tmp_path: Path) -> None:
        run = copy_of(make_run("envelope", folder / "rule"), tmp_path)
        rule = run / "sigma.safetensors"
        changed = bytearray(rule.read_bytes())
        changed[-1] ^= 1
        rule.write_bytes(bytes(changed))
        assert any(finding.where == "sigma.safetensors" for finding in checked(run).discrepancies)
        for content in (b"\xff" * 8, b"abc", b"", (2).to_bytes(8, "little") + b"[]"):
            rule.write_bytes(content)
            assert any(finding.where == "sigma.safetensors" for finding in checked(run).discrepancies)


class TestIndex:
    """A directory of certificates that is not what its index says."""

    @pytest.fixture
    def exported(self, votes: Path, tmp_path: Path) -> Path:
        write_certificates(votes, tmp_path / "exported")
        return tmp_path / "exported"

    def change(self, exported: Path, **changes: object) -> None:
        file = exported / "certificates.index"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    def test_a_certificate_is_missing(self, exported: Path) -> None:
        """A directory with half of the certificates was verified as if it were whole."""
        (exported / "certificate-000060.json").unlink()
        (finding,) = verify_certificates(exported).discrepancies
        assert (finding.code, finding.values["missing"]) == ("missing-certificates", 1)
        assert "certificate-000060.json" in str(finding)

    def test_an_export_was_cut_short(self, exported: Path) -> None:
        self.change(exported, digests=None)
        (finding,) = verify_certificates(exported).discrepancies
        assert str(finding).startswith("4 of 4 certificates are there: the export was cut short")
        for file in exported.glob("*.json"):
            file.unlink()
        assert set(codes(verify_certificates(exported))) == {"unfinished-export"}

    def test_a_certificate_too_many(self, exported: Path, folder: Path) -> None:
        (other,) = write_certificates(make_run("dipole", folder / "index"), exported.parent / "other")[:1]
        (exported / "more.json").write_bytes(other.read_bytes())
        assert set(codes(verify_certificates(exported))) == {"not-in-index"}

    def test_another_certificate(self, exported: Path, folder: Path) -> None:
        (other,) = write_certificates(make_run("dipole", folder / "index"), exported.parent / "other")[:1]
        (exported / other.name).write_bytes(other.read_bytes())
        assert set(codes(verify_certificates(exported))) == {"not-as-indexed"}

    def test_the_index_itself(self, exported: Path) -> None:
        self.change(exported, certificates=5)
        assert set(codes(verify_certificates(exported))) == {"differs"}
        self.change(exported, certificates=4, run_digest="0" * 64)
        assert set(codes(verify_certificates(exported))) == {"not-as-indexed"}
        for content in ("{", "[]", "{}", json.dumps({"digests": []})):
            (exported / "certificates.index").write_text(content)
            assert verify_certificates(exported).discrepancies

    def test_without_an_index_it_is_remarked_on(self, exported: Path) -> None:
        """As of certificates of earlier versions, or of some that somebody passed on."""
        (exported / "certificates.index").unlink()
        report = verify_certificates(exported)
        assert report.discrepancies == []
        assert [remark.code for remark, _ in report.remarks] == ["no-index"]
        (file, *_) = sorted(exported.glob("*.json"))
        assert verify_certificates(file).remarks == []


class TestForgery:
    """The same with new seals: what is proved, and what the manifest asks for, is found all the same."""

    def first_counts(self, run: Path, stage: str) -> tuple[int, dict[str, dict[str, int]]]:
        with closing(sqlite3.connect(run / "results.sqlite")) as connection:
            rowid, counts = connection.execute(
                "SELECT rowid, counts FROM tallies WHERE stage = ? ORDER BY stop DESC LIMIT 1", (stage,)
            ).fetchone()
        return rowid, json.loads(counts)

    @pytest.mark.parametrize("stage", ["SELECTION", "ESTIMATION"])
    @pytest.mark.parametrize("by", [1, -1])
    def test_counts(self, votes: Path, tmp_path: Path, stage: str, by: int) -> None:
        run = copy_of(votes, tmp_path)
        rowid, counts = self.first_counts(run, stage)
        label = max(counts["votes"], key=lambda name: counts["votes"][name])
        counts["votes"][label] += by
        altered(run / "results.sqlite", f"UPDATE tallies SET counts = '{json.dumps(counts)}' WHERE rowid = {rowid}")
        resealed(run)
        assert checked(run).discrepancies

    def test_a_radius_that_is_a_little_larger(self, votes: Path, tmp_path: Path) -> None:
        """Radii are rounded to the safe side by less than this."""
        run = copy_of(votes, tmp_path)
        altered(
            run / "results.sqlite", f"UPDATE verdicts SET radius = {first_radius(run) * (1 + 1e-9)!r} WHERE idx = 0"
        )
        resealed(run)
        assert any(finding.where.startswith("input 0") for finding in checked(run).discrepancies)

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE points SET label = 10 WHERE idx = 0",
            "UPDATE points SET label = -1 WHERE idx = 0",
            "UPDATE points SET sigma = 0.26 WHERE idx = 0",
            "UPDATE points SET sigma = NULL WHERE idx = 0",
            "UPDATE points SET seconds = -1.0 WHERE idx = 0",
            "UPDATE points SET seconds = 9e999 WHERE idx = 0",
            "UPDATE verdicts SET certificate = 'li' WHERE idx = 0",
            "UPDATE verdicts SET prediction = 1 - prediction WHERE idx = 0",
            "UPDATE verdicts SET norm = 'l1' WHERE idx = 0",
            "UPDATE verdicts SET outcome = 'PREDICTED' WHERE idx = 0",
            "UPDATE verdicts SET outcome = 'certified' WHERE idx = 0",
            "UPDATE verdicts SET place = 1 WHERE idx = 0",
            "UPDATE verdicts SET bounds = NULL WHERE idx = 0",
            "UPDATE verdicts SET bounds = '{' WHERE idx = 0",
            "UPDATE verdicts SET bounds = json_set(bounds, '$.spent.clopper-pearson', 0.002) WHERE idx = 0",
            "UPDATE verdicts SET bounds = json_set(bounds, '$.label', 1) WHERE idx = 0",
            "UPDATE verdicts SET bounds = json_set(bounds, '$.quantities.p-a.value', 0.9999) WHERE idx = 0",
            "UPDATE tallies SET sigma = 0.26 WHERE idx = 0 AND stage = 'SELECTION'",
            "UPDATE tallies SET stage = 'PREDICTION' WHERE idx = 0 AND stage = 'SELECTION'",
            "UPDATE tallies SET stop = stop + 1 WHERE idx = 0 AND stage = 'SELECTION'",
            "UPDATE tallies SET start = 1 WHERE idx = 0 AND stage = 'SELECTION'",
            "UPDATE tallies SET kind = 'pairs' WHERE idx = 0",
            "UPDATE tallies SET kind = 'nothing' WHERE idx = 0",
            "UPDATE tallies SET num_classes = 11 WHERE idx = 0",
            "UPDATE tallies SET counts = '[]' WHERE idx = 0",
            "UPDATE tallies SET counts = 'NaN' WHERE idx = 0",
            "UPDATE tallies SET sums = x'00' WHERE idx = 0",
            "DELETE FROM tallies WHERE idx = 0 AND stage = 'SELECTION'",
            "DELETE FROM tallies WHERE idx = 0 AND start = 0 AND stage = 'ESTIMATION'",
            "DELETE FROM verdicts WHERE idx = 0",
            "INSERT INTO promises VALUES (0, 1, 0.5, 1, 'WHOLE', 1, 0.5, 'a', 'b')",
            "INSERT INTO promises VALUES (7, 1, 0.5, 1, 'WHOLE', 1, 0.5, 'a', 'b')",
        ],
    )
    def test_rows(self, votes: Path, tmp_path: Path, statement: str) -> None:
        run = copy_of(votes, tmp_path)
        altered(run / "results.sqlite", statement)
        resealed(run)
        assert checked(run).discrepancies

    @pytest.mark.parametrize(
        ("place", "value"),
        [
            ("spec.alpha", 0.0005),
            ("spec.alpha", 0.002),
            ("spec.question.n", 201),
            ("spec.question.n0", 19),
            ("spec.data.skip", 61),
            ("spec.data.max_inputs", 3),
            ("data.inputs", 5),
            ("spec.sigma.level", 0.5),
            ("spec.certificates", ["gaussian-two-class"]),
            ("spec.noise.kind", "uniform"),
            ("spec.noise.kind", 3),
            ("measured.batch", "many"),
            ("digests.memory", "0" * 64),
            ("model.num_classes", 11),
            ("model.num_classes", 10**30),
            ("data.size", 3),
            ("data.size", 10**40),
            ("data.input_shape", []),
            ("data.input_shape", [10**200, 10**200]),
        ],
    )
    def test_settings(self, votes: Path, tmp_path: Path, place: str, value: object) -> None:
        run = copy_of(votes, tmp_path)
        manifest = json.loads((run / "manifest.json").read_text())
        changed = with_change(manifest, tuple(place.split(".")), lambda _: value)
        (run / "manifest.json").write_text(json.dumps(changed))
        resealed(run)
        assert checked(run).discrepancies

    @pytest.mark.parametrize(("index", "found"), [(180, []), (0, ["impossible-model-checks"])])
    def test_counts_of_shards_that_were_drawn_ahead(
        self, votes: Path, tmp_path: Path, index: int, found: list[str]
    ) -> None:
        """A cluster draws ahead: copies may be asked about in a later shard than they are counted in, never earlier."""
        run = copy_of(votes, tmp_path)
        altered(
            run / "results.sqlite",
            "UPDATE model_checks SET asked = asked - 5, idx = 60",
            f"INSERT INTO model_checks (idx, drawn, asked, ties) VALUES ({index}, 0, 5, 0)",
        )
        resealed(run)
        assert [finding.code for finding in checked(run).discrepancies] == found

    def test_an_input_taken_out(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        for table in ("seals", "tallies", "verdicts", "points"):
            altered(run / "results.sqlite", f"DELETE FROM {table} WHERE idx = 180")
        altered(run / "results.sqlite", "UPDATE model_checks SET idx = 120 WHERE idx = 180")
        resealed(run)
        (finding,) = checked(run).discrepancies
        assert (finding.code, finding.values) == ("missing-inputs", {"missing": 1, "inputs": 4})
        report = checked(run, unfinished=True)
        assert report.discrepancies == []
        assert finding in [remark for remark, _ in report.remarks]


class TestOtherVersions:
    @pytest.mark.parametrize("table", ["seals", "promises", "model_checks", "failures"])
    def test_a_missing_table_is_refused(self, votes: Path, tmp_path: Path, table: str) -> None:
        run = copy_of(votes, tmp_path)
        altered(run / "results.sqlite", f"DROP TABLE {table}")
        (finding,) = checked(run).discrepancies
        assert (finding.code, finding.values["tables"]) == ("missing-tables", table)
        assert "earlier versions" in str(finding)

    def test_other_columns_are_refused(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        altered(run / "results.sqlite", "ALTER TABLE promises DROP COLUMN entry")
        assert codes(checked(run)) == ["other-columns"]

    def test_an_earlier_manifest_is_refused(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        (run / "manifest.json").write_text('{"schema": 2, "task": "certify"}')
        assert codes(checked(run)) == ["unknown-schema"]

    def test_a_manifest_without_end(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        text = (run / "manifest.json").read_text()
        (run / "manifest.json").write_text(
            text.replace('"probe": {', '"probe": {"deep": ' + "[" * 900 + "]" * 900 + ",", 1)
        )
        assert checked(run).discrepancies

    def test_a_view_is_no_table(self, votes: Path, tmp_path: Path) -> None:
        run = copy_of(votes, tmp_path)
        altered(run / "results.sqlite", "ALTER TABLE points RENAME TO p", "CREATE VIEW points AS SELECT * FROM p")
        (finding,) = checked(run).discrepancies
        assert (finding.code, finding.values["tables"]) == ("missing-tables", "points")


def test_nothing_is_written(votes: Path, tmp_path: Path) -> None:
    run = copy_of(votes, tmp_path)
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    checked(run)
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    shutil.rmtree(run)
    assert math.isfinite(checked(votes).alpha)
