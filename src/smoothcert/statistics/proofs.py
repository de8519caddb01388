"""From tallies to the bounded quantities a certificate asks for, at a total price of α per input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import InputError
from smoothcert.records import AnyTally, FloatArray, Proof, Quantity, Stage, TallyKind
from smoothcert.statistics import gradient, pairs, scores, votes
from smoothcert.statistics.binomial import check_alpha
from smoothcert.statistics.budget import split_alpha


@dataclass(frozen=True, slots=True)
class _Method:
    """Which quantities a proof bounds, and the function (tallies, labels, α) → one array for each of them.

    An array has shape (m,), or (alternatives, m) where a certificate must hold for each of several alternatives.
    """

    quantities: tuple[Quantity, ...]
    bound: Callable[[Sequence[Any], Sequence[int], float], FloatArray | tuple[FloatArray, ...]]


_PAIR = (Quantity.PAIR_BOTH_LOWER, Quantity.PAIR_ONE_SIDED_LOWER)
_GRADIENT = (Quantity.GRADIENT_NORM_UPPER,)

_METHODS: Mapping[Proof, _Method] = {
    Proof.TOP: _Method((Quantity.TOP_LOWER,), votes.top_lower),
    Proof.RUNNER_UP: _Method((Quantity.RUNNER_UP_UPPER,), votes.runner_up_upper),
    Proof.PAIR_BOTH: _Method((Quantity.PAIR_BOTH_LOWER,), pairs.both_lower),
    Proof.PAIR_ONE_SIDED: _Method((Quantity.PAIR_ONE_SIDED_LOWER,), pairs.one_sided_lower),
    Proof.PAIR_REGION: _Method(_PAIR, pairs.pair_region),
    Proof.PAIRS_OF_EVERY_CLASS: _Method(
        (*_PAIR, Quantity.OTHER_NEITHER_LOWER, Quantity.OTHER_ONE_SIDED_LOWER), pairs.pairs_of_every_class
    ),
    Proof.GRADIENT_HALVES: _Method(_GRADIENT, gradient.gradient_from_halves),
    Proof.GRADIENT_PAIRS: _Method(_GRADIENT, gradient.gradient_from_pairs),
    Proof.GRADIENTS_OF_EVERY_CLASS: _Method(
        (Quantity.TOP_LOWER, *_GRADIENT, Quantity.OTHER_UPPER, Quantity.OTHER_GRADIENT_NORM_UPPER),
        gradient.gradients_of_every_class,
    ),
    Proof.SCORE_TOP: _Method((Quantity.TOP_LOWER,), scores.top_score_lower),
    Proof.SCORE_OTHER: _Method((Quantity.RUNNER_UP_UPPER,), scores.other_score_upper),
    Proof.SCORE_TOP_BERNSTEIN: _Method((Quantity.TOP_LOWER,), scores.top_score_lower_by_bernstein),
    Proof.SCORE_OTHER_BERNSTEIN: _Method((Quantity.RUNNER_UP_UPPER,), scores.other_score_upper_by_bernstein),
}


@dataclass(frozen=True, slots=True)
class Proven:
    """Quantities bounded for m inputs: by proof its price, and by proof and quantity the values."""

    spent: Mapping[Proof, float]
    values: Mapping[Proof, Mapping[Quantity, FloatArray]]


def prove(tallies: Sequence[AnyTally], labels: Sequence[int], proofs: Sequence[Proof], *, alpha: float) -> Proven:
    """All bounds of `proofs` for each tally, together wrong with probability at most α per input.

    tallies: m ≥ 1 ESTIMATION tallies of one kind; labels: the class each speaks of, chosen without looking at that
    tally.
    """
    for tally in tallies:
        if tally.stream.stage is not Stage.ESTIMATION:
            raise InputError(
                f"bounds need estimation votes, not {tally.stream.stage.name}: a sample that chose cannot also prove"
            )
    check_alpha(alpha)
    spent = split_alpha(alpha, proofs)
    return Proven(
        spent=spent, values={proof: _values(proof, tallies, labels, alpha=share) for proof, share in spent.items()}
    )


def _values(
    proof: Proof, tallies: Sequence[AnyTally], labels: Sequence[int], *, alpha: float
) -> dict[Quantity, FloatArray]:
    method = _METHODS[proof]
    bounded = method.bound(_as_sampled(tallies, proof.tally), labels, alpha)
    values = bounded if isinstance(bounded, tuple) else (bounded,)
    return dict(zip(method.quantities, values, strict=True))


def _as_sampled(tallies: Sequence[AnyTally], kind: TallyKind) -> Sequence[AnyTally]:
    """The tallies as the kind a proof reads; independent votes can be had from any."""
    if kind is TallyKind.VOTES:
        return [tally.independent_votes() for tally in tallies]
    other = next((tally for tally in tallies if tally.kind is not kind), None)
    if other is not None:
        raise InputError(f"tallies of {kind} are needed; these are tallies of {other.kind}")
    return tallies
