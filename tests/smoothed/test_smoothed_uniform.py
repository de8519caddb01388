"""Uniform noise from end to end: votes with known probabilities, radii in l1, runs that say so."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_runner import invoke
from memory_models import plane_points, right_half
from smoothcert.certificates import CERTIFICATES
from smoothcert.cli.main import app
from smoothcert.errors import InputError, RunError
from smoothcert.memory import list_memories
from smoothcert.records import Noise, Norm, Outcome, Quantity
from smoothcert.records.sentences import describe_noise
from smoothcert.runs.load import load_results
from smoothcert.runs.recertification import recertify_run
from smoothcert.runs.store import RunStore, read_manifest
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import ConstantLevel, NoiseSpec

ALPHA = 0.001
HALF_WIDTH = 0.5
DISTANCES = np.array([0.05, 0.15, 0.3, 0.45, 0.7], dtype=np.float32)
"""From the border of `right_half`; the last is farther than the noise reaches."""


def inputs(distances: np.ndarray = DISTANCES, *, size: int = 5) -> np.ndarray:
    x = np.full((len(distances), size), 0.25, dtype=np.float32)
    x[:, 0] = distances
    return x


def smooth(model: Any = right_half, **more: Any) -> SmoothedClassifier:
    settings = {"sigma": HALF_WIDTH, "noise": "uniform", "num_classes": 2, "seed": 4, "batch": 512, "input_range": None}
    return SmoothedClassifier(model, **(settings | more))


def sum_positive(batch: np.ndarray) -> np.ndarray:
    return (batch.reshape(len(batch), -1).astype(np.float64).sum(axis=1) > 0).astype(np.int64)


class TestHalfSpace:
    """x₁ > 0 with noise in [-λ, λ]: p = (x₁ + λ)/2λ, so that λ(2p - 1) is the distance itself."""

    @pytest.mark.parametrize("certificate", [None, "uniform-l1", "uniform-l1-two-class"])
    def test_radii_are_true_and_close(self, certificate: str | None) -> None:
        """True: each radius is too large with probability at most α. Close: within 5 standard deviations of p, and what
        the bound takes off; both at fixed seeds.
        """
        n = 20_000
        points = smooth().certify(inputs(), n=n, alpha=ALPHA, certificate=certificate)
        for point, distance in zip(points, DISTANCES.astype(np.float64), strict=True):
            assert point.norm is Norm.L1
            assert (point.prediction, point.outcome) == (1, Outcome.CERTIFIED)
            reach = min(distance, HALF_WIDTH)
            p = (reach + HALF_WIDTH) / (2 * HALF_WIDTH)
            slack = 2 * HALF_WIDTH * (10 * math.sqrt(p * (1 - p) / n) + 10 / n)
            assert reach - slack <= point.radius <= reach

    def test_the_bound_is_the_formula(self) -> None:
        for point in smooth().certify(inputs(), n=2000):
            assert point.bounds is not None
            lower = point.bounds.quantities[Quantity.TOP_LOWER].value
            assert point.radius == pytest.approx(max(0.0, HALF_WIDTH * (2 * lower - 1)), rel=1e-12)

    def test_beyond_the_noise_all_votes_agree(self) -> None:
        """Bounded noise cannot cross the border: no vote is ever wrong, and still the radius is below λ."""
        (point,) = smooth().certify(inputs(np.array([0.51], dtype=np.float32)), n=2000)
        assert point.radius == pytest.approx(HALF_WIDTH * (2 * ALPHA ** (1 / 2000) - 1), rel=1e-9)
        assert point.radius < 0.51

    def test_a_slanted_border_is_true_too(self) -> None:
        """Σx > 0: the l1 distance is Σx, since one coordinate may carry it all."""
        x = np.full((6, 4), 0.0, dtype=np.float32)
        x[:, 0] = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
        for point, distance in zip(smooth(sum_positive).certify(x, n=5000), x.sum(axis=1), strict=True):
            assert point.radius < float(distance)

    def test_predict(self) -> None:
        points = smooth().predict(inputs(np.concatenate([DISTANCES[1:], -DISTANCES[1:]])), n=2000)
        assert [point.prediction for point in points] == [1] * 4 + [0] * 4
        assert {point.norm for point in points} == {Norm.L1}

    def test_the_guarantee_says_l1(self) -> None:
        (point,) = smooth().certify(inputs()[2:3], n=2000)
        assert "in l1 distance" in str(point.guarantee)

    def test_the_noise_stays_in_its_cube(self) -> None:
        seen: list[np.ndarray] = []

        def watched(batch: np.ndarray) -> np.ndarray:
            if len(batch) > 1:  # now and then a row is asked again alone
                seen.append(batch.copy())
            return right_half(batch)

        smoothed = smooth(watched, input_shape=(5,))
        seen.clear()
        smoothed.predict(inputs()[:1], n=4000)
        noise = np.concatenate(seen).astype(np.float64) - inputs()[:1]
        assert noise.shape == (4000, 5)
        assert np.abs(noise).max() <= HALF_WIDTH * (1 + 1e-6)
        # The mean of 20000 squares is λ²/3 within 5 standard deviations, 2/(3√5) λ² each (false alarm 6e-7).
        spread = 5 * 2 / (3 * math.sqrt(5)) / math.sqrt(noise.size)
        assert np.mean(np.square(noise)) / HALF_WIDTH**2 == pytest.approx(1 / 3, abs=spread)


FITTING = {name for name, one in CERTIFICATES.items() if one.noise is Noise.UNIFORM}


class TestWhichCertificates:
    def test_they_are_those_in_l1(self) -> None:
        assert all(one.norm is one.noise.norm for one in CERTIFICATES.values())
        assert (Noise.UNIFORM.norm, Noise.GAUSSIAN.norm) == (Norm.L1, Norm.L2)
        assert {"uniform-l1", "uniform-l1-two-class"} <= FITTING

    @pytest.mark.parametrize("name", ["gaussian", "gaussian-two-class", "dipole", "second-order", "envelope", "renyi"])
    def test_others_are_refused_under_uniform_noise(self, name: str) -> None:
        with pytest.raises(InputError, match=rf"{name} is proved for gaussian noise.*use the certificate uniform-l1"):
            smooth().certify(inputs(), n=2000, certificate=name)

    @pytest.mark.parametrize("name", sorted(FITTING))
    def test_these_are_refused_under_gaussian_noise(self, name: str) -> None:
        with pytest.raises(InputError, match=r"proved for uniform noise.*use the certificate gaussian"):
            smooth(noise="gaussian").certify(inputs(), n=2000, certificate=name)

    def test_side_by_side(self) -> None:
        points = smooth().certify(inputs(), n=2000, certificate="uniform-l1,uniform-l1-two-class")
        assert all(point.further[0].certificate == "uniform-l1-two-class" for point in points)
        with pytest.raises(InputError):
            smooth().certify(inputs(), n=2000, certificate="uniform-l1,gaussian")

    def test_a_varying_half_width_needs_a_memory(self, tmp_path: Path) -> None:
        def level(x: np.ndarray) -> float:
            return 0.2 + abs(float(x[0]))

        with pytest.raises(InputError, match="a memory"):
            smooth(sigma=level).certify(inputs(), n=2000)
        points = smooth(sigma=level, memory=tmp_path / "memory.sqlite").certify(inputs(), n=2000)
        assert all(point.promise is not None and point.norm is Norm.L1 for point in points)

    def test_there_is_no_other_noise(self) -> None:
        with pytest.raises(InputError, match=f"there is no noise 'unheard-of': use {' or '.join(Noise)}"):
            smooth(noise="unheard-of")


DIGITS = ("--model", "sample_models:digits_by_brightness", "--num-classes", 10, "--data", "digits")
SMALL = ("--n0", 20, "--n", 500, "--max", 12, "--seed", 1, "--batch", 64)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over digits; nobody may change it."""
    out = tmp_path_factory.mktemp("uniform") / "run"
    invoke(app, "certify", *DIGITS, *SMALL, "--noise", "uniform", "--sigma", 0.5, "--out", out)
    return out


class TestRuns:
    def test_the_manifest_says_it(self, run: Path) -> None:
        spec = read_manifest(run).spec
        assert spec.noise == NoiseSpec(kind=Noise.UNIFORM, grid=17, generator="chacha20")
        assert describe_noise(spec.noise.grid) == "in exact steps of 1/16"
        assert spec.sigma == ConstantLevel(level=0.5)
        assert spec.certificates == ("uniform-l1",)

    def test_radii_are_in_l1(self, run: Path, tmp_path: Path) -> None:
        with RunStore.open(run) as store:
            points = store.points()
        assert {point.norm for point in points} == {Norm.L1}
        certified = [point for point in points if point.outcome is Outcome.CERTIFIED]
        assert certified
        assert all(0 < point.radius < 0.5 for point in certified)
        assert load_results(run).norm is Norm.L1
        invoke(app, "export", run, "-o", tmp_path / "run.json", "--format", "json")
        assert json.loads((tmp_path / "run.json").read_text())["norm"] == "l1"

    def test_the_table_says_l1(self, run: Path) -> None:
        (row,) = json.loads(invoke(app, "table", run, "--json").stdout)
        assert row["norm"] == "l1"
        assert "l1" in invoke(app, "table", run).stdout

    def test_recertify(self, run: Path, tmp_path: Path) -> None:
        invoke(app, "recertify", run, "--certificate", "uniform-l1-two-class", "--out", tmp_path / "again", "--json")
        manifest = read_manifest(tmp_path / "again")
        assert manifest.spec.certificates == ("uniform-l1-two-class",)
        assert manifest.grid == 17
        with RunStore.open(tmp_path / "again") as store:
            assert {point.norm for point in store.points()} == {Norm.L1}
        same = recertify_run(run).points
        with RunStore.open(run) as store:
            assert [point.radius for point in same] == [point.radius for point in store.points()]

    @pytest.mark.parametrize("other", ["gaussian", "gaussian-two-class", "envelope"])
    def test_recertify_by_a_theorem_for_other_noise(self, run: Path, other: str) -> None:
        with pytest.raises(InputError, match="proved for gaussian noise, and the noise here is uniform"):
            recertify_run(run, certificate=other)

    def test_gaussian_runs_are_not_recertified_as_uniform(self, tmp_path: Path) -> None:
        invoke(app, "certify", *DIGITS, *SMALL, "--sigma", 0.25, "--out", tmp_path / "run")
        with pytest.raises(InputError, match="proved for uniform noise, and the noise here is gaussian"):
            recertify_run(tmp_path / "run", certificate="uniform-l1")

    def test_the_noise_is_a_setting_of_the_run(self, run: Path) -> None:
        with pytest.raises(RunError, match="noise"):
            invoke(app, "certify", *DIGITS, *SMALL, "--sigma", 0.5, "--out", run)

    def test_unknown_noise(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=f"'unheard-of': use {', '.join(Noise)}, float, uniform-float"):
            invoke(app, "certify", *DIGITS, *SMALL, "--noise", "unheard-of", "--sigma", 0.5, "--out", tmp_path / "run")

    def test_optimised_with_a_memory(self, tmp_path: Path) -> None:
        data, memory, out = plane_points(tmp_path / "points.npz"), tmp_path / "memory.sqlite", tmp_path / "run"
        invoke(
            app, "certify", "--model", "memory_models:in_unit_ball", "--num-classes", 2, "--data", data,
            "--input-range", "any", "--noise", "uniform", "--sigma-rule", "optimised", "--sigma", 0.25,
            "--sigma-range", "0.05,4",
            "--search", "grid:points=7,noises=16,check=16", "--memory", memory, "--n0", 20, "--n", 500, "--seed", 1,
            "--batch", 64, "--out", out,
        )  # fmt: skip
        (summary,) = list_memories(memory)
        assert (summary.key.norm, summary.key.noise) == (Norm.L1, "uniform")
        assert summary.claims > 30
        results = load_results(out)
        assert results.norm is Norm.L1
        assert len(set(results.sigma)) > 1
        assert "l1 norm" in invoke(app, "memory", "stats", memory).stdout
        assert "consistent" in invoke(app, "memory", "audit", memory).stdout
        assert read_manifest(out).spec.certificates == ("uniform-l1",)
