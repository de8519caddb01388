"""Fitting a nearest-neighbour rule: given parameters are kept, omitted ones are proposed."""

from __future__ import annotations

import math

import pytest

from smoothcert.certificates.envelope import envelope_radius
from smoothcert.data import load_dataset
from smoothcert.errors import InputError
from smoothcert.records.envelopes import ConstantSigma, SemiElastic
from smoothcert.sigma.knn_fitting import MOST_PROVABLE, KnnSettings, OffsetChoice, fit_knn, propose_rate


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits", split="train")


@pytest.mark.parametrize(("dimension", "sigma", "loss"), [(2, 0.5, 0.05), (784, 0.12, 0.05), (784, 0.25, 0.01)])
def test_the_rate_costs_what_it_may_and_a_little_more_would_cost_more(dimension, sigma, loss):
    rate = propose_rate(sigma=sigma, dimension=dimension, loss=loss)

    def radius(envelope):
        return float(envelope_radius(MOST_PROVABLE, sigma=sigma, dimension=dimension, envelope=envelope))

    whole = radius(ConstantSigma())
    assert radius(SemiElastic(rate=rate)) >= (1 - loss) * whole
    step = 10.0 ** (math.floor(math.log10(rate)) - 1)
    assert radius(SemiElastic(rate=rate + step)) < (1 - loss) * whole


def test_only_the_product_of_rate_and_sigma_matters():
    """Scaling all lengths up scales the rate down, up to rounding to two digits."""
    once, twice = (propose_rate(sigma=sigma, dimension=100, loss=0.05) for sigma in (0.25, 0.5))
    assert once == pytest.approx(2 * twice, rel=0.05)


def test_higher_dimensions_bear_less():
    rates = [propose_rate(sigma=0.25, dimension=dimension, loss=0.05) for dimension in (10, 784, 150528)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


def test_everything_given_is_kept(digits):
    fitted = fit_knn(digits, KnnSettings(base_sigma=0.12, k=7, rate=0.02, offset=1.25, most=0.3))
    rule = fitted.rule
    assert (rule.base_sigma, rule.k, rule.rate, rule.offset, rule.most) == (0.12, 7, 0.02, 1.25, 0.3)
    assert len(rule.points) == len(digits)
    assert fitted.reasons == {"k": "given", "offset": "given", "rate": "given"}
    assert fitted.ladder == ()
    assert fitted.facts()["data"] == digits.digest


def test_everything_is_proposed(digits):
    heard = []
    fitted = fit_knn(digits, KnnSettings(base_sigma=0.25), progress=lambda done, total: heard.append(done / total))
    assert fitted.rule.k in {step.k for step in fitted.ladder}
    assert fitted.rule.rate == propose_rate(sigma=0.25, dimension=64, loss=0.05)
    assert "correlation" in fitted.reasons["k"]
    assert heard[-1] == 1.0
    test_sigmas = fitted.rule.sigmas(load_dataset("digits", split="test").inputs(slice(None)))
    assert test_sigmas.min() == pytest.approx(0.25, rel=0.05)


def test_the_offset_by_the_mean_makes_the_average_sigma_the_base(digits):
    fitted = fit_knn(digits, KnnSettings(base_sigma=0.25, k=10, rate=0.1, offset=OffsetChoice.MEAN))
    sigmas = fitted.rule.sigmas(load_dataset("digits", split="test").inputs(slice(None)))
    assert sigmas.mean() == pytest.approx(0.25, rel=0.01)


def test_fewer_points(digits):
    fitted = fit_knn(digits, KnnSettings(base_sigma=0.25, k=3, rate=0.1, offset=1.0, most_points=100))
    assert len(fitted.rule.points) == 100


@pytest.mark.parametrize("changes", [{"loss": 0.0}, {"loss": 1.0}, {"most_points": 0}])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(InputError):
        KnnSettings(base_sigma=0.25, **changes)
