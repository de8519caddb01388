"""Noise levels with false envelopes. They can be named on the command line."""

from __future__ import annotations

import numpy as np

from smoothcert.records.envelopes import Envelope, LipschitzSigma, MonotoneEnvelope, SemiElastic
from smoothcert.sigma.callable_rule import CallableRule
from smoothcert.sigma.constant import ConstantRule

BRIGHT = 0.32
"""Mean of the pixels of a digit above which the level jumps; of the digits that runs here take, some are above."""


def jump(x: np.ndarray) -> float:
    """Changes by a factor of twelve between two digits."""
    return 0.6 if float(x.astype(np.float64).mean()) > BRIGHT else 0.05


def small_jump(x: np.ndarray) -> float:
    """Changes less than a rate of 0.05 allows across [0, 1]^64, but more than it allows between two digits."""
    return 0.3 if float(x.astype(np.float64).mean()) > BRIGHT else 0.24


def _claims(function: object, envelope: Envelope) -> CallableRule:
    return CallableRule(function, envelope=envelope)  # type: ignore[arg-type]


says_rate_zero = _claims(jump, SemiElastic(rate=0.0))
says_flat = _claims(jump, LipschitzSigma(constant=0.0, floor=0.05))
says_slow = _claims(jump, SemiElastic(rate=0.05))
says_low_floor = _claims(jump, LipschitzSigma(constant=0.01, floor=0.05))
says_slow_and_jumps_little = _claims(small_jump, SemiElastic(rate=0.05))
says_its_own = _claims(jump, MonotoneEnvelope("mine", lambda s, a: s + 0 * a, lambda s, a: s + 0 * a))

honest_constant = ConstantRule(0.25)
other_constant = ConstantRule(3.0)
