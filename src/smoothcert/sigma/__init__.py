"""The noise level σ(x): constant, by nearest neighbours, by a network, optimised for each input, or one's own function.

Each rule states the envelope that is proved for it, or that there is none. Knows nothing of certificates.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from smoothcert.errors import InputError
from smoothcert.noise import check_sigma
from smoothcert.own_code import imported, is_own_code
from smoothcert.sigma.base import SigmaRule
from smoothcert.sigma.callable_rule import CallableRule
from smoothcert.sigma.constant import ConstantRule
from smoothcert.sigma.optimised import (
    Ascent,
    GridSearch,
    OptimisedRule,
    OptimisedSigma,
    SearchResult,
    SignSearch,
    make_search,
    parse_search,
)

__all__ = [
    "Ascent",
    "CallableRule",
    "ConstantRule",
    "GridSearch",
    "OptimisedRule",
    "OptimisedSigma",
    "SearchResult",
    "SigmaRule",
    "SignSearch",
    "as_rule",
    "load_sigma",
    "make_search",
    "parse_search",
]


def as_rule(sigma: float | SigmaRule | Callable[[Any], float]) -> SigmaRule:
    """A number as the constant rule, a function as a rule without an envelope, a rule as it is."""
    if isinstance(sigma, SigmaRule):
        return sigma
    if callable(sigma):
        return CallableRule(sigma, envelope=None)
    check_sigma(sigma)
    return ConstantRule(float(sigma))


def load_sigma(spec: str) -> SigmaRule:
    """The rule in a file that `sigma fit` or `sigma train` wrote, or named as package.module:attribute.

    The latter *imports and runs the named code*: a rule, or a function of one input, which then has no envelope.
    """
    if not is_own_code(spec):
        from smoothcert.sigma.files import load_rule

        return load_rule(Path(spec))
    found = imported(spec)
    if not isinstance(found, SigmaRule) and not callable(found):
        raise InputError(
            f"{spec} is a {type(found).__name__}; expected a rule for sigma, or a function from one input to a number"
        )
    return as_rule(found)
