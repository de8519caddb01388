"""Points as rows of SQLite: verdicts, promises and the point itself. Tallies have a module of their own."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from types import NoneType
from typing import Any

from smoothcert.records import AnyTally, Bounds, CertifiedPoint, Norm, Outcome, Promise, Reason, Settlement, Verdict
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.strict_json import strict_loads

Kinds = tuple[tuple[type, ...], ...]
_NUMBER = (float, int)
_MOST_KEPT = 4096
"""Texts whose records are kept: with few samples many inputs of a run have the same votes, and so the same bounds."""
POINT_COLUMNS: Kinds = ((int,), (int, NoneType), (*_NUMBER, NoneType), _NUMBER)
VERDICT_COLUMNS: Kinds = ((int,), (int,), (str,), (int, NoneType), _NUMBER, (str,), (str,), (str,), (str, NoneType))
TALLY_COLUMNS: Kinds = ((int,), (str,), (int,), (int,), _NUMBER, (str,), (int,), (str,), (bytes, NoneType))
PROMISE_COLUMNS: Kinds = ((int,), (int,), _NUMBER, (int,), (str,), (int, NoneType), _NUMBER, (str,), (str,))


def check_row(row: Sequence[Any], kinds: Kinds) -> Sequence[Any]:
    """The row, if its columns have these types. Our tables are STRICT, but a file may come from anywhere."""
    if _have_kinds(tuple(map(type, row)), kinds):
        return row
    if len(row) != len(kinds):
        raise ValueError(f"{len(row)} columns, not {len(kinds)}")
    for value, kind in zip(row, kinds, strict=True):
        if type(value) not in kind:
            raise TypeError(f"{str(value)[:60]!r} is not of the expected type")
    return row


@functools.cache
def _have_kinds(types: tuple[type, ...], kinds: Kinds) -> bool:
    """Whether a row of these types passes. Kept: SQLite has five types, so there are few such rows."""
    return len(types) == len(kinds) and all(one in allowed for one, allowed in zip(types, kinds, strict=True))


def verdict_rows(point: CertifiedPoint) -> list[tuple[Any, ...]]:
    return [
        (
            point.index,
            place,
            verdict.certificate,
            verdict.prediction,
            verdict.radius,
            verdict.norm.value,
            verdict.outcome.name,
            "" if verdict.reason is None else json.dumps(verdict.reason.to_json(), separators=(",", ":")),
            None if verdict.bounds is None else json.dumps(verdict.bounds.to_json()),
        )
        for place, verdict in enumerate((point.verdict, *point.further))
    ]


def verdict_from_row(columns: Sequence[Any]) -> Verdict:
    certificate, prediction, radius, norm, outcome, reason, bounds = columns
    return Verdict(
        certificate=certificate,
        prediction=prediction,
        radius=radius,
        norm=Norm(norm),
        outcome=Outcome[outcome],
        reason=_read_reason(reason) if reason else None,
        bounds=None if bounds is None else _read_bounds(bounds),
    )


@functools.lru_cache(maxsize=_MOST_KEPT)
def _read_reason(text: str) -> Reason:
    return Reason.from_json(strict_loads(text))


@functools.lru_cache(maxsize=_MOST_KEPT)
def _read_bounds(text: str) -> Bounds:
    return Bounds.from_json(strict_loads(text))


def promise_row(index: int, promise: Promise) -> tuple[Any, ...]:
    return (
        index,
        promise.label,
        promise.radius,
        promise.position,
        promise.settlement.name,
        promise.asked_label,
        promise.asked_radius,
        promise.memory,
        promise.entry,
    )


def promise_from_row(row: Sequence[Any]) -> Promise:
    _, label, radius, position, settlement, asked_label, asked_radius, memory, entry = row
    return Promise(
        label=label,
        radius=radius,
        position=position,
        settlement=Settlement[settlement],
        asked_label=asked_label,
        asked_radius=asked_radius,
        memory=memory,
        entry=entry,
    )


def point_from_row(
    row: Sequence[Any],
    verdicts: Sequence[Verdict],
    tallies: Sequence[AnyTally],
    promise: Promise | None,
    *,
    grid: int | None,
    scale: FeatureScale | None,
    dtype: str | None,
) -> CertifiedPoint:
    index, label, sigma, seconds = check_row(row, POINT_COLUMNS)
    if not math.isfinite(seconds) or (sigma is not None and not math.isfinite(sigma)):
        raise ValueError(f"input {index} took {seconds} seconds at sigma {sigma}")
    first, *further = verdicts
    return CertifiedPoint(
        index=index,
        label=label,
        verdict=first,
        sigma=math.nan if sigma is None else sigma,
        tallies=tuple(tallies),
        seconds=seconds,
        further=tuple(further),
        promise=promise,
        grid=grid,
        scale=scale,
        dtype=dtype,
    )
