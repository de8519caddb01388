"""From tallies to the bounded quantities that a certificate needs, at a total error of α per input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import InputError
from smoothcert.records import AnyTally, FloatArray, Proof, Quantity, Stage, TallyKind
from smoothcert.statistics import gradient, pairs, score_bounds, vote_bounds
from smoothcert.statistics.binomial import check_alpha
from smoothcert.statistics.budget import split_alpha


@dataclass(frozen=True, slots=True)
class _Method:
    """The quantities that a proof bounds, and the function (tallies, labels, α) → one array for each of them.

    An array has shape (m,), or (alternatives, m) where a certificate must hold for each of several alternatives.
    """

    quantities: tuple[Quantity, ...]
    bound: Callable[[Sequence[Any], Sequence[int], float], FloatArray | tuple[FloatArray, ...]]


_PAIR = (Quantity.PAIR_BOTH_LOWER, Quantity.PAIR_ONE_SIDED_LOWER)
_GRADIENT = (Quantity.GRADIENT_NORM_UPPER,)

_METHODS: Mapping[Proof, _Method] = {
    Proof.TOP: _Method((Quantity.TOP_LOWER,), vote_bounds.top_lower),
    Proof.RUNNER_UP: _Method((Quantity.RUNNER_UP_UPPER,), vote_bounds.runner_up_upper),
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
    Proof.SCORE_TOP: _Method((Quantity.TOP_LOWER,), score_bounds.top_score_lower),
    Proof.SCORE_OTHER: _Method((Quantity.RUNNER_UP_UPPER,), score_bounds.other_score_upper),
    Proof.SCORE_TOP_BERNSTEIN: _Method((Quantity.TOP_LOWER,), score_bounds.top_score_lower_by_bernstein),
    Proof.SCORE_OTHER_BERNSTEIN: _Method((Quantity.RUNNER_UP_UPPER,), score_bounds.other_score_upper_by_bernstein),
    Proof.EVERY_EVALUATION: _Method((Quantity.SAFE_STEPS,), vote_bounds.safe_steps),
}


@dataclass(frozen=True, slots=True)
class Proven:
    """Bounds for m inputs: the α spent by each proof, and the values by proof and quantity."""

    spent: Mapping[Proof, float]
    values: Mapping[Proof, Mapping[Quantity, FloatArray]]


def prove(tallies: Sequence[AnyTally], labels: Sequence[int], proofs: Sequence[Proof], *, alpha: float) -> Proven:
    """All bounds of `proofs` for each tally, together wrong with probability at most α per input.

    tallies: m ≥ 1 ESTIMATION tallies of one kind; labels: the class of each, chosen without looking at that tally.
    """
    for tally in tallies:
        if tally.stream.stage is not Stage.ESTIMATION:
            raise InputError(
                f"bounds need estimation votes, not {tally.stream.stage.name}: a sample that chose cannot also prove"
            )
    if alpha != 0 or not all(proof.certain for proof in proofs):
        check_alpha(alpha)
    spent = split_alpha(alpha, proofs)
    return Proven(
        spent=spent, values={proof: _values(proof, tallies, labels, alpha=share) for proof, share in spent.items()}
    )


def _values(
    proof: Proof, tallies: Sequence[AnyTally], labels: Sequence[int], *, alpha: float
) -> dict[Quantity, FloatArray]:
    method = _METHODS[proof]
    bounded = method.bound(_tallies_of_kind(tallies, proof.tally), labels, alpha)
    values = bounded if isinstance(bounded, tuple) else (bounded,)
    return dict(zip(method.quantities, values, strict=True))


def _tallies_of_kind(tallies: Sequence[AnyTally], kind: TallyKind) -> Sequence[AnyTally]:
    """The tallies as the kind that a proof needs; every kind contains independent votes."""
    if kind is TallyKind.VOTES:
        return [tally.independent_votes() for tally in tallies]
    other = next((tally for tally in tallies if tally.kind is not kind), None)
    if other is not None:
        raise InputError(f"expected tallies of {kind}, got tallies of {other.kind}")
    return tallies
