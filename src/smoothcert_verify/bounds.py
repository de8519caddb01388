"""Whether the tallies prove the stored bounds: each value is put into the inequality that makes it one.

Where a proof bounds several alternatives at once (corners of a region, or every other class) and a document stores only
the one that decided, the others are worked out here, because the radius has to hold for all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from flint import arb, ctx

from smoothcert_verify import catalogue
from smoothcert_verify.arithmetic import (
    PRECISIONS,
    ball,
    binomial_tail,
    exactly,
    lower_limit,
    lower_tail,
    proved,
    share_of_beta_above,
    tail_at_most,
    upper_limit,
)
from smoothcert_verify.gradients import halves_norm, pair_products_norm
from smoothcert_verify.samples import Gradients, Pairs, Samples, UnreadableError
from smoothcert_verify.scores import Order, lower_by_bernstein, lower_by_betting, upper_by_bernstein, upper_by_betting

Values = Mapping[str, Fraction]

LOOSE = Fraction(1, 10**6)
"""A bound that could be closer by more than this share of its scale is not the bound it claims to be."""

_LOOSE_NORM = Fraction(1, 10**4)
"""The same for norms of gradients, which are given room for the units that noise is added up in."""
_NOTHING = Fraction(1, 10**12)
"""A probability that nobody minds being given away."""
_CORNERS = 8
_STRETCH = Fraction(13, 10)
_SMALLEST_LEVEL = Fraction(2, 10**100)
_BISECTIONS = 90
_FARTHEST_REACH = 40


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that may prove something: the samples of the estimation, the class they speak of, and when they were looked
    at. looks: hits and trials, growing. order: in which scores are bet on. on_grid: whether the noise is."""

    samples: Samples
    label: int
    looks: tuple[tuple[int, int], ...]
    order: Order
    on_grid: bool = False


@dataclass(slots=True)
class Checked:
    """discrepancies: sentences. alternatives: in place of the stored values, those for each of which the radius must
    hold; empty where the stored ones are all there is."""

    discrepancies: list[str] = field(default_factory=list)
    alternatives: list[dict[str, Fraction]] = field(default_factory=list)


def check_proof(proof: str, values: Values, evidence: Evidence, *, alpha: Fraction) -> Checked:
    """values: of the quantities this proof bounds. alpha: its price."""
    wanted = catalogue.SAMPLED.get(proof)
    if wanted is not None and evidence.samples.kind != wanted:
        return Checked([f"{proof}: needs {wanted}, and there are {evidence.samples.kind}"])
    if proof in catalogue.ANYTIME:
        return _anytime(proof, values["p-a"], evidence, alpha)
    return _CHECKS[proof](values, evidence, alpha)


def proves_lower(successes: int, trials: int, p: Fraction, alpha: Fraction) -> bool:
    """Whether P(Bin(trials, p) ≥ successes) ≤ α, which makes p a lower confidence bound; 0 always is one."""
    if p <= 0:
        return True
    if successes == 0 or p >= 1:
        return False
    return tail_at_most(successes, trials, p, alpha)


def _votes_lower(
    name: str, k: int, n: int, p: Fraction, alpha: Fraction, *, grain: Fraction = Fraction(0)
) -> list[str]:
    """A Clopper–Pearson lower bound: true, and as large as it says. grain: to what it could be stored at all."""
    if not proves_lower(k, n, p, alpha):
        return [f"{name} {float(p)!r} is not proved by {k} of {n} at alpha {float(alpha):g}"]
    closer = p + LOOSE * min(p, 1 - p) + grain if p > 0 else lower_limit(k, n, alpha)
    if closer > p and proves_lower(k, n, closer, alpha):
        return [f"{name} {float(p)!r} is looser than {k} of {n} at alpha {float(alpha):g} allow"]
    return []


def _votes_upper(name: str, k: int, n: int, p: Fraction, alpha: Fraction) -> list[str]:
    complaints = _votes_lower("1 - " + name, n - k, n, 1 - p, alpha, grain=Fraction(1, 2**50))
    return [f"{name} {float(p)!r}: {complaint}" for complaint in complaints]


def _top(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    samples = evidence.samples
    return Checked(_votes_lower("p-a", samples.votes[evidence.label], samples.draws, values["p-a"], alpha))


def _runner_up(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    # No union over the classes: the count of the class that is truly strongest is at most the largest count.
    samples = evidence.samples
    return Checked(_votes_upper("p-b", samples.largest_other(evidence.label), samples.draws, values["p-b"], alpha))


def _anytime(proof: str, p: Fraction, evidence: Evidence, alpha: Fraction) -> Checked:
    """Whether the bet against "at most p" has reached 1/α at some look.

    Rejected p form an interval from 0, at every look. So p is a lower limit that holds at all looks at once, and if it
    certifies a radius, all smaller p, which belong to smaller radii, are rejected with it.
    """
    if p <= 0 or any(_rejects(hits, trials, p, alpha) for hits, trials in reversed(evidence.looks)):
        return Checked()
    seen = f"{evidence.looks[-1][0]} of {evidence.looks[-1][1]} votes" if evidence.looks else "no votes"
    return Checked([f"{proof}: no look at {seen} rejects p-a {float(p)!r} at alpha {float(alpha):g}"])


def _rejects(hits: int, trials: int, p: Fraction, alpha: Fraction) -> bool:
    return proved(lambda: (-ball(alpha).log(), _log_wealth(hits, trials, p)))


def _log_wealth(hits: int, trials: int, p: Fraction) -> arb:
    """log of ∫ (q/p)^h ((1-q)/(1-p))^(t-h) over the Beta(½,½) law restricted to q > p and normalised."""
    if p >= 1:
        return arb.neg_inf()
    half = Fraction(1, 2)
    a, b = hits + half, trials - hits + half
    log_beta = ball(a).lgamma() + ball(b).lgamma() - ball(a + b).lgamma() - arb.pi().log()
    prior = 2 / arb.pi() * ball(1 - p).sqrt().asin()
    posterior = share_of_beta_above(a, b, p)
    likelihood = hits * ball(p).log() + (trials - hits) * ball(1 - p).log()
    return log_beta + (posterior / prior).log() - likelihood


def _pairs_of(evidence: Evidence) -> Pairs:
    if evidence.samples.pairs is None:
        raise UnreadableError("there are no pairs of votes")
    return evidence.samples.pairs


def _pair_both(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    both = _pairs_of(evidence).both[evidence.label]
    return Checked(_votes_lower("both", both, evidence.samples.draws, values["both"], alpha))


def _pair_one_sided(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    first = _pairs_of(evidence).first[evidence.label]
    return Checked(_votes_lower("one-sided", first, evidence.samples.draws, values["one-sided"], alpha))


def _pair_region(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    """The stored corner must be one of a staircase around the truth, and the radius must hold at all of its corners.

    P₁ = P(Bin(m, C_S) ≥ S) and, given S, P₂ = P(Bin(m-S, w) ≥ D), w = 2C_N/(1-C_S), are super-uniform, the second also
    given the first. No corner of levels (A_i, B_i) lies below the truth with probability at most A₁ + Σ(A_{i+1}-A_i)B_i
    + (1-A_K)B_K, for A growing and B falling.
    """
    counts, pairs = _pair_counts(evidence), evidence.samples.draws
    levels = _corner_levels(alpha)
    checked = Checked()
    if not any(_is_chain(values["both"], values["one-sided"], counts, pairs, a, b) for a, b in levels):
        checked.discrepancies.append(
            f"both {float(values['both'])!r} and one-sided {float(values['one-sided'])!r} are no corner of what is "
            f"proved by {counts[0]} and {counts[1]} of {pairs} pairs at alpha {float(alpha):g}"
        )
    for first, second in levels:
        both, one_sided = _chain(counts, pairs, first, second)
        checked.alternatives.append({"both": both, "one-sided": one_sided})
    return checked


def _pair_counts(evidence: Evidence) -> tuple[int, int]:
    pairs, label = _pairs_of(evidence), evidence.label
    return pairs.both[label], pairs.first[label] + pairs.second[label]


def _chain(counts: tuple[int, int], pairs: int, first: Fraction, second: Fraction) -> tuple[Fraction, Fraction]:
    """Lower bounds (C_S, C_N) of which the one is proved at the first level, and w given it at the second."""
    both, one_sided = counts
    symmetric = lower_limit(both, pairs, first)
    share = lower_limit(one_sided, pairs - both, second) if pairs > both else Fraction(0)
    return symmetric, share * (1 - symmetric) / 2


def _is_chain(
    both: Fraction, one_sided: Fraction, counts: tuple[int, int], pairs: int, first: Fraction, second: Fraction
) -> bool:
    """Whether two stored bounds are those that `_chain` proves, or a rounding error below."""
    if both >= 1:
        return False
    symmetric, limit = _chain(counts, pairs, first, second)
    share, share_limit = 2 * one_sided / (1 - both), 2 * limit / (1 - symmetric)
    return _just_below(both, symmetric) and _just_below(share, share_limit)


def _just_below(value: Fraction, limit: Fraction) -> bool:
    return limit - LOOSE * min(limit, 1 - limit) - _NOTHING <= value <= limit


@functools.lru_cache(maxsize=64)
def _corner_levels(alpha: Fraction) -> tuple[tuple[Fraction, Fraction], ...]:
    """Levels (A_i, B_i) along a quarter of an ellipse, whose staircase is missed with probability at most α."""
    low, high = Fraction(0), Fraction(_FARTHEST_REACH)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _missed(_levels(middle)) <= alpha else (middle, high)
    levels = _levels(high)
    if _missed(levels) > alpha:
        raise UnreadableError(f"alpha {float(alpha):g} is too small for a joint region")
    return levels


def _levels(reach: Fraction) -> tuple[tuple[Fraction, Fraction], ...]:
    with ctx.workprec(PRECISIONS[1]):
        levels = []
        for corner in range(_CORNERS):
            here, next_ = (arb.pi() * at / (2 * _CORNERS) for at in (corner, corner + 1))
            first = lower_tail(-ball(reach) * here.cos())
            second = lower_tail(-ball(reach * _STRETCH) * next_.sin())
            levels.append((exactly(first.lower()), max(exactly(second.lower()), _SMALLEST_LEVEL)))
        return tuple(levels)


def _missed(levels: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
    ends = [first for first, _ in levels[1:]] + [Fraction(1)]
    return levels[0][0] + sum((end - a) * b for (a, b), end in zip(levels, ends, strict=True))


def _pairs_of_every_class(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    pairs, label, draws = _pairs_of(evidence), evidence.label, evidence.samples.draws
    share = alpha / (2 * len(pairs.both))
    checked = Checked()
    mine = {"both": values["both"], "one-sided": values["one-sided"]}
    if not _is_chain(values["both"], values["one-sided"], _pair_counts(evidence), draws, share, share):
        checked.discrepancies.append(
            f"both {float(mine['both'])!r} and one-sided {float(mine['one-sided'])!r} are not proved by the pairs of "
            f"class {label} at alpha {float(share):g}"
        )
    others = set()
    for c in range(len(pairs.both)):
        one_sided = pairs.first[c] + pairs.second[c]
        if c != label:
            others.add((draws - pairs.both[c] - one_sided, one_sided))
    stored = values["other-neither"], values["other-one-sided"]
    if not any(_is_chain(*stored, counts, draws, share, share) for counts in others):
        checked.discrepancies.append(
            f"other-neither {float(stored[0])!r} and other-one-sided {float(stored[1])!r} are proved by the pairs of "
            f"no other class at alpha {float(share):g}"
        )
    for counts in sorted(others):
        neither, one_sided_lower = _chain(counts, draws, share, share)
        checked.alternatives.append({**mine, "other-neither": neither, "other-one-sided": one_sided_lower})
    return checked


def _gradients_of(evidence: Evidence) -> Gradients:
    if evidence.samples.gradients is None:
        raise UnreadableError("there are no sums of noise")
    return evidence.samples.gradients


def _halves(evidence: Evidence, label: int, *, rare: bool, alpha: Fraction) -> arb:
    gradients, on_grid = _gradients_of(evidence), evidence.on_grid
    return halves_norm(evidence.samples, gradients, label, rare=rare, alpha=alpha, on_grid=on_grid)


def _norm(name: str, stored: Fraction, needed: arb, sigma: float, what: str, *, enough: arb | None = None) -> list[str]:
    """An upper bound on the norm of a gradient: needed is that bound times σ, rounded up.

    enough: the same with all the room for rounding that anybody leaves, where that is more.
    """
    scaled = stored * Fraction(sigma)
    with ctx.workprec(PRECISIONS[1]):
        if not needed <= ball(scaled):
            return [f"{name} {float(stored)!r} is not proved by {what}, which allow {float(needed.mid()) / sigma!r}"]
        if ball(scaled) > (needed if enough is None else enough) * ball(1 + _LOOSE_NORM):
            return [f"{name} {float(stored)!r} is looser than {what} allow"]
    return []


def _gradient_halves(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    needed = _halves(evidence, evidence.label, rare=False, alpha=alpha)
    stored = values["gradient-norm"]
    return Checked(_norm("gradient-norm", stored, needed, evidence.samples.sigma, "the sums of noise"))


def _gradient_pairs(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    # Runs of float noise have left one unit of room for rounding, or two.
    needed, enough = (
        pair_products_norm(
            evidence.samples,
            _gradients_of(evidence),
            evidence.label,
            alpha=alpha,
            on_grid=evidence.on_grid,
            units=units,
        )
        for units in (1, 2)
    )
    stored, sigma = values["gradient-norm"], evidence.samples.sigma
    return Checked(_norm("gradient-norm", stored, needed, sigma, "the products of pairs", enough=enough))


def _gradients_of_every_class(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    samples, label = evidence.samples, evidence.label
    votes = (*samples.votes, samples.invalid)
    share = alpha / (2 * len(votes))
    sigma = Fraction(samples.sigma)
    mine = {"p-a": values["p-a"], "gradient-norm": values["gradient-norm"]}
    checked = Checked(_votes_lower("p-a", votes[label], samples.draws, mine["p-a"], share))
    needed = _halves(evidence, label, rare=False, alpha=share)
    checked.discrepancies += _norm("gradient-norm", mine["gradient-norm"], needed, samples.sigma, "the sums of noise")
    stored = values["other-p"], values["other-gradient-norm"]
    proved_of_one = False
    for c in range(len(votes)):
        if c == label:
            continue
        most = upper_limit(votes[c], samples.draws, share)
        norm = exactly(_halves(evidence, c, rare=True, alpha=share).upper()) / sigma
        checked.alternatives.append({**mine, "other-p": most, "other-gradient-norm": norm})
        proved_of_one |= _just_above(stored[0], most) and _just_above(stored[1], norm)
    if not proved_of_one:
        checked.discrepancies.append(
            f"other-p {float(stored[0])!r} and other-gradient-norm {float(stored[1])!r} are proved of no other class"
        )
    return checked


def _just_above(value: Fraction, limit: Fraction) -> bool:
    return limit <= value <= limit * (1 + _LOOSE_NORM)


def _score_top(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    holds = lower_by_betting(evidence.samples, values["p-a"], alpha=alpha, order=evidence.order)
    return _of_scores("p-a", values["p-a"], holds, evidence, alpha)


def _score_other(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    holds = upper_by_betting(evidence.samples, values["p-b"], alpha=alpha, order=evidence.order)
    return _of_scores("p-b", values["p-b"], holds, evidence, alpha)


def _score_top_bernstein(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    holds = lower_by_bernstein(evidence.samples, values["p-a"], alpha=alpha)
    return _of_scores("p-a", values["p-a"], holds, evidence, alpha)


def _score_other_bernstein(values: Values, evidence: Evidence, alpha: Fraction) -> Checked:
    holds = upper_by_bernstein(evidence.samples, values["p-b"], alpha=alpha)
    return _of_scores("p-b", values["p-b"], holds, evidence, alpha)


def _of_scores(name: str, value: Fraction, holds: bool, evidence: Evidence, alpha: Fraction) -> Checked:
    scores = evidence.samples.scores
    if scores is None or scores.label != evidence.label:
        return Checked([f"the scores that were counted are not those of class {evidence.label}"])
    if not holds:
        return Checked([f"{name} {float(value)!r} is not proved by the scores at alpha {float(alpha):g}"])
    return Checked()


_CHECKS = {
    catalogue.TOP: _top,
    catalogue.RUNNER_UP: _runner_up,
    catalogue.PAIR_BOTH: _pair_both,
    catalogue.PAIR_ONE_SIDED: _pair_one_sided,
    catalogue.PAIR_REGION: _pair_region,
    catalogue.PAIRS_OF_EVERY_CLASS: _pairs_of_every_class,
    catalogue.GRADIENT_HALVES: _gradient_halves,
    catalogue.GRADIENT_PAIRS: _gradient_pairs,
    catalogue.GRADIENTS_OF_EVERY_CLASS: _gradients_of_every_class,
    catalogue.SCORE_TOP: _score_top,
    catalogue.SCORE_OTHER: _score_other,
    catalogue.SCORE_TOP_BERNSTEIN: _score_top_bernstein,
    catalogue.SCORE_OTHER_BERNSTEIN: _score_other_bernstein,
}


def sign_test_holds(first: int, second: int, alpha: Fraction) -> bool:
    """Whether the class with `first` votes beats that with `second` at level α, two-sided, under a fair coin."""
    if first <= second:
        return False
    return proved(lambda: (2 * binomial_tail(first, first + second, Fraction(1, 2)), ball(alpha)))


def noise_price(*, levels: int, sigma: Fraction, dimension: int, draws: int) -> Fraction:
    """With at most this probability one of the draws differs from a draw of the exact law on the grid.

    A coordinate of the noise is a whole number found by comparing 64 random bits with thresholds, of which there are at
    most 2⌈9.2 s⌉ + 3, s = σ(levels - 1); each is rounded by at most 2^-64.
    """
    thresholds = 2 * math.ceil(Fraction(92, 10) * sigma * (levels - 1)) + 3
    return Fraction(draws * dimension * thresholds, 2**64)
