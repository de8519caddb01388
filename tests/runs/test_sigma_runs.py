"""Runs with a level of every input's own: the rule is kept with the run, resumed from there, and never mixed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from run_specs import finish_run, make_spec, resumed_spec
from sample_rules import digits_knn, proven_by_brightness, random_network, saved
from smoothcert.data import load_dataset
from smoothcert.errors import (
    CorruptRunError,
    DataError,
    InputError,
    InterruptedRunError,
    ManifestMismatchError,
    ModelError,
)
from smoothcert.records import Outcome
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.run_files import SIGMA_RULE
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.sigma.knn import KnnSigma
from smoothcert.sigma.rule_files import load_rule
from smoothcert.spec import RuleLevel, RunSpec, SigmaFacts

INPUTS = 24


def spec(rule: object, **changes: object) -> RunSpec:
    settings: dict[str, object] = {
        "task": "certify", "model": "sample_models:digits_by_brightness", "data": "digits", "sigma_rule": str(rule),
        "n0": 30, "n": 500, "alpha": 0.001, "max_inputs": INPUTS, "seed": 5, "batch": 64, "num_classes": 10,
    }  # fmt: skip
    return make_spec(**{**settings, **changes})  # type: ignore[arg-type]


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    return saved(tmp_path / "knn.safetensors", digits_knn())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; nobody may change it."""
    folder = tmp_path_factory.mktemp("whole")
    finish_run(spec(saved(folder / "knn.safetensors", digits_knn())), folder / "run")
    return folder / "run"


def stored(path: Path):  # type: ignore[no-untyped-def]
    with RunStore.open(path) as store:
        return [dataclasses.replace(point, seconds=0.0) for point in store.points()]


def envelope_of(run: Path) -> dict[str, Any] | None:
    facts = read_manifest(run).sigma
    assert facts is not None
    return facts.envelope


def test_the_rule_is_kept_with_the_run(whole: Path) -> None:
    rule = digits_knn()
    assert load_rule(whole / SIGMA_RULE).digest == rule.digest
    manifest = read_manifest(whole)
    assert manifest.sigma == SigmaFacts(rule=dict(rule.to_json()), envelope={"kind": "semi-elastic", "rate": 0.02})
    assert manifest.digests.sigma == rule.digest
    assert manifest.spec.certificates == ("envelope",)
    assert isinstance(manifest.spec.sigma, RuleLevel)
    assert manifest.alpha_split == {"envelope": {"clopper-pearson": 0.001}}


def test_every_input_has_its_own_level(whole: Path) -> None:
    expected = digits_knn().sigmas(load_dataset("digits", split="test").inputs(slice(0, INPUTS)))
    points = stored(whole)
    assert [point.sigma for point in points] == expected.tolist()
    assert len(set(expected)) == INPUTS
    assert any(point.outcome is Outcome.CERTIFIED for point in points)


@pytest.mark.parametrize("stop_after", [1, 2])
def test_resumed_equals_never_stopped(whole: Path, rule_file: Path, tmp_path: Path, stop_after: int) -> None:
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        finish_run(spec(rule_file), out, stop_after=stop_after)
    assert 0 < len(stored(out)) < INPUTS
    assert finish_run(spec(rule_file), out) == stored(whole)
    assert finish_run(spec(rule_file), out) == stored(whole)  # once more: nothing is left to do


@pytest.mark.parametrize("fate", ["gone", "replaced", "damaged"])
def test_resume_uses_the_copy(whole: Path, rule_file: Path, tmp_path: Path, fate: str) -> None:
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        finish_run(spec(rule_file), out, stop_after=1)
    rule_file.unlink()
    if fate == "replaced":
        saved(rule_file, digits_knn(rate=0.05))
    elif fate == "damaged":
        rule_file.write_bytes(b"not a rule")
    again = resumed_spec(out)
    assert again.sigma == RuleLevel(place=str(out / SIGMA_RULE))
    assert finish_run(again, out) == stored(whole)


def test_the_same_spec_with_a_replaced_rule_is_refused(rule_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        finish_run(spec(rule_file), out, stop_after=1)
    before = stored(out)
    rule_file.unlink()
    other = digits_knn(rate=0.05)
    saved(rule_file, other)
    with pytest.raises(ManifestMismatchError) as caught:
        finish_run(spec(rule_file), out)
    message = str(caught.value)
    for text in ("digests.sigma", "sigma.envelope.rate", "0.02", "0.05", other.digest[:8], digits_knn().digest[:8]):
        assert text in message
    assert stored(out) == before
    assert load_rule(out / SIGMA_RULE).digest == digits_knn().digest


def test_a_rule_with_the_same_envelope_is_still_another_rule(whole: Path, tmp_path: Path) -> None:
    """One training point more changes the digest, and nothing else that is compared."""
    mine = digits_knn()
    points = np.concatenate([mine.points[:-1], 255 - mine.points[-1:]])
    other = dataclasses.replace(mine, points=points)
    assert other.to_json() == mine.to_json()
    with pytest.raises(ManifestMismatchError, match="digest"):
        finish_run(spec(saved(tmp_path / "other.safetensors", other)), whole)


def test_a_constant_run_and_one_by_a_rule_are_never_mixed(whole: Path) -> None:
    with pytest.raises(ManifestMismatchError, match="sigma"):
        finish_run(spec(None, sigma_rule=None, sigma=0.15, certificate="envelope"), whole)


def test_resuming_from_another_folder(rule_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rule_file.parent)
    first = finish_run(spec("knn.safetensors", max_inputs=3), Path("run"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert finish_run(resumed_spec(Path("../run")), Path("../run")) == first
    recorded = json.loads((tmp_path / "run" / "manifest.json").read_text())["spec"]["sigma"]["place"]
    assert Path(recorded).is_absolute()


def test_a_run_that_lost_its_copy_gets_it_again(rule_file: Path, tmp_path: Path) -> None:
    """As after a crash between the manifest and the copy."""
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        finish_run(spec(rule_file, max_inputs=20), out, stop_after=1)
    (out / SIGMA_RULE).unlink()
    finish_run(resumed_spec(out), out)
    assert load_rule(out / SIGMA_RULE).digest == digits_knn().digest


def test_a_damaged_copy_is_named(rule_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    finish_run(spec(rule_file, max_inputs=2), out)
    (out / SIGMA_RULE).write_bytes((out / SIGMA_RULE).read_bytes()[:-20])
    with pytest.raises(ModelError, match=SIGMA_RULE):
        finish_run(resumed_spec(out), out)


def test_batch_workers_and_subset_change_no_vote(whole: Path, rule_file: Path, tmp_path: Path) -> None:
    other = finish_run(spec(rule_file, batch=17, workers=1, max_inputs=7), tmp_path / "run")
    first = stored(whole)[:7]
    assert [(point.sigma, point.tallies, point.bounds) for point in other] == [
        (point.sigma, point.tallies, point.bounds) for point in first
    ]
    assert [point.radius for point in other] == pytest.approx([point.radius for point in first], rel=1e-12)


class TestRecertify:
    def test_as_it_was(self, whole: Path) -> None:
        again = recertify_run(whole).points
        assert [point.radius for point in again] == pytest.approx([point.radius for point in stored(whole)], rel=1e-12)

    def test_by_other_theorems(self, whole: Path) -> None:
        envelope = [point.radius for point in stored(whole)]
        two, renyi = (
            recertify_run(whole, certificate=name).points for name in ("envelope-two-class", "renyi-two-class")
        )
        assert {point.verdict.certificate for point in two} == {"envelope-two-class"}
        assert sum(point.radius > 0 for point in two) >= sum(radius > 0 for radius in envelope)
        single = recertify_run(whole, certificate="renyi").points
        for tight, loose in zip(envelope, single, strict=True):
            assert loose.radius <= tight * (1 + 1e-9)
        for tight_point, loose in zip(two, renyi, strict=True):
            assert loose.radius <= tight_point.radius * (1 + 1e-9)
        assert any(point.radius > 0 for point in renyi)

    @pytest.mark.parametrize("name", ["gaussian", "gaussian-two-class", "li", "lecuyer", "envelope,gaussian"])
    def test_not_by_theorems_for_a_constant_level(self, whole: Path, name: str) -> None:
        with pytest.raises(InputError, match="is proved for a constant sigma"):
            recertify_run(whole, certificate=name)

    def test_a_saved_one_keeps_the_envelope(self, whole: Path, tmp_path: Path) -> None:
        recertify_run(whole, alpha=0.01, n=200).save(tmp_path / "again")
        assert envelope_of(tmp_path / "again") == {"kind": "semi-elastic", "rate": 0.02}
        with pytest.raises(InputError, match="is proved for a constant sigma"):
            recertify_run(tmp_path / "again", certificate="gaussian")
        points = recertify_run(tmp_path / "again", alpha=0.1).points
        assert [point.sigma for point in points] == [point.sigma for point in stored(whole)]

    def test_a_constant_run_by_the_envelope_is_the_gaussian_radius(self, tmp_path: Path) -> None:
        points = finish_run(spec(None, sigma_rule=None, sigma=0.15, max_inputs=8), tmp_path / "run")
        again = recertify_run(tmp_path / "run", certificate="envelope").points
        assert [point.radius for point in again] == [point.radius for point in points]

    @pytest.mark.parametrize("nonsense", [{"kind": "semi-elastic"}, {"kind": "elastic", "rate": 1}, {"kind": 3}])
    def test_an_envelope_that_makes_no_sense(self, whole: Path, tmp_path: Path, nonsense: object) -> None:
        with_envelope(whole, tmp_path / "run", nonsense)
        with pytest.raises((InputError, CorruptRunError), match="does not describe an envelope"):
            recertify_run(tmp_path / "run")

    @pytest.mark.parametrize(
        "nonsense",
        [
            None,
            [1],
            {"kind": "semi-elastic", "rate": "x"},
            {"kind": "semi-elastic", "rate": None},
            {"kind": "widened", "slack": 2, "inner": {"kind": "constant"}},
            "missing",
            "no rule",
        ],
        ids=str,
    )
    def test_a_damaged_envelope_is_a_damaged_run(self, whole: Path, tmp_path: Path, nonsense: object) -> None:
        """The last ones matter most: a run by a rule that says nothing of its envelope is not one with constant σ."""
        with_envelope(whole, tmp_path / "run", nonsense)
        with pytest.raises(CorruptRunError):
            recertify_run(tmp_path / "run")


def with_envelope(whole: Path, run: Path, envelope: object) -> None:
    """A copy of the run with another envelope in its manifest; "missing" takes it out, "no rule" all facts."""
    shutil.copytree(whole, run)
    file = run / "manifest.json"
    document = json.loads(file.read_text())
    document["sigma"]["envelope"] = envelope
    if envelope == "missing":
        del document["sigma"]["envelope"]
    if envelope == "no rule":
        document["sigma"] = None
    file.write_text(json.dumps(document))


class TestOwnCode:
    def test_a_function_without_an_envelope_predicts_but_is_not_certified(self, tmp_path: Path) -> None:
        own = "sample_rules:by_brightness"
        ways_out = r"Either use a sigma with an envelope .* or keep all promised regions in a memory"
        with pytest.raises(InputError, match=rf"has no envelope: .* {ways_out}"):
            finish_run(spec(own), tmp_path / "certify")
        assert not (tmp_path / "certify").exists()
        points = finish_run(spec(own, task="predict", n0=None, max_inputs=5), tmp_path / "predict")
        inputs = load_dataset("digits", split="test").inputs(slice(0, 5))
        assert [point.sigma for point in points] == proven_by_brightness.sigmas(inputs).tolist()
        assert envelope_of(tmp_path / "predict") is None
        assert not (tmp_path / "predict" / SIGMA_RULE).exists()
        assert finish_run(resumed_spec(tmp_path / "predict", task="predict"), tmp_path / "predict") == points

    def test_a_rule_with_an_envelope_is_certified_and_resumed(self, tmp_path: Path) -> None:
        mine = spec("sample_rules:proven_by_brightness", max_inputs=6)
        whole = finish_run(mine, tmp_path / "whole")
        assert envelope_of(tmp_path / "whole") == {
            "kind": "lipschitz", "constant": 0.0125, "floor": 0.1,
        }  # fmt: skip
        assert finish_run(resumed_spec(tmp_path / "whole"), tmp_path / "whole") == whole
        assert [p.radius for p in recertify_run(tmp_path / "whole").points] == pytest.approx([p.radius for p in whole])


class TestWhatIsRefused:
    def test_both_or_none(self, tmp_path: Path) -> None:
        for changes in ({"sigma": 0.25}, {"sigma_rule": None}):
            with pytest.raises(InputError, match=r"give either --sigma, .* or --sigma-rule"):
                finish_run(spec("knn.safetensors", **changes), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("kind", ["knn", "network"])
    def test_a_rule_for_another_size(self, tmp_path: Path, kind: str) -> None:
        points = np.random.default_rng(0).random((9, 1, 28, 28), dtype=np.float32)
        rule = (
            KnnSigma(points=points, base_sigma=0.1, rate=0.01, k=2, offset=1.0)
            if kind == "knn"
            else random_network(784, lipschitz=0.01, floor=0.1)
        )
        with pytest.raises((DataError, InputError), match=r"sigma was (fitted|made)") as caught:
            finish_run(spec(saved(tmp_path / "other.safetensors", rule)), tmp_path / "run")
        assert "8, 8" in str(caught.value)
        assert not (tmp_path / "run").exists()

    def test_an_input_without_a_level(self, tmp_path: Path) -> None:
        """An outlier so far away that σ is beyond all numbers: it is named; what was stored before stays."""
        inputs = np.random.default_rng(0).random((30, 1, 8, 8), dtype=np.float32)
        inputs[17] = 5e4
        np.save(tmp_path / "x.npy", inputs)
        rule = KnnSigma(points=inputs[:9], base_sigma=0.2, rate=0.05, k=3, offset=1.5)
        given = {"data": str(tmp_path / "x.npy"), "input_range": "any"}
        mine = spec(saved(tmp_path / "knn.safetensors", rule), **given)
        with pytest.raises(InputError, match="input 17 cannot be smoothed"):
            finish_run(mine, tmp_path / "run")
        capped = dataclasses.replace(rule, most=0.5)
        mine = spec(saved(tmp_path / "capped.safetensors", capped), **given)
        assert finish_run(mine, tmp_path / "other")[17].sigma == 0.5

    @pytest.mark.parametrize("certificate", ["gaussian", "dipole", "second-order", "envelope,gaussian"])
    def test_a_theorem_for_a_constant_level(self, rule_file: Path, tmp_path: Path, certificate: str) -> None:
        with pytest.raises(InputError, match="is proved for a constant sigma"):
            finish_run(spec(rule_file, certificate=certificate), tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_the_lipschitz_theorem_for_a_semi_elastic_level(self, rule_file: Path, tmp_path: Path) -> None:
        mine = spec(rule_file, model="sample_models:logistic_digits", num_classes=None, certificate="lipschitz")
        with pytest.raises(InputError, match="needs a sigma with a Lipschitz constant"):
            finish_run(mine, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_file_that_is_no_rule(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="there is no file"):
            finish_run(spec(tmp_path / "nowhere.safetensors"), tmp_path / "run")
        (tmp_path / "text.safetensors").write_text("hello")
        with pytest.raises(ModelError, match="not a readable safetensors file"):
            finish_run(spec(tmp_path / "text.safetensors"), tmp_path / "run")


def test_soft_certificates_side_by_side(tmp_path: Path) -> None:
    """With a network for σ: the tight radius is never below the Lipschitz one."""
    rule = random_network(64, lipschitz=0.02, floor=0.2, spread=0.05, seed=2)
    mine = spec(
        saved(tmp_path / "network.safetensors", rule),
        model="sample_models:logistic_digits", num_classes=None, n=1000, max_inputs=16,
        certificate="envelope-soft,lipschitz",
    )  # fmt: skip
    points = finish_run(mine, tmp_path / "run")
    assert [point.sigma for point in points] == rule.sigmas(
        load_dataset("digits", split="test").inputs(slice(0, 16))
    ).tolist()
    loose = [point.further[0].radius for point in points]
    assert all(verdict.certificate == "lipschitz" for point in points for verdict in point.further)
    assert all(radius <= point.radius for radius, point in zip(loose, points, strict=True))
    assert sum(radius > 0 for radius in loose) >= 8
    assert envelope_of(tmp_path / "run") == {"kind": "lipschitz", "constant": rule.lipschitz_constant, "floor": 0.2}
    again = recertify_run(tmp_path / "run", certificate="lipschitz-two-class").points
    assert len(again) == 16
