"""Memories on disks that are full, read-only or failing: one message that names the file, at once, and nothing lost."""

from __future__ import annotations

import errno
import json
import sqlite3
from pathlib import Path

import pytest

from cli_runner import invoke
from damaged_memories import CLAIMS, KEY, centre, filled_memory
from failing_disk import run_on_failing_disk, small_disk
from smoothcert.cli.main import app
from smoothcert.errors import RegionMemoryError
from smoothcert.memory import open_existing, open_memory, sqlite_log


@pytest.mark.parametrize("kilobytes", [64, 112, 128, 136, 144, 200])
def test_a_memory_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kilobytes: int) -> None:
    """It is created up to some point, then an error names the file. It was waited for as if it were locked."""
    monkeypatch.setattr(sqlite_log.time, "sleep", refuse_to_wait)
    with small_disk(tmp_path / "disk", kilobytes) as disk:
        place = disk / "memory.sqlite"
        acknowledged = 0

        def claim_until_it_fails() -> None:
            nonlocal acknowledged
            with open_memory(place, KEY) as memory:
                for number in range(1, 200):
                    memory.claim(centre(number), 0, 1.0)
                    acknowledged += 1

        with pytest.raises(RegionMemoryError, match=rf"{place} cannot be written.*(disk|space)"):
            claim_until_it_fails()
        whole = Path(tmp_path / "copy.sqlite")
        for suffix in ("", "-wal"):
            if (part := disk / f"memory.sqlite{suffix}").exists():
                whole.with_name(whole.name + suffix).write_bytes(part.read_bytes())
        with open_memory(whole, KEY) as memory:
            assert len(memory) >= acknowledged


def refuse_to_wait(_: float) -> None:
    raise AssertionError("an error of the disk was taken for a lock")


SCAN = """
import errno, json, shutil, sys
from pathlib import Path

from damaged_memories import KEY, centre
from failing_disk import count_calls, failing_below
from smoothcert.errors import SmoothcertError
from smoothcert.memory import open_memory, sqlite_log

sqlite_log._SECONDS_TO_WAIT = 1e9  # whoever waits for a disk never ends
folder, error, count, reads = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), bool(int(sys.argv[4]))
place = folder / "disk" / "memory.sqlite"
first = 0
while True:
    first += 1
    shutil.rmtree(place.parent, ignore_errors=True)
    place.parent.mkdir()
    acknowledged, message = 0, None
    with failing_below(place.parent, first=first, count=count, error=error, reads=reads):
        try:
            with open_memory(place, KEY) as memory:
                for number in range(1, 4):
                    memory.claim(centre(number), 0, 1.0)
                    acknowledged += 1
        except SmoothcertError as problem:
            message = str(problem)
        calls = count_calls()
    with open_memory(place, KEY) as memory:
        print(json.dumps([message, acknowledged, len(memory)]))
    if calls < first:
        break
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "count", "reads"),
    [
        (errno.ENOSPC, 10**6, False),
        (errno.EROFS, 10**6, False),
        (errno.EIO, 1, True),
    ],
    ids=["full", "read-only", "one failure"],
)
def test_every_call_that_may_fail(tmp_path: Path, error: int, count: int, reads: bool) -> None:
    """From each system call on, the disk fails while a memory is created and claimed from."""
    found = run_on_failing_disk(SCAN, tmp_path, error, count, int(reads), folder=tmp_path)
    assert found.returncode == 0, found.stderr
    outcomes = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(outcomes) > 40
    assert outcomes[-1] == [None, 3, 3]
    assert sum(message is not None for message, _, _ in outcomes) > 20
    for message, acknowledged, stored in outcomes:
        # A commit that failed may have been stored.
        assert acknowledged <= stored <= acknowledged + 1
        assert message is None or str(tmp_path / "disk" / "memory.sqlite") in message
        assert message is None or stored == acknowledged or "may be stored or not" in message


def test_a_locked_database_is_still_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switching to WAL does not wait by itself: a lock is tried again until it is free."""
    path = filled_memory(tmp_path / "memory.sqlite")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM claims").fetchone()
    waits = []

    def free_the_lock(seconds: float) -> None:
        waits.append(seconds)
        other.close()

    monkeypatch.setattr(sqlite_log.time, "sleep", free_the_lock)
    monkeypatch.setattr(sqlite_log, "_SECONDS_TO_WAIT", 0.0)
    # The deadline of the loop is what _SECONDS_TO_WAIT is when it begins; SQLite itself must not wait here.
    monkeypatch.setattr(sqlite_log.time, "monotonic", lambda: 0.0)
    with open_existing(path) as memory:
        assert len(memory) == CLAIMS
    assert waits


def test_a_recovery_on_a_full_disk_names_the_new_file(tmp_path: Path) -> None:
    old = filled_memory(tmp_path / "old.sqlite")
    with small_disk(tmp_path / "disk", 240) as disk:
        with pytest.raises(RegionMemoryError, match=rf"nothing was recovered to {disk / 'new.sqlite'}: .*(disk|space)"):
            invoke(app, "memory", "recover", old, disk / "new.sqlite")
        assert list(disk.iterdir()) == []


def test_names_that_no_disk_takes(tmp_path: Path) -> None:
    with pytest.raises(RegionMemoryError, match="File name too long"):
        open_memory(tmp_path / ("m" * 300), KEY)
