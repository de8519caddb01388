"""Stored runs and logs as Results, and comparisons."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import smoothcert as sc
from cli_runner import invoke
from run_specs import finish_run, make_spec
from smoothcert.cli.main import app
from smoothcert.errors import InputError, RunError
from smoothcert.results.results import Results
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import RunStore

SETTINGS = {"model": "sample_models:digits_by_brightness", "data": "digits", "n0": 20, "alpha": 0.001, "seed": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "digits"
    finish_run(make_spec(**SETTINGS, sigma=0.3, n=1000, max_inputs=8, certificate="gaussian,li"), out)  # type: ignore[arg-type]
    return out


class TestRun:
    def test_points_and_manifest(self, run: Path) -> None:
        results = sc.open_run(str(run))
        with RunStore.open(run) as store:
            assert results == store.points()
            assert results.manifest == store.manifest
        assert (results.name, results.path, len(results)) == ("digits", run, 8)
        assert results.to_frame()["votes_0"].notna().all()

    def test_one_certificate(self, run: Path) -> None:
        li = sc.open_run(f"{run}@li")
        assert [point.radius for point in li] == [point.further[0].radius for point in sc.open_run(run)]
        assert li.name == "digits@li"

    def test_verify_and_recertify_are_those_of_the_command_line(self, run: Path) -> None:
        results = sc.open_run(run)
        inspection = results.verify()
        assert inspection.consistent
        assert inspection.reports[0].model_checks is not None
        assert results.recertify(alpha=0.01) == list(recertify_run(run, alpha=0.01).points)

    def test_report(self, run: Path, tmp_path: Path) -> None:
        page = sc.open_run(run).report(tmp_path / "page.html", gallery=3).read_text()
        assert "digits@gaussian" in page
        assert "data:image/png" in page

    def test_a_run_that_grows_is_what_it_was_when_it_was_opened(self, tmp_path: Path) -> None:
        spec = make_spec(**SETTINGS, sigma=0.3, n=200, max_inputs=6)  # type: ignore[arg-type]
        finish_run(spec, tmp_path / "run")
        with RunStore.open(tmp_path / "run") as store:
            manifest, points = store.manifest, store.points()
        with RunStore.create(tmp_path / "growing", manifest) as store:
            empty = sc.open_run(tmp_path / "growing")
            store.add(points[:2])
            early = sc.open_run(tmp_path / "growing")
            store.add(points[2:])
            assert early == points[:2]
            assert (len(empty), len(early.columns), early.columns.expected) == (0, 2, 6)
            assert "0 inputs" in repr(empty)

    def test_a_relative_path_stays_right(self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(run)
        here, li = sc.open_run("."), sc.open_run(".@li")
        monkeypatch.chdir(run.parent)
        beside = sc.open_run("digits")
        monkeypatch.chdir(tmp_path)
        assert here == beside == sc.open_run(run)
        assert (here.name, li.name, beside.name) == ("digits", "digits@li", "digits")
        assert "digits@li" in here.by_certificate("li").report("page.html").read_text()

    def test_what_is_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="does not exist"):
            sc.open_run(tmp_path / "nothing")
        with pytest.raises(RunError, match="not a run"):
            sc.open_run(tmp_path)

    def test_export_of_the_command_line_has_the_votes(self, run: Path, tmp_path: Path) -> None:
        invoke(app, "export", run, "--format", "json", "-o", tmp_path / "out.json")
        rows = json.loads((tmp_path / "out.json").read_text())["points"]
        assert {sum(row["votes"]["estimation"]["counts"]) for row in rows} == {1000}
        assert sc.open_run(run).export(tmp_path / "too.json").read_text() == (tmp_path / "out.json").read_text()


class TestLog:
    @pytest.fixture
    def log(self, run: Path, tmp_path: Path) -> Results:
        return sc.open_run(sc.open_run(run).export(tmp_path / "log.tsv"))

    def test_answers_without_votes(self, log: Results, run: Path) -> None:
        stored = sc.open_run(run)
        assert [point.prediction for point in log] == [point.prediction for point in stored]
        assert all(a.radius <= b.radius for a, b in zip(log, stored, strict=True))
        assert log[0].guarantee is None
        assert not any("votes" in name for name in log.to_frame())
        assert log.accuracy == stored.accuracy
        assert "a log" in repr(log)
        assert [point.radius for point in log[2:4]] == [log[2].radius, log[3].radius]
        assert f"radius={log[2].radius}" in repr(log[2])
        assert len(log[:0]) == 0

    def test_what_needs_votes_says_so(self, log: Results, tmp_path: Path) -> None:
        for act in (log.verify, log.recertify, lambda: log.export(tmp_path / "c", format="certificate")):
            with pytest.raises(RunError, match="is a log, which has no"):
                act()
        assert json.loads(log.export(tmp_path / "log.json").read_text())["points"][0]["index"] == 0
        assert log.report(tmp_path / "log.html").exists()


class TestCompare:
    def test_two_calls(self, run: Path) -> None:
        recertified = sc.open_run(run).recertify(alpha=0.05, name="5 %")
        comparison = sc.compare(recertified, run)
        assert "A: 5 %" in str(comparison)
        assert (comparison.ratio[comparison.both] >= 1).all()
        assert "<table" in comparison._repr_html_()
        assert len(comparison.to_frame()) == len(comparison)

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize("levels", [17, 256, "float"])
    def test_the_stored_run_of_the_same_inputs_has_the_same_data(
        self, levels: int | str, named: bool, tmp_path: Path
    ) -> None:
        steps = 16 if levels == 17 else 255
        x = np.random.default_rng(0).integers(0, steps + 1, (3, 4)).astype(np.float32) / np.float32(steps)
        names = ("one", "two", "three") if named else ()

        def certify(**where: Path) -> Results:
            smoothed = sc.SmoothedClassifier(
                lambda b: b[:, :3], sigma=0.3, grid=levels, seed=1, batch=64, class_names=names
            )
            return smoothed.certify(x, labels=[0, None, 1], n0=20, n=100, alpha=0.05, **where)

        in_memory, stored = certify(), certify(out=tmp_path / "run")
        assert in_memory.manifest is not None
        assert stored.manifest is not None
        assert in_memory.manifest.digests.data == stored.manifest.digests.data
        assert in_memory.class_names == stored.class_names
        assert in_memory.manifest.data.input_shape == stored.manifest.data.input_shape
        assert not any("differ in" in str(note) for note in sc.compare(in_memory, stored).notes)

    def test_other_indices(self) -> None:
        smoothed = sc.SmoothedClassifier(
            lambda x: (x.mean(axis=1) > 0.5).astype(int), sigma=0.3, num_classes=2, batch=64
        )
        x = np.full((2, 4), 0.75, dtype=np.float32)
        first, second = (smoothed.certify(x, n0=20, n=100) for _ in range(2))
        with pytest.raises(RunError, match="indices=range"):
            sc.compare(first, second)

    def test_what_is_not_results(self) -> None:
        with pytest.raises(InputError, match="dict"):
            sc.compare({}, {})  # type: ignore[arg-type]
