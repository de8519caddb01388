"""How the error probability α is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from smoothcert.errors import InputError
from smoothcert.records import Proof


def split_alpha(alpha: float, proofs: Sequence[Proof]) -> dict[Proof, float]:
    """Equal shares of α for every proof that must hold at once (union bound).

    The shares, added up exactly, never exceed α.
    """
    return dict.fromkeys(proofs, equal_share(alpha, len(proofs)))


def equal_share(alpha: float, count: int) -> float:
    """The largest share of α that can be spent `count` times."""
    if count < 1:
        raise InputError("there is nothing to spend alpha on: no bound was asked for")
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha={alpha} is outside (0, 1): it is the probability that a statement is wrong")
    share = alpha / count
    # Exactly: fsum would round the sum to nearest, which may hide a part in 10^17.
    while count * Fraction(share) > Fraction(alpha):
        share = math.nextafter(share, 0.0)
    return share
