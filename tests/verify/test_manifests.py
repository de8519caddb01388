"""A manifest that contradicts itself, its job or the run it was recertified from is found, whatever its seals say."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")

from smoothcert.records.envelopes import LipschitzSigma
from smoothcert.sigma.files import save_rule
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.network import SigmaNetwork
from smoothcert_verify.manifests import check_manifest, rule_digest
from smoothcert_verify.point import check_document_with_remarks
from smoothcert_verify.run_checks import verify_run
from smoothcert_verify.sigma_rules import read_rule
from verified_runs import copy_of, make_run, resealed

Manifest = dict[str, Any]
Change = Callable[[Manifest], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifests")


def manifest_of(kind: str, folder: Path) -> Manifest:
    run = folder / kind / kind
    run = run if run.exists() else make_run(kind, folder / kind)
    found: Manifest = json.loads((run / "manifest.json").read_text())
    assert check_manifest(found) == []
    return found


def put(*path: str, to: Any) -> Change:
    def change(manifest: Manifest) -> None:
        holder = manifest
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = to

    return change


def gone(*path: str) -> Change:
    def change(manifest: Manifest) -> None:
        holder = manifest
        for name in path[:-1]:
            holder = holder[name]
        del holder[path[-1]]

    return change


def both(*changes: Change) -> Change:
    def change(manifest: Manifest) -> None:
        for one in changes:
            one(manifest)

    return change


def as_float_noise(manifest: Manifest) -> None:
    manifest["parameters"].pop("grid")
    manifest["parameters"].pop("generator")
    manifest["parameters"]["noise"] = "gaussian float32, not sound in floating point"


def assert_found(manifest: Manifest, change: Change) -> None:
    changed = copy.deepcopy(manifest)
    change(changed)
    assert changed != manifest
    assert check_manifest(changed)


@pytest.mark.parametrize(
    "change",
    [
        put("extra", "job", "decide", to="0.3"),
        put("extra", "job", "precision", to=0.1),
        put("extra", "job", "memory", to="x"),
        put("extra", "job", "sigma_rule", to="x"),
        put("extra", "job", "shared_noise", to=True),
        put("extra", "job", "noise_at", to="first-layer"),
        put("extra", "job", "noise", to="float"),
        put("extra", "job", "noise", to="uniform"),
        put("extra", "job", "noise", to="uniform-float"),
        put("extra", "job", "noise", to=3),
        put("extra", "job", "decide", to="many"),
        put("parameters", "independent_noise", to=False),
        put("parameters", "decide", to=None),
        put("parameters", "precision", to=None),
        put("parameters", "decide", to=[0.3]),
        put("parameters", "envelope", to={"kind": "semi-elastic", "rate": 0.1}),
        put("parameters", "noise", to="gaussian float32, not sound in floating point"),
        put("parameters", "noise", to="gaussian in exact steps of 1/255"),
        put("parameters", "generator", to="philox4x32-10"),
        gone("parameters", "generator"),
        gone("parameters", "grid"),
        put("parameters", "grid", to=16),
        put("data", "levels", to=256),
        both(put("parameters", "grid", to=256), put("data", "levels", to=256)),
        as_float_noise,
        put("extra", "job", "grid", to="float"),
        put("extra", "job", "grid", to="33"),
        put("data", "levels", to=18),
        put("extra", "alpha_split", to={}),
        put("extra", "alpha_split", to={"gaussian": {"clopper-pearson": 1e-9}}),
        put("extra", "alpha_split", to={"gaussian": {"clopper-pearson": 0.002}}),
        put("extra", "alpha_split", to={"li": {"clopper-pearson": 0.001}}),
        put("extra", "alpha_split", to={"gaussian": {"one": 0.0004, "other": 0.0006}}),
        put("extra", "alpha_split", to={"gaussian": 0.001}),
    ],
)
def test_contradictions(folder: Path, change: Change) -> None:
    assert_found(manifest_of("votes", folder), change)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("decide", gone("parameters", "decide")),
        ("decide", put("parameters", "decide", to=[0.1])),
        ("precision", put("parameters", "precision", to=0.06)),
        ("shared-noise", put("parameters", "independent_noise", to=True)),
        ("memory", gone("parameters", "memory")),
        ("uniform", put("parameters", "noise", to="gaussian in exact steps of 1/16")),
        ("float-noise", put("extra", "job", "noise", to="gaussian")),
        ("float-noise", put("parameters", "noise", to="gaussian float32, in the first layer")),
        ("float-noise", put("parameters", "generator", to="chacha20")),
        ("float-noise", put("parameters", "grid", to=17)),
        ("best-of", put("extra", "alpha_split", to={"gaussian": {"clopper-pearson": 0.001}})),
        ("predict", put("extra", "alpha_split", to={"gaussian": {"clopper-pearson": 0.001}})),
        ("envelope", put("parameters", "envelope", "rate", to=1e-9)),
        ("envelope", put("parameters", "envelope", to=None)),
        ("envelope", put("data", "input_shape", to=[1])),
        ("envelope", put("data", "input_shape", to=[64])),
    ],
)
def test_contradictions_of_other_runs(folder: Path, kind: str, change: Change) -> None:
    assert_found(manifest_of(kind, folder), change)


def test_older_runs_on_a_grid_had_float_noise(folder: Path) -> None:
    manifest = manifest_of("votes", folder)
    as_float_noise(manifest)
    manifest["parameters"]["noise"] = "gaussian float32"
    del manifest["extra"]["job"]["grid"]
    assert check_manifest(manifest) == []


class TestRecertified:
    """recertify draws nothing: what was drawn, and why it ended, must be what the source says."""

    @pytest.mark.parametrize(
        "change",
        [
            put("parameters", "decide", to=[0.1, 0.3]),
            put("parameters", "precision", to=0.1),
            put("parameters", "memory", to="0" * 64),
            put("parameters", "independent_noise", to=False),
            put("parameters", "split", to="train"),
            put("parameters", "batch", to=128),
            put("parameters", "skip", to=30),
            put("parameters", "n0", to=30),
            put("parameters", "sigma", to=0.5),
            put("parameters", "n", to=201),
            put("seed", to=4),
            put("extra", "recertified_from", "parameters", "n", to=100),
            put("extra", "recertified_from", "parameters", "noise", to="uniform float32"),
            put("extra", "recertified_from", "extra", "job", "decide", to="0.3"),
            put("extra", "recertified_from", "task", to="predict"),
            put("extra", "recertified_from", to={}),
        ],
    )
    def test_changes(self, folder: Path, change: Change) -> None:
        assert_found(manifest_of("recertified", folder), change)

    def test_votes_that_were_looked_at_as_a_fixed_number(self, folder: Path) -> None:
        """Sampling ended when the answer was yes: Clopper and Pearson's bound does not hold for such votes."""
        source = manifest_of("decide", folder)
        manifest = copy.deepcopy(source) | {"task": "recertify"}
        manifest["parameters"].pop("decide")
        manifest["parameters"]["n"] = 73
        split = {"gaussian": {"clopper-pearson": 0.001}}
        manifest["extra"] = {"recertified_from": source, "alpha_split": split}
        assert any(line.startswith("decide of the manifest") for line in check_manifest(manifest))


class TestRules:
    def network(self, folder: Path) -> Manifest:
        manifest = manifest_of("envelope", folder)
        rule = {"kind": "network", "widths": [64, 4, 1], "floor": 0.1, "most": None, "lipschitz": 0.02}
        manifest["parameters"]["sigma_rule"] = rule | {"digest": "0" * 64}
        manifest["parameters"]["envelope"] = dict(LipschitzSigma(constant=0.02, floor=0.1).to_json())
        return manifest

    def test_a_network(self, folder: Path) -> None:
        manifest = self.network(folder)
        assert check_manifest(manifest) == []
        for change in (
            put("parameters", "envelope", "constant", to=0.01),
            put("parameters", "envelope", "floor", to=0.2),
            put("data", "input_shape", to=[1, 8, 7]),
            gone("parameters", "sigma_rule", "lipschitz"),
        ):
            assert_found(manifest, change)

    @pytest.mark.parametrize(
        ("rule", "envelope"),
        [
            ({"kind": "constant", "sigma": 0.25}, {"kind": "constant"}),
            ({"kind": "callable", "name": "f", "envelope": None}, None),
            ({"kind": "callable", "name": "f", "envelope": {"kind": "user"}}, {"kind": "user"}),
            ({"kind": "optimised"}, None),
        ],
    )
    def test_others(self, folder: Path, rule: Manifest, envelope: Manifest | None) -> None:
        manifest = manifest_of("envelope", folder)
        known = rule_digest(rule, model=manifest["model"]) or "0" * 64
        manifest["parameters"] |= {"sigma_rule": rule | {"digest": known}, "envelope": envelope}
        assert check_manifest(manifest) == []
        assert_found(manifest, put("parameters", "envelope", to={"kind": "semi-elastic", "rate": 0.1}))
        assert_found(manifest, put("parameters", "sigma_rule", "kind", to="mystery"))
        if rule["kind"] in ("constant", "optimised"):
            assert_found(manifest, put("parameters", "sigma_rule", "digest", to="0" * 64))
            assert_found(manifest, gone("parameters", "sigma_rule", "digest"))

    def test_a_rate_that_is_not_that_of_the_file(self, folder: Path, tmp_path: Path) -> None:
        """Rule and envelope of the manifest agree, the digest is right, and yet the file says something else."""
        manifest_of("envelope", folder)
        run = copy_of(folder / "envelope" / "envelope", tmp_path)
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["parameters"]["sigma_rule"]["rate"] = manifest["parameters"]["envelope"]["rate"] = 0.04
        (run / "manifest.json").write_text(json.dumps(manifest))
        resealed(run)
        found = verify_run(run, check_document_with_remarks)[0].discrepancies
        assert "sigma.safetensors has rate 0.05, and the manifest 0.04" in found

    def test_sigma_by_other_code(self, tmp_path: Path) -> None:
        pytest.importorskip("safetensors")
        generator = np.random.default_rng(5)
        inputs = generator.random((6, 1, 4, 4)).astype(np.float32)
        shades = generator.integers(0, 256, (40, 1, 4, 4)).astype(np.uint8)
        weights = (generator.normal(size=(5, 16)), generator.normal(size=(1, 5)))
        biases = (generator.normal(size=5), np.array([0.3]))
        rules = (
            KnnSigma(shades, base_sigma=0.25, rate=0.7, k=3, offset=0.4),
            KnnSigma(inputs + 1, base_sigma=0.25, rate=0.7, k=2, offset=0.4, most=0.9),
            SigmaNetwork(weights, biases, floor=0.2, most=0.5),
        )
        for number, rule in enumerate(rules):
            save_rule(tmp_path / f"{number}.safetensors", rule)
            read = read_rule(tmp_path / f"{number}.safetensors")
            assert read.problems({**rule.to_json(), "digest": rule.digest}) == []
            assert [read.sigma(x) for x in inputs] == pytest.approx(rule.sigmas(inputs), rel=1e-11)

    def test_a_network_that_is_steeper_than_it_says(self, tmp_path: Path) -> None:
        """The digest does not cover the constant, which follows from the layers."""
        pytest.importorskip("safetensors")
        rule = SigmaNetwork((np.full((1, 16), 0.5),), (np.zeros(1),), floor=0.2)
        file = tmp_path / "rule.safetensors"
        save_rule(file, rule)
        assert rule.lipschitz_constant == pytest.approx(2.0)
        content = file.read_bytes()
        text = json.dumps(rule.lipschitz_constant).encode()
        assert content.count(text) == 1
        file.write_bytes(content.replace(text, b"1" + text[1:]))
        read = read_rule(file)
        assert any("Lipschitz" in line for line in read.problems({**read.rule, "digest": read.digest}))
