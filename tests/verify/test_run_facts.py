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
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.network import SigmaNetwork
from smoothcert.sigma.rule_files import save_rule
from smoothcert_verify import Finding
from smoothcert_verify.findings import MalformedError
from smoothcert_verify.run_checks import verify_run
from smoothcert_verify.run_facts import check_run, compute_rule_digest, read_run
from smoothcert_verify.sigma_rules import read_rule
from verified_runs import copy_of, make_run, resealed

Manifest = dict[str, Any]
Change = Callable[[Manifest], None]


def check_manifest(manifest: Manifest) -> list[Finding]:
    try:
        return list(check_run(read_run(manifest)))
    except MalformedError as error:
        return [error.finding]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifests")


def manifest_of(kind: str, folder: Path) -> Manifest:
    run = folder / kind / kind
    run = run if run.exists() else make_run(kind, folder / kind)
    found: Manifest = json.loads((run / "manifest.json").read_text())
    assert check_manifest(found) == []
    return found


def test_runs_made_before_a_field_was_added_are_read(folder: Path) -> None:
    manifest = manifest_of("votes", folder)
    for part, name in (("model", "weights"), ("model", "code_folder"), ("data", "resize"), ("data", "shorter_side")):
        del manifest["spec"][part][name]
    del manifest["model"]["has_random_weights"]
    del manifest["spec"]["noise"]["rounds"]
    assert check_manifest(manifest) == []
    del manifest["spec"]["model"]["device"]
    assert [finding.code for finding in check_manifest(manifest)] == ["missing-field"]


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


def assert_found(manifest: Manifest, change: Change) -> None:
    changed = copy.deepcopy(manifest)
    change(changed)
    assert changed != manifest
    assert check_manifest(changed)


@pytest.mark.parametrize(
    "change",
    [
        put("spec", "seed", to=4),
        put("spec", "batch", to=32),
        put("spec", "memory", to="x"),
        put("digests", "memory", to="0" * 64),
        put("digests", "sigma", to="0" * 64),
        put("digests", "model", to="x"),
        put("digests", "code", to=""),
        put("spec", "sigma", to={"kind": "rule", "place": "x"}),
        put("spec", "sigma", to={"kind": "constant", "level": 0.0}),
        put("spec", "sigma", to={"kind": "mystery"}),
        put("sigma", to={"rule": {"kind": "knn"}, "envelope": {"kind": "semi-elastic", "rate": 0.1}}),
        put("spec", "noise", "place", to="first-layer"),
        put("spec", "noise", "kind", to="unheard-of"),
        put("spec", "noise", "generator", to="philox4x32-10"),
        put("spec", "noise", "generator", to=None),
        put("spec", "noise", "grid", to=None),
        put("spec", "noise", "grid", to="detect"),
        put("spec", "noise", "grid", to=16),
        put("spec", "noise", "grid", to=256),
        put("spec", "noise", "shared", to=1),
        put("spec", "noise", "more", to=1),
        put("data", "levels", to=256),
        put("data", "levels", to=18),
        put("data", "inputs", to=5),
        put("data", "size", to=0),
        put("spec", "data", "skip", to=0),
        put("spec", "data", "input_shape", to=[64]),
        put("spec", "data", "input_range", to=[0.0, 2.0]),
        put("spec", "data", "input_range", to=None),
        put("spec", "model", "num_classes", to=11),
        put("spec", "alpha", to=0.6),
        put("spec", "alpha", to=True),
        put("spec", "certificates", to=[]),
        put("spec", "certificates", to="gaussian"),
        put("spec", "question", to={"kind": "decide", "radii": [], "n": 200, "n0": 20}),
        put("spec", "question", to={"kind": "decide", "radii": [0.3, 0.1], "n": 200, "n0": 20}),
        put("spec", "question", to={"kind": "decide", "radii": [0.0, 0.1], "n": 200, "n0": 20}),
        put("spec", "question", to={"kind": "precision", "width": 0, "n": 200, "n0": 20}),
        put("spec", "question", to={"kind": "fixed-n", "n": 200, "n0": 0}),
        put("spec", "question", "radii", to=[0.1]),
        put("spec", "task", to="predict"),
        put("spec", "task", to="recertify"),
        gone("spec", "noise", "generator"),
        gone("spec", "noise"),
        gone("digests"),
        put("sampling_version", to=0),
        put("schema", to=2),
        put("schema", to="3"),
        put("more", to={}),
        put("environment", to={"python": 3}),
        put("alpha_split", to={}),
        put("alpha_split", to={"gaussian": {"clopper-pearson": 1e-9}}),
        put("alpha_split", to={"gaussian": {"clopper-pearson": 0.002}}),
        put("alpha_split", to={"li": {"clopper-pearson": 0.001}}),
        put("alpha_split", to={"gaussian": {"one": 0.0004, "other": 0.0006}}),
        put("alpha_split", to={"gaussian": 0.001}),
    ],
)
def test_contradictions(folder: Path, change: Change) -> None:
    assert_found(manifest_of("votes", folder), change)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("memory", put("digests", "memory", to=None)),
        ("memory", put("spec", "memory", to=None)),
        ("float-noise", put("spec", "noise", "generator", to="chacha20")),
        ("float-noise", put("spec", "noise", "grid", to=17)),
        ("best-of", put("alpha_split", to={"gaussian": {"clopper-pearson": 0.001}})),
        ("best-of", put("spec", "best_of", to=False)),
        ("predict", put("alpha_split", to={"gaussian": {"clopper-pearson": 0.001}})),
        ("predict", put("spec", "certificates", to=["gaussian"])),
        ("predict", put("spec", "question", "n0", to=10)),
        ("envelope", put("sigma", "envelope", "rate", to=1e-9)),
        ("envelope", put("sigma", "envelope", to=None)),
        ("envelope", put("sigma", to=None)),
        ("envelope", put("digests", "sigma", to=None)),
        ("envelope", put("spec", "sigma", to={"kind": "constant", "level": 0.25})),
        ("envelope", put("data", "input_shape", to=[1])),
        ("envelope", put("data", "input_shape", to=[64])),
    ],
)
def test_contradictions_of_other_runs(folder: Path, kind: str, change: Change) -> None:
    assert_found(manifest_of(kind, folder), change)


def test_an_earlier_format_is_refused_by_a_message() -> None:
    (finding,) = check_manifest({"schema": 2, "task": "certify", "parameters": {}})
    assert finding.code == "unknown-schema"
    assert "only format 3 can be verified" in str(finding)


class TestRecertified:
    """recertify draws nothing: what was drawn, and why it ended, must be what the source says."""

    @pytest.mark.parametrize(
        "change",
        [
            put("spec", "question", to={"kind": "decide", "radii": [0.1, 0.3], "n": 150, "n0": 20}),
            put("spec", "question", to={"kind": "precision", "width": 0.1, "n": 150, "n0": 20}),
            put("spec", "question", "n0", to=30),
            put("spec", "question", "n", to=201),
            both(put("digests", "memory", to="0" * 64), put("spec", "memory", to="x")),
            put("spec", "noise", "shared", to=True),
            put("spec", "data", "split", to="train"),
            both(put("measured", "batch", to=128), put("spec", "batch", to=128)),
            put("spec", "data", "skip", to=30),
            put("spec", "sigma", "level", to=0.5),
            both(put("seed", to=4), put("spec", "seed", to=4)),
            put("digests", "model", to="0" * 64),
            put("digests", "data", to="0" * 64),
            put("sampling_version", to=2),
            put("recertified_from", "spec", "question", "n", to=100),
            put("recertified_from", "spec", "noise", "kind", to="uniform"),
            put("recertified_from", "spec", "task", to="predict"),
            put("recertified_from", to={}),
            put("recertified_from", to=None),
        ],
    )
    def test_changes(self, folder: Path, change: Change) -> None:
        assert_found(manifest_of("recertified", folder), change)

    def test_votes_that_were_looked_at_as_a_fixed_number(self, folder: Path) -> None:
        """Sampling ended when the answer was yes: Clopper and Pearson's bound does not hold for such votes."""
        source = manifest_of("decide", folder)
        manifest = copy.deepcopy(source) | {"recertified_from": source}
        manifest["spec"] |= {"task": "recertify", "question": {"kind": "fixed-n", "n": 73, "n0": 20}}
        manifest["alpha_split"] = {"gaussian": {"clopper-pearson": 0.001}}
        (found,) = check_manifest(manifest)
        assert (found.code, found.values["field"]) == ("changed-by-recertify", "spec.question")

    def test_a_chain_without_end(self, folder: Path) -> None:
        manifest = manifest_of("recertified", folder)
        source = manifest["recertified_from"]
        for _ in range(60):
            manifest = copy.deepcopy(manifest) | {"recertified_from": manifest}
        assert [finding.code for finding in check_manifest(manifest)] == ["recertified-too-often"]
        assert check_manifest(manifest_of("recertified", folder) | {"recertified_from": source}) == []


class TestRules:
    def network(self, folder: Path) -> Manifest:
        manifest = manifest_of("envelope", folder)
        rule = {"kind": "network", "widths": [64, 4, 1], "floor": 0.1, "most": None, "lipschitz": 0.02}
        envelope = dict(LipschitzSigma(constant=0.02, floor=0.1).to_json())
        manifest["sigma"] = {"rule": rule, "envelope": envelope}
        return manifest

    def test_a_network(self, folder: Path) -> None:
        manifest = self.network(folder)
        assert check_manifest(manifest) == []
        for change in (
            put("sigma", "envelope", "constant", to=0.01),
            put("sigma", "envelope", "floor", to=0.2),
            put("data", "input_shape", to=[1, 8, 7]),
            gone("sigma", "rule", "lipschitz"),
            gone("sigma", "rule", "widths"),
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
        known = compute_rule_digest(rule, model=manifest["digests"]["model"]) or "0" * 64
        manifest["sigma"] = {"rule": rule, "envelope": envelope}
        manifest["digests"]["sigma"] = known
        if rule["kind"] == "optimised":
            settings = {"start": 0.25, "search": "ascent", "settings": {}, "least": None, "most": None}
            manifest["spec"]["sigma"] = {"kind": "optimised", "two_class": False, **settings}
        assert check_manifest(manifest) == []
        assert_found(manifest, put("sigma", "envelope", to={"kind": "semi-elastic", "rate": 0.1}))
        assert_found(manifest, put("sigma", "rule", "kind", to="mystery"))
        if rule["kind"] in ("constant", "optimised"):
            assert_found(manifest, put("digests", "sigma", to="f" * 64))
            assert_found(manifest, put("digests", "sigma", to=None))

    def test_a_rate_that_is_not_that_of_the_file(self, folder: Path, tmp_path: Path) -> None:
        """Rule and envelope of the manifest agree, the digest is right, and yet the file says something else."""
        manifest_of("envelope", folder)
        run = copy_of(folder / "envelope" / "envelope", tmp_path)
        manifest = json.loads((run / "manifest.json").read_text())
        manifest["sigma"]["rule"]["rate"] = manifest["sigma"]["envelope"]["rate"] = 0.04
        (run / "manifest.json").write_text(json.dumps(manifest))
        resealed(run)
        found = [finding for finding in verify_run(run).discrepancies if finding.where == "sigma.safetensors"]
        assert [(finding.code, finding.values["field"]) for finding in found] == [("differs", "rate")]
        assert (found[0].values["value"], found[0].values["expected"]) == (0.05, 0.04)

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
            assert list(read.compare(rule.to_json(), digest=rule.digest)) == []
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
        (found,) = read.compare(read.rule, digest=read.digest)
        assert found.code == "steeper-network"
