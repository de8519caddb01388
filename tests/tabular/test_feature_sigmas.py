"""A noise level for each feature in Python: exact radii, the same votes as by hand, runs, memories and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from torch import nn

import smoothcert
from sample_models import Linear
from smoothcert import SmoothedClassifier
from smoothcert.analysis.metrics import envelope
from smoothcert.errors import InputError, ManifestMismatchError, RunError
from smoothcert.records import Outcome, RemarkCode, Stage
from smoothcert.sigma import OptimisedSigma
from smoothcert_verify.run_checks import verify_certificates
from tabular_models import FEATURES, fit_pipeline, make_frame

SCALE = (0.1, 2.0, 30.0)
WEIGHTS = np.array([3.0, -0.5, 0.02])
MODEL = Linear(WEIGHTS, 0.1)
X = np.array([[0.3, -1.0, 5.0], [-0.2, 0.5, -40.0], [0.1, 0.2, 3.0]], dtype=np.float32)


def smoothed(model=MODEL, *, sigma=SCALE, **settings) -> SmoothedClassifier:
    settings = {"seed": 1, "batch": 200, "num_classes": 2, "input_range": None} | settings
    return SmoothedClassifier(model, sigma=sigma, **settings)


def margins(x: np.ndarray, sigma: float = 1.0) -> np.ndarray:
    """(w·x + b) / (σ‖s⊙w‖): its sign is the class, its size the exact radius in the scaled norm, in units of σ."""
    return (x.astype(np.float64) @ WEIGHTS + 0.1) / (sigma * np.linalg.norm(np.array(SCALE) * WEIGHTS))


def facts(points) -> list[tuple]:
    return [
        (point.prediction, point.radius, tuple(point.tally(Stage.ESTIMATION).counts.tolist()))  # type: ignore[union-attr]
        for point in points
    ]


class TestLinear:
    """sign(w·x + b): smoothed probabilities and radii are known exactly."""

    def test_votes_are_those_of_the_exact_probability(self) -> None:
        n = 20_000
        for point, margin in zip(smoothed().certify(X, n=n), margins(X), strict=True):
            share = point.tally(Stage.ESTIMATION).counts[1] / n  # type: ignore[union-attr]
            assert share == pytest.approx(norm.cdf(margin), abs=5 / np.sqrt(4 * n))

    @pytest.mark.parametrize("sigma", [1.0, 0.5])
    def test_the_radius_is_below_the_exact_one_and_close(self, sigma: float) -> None:
        points = smoothed(sigma=sigma, sigma_scale=SCALE).certify(X, n=50_000)
        exact = np.abs(margins(X))  # in the scaled norm, whatever sigma is
        for point, radius, margin in zip(points, exact, margins(X), strict=True):
            assert point.prediction == int(margin > 0)
            assert radius - 0.06 * (1 + radius) < point.radius <= radius

    def test_just_outside_the_exact_radius_the_class_changes(self) -> None:
        """The worst direction of the scaled norm is s²⊙w; a plain step of that length would prove nothing."""
        step = np.array(SCALE) ** 2 * WEIGHTS / np.linalg.norm(np.array(SCALE) * WEIGHTS)
        for x, margin in zip(X.astype(np.float64), margins(X), strict=True):
            inside, outside = (np.float32([x - np.sign(margin) * abs(margin) * share * step]) for share in (0.97, 1.03))
            assert np.linalg.norm((inside[0] - x) / SCALE) == pytest.approx(0.97 * abs(margin), rel=1e-3)
            assert [int(MODEL(one)[0]) for one in (inside, outside)] == [int(margin > 0), int(margin < 0)]
            far = np.float32([x - np.sign(margin) * abs(margin) * 1.3 * step])
            assert smoothed().predict(far, n=20_000)[0].prediction == int(margin < 0)


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_it_is_what_one_gets_by_hand(noise: str) -> None:
    factors = np.float32(SCALE)
    by_hand = SmoothedClassifier(
        lambda u: MODEL(u * factors), sigma=1.0, noise=noise, seed=1, batch=200, num_classes=2, grid="float",
        input_range=None,
    )  # fmt: skip
    expected = by_hand.certify((X.astype(np.float64) / SCALE).astype(np.float32), n0=50, n=500)
    assert facts(smoothed(noise=noise).certify(X, n0=50, n=500)) == facts(expected)
    assert facts(smoothed(sigma=1.0, sigma_scale=SCALE, noise=noise).certify(X, n0=50, n=500)) == facts(expected)


def test_scores_and_gradients_live_in_scaled_units_too() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    for certificate in ("gaussian-soft", "second-order", "dipole"):
        points = smoothed(network, num_classes=None, device="cpu").certify(X, n0=20, n=400, certificate=certificate)
        assert all(point.scale is not None for point in points)


class TestWhatIsSaid:
    def test_guarantee_and_repr(self) -> None:
        point = smoothed().certify(X[:1], n0=20, n=500)[0]
        assert "norm='scaled l2'" in repr(point)
        guarantee = point.guarantee
        assert guarantee is not None
        assert "in scaled l2 distance, in which the change of each feature is divided by its scale (0.1, 2, 30)" in str(
            guarantee
        )
        assert guarantee.to_json()["scale"] == list(SCALE)
        assert not guarantee.sound_in_floating_point
        assert "scale=(0.1, 2.0, 30.0)" in repr(guarantee)

    def test_results_carry_the_remark(self) -> None:
        results = smoothed().certify(X, n0=20, n=500, labels=[1, 0, 1])
        (remark,) = [one for one in results.columns.list_remarks() if one.code is RemarkCode.SCALED_NORM]
        assert remark.values == {"norm": "l2", "scale": list(SCALE)}
        assert "radii are in the scaled l2 norm" in str(results.table())
        assert "scaled ℓ₂" in results._repr_html_()
        assert results.manifest is not None
        assert results.manifest.spec.noise.scale == SCALE

    def test_a_long_scale_is_cut_in_sentences(self) -> None:
        model = Linear(np.ones(40), 1.0)
        x = np.ones((1, 40), dtype=np.float32)
        point = smoothed(model, sigma=[2.0] * 40).certify(x, n0=20, n=100)[0]
        assert "… (40 numbers)" in str(point.guarantee)

    def test_runs_of_different_scales_are_not_compared(self) -> None:
        one, same, other, plain = (
            smoothed(sigma=sigma, seed=seed).certify(X, n0=20, n=200, labels=[1, 0, 1])
            for sigma, seed in ((SCALE, 1), (SCALE, 2), ((0.1, 2.0, 31.0), 1), (1.0, 1))
        )
        assert "in the scaled l2 norm" in str(smoothcert.compare(one, same))
        for different in (other, plain):
            with pytest.raises(RunError, match="norms of different scales"):
                smoothcert.compare(one, different)
            with pytest.raises(RunError, match="different norms"):
                envelope([one.columns, different.columns], [0.0, 0.5])


class TestRuns:
    def test_it_is_made_resumed_verified_and_recertified(self, tmp_path: Path) -> None:
        held = smoothed().certify(X, n0=20, n=300, labels=[1, 0, 1])
        run = smoothed().certify(X, n0=20, n=300, labels=[1, 0, 1], out=tmp_path / "run")
        assert facts(run) == facts(held)
        assert [point.scale for point in run] == [point.scale for point in held]
        for name in ("model", "data"):
            assert getattr(run.manifest.digests, name) == getattr(held.manifest.digests, name)
        assert facts(smoothed().certify(X, n0=20, n=300, labels=[1, 0, 1], out=tmp_path / "run")) == facts(run)
        again = run.recertify(alpha=0.01)
        assert again[0].guarantee.scale == run[0].scale
        run.verify()
        again.verify()
        kept = np.load(tmp_path / "run" / "inputs.npz")["x"]
        assert np.array_equal(kept, X), "the inputs as they were given"

    def test_another_scale_is_another_run(self, tmp_path: Path) -> None:
        smoothed().certify(X, n0=20, n=100, out=tmp_path / "run")
        with pytest.raises(ManifestMismatchError, match=r"spec.noise.scale: the run has \[0.1, 2.0, 30.0\], now"):
            smoothed(sigma=(0.1, 2.0, 30.5)).certify(X, n0=20, n=100, out=tmp_path / "run")

    def test_exported_certificates_state_the_scale(self, tmp_path: Path) -> None:
        results = smoothed().certify(X, n0=20, n=300)
        results.export(tmp_path / "certificates", "certificate")
        report = verify_certificates(tmp_path / "certificates")
        assert report.discrepancies == []
        assert {entry.run.scale == list(SCALE) for entry in report.entries} == {True}
        assert ("scaled-norm", 3) in [(remark.code, inputs) for remark, inputs in report.remarks]


class TestMemory:
    def test_regions_are_those_of_scaled_inputs(self, tmp_path: Path) -> None:
        with smoothed(memory=tmp_path / "memory.sqlite") as first:
            (point,) = first.certify(X[:1], n0=20, n=500)
            assert point.outcome is Outcome.CERTIFIED
            assert "scaled l2 distance" in str(point.guarantee)
            assert first.memory_key.noise == "gaussian on scaled features"
        step = np.float32(0.5 * point.radius * np.array(SCALE) / np.sqrt(3))
        with smoothed(memory=tmp_path / "memory.sqlite", seed=2) as second:
            near, far = second.predict(np.stack([X[0] + step, X[0] + 4 * step]), n=500)
        assert near.promise is not None, "30 σ of a feature away in x, half a radius away in x/s"
        assert far.promise is None

    def test_another_scale_has_another_key(self, tmp_path: Path) -> None:
        keys = set()
        for sigma in (SCALE, (0.1, 2.0, 31.0), 1.0):
            one = smoothed(sigma=sigma, memory=tmp_path / "memory.sqlite", input_shape=(3,))
            keys.add(one.memory_key.digest)
            one.close()
        assert len(keys) == 3


class TestFrames:
    FRAME, LABELS = make_frame(2, seed=1)

    def test_levels_by_name_in_any_order(self) -> None:
        by_name = {"age": 3.0, "height": 10.0, "weight": 5.0}
        for sigma in ([10.0, 5.0, 3.0], by_name, pd.Series(by_name), np.array([10.0, 5.0, 3.0])):
            one = smoothed(fit_pipeline(), sigma=sigma, num_classes=None, input_shape=(3,))
            assert one.scale.numbers == (10.0, 5.0, 3.0)

    def test_a_pipeline_that_selects_columns_by_name(self) -> None:
        one = smoothed(fit_pipeline(), sigma={"age": 3.0, "height": 5.0, "weight": 2.0}, num_classes=None)
        points = one.certify(self.FRAME, n0=5, n=20, labels=self.LABELS)
        assert all(point.correct for point in points)
        assert points[0].scale.numbers == (5.0, 2.0, 3.0)

    @pytest.mark.parametrize(
        ("sigma", "message"),
        [
            ({"height": 1.0, "weight": 1.0}, "has 3 features, and sigma is given for 2: it is missing for 'age'"),
            ({"height": 1.0, "weight": 1.0, "age": 1.0, "id": 1.0}, "there is no 'id'"),
            ({0: 1.0, 1: 1.0, 2: 1.0}, "expected the names of features"),
            (pd.Series([1.0] * 3, index=["age", "age", "weight"]), "a feature twice"),
        ],
    )
    def test_names_that_do_not_fit(self, sigma, message: str) -> None:
        with pytest.raises(InputError, match=message):
            smoothed(fit_pipeline(), sigma=sigma, num_classes=None).certify(self.FRAME)

    def test_names_for_a_model_without_names(self) -> None:
        with pytest.raises(InputError, match="does not name its features"):
            smoothed(sigma=dict(zip(FEATURES, SCALE, strict=True))).certify(X)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": [0.1, 2.0]}, "inputs have 3 features, and 2 numbers were given for the scale"),
        ({"sigma": [0.1, 0.0, 1.0]}, "the scale of feature 1 is 0"),
        ({"sigma": [0.1, np.nan, 1.0]}, "the scale of feature 1 is nan"),
        ({"sigma": []}, "without numbers"),
        ({"sigma": [[0.1, 2.0, 30.0]]}, r"sigma has the shape \(1, 3\)"),
        ({"sigma": ["a", "b", "c"]}, "expected numbers"),
        ({"sigma": 1.0, "sigma_scale": "std"}, "sigma_scale is 'std'; expected numbers"),
        ({"sigma": SCALE, "sigma_scale": SCALE}, "give one number as sigma"),
        ({"sigma": lambda x: 1.0, "sigma_scale": SCALE}, "one number; a function"),
        ({"sigma": OptimisedSigma(0.5), "sigma_scale": SCALE}, "one number; a OptimisedSigma"),
        ({"grid": 256}, "lie on no grid"),
        ({"noise_at": "first-layer"}, "needs a torch network"),
        ({"sigma": [1e-30, 1.0, 1.0], "x": X * np.float32(1e10)}, "too large for float32"),
        ({"x": np.zeros((2, 1, 3, 1))}, r"inputs here have the shape \(1, 3, 1\)"),
        ({"input_range": (0.0, 1.0)}, "outside"),
    ],
)
def test_what_is_refused(settings: dict, message: str) -> None:
    x = settings.pop("x", X)
    with pytest.raises(InputError, match=message):
        smoothed(**settings).certify(x, n0=10, n=50)


def test_noise_is_float_also_for_bytes() -> None:
    """Inputs on a grid leave it when they are divided."""
    results = smoothed(sigma=[0.3, 0.2, 0.1], input_range=(0, 1)).certify(np.uint8([[0, 255, 7]]), n0=10, n=50)
    assert results[0].grid is None
    assert "lie on no grid" in repr(smoothed())


def test_several_levels_of_one_feature() -> None:
    """A list of one number is a scale, not a number: radii are multiples of it."""
    model, x = Linear(np.ones(1), 0.0), np.float32([[1.0]])
    (one,), (other,) = (smoothed(model, sigma=sigma, grid="float").certify(x, n0=20, n=2000) for sigma in ([0.5], 0.5))
    assert one.radius == pytest.approx(2 * other.radius, rel=0.02)
