"""Every proof of the checker: against closed forms, exact rational numbers, and games played by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("flint")

from flint import arb

from smoothcert_verify import proof_checks as catalogue
from smoothcert_verify.findings import Finding
from smoothcert_verify.gradients import halves_norm, pair_products_norm
from smoothcert_verify.proof_checks import (
    Evidence,
    _corner_levels,
    _log_wealth,
    _miss_probability,
    check_proof,
    noise_price,
    proves_lower,
    sign_test_holds,
)
from smoothcert_verify.samples import SCORE_CELLS, NoiseSums, PairCounts, Samples, ScoreCells
from smoothcert_verify.score_checks import Order, cell_ends, lower_by_betting, upper_by_betting

ALPHA = Fraction(1, 1000)
ORDER = Order(seed=3, index=0)


def votes(*counts: int, invalid: int = 0) -> Samples:
    return Samples("ESTIMATION", "votes", 0.25, ((0, sum(counts) + invalid),), counts, invalid)


def evidence(samples: Samples, *looks: tuple[int, int], label: int = 0) -> Evidence:
    return Evidence(samples, label, looks, ORDER)


def complaints(
    proof: str, values: dict[str, float | Fraction], proofs: Evidence, alpha: Fraction = ALPHA
) -> list[Finding]:
    return check_proof(proof, {q: Fraction(v) for q, v in values.items()}, proofs, alpha=alpha).discrepancies


def test_votes_prove_the_published_bound_and_nothing_more() -> None:
    all_of_them = evidence(votes(100_000, 0))
    exact = 0.001 ** (1 / 100_000)
    assert complaints(catalogue.TOP, {"p-a": exact - 1e-15}, all_of_them) == []
    (more,) = complaints(catalogue.TOP, {"p-a": exact + 1e-13}, all_of_them)
    assert more.code == "bound-not-proved"
    (less,) = complaints(catalogue.TOP, {"p-a": exact - 1e-9}, all_of_them)
    assert less.code == "bound-too-loose"
    assert complaints(catalogue.TOP, {"p-a": 0}, evidence(votes(0, 50))) == []


def test_the_runner_up_is_the_largest_of_all_others_and_may_be_no_answer() -> None:
    """u with P(Bin(10, u) ≤ 5) = α bounds 5 of 10, whether they are a class or invalid answers, and no more."""
    u = Fraction(19, 20)
    tail = sum(math.comb(10, k) * u**k * (1 - u) ** (10 - k) for k in range(6))
    alpha = tail * (1 + Fraction(1, 10**20))
    for five in (votes(1, 4, 0, invalid=5), votes(1, 5, 3, 1)):
        assert complaints(catalogue.RUNNER_UP, {"p-b": u}, evidence(five), alpha) == []
        (more,) = complaints(catalogue.RUNNER_UP, {"p-b": u}, evidence(five), tail * Fraction(99, 100))
        (less,) = complaints(catalogue.RUNNER_UP, {"p-b": u}, evidence(five), tail * 2)
        assert (more.code, less.code) == ("bound-not-proved", "bound-too-loose")
    (found,) = complaints(catalogue.RUNNER_UP, {"p-b": u}, evidence(votes(1, 3, 0, invalid=6)), alpha)
    assert found.code == "bound-not-proved"


def test_a_proof_needs_the_samples_it_is_about() -> None:
    (found,) = complaints(catalogue.PAIR_BOTH, {"both": 0.1}, evidence(votes(10, 0)))
    assert (found.code, found.values["needed"]) == ("wrong-kind-of-samples", "pairs")


def test_the_levels_of_the_joint_region_spend_alpha_and_no_more() -> None:
    for alpha in (ALPHA, Fraction(1, 3), Fraction(1, 10**60)):
        missed = _miss_probability(_corner_levels(alpha))
        assert alpha * (1 - Fraction(1, 10**12)) < missed <= alpha


def test_published_pairs() -> None:
    """σ = .25, n = 100000, α = .001: 44963 both and 2521 one-sided give C_S = 0.89476036, C_N = 0.04725806."""
    rest = 50_000 - 44_963 - 2_521
    counted = PairCounts((44_963, 0, 0), (2_521, rest, 0), (rest, 2_521, 0))
    samples = Samples("ESTIMATION", "pairs", 0.25, ((0, 50_000),), (47_484, rest), 0, pairs=counted)
    half = ALPHA / 2
    for proof, name, value in (
        (catalogue.PAIR_BOTH, "both", 0.89476036),
        (catalogue.PAIR_ONE_SIDED, "one-sided", 0.04725806),
    ):
        assert complaints(proof, {name: value - 6e-9}, evidence(samples), half) == []
        assert complaints(proof, {name: value + 6e-9}, evidence(samples), half) != []


def test_a_wealth_that_can_be_computed_by_hand() -> None:
    """After one hit the wealth against p is the mean of q/p over the arcsine law above p."""
    p = Fraction(1, 2)
    # ∫ q dq/(π√(q(1-q))) from ½ to 1 is ½ · ½ + 1/(2π); the share of the law above ½ is ½.
    wealth = (arb(1) / 4 + 1 / (2 * arb.pi())) * 2 / (arb(1) / 2)
    assert abs(float((_log_wealth(1, 1, p) - wealth.log()).mid())) < 1e-14


def test_a_bet_that_was_won_once_stays_won() -> None:
    won, lost = (990, 1000), (991, 2000)
    # Whether the votes went bad afterwards does not matter …
    assert complaints(catalogue.TOP_SEQUENCE, {"p-a": 0.95}, evidence(votes(991, 1009), won, lost)) == []
    # … but without that look nothing was won.
    assert complaints(catalogue.TOP_SEQUENCE, {"p-a": 0.95}, evidence(votes(991, 1009), lost)) != []
    assert complaints(catalogue.TOP_DECIDED, {"p-a": 0.99}, evidence(votes(991, 1009), won, lost)) != []


def test_looking_costs_something() -> None:
    """A Clopper–Pearson bound on the same votes is larger than what holds at all looks at once."""
    samples = evidence(votes(950, 50), (950, 1000))
    bound = Fraction(0.925)
    assert proves_lower(950, 1000, bound, ALPHA)
    assert complaints(catalogue.TOP_SEQUENCE, {"p-a": bound}, samples) != []
    assert complaints(catalogue.TOP_SEQUENCE, {"p-a": Fraction(0.91)}, samples) == []


def test_the_sign_test_is_exact() -> None:
    """10 against 0: twice 2^-10."""
    assert sign_test_holds(10, 0, Fraction(2, 2**10) + Fraction(1, 10**30))
    assert not sign_test_holds(10, 0, Fraction(2, 2**10) - Fraction(1, 10**30))
    assert not sign_test_holds(5, 5, Fraction(49, 100))


def test_the_price_of_noise_tables() -> None:
    """σ = .25 on 256 levels: s = 63.75, 2·587 + 3 thresholds."""
    price = noise_price(reach=Fraction(92, 10), levels=256, sigma=Fraction(1, 4), dimension=784, draws=100_000)
    assert price == Fraction(100_000 * 784 * 1177, 2**64)


def scored(own: dict[int, int], other: dict[int, int], *, invalid: int = 0) -> Samples:
    histograms = []
    for cells in (own, other):
        dense = np.zeros(SCORE_CELLS, dtype=np.int64)
        for cell, hits in cells.items():
            dense[cell] = hits
        histograms.append(dense)
    n = sum(own.values())
    scores = ScoreCells(0, *histograms)
    return Samples("ESTIMATION", "scores", 0.25, ((0, n + invalid),), (n, 0), invalid, scores=scores)


def capital_of_ones(n: int, m: Fraction) -> Fraction:
    """What betting against the mean m makes of 1 on n scores of 1: Π (1 + min(λ_t, ¾/m)(1-m)), in exact numbers."""
    capital, total, squares = Fraction(1), Fraction(1, 2), Fraction(1, 4)
    for t in range(1, n + 1):
        stake = Fraction(math.sqrt(2 * math.log(1000) / (n * float(squares / t))))
        capital *= 1 + min(stake, Fraction(3, 4) / m) * (1 - m)
        total += 1
        squares += (1 - total / (t + 1)) ** 2
    return capital


def test_a_game_that_was_played_in_exact_numbers() -> None:
    n, low, high = 40, Fraction(1, 100), Fraction(99, 100)
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if capital_of_ones(n, middle) >= 1000 else (low, middle)
    samples = scored({SCORE_CELLS - 1: n}, {0: n})
    # A lower bound on the mean is stored a slack of 1e-12 below it.
    assert lower_by_betting(samples, low - Fraction(2, 10**12), alpha=ALPHA, order=ORDER)
    assert not lower_by_betting(samples, high, alpha=ALPHA, order=ORDER)
    assert upper_by_betting(samples, 1 - low + Fraction(1, 10**12), alpha=ALPHA, order=ORDER)
    assert not upper_by_betting(samples, 1 - high - Fraction(1, 10**12), alpha=ALPHA, order=ORDER)


def test_invalid_answers_count_against_the_class() -> None:
    own, other = {SCORE_CELLS - 1: 900}, {0: 900}
    bound = Fraction(97, 100)
    assert lower_by_betting(scored(own, other), bound, alpha=ALPHA, order=ORDER)
    assert not lower_by_betting(scored(own, other, invalid=100), bound, alpha=ALPHA, order=ORDER)


def test_cells_enclose_their_scores() -> None:
    below, above = cell_ends()
    assert (below <= above).all()
    assert (below[0], above[0], below[-1], above[-1]) == (0.0, 0.0, 1.0, 1.0)
    middle = 1 + 2**13
    assert below[middle] == pytest.approx(0.5, abs=1e-14)
    assert below[middle] < 0.5 < above[middle]
    # Neighbours overlap by no more than rounding errors.
    assert (below[2:-1] <= above[1:-2]).all()
    assert np.allclose(below[2:-1], above[1:-2], rtol=1e-14, atol=0.0)


def test_bernstein_in_closed_form() -> None:
    """n scores of 1: the variance is 0, and the bound 1 - 7 ln(2/α)/(3(n-1))."""
    n = 10_000
    samples = evidence(scored({SCORE_CELLS - 1: n}, {0: n}))
    bound = 1 - 7 * math.log(2000) / (3 * (n - 1))
    assert complaints(catalogue.SCORE_TOP_BERNSTEIN, {"p-a": bound - 2e-12}, samples) == []
    assert complaints(catalogue.SCORE_TOP_BERNSTEIN, {"p-a": bound + 1e-12}, samples) != []
    assert complaints(catalogue.SCORE_OTHER_BERNSTEIN, {"p-b": 1 - bound + 2e-12}, samples) == []
    assert complaints(catalogue.SCORE_OTHER_BERNSTEIN, {"p-b": 1 - bound - 1e-12}, samples) != []


def test_scores_of_another_class_prove_nothing() -> None:
    (found,) = complaints(catalogue.SCORE_TOP_BERNSTEIN, {"p-a": 0.1}, evidence(scored({5: 900}, {0: 900}), label=1))
    assert (found.code, found.values["label"]) == ("scores-of-another-class", 1)


def gradients(n: int, *, first: int, second: int, product: int) -> tuple[Samples, NoiseSums]:
    """Votes for class 0 only, and sums of noise with one coordinate."""
    sums = np.array([[[first], [0]], [[second], [0]]], dtype=np.int64)
    counted = NoiseSums((0, 1, 1), sums, (product, 0))
    return Samples("ESTIMATION", "gradients", 1.0, ((0, n),), (n, 0), 0, gradients=counted), counted


def test_products_of_pairs_in_closed_form() -> None:
    """√(mean + 2^-20 + 4 √(L/k)), and 4√2 L/k in place of the last where there are few pairs."""
    n, log_term = 2000, math.log(1000)
    samples, counted = gradients(n, first=0, second=0, product=300 * 2**20)
    bound = math.sqrt(0.3 + 2.0**-20 + 4 * math.sqrt(log_term / 1000))
    assert float(pair_products_norm(samples, counted, 0, alpha=ALPHA).mid()) == pytest.approx(bound, rel=1e-14)
    samples, counted = gradients(4, first=0, second=0, product=0)
    few = math.sqrt(2.0**-20 + 4 * math.sqrt(2) * log_term / 2)
    assert float(pair_products_norm(samples, counted, 0, alpha=ALPHA).mid()) == pytest.approx(few, rel=1e-14)


def test_means_of_halves_shrink_to_the_truth() -> None:
    """A half-space has ‖μ‖ = φ(0). What is added to it becomes 10 times smaller with 100 times the samples."""
    truth = 1 / math.sqrt(2 * math.pi)
    gaps = []
    for n in (10_000, 1_000_000):
        side = round(truth * n / 2 * 2**20)
        sums = np.array([[[side], [-side]]] * 2, dtype=np.int64)
        counted = NoiseSums((0, 1, 1), sums, (0, 0))
        samples = Samples("ESTIMATION", "gradients", 1.0, ((0, n),), (n // 2, n - n // 2), 0, gradients=counted)
        gaps.append(float(halves_norm(samples, counted, 0, rare=False, alpha=ALPHA).mid()) - truth)
    assert 0.02 < gaps[0] < 0.1
    assert gaps[0] / gaps[1] == pytest.approx(10.0, rel=0.02)


def test_a_class_that_nothing_speaks_against_has_hardly_a_gradient() -> None:
    samples, counted = gradients(10_000, first=0, second=0, product=0)
    plain = halves_norm(samples, counted, 0, rare=False, alpha=ALPHA)
    assert 0 < float(plain.mid()) < 0.02
    # Noise from tables is given more room.
    assert halves_norm(samples, counted, 0, rare=False, alpha=ALPHA, on_grid=True) > plain


def test_products_of_float_noise_leave_one_unit_of_room_or_two() -> None:
    """So many pairs that a unit is more than what a bound may be looser by."""
    samples, counted = gradients(4 * 10**8, first=0, second=0, product=0)
    bound = [pair_products_norm(samples, counted, 0, alpha=ALPHA, units=units) for units in (1, 2, 4)]
    one, two, four = (Fraction(float(value.upper())) * (1 + Fraction(1, 10**12)) for value in bound)
    assert two > one * (1 + Fraction(1, 10**4))

    def found(norm: Fraction) -> list[str]:
        values = {"gradient-norm": norm}
        return check_proof(catalogue.GRADIENT_PAIRS, values, evidence(samples), alpha=ALPHA).discrepancies

    assert found(one) == found(two) == []
    assert found(four)
    assert found(one * (1 - Fraction(1, 10**9)))
