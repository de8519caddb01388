"""Attacks on a run with a scale of its features: the half-space breaks exactly at its distance in the scaled norm."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from attack_models import WEIGHTS, inputs_at, saved_inputs
from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert.errors import BrokenCertificateError, InputError
from verified_runs import altered, copy_of, resealed

SCALE = np.array([0.5, 2.0, 1.0, 3.0, 0.25, 4.0])
DISTANCE = 0.5
EXACT = DISTANCE * np.linalg.norm(WEIGHTS) / np.linalg.norm(SCALE * WEIGHTS)
"""|w·x + b| / ‖s⊙w‖, the same for all inputs."""
QUICK = ("--steps", 20, "--draws", 20, "--n", 500, "--seed", 7)


def certified(folder: Path, *options: object) -> Path:
    data, run = saved_inputs(folder / "inputs.npz", DISTANCE, count=4), folder / "run"
    fixed = ("--num-classes", 2, "--batch", 500, "--seed", 1, "--n0", 20, "--n", 500, "--out", run)
    scale = ("--sigma", 0.01, "--sigma-scale", ",".join(map(str, SCALE)))
    ends = ("--input-range", "any") if "--input-range" not in options else ()
    done = invoke(app, "certify", "--model", "attack_models:HalfSpace", "--data", data, *scale, *fixed, *ends, *options)
    assert done.exit_code == 0, done.output
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("half-space"))


def results(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "attack.jsonl").read_text().splitlines()[1:]]


@pytest.mark.parametrize("method", ["pgd", "ddn"])
def test_it_breaks_at_the_exact_scaled_distance(run: Path, tmp_path: Path, method: str) -> None:
    attacked = copy_of(run, tmp_path)
    radii = [f"{EXACT * share:.6f}" for share in (0.9, 1.1)]
    done = invoke(app, "attack", attacked, "--radius", radii[0], "--radius", radii[1], "--method", method, *QUICK)
    assert done.exit_code == 0, done.output
    assert "gradients: exact" in done.output
    fates = {radius: {line["fate"] for line in results(attacked) if line["radius"] == radius} for radius in radii}
    assert fates == {radii[0]: {"unchanged"}, radii[1]: {"changed"}}
    assert all(line["distance"] <= float(line["radius"]) for line in results(attacked))
    assert invoke(app, "verify", attacked, "--data", run.parent / "inputs.npz").exit_code == 0


def test_what_is_stored_of_a_broken_certificate_is_measured_by_the_checker(run: Path, tmp_path: Path) -> None:
    """A run whose radii are false. The points are in scaled units, and so are their distances."""
    false = copy_of(run, tmp_path)
    altered(false / "results.sqlite", f"UPDATE verdicts SET radius = {1.2 * EXACT}")
    resealed(false)
    with pytest.raises(BrokenCertificateError, match=r"closer than .* in scaled l2, but at distance"):
        invoke(app, "attack", false, *QUICK)
    inputs, _ = inputs_at(DISTANCE, count=4)
    for line in results(false):
        point = np.frombuffer(base64.b64decode(line["point"]), dtype="<f4").astype(np.float64)
        assert np.linalg.norm(point - inputs[line["index"]] / SCALE) == pytest.approx(line["distance"], rel=1e-5)
        assert abs((point * SCALE - inputs[line["index"]]) @ WEIGHTS) > DISTANCE * np.linalg.norm(WEIGHTS)
    found = json.loads(invoke(app, "verify", false, "--data", run.parent / "inputs.npz", "--json").stdout)
    assert found["places"][0]["discrepancies"], "the radii are false"
    assert _about_record(found) == []
    # The control: with another scale the same points have other distances.
    manifest = json.loads((false / "manifest.json").read_text())
    manifest["spec"]["noise"]["scale"][0] *= 1.5
    (false / "manifest.json").write_text(json.dumps(manifest))
    resealed(false)
    found = json.loads(invoke(app, "verify", false, "--data", run.parent / "inputs.npz", "--json").stdout)
    assert {line["values"]["field"] for line in _about_record(found)} == {"distance"}


def _about_record(found: dict) -> list[dict]:
    return [one for one in found["places"][0]["discrepancies"] if one["where"].startswith("attack.jsonl")]


def test_a_range_of_the_data_needs_any_bounds(tmp_path: Path) -> None:
    ranged = certified(tmp_path, "--input-range", "-9,9")
    with pytest.raises(InputError, match="use --bounds any"):
        invoke(app, "attack", ranged, *QUICK)
    assert invoke(app, "attack", ranged, "--bounds", "any", *QUICK).exit_code == 0
