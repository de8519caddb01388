"""Check a memory's log against itself: what its index and its decisions were supposed to guarantee, proved again.

Every pair of balls of different classes is looked at. Blocks of matrix products in single precision, with a proven
error bound, exclude almost all pairs; float64 measures the rest; exact arithmetic decides what float64 cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DamagedMemoryError
from smoothcert.memory.decision import Neighbour, deepest
from smoothcert.memory.distances import ExactDistance, measure, relative_error
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import (
    BEFORE_ALL,
    Centre,
    Claim,
    Head,
    Reading,
    Row,
    centre_of,
    claim_after_the_end,
    decode,
    follows,
    rows_at_once,
)
from smoothcert.memory.nearest import with_smallest_gap
from smoothcert.memory.search import LEAST, SINGLE, BallIndex, Sketcher, gaps_from_below, sample_size
from smoothcert.records import FloatArray, IntArray, Norm, Settlement

MOST_PROBLEMS = 100

_BLOCK = 2048
_LONGEST_REACH = 1e15


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found.

    claims: looked at. pairs: of claims of different classes. measured: pairs that no bound could exclude, so that they
    were measured. problems: sentences, at most MOST_PROBLEMS. more_problems: how many were found beyond those.
    """

    claims: int
    pairs: int
    measured: int
    problems: tuple[str, ...]
    more_problems: int

    @property
    def consistent(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class _Findings:
    problems: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more += 1


@dataclass(frozen=True, slots=True, eq=False)
class _Balls:
    """The well-formed claims, without centres. positions: (n,). overruled: indices of those settled so."""

    positions: IntArray
    overruled: IntArray
    index: BallIndex


def audit_claims(reading: Reading, *, key: MemoryKey, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Look at all claims that were made when the audit begins. progress: called with (done, in all)."""
    findings = _Findings()
    head = reading.head()
    balls = _load(reading, key, head, findings)
    stray = claim_after_the_end(reading, head)
    if stray is not None:
        findings.add(f"claim {stray} comes after the end of the log, which is at claim {head.claims}")
    _check_overruled(reading, balls, key, findings)
    blocks = list(_block_pairs(len(balls.positions)))
    pairs = measured = 0
    for done, (rows, columns) in enumerate(blocks):
        if progress is not None:
            progress(done, len(blocks))
        different, close = _close_pairs(balls.index, rows, columns)
        pairs += different
        measured += len(close)
        _check_pairs(reading, balls, close, key, findings)
    if progress is not None:
        progress(len(blocks), len(blocks))
    return Audit(head.claims, pairs, measured, tuple(findings.problems), findings.more)


def _load(reading: Reading, key: MemoryKey, head: Head, findings: _Findings) -> _Balls:
    """Read every claim once, in order; check each by itself; sketch the well-formed ones."""
    index = BallIndex(_fitted(reading, key, head.claims))
    positions: list[int] = []
    overruled: list[int] = []
    for claims in _batches(reading, key, head, findings):
        overruled += [
            len(positions) + place for place, claim in enumerate(claims) if claim.settlement is Settlement.OVERRULED
        ]
        positions += [claim.position for claim in claims]
        index.add(
            np.stack([claim.centre for claim in claims]),
            np.array([claim.label for claim in claims], dtype=np.int64),
            np.array([claim.radius for claim in claims], dtype=np.float64),
        )
    return _Balls(np.array(positions, dtype=np.int64), np.array(overruled, dtype=np.int64), index)


def _fitted(reading: Reading, key: MemoryKey, count: int) -> Sketcher | None:
    """Directions fitted to a sample of the centres that are well formed."""
    if count == 0:
        return None
    size = sample_size(claims=count, dimension=key.dimension)
    drawn = np.sort(np.random.default_rng(0).choice(count, size=size, replace=False)) + 1
    centres = [centre for row in reading.fetch(drawn.tolist()) if (centre := _centre_or_none(row, key)) is not None]
    return Sketcher.fit(np.stack(centres)) if centres else None


def _centre_or_none(row: Row, key: MemoryKey) -> Centre | None:
    try:
        return centre_of(row, dimension=key.dimension)
    except DamagedMemoryError:
        return None


def _batches(reading: Reading, key: MemoryKey, head: Head, findings: _Findings) -> Iterator[list[Claim]]:
    """The well-formed claims up to the head, some hundreds at a time; what is wrong with the others is noted."""
    at_most = rows_at_once(key.dimension)
    after, end = BEFORE_ALL, Head(0, reading.identity)
    while rows := [row for row in reading.read(after=after, at_most=at_most) if row.position <= head.claims]:
        _check_chain(rows, end, findings)
        end = Head(rows[-1].position, rows[-1].entry)
        after = end.claims
        claims = [claim for row in rows if (claim := _well_formed(row, key, findings)) is not None]
        if claims:
            yield claims
    if end.claims < head.claims:
        findings.add(f"the log ends with claim {end.claims}, but {head.claims} claims were made: the last are missing")
    elif end.entry != head.entry:
        findings.add(f"the log does not end with the entry that was kept as that of claim {head.claims}")


def _check_chain(rows: Sequence[Row], end: Head, findings: _Findings) -> None:
    """Each position must be the next, and each entry follow from its claim and from the entry before it."""
    for row in rows:
        if row.position != end.claims + 1:
            findings.add(f"after claim {end.claims} comes claim {row.position}: what was between them is missing")
        elif not follows(end, row):
            findings.add(f"claim {row.position} is not what was written, or does not follow the claim before it")
        end = Head(row.position, row.entry)


def _well_formed(row: Row, key: MemoryKey, findings: _Findings) -> Claim | None:
    """The claim, if it can be read at all; what is wrong with it by itself is noted."""
    try:
        claim = decode(row, dimension=key.dimension)
    except DamagedMemoryError as error:
        findings.add(error.what)
        return None
    if claim.radius > claim.asked_radius:
        findings.add(f"claim {claim.position} was granted radius {claim.radius!r}; {claim.asked_radius!r} was asked")
    if (claim.label != claim.asked_label) != (claim.settlement is Settlement.OVERRULED):
        findings.add(
            f"claim {claim.position} answers class {claim.label}, class {claim.asked_label} was asked, but it is "
            f"recorded as {claim.settlement.name}"
        )
    if claim.settlement is Settlement.INHERITED:
        findings.add(f"claim {claim.position} is recorded as {claim.settlement.name}, which is never stored")
    if claim.settlement is Settlement.WHOLE and claim.radius != claim.asked_radius:
        findings.add(
            f"claim {claim.position} is recorded as {claim.settlement.name} with radius {claim.radius!r}; "
            f"{claim.asked_radius!r} was asked"
        )
    return claim


def _check_overruled(reading: Reading, balls: _Balls, key: MemoryKey, findings: _Findings) -> None:
    """Every overruled claim lies, with its whole ball, inside one earlier ball of its class."""
    labels, radii = balls.index.labels, balls.index.radii
    for place in balls.overruled.tolist():
        point = _centres(reading, balls.positions[[place]], key)[0]
        gaps = gaps_from_below(balls.index.distances_from_below(point), radii)
        gaps[place:] = np.inf
        gaps[labels != labels[place]] = np.inf
        near = with_smallest_gap(
            point,
            gaps=gaps,
            radii=radii,
            limit=0.0,
            centres=lambda indices: _centres(reading, balls.positions[indices], key),
            norm=key.norm,
        )
        around = deepest(
            point,
            [Neighbour(index, int(labels[index]), float(radii[index]), centre) for index, centre in near],
            norm=key.norm,
        )
        if around is None or around.remaining < radii[place]:
            findings.add(
                f"claim {balls.positions[place]} is recorded as {Settlement.OVERRULED.name}, but its region lies in no "
                f"earlier region of class {labels[place]}"
            )


def _block_pairs(count: int) -> Iterator[tuple[slice, slice]]:
    starts = range(0, count, _BLOCK)
    for first in starts:
        for second in range(first, count, _BLOCK):
            yield slice(first, min(first + _BLOCK, count)), slice(second, min(second + _BLOCK, count))


def _close_pairs(index: BallIndex, rows: slice, columns: slice) -> tuple[int, NDArray[np.int64]]:
    """Pairs of different classes in this block: how many, and (m, 2) indices of those that may touch.

    Two balls are apart if their sketches v, w are farther from each other than t + s, where t is a ball's radius and
    the error of its sketch: ‖v‖² + ‖w‖² - 2v·w > t² + s² + 2ts. With the reach as one more coordinate that is a bound
    on one product: 2(v·w + ts) < (‖v‖² - t²) + (‖w‖² - s²). A product of m terms errs by at most
    γ_m(‖v‖² + ‖w‖² + t² + s²)/2 in whatever order it is added; the right side is lowered by η(‖v‖² + t² + …) with
    η = γ_m + 16·2^-24, which covers that and its own rounding to single precision three times over.
    """
    left, left_edge = _reaching(index, rows)
    right, right_edge = _reaching(index, columns)
    products = left @ right.T
    products *= 2.0
    different = index.labels[rows][:, None] != index.labels[columns]
    if rows == columns:
        different = np.triu(different)
    close = products >= left_edge[:, None] + right_edge
    close &= different
    pairs = np.argwhere(close)
    pairs += np.array([rows.start, columns.start])
    return int(np.count_nonzero(different)), pairs


def _reaching(index: BallIndex, part: slice) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Sketches with the reach as a last coordinate, and ‖v‖² - t² from below. -inf where nothing can be excluded."""
    vectors = index.vectors[part]
    # Rounded up to single precision: the factor is more than one rounding.
    reach = (index.radii[part] + index.errors[part]) * (1.0 + 2.0**-20)
    known = reach <= _LONGEST_REACH
    reach = np.where(known, reach, 0.0).astype(np.float32)
    eta = (vectors.shape[1] + 20) * 1.1 * SINGLE
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    edge = (1.0 - eta) * squares - (1.0 + eta) * np.square(reach, dtype=np.float64) - LEAST
    return np.column_stack((vectors, reach)), np.where(known, edge, -np.inf).astype(np.float32)


def _check_pairs(
    reading: Reading, balls: _Balls, close: NDArray[np.int64], key: MemoryKey, findings: _Findings
) -> None:
    """Measure pairs of balls; those that touch are noted. close: (m, 2) indices, sorted by the first."""
    if not len(close):
        return
    wanted = np.unique(close)
    centres = _centres(reading, balls.positions[wanted], key)
    where = np.searchsorted(wanted, close)
    starts = np.flatnonzero(np.diff(close[:, 0], prepend=-1))
    for part in np.split(np.arange(len(close)), starts[1:]):
        first, others = int(close[part[0], 0]), close[part, 1]
        point = centres[where[part[0], 0]]
        for other in _touching(point, centres[where[part, 1]], first, others, balls.index.radii, norm=key.norm):
            labels = balls.index.labels
            findings.add(
                f"the regions of claims {balls.positions[first]} and {balls.positions[other]} touch, but their classes "
                f"are {labels[first]} and {labels[other]}"
            )


def _touching(
    point: Centre, centres: Centre, first: int, others: IntArray, radii: FloatArray, *, norm: Norm
) -> Iterator[int]:
    """Which of the others touch the first ball, in exact arithmetic."""
    lowest = measure(point, centres, norm=norm) * (1.0 - relative_error(len(point)))
    reach = np.nextafter(radii[first] + radii[others], np.inf)
    for place in np.flatnonzero(lowest <= reach):
        other = int(others[place])
        both = Fraction(float(radii[first])) + Fraction(float(radii[other]))
        if not ExactDistance.between(point, centres[place], norm=norm).exceeds(both):
            yield other


def _centres(reading: Reading, positions: IntArray, key: MemoryKey) -> Centre:
    """(n, d) float32, in the order of the positions."""
    rows = {row.position: row for row in reading.fetch(positions.tolist())}
    return np.stack([centre_of(rows[position], dimension=key.dimension) for position in positions.tolist()])
