"""Tallies as rows of SQLite: counts as readable JSON, long sums as compressed bytes."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import (
    AnyTally,
    GradientTally,
    IntArray,
    PairTally,
    ScoreTally,
    Stage,
    StreamId,
    Tally,
    TallyKind,
)
from smoothcert.records.score_cells import SCORE_CELLS
from smoothcert.strict_json import strict_loads

_INT64 = np.dtype("<i8")
_MOST_CLASSES = 10_000_000
_MOST_COORDINATES = 2**22
_VOTES = ("votes", "both", "first", "second")


def tally_row(tally: AnyTally) -> tuple[Any, ...]:
    """The columns idx, stage, start, stop, sigma, kind, num_classes, counts, sums. start and stop count draws."""
    ((start, stop),) = tally.ranges
    counts, sums = _pack_content(tally)
    return (
        tally.stream.index,
        tally.stream.stage.name,
        start,
        stop,
        tally.sigma,
        tally.kind.value,
        tally.num_classes,
        json.dumps(counts),
        sums,
    )


def tally_from_row(row: Sequence[Any], *, seed: int) -> AnyTally:
    """The tally in a row. An invalid row raises a ValueError, KeyError, TypeError or the like."""
    index, stage, start, stop, sigma, kind, num_classes, text, sums = row
    stream = StreamId(seed=seed, index=index, stage=Stage[stage])
    counts = strict_loads(text)
    ranges = ((start, stop),)
    if TallyKind(kind) is TallyKind.VOTES:
        return Tally(stream, sigma, _fill_zeros(counts["votes"], num_classes), counts["invalid"], ranges)
    if TallyKind(kind) is TallyKind.PAIRS:
        both, first, second = (_fill_zeros(counts[name], num_classes + 1) for name in ("both", "first", "second"))
        return PairTally(stream, sigma, both, first, second, ranges)
    votes, invalid = _fill_zeros(counts["votes"], num_classes), counts["invalid"]
    if TallyKind(kind) is TallyKind.SCORES:
        cells, hits = _unpack(sums, most=2 * SCORE_CELLS).reshape(2, -1)
        return ScoreTally(stream, sigma, votes, invalid, counts["label"], cells, hits, ranges)
    return GradientTally(
        stream,
        sigma,
        votes,
        invalid,
        np.array(counts["group"]),
        _unpack(sums, most=2 * len(counts["products"]) * _MOST_COORDINATES).reshape(2, len(counts["products"]), -1),
        np.array(counts["products"]),
        ranges,
    )


@functools.lru_cache(maxsize=4096)
def classes_voted_for(counts: str) -> frozenset[int]:
    """The classes with a vote in the counts of a row, without making the tally; -1 stands for invalid samples.

    Kept: segments with few samples often have the same counts.
    """
    stored = strict_loads(counts)
    classes = {int(label) for name in _VOTES for label, count in stored.get(name, {}).items() if count}
    return frozenset(classes | {-1} if stored.get("invalid") else classes)


def _pack_content(tally: AnyTally) -> tuple[dict[str, Any], bytes | None]:
    if isinstance(tally, PairTally):
        counts = {"both": tally.both, "first": tally.first_only, "second": tally.second_only}
        return {name: _drop_zeros(values) for name, values in counts.items()}, None
    votes: dict[str, Any] = {"votes": _drop_zeros(tally.counts), "invalid": tally.invalid}
    if isinstance(tally, Tally):
        return votes, None
    if isinstance(tally, ScoreTally):
        return votes | {"label": tally.label}, _pack(np.stack([tally.cells, tally.hits]))
    votes |= {"group": tally.group.tolist(), "products": tally.products.tolist()}
    return votes, _pack(tally.sums)


def _drop_zeros(counts: IntArray) -> dict[str, int]:
    return {str(label): count for label, count in enumerate(counts.tolist()) if count}


def _fill_zeros(counts: Mapping[str, int], size: int) -> IntArray:
    if not isinstance(counts, dict):
        raise InputError(f"expected votes by class, got {counts!r}")
    if size > _MOST_CLASSES:
        raise InputError(f"{size} classes are not supported: expected at most {_MOST_CLASSES}")
    dense = [0] * size
    for label, count in counts.items():
        if not 0 <= int(label) < size:
            raise InputError(f"there are votes for class {label}, but only {size} classes")
        dense[int(label)] = count
    return np.array(dense)


def _pack(sums: IntArray) -> bytes:
    return zlib.compress(sums.astype(_INT64).tobytes(), level=1)


def _unpack(packed: bytes, *, most: int) -> IntArray:
    """most: the largest valid length, because a few bytes can expand a thousandfold."""
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(packed, most * _INT64.itemsize + 1)
    except zlib.error as error:
        raise InputError(f"the sums of a tally cannot be read: {error}") from error
    if not decompressor.eof or len(content) > most * _INT64.itemsize:
        raise InputError(f"the sums of a tally are truncated, or more than {most} numbers")
    flat = np.frombuffer(content, dtype=_INT64)
    return flat.astype(np.int64)
