"""Answers computed from votes alone, without a model."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.certificates import Portfolio, get_portfolio
from smoothcert.questions import Inquiry, Votes, stored_votes
from smoothcert.questions.fixed_n import FixedNInquiry
from smoothcert.records import CertifiedPoint, Smoothing


def fixed_inquiry(portfolio: Portfolio | str, *, alpha: float, smoothing: Smoothing) -> FixedNInquiry:
    """The question for a fixed n. No n is checked: the votes say how many there are."""
    chosen = get_portfolio(portfolio) if isinstance(portfolio, str) else portfolio
    return FixedNInquiry(chosen, smoothing, n=1, n0=1, alpha=alpha)


def certify_votes(
    votes: Sequence[Votes], portfolio: Portfolio | str, *, alpha: float, smoothing: Smoothing
) -> list[CertifiedPoint]:
    return fixed_inquiry(portfolio, alpha=alpha, smoothing=smoothing).answer(votes)


def recertify_points(
    points: Sequence[CertifiedPoint],
    portfolio: Portfolio | str,
    *,
    alpha: float,
    smoothing: Smoothing,
    n: int | None = None,
) -> list[CertifiedPoint]:
    """Stored points certified again for a fixed n; n: from their first n samples."""
    return answer_again(points, fixed_inquiry(portfolio, alpha=alpha, smoothing=smoothing), n=n)


def answer_again(points: Sequence[CertifiedPoint], inquiry: Inquiry, *, n: int | None = None) -> list[CertifiedPoint]:
    """The same question asked again about stored points."""
    return inquiry.answer([stored_votes(point, inquiry, n=n) for point in points])
