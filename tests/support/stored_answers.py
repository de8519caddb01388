"""Answers computed from votes alone, without a model."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.certificates import get_portfolio
from smoothcert.questions import Inquiry, Votes, stored_votes
from smoothcert.questions.fixed_n import FixedNInquiry
from smoothcert.records import CertifiedPoint, Smoothing


def fixed_inquiry(name: str, *, alpha: float, smoothing: Smoothing) -> FixedNInquiry:
    """The question for a fixed n. No n is checked: the votes say how many there are."""
    return FixedNInquiry(get_portfolio(name), smoothing, n=1, n0=1, alpha=alpha)


def certify_votes(votes: Sequence[Votes], name: str, *, alpha: float, smoothing: Smoothing) -> list[CertifiedPoint]:
    return fixed_inquiry(name, alpha=alpha, smoothing=smoothing).answer(votes)


def answer_again(points: Sequence[CertifiedPoint], inquiry: Inquiry) -> list[CertifiedPoint]:
    """The same question asked again about stored points."""
    return inquiry.answer([stored_votes(point, inquiry) for point in points])
