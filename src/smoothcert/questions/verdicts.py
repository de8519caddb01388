"""Tallies to bounds to verdicts, for certificates over a fixed number of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from smoothcert.certificates import Certificate, Portfolio
from smoothcert.certificates.portfolio import is_soft
from smoothcert.records import (
    AnyTally,
    Bound,
    Bounds,
    FloatArray,
    Outcome,
    Proof,
    Quantity,
    Reason,
    ReasonCode,
    ScoreTally,
    Smoothing,
    Tally,
    TallyKind,
    Verdict,
)
from smoothcert.statistics import Proven, alpha_after_noise, mean_score, price_of, prove


def judge_tallies(
    tallies: Sequence[AnyTally], labels: Sequence[int], choice: Portfolio, *, alpha: float, smoothing: Smoothing
) -> list[list[Verdict]]:
    """For each tally the verdicts of certificates that are bounded together, the largest radius first.

    alpha: the error probability of all bounds of one input together, including the price of the noise.
    """
    prices = [price_of(tally, smoothing) for tally in tallies]
    verdicts: dict[int, list[Verdict]] = {}
    for price in set(prices):
        rows = [row for row, own_price in enumerate(prices) if own_price == price]
        group, classes = [tallies[row] for row in rows], [labels[row] for row in rows]
        found = _judge_at_one_price(group, classes, choice, alpha=alpha, price=price, smoothing=smoothing)
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
    """price: what the noise of these tallies takes from α."""
    proven = prove(tallies, labels, choice.proofs, alpha=alpha_after_noise(alpha, price))
    spent = {**proven.spent, Proof.NOISE_TABLES: price} if price else proven.spent
    sigmas = np.array([tally.sigma for tally in tallies])
    decisions = [_decide(certificate, proven, sigmas, smoothing) for certificate in choice.certificates]
    verdicts = []
    for row, (tally, label) in enumerate(zip(tallies, labels, strict=True)):
        found = [decision.verdict(row, tally, label, spent=spent) for decision in decisions]
        verdicts.append(sorted(found, key=lambda verdict: -verdict.radius))
    return verdicts


@dataclass(frozen=True, slots=True)
class _Decision:
    """Radii of one certificate for m inputs, and the values of its quantities that decided them."""

    certificate: Certificate
    radii: FloatArray
    values: Mapping[Quantity, FloatArray]
    proofs: Mapping[Quantity, Proof]

    def verdict(self, row: int, tally: AnyTally, label: int, *, spent: Mapping[Proof, float]) -> Verdict:
        values = {quantity: float(value[row]) for quantity, value in self.values.items()}
        radius = float(self.radii[row])
        reason = None if radius > 0 else _explain_abstention(tally, label, self.certificate)
        bounds = make_bounds(label, values, self.proofs, spent=spent)
        return make_verdict(self.certificate, label, radius=radius, bounds=bounds, reason=reason)


def _decide(certificate: Certificate, proven: Proven, sigmas: FloatArray, smoothing: Smoothing) -> _Decision:
    proofs = {q: proof for proof in certificate.proofs for q in proven.values[proof] if q in certificate.needs}
    values = {quantity: proven.values[proof][quantity] for quantity, proof in proofs.items()}
    radii = certificate.radius(values, sigma=sigmas, smoothing=smoothing)
    if radii.ndim == 2:
        # One row for each alternative: a corner of a region, or another class. Only the smallest radius is certain.
        deciding = np.argmin(radii, axis=0)[None, :]
        radii = np.take_along_axis(radii, deciding, axis=0)[0]
        values = {
            quantity: np.take_along_axis(value, deciding, axis=0)[0] if value.ndim == 2 else value
            for quantity, value in values.items()
        }
    return _Decision(certificate=certificate, radii=radii, values=values, proofs=proofs)


def make_bounds(
    label: int,
    values: Mapping[Quantity, float],
    proofs: Mapping[Quantity, Proof],
    *,
    spent: Mapping[Proof, float],
) -> Bounds:
    """The bounds on these values, each at the price of the proof it comes from."""
    quantities = {
        quantity: Bound(
            value=value,
            side=quantity.side,
            alpha=spent[proofs[quantity]],
            method=proofs[quantity].value,
        )
        for quantity, value in values.items()
    }
    return Bounds(label=label, quantities=quantities, spent=spent)


def make_verdict(
    certificate: Certificate, label: int, *, radius: float, bounds: Bounds, reason: Reason | None
) -> Verdict:
    """CERTIFIED where the radius is positive, otherwise ABSTAINED with the reason."""
    certified = radius > 0
    return Verdict(
        certificate=certificate.name,
        prediction=label if certified else None,
        radius=radius,
        norm=certificate.norm,
        outcome=Outcome.CERTIFIED if certified else Outcome.ABSTAINED,
        reason=reason,
        bounds=bounds,
    )


def make_failed_verdict(selection: Tally, certificate: Certificate) -> Verdict:
    """The verdict for an input whose selection votes give no class."""
    return Verdict(
        certificate=certificate.name,
        prediction=None,
        radius=0.0,
        norm=certificate.norm,
        outcome=Outcome.FAILED,
        reason=Reason(ReasonCode.NO_FINITE_ANSWER, {"invalid": selection.invalid, "n": selection.n}),
        bounds=None,
    )


def explain_other_leader(votes: Tally, label: int) -> Reason | None:
    """The reason of an abstention where estimation has another leading class than selection; None if it has not."""
    leader = int(np.argmax(votes.counts))
    own, most = int(votes.counts[label]), int(votes.counts[leader])
    if most <= own:
        return None
    numbers = {"votes": own, "n": votes.n, "label": label, "leader": leader, "leader_votes": most}
    return Reason(ReasonCode.OTHER_CLASS_LEADS, numbers)


def _explain_abstention(tally: AnyTally, label: int, certificate: Certificate) -> Reason:
    if isinstance(tally, ScoreTally) and is_soft(certificate):
        return Reason(ReasonCode.LOW_MEAN_SCORE, {"mean": float(mean_score(tally)), "n": tally.n, "label": label})
    votes = tally.independent_votes()
    if all(proof.certain for proof in certificate.proofs):
        numbers = {"votes": int(votes.counts[label]), "runner_up": votes.largest_other(label)}
        return Reason(ReasonCode.LEAD_TOO_SMALL, {**numbers, "n": votes.n, "label": label})
    if (other := explain_other_leader(votes, label)) is not None:
        return other
    code = ReasonCode.TOO_FEW_PAIRED_VOTES if tally.kind is TallyKind.PAIRS else ReasonCode.TOO_FEW_VOTES
    return Reason(code, {"votes": int(votes.counts[label]), "n": votes.n, "label": label})
