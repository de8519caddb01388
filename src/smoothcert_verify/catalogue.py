"""What each certificate claims: by which proofs, about which quantities, by which theorem."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
NOISE_TABLES = "finite tables of the noise"

ANYTIME = (TOP_DECIDED, TOP_SEQUENCE)

_PAIR = ("both", "one-sided")
_OTHER_PAIR = ("other-neither", "other-one-sided")
_GRADIENT = ("gradient-norm",)

BOUNDED: dict[str, tuple[str, ...]] = {
    TOP: ("p-a",),
    RUNNER_UP: ("p-b",),
    PAIR_BOTH: ("both",),
    PAIR_ONE_SIDED: ("one-sided",),
    PAIR_REGION: _PAIR,
    PAIRS_OF_EVERY_CLASS: (*_PAIR, *_OTHER_PAIR),
    GRADIENT_HALVES: _GRADIENT,
    GRADIENT_PAIRS: _GRADIENT,
    GRADIENTS_OF_EVERY_CLASS: ("p-a", *_GRADIENT, "other-p", "other-gradient-norm"),
    SCORE_TOP: ("p-a",),
    SCORE_OTHER: ("p-b",),
    SCORE_TOP_BERNSTEIN: ("p-a",),
    SCORE_OTHER_BERNSTEIN: ("p-b",),
    TOP_DECIDED: ("p-a",),
    TOP_SEQUENCE: ("p-a",),
}
"""Which quantities a proof bounds."""

UPPER = {"p-b", "gradient-norm", "other-p", "other-gradient-norm"}
"""Quantities bounded from above; the others are bounded from below."""

SAMPLED = {
    PAIR_BOTH: "pairs",
    PAIR_ONE_SIDED: "pairs",
    PAIR_REGION: "pairs",
    PAIRS_OF_EVERY_CLASS: "pairs",
    GRADIENT_HALVES: "gradients",
    GRADIENT_PAIRS: "gradients",
    GRADIENTS_OF_EVERY_CLASS: "gradients",
    SCORE_TOP: "scores",
    SCORE_OTHER: "scores",
    SCORE_TOP_BERNSTEIN: "scores",
    SCORE_OTHER_BERNSTEIN: "scores",
}
"""What must have been counted; plain votes can be had from every tally."""


@dataclass(frozen=True, slots=True)
class Claim:
    """theorem: the name of the check in `radii`. tight: whether the radius is promised to be the largest the bounds
    give, but for rounding. varying: whether it may hold for a σ that differs from input to input."""

    proofs: tuple[str, ...]
    theorem: str
    tight: bool = True
    varying: bool = False
    norm: str = "l2"
    noise: str = "gaussian"

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(quantity for proof in self.proofs for quantity in BOUNDED[proof])


_FORMS = {
    "": (TOP,),
    "-two-class": (TOP, RUNNER_UP),
    "-soft": (SCORE_TOP,),
    "-soft-two-class": (SCORE_TOP, SCORE_OTHER),
    "-soft-bernstein": (SCORE_TOP_BERNSTEIN,),
    "-soft-two-class-bernstein": (SCORE_TOP_BERNSTEIN, SCORE_OTHER_BERNSTEIN),
}


def _claims() -> dict[str, Claim]:
    claims = {
        "dipole": Claim((PAIR_REGION,), "dipole"),
        "dipole-separate": Claim((PAIR_BOTH, PAIR_ONE_SIDED), "dipole"),
        "dipole-multi-class": Claim((PAIRS_OF_EVERY_CLASS,), "dipole"),
        "second-order": Claim((TOP, GRADIENT_HALVES), "second-order"),
        "second-order-pairs": Claim((TOP, GRADIENT_PAIRS), "second-order"),
        "second-order-multi-class": Claim((GRADIENTS_OF_EVERY_CLASS,), "second-order"),
        "lipschitz": Claim((SCORE_TOP,), "lipschitz", varying=True),
        "lipschitz-two-class": Claim((SCORE_TOP, SCORE_OTHER), "lipschitz", varying=True),
    }
    for form, proofs in _FORMS.items():
        claims[f"gaussian{form}"] = Claim(proofs, "gaussian")
        claims[f"envelope{form}"] = Claim(proofs, "envelope", tight=False, varying=True)
        claims[f"uniform-l1{form}"] = Claim(proofs, "uniform-l1", norm="l1", noise="uniform")
    for form in ("", "-two-class"):
        claims[f"lecuyer{form}"] = Claim(_FORMS[form], "lecuyer", tight=False)
        claims[f"li{form}"] = Claim(_FORMS[form], "li", tight=False)
        claims[f"renyi{form}"] = Claim(_FORMS[form], "renyi", tight=False, varying=True)
    return claims


CLAIMS = _claims()

_BEST_OF = re.compile(r"best-of\((.*)\)", re.DOTALL)


def names_in(certificate: str) -> tuple[list[str], bool]:
    """The certificates in "a,b" or "best-of(a,b)", and whether the best of them was taken."""
    match = _BEST_OF.fullmatch(certificate.strip())
    inner = match.group(1) if match else certificate
    return [name.strip() for name in inner.split(",")], match is not None
