"""A run with a scale of its features whose scale was changed in every place, with all digests made anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

from cli_runner import invoke
from smoothcert.cli.main import app
from smoothcert_verify.run_checks import verify_certificates
from verified_runs import SCALED_MODEL, copy_of, make_run, redigested, resealed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run("scaled", tmp_path_factory.mktemp("scales"))


def forge(run: Path, tmp_path: Path, **noise: Any) -> Path:
    """The run with another noise in its manifest, sealed anew."""
    forged = copy_of(run, tmp_path)
    manifest = json.loads((forged / "manifest.json").read_text())
    manifest["spec"]["noise"] |= noise
    (forged / "manifest.json").write_text(json.dumps(manifest))
    resealed(forged)
    return forged


def findings(place: Path, *options: object) -> list[str]:
    checked = json.loads(invoke(app, "verify", place, "--json", *options).stdout)
    return [line["code"] for report in checked["places"] for line in report["discrepancies"]]


def replayed(place: Path) -> list[str]:
    return findings(place, "--replay", SCALED_MODEL, 2)


def test_unchanged_it_is_proved_and_drawn_again(run: Path, tmp_path: Path) -> None:
    assert replayed(forge(run, tmp_path)) == []


@pytest.mark.parametrize("scale", [[0.5, 2.0000001], [2.0, 0.5], [50.0, 200.0], None])
def test_only_the_model_shows_another_scale(run: Path, tmp_path: Path, scale: list[float] | None) -> None:
    forged = forge(run, tmp_path, scale=scale)
    assert findings(forged) == []
    assert "other-model" in replayed(forged)


def test_the_votes_show_it_too(run: Path, tmp_path: Path) -> None:
    """Somebody who also makes the digest of the model anew is left with the votes, and with the probe."""
    from smoothcert.models import load_classifier
    from smoothcert.models.scaled_classifier import scale_classifier
    from smoothcert.records.feature_scale import FeatureScale

    forged = forge(run, tmp_path, scale=[5.0, 20.0])
    manifest = json.loads((forged / "manifest.json").read_text())
    base = load_classifier(SCALED_MODEL, input_shape=(2,))
    manifest["digests"]["model"] = scale_classifier(base, FeatureScale((5.0, 20.0))).digest
    manifest["model"]["probe"] = None
    (forged / "manifest.json").write_text(json.dumps(manifest))
    resealed(forged)
    assert findings(forged) == []
    assert "other-votes" in replayed(forged)


@pytest.mark.parametrize(
    ("noise", "code"),
    [
        ({"scale": [0.5]}, "differs"),
        ({"scale": [0.5, 2.0, 1.0]}, "differs"),
        ({"scale": [0.5, 0.0]}, "invalid-value"),
        ({"scale": [0.5, -2.0]}, "invalid-value"),
        ({"scale": [0.5, 1e300]}, "invalid-value"),
        ({"scale": []}, "invalid-value"),
        ({"scale": "std"}, "invalid-value"),
        ({"grid": 256, "generator": "chacha20"}, "not-with-a-scale"),
        ({"place": "first-layer"}, "not-with-a-scale"),
    ],
)
def test_a_scale_that_cannot_be(run: Path, tmp_path: Path, noise: dict[str, Any], code: str) -> None:
    assert code in findings(forge(run, tmp_path, **noise))


def test_a_document_without_the_scale_of_its_run(run: Path, tmp_path: Path) -> None:
    invoke(app, "export", run, "--format", "certificate", "-o", tmp_path / "certificates")
    file = next(iter(sorted((tmp_path / "certificates").glob("*.json"))))
    document = json.loads(file.read_text())
    for scale in (None, [1.0, 1.0]):
        document["smoothing"]["noise"]["scale"] = scale
        file.write_text(json.dumps(redigested(document)))
        codes = [finding.code for finding in verify_certificates(file).discrepancies]
        assert codes == ["differs"]
