"""Eight processes claim at once and are killed at random: no acknowledged claim is lost, no regions overlap."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import claiming_worker
from smoothcert.memory import Claim, open_existing
from smoothcert.records import Settlement

PROCESSES, CLAIMS, DIMENSION, KILLS = 8, 12_000, 12, 12


def start_worker(location: str, folder: Path, seed: int, count: int) -> subprocess.Popen[bytes]:
    arguments = [location, str(folder / f"{seed}.acknowledged"), str(seed), str(count), str(DIMENSION)]
    program = [sys.executable, claiming_worker.__file__, *arguments]
    return subprocess.Popen(program, env={**os.environ, "OMP_NUM_THREADS": "1"})


def run_workers(location: str, folder: Path, *, count: int, kills: int) -> int:
    """Run until every worker has made all its claims. Some are killed and restarted. Returns the kills not made."""
    chance = random.Random(0)
    workers = [start_worker(location, folder, seed, count) for seed in range(PROCESSES)]
    try:
        while any(worker.poll() is None for worker in workers):
            time.sleep(chance.uniform(0.1, 0.8))
            victim = chance.randrange(PROCESSES)
            if kills and workers[victim].poll() is None:
                kills -= 1
                workers[victim].send_signal(signal.SIGKILL)
                workers[victim].wait()
                workers[victim] = start_worker(location, folder, victim, count)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert [worker.returncode for worker in workers] == [0] * PROCESSES
    return kills


def agrees(entry: dict[str, object], claim: Claim) -> bool:
    """Whether the acknowledged claim equals the stored one."""
    return (
        entry["position"] == claim.position
        and entry["label"] == claim.label
        and entry["radius"] == claim.radius
        and entry["asked_label"] == claim.asked_label
        and entry["asked_radius"] == claim.asked_radius
        and entry["settlement"] == claim.settlement.name
    )


def test_eight_processes_killed_at_random_lose_nothing(fresh_location: str, tmp_path: Path) -> None:
    count = CLAIMS // PROCESSES
    # On a fast machine the workers may end before the last ones.
    assert run_workers(fresh_location, tmp_path, count=count, kills=KILLS) <= KILLS // 2
    with open_existing(fresh_location) as memory:
        stored = {claim.position: claim for claim in memory.claims()}
        # Every claim was made once, although killed workers made some of theirs twice.
        assert sorted(stored) == list(range(1, CLAIMS + 1))
        for seed in range(PROCESSES):
            wanted = claiming_worker.inputs(seed, count, DIMENSION)
            entries = claiming_worker.acknowledged(tmp_path / f"{seed}.acknowledged")
            assert {entry["number"] for entry in entries} == set(range(count))
            for entry in entries:
                claim = stored[entry["position"]]
                x, label, radius = wanted[entry["number"]]
                assert agrees(entry, claim)
                assert np.array_equal(claim.centre, x)
                assert (claim.asked_label, claim.asked_radius) == (label, radius)
        settled = Counter(claim.settlement for claim in stored.values())
        # About 6300, 5600 and 90; the order of the claims differs between runs.
        assert all(settled[kind] > 40 for kind in (Settlement.WHOLE, Settlement.CUT, Settlement.OVERRULED)), settled
        audit = memory.audit()
        assert audit.problems == ()
        assert (audit.consistent, audit.claims) == (True, CLAIMS)
        strangers = np.random.default_rng(99).normal(size=(50, DIMENSION)).astype(np.float32) * np.float32(0.5)
        # Whether a stranger lies in a region depends on the order of the claims; a centre always does.
        queries = np.concatenate([strangers, [claim.centre for claim in list(stored.values())[::500]]])
        answers = [memory.lookup(x) for x in queries]
        # A lookup of a centre always gives at least its class and radius.
        for claim in list(stored.values())[::400]:
            promise = memory.lookup(claim.centre)
            assert promise is not None
            assert promise.label == claim.label
            assert promise.radius >= claim.radius
    with open_existing(fresh_location) as restarted:
        assert [restarted.lookup(x) for x in queries] == answers
    assert sum(answer is not None for answer in answers) > 0
