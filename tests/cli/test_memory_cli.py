"""`certify --memory`, `predict --memory` and `smoothcert memory` from the command line."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cli_runner import invoke, smoothcert
from damaged_memories import put_back
from memory_models import plane_points
from smoothcert.cli.main import app
from smoothcert.errors import InputError, RegionMemoryError, RunError
from smoothcert.memory import open_existing
from smoothcert.records import CertifiedPoint, Outcome, Settlement
from smoothcert.runs.store import RunStore

OPTIMISED = ("--sigma-rule", "optimised", "--sigma", 0.25)
SEARCH = ("--sigma-range", "0.05,4", "--search", "grid:points=7,noises=16,check=16")
SMALL = ("--n0", 20, "--n", 200, "--seed", 1, "--batch", 64)


def model(data: Path, name: str = "ball_and_doubt") -> tuple[object, ...]:
    return ("--model", f"memory_models:{name}", "--num-classes", 2, "--data", data, "--input-range", "any")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """points.npz, memory.sqlite and a run. Must not be changed."""
    place = tmp_path_factory.mktemp("memory")
    plane_points(place / "points.npz")
    invoke(
        app, "certify", *model(place / "points.npz"), *OPTIMISED, *SEARCH, *SMALL, "--memory", place / "memory.sqlite",
        "--out", place / "run",
    )  # fmt: skip
    return place


@pytest.fixture
def memory(folder: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return copied(folder / "memory.sqlite", tmp_path / "memory.sqlite")


def copied(source: Path, to: Path) -> Path:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(to)) as new:
        old.backup(new)
    return to


def altered(memory: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(memory)) as connection:
        assert connection.execute(statement, values).rowcount != 0
        connection.commit()


def stored(run: Path) -> list[CertifiedPoint]:
    with RunStore.open(run) as store:
        return store.points()


class TestCertify:
    def test_results(self, folder: Path) -> None:
        points = stored(folder / "run")
        assert len(points) == 60
        assert {point.promise.settlement for point in points if point.promise} >= {
            Settlement.WHOLE,
            Settlement.CUT,
            Settlement.OVERRULED,
        }

    def test_it_says_what_it_does(self, folder: Path, tmp_path: Path) -> None:
        data, kept = folder / "points.npz", tmp_path / "memory.sqlite"
        given = ("certify", *model(data), *OPTIMISED, *SEARCH, *SMALL, "--max", 8, "--memory", kept)
        first = invoke(app, *given, "--out", tmp_path / "run")
        assert ": 0 promised regions, key " in first.stderr
        assert "the search for sigma took" in first.stderr
        assert "evaluations of the model" in first.stderr
        assert "regions kept by a memory:" in first.stdout
        again = invoke(app, *given, "--out", tmp_path / "run")
        assert "8 of 8 inputs are already" in again.stderr
        with open_existing(kept) as opened:
            assert f": {len(opened)} promised regions, key " in again.stderr

    def test_table_and_export(self, folder: Path, tmp_path: Path) -> None:
        points = stored(folder / "run")
        positions = [point.promise.position if point.promise else None for point in points]
        overruled = sum(
            point.promise is not None and point.promise.settlement is Settlement.OVERRULED for point in points
        )
        assert f"{overruled} overruled" in invoke(app, "table", folder / "run").stdout
        invoke(app, "export", folder / "run", "-o", tmp_path / "run.json", "--format", "json")
        document = json.loads((tmp_path / "run.json").read_text())
        assert [row["position"] for row in document["points"]] == positions
        invoke(app, "export", folder / "run", "-o", tmp_path / "run.csv", "--format", "csv")
        with (tmp_path / "run.csv").open() as stream:
            rows = list(csv.DictReader(stream))
        assert [int(float(row["position"])) if row["position"] else None for row in rows] == positions
        assert [float(row["radius"]) for row in rows] == [point.radius for point in points]
        invoke(app, "export", folder / "run", "-o", tmp_path / "run.tsv")
        for line, point in zip((tmp_path / "run.tsv").read_text().splitlines()[1:], points, strict=True):
            assert float(line.split("\t")[3]) <= point.radius

    def test_plot_and_compare(self, folder: Path, tmp_path: Path) -> None:
        """Together with a run of constant sigma over the same points."""
        invoke(app, "certify", *model(folder / "points.npz"), "--sigma", 0.25, *SMALL, "--out", tmp_path / "plain")
        compared = invoke(app, "compare", tmp_path / "plain", folder / "run").stdout
        assert "regions kept by a memory" in compared
        invoke(app, "plot", folder / "run", tmp_path / "plain", "-o", tmp_path / "curve.png")
        assert (tmp_path / "curve.png").stat().st_size > 1000

    def test_recertify_is_refused(self, folder: Path) -> None:
        with pytest.raises(RunError, match="regions that a memory has promised"):
            invoke(app, "recertify", folder / "run", "--alpha", 0.01)

    def test_several_certificates_are_refused(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="name one certificate"):
            invoke(
                app, "certify", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, *SMALL, "--memory",
                tmp_path / "m.sqlite", "--certificate", "gaussian", "--certificate", "gaussian-two-class", "--out",
                tmp_path / "run",
            )  # fmt: skip
        assert not (tmp_path / "run").exists()

    def test_without_a_memory_both_ways_out_are_named(self, folder: Path, tmp_path: Path) -> None:
        """On the console: a message, its exit code, and no files left behind."""
        refused = smoothcert(
            "certify", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, *SMALL, "--out", tmp_path / "run"
        )
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr
        for way in ("an envelope", "--memory", "smoothcert predict"):
            assert way in refused.stderr
        assert not (tmp_path / "run").exists()

    def test_an_unreachable_server(self, folder: Path, tmp_path: Path) -> None:
        pytest.importorskip("psycopg")
        place = "postgresql://tester:geheim@127.0.0.1:1/nowhere"
        tried = smoothcert(
            "certify", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, *SMALL, "--memory", place, "--out",
            tmp_path / "run",
        )  # fmt: skip
        assert tried.returncode == 6, tried.stderr
        assert "Traceback" not in tried.stderr
        assert "cannot be reached" in tried.stderr
        assert "geheim" not in tried.stderr + tried.stdout
        assert not (tmp_path / "run").exists()

    def test_default_folder(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs with different starts get different names."""
        monkeypatch.chdir(tmp_path)
        for start in (0.25, 0.5):
            invoke(
                app, "certify", *model(folder / "points.npz"), "--sigma-rule", "optimised", "--sigma", start, *SEARCH,
                *SMALL, "--max", 2, "--memory", "memory.sqlite",
            )  # fmt: skip
        assert len(list((tmp_path / "runs").iterdir())) == 2


class TestResume:
    def test_where_the_memory_lies_now(self, folder: Path, memory: Path, tmp_path: Path) -> None:
        import shutil

        shutil.copytree(folder / "run", tmp_path / "run")
        result = invoke(app, "certify", "--resume", tmp_path / "run", "--memory", memory)
        assert "60 of 60 inputs are already" in result.stderr
        put_back(memory, 3)
        with pytest.raises(RunError, match="the first at position 4"):
            invoke(app, "certify", "--resume", tmp_path / "run", "--memory", memory)
        with pytest.raises(RunError, match=r"nowhere\.sqlite does not exist"):
            invoke(app, "certify", "--resume", tmp_path / "run", "--memory", tmp_path / "nowhere.sqlite")
        assert not (tmp_path / "nowhere.sqlite").exists()

    @pytest.mark.parametrize("option", [("--noise", "uniform"), ("--search", "grid"), ("--sigma-range", "0.1,1")])
    def test_settings_are_left_out(self, folder: Path, option: tuple[str, str]) -> None:
        with pytest.raises(InputError, match=f"leave {option[0]} out"):
            invoke(app, "certify", "--resume", folder / "run", *option)


class TestPredict:
    def test_it_answers_what_was_promised(self, folder: Path, memory: Path, tmp_path: Path) -> None:
        out = tmp_path / "predict"
        given = ("--n", 200, "--seed", 9, "--batch", 64, "--memory", memory, "--out", out)
        result = invoke(app, "predict", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, *given, "--json")
        (row,) = json.loads(result.stdout)
        assert row["points"] == 60
        promised = {point.index: point.prediction for point in stored(folder / "run") if point.prediction is not None}
        answers = {point.index: point for point in stored(out)}
        assert {index: answers[index].prediction for index in promised} == promised
        assert all(answers[index].outcome is Outcome.PREDICTED for index in promised)
        assert "Traceback" not in invoke(app, "table", out).stdout
        invoke(app, "export", out, "-o", tmp_path / "out.json", "--format", "json")
        rows = json.loads((tmp_path / "out.json").read_text())["points"]
        assert [row["sigma"] is None for row in rows] == [math.isnan(answers[row["index"]].sigma) for row in rows]
        again = invoke(app, "predict", "--resume", out)
        assert "60 of 60 inputs are already" in again.stderr

    def test_all_answered_by_the_memory(self, folder: Path, memory: Path, tmp_path: Path) -> None:
        """Nothing was sampled, so no noise level is known. `table` must still work."""
        with np.load(folder / "points.npz") as points:
            promised = [point.index for point in stored(folder / "run") if point.prediction is not None]
            np.savez(tmp_path / "some.npz", x=points["x"][promised], y=points["y"][promised])
        result = invoke(
            app, "predict", *model(tmp_path / "some.npz"), *OPTIMISED, *SEARCH, "--n", 200, "--seed", 9, "--batch", 64,
            "--memory", memory, "--out", tmp_path / "run", "--json",
        )  # fmt: skip
        (row,) = json.loads(result.stdout)
        assert row["abstention"] == 0
        assert row["sigma"] is None
        assert row["sigma_range"] is None
        assert "run" in invoke(app, "table", tmp_path / "run").stdout


class TestBadSettings:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (("--sigma", 0.25, "--search", "grid"), "--search .* needs --sigma-rule optimised"),
            (("--sigma", 0.25, "--sigma-range", "0.1,1"), "--sigma-range .* needs --sigma-rule optimised"),
            (("--sigma-rule", "optimised"), "also needs --sigma, where the search begins"),
            ((*OPTIMISED, "--search", "newton"), "there is no search for sigma 'newton'.*ascent, grid, signs"),
            ((*OPTIMISED, "--search", "grid:steps=3"), "'steps' is unknown; grid takes points"),
            ((*OPTIMISED, "--search", "grid:points=3,points=4"), "'points' is given twice"),
            ((*OPTIMISED, "--search", "grid:points=many"), "expected a whole number"),
            ((*OPTIMISED, "--search", "grid:points=1"), "points=1"),
            ((*OPTIMISED, "--search", "grid:clamp=0.7"), "clamp=0.7.*between 0 and 0.5"),
            ((*OPTIMISED, "--search", "ascent:step=-1"), "step=-1.* must be a positive number"),
            ((*OPTIMISED, "--sigma-range", "0.1"), "expected LEAST,MOST"),
            ((*OPTIMISED, "--sigma-range", "a,b"), "expected LEAST,MOST"),
            ((*OPTIMISED, "--sigma-range", "0.3,1"), "outside its range 0.3 … 1"),
            ((*OPTIMISED, "--sigma-range", "1,0.1"), "outside its range"),
            ((*OPTIMISED, "--sigma-range", "0,1"), "sigma=0"),
            ((*OPTIMISED, "--sigma-range", "0.1,nan"), "nan"),
            ((*OPTIMISED, "--sigma-range", "0.1,inf"), "inf"),
            ((*OPTIMISED, "--noise", "unheard-of"), "there is no noise 'unheard-of'"),
            ((*OPTIMISED, "--search", "ascent"), "gives only votes; choose grid or signs"),
        ],
        ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
    )
    def test_they_are_told_before_anything_is_made(
        self, folder: Path, tmp_path: Path, options: tuple[object, ...], words: str
    ) -> None:
        with pytest.raises(InputError, match=words):
            invoke(
                app, "certify", *model(folder / "points.npz"), *options, *SMALL, "--memory", tmp_path / "m.sqlite",
                "--out", tmp_path / "run",
            )  # fmt: skip
        assert not (tmp_path / "run").exists()
        assert not (tmp_path / "m.sqlite").exists()


class TestStats:
    def test_sentences(self, folder: Path) -> None:
        said = invoke(app, "memory", "stats", folder / "memory.sqlite").stdout
        with open_existing(folder / "memory.sqlite") as opened:
            claims = list(opened.claims())
            assert f"memory {opened.key.digest[:12]}: {len(claims)} claims, gaussian noise, l2 norm" in said
        for settlement in (Settlement.WHOLE, Settlement.CUT, Settlement.OVERRULED):
            count = sum(claim.settlement is settlement for claim in claims)
            assert f"{count} {settlement.name.lower()}" in said

    def test_json(self, folder: Path) -> None:
        (found,) = json.loads(invoke(app, "memory", "stats", folder / "memory.sqlite", "--json").stdout)
        with open_existing(folder / "memory.sqlite") as opened:
            claims = list(opened.claims())
            assert found["digest"] == opened.key.digest
            assert found["key"] == opened.key.to_json()
        assert found["claims"] == len(claims) == sum(found["classes"].values()) == sum(found["settlements"].values())
        radii = sorted(claim.radius for claim in claims)
        assert (found["radii"][0], found["radii"][2]) == (radii[0], radii[-1])
        assert found["first_claimed"] == claims[0].claimed_at.isoformat()

    def test_several_in_one_file(self, folder: Path, memory: Path, tmp_path: Path) -> None:
        invoke(
            app, "certify", *model(folder / "points.npz"), "--sigma", 0.5, *SMALL, "--max", 5, "--memory", memory,
            "--out", tmp_path / "run",
        )  # fmt: skip
        found = json.loads(invoke(app, "memory", "stats", memory, "--json").stdout)
        assert len(found) == 2
        audited = json.loads(invoke(app, "memory", "audit", memory, "--json").stdout)
        assert [one["digest"] for one in audited] == [one["digest"] for one in found]
        assert [one["claims"] for one in audited] == [one["claims"] for one in found]
        for one in found:
            (only,) = json.loads(invoke(app, "memory", "audit", memory, "--json", "--key", one["digest"][:10]).stdout)
            assert only["digest"] == one["digest"]
            target = tmp_path / f"{one['digest'][:10]}.csv"
            invoke(app, "memory", "export", memory, "-o", target, "--key", one["digest"][:10].upper())
            assert len(target.read_text().splitlines()) == one["claims"] + 1
        with pytest.raises(RegionMemoryError, match=r"there are 2 memories.*name one by the beginning"):
            invoke(app, "memory", "export", memory, "-o", tmp_path / "all.csv")
        assert not (tmp_path / "all.csv").exists()
        with pytest.raises(RegionMemoryError, match=r"0 memories begin with 'zz'"):
            invoke(app, "memory", "audit", memory, "--key", "zz")


class TestAudit:
    def test_consistent(self, folder: Path) -> None:
        result = invoke(app, "memory", "audit", folder / "memory.sqlite")
        assert result.exit_code == 0
        assert "consistent, no two of them touch" in result.stdout
        (found,) = json.loads(invoke(app, "memory", "audit", folder / "memory.sqlite", "--json").stdout)
        assert found["consistent"] is True
        assert found["problems"] == []
        assert found["pairs"] > 0

    @pytest.mark.parametrize(
        ("damage", "words"),
        [
            ("UPDATE claims SET radius = asked_radius WHERE settlement = 'CUT'", "touch"),
            ("UPDATE claims SET radius = radius * 1.0000001, asked_radius = asked_radius * 2 "
             "WHERE settlement = 'CUT'", "touch"),
            ("UPDATE claims SET radius = 2 * asked_radius WHERE position = 1", "was granted radius"),
            ("UPDATE claims SET label = 1 - label WHERE position = 5", "claim 5"),
            ("DELETE FROM claims WHERE position = 7", "after claim 6 comes claim 8"),
            ("UPDATE claims SET settlement = 'INHERITED' WHERE position = 2", "INHERITED"),
            ("UPDATE claims SET settlement = 'LOST' WHERE position = 2", "claim 2"),
            ("UPDATE claims SET centre = x'00' WHERE position = 2", "claim 2"),
            ("UPDATE claims SET radius = -1 WHERE position = 2", "claim 2"),
        ],
    )  # fmt: skip
    def test_tampering_is_found(self, memory: Path, damage: str, words: str) -> None:
        altered(memory, damage)
        result = invoke(app, "memory", "audit", memory)
        assert result.exit_code == 1
        assert "NOT consistent" in result.stdout
        assert words in result.stdout
        as_json = invoke(app, "memory", "audit", memory, "--json")
        assert as_json.exit_code == 1
        (found,) = json.loads(as_json.stdout)
        assert found["consistent"] is False
        assert any(words in problem for problem in found["problems"])

    def test_by_the_console(self, memory: Path) -> None:
        altered(memory, "UPDATE claims SET radius = asked_radius WHERE settlement = 'CUT'")
        result = smoothcert("memory", "audit", memory)
        assert result.returncode == 1
        assert "NOT consistent" in result.stdout
        assert "Traceback" not in result.stderr

    def test_an_altered_key(self, memory: Path) -> None:
        altered(memory, "UPDATE memories SET key = replace(key, 'gaussian', 'uniform')")
        with pytest.raises(RegionMemoryError, match=r"key, head and claims .* do not match"):
            invoke(app, "memory", "audit", memory)
        altered(memory, "UPDATE heads SET key = replace(key, 'gaussian', 'uniform')")
        with pytest.raises(RegionMemoryError, match=r"damaged: the key of .* does not match this digest"):
            invoke(app, "memory", "audit", memory)


class TestExport:
    def test_csv(self, folder: Path, tmp_path: Path) -> None:
        invoke(app, "memory", "export", folder / "memory.sqlite", "-o", tmp_path / "log.csv")
        with (tmp_path / "log.csv").open() as stream:
            rows = list(csv.DictReader(stream))
        with open_existing(folder / "memory.sqlite") as opened:
            claims = list(opened.claims())
        assert [int(row["position"]) for row in rows] == [claim.position for claim in claims]
        assert [float(row["radius"]) for row in rows] == [claim.radius for claim in claims]
        inputs = np.load(folder / "points.npz")["x"].astype("<f4")
        known = {hashlib.sha256(x.tobytes()).hexdigest() for x in inputs}
        assert all(row["centre_sha256"] in known for row in rows)

    def test_npz(self, folder: Path, tmp_path: Path) -> None:
        said = invoke(app, "memory", "export", folder / "memory.sqlite", "-o", tmp_path / "log.npz").stdout
        with np.load(tmp_path / "log.npz") as found, open_existing(folder / "memory.sqlite") as opened:
            claims = list(opened.claims())
            assert f"wrote {len(claims)} claims" in said
            assert np.array_equal(found["centre"], [claim.centre for claim in claims])
            assert found["asked_radius"].tolist() == [claim.asked_radius for claim in claims]
            assert json.loads(str(found["key"])) == opened.key.to_json()

    def test_nothing_is_overwritten(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "log.csv").write_text("mine")
        with pytest.raises(InputError, match="--force"):
            invoke(app, "memory", "export", folder / "memory.sqlite", "-o", tmp_path / "log.csv")
        assert (tmp_path / "log.csv").read_text() == "mine"
        invoke(app, "memory", "export", folder / "memory.sqlite", "-o", tmp_path / "log.csv", "--force")
        assert (tmp_path / "log.csv").read_text().startswith("position,")

    def test_another_ending(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"must end in \.csv or \.npz"):
            invoke(app, "memory", "export", folder / "memory.sqlite", "-o", tmp_path / "log.txt")


@pytest.mark.parametrize("verb", [("stats",), ("audit",), ("export", "-o", "log.csv")], ids=lambda words: words[0])
class TestWrongPlaces:
    @pytest.mark.parametrize("place", ["nowhere.sqlite", "text", "other.sqlite", ".", "empty"])
    def test_a_sentence_and_nothing_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...], place: str
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path("text").write_text("no database, but long enough to be taken for one with a header " * 10)
        Path("empty").touch()
        with closing(sqlite3.connect("other.sqlite")) as connection:
            connection.execute("CREATE TABLE songs (name)")
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        words = {"nowhere.sqlite": "does not exist", "text": "not a SQLite database", "other.sqlite": "something else",
                 ".": "is a directory"}  # fmt: skip
        if place in words:
            with pytest.raises(RegionMemoryError, match=words[place]):
                invoke(app, "memory", verb[0], place, *verb[1:])
        else:
            # Nothing was claimed there, and a lookup must not change the file.
            with contextlib.suppress(RegionMemoryError):
                assert "no memory" in invoke(app, "memory", verb[0], place, *verb[1:]).stdout
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_exit_code(self, tmp_path: Path, verb: tuple[str, ...]) -> None:
        result = smoothcert("memory", verb[0], "nowhere.sqlite", *verb[1:], cwd=tmp_path)
        assert result.returncode == 6
        assert "Traceback" not in result.stderr
        assert "does not exist" in result.stderr
        assert list(tmp_path.iterdir()) == []

    def test_an_unreachable_server(self, verb: tuple[str, ...]) -> None:
        pytest.importorskip("psycopg")
        with pytest.raises(RegionMemoryError, match="cannot be reached") as caught:
            invoke(app, "memory", verb[0], "postgresql://tester:geheim@127.0.0.1:1/nowhere", *verb[1:])
        assert "geheim" not in str(caught.value)


class TestHelp:
    def test_certify(self) -> None:
        said = " ".join(smoothcert("certify", "--help").stdout.split())
        for words in ("--memory", "--search", "--sigma-range", "--noise", "optimised", "postgresql://", "l1 norm"):
            assert words in said
        assert "holds for as long as the memory is kept" in said.replace("│ ", "")

    def test_memory(self) -> None:
        said = smoothcert("memory", "--help").stdout
        for verb in ("stats", "audit", "export", "recover"):
            assert verb in said
        assert "Exit 1" in " ".join(smoothcert("memory", "audit", "--help").stdout.split())
        assert ".csv or .npz" in " ".join(smoothcert("memory", "export", "--help").stdout.split())

    def test_the_main_page_names_it(self) -> None:
        assert "memory" in smoothcert("--help").stdout


class TestPredictNeedsPromises:
    """A mistyped location or another setting must not silently start an empty memory."""

    def ask(self, folder: Path, memory: Path, out: Path, *settings: object) -> None:
        invoke(
            app, "predict", *model(folder / "points.npz"), *OPTIMISED, *(settings or SEARCH), "--n", 200, "--memory",
            memory, "--out", out,
        )  # fmt: skip

    def test_a_place_where_there_is_none(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(RegionMemoryError, match="does not exist"):
            self.ask(folder, tmp_path / "typo.sqlite", tmp_path / "out")
        assert not (tmp_path / "typo.sqlite").exists()
        assert not (tmp_path / "out").exists()

    def test_other_settings(self, folder: Path, memory: Path, tmp_path: Path) -> None:
        with pytest.raises(RegionMemoryError, match="holds no regions of this classifier, whose key is"):
            self.ask(folder, memory, tmp_path / "out", "--sigma-range", "0.05,5", *SEARCH[2:])
        with open_existing(memory) as opened:  # still the only one
            assert len(opened) > 0


def test_the_cost_of_the_search_is_that_of_the_inputs(folder: Path, tmp_path: Path) -> None:
    result = smoothcert(
        "certify", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, *SMALL, "--max", 6, "--memory",
        tmp_path / "memory.sqlite", "--out", tmp_path / "run",
    )  # fmt: skip
    # 64 draws for the class, 7 levels with 16 draws, and 16 for each of the two that are compared at the end.
    assert f"took {6 * (64 + 7 * 16 + 2 * 16)} evaluations" in result.stderr


class TestMisuse:
    def test_a_refused_resume_leaves_no_memory_behind(self, folder: Path, tmp_path: Path) -> None:
        """The file belongs to another classifier. No memory of this classifier may be created in it."""
        other, run = tmp_path / "other.sqlite", tmp_path / "run"
        invoke(
            app, "certify", *model(folder / "points.npz"), "--sigma-rule", "optimised", "--sigma", 0.3, *SMALL,
            "--search", "grid:points=3,noises=8,check=0", "--max", 2, "--memory", other, "--out", tmp_path / "another",
        )  # fmt: skip
        invoke(
            app, "certify", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, *SMALL, "--max", 3, "--memory",
            tmp_path / "memory.sqlite", "--out", run,
        )  # fmt: skip
        with pytest.raises(RunError, match="does not hold"):
            invoke(app, "certify", "--resume", run, "--memory", other)
        with open_existing(other):  # the only one there is
            pass

    def test_predicting_without_the_memory_is_remarked(self, folder: Path, tmp_path: Path) -> None:
        result = invoke(
            app, "predict", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, "--n", 100, "--max", 2, "--out",
            tmp_path / "run",
        )  # fmt: skip
        assert "no --memory: regions that were promised" in result.stderr

    def test_a_theorem_for_envelopes_is_refused(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="envelope is about a sigma whose change is bounded"):
            invoke(
                app, "certify", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, *SMALL, "--certificate", "envelope",
                "--memory", tmp_path / "memory.sqlite", "--out", tmp_path / "run",
            )  # fmt: skip

    def test_a_rule_spelled_otherwise(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="use optimised or optimised-two-class"):
            invoke(
                app, "certify", *model(folder / "points.npz"), "--sigma-rule", "optimized", "--sigma", 0.25, "--out",
                tmp_path / "run",
            )  # fmt: skip

    def test_the_two_rules_have_memories_of_their_own(self, folder: Path, tmp_path: Path) -> None:
        for rule in ("optimised", "optimised-two-class"):
            invoke(
                app, "certify", *model(folder / "points.npz"), "--sigma-rule", rule, "--sigma", 0.25, *SEARCH, *SMALL,
                "--max", 2, "--memory", tmp_path / "memory.sqlite", "--out", tmp_path / rule,
            )  # fmt: skip
        summaries = json.loads(invoke(app, "memory", "stats", tmp_path / "memory.sqlite", "--json").stdout)
        assert [set(one["settlements"]) for one in summaries] == [{"whole", "cut", "overruled"}] * 2

    def test_looked_up_answers_are_counted(self, folder: Path, memory: Path, tmp_path: Path) -> None:
        result = invoke(
            app, "predict", *model(folder / "points.npz"), *OPTIMISED, *SEARCH, "--n", 100, "--max", 10, "--memory",
            memory, "--out", tmp_path / "run",
        )  # fmt: skip
        assert "answers were looked up in a memory" in result.stdout
        assert "radii hold" not in result.stdout
