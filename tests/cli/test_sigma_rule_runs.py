"""`--sigma-rule` from the command line: fit, certify, stop, resume, recertify, show and export."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli_runner import invoke, smoothcert
from run_specs import resumed_spec
from sample_rules import digits_knn, random_network, saved
from smoothcert.cli.main import app
from smoothcert.errors import DataError, InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.runs.execution import PreparedRun, execute_run
from smoothcert.runs.run_files import SIGMA_RULE
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sigma.rule_files import load_rule
from smoothcert.spec import RuleLevel

MODEL = ("--model", "sample_models:digits_by_brightness", "--num-classes", 10, "--data", "digits")
SMALL = ("--n0", 20, "--n", 500, "--max", 8, "--seed", 1, "--batch", 64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rule and a run by it; nobody may change them."""
    place = tmp_path_factory.mktemp("rules")
    rule = place / "knn.safetensors"
    invoke(
        app, "sigma", "fit", "--data", "digits", "--sigma", 0.15, "--k", 5, "--rate", 0.02, "--offset", 1.5,
        "--max-points", 200, "--out", rule,
    )  # fmt: skip
    invoke(app, "certify", *MODEL, *SMALL, "--sigma-rule", rule, "--out", place / "run")
    return place


def radii(path: Path) -> list[float]:
    with RunStore.open(path) as store:
        return [point.radius for point in store.points()]


def test_a_fitted_rule_is_kept_with_the_run(folder: Path) -> None:
    rule = load_rule(folder / "knn.safetensors")
    assert (folder / "run" / SIGMA_RULE).read_bytes() == (folder / "knn.safetensors").read_bytes()
    manifest = read_manifest(folder / "run")
    assert manifest.digests.sigma == rule.digest
    assert manifest.sigma is not None
    assert manifest.sigma.envelope == {"kind": "semi-elastic", "rate": 0.02}
    assert manifest.spec.certificates == ("envelope",)


def test_the_same_command_resumes(folder: Path) -> None:
    result = invoke(
        app, "certify", *MODEL, *SMALL, "--sigma-rule", folder / "knn.safetensors", "--out", folder / "run"
    )  # fmt: skip
    assert "8 of 8 inputs are already in" in result.stderr


def test_stopped_and_resumed_without_the_original(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after its second shard; then another rule is put where the original was."""
    rule, out = tmp_path / "knn.safetensors", tmp_path / "run"
    shutil.copy(folder / "knn.safetensors", rule)
    given = ("certify", *MODEL, *SMALL, "--sigma-rule", rule, "--out", out)
    stopping = iter([False, True])

    def stop_at_the_second(*_: object, **__: object) -> None:
        if next(stopping, True):
            raise KeyboardInterrupt

    def interrupted(run: PreparedRun, **options: Any) -> None:
        execute_run(run, **(options | {"on_shard": stop_at_the_second}))

    with monkeypatch.context() as patch:
        patch.setattr("smoothcert.cli.running.execute_run", interrupted)
        with pytest.raises(InterruptedRunError, match=r"Resume with: smoothcert certify --resume"):
            invoke(app, *given)
    assert 0 < len(radii(out)) < 8
    rule.unlink()
    saved(rule, digits_knn(rate=0.05))
    with pytest.raises(ManifestMismatchError, match=r"digests\.sigma"):
        invoke(app, *given)
    result = invoke(app, "certify", "--resume", out)
    assert "inputs are already in" in result.stderr
    assert radii(out) == radii(folder / "run")


def test_resume_takes_no_other_rule(folder: Path) -> None:
    with pytest.raises(InputError, match="leave --sigma-rule out"):
        invoke(app, "certify", "--resume", folder / "run", "--sigma-rule", folder / "knn.safetensors")


def test_the_table_shows_the_range(folder: Path) -> None:
    with RunStore.open(folder / "run") as store:
        levels = [point.sigma for point in store.points()]
    assert f"{min(levels):.3g}-{max(levels):.3g}" in invoke(app, "table", folder / "run").stdout
    (row,) = json.loads(invoke(app, "table", folder / "run", "--json").stdout)
    assert row["sigma"] is None
    assert row["sigma_range"] == [min(levels), max(levels)]


def test_export(folder: Path, tmp_path: Path) -> None:
    with RunStore.open(folder / "run") as store:
        points = store.points()
    invoke(app, "export", folder / "run", "-o", tmp_path / "run.csv", "--format", "csv")
    with (tmp_path / "run.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [float(row["sigma"]) for row in rows] == [point.sigma for point in points]
    assert [float(row["radius"]) for row in rows] == [point.radius for point in points]
    invoke(app, "export", folder / "run", "-o", tmp_path / "run.json", "--format", "json")
    assert "envelope" in (tmp_path / "run.json").read_text()
    invoke(app, "export", folder / "run", "-o", tmp_path / "run.tsv")
    lines = (tmp_path / "run.tsv").read_text().splitlines()
    assert len(lines) == 9
    for line, point in zip(lines[1:], points, strict=True):
        assert float(line.split("\t")[3]) <= point.radius


def test_recertify(folder: Path, tmp_path: Path) -> None:
    (row,) = json.loads(
        invoke(
            app, "recertify", folder / "run", "--certificate", "envelope-two-class", "--alpha", 0.01, "--json",
            "--out", tmp_path / "again",
        ).stdout
    )  # fmt: skip
    assert row["sigma_range"] is not None
    again = read_manifest(tmp_path / "again")
    assert again.sigma is not None
    assert again.sigma.envelope == {"kind": "semi-elastic", "rate": 0.02}
    assert len(json.loads(invoke(app, "recertify", folder / "run", "--certificate", "renyi", "--json").stdout)) == 1
    with pytest.raises(InputError, match="is proved for a constant sigma"):
        invoke(app, "recertify", folder / "run", "--certificate", "gaussian")


def test_both_or_none() -> None:
    with pytest.raises(InputError, match=r"give either --sigma, .* or --sigma-rule"):
        invoke(app, "certify", *MODEL, *SMALL, "--sigma", 0.25, "--sigma-rule", "knn.safetensors")
    with pytest.raises(InputError, match=r"a new run needs --sigma \(or --sigma-rule\)"):
        invoke(app, "certify", *MODEL, *SMALL)


def test_own_code_is_refused_by_certify_and_fine_for_predict(tmp_path: Path) -> None:
    """Through the console, with its exit code: one sentence, both ways out, nothing left behind."""
    own = (*MODEL, "--n", 200, "--max", 3, "--seed", 1, "--batch", 64, "--sigma-rule", "sample_rules:by_brightness")
    refused = smoothcert("certify", *own, "--out", tmp_path / "certify")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    last = refused.stderr.strip().splitlines()[-1]
    assert last.startswith("smoothcert: this sigma has no envelope: nothing is proved about how fast")
    for way in ("an envelope", "a memory", "smoothcert predict"):
        assert way in refused.stderr
    assert not (tmp_path / "certify").exists()
    done = invoke(app, "predict", *own, "--out", tmp_path / "predict", "--json")
    (row,) = json.loads(done.stdout)
    assert row["sigma_range"][0] > 0.1


def test_a_rule_for_another_size_is_refused_before_sampling(tmp_path: Path) -> None:
    rule = saved(tmp_path / "mnist.safetensors", random_network(784, lipschitz=0.01, floor=0.1))
    with pytest.raises((DataError, InputError), match=r"shape \(1, 8, 8\).* made for 784 numbers"):
        invoke(app, "certify", *MODEL, *SMALL, "--sigma-rule", rule, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_soft_certificates_side_by_side(tmp_path: Path) -> None:
    rule = saved(
        tmp_path / "net.safetensors", random_network(64, lipschitz=0.02, floor=0.2, spread=0.05, seed=2)
    )  # fmt: skip
    invoke(
        app, "certify", "--model", "sample_models:logistic_digits", "--data", "digits", *SMALL, "--sigma-rule", rule,
        "--certificate", "envelope-soft", "--certificate", "lipschitz", "--out", tmp_path / "run",
    )  # fmt: skip
    with RunStore.open(tmp_path / "run") as store:
        points = store.points()
    assert all(point.further[0].radius <= point.radius for point in points)
    assert any(point.further[0].radius > 0 for point in points)
    rows = {row["run"]: row for row in json.loads(invoke(app, "table", tmp_path / "run", "--json").stdout)}
    assert len(rows) == 2
    assert {name.rpartition("@")[2] for name in rows} == {"envelope-soft", "lipschitz"}


def test_the_default_folder_is_named_after_the_rule(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke(
        app, "predict", *MODEL, "--n", 100, "--max", 2, "--batch", 32, "--sigma-rule", folder / "knn.safetensors"
    )  # fmt: skip
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.endswith("sigma-knn")
    assert resumed_spec(made, task="predict").sigma == RuleLevel(place=str(made / SIGMA_RULE))
