"""Tallies → bounds → certificate → CertifiedPoint: the part of the way that needs no model.

`smoothed` walks it after sampling, `recertify` walks it again from stored tallies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.certificates import Certificate, Portfolio
from smoothcert.certificates.portfolio import is_soft
from smoothcert.errors import InputError
from smoothcert.records import (
    MOST_SAMPLES,
    AnyTally,
    Bound,
    Bounds,
    CertifiedPoint,
    ConstantSigma,
    Envelope,
    FloatArray,
    GradientTally,
    IntArray,
    Noise,
    Norm,
    Outcome,
    PairTally,
    Proof,
    Quantity,
    ScoreTally,
    Smoothing,
    Stage,
    StreamId,
    Tally,
    TallyKind,
    Verdict,
    Widened,
    merge,
)
from smoothcert.records.tallies import SCORE_CELLS, score_cell
from smoothcert.statistics import (
    MOST_BETS,
    Proven,
    alpha_after_noise,
    check_alpha,
    first_samples,
    mean_score,
    plurality,
    price_of,
    prove,
    sign_test_p_value,
    significant_plurality,
    split_alpha,
)

SIGMA_SLACK = 2.0**-22
"""Relative room in every envelope for the error with which σ is computed and carried by float32 noise.

A rule is right to 1e-11; noise in float32 has its level to about 3e-8. The room costs about √N times as much of a
standard deviation: 5e-6 σ in MNIST's dimension, 7e-5 σ in ImageNet's.
"""

FLOAT32_ROUNDING = 2.0**-25
"""What rounding to float32 moves a number of [0, 1] by at most."""

_USEFUL_N = 100_000
_SEARCH_LIMIT = 10**6
_MOST_BETS_TRIED = 10**4
_BETS = {Proof.SCORE_TOP, Proof.SCORE_OTHER}


@dataclass(frozen=True, slots=True)
class Votes:
    """What was sampled for one input: the votes that chose the class, and the tallies that prove, in segments."""

    index: int
    label: int | None
    selection: Tally
    estimation: tuple[AnyTally, ...]
    seconds: float


def certify_votes(
    votes: Sequence[Votes], portfolio: Portfolio, *, alpha: float, smoothing: Smoothing
) -> list[CertifiedPoint]:
    """CERTIFY (Cohen et al. 2019, C.2) for any certificates over one kind of tally, vectorised over the inputs.

    The class comes from the selection votes alone; every bound comes from the estimation samples alone, at a total
    error probability of α per input and choice: for each certificate alone, or for the best of them.

    smoothing: what the theorems must know of the smoothed classifier. A constant σ is believed only if all votes have
    the same.
    """
    portfolio.check_suits(smoothing)
    check_levels(votes, smoothing)
    totals = [merge(item.estimation) for item in votes]
    chosen = [plurality(item.selection) for item in votes]
    usable = [i for i, label in enumerate(chosen) if label is not None]
    labels = [label for label in chosen if label is not None]
    judged: dict[int, list[Verdict]] = {i: [] for i in usable}
    for choice in portfolio.alternatives():
        verdicts = _judge([totals[i] for i in usable], labels, choice, alpha=alpha, smoothing=smoothing)
        for i, found in zip(usable, verdicts, strict=True):
            judged[i].extend(found)
    return [
        _point(
            item,
            total,
            judged.get(i) or [failed_verdict(item.selection, one) for one in portfolio.certificates],
            grid=smoothing.grid,
        )
        for i, (item, total) in enumerate(zip(votes, totals, strict=True))
    ]


def check_levels(votes: Sequence[Votes], smoothing: Smoothing) -> None:
    """Refuse votes of several noise levels that are said to be of one."""
    levels = {item.selection.sigma for item in votes}
    if len(levels) > 1 and not smoothing.varying and not smoothing.remembered:
        raise InputError(
            f"these votes were drawn with sigma from {min(levels):g} to {max(levels):g}, so it is not constant: say by "
            "what envelope it varies"
        )


def smoothing_of(
    envelope: Envelope | None,
    *,
    dimension: int,
    num_classes: int,
    noise: Noise = Noise.GAUSSIAN,
    remembered: bool = False,
    grid: int | None = None,
) -> Smoothing:
    """What the theorems are told of a smoothed classifier; a σ without an envelope or a memory is refused."""
    if remembered:
        envelope = ConstantSigma()  # around each input by itself
    if envelope is None:
        raise InputError(
            "nothing is proved about how fast this sigma changes from input to input, so no radius would hold: a point "
            "close by may have another sigma altogether. There are two ways out: a sigma with an envelope (`smoothcert "
            "sigma fit` and `sigma train` make one; for a function of your own state SemiElastic, LipschitzSigma or a "
            "MonotoneEnvelope that you can prove), or a memory of all regions promised so far, which keeps any sigma "
            "sound (--memory FILE, or memory= in Python). Without a radius it can be used: `smoothcert predict`"
        )
    if not isinstance(envelope, ConstantSigma):
        # On a grid distances are those of k/(grid-1), and σ is that of the nearest float32 values: at the input that is
        # certified, and at the one that is asked about.
        shift = 0.0 if grid is None else 2.0 * FLOAT32_ROUNDING * math.sqrt(dimension)
        envelope = Widened(envelope, slack=SIGMA_SLACK, shift=shift)
    return Smoothing(
        envelope=envelope,
        dimension=dimension,
        num_classes=num_classes,
        noise=noise,
        remembered=remembered,
        grid=grid,
    )


def alpha_split(portfolio: Portfolio, *, alpha: float) -> dict[str, dict[str, float]]:
    """What each proof may cost, by what is bounded together: one certificate, or the best of several.

    Noise on a grid takes its price (`noise_price`, next to nothing) off α before it is split.
    """
    return {
        str(choice): {proof.value: share for proof, share in split_alpha(alpha, choice.proofs).items()}
        for choice in portfolio.alternatives()
    }


def _judge(
    tallies: Sequence[AnyTally], labels: Sequence[int], choice: Portfolio, *, alpha: float, smoothing: Smoothing
) -> list[list[Verdict]]:
    """For each tally the verdicts of certificates that are bounded together, the largest radius first."""
    prices = [price_of(tally, smoothing) for tally in tallies]
    verdicts: dict[int, list[Verdict]] = {}
    for price in set(prices):
        rows = [row for row, paid in enumerate(prices) if paid == price]
        some, classes = [tallies[row] for row in rows], [labels[row] for row in rows]
        found = _judge_at_one_price(some, classes, choice, alpha=alpha, price=price, smoothing=smoothing)
        verdicts |= zip(rows, found, strict=True)
    return [verdicts[row] for row in range(len(tallies))]


def _judge_at_one_price(
    tallies: Sequence[AnyTally],
    labels: Sequence[int],
    choice: Portfolio,
    *,
    alpha: float,
    price: float,
    smoothing: Smoothing,
) -> list[list[Verdict]]:
    """price: what is taken from α for the noise of these tallies."""
    proven = prove(tallies, labels, choice.proofs, alpha=alpha_after_noise(alpha, price))
    spent = {**proven.spent, Proof.NOISE_TABLES: price} if price else proven.spent
    sigmas = np.array([tally.sigma for tally in tallies])
    decided = [_decide(certificate, proven, sigmas, smoothing) for certificate in choice.certificates]
    verdicts = []
    for i, (tally, label) in enumerate(zip(tallies, labels, strict=True)):
        found = [_verdict(tally, label, decision, i, spent=spent) for decision in decided]
        verdicts.append(sorted(found, key=lambda verdict: -verdict.radius))
    return verdicts


@dataclass(frozen=True, slots=True)
class _Decision:
    """Radii of one certificate for m inputs, and the values of its quantities that decided them."""

    certificate: Certificate
    radii: FloatArray
    values: Mapping[Quantity, FloatArray]
    proofs: Mapping[Quantity, Proof]


def _decide(certificate: Certificate, proven: Proven, sigmas: FloatArray, smoothing: Smoothing) -> _Decision:
    proofs = {q: proof for proof in certificate.proofs for q in proven.values[proof] if q in certificate.needs}
    values = {quantity: proven.values[proof][quantity] for quantity, proof in proofs.items()}
    radii = certificate.radius(values, sigma=sigmas, smoothing=smoothing)
    if radii.ndim == 2:
        # One row for each alternative: a corner of a region, or another class. The smallest radius is what is certain.
        deciding = np.argmin(radii, axis=0)[None, :]
        radii = np.take_along_axis(radii, deciding, axis=0)[0]
        values = {
            quantity: np.take_along_axis(value, deciding, axis=0)[0] if value.ndim == 2 else value
            for quantity, value in values.items()
        }
    return _Decision(certificate=certificate, radii=radii, values=values, proofs=proofs)


def _verdict(tally: AnyTally, label: int, decision: _Decision, at: int, *, spent: Mapping[Proof, float]) -> Verdict:
    certificate, radius = decision.certificate, float(decision.radii[at])
    certified = radius > 0
    bounds = Bounds(
        label=label,
        quantities={
            quantity: Bound(
                value=float(values[at]),
                side=quantity.side,
                alpha=spent[decision.proofs[quantity]],
                method=decision.proofs[quantity].value,
            )
            for quantity, values in decision.values.items()
        },
        spent=spent,
    )
    return Verdict(
        certificate=certificate.name,
        prediction=label if certified else None,
        radius=radius,
        norm=certificate.norm,
        outcome=Outcome.CERTIFIED if certified else Outcome.ABSTAINED,
        reason="" if certified else _too_little(tally, label, certificate),
        bounds=bounds,
    )


def _too_little(tally: AnyTally, label: int, certificate: Certificate) -> str:
    if isinstance(tally, ScoreTally) and is_soft(certificate):
        return f"a mean score of {mean_score(tally):.4g} over {tally.n} samples for class {label} proves nothing"
    votes = tally.independent_votes()
    where = " at x+ε" if tally.kind is TallyKind.PAIRS else ""
    return f"{int(votes.counts[label])} of {votes.n} votes{where} for class {label} prove nothing"


def failed_verdict(selection: Tally, certificate: Certificate) -> Verdict:
    """What is said of an input whose selection votes settle on no class."""
    return Verdict(
        certificate=certificate.name,
        prediction=None,
        radius=0.0,
        norm=certificate.norm,
        outcome=Outcome.FAILED,
        reason=f"the model gave no finite answer for {selection.invalid} of {selection.n} selection samples",
        bounds=None,
    )


def _point(item: Votes, total: AnyTally, verdicts: Sequence[Verdict], *, grid: int | None) -> CertifiedPoint:
    first, *further = verdicts
    return CertifiedPoint(
        index=item.index,
        label=item.label,
        verdict=first,
        sigma=total.sigma,
        tallies=(item.selection, *item.estimation),
        seconds=item.seconds,
        further=tuple(further),
        grid=grid,
    )


def predict_votes(
    *,
    index: int,
    label: int | None,
    tally: Tally,
    alpha: float,
    seconds: float,
    norm: Norm = Norm.L2,
    grid: int | None = None,
    price: float = 0.0,
) -> CertifiedPoint:
    """PREDICT (Cohen et al. 2019, C.1): the class with most votes if it is significant at level α.

    norm: in which radii of this classifier would be. grid: of the noise, if it is on one. price: what is taken from α
    for it.
    """
    winner = significant_plurality(tally, alpha=alpha_after_noise(alpha, price))
    if winner is not None:
        outcome, reason = Outcome.PREDICTED, ""
    elif plurality(tally) is None:
        outcome, reason = (
            Outcome.FAILED,
            f"the model gave no finite answer for {tally.invalid} of {tally.n} samples",
        )
    else:
        outcome, reason = Outcome.ABSTAINED, "the two leading classes are too close to call"
    return CertifiedPoint(
        index=index,
        label=label,
        verdict=Verdict(
            certificate="",
            prediction=winner,
            radius=0.0,
            norm=norm,
            outcome=outcome,
            reason=reason,
            bounds=None,
        ),
        sigma=tally.sigma,
        tallies=(tally,),
        seconds=seconds,
        grid=grid,
    )


def recertify_points(
    points: Sequence[CertifiedPoint],
    portfolio: Portfolio,
    *,
    alpha: float,
    smoothing: Smoothing,
    n: int | None = None,
) -> list[CertifiedPoint]:
    """The same inputs at another α, with the first n samples only, or by other certificates over the same tallies."""
    return certify_votes([_stored_votes(point, n) for point in points], portfolio, alpha=alpha, smoothing=smoothing)


def _stored_votes(point: CertifiedPoint, n: int | None) -> Votes:
    selection = point.tally(Stage.SELECTION)
    estimation = tuple(tally for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION)
    if not isinstance(selection, Tally) or not estimation:
        raise InputError(f"input {point.index} has no stored votes to certify from: it comes from a prediction run")
    if point.bounds is not None and any(proof.anytime for proof in point.bounds.spent):
        raise InputError(
            f"input {point.index} was sampled until its votes had answered a question: bounds for a fixed number of "
            "samples do not hold for them"
        )
    if n is not None:
        estimation = (first_samples(estimation, n),)
    return Votes(
        index=point.index,
        label=point.label,
        selection=selection,
        estimation=estimation,
        seconds=point.seconds,
    )


def check_samples(name: str, count: int, *, least: int = 1) -> None:
    """Refuse a number of samples that is no number of samples."""
    if not isinstance(count, int | np.integer) or not least <= count <= MOST_SAMPLES:
        raise InputError(
            f"{name}={count} is not a number of samples: a whole number from {least} to {MOST_SAMPLES} was expected"
        )


def check_can_certify(
    portfolio: Portfolio, *, n: int, alpha: float, n0: int | None = None, num_classes: int = 2
) -> None:
    """Refuse an n at which even unanimous votes prove nothing, and say the smallest n that can.

    n0, where given, must be able to choose a class. num_classes: as far as it is known; α is split over all of them by
    some certificates.
    """
    check_alpha(alpha)
    if n0 is not None:
        check_samples("n0", n0)
    check_samples("n", n)
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
        raise InputError(f"n={n} at alpha={alpha:g} can never certify: {_too_few(choice, n=n, alpha=alpha)}; {advice}")


def _too_few(choice: Portfolio, *, n: int, alpha: float) -> str:
    if choice.tally is TallyKind.VOTES:
        return f"{n} votes of {n} prove only p > {(alpha / len(choice.proofs)) ** (1 / n):.3f}"
    if choice.tally is TallyKind.SCORES:
        return f"even a score of 1 in all {n} samples proves too little for {choice}"
    return f"even {n} votes of {n} prove too little for {choice}"


def _unanimous_radius(choice: Portfolio, n: int, alpha: float, num_classes: int) -> float:
    """The radius, at σ = 1, when every sample votes for the same class."""
    constant = Smoothing(dimension=1, num_classes=num_classes)
    if choice.tally is TallyKind.SCORES:
        # The bound grows with n, and playing the game of many bets takes time: a few show whether it can be won.
        n = min(n, _MOST_BETS_TRIED)
    (verdicts,) = _judge([_unanimous_tally(choice.tally, n, num_classes)], [0], choice, alpha=alpha, smoothing=constant)
    return verdicts[0].radius


def _unanimous_tally(kind: TallyKind, n: int, num_classes: int) -> AnyTally:
    stream = StreamId(0, 0, Stage.ESTIMATION)
    nothing: IntArray = np.zeros(num_classes + 1, dtype=np.int64)
    votes: IntArray = np.append(n, nothing[1:])
    if kind is TallyKind.PAIRS:
        return PairTally(stream, 1.0, both=votes // 2, first_only=nothing, second_only=nothing, ranges=((0, n // 2),))
    if kind is TallyKind.VOTES:
        return Tally(stream, sigma=1.0, counts=votes[:-1], invalid=0, ranges=((0, n),))
    if kind is TallyKind.SCORES:
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


def check_can_predict(*, n: int, alpha: float) -> None:
    """Refuse an n at which even unanimous votes are not significant, and say the smallest n that is."""
    check_alpha(alpha)
    check_samples("n", n)
    if float(sign_test_p_value(n, 0)) <= alpha:
        return
    smallest = next(m for m in range(1, _SEARCH_LIMIT) if float(sign_test_p_value(m, 0)) <= alpha)
    raise InputError(
        f"n={n} at alpha={alpha:g} can never predict: even {n} votes of {n} are not significant; use n ≥ {smallest}"
    )
