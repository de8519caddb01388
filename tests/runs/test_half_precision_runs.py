"""Runs in half precision: every record says so, and neither a resumed run nor a forged manifest can change it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from torch import nn

from cli_runner import invoke
from run_specs import finish_run, make_spec, resumed_spec
from selected_runs import selected_spec
from smoothcert.cli.main import app
from smoothcert.errors import InputError, InterruptedRunError, ManifestMismatchError
from smoothcert.models.architectures import build
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.records import Outcome, RemarkCode
from smoothcert.results.opened_runs import open_run
from smoothcert.results.selected_classifier import SelectedClassifier
from smoothcert.runs.execution import check_spec
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import ModelSpec, RunSpec, decode_part, to_json
from smoothcert_verify.run_checks import verify_certificates
from verified_runs import redigested, resealed

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "certificate.schema.json"
STATED = "The model is computed in bfloat16."
Make = Callable[..., RunSpec]


def network(outputs: int = 10) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build("mlp", num_classes=outputs, input_shape=(1, 8, 8)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("half")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    save_checkpoint(folder / "net.safetensors", network(), CheckpointHeader("mlp", 10, (1, 8, 8)))
    return folder / "net.safetensors"


@pytest.fixture(scope="module")
def given(model: Path) -> tuple[object, ...]:
    data = ("--model", model, "--data", "digits", "--sigma", 0.1, "--max", 4, "--skip", 60, "--device", "cpu")
    return (*data, "--seed", 5, "--batch", 64, "--workers", 1)


@pytest.fixture(scope="module")
def run(given: tuple[object, ...], folder: Path) -> Path:
    """A run in bfloat16, by the command line. Do not change it."""
    begun = invoke(
        app, "certify", *given, "--n0", 20, "--n", 300, "--dtype", "bfloat16", "--rigorous", "--out", folder / "run"
    )
    assert "in bfloat16; torch cpu eager, autocast to bfloat16, batch 64" in begun.stderr
    assert "not as a fused graph: it computes in bfloat16" in begun.stderr
    return folder / "run"


@pytest.fixture
def spec(model: Path) -> Make:
    settings: dict[str, Any] = {
        "model": str(model), "data": "digits", "sigma": 0.1, "n0": 20, "n": 300, "alpha": 0.01, "max_inputs": 40,
        "seed": 5, "batch": 64, "device": "cpu", "dtype": "bfloat16",
    }  # fmt: skip
    return lambda **changes: make_spec(**(settings | changes))


def test_manifest_points_and_tables_say_it(run: Path) -> None:
    manifest = read_manifest(run)
    assert manifest.spec.model.precision == "bfloat16"
    assert json.loads((run / "manifest.json").read_text())["spec"]["model"]["dtype"] == "bfloat16"
    with RunStore.open(run) as store:
        points = store.points()
    certified = [point for point in points if point.outcome is Outcome.CERTIFIED]
    assert certified
    for point in certified:
        assert point.guarantee is not None
        assert STATED in str(point.guarantee)
        assert point.guarantee.to_json()["dtype"] == "bfloat16"
        assert "dtype='bfloat16'" in repr(point)
        assert "dtype='bfloat16'" in repr(point.guarantee)
    remark = "the model was computed in bfloat16, by torch.autocast"
    assert remark in invoke(app, "table", run).stdout
    (results,) = [open_run(run)]
    assert [one.code for one in results.columns.list_remarks()] == [RemarkCode.HALF_PRECISION]


def test_the_report_says_it(run: Path, tmp_path: Path) -> None:
    invoke(app, "report", run, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "the model was computed in bfloat16" in page
    assert "precision of the model" in page


def test_a_run_in_the_precision_of_the_model_says_nothing_as_in_earlier_versions(spec: Make, tmp_path: Path) -> None:
    """Its manifest, and with it every seal and digest, has no new field; and its points differ."""
    points = finish_run(spec(dtype=None), tmp_path / "run")
    document = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert "dtype" not in document["spec"]["model"]
    assert decode_part(document["spec"]["model"], ModelSpec).precision is None
    assert to_json(read_manifest(tmp_path / "run")) == document
    assert all("bfloat16" not in str(point.guarantee) + repr(point) for point in points)
    assert "dtype" not in next(point.guarantee for point in points if point.guarantee is not None).to_json()


@pytest.mark.parametrize("value", [None, "float32", "float64", 16, ["bfloat16"]])
def test_a_manifest_with_another_value_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"\$\.dtype"):
        decode_part({"place": "net.safetensors", "dtype": value}, ModelSpec)


def test_recertified_results_say_it(run: Path, tmp_path: Path) -> None:
    assert "computed in bfloat16" in invoke(app, "recertify", run, "--n", 200, "--out", tmp_path / "again").stdout
    again = open_run(tmp_path / "again")
    assert any(STATED in str(point.guarantee) for point in again)
    assert all(STATED in str(point.guarantee) for point in open_run(run).recertify(alpha=0.01) if point.guarantee)
    assert "all is proved" in invoke(app, "verify", tmp_path / "again").stdout


def test_predictions_say_it(given: tuple[object, ...], tmp_path: Path) -> None:
    done = invoke(app, "predict", *given, "--n", 200, "--dtype", "float16", "--out", tmp_path / "run")
    assert "computed in float16" in done.stdout
    assert {point.dtype for point in open_run(tmp_path / "run")} == {"float16"}


@pytest.mark.slow
def test_a_run_is_resumed_in_its_precision_and_in_no_other(spec: Make, tmp_path: Path) -> None:
    whole = finish_run(spec(), tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        finish_run(spec(), tmp_path / "stopped", stop_after=1)
    assert 0 < len(RunStore.open(tmp_path / "stopped").indices()) < len(whole)
    for other in (None, "float16"):
        with pytest.raises(ManifestMismatchError, match=r"spec\.model\.dtype: the run has 'bfloat16', now"):
            finish_run(spec(dtype=other), tmp_path / "stopped")
    assert resumed_spec(tmp_path / "stopped").model.precision == "bfloat16"
    assert finish_run(resumed_spec(tmp_path / "stopped"), tmp_path / "stopped") == whole
    assert finish_run(spec(), tmp_path / "stopped") == whole


def test_a_float32_run_is_not_resumed_in_half_precision(spec: Make, tmp_path: Path) -> None:
    finish_run(spec(dtype=None, max_inputs=2), tmp_path / "run")
    with pytest.raises(ManifestMismatchError, match=r"spec\.model\.dtype: the run has 'nothing', now 'bfloat16'"):
        finish_run(spec(max_inputs=2), tmp_path / "run")


def test_the_precision_cannot_be_given_again(run: Path) -> None:
    assert "4 of 4 inputs are already in" in invoke(app, "certify", "--resume", run).stderr
    with pytest.raises(InputError, match="leave --dtype out"):
        invoke(app, "certify", "--resume", run, "--dtype", "float16")


# --- the checker ----------------------------------------------------------------------------------------------------


def test_the_checker_reads_and_replays_it(run: Path, model: Path) -> None:
    replayed = invoke(app, "verify", run, "--replay", model, 2)
    assert replayed.exit_code == 0
    assert "the samples of 2 inputs were drawn again" in replayed.stdout
    assert "none differed" in replayed.stdout


def exported(run: Path, folder: Path) -> list[dict[str, Any]]:
    invoke(app, "export", run, "--format", "certificate", "-o", folder)
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


def test_exported_certificates_say_it(run: Path, tmp_path: Path) -> None:
    schema = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    for document in exported(run, tmp_path / "all"):
        assert document["run"]["spec"]["model"]["dtype"] == "bfloat16"
        assert [error.message for error in schema.iter_errors(document)] == []
        document["run"]["spec"]["model"]["dtype"] = "float32"
        assert [error.message for error in schema.iter_errors(document)] != []
    (first, *_) = sorted((tmp_path / "all").glob("*.json"))
    assert "in l2 distance; the model is computed in bfloat16" in invoke(app, "verify", first).stdout


@pytest.mark.parametrize("forged", [None, "float16", "float32"])
def test_another_precision_in_a_certificate_is_refused(run: Path, tmp_path: Path, forged: str | None) -> None:
    """Sealed anew, so that only the content can show it."""
    document = exported(run, tmp_path / "all")[0]
    stated = document["run"]["spec"]["model"]
    if forged is None:
        del stated["dtype"]
    else:
        stated["dtype"] = forged
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "forged.json").write_text(json.dumps(redigested(document)))
    found = verify_certificates(tmp_path / "one").discrepancies
    assert [finding.values["field"] for finding in found] == ["run.spec.model.dtype"]


def test_a_precision_that_was_never_there_is_refused(given: tuple[object, ...], tmp_path: Path) -> None:
    invoke(app, "certify", *given, "--n0", 20, "--n", 100, "--out", tmp_path / "run")
    document = exported(tmp_path / "run", tmp_path / "all")[0]
    document["run"]["spec"]["model"]["dtype"] = "bfloat16"
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "forged.json").write_text(json.dumps(redigested(document)))
    found = verify_certificates(tmp_path / "one").discrepancies
    assert [finding.values["field"] for finding in found] == ["run.spec.model.dtype"]


def test_a_precision_where_none_is_possible_is_refused(run: Path, tmp_path: Path) -> None:
    document = exported(run, tmp_path / "all")[0]
    document["run"]["spec"]["model"]["backend"] = "onnxruntime"
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "forged.json").write_text(json.dumps(redigested(document)))
    found = verify_certificates(tmp_path / "one").discrepancies
    assert [finding.values["field"] for finding in found] == ["run.spec.model.backend"]


def test_a_manifest_that_was_changed_breaks_its_seals(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    _restate(copy, None)
    refused = invoke(app, "verify", copy)
    assert refused.exit_code == 1
    assert "run.spec.model.dtype" in refused.stdout


def test_a_forgery_in_all_places_is_refused_by_a_replay(run: Path, model: Path, tmp_path: Path) -> None:
    """Precision, back end and seals are changed together: only the model shows which function the votes are of."""
    copy = shutil.copytree(run, tmp_path / "run")
    _restate(copy, None, backend="torch cpu frozen")
    resealed(copy)
    assert invoke(app, "verify", copy).exit_code == 0
    replayed = invoke(app, "verify", copy, "--replay", model, 1)
    assert replayed.exit_code == 1
    assert "the model is not the one of the run: its digest" in replayed.stdout


def _restate(run: Path, dtype: str | None, *, backend: str | None = None) -> None:
    document = json.loads((run / "manifest.json").read_text())
    del document["spec"]["model"]["dtype"]
    if dtype is not None:
        document["spec"]["model"]["dtype"] = dtype
    if backend is not None:
        document["measured"]["backend"] = backend
    (run / "manifest.json").chmod(0o644)
    (run / "manifest.json").write_text(json.dumps(document))


# --- attack, advice, Python -----------------------------------------------------------------------------------------


def test_an_attack_judges_by_the_classifier_of_the_run(run: Path, model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    done = invoke(app, "attack", copy, "--n", 100, "--max", 1, "--steps", 2, "--draws", 10)
    assert done.exit_code == 0
    assert "in bfloat16; gradients: exact" in done.stderr


@pytest.mark.slow
def test_advice_is_about_that_precision(model: Path) -> None:
    said = invoke(
        app, "advise", "--model", model, "--data", "digits", "--inputs", 2, "--sigma", 0.1, "--dtype", "bfloat16",
        "--device", "cpu", "--workers", 1,
    ).stdout  # fmt: skip
    assert "autocast to bfloat16" in said
    assert "--dtype bfloat16" in said


def test_a_run_from_python(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 1, 8, 8), dtype=np.uint8)
    module = network()

    def make(**options: Any) -> SmoothedClassifier:
        return SmoothedClassifier(module, sigma=0.1, seed=3, batch=32, device="cpu", **options)

    called = make(dtype="bfloat16").certify(x, n0=20, n=100, alpha=0.01)
    stored = make(dtype=torch.bfloat16).certify(x, n0=20, n=100, alpha=0.01, out=tmp_path / "run")
    assert [(point.prediction, point.radius, point.dtype) for point in called] == [
        (point.prediction, point.radius, "bfloat16") for point in stored
    ]
    assert called.manifest is not None
    assert called.manifest.spec.model.precision == "bfloat16"
    again = make(dtype="bfloat16").certify(x, n0=20, n=100, alpha=0.01, out=tmp_path / "run")
    assert [point.radius for point in again] == [point.radius for point in stored]
    with pytest.raises(ManifestMismatchError, match=r"spec\.model\.dtype"):
        make().certify(x, n0=20, n=100, alpha=0.01, out=tmp_path / "run")


# --- a selected sigma -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_selector_and_levels_have_one_precision(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 1, 8, 8), dtype=np.uint8)
    selected = SelectedClassifier(
        network(2), network(), levels=(0.05, 0.1), selector_sigma=0.1, dtype="bfloat16", seed=1, batch=32, device="cpu"
    )
    asked: dict[str, Any] = {"n0": 20, "n": 200, "alpha": 0.05}
    called, stored = selected.certify(x, **asked), selected.certify(x, out=tmp_path / "run", **asked)
    for results in (called, stored):
        assert {point.dtype for point in results} == {"bfloat16"}
        assert any(STATED in str(point.guarantee) for point in results)
    assert "computed in bfloat16" in invoke(app, "table", tmp_path / "run").stdout
    verified = invoke(app, "verify", tmp_path / "run")
    assert verified.exit_code == 0
    spec = decode_part(json.loads((tmp_path / "run" / "selection.json").read_text())["spec"], SelectedSpec)
    assert [model.precision for model in (spec.selector, *spec.models)] == ["bfloat16", "bfloat16"]
    document = json.loads((tmp_path / "run" / "selection.json").read_text())
    del document["spec"]["models"][0]["dtype"]
    (tmp_path / "run" / "selection.json").write_text(json.dumps(document))
    forged = invoke(app, "verify", tmp_path / "run")
    assert forged.exit_code == 1
    assert "selection.spec.models.dtype is None, expected 'bfloat16'" in forged.stdout


def test_a_selector_of_another_precision_than_its_levels_is_refused() -> None:
    half = ModelSpec(place="net.safetensors", dtype="bfloat16")
    selected_spec(selector=half, models=(half,)).check()
    with pytest.raises(InputError, match="give the same dtype to all models"):
        selected_spec(selector=half, models=(ModelSpec(place="net.safetensors"),)).check()


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dtype", "float64"), "there is no precision 'float64'"),
        (("--dtype", "bfloat16", "--backend", "onnxruntime"), "--backend onnxruntime computes in float32"),
        (("--dtype", "bfloat16", "--backend", "fastest"), "--backend fastest computes in float32"),
        (("--dtype", "bfloat16", "--noise-at", "first-layer"), "needs the noise at the input"),
        (("--dtype", "bfloat16", "--model", "net.onnx"), "the model is an ONNX file"),
        pytest.param(
            ("--dtype", "bfloat16", "--model", "sample_models:logistic_digits"),
            "the model is a LogisticRegression",
            marks=pytest.mark.slow,
        ),
        (
            ("--dtype", "bfloat16", "--model", "sample_models:darkness", "--num-classes", 2),
            "the model is a function",
        ),
    ],
)
def test_what_cannot_have_it_is_refused(
    given: tuple[object, ...], options: tuple[object, ...], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        invoke(app, "certify", *given, "--n", 100, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_spec_is_refused_before_anything_is_loaded(spec: Make) -> None:
    with pytest.raises(InputError, match="--backend fastest computes in float32"):
        check_spec(spec(model="nowhere", backend="fastest"))
