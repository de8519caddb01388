"""A job run by the local engine, whole or cut short."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

from smoothcert.records import CertifiedPoint, Promise
from smoothcert.runs.jobs import Job, prepare
from smoothcert.runs.loop import run_study


def timeless(points: list[CertifiedPoint]) -> list[CertifiedPoint]:
    """The points without what differs between two runs that found the same: seconds, and which log keeps promises."""
    return [dataclasses.replace(point, seconds=0.0, promise=_anywhere(point.promise)) for point in points]


def _anywhere(promise: Promise | None) -> Promise | None:
    return None if promise is None else dataclasses.replace(promise, memory="", entry="")


def finished(job: Job, out: Path, *, stop_after: int | None = None) -> list[CertifiedPoint]:
    """Run to the end, or until this many shards are stored."""
    stop = threading.Event()
    shards = 0

    def on_shard(_: list[CertifiedPoint]) -> None:
        nonlocal shards
        shards += 1
        if shards == stop_after:
            stop.set()

    with prepare(job, out) as run:
        run_study(run.study, run.indices, run.store, stop=stop, on_shard=on_shard)
        return timeless(run.store.points())
