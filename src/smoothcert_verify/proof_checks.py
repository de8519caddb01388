"""The proofs that a certificate may rest on: for each, whether the tallies prove the stored bounds.

Each stored value is put into the inequality that makes it a bound. Where a proof bounds several alternatives at once
(corners of a region, or every other class) and a document stores only the one that decided, the others are computed
here, because the radius has to hold for all of them. To add a proof, add an entry to `PROOFS`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from flint import arb, ctx

from smoothcert_verify.arithmetic import (
    MOST_KEPT,
    PRECISIONS,
    ball,
    binomial_tail,
    exactly,
    is_proved,
    lower_limit,
    lower_tail,
    proves_lower,
    share_of_beta_above,
    upper_limit,
)
from smoothcert_verify.findings import Finding, note, refuse
from smoothcert_verify.gradients import halves_norm, pair_products_norm
from smoothcert_verify.samples import NoiseSums, PairCounts, Samples
from smoothcert_verify.score_checks import (
    Order,
    lower_by_bernstein,
    lower_by_betting,
    upper_by_bernstein,
    upper_by_betting,
)

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
EVERY_EVALUATION = "every evaluation made"
NOISE_TABLES = "finite tables of the noise"

UPPER = {"p-b", "gradient-norm", "other-p", "other-gradient-norm"}
"""Quantities bounded from above; the others are bounded from below."""

NOT_PROBABILITIES = {"gradient-norm", "other-gradient-norm", "steps"}

Values = Mapping[str, Fraction]

LOOSE = Fraction(1, 10**6)
"""A bound that could be closer by more than this share of its scale is not the bound it claims to be."""

_LOOSE_NORM = Fraction(1, 10**4)
"""The same for norms of gradients, which are given room for the units that noise is added up in."""
_NOTHING = Fraction(1, 10**12)
"""A probability too small to matter."""
_CORNERS = 8
_STRETCH = Fraction(13, 10)
_SMALLEST_LEVEL = Fraction(2, 10**100)
_BISECTIONS = 90
_FARTHEST_REACH = 40


@dataclass(frozen=True, slots=True)
class Evidence:
    """The estimation samples, the class they are about, and when they were looked at.

    looks: hits and trials, growing. order: in which scores are bet on. on_grid: whether the noise is. evaluations: how
    many there are, if every one is made; None for samples.
    """

    samples: Samples
    label: int
    looks: tuple[tuple[int, int], ...]
    order: Order
    on_grid: bool = False
    evaluations: int | None = None

    @property
    def pairs(self) -> PairCounts:
        assert self.samples.pairs is not None
        return self.samples.pairs

    @property
    def gradients(self) -> NoiseSums:
        assert self.samples.gradients is not None
        return self.samples.gradients


@dataclass(slots=True)
class ProofCheck:
    """alternatives: in place of the stored values, those for each of which the radius must hold; empty if the stored
    values are all there is."""

    discrepancies: list[Finding] = field(default_factory=list)
    alternatives: list[dict[str, Fraction]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProofForm:
    """bounds: the quantities it bounds. check: of their values at a price in α. sampled: the kind of tally it needs;
    plain votes can be had from every tally. certain: it cannot be wrong, and its price is 0."""

    bounds: tuple[str, ...]
    check: Callable[[Values, Evidence, Fraction], ProofCheck]
    sampled: str = "votes"
    certain: bool = False

    def may_cost(self, alpha: float | Fraction) -> bool:
        """Whether this can be its price."""
        return alpha == 0 if self.certain else alpha > 0


def check_proof(proof: str, values: Values, evidence: Evidence, *, alpha: Fraction) -> ProofCheck:
    """values: of the quantities this proof bounds. alpha: its price."""
    form = PROOFS[proof]
    if form.sampled not in ("votes", evidence.samples.kind):
        return ProofCheck([note("wrong-kind-of-samples", proof=proof, needed=form.sampled, kind=evidence.samples.kind)])
    return form.check(values, evidence, alpha)


def _check_lower(
    quantity: str, stored: Fraction, k: int, n: int, p: Fraction, alpha: Fraction, *, grain: Fraction = Fraction(0)
) -> list[Finding]:
    """A Clopper–Pearson lower bound p: true, and as large as it claims. grain: the precision it could be stored at.

    quantity, stored: what the finding names; for an upper bound the count is that of the failures.
    """
    values = {"quantity": quantity, "value": stored, "count": k, "trials": n, "alpha": alpha}
    is_proved, is_loose = _judge_lower(k, n, p, alpha, grain)
    if not is_proved:
        return [Finding("bound-not-proved", values)]
    return [Finding("bound-too-loose", values)] if is_loose else []


@functools.lru_cache(maxsize=MOST_KEPT)
def _judge_lower(k: int, n: int, p: Fraction, alpha: Fraction, grain: Fraction) -> tuple[bool, bool]:
    """(whether it is proved, whether it is looser than it may be). Kept: many inputs of a run have the same votes."""
    if not proves_lower(k, n, p, alpha):
        return False, False
    closer = p + LOOSE * min(p, 1 - p) + grain if p > 0 else lower_limit(k, n, alpha)
    return True, closer > p and proves_lower(k, n, closer, alpha)


def _check_count(
    quantity: str, count: Callable[[Evidence], int], values: Values, evidence: Evidence, alpha: Fraction
) -> ProofCheck:
    """A lower bound on the probability of what was counted."""
    stored = values[quantity]
    return ProofCheck(_check_lower(quantity, stored, count(evidence), evidence.samples.draws, stored, alpha))


def _check_runner_up(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    # No union over the classes: the count of the class that is truly strongest is at most the largest count.
    draws, stored = evidence.samples.draws, values["p-b"]
    failures = draws - evidence.samples.largest_other(evidence.label)
    return ProofCheck(_check_lower("p-b", stored, failures, draws, 1 - stored, alpha, grain=Fraction(1, 2**50)))


def _check_anytime(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    """Whether the bet against "at most p" has reached 1/α at some look.

    The rejected p form an interval from 0, at every look. So p is a lower limit that holds at all looks at once, and if
    it certifies a radius, all smaller p, which belong to smaller radii, are rejected with it.
    """
    p = values["p-a"]
    if p <= 0 or any(_rejects(hits, trials, p, alpha) for hits, trials in reversed(evidence.looks)):
        return ProofCheck()
    hits, trials = evidence.looks[-1] if evidence.looks else (0, 0)
    return ProofCheck([note("bound-not-proved", quantity="p-a", value=p, count=hits, trials=trials, alpha=alpha)])


def _rejects(hits: int, trials: int, p: Fraction, alpha: Fraction) -> bool:
    return is_proved(lambda: (-ball(alpha).log(), _log_wealth(hits, trials, p)))


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


def _check_pair_region(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    """The stored corner must be one of a staircase around the truth, and the radius must hold at all of its corners.

    P₁ = P(Bin(m, C_S) ≥ S) and, given S, P₂ = P(Bin(m-S, w) ≥ D), w = 2C_N/(1-C_S), are super-uniform, the second also
    given the first. No corner of levels (A_i, B_i) lies below the truth with probability at most A₁ + Σ(A_{i+1}-A_i)B_i
    + (1-A_K)B_K, for A growing and B falling.
    """
    counts, pairs = _count_pairs(evidence), evidence.samples.draws
    levels = _corner_levels(alpha)
    check = ProofCheck()
    if not any(_is_chain(values["both"], values["one-sided"], counts, pairs, a, b) for a, b in levels):
        check.discrepancies.append(_refute(("both", "one-sided"), values, alpha))
    for first, second in levels:
        both, one_sided = _chain(counts, pairs, first, second)
        check.alternatives.append({"both": both, "one-sided": one_sided})
    return check


def _refute(quantities: tuple[str, str], values: Values, alpha: Fraction) -> Finding:
    """Two bounds that belong together are not what the tallies prove."""
    first, second = quantities
    stored = {"first": first, "value": values[first], "second": second, "other": values[second]}
    return Finding("bounds-not-proved", {**stored, "alpha": alpha})


def _count_pairs(evidence: Evidence) -> tuple[int, int]:
    pairs, label = evidence.pairs, evidence.label
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
    return _is_just_below(both, symmetric) and _is_just_below(share, share_limit)


def _is_just_below(value: Fraction, limit: Fraction) -> bool:
    return limit - LOOSE * min(limit, 1 - limit) - _NOTHING <= value <= limit


@functools.lru_cache(maxsize=64)
def _corner_levels(alpha: Fraction) -> tuple[tuple[Fraction, Fraction], ...]:
    """Levels (A_i, B_i) along a quarter of an ellipse, whose staircase is missed with probability at most α."""
    low, high = Fraction(0), Fraction(_FARTHEST_REACH)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if _miss_probability(_levels(middle)) <= alpha else (middle, high)
    levels = _levels(high)
    if _miss_probability(levels) > alpha:
        raise refuse("alpha-too-small", alpha=alpha)
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


def _miss_probability(levels: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
    ends = [first for first, _ in levels[1:]] + [Fraction(1)]
    return levels[0][0] + sum((end - a) * b for (a, b), end in zip(levels, ends, strict=True))


def _check_pairs_of_every_class(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    pairs, label, draws = evidence.pairs, evidence.label, evidence.samples.draws
    share = alpha / (2 * len(pairs.both))
    check = ProofCheck()
    mine = {"both": values["both"], "one-sided": values["one-sided"]}
    if not _is_chain(values["both"], values["one-sided"], _count_pairs(evidence), draws, share, share):
        check.discrepancies.append(_refute(("both", "one-sided"), values, share))
    others = set()
    for c in range(len(pairs.both)):
        one_sided = pairs.first[c] + pairs.second[c]
        if c != label:
            others.add((draws - pairs.both[c] - one_sided, one_sided))
    stored = values["other-neither"], values["other-one-sided"]
    if not any(_is_chain(*stored, counts, draws, share, share) for counts in others):
        check.discrepancies.append(_refute(("other-neither", "other-one-sided"), values, share))
    for counts in sorted(others):
        neither, one_sided_lower = _chain(counts, draws, share, share)
        check.alternatives.append({**mine, "other-neither": neither, "other-one-sided": one_sided_lower})
    return check


def _bound_by_halves(evidence: Evidence, label: int, *, rare: bool, alpha: Fraction) -> arb:
    return halves_norm(evidence.samples, evidence.gradients, label, rare=rare, alpha=alpha, on_grid=evidence.on_grid)


def _check_norm(
    stored: Fraction, needed: arb, sigma: float, alpha: Fraction, *, enough: arb | None = None
) -> list[Finding]:
    """An upper bound on the norm of a gradient: needed is that bound times σ, rounded up.

    enough: the same with all the room for rounding that may be left, if that is more.
    """
    scaled = stored * Fraction(sigma)
    values = {"quantity": "gradient-norm", "value": stored, "alpha": alpha}
    with ctx.workprec(PRECISIONS[1]):
        if not needed <= ball(scaled):
            return [Finding("norm-not-proved", {**values, "needed": float(needed.mid()) / sigma})]
        if ball(scaled) > (needed if enough is None else enough) * ball(1 + _LOOSE_NORM):
            return [Finding("norm-too-loose", values)]
    return []


def _check_gradient_halves(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    needed = _bound_by_halves(evidence, evidence.label, rare=False, alpha=alpha)
    return ProofCheck(_check_norm(values["gradient-norm"], needed, evidence.samples.sigma, alpha))


def _check_gradient_pairs(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    # Of float noise, one unit of room for rounding is needed, and two may be left.
    needed, enough = (
        pair_products_norm(
            evidence.samples, evidence.gradients, evidence.label, alpha=alpha, on_grid=evidence.on_grid, units=units
        )
        for units in (1, 2)
    )
    return ProofCheck(_check_norm(values["gradient-norm"], needed, evidence.samples.sigma, alpha, enough=enough))


def _check_gradients_of_every_class(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    samples, label = evidence.samples, evidence.label
    votes = (*samples.votes, samples.invalid)
    share = alpha / (2 * len(votes))
    mine = {"p-a": values["p-a"], "gradient-norm": values["gradient-norm"]}
    check = ProofCheck(_check_lower("p-a", mine["p-a"], votes[label], samples.draws, mine["p-a"], share))
    needed = _bound_by_halves(evidence, label, rare=False, alpha=share)
    check.discrepancies += _check_norm(mine["gradient-norm"], needed, samples.sigma, share)
    stored = values["other-p"], values["other-gradient-norm"]
    proved_of_one = False
    for c in range(len(votes)):
        if c == label:
            continue
        most = upper_limit(votes[c], samples.draws, share)
        norm = exactly(_bound_by_halves(evidence, c, rare=True, alpha=share).upper()) / Fraction(samples.sigma)
        check.alternatives.append({**mine, "other-p": most, "other-gradient-norm": norm})
        proved_of_one |= _is_just_above(stored[0], most) and _is_just_above(stored[1], norm)
    if not proved_of_one:
        check.discrepancies.append(_refute(("other-p", "other-gradient-norm"), values, share))
    return check


def _is_just_above(value: Fraction, limit: Fraction) -> bool:
    return limit <= value <= limit * (1 + _LOOSE_NORM)


def _check_scores(
    quantity: str,
    holds: Callable[[Samples, Fraction, Fraction, Order], bool],
    values: Values,
    evidence: Evidence,
    alpha: Fraction,
) -> ProofCheck:
    """A bound on the mean of a score of the label, or of the largest other one."""
    samples, stored = evidence.samples, values[quantity]
    assert samples.scores is not None
    if samples.scores.label != evidence.label:
        return ProofCheck([note("scores-of-another-class", label=evidence.label, counted=samples.scores.label)])
    if not holds(samples, stored, alpha, evidence.order):
        return ProofCheck([note("score-bound-not-proved", quantity=quantity, value=stored, alpha=alpha)])
    return ProofCheck()


def _check_every_evaluation(values: Values, evidence: Evidence, alpha: Fraction) -> ProofCheck:
    """The steps are whole numbers and counted, not bounded: they must be exact."""
    samples, stated = evidence.samples, values["steps"]
    if samples.spans != ((0, evidence.evaluations),):
        return ProofCheck([note("not-every-evaluation", spans=samples.spans, evaluations=evidence.evaluations)])
    steps = samples.count_safe_steps(evidence.label)
    return ProofCheck([] if stated == steps else [note("other-steps", value=stated, steps=steps)])


def _bind(
    check: Callable[..., ProofCheck], quantity: str, function: Callable[..., object]
) -> Callable[[Values, Evidence, Fraction], ProofCheck]:
    return functools.partial(check, quantity, function)


PROOFS: Mapping[str, ProofForm] = {
    TOP: ProofForm(("p-a",), _bind(_check_count, "p-a", lambda e: e.samples.votes[e.label])),
    RUNNER_UP: ProofForm(("p-b",), _check_runner_up),
    PAIR_BOTH: ProofForm(("both",), _bind(_check_count, "both", lambda e: e.pairs.both[e.label]), "pairs"),
    PAIR_ONE_SIDED: ProofForm(
        ("one-sided",), _bind(_check_count, "one-sided", lambda e: e.pairs.first[e.label]), "pairs"
    ),
    PAIR_REGION: ProofForm(("both", "one-sided"), _check_pair_region, "pairs"),
    PAIRS_OF_EVERY_CLASS: ProofForm(
        ("both", "one-sided", "other-neither", "other-one-sided"), _check_pairs_of_every_class, "pairs"
    ),
    GRADIENT_HALVES: ProofForm(("gradient-norm",), _check_gradient_halves, "gradients"),
    GRADIENT_PAIRS: ProofForm(("gradient-norm",), _check_gradient_pairs, "gradients"),
    GRADIENTS_OF_EVERY_CLASS: ProofForm(
        ("p-a", "gradient-norm", "other-p", "other-gradient-norm"), _check_gradients_of_every_class, "gradients"
    ),
    SCORE_TOP: ProofForm(("p-a",), _bind(_check_scores, "p-a", lower_by_betting), "scores"),
    SCORE_OTHER: ProofForm(("p-b",), _bind(_check_scores, "p-b", upper_by_betting), "scores"),
    SCORE_TOP_BERNSTEIN: ProofForm(("p-a",), _bind(_check_scores, "p-a", lower_by_bernstein), "scores"),
    SCORE_OTHER_BERNSTEIN: ProofForm(("p-b",), _bind(_check_scores, "p-b", upper_by_bernstein), "scores"),
    TOP_DECIDED: ProofForm(("p-a",), _check_anytime),
    TOP_SEQUENCE: ProofForm(("p-a",), _check_anytime),
    EVERY_EVALUATION: ProofForm(("steps",), _check_every_evaluation, certain=True),
}


def sign_test_holds(first: int, second: int, alpha: Fraction) -> bool:
    """Whether the class with `first` votes beats that with `second` at level α, two-sided, under a fair coin."""
    if first <= second:
        return False
    return is_proved(lambda: (2 * binomial_tail(first, first + second, Fraction(1, 2)), ball(alpha)))


@functools.lru_cache(maxsize=MOST_KEPT)
def noise_price(*, reach: Fraction, levels: int, sigma: Fraction, dimension: int, draws: int) -> Fraction:
    """With at most this probability one of the draws differs from a draw of the exact law on the grid.

    A coordinate of the noise is a whole number found by comparing 64 random bits with thresholds, of which there are at
    most 2⌈reach·s⌉ + 3, s = σ(levels - 1); each is rounded by at most 2^-64. reach: of a table of this noise, in σ.
    """
    thresholds = 2 * math.ceil(reach * sigma * (levels - 1)) + 3
    return Fraction(draws * dimension * thresholds, 2**64)
