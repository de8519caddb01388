"""RegionMemory: what a smoothed classifier has promised, kept in a database, so that it never contradicts itself.

A stored ball is closed, {y : d(x, y) ≤ r}, with the points' float32 entries as exact real numbers. Balls of different
classes are disjoint: d > r + r' in exact arithmetic. Every claim is decided and appended inside one transaction that
excludes all other writers, and is returned only when the database has committed it.

Opening a memory proves that its log is complete: the chain of entries is computed again, from the identity to the head,
which is stored apart from the claims. What is appended later continues the chain in the same way.
"""

from __future__ import annotations

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
from smoothcert.memory.centres import CentreShelf
from smoothcert.memory.decision import Neighbour, Settled, deepest, grant, overrule, room
from smoothcert.memory.keys import MemoryKey
from smoothcert.memory.log import (
    BEFORE_ALL,
    Centre,
    Claim,
    ClaimLog,
    Head,
    LogReading,
    Row,
    StoredKey,
    advance,
    balls_of,
    claim_after_the_end,
    damaged,
    decode,
    encode,
    rows_at_once,
)
from smoothcert.memory.nearest import with_smallest_gap
from smoothcert.memory.search import BallIndex, Sketcher, gaps_from_below, sample_size
from smoothcert.records import FloatArray, Promise, Settlement

_FIRST_FIT = 256
"""Below this many claims all of them are measured."""
_GROWTH = 4
"""New directions are fitted when there are this many times more claims than the last time."""
_FAR_BEHIND = 64
"""So many claims of others may be read inside a transaction."""
_SECONDS_BETWEEN_LOOKS = 0.25


class RegionMemory:
    """The regions promised under one key. Made by `open_memory`; a context manager.

    All claims are read when it is made, and a log that is not complete is a `DamagedMemoryError`.

    Several threads may use one; several processes open the same database each for itself. A process that forks keeps
    it on both sides: connections are closed before the fork and opened again when they are needed.
    """

    def __init__(self, log: ClaimLog, key: MemoryKey, stored: StoredKey) -> None:
        self.key = key
        self.location = log.location
        self.identity = stored.identity
        self._log = log
        self._number = stored.number
        self._lock = threading.RLock()
        self._closed = False
        self._at_once = rows_at_once(key.dimension)
        self._shelf = CentreShelf(log, stored.number, dimension=key.dimension)
        # The farthest this process has seen the log: by it the log is known again.
        self._seen = Head(0, stored.identity)
        # The index, and the head of the log that is in it: all entries up to there were computed again.
        self._index, self._proved = BallIndex(), Head(0, stored.identity)
        self._fitted_at = 0
        self._next_look = 0.0
        # Claims by what was asked, for those that come again; a hash that two share costs a repetition, no more.
        self._asked: dict[int, int] = {}
        self._prepare()
        self._catch_up()
        stray = claim_after_the_end(LogReading(log, stored), self._proved)
        if stray is not None:
            raise damaged(
                log.location, f"claim {stray} comes after the end of the log, which is at claim {self._proved.claims}"
            )
        _live.add(self)

    def claim(self, x: Any, label: int, radius: float) -> Promise:
        """Promise `label` within `radius` of x, as far as earlier promises allow it. One atomic step.

        x: d numbers, float32 or exactly representable in it. label ≥ 0. 0 ≤ radius < inf. The radius granted is the
        largest float64 that fits: closed balls of different classes stay disjoint in exact arithmetic. A claim that
        repeats an earlier one, of the same input, class and radius, gets the same promise and is not stored again.
        """
        point, label, radius = self._point(x), _checked_label(label), _checked_radius(radius)
        with self._lock:
            self._check_open()
            self._prepare()
            with self._log.writing(self._number):
                self._catch_up()
                earlier = self._repeated(point, label, radius)
                if earlier is not None:
                    return self._promise(earlier)
                row = encode(self._settled_claim(point, label, radius), previous=self._proved.entry)
                self._log.append(self._number, row)
            # Only what is committed is known to the index. If this line is not reached, the next catch-up reads it.
            self._learn([row])
            self._shelf.keep(row.position, point)
            return self._promise(decode(row, dimension=self.key.dimension))

    def lookup(self, x: Any) -> Promise | None:
        """The promise x already lies in, the one that reaches farthest around x; None if it lies in none.

        Nothing is claimed. The radius is what remains of the region around x, rounded down.
        """
        point = self._point(x)
        with self._lock:
            self._check_open()
            self._prepare()
            self._catch_up()
            found = deepest(point, self._nearest(point, self._gaps(point), limit=0.0), norm=self.key.norm)
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
        """Those of these promises that are not in the log: it is another memory, or has lost them."""
        with self._lock:
            self._check_open()
            kept = self._log.entries(self._number, sorted({promise.position for promise in promises}))
        return [promise for promise in promises if kept.get(promise.position) != promise.entry]

    def __len__(self) -> int:
        """How many claims are stored."""
        with self._lock:
            self._check_open()
            return self._log.head(self._number).claims

    def claims(self) -> Iterator[Claim]:
        """All claims in the order of their positions, as they are in the database when they are read."""
        after = 0
        while True:
            rows = _Unhurried(self).read(after=after, at_most=self._at_once)
            if not rows:
                return
            for row in rows:
                yield decode(row, dimension=self.key.dimension)
            after = rows[-1].position

    def audit(self, *, progress: Callable[[int, int], None] | None = None) -> Audit:
        """Check the stored claims against each other, without the index. progress: called with (done, in all)."""
        return audit_claims(_Unhurried(self), key=self.key, progress=progress)

    def probe(self) -> str | None:
        """What was kept of the answers of the model whose regions these are; None where nothing was."""
        with self._lock:
            self._check_open()
            return self._log.probe(self.key.digest)

    def keep_probe(self, probe: str) -> None:
        """Keep that, unless something is kept already."""
        with self._lock:
            self._check_open()
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

    def _settled_claim(self, point: Centre, label: int, radius: float) -> Claim:
        settled = self._settle(point, label, radius)
        return Claim(
            position=len(self._index) + 1,
            centre=point,
            label=settled.label,
            radius=settled.radius,
            asked_label=label,
            asked_radius=radius,
            settlement=settled.settlement,
            claimed_at=datetime.now(UTC),
        )

    def _settle(self, point: Centre, label: int, radius: float) -> Settled:
        gaps = self._gaps(point)
        inside = deepest(point, self._nearest(point, gaps, limit=0.0), norm=self.key.norm)
        if inside is not None and inside.label != label:
            return overrule(inside, radius=radius)
        gaps[self._index.labels == label] = np.inf
        others = self._nearest(point, gaps, limit=radius)
        free = room(point, others, norm=self.key.norm)
        if free < 0:
            raise RegionMemoryError(
                f"the memory in {self.location} contradicts itself: regions of different classes overlap near this "
                "input. Nothing was claimed; audit it"
            )
        return grant(label, radius=radius, room=free)

    def _gaps(self, point: Centre) -> FloatArray:
        return gaps_from_below(self._index.distances_from_below(point), self._index.radii)

    def _nearest(self, point: Centre, gaps: FloatArray, *, limit: float) -> list[Neighbour]:
        found = with_smallest_gap(
            point,
            gaps=gaps,
            radii=self._index.radii,
            limit=limit,
            centres=lambda indices: self._shelf.get(indices + 1),
            norm=self.key.norm,
        )
        labels, radii = self._index.labels, self._index.radii
        return [Neighbour(index + 1, int(labels[index]), float(radii[index]), centre) for index, centre in found]

    def _repeated(self, point: Centre, label: int, radius: float) -> Claim | None:
        """The stored claim of the same input, class and radius, if there is one."""
        position = self._asked.get(hash((point.tobytes(), label, radius)))
        if position is None:
            return None
        for row in self._log.fetch(self._number, [position]):
            claim = decode(row, dimension=self.key.dimension)
            if np.array_equal(claim.centre, point) and (claim.asked_label, claim.asked_radius) == (label, radius):
                return claim
        return None

    def _promise(self, claim: Claim) -> Promise:
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
        """Do what takes long before a transaction, so that others do not wait for it.

        Looked at once in a while only: little is appended in a second, by people who wait for the disk.
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
        """Read the claims appended since this process last looked, if it is the same log still, and prove them.

        The head is read first. Claims are committed together with it, so all up to there must be found, whatever is
        appended meanwhile.
        """
        head = self._log.head(self._number)
        self._check_same_log(head)
        while self._proved.claims < head.claims:
            after = self._proved.claims or BEFORE_ALL
            at_most = min(self._at_once, head.claims - self._proved.claims)
            rows = self._log.read(self._number, after=after, at_most=at_most)
            if not rows:
                raise damaged(
                    self.location, f"claim {self._proved.claims + 1} is missing; {head.claims} claims were made"
                )
            self._learn(rows)
        if self._proved != head:
            raise damaged(
                self.location, f"its {head.claims} claims do not end with the entry that the end of the log must have"
            )

    def _check_same_log(self, head: Head) -> None:
        """The index is good for the log it was made from; a log that was put back, or replaced, is another one."""
        position, entry = self._seen
        if self._log.entries(self._number, [position]).get(position) != entry:
            raise RegionMemoryError(
                f"{self.location} is not the memory it was: claim {position}, which this process has seen, is no "
                "longer there, or another is in its place. It was replaced, or put back to an earlier state, and "
                "promises are lost. Nothing is answered from it; open it again if that was meant"
            )
        if head.claims < position:
            raise damaged(
                self.location, f"it is said to have {head.claims} claims, but this process has seen {position}"
            )

    def _learn(self, rows: Sequence[Row]) -> None:
        proved = advance(self._proved, rows, location=self.location)
        self._index.add(*balls_of(rows, dimension=self.key.dimension))
        for row in rows:
            self._asked.setdefault(hash((row.centre, row.asked_label, row.asked_radius)), row.position)
        self._proved = proved
        if proved.claims >= self._seen.claims:
            self._seen = proved

    def _fit_if_grown(self, stored: int) -> None:
        """Forget all sketches for better ones, if there is much more to fit them to than the last time."""
        if stored < max(_FIRST_FIT, _GROWTH * self._fitted_at):
            return
        size = sample_size(claims=stored, dimension=self.key.dimension)
        drawn = np.sort(np.random.default_rng(stored).choice(stored, size=size, replace=False)) + 1
        sample = CentreShelf(self._log, self._number, dimension=self.key.dimension).get(drawn)
        self._index, self._fitted_at = BallIndex(Sketcher.fit(sample)), stored
        self._proved = Head(0, self.identity)

    def _point(self, x: Any) -> Centre:
        """(d,) float32 with no negative zeros, so that equal points have equal bytes."""
        given = np.asarray(x)
        if given.size != self.key.dimension or given.dtype.kind not in "fiub":
            raise InputError(
                f"an input of shape {given.shape} and type {given.dtype} was given; this memory holds inputs of "
                f"{self.key.dimension} numbers"
            )
        with np.errstate(over="ignore"):
            point = given.astype(np.float32).reshape(-1) + np.float32(0)
        if not np.isfinite(point).all():
            raise InputError("an input with NaN, infinite or too large entries cannot be claimed or looked up")
        if given.dtype != np.float32 and not np.array_equal(point.astype(given.dtype), given.reshape(-1)):
            raise InputError(
                f"an input of type {given.dtype} was given that float32 cannot hold exactly; round it to float32 first "
                "and classify what was rounded"
            )
        return point

    def _check_open(self) -> None:
        if self._closed:
            raise RegionMemoryError(f"the memory in {self.location} was closed")


class _Unhurried:
    """The log of a memory for those who read much of it: the lock is taken for each request only."""

    def __init__(self, memory: RegionMemory) -> None:
        self._memory = memory

    @property
    def identity(self) -> str:
        return self._memory.identity

    def head(self) -> Head:
        with self._memory._lock:
            self._memory._check_open()
            return self._memory._log.head(self._memory._number)

    def read(self, *, after: int, at_most: int) -> list[Row]:
        with self._memory._lock:
            self._memory._check_open()
            return self._memory._log.read(self._memory._number, after=after, at_most=at_most)

    def fetch(self, positions: Sequence[int]) -> list[Row]:
        with self._memory._lock:
            self._memory._check_open()
            return self._memory._log.fetch(self._memory._number, positions)


def _checked_label(label: int) -> int:
    try:
        whole = operator.index(label)
    except TypeError:
        whole = -1
    if not 0 <= whole < 2**63:
        raise InputError(f"a class is a whole number from 0; {label!r} was claimed")
    return whole


def _checked_radius(radius: float) -> float:
    value = float(radius)
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"a radius is a finite number from 0; {radius!r} was claimed")
    return value + 0.0


_live: weakref.WeakSet[RegionMemory] = weakref.WeakSet()
_held: list[RegionMemory] = []


def _before_fork() -> None:
    """Finish what other threads are doing, and close all connections.

    A SQLite connection that is open in the parent would make the child believe it holds locks which the system did not
    pass on to it: claims acknowledged there could then be written to a file that is no longer the memory's.
    """
    for memory in sorted(_live, key=id):
        memory._lock.acquire()
        _held.append(memory)
        memory._log.disconnect()


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
