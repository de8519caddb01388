"""Splitting the error probability α."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from smoothcert.errors import InputError
from smoothcert.records import Proof


def split_alpha(alpha: float, proofs: Sequence[Proof]) -> dict[Proof, float]:
    """Equal shares of α for all proofs that must hold at once (union bound). Their exact sum never exceeds α.

    Proofs that are certain have no share.
    """
    shared = [proof for proof in proofs if not proof.certain]
    share = equal_share(alpha, len(shared)) if shared or not proofs else 0.0
    return {proof: 0.0 if proof.certain else share for proof in proofs}


def equal_share(alpha: float, count: int) -> float:
    """The largest share of α that can be spent `count` times."""
    if count < 1:
        raise InputError("alpha cannot be split: at least one bound is required")
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha={alpha} is outside (0, 1): it is the probability that a statement is wrong")
    share = alpha / count
    # Compared exactly: fsum would round the sum to nearest, which may hide a part in 10^17.
    while count * Fraction(share) > Fraction(alpha):
        share = math.nextafter(share, 0.0)
    return share
