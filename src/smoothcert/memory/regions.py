"""RegionMemory: the regions a smoothed classifier has promised, in a database, so that it never contradicts itself.

A stored ball is closed, {y : d(x, y) ≤ r}; float32 coordinates are exact real numbers. Balls of different classes are
disjoint: d > r + r' in exact arithmetic. Each claim is decided and appended in one transaction that excludes all other
writers, and is returned after the database has committed it.

Opening a memory proves that its log is complete: the hash chain is recomputed from the identity to the head, which is
stored apart from the claims. Claims appended later are checked in the same way.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import numpy as np

from smoothcert.errors import InputError, RegionMemoryError
from smoothcert.memory.audit import Audit, audit_claims
from smoothcert.memory.claim_log import ClaimLog, LogReader
from smoothcert.memory.decision import Neighbour, Settled, find_deepest, grant, measure_room, overrule
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import (
    BEFORE_ALL,
    Centre,
    Claim,
    Head,
    Row,
    StoredKey,
    advance,
    choose_batch_rows,
    damage_error,
    decode,
    decode_balls,
    encode,
)
from smoothcert.memory.nearest import CentreCache, find_smallest_gaps
from smoothcert.memory.search import BallIndex, Sketcher, draw_sample
from smoothcert.records import FloatArray, Promise, Settlement

_FIRST_FIT = 256
"""With fewer claims all of them are measured."""
_GROWTH = 4
"""Directions are fitted again when the number of claims has grown by this factor."""
_FAR_BEHIND = 64
"""At most this many claims of other processes are read inside a transaction."""
_SECONDS_BETWEEN_LOOKS = 0.25


class RegionMemory:
    """The regions promised under one key. Created by `open_memory`; a context manager.

    All claims are read when it is opened. An incomplete log raises DamagedMemoryError.

    Threads may share one instance. Each process opens the database for itself. After a fork both processes can go on
    using it: connections are closed before the fork and reopened when needed.
    """

    def __init__(self, log: ClaimLog, key: MemoryKey, stored: StoredKey) -> None:
        self.key = key
        self.location = log.location
        self.identity = stored.identity
        self._log = log
        self._number = stored.number
        self._lock = threading.RLock()
        self._closed = False
        self._batch_rows = choose_batch_rows(key.dimension)
        self._reader = LogReader(log, stored, guard=self._guard)
        self._centres = CentreCache(self._reader, dimension=key.dimension)
        # The last head this process has seen. It shows whether the log is still the same one.
        self._seen = Head(0, stored.identity)
        # The index, and the head of the claims in it. All entries up to there were recomputed.
        self._index, self._indexed = BallIndex(), Head(0, stored.identity)
        self._fitted_at = 0
        self._next_look = 0.0
        # Hashes of requests to positions, to find repeated claims. A hash collision stores a repeated claim again.
        self._asked: dict[int, int] = {}
        self._prepare()
        self._catch_up()
        stray = self._reader.find_stray_claim(self._indexed)
        if stray is not None:
            raise damage_error(
                log.location, f"claim {stray} comes after the end of the log, which is at claim {self._indexed.claims}"
            )
        _live.add(self)

    def claim(self, x: Any, label: int, radius: float) -> Promise:
        """Promise `label` within `radius` of x, as far as earlier promises allow it. One atomic step.

        x: d numbers, float32 or exactly representable in float32. label ≥ 0. 0 ≤ radius < inf. The granted radius is
        the largest float64 that fits: closed balls of different classes stay disjoint in exact arithmetic. Repeating
        a claim (same input, class and radius) returns the same promise and stores nothing.
        """
        point, label, radius = self._check_point(x), _check_label(label), _check_radius(radius)
        with self._guard():
            self._prepare()
            with self._log.writing(self._number):
                self._catch_up()
                earlier = self._find_repeated(point, label, radius)
                if earlier is not None:
                    return self._to_promise(earlier)
                settled = self._settle(point, label, radius)
                claim = Claim(
                    position=len(self._index) + 1,
                    centre=point,
                    label=settled.label,
                    radius=settled.radius,
                    asked_label=label,
                    asked_radius=radius,
                    settlement=settled.settlement,
                    claimed_at=datetime.now(UTC),
                )
                row = encode(claim, previous=self._indexed.entry)
                self._log.append(self._number, row)
            # The index holds committed claims only. If this line is not reached, the next catch-up reads the claim.
            self._add_to_index([row])
            self._centres.add(row.position, point)
            return self._to_promise(decode(row, dimension=self.key.dimension))

    def lookup(self, x: Any) -> Promise | None:
        """Return the promise that x lies in, the one that reaches farthest around x; None if there is none.

        Nothing is claimed. The radius is what remains of the region around x, rounded down.
        """
        point = self._check_point(x)
        with self._guard():
            self._prepare()
            self._catch_up()
            near = self._find_nearest(point, self._index.bound_gaps(point), limit=0.0)
            found = find_deepest(point, near, norm=self.key.norm)
            if found is None:
                return None
            entry = self._log.entries(self._number, [found.position])[found.position]
        return Promise(
            label=found.label,
            radius=found.remaining,
            position=found.position,
            settlement=Settlement.INHERITED,
            asked_label=None,
            asked_radius=0.0,
            memory=self.identity,
            entry=entry,
        )

    def missing(self, promises: Sequence[Promise]) -> list[Promise]:
        """Return the promises that are not in the log: this is another memory, or it has lost them."""
        with self._guard():
            stored = self._log.entries(self._number, sorted({promise.position for promise in promises}))
        return [promise for promise in promises if stored.get(promise.position) != promise.entry]

    def __len__(self) -> int:
        """The number of stored claims."""
        return self._reader.head().claims

    def claims(self) -> Iterator[Claim]:
        """Iterate over all claims in the order of their positions. They are read in batches during the iteration."""
        after = 0
        while rows := self._reader.read(after=after, at_most=self._batch_rows):
            for row in rows:
                yield decode(row, dimension=self.key.dimension)
            after = rows[-1].position

    def audit(self, *, progress: Callable[[int, int], None] | None = None) -> Audit:
        """Check the stored claims against each other, without the index. progress: see `audit_claims`."""
        return audit_claims(self._reader, key=self.key, progress=progress)

    def probe(self) -> str | None:
        """The stored answers of the model whose regions these are; None if there are none."""
        with self._guard():
            return self._log.probe(self.key.digest)

    def keep_probe(self, probe: str) -> None:
        """Store the answers of the model, unless there are some already."""
        with self._guard():
            self._log.keep_probe(self.key.digest, probe)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._log.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise RegionMemoryError(f"the memory in {self.location} was closed")
            yield

    def _settle(self, point: Centre, label: int, radius: float) -> Settled:
        gaps = self._index.bound_gaps(point)
        inside = find_deepest(point, self._find_nearest(point, gaps, limit=0.0), norm=self.key.norm)
        if inside is not None and inside.label != label:
            return overrule(inside, radius=radius)
        gaps[self._index.labels == label] = np.inf
        room = measure_room(point, self._find_nearest(point, gaps, limit=radius), norm=self.key.norm)
        if room < 0:
            raise RegionMemoryError(
                f"the memory in {self.location} contradicts itself: regions of different classes overlap near this "
                "input. Nothing was claimed; audit the memory"
            )
        return grant(label, radius=radius, room=room)

    def _find_nearest(self, point: Centre, gaps: FloatArray, *, limit: float) -> list[Neighbour]:
        return find_smallest_gaps(
            point,
            gaps=gaps,
            index=self._index,
            limit=limit,
            centres=lambda indices: self._centres.get(indices + 1),
            norm=self.key.norm,
        )

    def _find_repeated(self, point: Centre, label: int, radius: float) -> Claim | None:
        """Return the stored claim of the same input, class and radius; None if there is none."""
        position = self._asked.get(hash((point.tobytes(), label, radius)))
        for row in [] if position is None else self._log.fetch(self._number, [position]):
            claim = decode(row, dimension=self.key.dimension)
            if np.array_equal(claim.centre, point) and (claim.asked_label, claim.asked_radius) == (label, radius):
                return claim
        return None

    def _to_promise(self, claim: Claim) -> Promise:
        return Promise(
            label=claim.label,
            radius=claim.radius,
            position=claim.position,
            settlement=claim.settlement,
            asked_label=claim.asked_label,
            asked_radius=claim.asked_radius,
            memory=self.identity,
            entry=claim.entry,
        )

    def _prepare(self) -> None:
        """Do slow work before a transaction starts, so that other writers do not wait for it.

        Skipped if it was done a moment ago, because few claims can have been added since.
        """
        now = time.monotonic()
        if len(self._index) and now < self._next_look:
            return
        self._next_look = now + _SECONDS_BETWEEN_LOOKS
        stored = self._log.head(self._number).claims
        self._fit_if_grown(stored)
        if stored > len(self._index) + _FAR_BEHIND:
            self._catch_up()

    def _catch_up(self) -> None:
        """Read and check the claims appended since the last call, if the log is still the same one.

        The head is read first. Claims are committed together with it, so all claims up to it must exist.
        """
        head = self._log.head(self._number)
        self._check_same_log(head)
        while self._indexed.claims < head.claims:
            after = self._indexed.claims or BEFORE_ALL
            at_most = min(self._batch_rows, head.claims - self._indexed.claims)
            rows = self._log.read(self._number, after=after, at_most=at_most)
            if not rows:
                raise damage_error(
                    self.location, f"claim {self._indexed.claims + 1} is missing; {head.claims} claims were made"
                )
            self._add_to_index(rows)
        if self._indexed != head:
            raise damage_error(
                self.location, f"the entry of claim {head.claims} differs from the entry stored as the end of the log"
            )

    def _check_same_log(self, head: Head) -> None:
        """Refuse a log that was replaced or set back since this process has read it."""
        position, entry = self._seen
        if self._log.entries(self._number, [position]).get(position) != entry:
            raise RegionMemoryError(
                f"{self.location} has changed: claim {position}, which this process has read, is missing or another "
                "one. The memory was replaced or set back to an earlier state, and promises are lost. Nothing is "
                "answered from it; open it again if this was intended"
            )
        if head.claims < position:
            raise damage_error(
                self.location, f"its head counts {head.claims} claims, but this process has read {position}"
            )

    def _add_to_index(self, rows: Sequence[Row]) -> None:
        end = advance(self._indexed, rows, location=self.location)
        self._index.add(*decode_balls(rows, dimension=self.key.dimension))
        for row in rows:
            self._asked.setdefault(hash((row.centre, row.asked_label, row.asked_radius)), row.position)
        self._indexed = end
        if end.claims >= self._seen.claims:
            self._seen = end

    def _fit_if_grown(self, stored: int) -> None:
        """Fit new directions if there are many more claims than at the last fit. All sketches are computed again."""
        if stored < max(_FIRST_FIT, _GROWTH * self._fitted_at):
            return
        positions = draw_sample(claims=stored, dimension=self.key.dimension, seed=stored)
        sample = CentreCache(self._reader, dimension=self.key.dimension).get(positions)
        self._index, self._fitted_at = BallIndex(Sketcher.fit(sample)), stored
        self._indexed = Head(0, self.identity)

    def _check_point(self, x: Any) -> Centre:
        """Return x as (d,) float32 without negative zeros, so that equal points have equal bytes."""
        given = np.asarray(x)
        if given.size != self.key.dimension or given.dtype.kind not in "fiub":
            raise InputError(
                f"this memory holds inputs of {self.key.dimension} numbers; got an input of shape {given.shape} and "
                f"type {given.dtype}"
            )
        with np.errstate(over="ignore"):
            point = given.astype(np.float32).reshape(-1) + np.float32(0)
        if not np.isfinite(point).all():
            raise InputError("an input with NaN, infinite or too large entries cannot be claimed or looked up")
        if given.dtype != np.float32 and not np.array_equal(point.astype(given.dtype), given.reshape(-1)):
            raise InputError(
                f"got an input of type {given.dtype} that float32 cannot hold exactly; round it to float32 first, and "
                "classify the rounded input"
            )
        return point


def _check_label(label: int) -> int:
    try:
        integer = operator.index(label)
    except TypeError:
        integer = -1
    if not 0 <= integer < 2**63:
        raise InputError(f"a class must be a whole number from 0; got {label!r}")
    return integer


def _check_radius(radius: float) -> float:
    value = float(radius)
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"a radius must be a finite number from 0; got {radius!r}")
    return value + 0.0


_live: weakref.WeakSet[RegionMemory] = weakref.WeakSet()
_locked: list[RegionMemory] = []


def _before_fork() -> None:
    """Wait for other threads and close all connections.

    With a SQLite connection that is open during a fork, the child would believe that it holds locks which the system
    does not pass on. Claims acknowledged by the child could then be written to a file that is no longer the memory's.
    """
    for memory in sorted(_live, key=id):
        memory._lock.acquire()
        _locked.append(memory)
        memory._log.disconnect()


def _after_fork() -> None:
    while _locked:
        _locked.pop()._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
