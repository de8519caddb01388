"""Quantities that certificates use, the proofs that bound them, and the bounds themselves."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smoothcert.records.tallies import TallyKind


class Side(enum.StrEnum):
    LOWER = "lower"
    UPPER = "upper"


class Quantity(enum.StrEnum):
    """A number a certificate may ask to be bounded. The value is the option name on the command line."""

    TOP_LOWER = "p-a"
    RUNNER_UP_UPPER = "p-b"
    PAIR_BOTH_LOWER = "both"
    PAIR_ONE_SIDED_LOWER = "one-sided"
    OTHER_NEITHER_LOWER = "other-neither"
    OTHER_ONE_SIDED_LOWER = "other-one-sided"
    GRADIENT_NORM_UPPER = "gradient-norm"
    OTHER_UPPER = "other-p"
    OTHER_GRADIENT_NORM_UPPER = "other-gradient-norm"
    SAFE_STEPS = "steps"
    """Steps of the grid of the inputs that no answer changes within: a whole number, computed, not estimated."""

    @property
    def side(self) -> Side:
        return Side.UPPER if self in _UPPER else Side.LOWER


_UPPER = {
    Quantity.RUNNER_UP_UPPER,
    Quantity.GRADIENT_NORM_UPPER,
    Quantity.OTHER_UPPER,
    Quantity.OTHER_GRADIENT_NORM_UPPER,
}


class Proof(enum.StrEnum):
    """A statement that can be proved from one tally, at one price in α. It bounds one quantity, or several at once.

    The value is the name of the method, stored with every bound.
    """

    TOP = "clopper-pearson"
    RUNNER_UP = "clopper-pearson, largest other class"
    PAIR_BOTH = "clopper-pearson, pairs with both votes"
    PAIR_ONE_SIDED = "clopper-pearson, pairs with the first vote only"
    PAIR_REGION = "joint region of the pair counts"
    PAIRS_OF_EVERY_CLASS = "conditional clopper-pearson, pairs of every class"
    GRADIENT_HALVES = "gradient from the means of two halves"
    GRADIENT_PAIRS = "gradient from products of pairs"
    GRADIENTS_OF_EVERY_CLASS = "clopper-pearson and gradients from the means of two halves, every class"
    SCORE_TOP = "betting on the mean score"
    SCORE_OTHER = "betting on the mean of the largest other score"
    SCORE_TOP_BERNSTEIN = "empirical bernstein, mean score"
    SCORE_OTHER_BERNSTEIN = "empirical bernstein, mean of the largest other score"
    TOP_DECIDED = "betting test at the radii to decide, valid at any time"
    TOP_SEQUENCE = "time-uniform sequence"
    SELECTOR = "bounds on the levels of a selector"
    LEVELS = "certificates of the levels that may be selected"
    EVERY_EVALUATION = "every evaluation made"
    """Counted, not sampled: it costs nothing of α."""
    NOISE_TABLES = "finite tables of the noise"
    """Nothing is bounded by it: the price of noise whose law is that of the theorem but for a known distance."""

    @property
    def anytime(self) -> bool:
        """Whether it holds for votes that were looked at before more were drawn, which a fixed number must not be."""
        return self in (Proof.TOP_DECIDED, Proof.TOP_SEQUENCE)

    @property
    def certain(self) -> bool:
        """Whether it cannot be wrong, and has no share of α."""
        return self is Proof.EVERY_EVALUATION

    @property
    def tally(self) -> TallyKind:
        """The least that must be sampled; VOTES can be had from a tally of any kind."""
        return _SAMPLED.get(self, TallyKind.VOTES)


_SAMPLED = {
    Proof.PAIR_BOTH: TallyKind.PAIRS,
    Proof.PAIR_ONE_SIDED: TallyKind.PAIRS,
    Proof.PAIR_REGION: TallyKind.PAIRS,
    Proof.PAIRS_OF_EVERY_CLASS: TallyKind.PAIRS,
    Proof.GRADIENT_HALVES: TallyKind.GRADIENTS,
    Proof.GRADIENT_PAIRS: TallyKind.GRADIENTS,
    Proof.GRADIENTS_OF_EVERY_CLASS: TallyKind.GRADIENTS,
    Proof.SCORE_TOP: TallyKind.SCORES,
    Proof.SCORE_OTHER: TallyKind.SCORES,
    Proof.SCORE_TOP_BERNSTEIN: TallyKind.SCORES,
    Proof.SCORE_OTHER_BERNSTEIN: TallyKind.SCORES,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A one-sided confidence bound on one quantity.

    `alpha` is the price of the proof it comes from: the probability that the proof is wrong. Where a proof bounds
    several quantities at once, or every class, these are the values that decided the radius, and they hold together.
    """

    value: float
    side: Side
    alpha: float
    method: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """All bounds a certificate asked for, about one class; together wrong with probability at most `alpha`.

    spent: α by proof. It may hold proofs that the certificate at hand did not use, when the best of several was taken.
    """

    label: int
    quantities: Mapping[Quantity, Bound]
    spent: Mapping[Proof, float]

    @property
    def alpha(self) -> float:
        return math.fsum(self.spent.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "quantities": {
                quantity.value: {"value": b.value, "side": b.side.value, "alpha": b.alpha, "method": b.method}
                for quantity, b in self.quantities.items()
            },
            "spent": {proof.value: alpha for proof, alpha in self.spent.items()},
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Bounds:
        """Read what `to_json` wrote; raises a ValueError, TypeError or KeyError for anything else."""
        if type(document["label"]) is not int:
            raise TypeError(f"bounds are about a class, not about {str(document['label'])[:60]!r}")
        quantities = {
            Quantity(name): Bound(
                value=_read_number(b["value"]),
                side=Side(b["side"]),
                alpha=_read_number(b["alpha"]),
                method=str(b["method"]),
            )
            for name, b in document["quantities"].items()
        }
        spent = {Proof(method): _read_number(alpha) for method, alpha in document["spent"].items()}
        return cls(label=document["label"], quantities=quantities, spent=spent)


def _read_number(value: Any) -> float:
    if type(value) not in (int, float) or math.isnan(value):
        raise TypeError(f"{str(value)[:60]!r} is not a number")
    return float(value)
