"""Upper bounds on the norm of the gradient of P(f(x+ε) = c), from votes and the noise they were cast at.

In standard deviations, ε = σz, the gradient is ∇P = μ/σ with μ = E[z 1[f(x+σz) = c]] (Stein). Only its norm is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from smoothcert.records import FloatArray, GradientTally, IntArray
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.statistics.binomial import clopper_pearson_lower, clopper_pearson_upper
from smoothcert.statistics.budget import equal_share

_RELATIVE_ERROR = 1e-12
"""More than the rounding error of a few float64 operations."""

_CHUNK = 1 << 20
"""Coordinates of mean vectors worked on at once."""
_RATES = np.linspace(0.3, 1.0, 15)
_CANCELLED = 2e-15
"""More than the rounding error of the differences below, which matters only beyond 10^9 samples."""

_HALF_A_UNIT = 0.501 * GRADIENT_UNIT
"""The most that rounding to whole units changes a coordinate of z, with room for a table of E[z | cell] in float64."""

# Shares of α in `halves_norm_upper`: two events with signs; two events and one bound with the rare side.
_SIGNS_SHARE, _EVENT_SHARE, _RARE_SHARE = 0.25, 0.2, 0.1


def gradient_from_pairs(tallies: Sequence[GradientTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Upper bounds on ‖∇P(label)‖₂ by the products of independent pairs (Levine et al. 2021, Theorem 2). Returns (m,).

    Each is wrong with probability at most α. V = z·z' 1[both votes are the label] has mean ‖μ‖². Over k pairs
    its average falls short of that by at most `pair_product_margin`. The error shrinks with sqrt(d/k), so the number
    of samples needed grows like the dimension d. Rounded up.
    """
    bounds = []
    for tally, label in zip(tallies, labels, strict=True):
        pairs = tally.n // 2
        mean = float(tally.products[tally.own_group(label)]) * GRADIENT_UNIT / pairs
        # The products were rounded to multiples of the unit; a table of E[z | cell] has less than another one of room.
        largest = mean + 2.0 * GRADIENT_UNIT + pair_product_margin(tally.dimension, pairs, alpha=alpha)
        bounds.append(math.sqrt(max(largest, 0.0)) / tally.sigma * (1.0 + _RELATIVE_ERROR))
    return np.array(bounds)


def pair_product_margin(dimension: int, pairs: int, *, alpha: float) -> float:
    """t with P(mean of V over the pairs ≤ E[V] - t) ≤ α, for σ = 1 (Levine et al. 2021, Theorem 2).

    V - E[V] is sub-exponential with parameters (sqrt(8 d), sqrt(8)); Bernstein's inequality gives t = 4 sqrt(d L/k)
    if 2 L ≤ d k and 4 sqrt(2) L/k otherwise, L = ln(1/α).
    """
    log_term = math.log(1.0 / alpha)
    if 2.0 * log_term <= dimension * pairs:
        return 4.0 * math.sqrt(dimension * log_term / pairs)
    return 4.0 * math.sqrt(2.0) * log_term / pairs


def gradient_from_halves(tallies: Sequence[GradientTally], labels: Sequence[int], alpha: float) -> FloatArray:
    """Upper bounds on ‖∇P(label)‖₂ by the scalar product of the means of two independent halves. Returns (m,).

    Each is wrong with probability at most α. The error in ‖μ‖² is about sqrt(d)/k, so the number of samples needed
    grows like sqrt(d). See `halves_norm_upper` for the statement and its proof. Rounded up.
    """
    return _halves_upper(tallies, _all_sums(tallies), labels, rare=False, alpha=alpha)


def gradients_of_every_class(
    tallies: Sequence[GradientTally], labels: Sequence[int], alpha: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Probability and gradient norm of the label, and of every other class; all hold at once but for α.

    Returns a lower bound on P(label) and an upper bound on its gradient norm, (m,) each, and upper bounds on P(c) and
    on its gradient norm, (num_classes, m) each: one row for every class but the label, and one for samples without a
    finite answer. α is split evenly over all of them.
    """
    classes = tallies[0].num_classes + 1
    share = equal_share(alpha, 2 * classes)
    votes = [np.append(tally.counts, tally.invalid) for tally in tallies]
    n = [tally.n for tally in tallies]
    top = clopper_pearson_lower([v[c] for v, c in zip(votes, labels, strict=True)], n, alpha=share)
    others = [[c for c in range(classes) if c != label] for label in labels]
    other_votes = np.array([v[rest] for v, rest in zip(votes, others, strict=True)]).T
    totals = _all_sums(tallies)
    other_gradient = [_halves_upper(tallies, totals, row, rare=True, alpha=share) for row in zip(*others, strict=True)]
    return (
        top,
        _halves_upper(tallies, totals, labels, rare=False, alpha=share),
        clopper_pearson_upper(other_votes, n, alpha=share),
        np.array(other_gradient),
    )


def _all_sums(tallies: Sequence[GradientTally]) -> list[IntArray]:
    """For each tally the sums of z over all samples of either half, (2, dimension)."""
    return [tally.sums.sum(axis=1) for tally in tallies]


def _halves_upper(
    tallies: Sequence[GradientTally], totals: Sequence[IntArray], classes: Sequence[int], *, rare: bool, alpha: float
) -> FloatArray:
    """`halves_norm_upper` for one class of each tally, in units of 1/length. Returns (m,).

    rare: the class itself is the rare side, not its complement.
    """
    chosen = list(zip(tallies, totals, classes, strict=True))
    at_once = max(1, _CHUNK // tallies[0].dimension)
    parts = [chosen[at : at + at_once] for at in range(0, len(chosen), at_once)]
    return np.concatenate([_halves_upper_of_some(part, rare=rare, alpha=alpha) for part in parts])


def _halves_upper_of_some(
    chosen: Sequence[tuple[GradientTally, IntArray, int]], *, rare: bool, alpha: float
) -> FloatArray:
    """`_halves_upper` for some (tally, sums over all classes, class) that fit into the cache together."""
    votes = np.array([tally.invalid if c == tally.num_classes else tally.counts[c] for tally, _, c in chosen])
    n = np.array([tally.n for tally, *_ in chosen])
    most = rare_probability_upper(votes if rare else n - votes, n // 2, alpha=alpha)
    inside = np.array([tally.sums[:, tally.own_group(c)] for tally, _, c in chosen])
    outside = np.array([total for _, total, _ in chosen]) - inside
    few, many = (inside, outside) if rare else (outside, inside)
    unit = (GRADIENT_UNIT / (n // 2))[:, None, None]
    norms = halves_norm_upper(few * unit, many * unit, margins=margins_of_halves(n // 2, most, alpha=alpha))
    return np.asarray(norms / np.array([tally.sigma for tally, *_ in chosen]))


def rare_probability_upper(rare_votes: ArrayLike, half: ArrayLike, *, alpha: float) -> FloatArray:
    """The bound q on the probability of the rare event; its price is part of the α of `halves_norm_upper`."""
    return clopper_pearson_upper(rare_votes, 2 * np.asarray(half), alpha=_RARE_SHARE * alpha)


def halves_norm_upper(rare: FloatArray, common: FloatArray, *, margins: FloatArray) -> FloatArray:
    """Upper bound on ‖μ‖, μ = E[z 1_A(z)], for an event A and z standard normal in d dimensions, at level α.

    On a grid, A is a union of cells of z, and E[z | cell] replaces z. The bound stays valid: every function whose mean
    is bounded below is convex in z, and A does not cut a cell (Jensen).

    rare, common: (…, 2, d). From each of two independent halves of k = `half` samples, (1/k) Σ z over the samples in A,
    and over the samples not in A; which of the two is called rare is fixed in advance. E[z] = 0, so the two have
    opposite means. margins: (2, …), the τ of signs and rare below, by `margins_of_halves` for k, α and the bound of
    `rare_probability_upper` from the same samples. Coordinates of z may have been rounded to multiples of
    GRADIENT_UNIT. Rounded up.

    **One direction.** Let X = s z with s = s(z), |s| ≤ 1, E X = ±μ, and u a unit vector that does not depend on the
    samples; g = z·u is standard normal, W = X·u = s g. For λ > 0 put k(y) = e^{-y} - 1 + y ≥ 0. Then E e^{-λW} =
    1 - λ E W + E k(λW), and log(1+x) ≤ x gives log E e^{-λ(W - E W)} ≤ E k(λW) ≤ D(λ). By Chernoff's bound the mean
    of k copies of W is below E W - τ* with probability at most η, τ* = inf over λ of (D(λ) + ln(1/η)/k)/λ. Any λ, also
    one that depends on the samples, gives a τ ≥ τ*. Two choices of s:

    - *signs*, s = ½ on A and -½ off A: k(λW) ≤ e^{λ|g|/2} - 1 - λ|g|/2, so D(λ) = 2 e^{λ²/8} Φ(λ/2) - 1 - λ/sqrt(2π).
    - *rare*, s = 1 on an event N with P(N) ≤ q, 0 elsewhere. With ℓ(g) = e^{λg} - 1 - λg (or its mirror image, which
      has the same law), E[ℓ 1_N] ≤ κ q + E(ℓ-κ)₊ for every κ ≥ 0. Take κ = ℓ(a), a = Φ⁻¹(1-q/2). Above a, ℓ > κ; on
      the other side ℓ(-t) ≤ ℓ(t), so (ℓ(-t) - κ)₊ is 0 for t ≤ a and at most ℓ(-t) - ℓ(-a) for t > a. Integrating,
      D(λ) = e^{λ²/2} (Φ(λ-a) + Φ(-λ-a)) - q + q (sinh(λa) - λa).

    **Two halves.** Let X̄, Ȳ be the means of X in the halves. Given the second half, ν = Ȳ is a fixed vector, and with
    u = ν/‖ν‖: X̄·ν ≥ μ·ν - τ‖ν‖. With u = μ/‖μ‖: Ȳ·μ ≥ ‖μ‖² - τ‖μ‖. Together ‖μ‖² - τ‖μ‖ ≤ X̄·Ȳ + τ‖Ȳ‖ =: B, so
    ‖μ‖ ≤ (τ + sqrt(τ² + 4B))/2. Here ‖Ȳ‖² is about ‖μ‖² + d E[s²]/k, which makes the error of B about sqrt(d)/k.

    **The price.** Either choice of s has α/2; the smaller bound is taken. Signs: α/4 for each of the two events. Rare:
    α/10 for an upper bound q on the probability of the rare event, α/5 for each event. D(λ) at such a q is at least the
    supremum of E[ℓ 1_N] over the events of the true probability, so τ is at least the τ* of the truth. Rounding z moves
    either mean by at most sqrt(d)·GRADIENT_UNIT/2, which is added to τ.
    """
    rounding = _HALF_A_UNIT * math.sqrt(rare.shape[-1])
    by_signs = _two_halves(0.5 * (rare - common), margins[0] + rounding)
    by_rare = _two_halves(rare, margins[1] + rounding)
    return np.minimum(by_signs, by_rare)


def margins_of_halves(half: ArrayLike, rare_upper: ArrayLike, *, alpha: float) -> FloatArray:
    """τ of signs and of rare for halves of k samples (see `halves_norm_upper`), with their shares of α.

    half: k, rare_upper: the bound q; shapes broadcast to (m,). Returns (2, m). Rounded up.
    """
    samples, q = np.broadcast_arrays(np.asarray(half, dtype=np.float64), np.asarray(rare_upper, dtype=np.float64))
    signs = _signs_margin(samples, alpha=_SIGNS_SHARE * alpha)
    return np.array([signs, _rare_margin(samples, q, alpha=_EVENT_SHARE * alpha)])


def _two_halves(means: FloatArray, margin: FloatArray) -> FloatArray:
    """‖μ‖ from ‖μ‖² - τ‖μ‖ ≤ X̄·Ȳ + τ‖Ȳ‖. Shapes: (…, 2, d), (…) → (…)."""
    first, second = means[..., 0, :], means[..., 1, :]
    length = np.sqrt(_dot(second, second))
    # A scalar product of d terms is wrong by at most about d/2^53 of the product of the lengths.
    rounding = (means.shape[-1] + 8) * 2.0**-53 * np.sqrt(_dot(first, first)) * length
    largest = _dot(first, second) + margin * length + rounding + _RELATIVE_ERROR * margin * (margin + length)
    root = np.sqrt(np.maximum(margin * margin + 4.0 * largest, 0.0))
    return np.asarray(0.5 * (margin + root) * (1.0 + _RELATIVE_ERROR))


def _dot(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray((a * b).sum(axis=-1))


def _signs_margin(samples: FloatArray, *, alpha: float) -> FloatArray:
    """τ for s = ±½, with the λ that is best for small λ. Shapes: (m,) → (m,)."""
    log_term = math.log(1.0 / alpha) / samples
    rate = np.sqrt(8.0 * log_term)
    exponent = 2.0 * np.exp(rate**2 / 8.0) * special.ndtr(0.5 * rate) - 1.0 - rate / math.sqrt(2.0 * math.pi)
    return np.asarray((exponent + _CANCELLED + log_term) / rate * (1.0 + _RELATIVE_ERROR))


def _rare_margin(samples: FloatArray, q: FloatArray, *, alpha: float) -> FloatArray:
    """τ for s = 1 on an event of probability at most q: the best of a few λ below the one that is best for small λ.

    Shapes: (m,), (m,) → (m,).
    """
    samples, q = samples[..., None], q[..., None]
    log_term = math.log(1.0 / alpha) / samples
    a = -special.ndtri(0.5 * q)
    variance = q + 2.0 * a * np.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
    rate = np.sqrt(2.0 * log_term / variance) * _RATES
    with np.errstate(over="ignore"):
        tails = special.ndtr(rate - a) + special.ndtr(-rate - a)
        exponent = np.exp(0.5 * rate**2) * tails - q + q * (np.sinh(rate * a) - rate * a)
        best = np.min((exponent + _CANCELLED + log_term) / rate, axis=-1)
    return np.asarray(best * (1.0 + _RELATIVE_ERROR))
