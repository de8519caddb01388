"""The two claims that docs/figures/contradicted_claims.py contradicts: every number again, by other formulas."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

from smoothcert.certificates import gaussian_radius, gaussian_two_class_radius, worst_case_probability

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "explanation" / "contradicted-claims.md"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("contradicted_claims", DOCS / "figures" / "contradicted_claims.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("matplotlib")
    return load_script()


@pytest.fixture(scope="module")
def cases(script: ModuleType) -> list[Any]:
    return [script.ThreeClasses(), *script.OTHER_SIZES]


def test_the_page_has_what_the_script_prints(script: ModuleType) -> None:
    assert script.describe() in PAGE.read_text()


# ------------------------------------------------------------------------- Bergstrom, Sager and Anderson, Figure 1


def test_the_constant_of_theorem_2_at_the_settings_of_the_paper(script: ModuleType) -> None:
    """Equation (5) as it is printed, by scipy alone."""
    point = stats.chi2.isf(1e-7, 784)
    ratio = point * stats.chi2.pdf(point, 784) / stats.norm.pdf(stats.norm.ppf(1e-7))
    by_hand = (1.0 + 2.0 * 0.5 * ratio) / 0.65
    paper = script.LearnedSigma()
    assert paper.constant() == pytest.approx(by_hand, rel=1e-9)
    assert round(paper.constant(), 2) == 34.71
    assert paper.largest_radius() == pytest.approx(stats.norm.isf(1e-7) / by_hand, rel=1e-9)
    assert round(paper.largest_radius(), 4) == 0.1498


def test_no_score_gives_a_larger_radius(script: ModuleType) -> None:
    paper = script.LearnedSigma()
    scores = np.concatenate([np.linspace(0.5, 1.0, 1001)[:-1], 1.0 - np.geomspace(1e-16, 1e-3, 50)])
    assert paper.radius(scores).max() <= 0.1437
    two = script.LearnedSigma(num_classes=2)
    assert 0.1497 < two.radius(scores).max() <= paper.largest_radius()


def test_a_tight_theorem_would_give_hardly_more_and_constant_sigma_twenty_times_as_much(script: ModuleType) -> None:
    paper, score = script.LearnedSigma(), 1.0 - 1e-7
    for sigma in (0.65, 1.0):
        tight = paper.tight_radius(score, sigma=sigma)
        assert paper.largest_radius() < tight < 0.26
        assert float(gaussian_radius(score, sigma=sigma)) > 19 * tight
    at_once = script.LearnedSigma(lipschitz=paper.slope_for(0.5 * stats.norm.isf(1e-7)))
    assert at_once.largest_radius() == pytest.approx(0.5 * stats.norm.isf(1e-7), rel=1e-9)
    assert paper.tight_radius(score, sigma=0.65, lipschitz=0.0) == pytest.approx(0.65 * stats.norm.isf(1e-7), rel=1e-6)


def test_the_tight_radius_is_reached_by_a_sigma_of_that_slope(script: ModuleType) -> None:
    """Just beyond it, at the smallest or largest σ that the slope allows, the worst base classifier changes sides."""
    paper, score = script.LearnedSigma(), 1.0 - 1e-7
    radius = paper.tight_radius(score, sigma=1.0)

    def worst(distance: float) -> float:
        ends = np.array([1.0 - 0.5 * distance, 1.0 + 0.5 * distance])
        return float(worst_case_probability(score, sigma=1.0, other_sigma=ends, distance=distance, dimension=784).max())

    assert worst(radius) < 0.5 < worst(radius * (1.0 + 1e-6))


# --------------------------------------------------------------- Súkeník, Kuvshinov and Günnemann, appendix B.5


def chance_inside(radius: float, *, gap: float, level: float, dimension: int) -> float:
    """Of a ball under N(x, level² I), whose centre is at distance gap from x, by its radial density.

    The distance to the centre has density (r/s²)(r/g)^(N/2-1) exp(-(r²+g²)/2s²) I_{N/2-1}(rg/s²).
    """
    order = 0.5 * dimension - 1.0

    def density(r: float) -> float:
        scaled = float(special.ive(order, r * gap / level**2))  # I_v(z) e^{-z}
        return r / level**2 * (r / gap) ** order * math.exp(-((r - gap) ** 2) / (2.0 * level**2)) * scaled

    start = max(0.0, gap - 12.0 * level)
    value, _ = integrate.quad(density, start, radius, epsabs=1e-12, epsrel=1e-12, limit=500)
    return float(value)


def exact_probabilities(case: Any, distance: float) -> tuple[float, float, float]:
    place = {"gap": case.centre - distance, "level": case.sigma_at(distance), "dimension": case.dimension}
    disk, ring = (chance_inside(radius, **place) for radius in (case.disk, case.ring))
    return 1.0 - ring, disk, ring - disk


def test_probabilities_of_the_three_classes(cases: list[Any]) -> None:
    for case in (cases[0], cases[1]):  # Bessel functions of order 391 underflow
        for distance in (0.0, case.crossing, case.distance):
            assert case.probabilities(distance) == pytest.approx(exact_probabilities(case, distance), abs=1e-9)
    for case in cases:
        at_x0 = case.probabilities(0.0)
        assert at_x0 == pytest.approx((0.5, 0.27, 0.23), abs=1e-9)
        assert sum(case.probabilities(case.distance)) == pytest.approx(1.0)


def test_the_answer_changes_where_the_remark_certifies_it(cases: list[Any]) -> None:
    for case in cases:
        a, b, c = case.probabilities(case.distance)
        assert case.distance < case.remark_radius
        assert b > a + 0.2
        assert b > c
        assert b < 0.5
        assert case.sound_radius <= case.crossing < 0.55 * case.remark_radius


def test_the_remark_does_certify_it(cases: list[Any]) -> None:
    """No class of probability .27 (or .23) at x₀ reaches ½ at x₁ or nearer, for any σ₁ that the rate allows."""
    for case in cases:
        for distance in np.linspace(0.05, 1.0, 12) * case.distance:
            levels = case.sigma * np.exp(np.linspace(-1.0, 1.0, 21) * case.rate * distance)
            setting = {"sigma": case.sigma, "other_sigma": levels, "distance": distance, "dimension": case.dimension}
            for chance in (case.p_b, 1.0 - case.p_a - case.p_b):
                assert worst_case_probability(1.0 - chance, **setting).max() < 0.5


def test_sigma_is_semi_elastic_with_its_rate(cases: list[Any]) -> None:
    case = cases[0]
    points = np.random.default_rng(5).normal(size=(200, 2, 2))
    levels = np.log([[case.sigma_at(float(np.linalg.norm(one))) for one in pair] for pair in points])
    gaps = np.linalg.norm(points[:, 0] - points[:, 1], axis=1)
    assert (np.abs(levels[:, 0] - levels[:, 1]) <= case.rate * gaps + 1e-12).all()


def test_the_remark_is_wrong_for_constant_sigma_too() -> None:
    """Half-spaces: A to the left of 0, B to the right of -Φ⁻¹(p_b); at 95 % of the radius of the remark B is ahead."""
    remark = float(gaussian_radius(1.0 - 0.27, sigma=1.0))
    assert remark == pytest.approx(0.6128, abs=5e-5)
    a, b = stats.norm.cdf(-0.95 * remark), stats.norm.sf(remark - 0.95 * remark)
    assert a == pytest.approx(0.2802, abs=5e-5)
    assert b == pytest.approx(0.4878, abs=5e-5)
    assert float(gaussian_two_class_radius(0.5, 0.27, sigma=1.0)) == pytest.approx(0.5 * remark, rel=1e-6)


@pytest.mark.slow
def test_figures_are_drawn(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["contradicted_claims.py", "-o", str(tmp_path)])
    script.main()
    for name in script.FIGURES:
        assert (tmp_path / name).stat().st_size > 10_000
        assert (DOCS / "images" / name).is_file()
