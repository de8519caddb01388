"""A rule whose envelope the inputs at hand contradict is refused, with the pair; a true envelope never is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_models import Linear
from smoothcert.errors import InputError
from smoothcert.records.envelopes import Envelope, LipschitzSigma, MonotoneEnvelope, SemiElastic
from smoothcert.sigma import CallableRule
from smoothcert.sigma.envelope_check import EnvelopeCheck
from smoothcert.smoothed import SmoothedClassifier

SIZE = 8
INPUTS = np.random.default_rng(1).random((9, SIZE), dtype=np.float32)
SPEED = 0.4


def by_norm(x: np.ndarray) -> float:
    return 0.2 + SPEED * float(np.linalg.norm(x.astype(np.float64)))


def smooth(envelope: Envelope) -> SmoothedClassifier:
    rule = CallableRule(by_norm, envelope=envelope)
    model = Linear(np.ones(SIZE), -4.0)
    return SmoothedClassifier(model, sigma=rule, num_classes=2, seed=3, batch=64, workers=1, input_range=(0, 1))


WRONG = [
    LipschitzSigma(constant=SPEED / 10, floor=0.2),
    SemiElastic(rate=0.01),
    MonotoneEnvelope("own", lambda s, a: s - 0.01 * a, lambda s, a: s + 0.01 * a),
    MonotoneEnvelope("only above is wrong", lambda s, a: s * 0.0 + 0.0 * a, lambda s, a: s + 0.0 * a),
]


@pytest.mark.parametrize("envelope", WRONG)
def test_it_is_refused_with_the_pair_before_sampling(envelope: Envelope) -> None:
    seen: list[int] = []
    pattern = r"contradicts its envelope .*: inputs \d+ and \d+ are [\d.]+ apart and have sigma [\d.]+ and [\d.]+"
    with pytest.raises(InputError, match=pattern):
        smooth(envelope).certify(INPUTS, n=100, progress=seen.append)
    assert seen == []


def test_also_over_several_calls() -> None:
    smoothed = smooth(WRONG[0])
    lengths = np.linalg.norm(INPUTS.astype(np.float64), axis=1)
    near, far = int(lengths.argmin()), int(lengths.argmax())
    smoothed.certify(INPUTS[near : near + 1], n=100)
    with pytest.raises(InputError, match=r"inputs \d+ and \d+ are"):
        smoothed.certify(INPUTS[far : far + 1], n=100)


def test_a_true_envelope_is_accepted() -> None:
    points = smooth(LipschitzSigma(constant=SPEED, floor=0.2)).certify(INPUTS, n=200)
    assert len(points) == len(INPUTS)


@given(
    seed=st.integers(0, 2**32 - 1),
    speed=st.floats(1e-3, 1e3),
    spread=st.sampled_from([0.0, 1e-6, 1e-3, 1.0, 100.0]),
    size=st.sampled_from([1, 3, 500]),
)
@settings(max_examples=60, deadline=None)
def test_rounding_never_contradicts_a_true_envelope(seed: int, speed: float, spread: float, size: int) -> None:
    """Levels that use their envelope up: along a ray they change exactly as fast as it allows."""
    random = np.random.default_rng(seed)
    centre = random.normal(size=size)
    inputs = (centre + spread * np.linspace(0, 1, 20)[:, None] * random.normal(size=size)).astype(np.float32)

    def distance(x: np.ndarray) -> float:
        return math.sqrt(math.fsum(float(value) ** 2 for value in x.astype(np.float64).ravel()))

    lipschitz = np.array([0.1 + speed * distance(x) for x in inputs])
    elastic = np.array([0.1 * math.exp(min(1.0, speed) * 0.01 * distance(x)) for x in inputs])
    for levels, envelope in (
        (lipschitz, LipschitzSigma(constant=speed, floor=0.1)),
        (elastic, SemiElastic(rate=min(1.0, speed) * 0.01)),
    ):
        rule = CallableRule(by_norm, envelope=envelope)
        error = 1.0 + 1e-11 * random.uniform(-1, 1, len(levels))
        EnvelopeCheck().check(rule, inputs, levels * error, range(len(inputs)))


def test_what_is_kept_for_comparison_is_bounded() -> None:
    check = EnvelopeCheck()
    rule = CallableRule(by_norm, envelope=LipschitzSigma(constant=SPEED, floor=0.2))
    inputs = np.random.default_rng(0).random((3000, 2), dtype=np.float32)
    levels = rule.sigmas(inputs)
    check.check(rule, inputs, levels, range(3000))
    with pytest.raises(InputError, match=r"inputs 3000 and 0 are|inputs 0 and 3000 are"):
        check.check(rule, inputs[:1], levels[:1] * 2, [3000])
