"""How the error probability α is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from smoothcert.errors import InputError
from smoothcert.records import Quantity


def split_alpha(alpha: float, quantities: Sequence[Quantity]) -> dict[Quantity, float]:
    """Equal shares of α for every quantity that must hold at once (union bound).

    The shares, added up exactly, never exceed α.
    """
    if not quantities:
        raise InputError("there is nothing to spend alpha on: no quantity was asked for")
    share = alpha / len(quantities)
    while math.fsum([share] * len(quantities)) > alpha:
        share = math.nextafter(share, 0.0)
    return dict.fromkeys(quantities, share)
