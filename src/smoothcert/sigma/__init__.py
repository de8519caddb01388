"""The noise level σ(x): constant, by nearest neighbours, by a network, optimised for each input, or a user's function.

Each rule states the envelope that is proved for it, or None if nothing is proved.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from smoothcert.errors import InputError
from smoothcert.noise import check_sigma
from smoothcert.sigma.callable_rule import CallableRule
from smoothcert.sigma.constant import ConstantRule
from smoothcert.sigma.optimised import OptimisedRule, OptimisedSigma, SearchResult
from smoothcert.sigma.rule import SigmaRule
from smoothcert.sigma.searches import Ascent, GridSearch, SignSearch, make_search, parse_search
from smoothcert.user_code import import_object, is_code_name

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
    """Convert to a rule: a number becomes a constant rule, a function a rule without an envelope."""
    if isinstance(sigma, SigmaRule):
        return sigma
    if callable(sigma):
        return CallableRule(sigma, envelope=None)
    check_sigma(sigma)
    return ConstantRule(float(sigma))


def load_sigma(spec: str, *, code_folder: str | None = None) -> SigmaRule:
    """Load a rule from a file written by `sigma fit` or `sigma train`, or from package.module:attribute.

    The second form *imports and runs the named code*. It must be a rule, or a function of one input; a function has no
    envelope. code_folder: where the code is, if it cannot be imported from here.
    """
    if not is_code_name(spec):
        from smoothcert.sigma.rule_files import load_rule

        return load_rule(Path(spec))
    found = import_object(spec, code_folder=code_folder)
    if not isinstance(found, SigmaRule) and not callable(found):
        raise InputError(
            f"{spec} is a {type(found).__name__}; expected a rule for sigma, or a function of one input that returns "
            "a number"
        )
    return as_rule(found)
