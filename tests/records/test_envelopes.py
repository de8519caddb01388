"""Envelopes: rounded outwards, monotone, and the same after a journey through a manifest."""

import json

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.records.envelopes import (
    ConstantSigma,
    Envelope,
    LipschitzSigma,
    MonotoneEnvelope,
    SemiElastic,
    Widened,
    envelope_from_json,
)

SIGMA = st.floats(1e-6, 1e6)
SLOPE = st.one_of(st.just(0.0), st.floats(1e-9, 1e3))


def ends(envelope: Envelope, sigma: float, distance: float) -> tuple[float, float]:
    s, a = np.array([sigma]), np.array([distance])
    return float(envelope.low(s, a)[0]), float(envelope.high(s, a)[0])


@given(SIGMA, SLOPE, st.floats(0, 3))
def test_semi_elastic_encloses_the_truth(sigma: float, rate: float, log_ratio: float) -> None:
    distance = log_ratio / rate if rate else log_ratio
    low, high = ends(SemiElastic(rate), sigma, distance)
    with ctx.workprec(128):
        move = arb(rate) * arb(distance)
        assert arb(low) <= arb(sigma) * (-move).exp()
        assert arb(high) >= arb(sigma) * move.exp()
        assert arb(low) >= arb(sigma) * (-move).exp() * (1 - arb(1e-14))
        assert arb(high) <= arb(sigma) * move.exp() * (1 + arb(1e-14))


@given(SIGMA, SLOPE, st.floats(0, 1e3), st.floats(1e-3, 1))
def test_lipschitz_encloses_the_truth(sigma: float, constant: float, distance: float, share: float) -> None:
    floor = share * sigma
    low, high = ends(LipschitzSigma(constant=constant, floor=floor), sigma, distance)
    with ctx.workprec(128):
        fall = arb(sigma) - arb(constant) * arb(distance)
        assert arb(low) <= (fall if fall > floor else arb(floor))
        assert arb(high) >= arb(sigma) + arb(constant) * arb(distance)
    assert floor * (1 - 1e-14) <= low <= sigma <= high


def all_kinds(slope: float, floor: float) -> list[Envelope]:
    own = MonotoneEnvelope("own", lambda s, a: s / (1 + slope * a), lambda s, a: s * (1 + slope * a))
    plain: list[Envelope] = [ConstantSigma(), SemiElastic(slope), LipschitzSigma(constant=slope, floor=floor), own]
    return plain + [Widened(envelope, slack=1e-3) for envelope in plain]


@given(SIGMA, st.floats(0, 10), st.floats(0, 10))
def test_all_kinds_move_outwards(sigma: float, slope: float, distance: float) -> None:
    for envelope in all_kinds(slope, 0.1 * sigma):
        near, far = ends(envelope, sigma, distance), ends(envelope, sigma, 1.1 * distance + 1e-3)
        assert far[0] <= near[0] <= sigma <= near[1] <= far[1]
        assert far[0] >= 0


def test_widened_is_wider_by_its_slack() -> None:
    assert ends(Widened(ConstantSigma(), slack=0.25), 2.0, 1.0) == (1.5, 2.5)


def test_shapes_are_kept() -> None:
    sigma, distance = np.ones((2, 3)), np.linspace(0, 1, 6).reshape(2, 3)
    for envelope in all_kinds(0.1, 0.5):
        assert envelope.low(sigma, distance).shape == (2, 3)
        assert envelope.high(sigma, distance).shape == (2, 3)


@pytest.mark.parametrize(
    "envelope",
    [
        ConstantSigma(),
        SemiElastic(0.01),
        LipschitzSigma(constant=0.3, floor=0.1),
        Widened(Widened(SemiElastic(1 / 3), slack=1e-7), slack=0.1),
    ],
)
def test_through_a_manifest_and_back(envelope: Envelope) -> None:
    assert envelope_from_json(json.loads(json.dumps(dict(envelope.to_json())))) == envelope


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kind": "unknown"},
        {"kind": "semi-elastic"},
        {"kind": "user", "name": "mine"},
        {"kind": "semi-elastic", "rate": -1},
        {"kind": "lipschitz", "constant": 1, "floor": 0},
        {"kind": "widened", "slack": 0.1, "inner": {"kind": "user", "name": "mine"}},
    ],
)
def test_what_cannot_be_read_back(document: dict[str, object]) -> None:
    with pytest.raises(InputError):
        envelope_from_json(document)


@pytest.mark.parametrize("slope", [-0.1, float("nan"), float("inf")])
def test_slopes_must_be_finite_and_not_negative(slope: float) -> None:
    with pytest.raises(InputError, match="rate"):
        SemiElastic(slope)
    with pytest.raises(InputError, match="constant"):
        LipschitzSigma(constant=slope, floor=1.0)


@pytest.mark.parametrize("floor", [0.0, -1.0, float("nan"), float("inf")])
def test_floors_must_be_positive(floor: float) -> None:
    with pytest.raises(InputError, match="floor"):
        LipschitzSigma(constant=0.1, floor=floor)


@pytest.mark.parametrize("slack", [-1e-9, 1.0, float("nan"), float("inf")])
def test_slack_is_a_relative_error(slack: float) -> None:
    with pytest.raises(InputError, match="slack"):
        Widened(ConstantSigma(), slack=slack)
