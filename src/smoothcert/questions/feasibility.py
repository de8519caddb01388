"""Settings under which no input can get a useful answer are refused before anything is sampled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import assert_never

import numpy as np

from smoothcert.certificates import Certificate, Portfolio
from smoothcert.errors import InputError
from smoothcert.questions.verdicts import judge_tallies
from smoothcert.records import (
    MOST_SAMPLES,
    AnyTally,
    GradientTally,
    IntArray,
    PairTally,
    Proof,
    Quantity,
    ScoreTally,
    Smoothing,
    Stage,
    StreamId,
    Tally,
    TallyKind,
)
from smoothcert.records.score_cells import SCORE_CELLS, score_cell
from smoothcert.spec import Decide, EveryEvaluation, FixedN, Precision, QuestionSpec
from smoothcert.statistics import (
    MOST_BETS,
    check_alpha,
    log_threshold,
    log_wealth_above,
    one_sided_lower,
    sign_test_p_value,
)

_USEFUL_N = 100_000
_SEARCH_LIMIT = 10**6
_VOTES_LIMIT = 10**9
_MOST_BETS_TRIED = 10**4
_BETS = {Proof.SCORE_TOP, Proof.SCORE_OTHER}


def check_question(question: QuestionSpec, portfolio: Portfolio, *, alpha: float, num_classes: int = 2) -> None:
    """Refuse a question that unanimous votes could not answer, and name the smallest n that can.

    num_classes: as far as it is known; some certificates split α over all classes.
    """
    _check_kind(question, portfolio)
    check_samples("n", question.n)
    if isinstance(question, EveryEvaluation):
        return
    check_alpha(alpha)
    check_samples("n0", question.n0)
    match question:
        case FixedN():
            _check_fixed(question.n, portfolio, alpha=alpha, num_classes=num_classes)
        case Decide():
            only_certificate(portfolio)
            check_votes_suffice(0.5, "any radius", n=question.n, alpha=alpha)
        case Precision():
            only_certificate(portfolio)
            _check_precision(question.n, alpha=alpha)
        case _:
            assert_never(question)


def _check_kind(question: QuestionSpec, portfolio: Portfolio) -> None:
    """Certain certificates need every evaluation, and others need samples."""
    for certificate in portfolio.certificates:
        certain = all(proof.certain for proof in certificate.proofs)
        if certain and not isinstance(question, EveryEvaluation):
            raise InputError(f"{certificate.name} takes every evaluation of {certificate.noise}: it cannot be sampled")
        if not certain and isinstance(question, EveryEvaluation):
            raise InputError(f"{certificate.name} is about samples, and nothing is sampled here")


def check_samples(name: str, count: int, *, least: int = 1) -> None:
    if not isinstance(count, int | np.integer) or not least <= count <= MOST_SAMPLES:
        raise InputError(f"{name}={count} is invalid: expected an integer from {least} to {MOST_SAMPLES}")


def only_certificate(portfolio: Portfolio) -> Certificate:
    """The certificate of a portfolio that adaptive sampling supports; an InputError for any other."""
    certificate, *others = portfolio.certificates
    if others:
        raise InputError(
            f"adaptive sampling stops when one certificate has its answer, and {portfolio} names several: name one; "
            "`smoothcert recertify` computes others from the same votes"
        )
    if certificate.needs != (Quantity.TOP_LOWER,) or certificate.proofs != (Proof.TOP,):
        usual = {certificate.noise.usual_certificate(constant_sigma=constant): None for constant in (True, False)}
        raise InputError(
            f"{certificate.name} needs more than a lower bound on the probability of the class, and there is no "
            f"anytime-valid test for that: use {' or '.join(usual)}, or leave --decide and --precision out"
        )
    return certificate


def _check_fixed(n: int, portfolio: Portfolio, *, alpha: float, num_classes: int) -> None:
    if n > MOST_BETS and _BETS & set(portfolio.proofs):
        raise InputError(
            f"n={n} is too many for the betting bound, which takes up to {MOST_BETS} scores; use the -bernstein form "
            "of the certificate"
        )
    paired = portfolio.tally in (TallyKind.PAIRS, TallyKind.GRADIENTS)
    for choice in portfolio.alternatives():
        odd = paired and n % 2 == 1
        if not odd and _unanimous_radius(choice, n, alpha, num_classes) > 0:
            continue
        candidates = range(n + 2 - (n % 2), _SEARCH_LIMIT, 2) if paired else range(n + 1, _SEARCH_LIMIT)
        enough = next((m for m in candidates if _unanimous_radius(choice, m, alpha, num_classes) > 0), None)
        advice = "use a larger alpha" if enough is None else f"use n ≥ {enough}, and {_USEFUL_N} for useful radii"
        if odd:
            advice = advice if enough is None else f"use n={enough}"
            raise InputError(f"n={n} is odd, and {portfolio} takes its samples in pairs; {advice}")
        raise InputError(f"n={n} at alpha={alpha:g} can never certify: {_explain_too_few(choice, n, alpha)}; {advice}")


def _explain_too_few(choice: Portfolio, n: int, alpha: float) -> str:
    if choice.tally is TallyKind.VOTES:
        return f"{n} votes of {n} prove only p > {(alpha / len(choice.proofs)) ** (1 / n):.3f}"
    if choice.tally is TallyKind.SCORES:
        return f"even a score of 1 in all {n} samples proves too little for {choice}"
    return f"even {n} votes of {n} prove too little for {choice}"


def _unanimous_radius(choice: Portfolio, n: int, alpha: float, num_classes: int) -> float:
    """The radius, at σ = 1, when every sample votes for the same class."""
    # The same question is checked by every call; a user's own certificate may have no hash.
    compute = _remember_radius if all(isinstance(one, Hashable) for one in choice.certificates) else _compute_radius
    return compute(choice, n, alpha, num_classes)


def _compute_radius(choice: Portfolio, n: int, alpha: float, num_classes: int) -> float:
    constant = Smoothing(dimension=1, num_classes=num_classes)
    if choice.tally is TallyKind.SCORES:
        # The bound grows with n, and many bets take time to play: a few show whether the game can be won.
        n = min(n, _MOST_BETS_TRIED)
    tally = _make_unanimous_tally(choice.tally, n, num_classes)
    (verdicts,) = judge_tallies([tally], [0], choice, alpha=alpha, smoothing=constant)
    return verdicts[0].radius


_remember_radius = functools.lru_cache(maxsize=256)(_compute_radius)


def _make_unanimous_tally(kind: TallyKind, n: int, num_classes: int) -> AnyTally:
    stream = StreamId(0, 0, Stage.ESTIMATION)
    nothing: IntArray = np.zeros(num_classes + 1, dtype=np.int64)
    votes: IntArray = np.append(n, nothing[1:])
    match kind:
        case TallyKind.PAIRS:
            half = ((0, n // 2),)
            return PairTally(stream, 1.0, both=votes // 2, first_only=nothing, second_only=nothing, ranges=half)
        case TallyKind.VOTES:
            return Tally(stream, sigma=1.0, counts=votes[:-1], invalid=0, ranges=((0, n),))
        case TallyKind.SCORES:
            certain: IntArray = SCORE_CELLS * np.arange(2) + score_cell(np.array([1.0, 0.0]))
            return ScoreTally(
                stream,
                sigma=1.0,
                counts=votes[:-1],
                invalid=0,
                label=0,
                cells=certain,
                hits=np.full(2, n),
                ranges=((0, n),),
            )
        case TallyKind.GRADIENTS:
            return GradientTally(
                stream,
                sigma=1.0,
                counts=votes[:-1],
                invalid=0,
                group=np.arange(num_classes + 1),
                sums=np.zeros((2, num_classes + 1, 1), dtype=np.int64),
                products=nothing,
                ranges=((0, n),),
            )
        case _:
            assert_never(kind)


def check_votes_suffice(p0: float, what: str, *, n: int, alpha: float) -> None:
    """Refuse an n at which even unanimous votes do not prove p > p0 by the betting test. what: it is needed for."""
    threshold = float(log_threshold(alpha))

    def proves(m: int) -> bool:
        return float(log_wealth_above(m, m, p0=p0)) >= threshold

    if not proves(n):
        raise InputError(
            f"n={n} at alpha={alpha:g} can never decide {what}: it takes p > {p0:.6g}, and even {n} votes of {n} do "
            f"not prove that; use n ≥ {_find_fewest(proves, n)}"
        )


def _check_precision(n: int, *, alpha: float) -> None:
    def proves(m: int) -> bool:
        return float(one_sided_lower(m, m, alpha=alpha)) > 0.5

    if not proves(n):
        raise InputError(
            f"n={n} at alpha={alpha:g} can never certify: even {n} votes of {n} do not prove p > 0.5 at all times at "
            f"once; use n ≥ {_find_fewest(proves, n)}"
        )


def _find_fewest(proves: Callable[[int], bool], n: int) -> int:
    """The smallest number of unanimous votes above n that is enough; more votes always prove more."""
    low, high = n, 2 * n
    while not proves(high) and high < _VOTES_LIMIT:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def check_predict_is_possible(*, n: int, alpha: float) -> None:
    """Refuse an n at which even unanimous votes are not significant, and name the smallest n that is."""
    check_alpha(alpha)
    check_samples("n", n)
    if float(sign_test_p_value(n, 0)) <= alpha:
        return
    smallest = next(m for m in range(1, _SEARCH_LIMIT) if float(sign_test_p_value(m, 0)) <= alpha)
    raise InputError(
        f"n={n} at alpha={alpha:g} can never predict: even {n} votes of {n} are not significant; use n ≥ {smallest}"
    )
