"""Samples of selected runs drawn again: of the selector, and of each level at which an input was sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

import smoothcert as sc
from cli_runner import invoke
from sample_models import digits_by_brightness
from selector_models import finite_where_dark
from smoothcert.cli.main import app
from smoothcert_verify.findings import OptionError
from smoothcert_verify.place_checks import CheckOptions, Inspection, inspect_places
from smoothcert_verify.selection_facts import derive_seed
from smoothcert_verify.selection_replay import PartModels
from verified_runs import copy_of, resealed

SELECTOR, MODEL = "selector_models:finite_where_dark", "sample_models:digits_by_brightness"
MODELS = f"{SELECTOR},{MODEL}"
FAILED, ANSWERED = 0, 60


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The selector has no finite answer for the first of two inputs."""
    out = tmp_path_factory.mktemp("selections") / "run"
    data = ("--model", MODEL, "--data", "digits", "--skip", 60, "--max", 2, "--workers", 1, "--batch", 64, "--seed", 3)
    levels = ("--selector", SELECTOR, "--levels", "0.1,0.25,0.5", "--selector-sigma", 0.5)
    invoke(app, "certify", *data, *levels, "--n0", 20, "--n", 100, "--alpha", 0.05, "--out", out)
    return out


def replay(run: Path, models: str = MODELS, **options: Any) -> Inspection:
    return inspect_places([run], CheckOptions(model=models, count=2, **options))


def codes(inspection: Inspection) -> list[str]:
    return [f"{one.code} {one.where}" for one in inspection.list_discrepancies()]


@pytest.mark.slow
def test_all_inputs_of_an_honest_run(honest: Path, tmp_path: Path) -> None:
    inspection = replay(honest)
    assert (inspection.replayed, codes(inspection)) == (2, [])
    assert (replay(honest, f"{MODELS},{MODEL},{MODEL}", indices="60").replayed) == 1
    invoke(app, "export", honest, "--format", "certificate", "-o", tmp_path / "certificates")
    inspection = replay(tmp_path / "certificates")
    assert (inspection.replayed, codes(inspection)) == (2, [])


@pytest.mark.slow
def test_votes_of_another_seed(honest: Path, tmp_path: Path) -> None:
    """Everything is consistent and sealed; only the noise was another."""
    run = copy_of(honest, tmp_path)
    selection = json.loads((run / "selection.json").read_text())
    selection["spec"]["seed"] = 4
    (run / "selection.json").write_text(json.dumps(selection))
    parts = [part for part in run.iterdir() if part.is_dir()]
    for part in parts:
        manifest = json.loads((part / "manifest.json").read_text())
        manifest["seed"] = manifest["spec"]["seed"] = derive_seed(4, part.name)
        (part / "manifest.json").write_text(json.dumps(manifest))
        resealed(part)
    assert inspect_places([run], CheckOptions()).consistent
    found = codes(replay(run, indices=str(ANSWERED)))
    assert {one.split()[1].rstrip(":") for one in found} == {part.name for part in parts}
    assert {one.split()[0] for one in found} == {"other-votes"}


@pytest.mark.slow
def test_models_that_are_not_those_of_the_run(honest: Path) -> None:
    inspection = replay(honest, f"selector_models:by_brightness,{MODEL}")
    assert (inspection.replayed, codes(inspection)) == (0, ["other-model selector"])
    inspection = replay(honest, f"{SELECTOR},{MODEL},sample_models:logistic_digits,{MODEL}")
    assert inspection.replayed == 0
    assert [one for one in codes(inspection) if "other-model level-0.25" in one]


@pytest.mark.slow
def test_a_label_of_an_input_that_failed(honest: Path, tmp_path: Path) -> None:
    """No level was sampled for it, so no part has its label."""
    run = copy_of(honest, tmp_path)
    claims = json.loads((run / "claims.json").read_text())
    assert claims["points"][0]["verdicts"][0]["outcome"] == "failed"
    claims["points"][0]["label"] += 1
    (run / "claims.json").write_text(json.dumps(claims))
    assert inspect_places([run], CheckOptions()).consistent
    assert codes(replay(run, indices=str(FAILED))) == ["differs input 0"]


@pytest.mark.slow
def test_a_run_from_python_keeps_its_inputs(tmp_path: Path) -> None:
    """With the labels of the levels, of which the selector knows nothing."""
    data = sc.load_dataset("digits", split="test")
    classifier = sc.SelectedClassifier(
        finite_where_dark, digits_by_brightness, levels=(0.1, 0.25, 0.5), selector_sigma=0.5, grid=data.levels, seed=5
    )
    run = tmp_path / "run"
    labels = data.labels[:2].tolist()
    classifier.certify(data.inputs(range(2)), n0=20, n=100, alpha=0.05, labels=labels, out=run)
    inspection = replay(run)
    assert (inspection.replayed, codes(inspection)) == (2, [])
    selector = inspect_places([run / "selector"], CheckOptions(model=SELECTOR, count=1))
    assert (selector.replayed, codes(selector)) == (1, [])


def test_models_are_named_in_one_text() -> None:
    one = PartModels.parse("h,f", weights="w", levels=3)
    assert (one.selector, one.levels, one.weights) == ("h", ("f", "f", "f"), "w")
    assert PartModels.parse("h,a,b,c", weights=None, levels=3).levels == ("a", "b", "c")
    for text in ("h", "h,a,b", "h,a,b,c,d", "h,", ",f"):
        with pytest.raises(OptionError, match="needs its selector and the models of its 3 levels"):
            PartModels.parse(text, weights=None, levels=3)


@pytest.mark.slow
def test_nothing_is_drawn_again_of_what_is_not_consistent(honest: Path, tmp_path: Path) -> None:
    run = copy_of(honest, tmp_path)
    (run / "claims.json").write_text('{"schema": 1, "points": []}')
    inspection = replay(run)
    assert inspection.replayed == 0
    assert "replay-skipped" in [remark.code for remark, _ in inspection.reports[0].remarks]


@pytest.mark.slow
def test_the_command(honest: Path) -> None:
    text = invoke(app, "verify", honest, "--replay", MODELS, 1, "--replay-indices", ANSWERED).output
    assert "all is proved" in text
    assert "the samples of 1 input were drawn again" in text
