"""Runs on disks that are full or failing: one message that names the file and says how to continue."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from failing_disk import run_on_failing_disk, small_disk
from run_specs import finish_run, make_spec
from smoothcert.errors import RunError
from smoothcert.runs.run_database import RESULTS
from smoothcert.runs.store import RunStore

SETTINGS = {
    "task": "certify", "model": "sample_models:digits_by_brightness", "data": "digits", "sigma": 0.25, "n0": 10,
    "n": 100, "alpha": 0.001, "seed": 3, "batch": 100, "workers": 1, "num_classes": 10,
}  # fmt: skip


def test_a_run_on_a_full_disk_says_how_to_continue(tmp_path: Path) -> None:
    # 64 kB hold the empty tables and the manifest, and no shard.
    with small_disk(tmp_path / "disk", 64) as disk:
        with pytest.raises(RunError, match=rf"{disk}/run/{RESULTS} cannot be used: .*make room on the disk.*resume"):
            finish_run(make_spec(**SETTINGS, max_inputs=40), disk / "run")
        with RunStore.open(disk / "run") as store:
            assert store.points() == []


READ = """
import json, sys
from pathlib import Path

from failing_disk import count_calls, failing_below
from smoothcert.errors import SmoothcertError
from smoothcert.runs.store import RunStore

run = Path(sys.argv[1])
for number in range(1, 1000):
    message = None
    with failing_below(run, first=number, count=1, error=int(sys.argv[2]), reads=True):
        try:
            with RunStore.open(run) as store:
                store.points(), store.points_of([0])
        except SmoothcertError as problem:
            message = str(problem)
        calls = count_calls()
    print(json.dumps(message))
    if calls < number:
        break
"""


@pytest.mark.slow
def test_every_read_that_may_fail(tmp_path: Path) -> None:
    """An error of the disk ends the transaction. It was hidden by "cannot rollback - no transaction is active"."""
    finish_run(make_spec(**SETTINGS, max_inputs=4), tmp_path / "run")
    found = run_on_failing_disk(READ, tmp_path / "run", errno.ENODEV, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    messages = [json.loads(line) for line in found.stdout.splitlines()]
    told = [message for message in messages if message is not None]
    assert len(told) > 10
    assert messages[-1] is None
    assert not any("rollback" in message for message in told)
    assert all(str(tmp_path / "run") in message for message in told)
    assert any("the disk may be full, read-only or failing" in message for message in told)
