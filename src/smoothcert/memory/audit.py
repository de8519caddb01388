"""Check the log of a memory: all properties that the index and the decisions should guarantee, proved again.

All pairs of balls of different classes are checked. Matrix products in single precision, with a proven error bound,
exclude almost all pairs. The others are measured in float64 and, where that is not enough, in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DamagedMemoryError
from smoothcert.memory.claim_log import LogReader
from smoothcert.memory.decision import find_deepest
from smoothcert.memory.distances import ExactDistance, measure, relative_error
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import (
    BEFORE_ALL,
    Centre,
    Claim,
    Head,
    Row,
    choose_batch_rows,
    decode,
    decode_centre,
    follows,
)
from smoothcert.memory.nearest import find_smallest_gaps
from smoothcert.memory.search import LEAST, SINGLE, BallIndex, Sketcher, draw_sample
from smoothcert.records import FloatArray, IntArray, Settlement

MOST_PROBLEMS = 100

_BLOCK = 2048
_LONGEST_REACH = 1e15


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    claims: number of claims checked. pairs: pairs of claims of different classes. measured: pairs that no bound could
    exclude, so that they were measured. problems: sentences, at most MOST_PROBLEMS. more_problems: how many more were
    found.
    """

    claims: int
    pairs: int
    measured: int
    problems: tuple[str, ...]
    more_problems: int

    @property
    def consistent(self) -> bool:
        return not self.problems


def audit_claims(reader: LogReader, *, key: MemoryKey, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Check all claims that exist when the audit begins. progress: called with (blocks done, blocks in total)."""
    return _Auditor(reader, key).run(progress)


@dataclass(slots=True, eq=False)
class _Auditor:
    """One audit: the problems found so far, and the well-formed claims without their centres.

    positions: of the claims in `index`. overruled: indices of the claims that were overruled.
    """

    reader: LogReader
    key: MemoryKey
    problems: list[str] = field(default_factory=list)
    more_problems: int = 0
    index: BallIndex = field(default_factory=BallIndex)
    positions: list[int] = field(default_factory=list)
    overruled: list[int] = field(default_factory=list)

    def run(self, progress: Callable[[int, int], None] | None) -> Audit:
        head = self.reader.head()
        self._load(head)
        stray = self.reader.find_stray_claim(head)
        if stray is not None:
            self._add_problem(f"claim {stray} comes after the end of the log, which is at claim {head.claims}")
        self._check_overruled()
        blocks = _list_blocks(len(self.positions))
        pairs = measured = 0
        for done, (rows, columns) in enumerate(blocks):
            if progress is not None:
                progress(done, len(blocks))
            different, close = _find_close_pairs(self.index, rows, columns)
            pairs += different
            measured += len(close)
            self._check_pairs(close)
        if progress is not None:
            progress(len(blocks), len(blocks))
        return Audit(head.claims, pairs, measured, tuple(self.problems), self.more_problems)

    def _add_problem(self, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1

    def _load(self, head: Head) -> None:
        """Read every claim once, in order. Check each claim by itself and sketch the well-formed ones."""
        self.index = BallIndex(self._fit_sketcher(head.claims))
        for claims in self._read_batches(head):
            start = len(self.positions)
            self.overruled += [start + i for i, claim in enumerate(claims) if claim.settlement is Settlement.OVERRULED]
            self.positions += [claim.position for claim in claims]
            self.index.add(
                np.stack([claim.centre for claim in claims]),
                np.array([claim.label for claim in claims], dtype=np.int64),
                np.array([claim.radius for claim in claims], dtype=np.float64),
            )

    def _fit_sketcher(self, count: int) -> Sketcher | None:
        """Fit directions to a sample of the well-formed centres."""
        if count == 0:
            return None
        centres = []
        for row in self.reader.fetch(draw_sample(claims=count, dimension=self.key.dimension, seed=0).tolist()):
            try:
                centres.append(decode_centre(row, dimension=self.key.dimension))
            except DamagedMemoryError:
                continue  # reported when the claim itself is checked
        return Sketcher.fit(np.stack(centres)) if centres else None

    def _read_batches(self, head: Head) -> Iterator[list[Claim]]:
        """The well-formed claims up to the head, some hundreds at a time. The others are reported as problems."""
        at_most = choose_batch_rows(self.key.dimension)
        after, end = BEFORE_ALL, Head(0, self.reader.identity)
        while rows := [row for row in self.reader.read(after=after, at_most=at_most) if row.position <= head.claims]:
            self._check_chain(rows, end)
            end = Head(rows[-1].position, rows[-1].entry)
            after = end.claims
            claims = [claim for row in rows if (claim := self._check_claim(row)) is not None]
            if claims:
                yield claims
        if end.claims < head.claims:
            self._add_problem(
                f"the log ends with claim {end.claims}, but {head.claims} claims were made: the last are missing"
            )
        elif end.entry != head.entry:
            self._add_problem(f"the entry of claim {head.claims} differs from the entry stored as the end of the log")

    def _check_chain(self, rows: Sequence[Row], end: Head) -> None:
        """Each position must be the next one, and each entry must follow from its claim and the entry before it."""
        for row in rows:
            if row.position != end.claims + 1:
                self._add_problem(
                    f"after claim {end.claims} comes claim {row.position}: claims between them are missing"
                )
            elif not follows(end, row):
                self._add_problem(
                    f"claim {row.position} is not what was written, or does not follow the claim before it"
                )
            end = Head(row.position, row.entry)

    def _check_claim(self, row: Row) -> Claim | None:
        """Check one claim by itself and return it; None if it cannot be read."""
        try:
            claim = decode(row, dimension=self.key.dimension)
        except DamagedMemoryError as error:
            self._add_problem(error.what)
            return None
        recorded = f"is recorded as {claim.settlement.name}"
        if claim.radius > claim.asked_radius:
            self._add_problem(
                f"claim {claim.position} was granted radius {claim.radius!r}; {claim.asked_radius!r} was asked"
            )
        if (claim.label != claim.asked_label) != (claim.settlement is Settlement.OVERRULED):
            self._add_problem(
                f"claim {claim.position} was granted class {claim.label}, class {claim.asked_label} was asked, but it "
                f"{recorded}"
            )
        if claim.settlement is Settlement.INHERITED:
            self._add_problem(f"claim {claim.position} {recorded}, which is never stored")
        if claim.settlement is Settlement.WHOLE and claim.radius != claim.asked_radius:
            self._add_problem(
                f"claim {claim.position} {recorded} with radius {claim.radius!r}; {claim.asked_radius!r} was asked"
            )
        return claim

    def _check_overruled(self) -> None:
        """The ball of an overruled claim must lie inside one earlier ball of its class."""
        labels, radii = self.index.labels, self.index.radii
        for place in self.overruled:
            (point,) = self._read_centres(np.array([place]))
            gaps = self.index.bound_gaps(point)
            gaps[place:] = np.inf
            gaps[labels != labels[place]] = np.inf
            near = find_smallest_gaps(
                point, gaps=gaps, index=self.index, limit=0.0, centres=self._read_centres, norm=self.key.norm
            )
            around = find_deepest(point, near, norm=self.key.norm)
            if around is None or around.remaining < radii[place]:
                self._add_problem(
                    f"claim {self.positions[place]} is recorded as {Settlement.OVERRULED.name}, but its region lies in "
                    f"no earlier region of class {labels[place]}"
                )

    def _check_pairs(self, close: NDArray[np.int64]) -> None:
        """Measure pairs of balls and report those that touch. close: (m, 2) indices, sorted by the first."""
        if not len(close):
            return
        wanted = np.unique(close)
        centres = self._read_centres(wanted)
        where = np.searchsorted(wanted, close)
        starts = np.flatnonzero(np.diff(close[:, 0], prepend=-1))
        labels = self.index.labels
        for part in np.split(np.arange(len(close)), starts[1:]):
            first, others = int(close[part[0], 0]), close[part, 1]
            point = centres[where[part[0], 0]]
            for other in self._find_touching(point, centres[where[part, 1]], first, others):
                self._add_problem(
                    f"the regions of claims {self.positions[first]} and {self.positions[other]} touch, but their "
                    f"classes are {labels[first]} and {labels[other]}"
                )

    def _find_touching(self, point: Centre, centres: Centre, first: int, others: IntArray) -> Iterator[int]:
        """Which of the other balls touch the first one, in exact arithmetic."""
        radii: FloatArray = self.index.radii
        lowest = measure(point, centres, norm=self.key.norm) * (1.0 - relative_error(len(point)))
        reach = np.nextafter(radii[first] + radii[others], np.inf)
        for place in np.flatnonzero(lowest <= reach):
            other = int(others[place])
            total = Fraction(float(radii[first])) + Fraction(float(radii[other]))
            if not ExactDistance.between(point, centres[place], norm=self.key.norm).exceeds(total):
                yield other

    def _read_centres(self, indices: IntArray) -> Centre:
        """(n, d) float32, in the order of the indices."""
        positions = [self.positions[i] for i in indices.tolist()]
        rows = {row.position: row for row in self.reader.fetch(positions)}
        return np.stack([decode_centre(rows[position], dimension=self.key.dimension) for position in positions])


def _list_blocks(count: int) -> list[tuple[slice, slice]]:
    parts = [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
    return [(rows, columns) for i, rows in enumerate(parts) for columns in parts[i:]]


def _find_close_pairs(index: BallIndex, rows: slice, columns: slice) -> tuple[int, NDArray[np.int64]]:
    """Pairs of different classes in this block: how many, and (m, 2) indices of those that may touch.

    Two balls do not touch if the distance of their sketches v, w exceeds t + s, where t is the radius of a ball plus
    the error of its sketch: ‖v‖² + ‖w‖² - 2v·w > t² + s² + 2ts. With the reach t as an additional coordinate this is a
    bound on one product: 2(v·w + ts) < (‖v‖² - t²) + (‖w‖² - s²). A product of m terms has an error of at most
    γ_m(‖v‖² + ‖w‖² + t² + s²)/2 in any order of summation. The right side is lowered by η(‖v‖² + t² + …) with
    η = γ_m + 16·2^-24, which covers that and its own rounding to float32 three times over.
    """
    left, left_edge = _add_reach(index, rows)
    right, right_edge = _add_reach(index, columns)
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


def _add_reach(index: BallIndex, part: slice) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Sketches with the reach as last coordinate, and lower bounds on ‖v‖² - t²; -inf if nothing can be excluded."""
    vectors = index.vectors[part]
    # Rounded up to float32: the factor is more than one rounding.
    reach = (index.radii[part] + index.errors[part]) * (1.0 + 2.0**-20)
    known = reach <= _LONGEST_REACH
    reach = np.where(known, reach, 0.0).astype(np.float32)
    eta = (vectors.shape[1] + 20) * 1.1 * SINGLE
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    edge = (1.0 - eta) * squares - (1.0 + eta) * np.square(reach, dtype=np.float64) - LEAST
    return np.column_stack((vectors, reach)), np.where(known, edge, -np.inf).astype(np.float32)
