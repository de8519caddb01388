"""The constant rule and the rule of a user's function."""

from __future__ import annotations

import numpy as np
import pytest

from smoothcert.errors import InputError
from smoothcert.records.envelopes import ConstantSigma, LipschitzSigma, MonotoneEnvelope
from smoothcert.sigma.callable_rule import CallableRule
from smoothcert.sigma.constant import ConstantRule
from smoothcert.sigma.rule import SigmaRule

INPUTS = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


def test_constant():
    rule = ConstantRule(0.25)
    assert isinstance(rule, SigmaRule)
    assert rule.envelope == ConstantSigma()
    assert np.array_equal(rule.sigmas(INPUTS), [0.25] * 3)
    assert rule.digest == ConstantRule(0.25).digest != ConstantRule(0.5).digest
    for sigma in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="positive finite"):
            ConstantRule(sigma)


def brightness(x):
    return 0.1 + 0.01 * float(x.max())


def test_a_function_is_called_with_one_input_at_a_time():
    seen = []

    def watched(x):
        seen.append(x.shape)
        return brightness(x)

    envelope = LipschitzSigma(constant=0.01, floor=0.1)
    rule = CallableRule(watched, envelope=envelope)
    assert isinstance(rule, SigmaRule)
    assert rule.envelope is envelope
    assert np.array_equal(rule.sigmas(INPUTS), [0.1 + 0.01 * 3, 0.1 + 0.01 * 7, 0.1 + 0.01 * 11])
    assert seen == [(2, 2)] * 3
    assert "watched" in rule.description


def test_digests_of_functions():
    rules = [
        CallableRule(brightness, envelope=None),
        CallableRule(brightness, envelope=LipschitzSigma(constant=0.01, floor=0.1)),
        CallableRule(brightness, envelope=None, digest="weights"),
        CallableRule(lambda x: 0.5, envelope=None),
        CallableRule(np.max, envelope=None),
    ]
    assert len({rule.digest for rule in rules}) == len(rules)
    assert rules[0].digest == CallableRule(brightness, envelope=None).digest
    assert rules[0].envelope is None
    assert rules[1].to_json()["envelope"] == {"kind": "lipschitz", "constant": 0.01, "floor": 0.1}


def test_values_a_function_or_an_envelope_encloses_count():
    def level(base):
        return lambda x: base + 0.01 * float(x.mean())

    def envelope(speed):
        return MonotoneEnvelope("own", lambda sigma, r: sigma - speed * r, lambda sigma, r: sigma + speed * r)

    pairs = [(0.2, None), (0.3, None), (0.2, 0.01), (0.2, 0.02)]
    digests = [CallableRule(level(base), envelope=None if s is None else envelope(s)).digest for base, s in pairs]
    assert len(set(digests)) == len(digests)
    assert CallableRule(level(0.2), envelope=None).digest == digests[0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: 0.0, "gave 0.0"),
        (lambda x: float("nan"), "gave nan"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
        (lambda x: x, "TypeError"),
    ],
)
def test_functions_that_give_no_sigma_are_named(function, message):
    with pytest.raises(InputError, match=message):
        CallableRule(function, envelope=None).sigmas(INPUTS)
