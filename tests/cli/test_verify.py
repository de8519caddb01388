"""`smoothcert verify` and `export --format certificate` as a user calls them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from cli_runner import invoke, smoothcert
from memory_models import plane_points
from smoothcert.cli.main import app
from smoothcert.errors import InputError, InterruptedRunError, MissingExtraError, RunError
from smoothcert_verify import reports, summaries
from verified_runs import MODEL, altered, copy_of, make_run, resealed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, its certificates, and a run that claims from a memory."""
    place = tmp_path_factory.mktemp("verify")
    make_run("votes", place)
    make_run("predict-memory", place)
    invoke(app, "export", place / "votes", "--format", "certificate", "-o", place / "certificates")
    return place


@pytest.fixture
def damaged(folder: Path, tmp_path: Path) -> Path:
    run = copy_of(folder / "votes", tmp_path)
    altered(run / "results.sqlite", "UPDATE points SET label = 1 - label WHERE idx = 0")
    return run


def call(*arguments: object) -> Result:
    return invoke(app, "verify", *arguments)


class TestProved:
    def test_a_run(self, folder: Path) -> None:
        result = call(folder / "votes")
        assert result.exit_code == 0
        assert "4 inputs, 4 bounds and 4 radii checked: all is proved" in result.stdout
        assert "at most 0.004 are wrong on average" in result.stdout

    def test_certificates(self, folder: Path) -> None:
        one = folder / "certificates" / "certificate-000060.json"
        result = call(folder / "certificates", one)
        assert result.exit_code == 0
        assert "certificates: 4 inputs" in result.stdout
        assert "certificate-000060.json: 1 input" in result.stdout

    def test_json(self, folder: Path) -> None:
        document = json.loads(call(folder / "votes", "--json").stdout)
        assert document["consistent"] is True
        (place,) = document["places"]
        assert (place["inputs"], place["discrepancies"], document["replayed"]) == (4, [], None)

    def test_a_memory(self, folder: Path) -> None:
        runs = (folder / "memory", folder / "predict-memory")
        result = call(*runs, "--memory", folder / "memory.sqlite")
        assert result.exit_code == 0
        assert "promises of these inputs: consistent" in result.stdout
        assert "give the memory by --memory" not in result.stdout
        assert "give the memory by --memory" in call(*runs).stdout
        found = json.loads(call(*runs, "--memory", folder / "memory.sqlite", "--json").stdout)
        assert found["memories"][0]["claims"] == 4

    def test_radii_that_rest_on_a_memory(self, folder: Path, tmp_path: Path) -> None:
        """A claim was overruled: the votes prove another class, and the radius is what the memory says it is."""
        plane_points(tmp_path / "points.npz")
        model = "memory_models:ball_and_doubt"
        data = ("--model", model, "--num-classes", 2, "--data", tmp_path / "points.npz", "--input-range", "any")
        rule = ("--sigma-rule", "optimised", "--sigma", 0.25, "--sigma-range", "0.05,4")
        small = ("--search", "grid:points=7,noises=16,check=16", "--n0", 20, "--n", 200, "--seed", 1, "--batch", 64)
        memory, run = ("--memory", tmp_path / "memory.sqlite"), tmp_path / "run"
        invoke(app, "certify", *data, *rule, *small, *memory, "--out", run)
        alone = call(run)
        assert alone.exit_code == 0
        found = json.loads(call(run, "--json").stdout)["places"][0]
        resting = found["radii_by_memory"]
        assert resting > 1
        assert f"{resting} radii rest on a memory that was not checked" in alone.stdout
        assert f" and {found['radii']} radii checked" in alone.stdout
        looked_up = call(run, *memory)
        assert looked_up.exit_code == 0
        assert "was not checked" not in looked_up.stdout
        assert "it was not measured where in its region it lies" in looked_up.stdout
        measured = call(run, *memory, "--replay", model, 1)
        assert measured.exit_code == 0
        assert "it was not measured" not in measured.stdout

    def test_a_replay(self, folder: Path) -> None:
        result = call(folder / "votes", "--replay", MODEL, 1)
        assert result.exit_code == 0
        assert "the samples of 1 input were drawn again" in result.stdout
        assert call(folder / "votes", "--replay", MODEL, 1, "--replay-batch", 1).exit_code == 0
        chosen = call(folder / "certificates", "--replay", MODEL, 0, "--replay-indices", "0,120", "--data", "digits")
        assert chosen.exit_code == 0
        assert "the samples of 2 inputs were drawn again" in chosen.stdout

    def test_from_a_shell(self, folder: Path) -> None:
        done = smoothcert("verify", folder / "votes")
        assert (done.returncode, done.stderr) == (0, "")


class TestFound:
    def test_one_line_each_and_exit_1(self, damaged: Path) -> None:
        result = call(damaged)
        assert result.exit_code == 1
        lines = result.stdout.splitlines()
        assert lines[0].startswith("input 0: the seal is broken")
        assert lines[1].endswith("1 discrepancy")
        document = json.loads(call(damaged, "--json").stdout)
        assert document["consistent"] is False

    def test_several_places_are_named(self, folder: Path, damaged: Path) -> None:
        result = call(folder / "votes", damaged)
        assert result.exit_code == 1
        assert result.stdout.startswith(f"{damaged}: input 0: ")

    def test_many_are_not_all_printed(self, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(summaries, "MOST_LINES", 2)
        altered(damaged / "results.sqlite", "UPDATE verdicts SET radius = radius * 2")
        result = call(damaged)
        assert "… and " in result.stdout.splitlines()[2]
        assert len(json.loads(call(damaged, "--json").stdout)["places"][0]["discrepancies"]) > 2

    def test_in_a_memory(self, folder: Path, tmp_path: Path) -> None:
        memory = tmp_path / "memory.sqlite"
        memory.write_bytes((folder / "memory.sqlite").read_bytes())
        altered(memory, "UPDATE claims SET radius = radius / 2 WHERE position = 1")
        result = call(folder / "memory", "--memory", memory)
        assert result.exit_code == 1
        assert result.stdout.startswith("memory ")

    def test_a_replay_with_another_model(self, folder: Path) -> None:
        result = call(folder / "votes", "--replay", "sample_models:digits_by_brightness", 1)
        assert result.exit_code == 1
        assert "not the one of the run" in result.stdout
        assert "the samples of 0 inputs were drawn again" in result.stdout

    def test_a_replay_that_draws_nothing(self, folder: Path, tmp_path: Path) -> None:
        """Certificates of inputs that a memory answered: there is nothing to draw, and that is no success."""
        certificates = tmp_path / "certificates"
        invoke(app, "export", folder / "predict-memory", "--format", "certificate", "-o", certificates)
        for file in certificates.glob("*.json"):
            if json.loads(file.read_text())["tallies"]:
                file.unlink()
        assert any(certificates.glob("*.json"))
        (certificates / "certificates.index").unlink()  # it counts the certificates
        assert call(certificates).exit_code == 0
        result = call(certificates, "--replay", MODEL, 1)
        assert result.exit_code == 1
        assert "nothing was drawn again" in result.stdout

    def test_nothing_is_replayed_that_is_not_consistent(self, damaged: Path) -> None:
        result = call(damaged, "--replay", MODEL, 1)
        assert result.exit_code == 1
        assert "no samples were drawn again" in result.stdout

    def test_an_unfinished_run(self, folder: Path, tmp_path: Path) -> None:
        run = copy_of(folder / "votes", tmp_path)
        for table in ("seals", "tallies", "verdicts", "points"):
            altered(run / "results.sqlite", f"DELETE FROM {table} WHERE idx = 180")
        altered(run / "results.sqlite", "UPDATE model_checks SET idx = 120 WHERE idx = 180")
        resealed(run)
        assert call(run).exit_code == 1
        result = call(run, "--unfinished")
        assert result.exit_code == 0
        assert "remark: 1 of the 4 requested inputs" in result.stdout

    def test_no_traceback_for_rubbish(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_bytes(b"[" * 100_000)
        done = smoothcert("verify", tmp_path / "x.json")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert done.stdout.startswith("x.json: this is not JSON")


class TestMistakes:
    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="does not exist"):
            call(tmp_path / "none")
        with pytest.raises(RunError, match="neither a run"):
            call(tmp_path)

    def test_options_that_need_another(self, folder: Path, tmp_path: Path) -> None:
        for options in (("--replay-indices", "0"), ("--replay-batch", 1)):
            with pytest.raises(InputError, match="need --replay MODEL K"):
                call(folder / "votes", *options)
        with pytest.raises(InputError, match="cannot be read"):
            call(folder / "votes", "--replay", MODEL, 0, "--replay-indices", "a")
        with pytest.raises(InputError, match="one run"):
            call(folder / "votes", folder / "memory", "--replay", MODEL, 1)
        both = tmp_path / "both"
        for run in ("votes", "memory"):
            invoke(app, "export", folder / run, "--format", "certificate", "-o", both, "--force")
        for file in (folder / "certificates").glob("*.json"):
            (both / f"other {file.name}").write_bytes(file.read_bytes())
        (both / "certificates.index").unlink()  # it names those of one run
        with pytest.raises(InputError, match="several runs"):
            call(both, "--replay", MODEL, 8)
        with pytest.raises(InputError, match="leave it out"):
            call(folder / "votes", "--memory", folder / "memory.sqlite")

    def test_without_python_flint(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        find = importlib.util.find_spec
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "flint" else find(name))
        with pytest.raises(MissingExtraError, match=r"smoothcert\[verify\]"):
            call(folder / "votes")

    def test_stopped(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(reports, "check_document", interrupted)
        with pytest.raises(InterruptedRunError, match="Nothing was written"):
            call(folder / "votes")


class TestExport:
    def test_a_log_has_no_certificates(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("idx\tlabel\tpredict\tradius\tcorrect\n0\t0\t0\t0.5\t1\n")
        with pytest.raises(RunError, match="has no tallies"):
            invoke(app, "export", tmp_path / "log", "--format", "certificate", "-o", tmp_path / "out")

    def test_the_place_must_be_a_directory(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(RunError, match="is a file"):
            invoke(app, "export", folder / "votes", "--format", "certificate", "-o", tmp_path / "file")

    def test_again_only_by_force(self, folder: Path, tmp_path: Path) -> None:
        given = ("export", folder / "votes", "--format", "certificate", "-o", tmp_path / "out")
        assert "wrote 4 certificates" in invoke(app, *given).stdout
        with pytest.raises(RunError, match="already holds all 4 certificates"):
            invoke(app, *given)
        assert "wrote 4 certificates" in invoke(app, *given, "--force").stdout


def test_neither_torch_nor_scipy_is_needed(folder: Path) -> None:
    """In a process of its own: what checks a run shares nothing with what made it."""
    import subprocess

    code = (
        "import sys; from smoothcert_verify.run_checks import verify_run; from pathlib import Path;"
        f"assert verify_run(Path({str(folder / 'votes')!r})).discrepancies == [];"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'scipy', 'smoothcert', 'msgspec', 'typer')];"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
