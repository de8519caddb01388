"""Votes that were sampled until a question was answered → CertifiedPoint, without a model.

Votes that somebody looked at before deciding to draw more are no fixed number of votes: a Clopper–Pearson bound on them
is wrong more often than it says. Everything here is judged by anytime-valid tests, from the looks that are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.certificates import Certificate, Portfolio
from smoothcert.errors import InputError
from smoothcert.questions.certification import Votes, check_levels, check_samples, failed_verdict
from smoothcert.questions.deciding import DecidingJudge, least_probabilities
from smoothcert.questions.judge import Judge
from smoothcert.questions.narrowing import NarrowingJudge
from smoothcert.questions.questions import Decide, Question
from smoothcert.records import (
    Bound,
    Bounds,
    CertifiedPoint,
    FloatArray,
    Outcome,
    Proof,
    Quantity,
    Smoothing,
    Stage,
    Tally,
    Verdict,
)
from smoothcert.statistics import (
    alpha_after_noise,
    check_alpha,
    log_threshold,
    log_wealth_above,
    noise_price,
    one_sided_lower,
    plurality,
)

_SEARCH_LIMIT = 10**9


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question, and all that an answer depends on besides the votes. n: after how many samples one gives up."""

    question: Question
    certificate: Certificate
    smoothing: Smoothing
    n: int
    alpha: float

    def judge(self, sigmas: FloatArray) -> Judge:
        """Follows inputs with these noise levels, (m,)."""
        alpha = np.array([self.spent(float(sigma))[self.question.proof] for sigma in sigmas])
        if isinstance(self.question, Decide):
            radii = self.question.radii
            p0 = least_probabilities(self.certificate, radii, sigmas=sigmas, smoothing=self.smoothing)
            return DecidingJudge(p0, radii, n=self.n, alpha=alpha)
        return NarrowingJudge(
            self.certificate,
            self.question.width,
            sigmas=sigmas,
            smoothing=self.smoothing,
            n=self.n,
            alpha=alpha,
        )

    def spent(self, sigma: float) -> dict[Proof, float]:
        """How α is spent on an input with this noise level. Noise on a grid is paid for as if all n were drawn."""
        price = noise_price(self.smoothing, draws=self.n, sigma=sigma)
        spent = {self.question.proof: alpha_after_noise(self.alpha, price)}
        return spent | {Proof.NOISE_TABLES: price} if price else spent


def spent_on(question: Question, portfolio: Portfolio, *, alpha: float) -> dict[str, dict[str, float]]:
    """`alpha_split` where a question is asked: its test gets all of α that the noise leaves."""
    return {str(portfolio): {question.proof.value: alpha}}


def only_certificate(portfolio: Portfolio) -> Certificate:
    """The certificate of a portfolio that adaptive sampling can serve; an InputError for any other."""
    certificate, *others = portfolio.certificates
    if others:
        raise InputError(
            f"sampling stops when one certificate has its answer, and {portfolio} names several: name one; `smoothcert "
            "recertify` computes others from the same votes"
        )
    if certificate.needs != (Quantity.TOP_LOWER,) or certificate.proofs != (Proof.TOP,):
        raise InputError(
            f"{certificate.name} needs more than a lower bound on the probability of the class, and there is no "
            "anytime-valid test for that here: use gaussian, envelope or uniform-l1, or leave --decide and --precision "
            "out"
        )
    return certificate


def check_can_ask(question: Question, portfolio: Portfolio, *, n: int, alpha: float, n0: int | None = None) -> None:
    """Refuse settings under which no input can get an answer other than no."""
    only_certificate(portfolio)
    check_alpha(alpha)
    if n0 is not None:
        check_samples("n0", n0)
    check_samples("n", n)
    if isinstance(question, Decide):
        _check_votes_suffice(0.5, "any radius", n=n, alpha=alpha)
    elif float(one_sided_lower(n, n, alpha=alpha)) <= 0.5:
        enough = _fewest(lambda m: float(one_sided_lower(m, m, alpha=alpha)) > 0.5, n)
        raise InputError(
            f"n={n} at alpha={alpha:g} can never certify: even {n} votes of {n} do not prove p > 0.5 at all times at "
            f"once; use n ≥ {enough}"
        )


def check_can_decide(inquiry: Inquiry, *, sigma: float) -> None:
    """Refuse a radius that no input with this noise level can be proved to have within n samples."""
    if not isinstance(inquiry.question, Decide):
        return
    radii, name = inquiry.question.radii, inquiry.certificate.name
    levels = np.array([sigma])
    (least,) = least_probabilities(inquiry.certificate, radii, sigmas=levels, smoothing=inquiry.smoothing)
    for radius, p0 in zip(radii, least, strict=True):
        if not np.isfinite(p0):
            raise InputError(
                f"a radius of {radius:g} cannot be decided at sigma {sigma:g}: no probability below 1 gives so much by "
                f"{name}; use smaller radii or a larger sigma"
            )
        _check_votes_suffice(float(p0), f"a radius of {radius:g}", n=inquiry.n, alpha=inquiry.alpha)


def _check_votes_suffice(p0: float, what: str, *, n: int, alpha: float) -> None:
    bar = float(log_threshold(alpha))

    def proves(m: int) -> bool:
        return float(log_wealth_above(m, m, p0=p0)) >= bar

    if not proves(n):
        raise InputError(
            f"n={n} at alpha={alpha:g} can never decide {what}: it takes p > {p0:.6g}, and even {n} votes of {n} do "
            f"not prove that; use n ≥ {_fewest(proves, n)}"
        )


def _fewest(proves: Callable[[int], bool], n: int) -> int:
    """The least number of unanimous votes above n that prove something; more of them prove more."""
    low, high = n, 2 * n
    while not proves(high) and high < _SEARCH_LIMIT:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if proves(middle) else (middle, high)
    return high


def answer_votes(votes: Sequence[Votes], inquiry: Inquiry) -> list[CertifiedPoint]:
    """The answers for votes in segments, one for each look. The class comes from the selection votes alone.

    Whoever drew the votes, and why he stopped, does not matter: the tests hold at all times at once. An input whose
    selection votes settle on no class has failed, and needs no estimation votes.
    """
    check_levels(votes, inquiry.smoothing)
    chosen = {i: label for i, item in enumerate(votes) if (label := plurality(item.selection)) is not None}
    found = _judged([votes[i] for i in chosen], list(chosen.values()), inquiry) if chosen else []
    verdicts = dict(zip(chosen, found, strict=True))
    return [
        _point(item, verdicts.get(i) or failed_verdict(item.selection, inquiry.certificate), inquiry)
        for i, item in enumerate(votes)
    ]


def _judged(votes: Sequence[Votes], labels: Sequence[int], inquiry: Inquiry) -> list[Verdict]:
    seen = [_looks_at(item, label) for item, label in zip(votes, labels, strict=True)]
    judge = inquiry.judge(np.array([item.selection.sigma for item in votes]))
    for number in range(max(map(len, seen))):
        rows = np.array([row for row, steps in enumerate(seen) if len(steps) > number], dtype=np.int64)
        hits, trials = np.array([seen[row][number] for row in rows], dtype=np.int64).T
        judge.look(rows, hits, trials)
    radii, probabilities = judge.radius, judge.probability
    verdicts = []
    for row, (steps, label) in enumerate(zip(seen, labels, strict=True)):
        radius, p = float(radii[row]), float(probabilities[row])
        hits, trials = steps[-1] if steps else (0, 0)
        reason = "" if radius > 0 else judge.nothing_certified(row, hits=hits, trials=trials, label=label)
        spent = inquiry.spent(votes[row].selection.sigma)
        verdicts.append(_verdict(inquiry, label=label, radius=radius, p=p, reason=reason, spent=spent))
    return verdicts


def _looks_at(item: Votes, label: int) -> list[tuple[int, int]]:
    """Hits and trials at each look. None where nothing was worth drawing for."""
    steps: list[tuple[int, int]] = []
    hits = trials = 0
    for tally in sorted(item.estimation, key=lambda tally: tally.ranges[0]):
        if not isinstance(tally, Tally) or tally.stream.stage is not Stage.ESTIMATION:
            raise InputError(f"input {item.index} was not looked at by plain estimation votes")
        if tally.ranges != ((trials, trials + tally.n),):
            raise InputError(f"the votes of input {item.index} have a gap after {trials} samples")
        hits, trials = hits + int(tally.counts[label]), trials + tally.n
        steps.append((hits, trials))
    return steps


def _verdict(
    inquiry: Inquiry, *, label: int, radius: float, p: float, reason: str, spent: Mapping[Proof, float]
) -> Verdict:
    certified, proof = radius > 0, inquiry.question.proof
    bound = Bound(value=p, side=Quantity.TOP_LOWER.side, alpha=spent[proof], method=proof.value)
    return Verdict(
        certificate=inquiry.certificate.name,
        prediction=label if certified else None,
        radius=radius,
        norm=inquiry.certificate.norm,
        outcome=Outcome.CERTIFIED if certified else Outcome.ABSTAINED,
        reason=reason,
        bounds=Bounds(label=label, quantities={Quantity.TOP_LOWER: bound} if p > 0 else {}, spent=spent),
    )


def _point(item: Votes, verdict: Verdict, inquiry: Inquiry) -> CertifiedPoint:
    return CertifiedPoint(
        index=item.index,
        label=item.label,
        verdict=verdict,
        sigma=item.selection.sigma,
        tallies=(item.selection, *item.estimation),
        seconds=item.seconds,
        grid=inquiry.smoothing.grid,
    )


def answer_points(points: Sequence[CertifiedPoint], inquiry: Inquiry) -> list[CertifiedPoint]:
    """The answers once more, from stored points: at another α, for another certificate, or after fewer looks."""
    return answer_votes([_stored_votes(point, n=inquiry.n) for point in points], inquiry)


def _stored_votes(point: CertifiedPoint, *, n: int) -> Votes:
    selection = point.tally(Stage.SELECTION)
    if not isinstance(selection, Tally):
        raise InputError(f"input {point.index} has no stored votes to answer from")
    estimation = tuple(tally for tally in point.tallies if tally.stream.stage is Stage.ESTIMATION)
    early = tuple(tally for tally in estimation if tally.ranges[-1][1] <= n)
    if estimation and not early:
        first = estimation[0].ranges[-1][1]
        raise InputError(f"n={n} is too small: the votes were first looked at after {first} samples")
    return Votes(index=point.index, label=point.label, selection=selection, estimation=early, seconds=point.seconds)
