"""How often the model itself was asked again is kept with a run, and a run whose model fails that is spoilt."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from cli_runner import invoke
from run_specs import finish_run, make_spec
from smoothcert.cli.main import app
from smoothcert.errors import InterruptedRunError, ModelError, ModelMismatchError, RunError
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.store import RunStore
from smoothcert.spec import RunSpec
from verified_runs import MODEL, make_run

LEAST = 2000


def spec(**changes) -> RunSpec:
    settings = {
        "task": "certify", "model": MODEL, "data": "digits", "sigma": 0.25, "n0": 100, "n": 2000, "alpha": 0.001,
        "seed": 3, "batch": 64, "skip": 60, "max_inputs": 6, "certificate": "gaussian",
    }  # fmt: skip
    return make_spec(**{**settings, **changes})


def counts(out: Path):
    with RunStore.open(out) as store:
        return store.check_counts()


@pytest.mark.parametrize(
    "changes",
    [{}, {"batch": 4096}, {"workers": 1}, {"decide": "0.1"}, {"task": "predict", "n0": None, "certificate": None}],
    ids=["plain", "batch", "workers", "decide", "predict"],
)
def test_a_run_asks_at_least_two_thousand_times(tmp_path, changes):
    finish_run(spec(**changes), tmp_path / "run")
    with RunStore.open(tmp_path / "run") as store:
        samples = sum(store.samples().values())
    found = counts(tmp_path / "run")
    assert found.drawn >= samples
    assert found.asked >= min(LEAST, found.drawn)
    assert found.ties <= 2


def test_a_run_that_is_interrupted_and_resumed_asks_as_often(tmp_path):
    with pytest.raises(InterruptedRunError):
        finish_run(spec(), tmp_path / "run", stop_after=2)
    before = counts(tmp_path / "run")
    assert 0 < before.asked < LEAST
    finish_run(spec(), tmp_path / "run")
    after = counts(tmp_path / "run")
    assert LEAST <= after.asked <= LEAST + 20
    assert after.drawn >= 6 * 2100


def test_verify_says_how_often_and_what_that_shows(tmp_path):
    finish_run(spec(), tmp_path / "run")
    told = invoke(app, "verify", tmp_path / "run").output
    assert "the model itself was asked again about 2,00" in told
    assert "none differed" in told
    assert "fewer than 0.34" in told  # 1 - 0.001^(1/2000) = 0.3448 %, rounded up


def test_counts_are_sealed(tmp_path):
    run = make_run("votes", tmp_path)
    with closing(sqlite3.connect(run / "results.sqlite")) as connection, connection:
        connection.execute("UPDATE model_checks SET ties = ties + 1")
    assert invoke(app, "verify", run).exit_code == 1


class Flipping:
    """A base classifier of the user's own that turns its answers round after so many rows."""

    num_classes, input_shape, digest, description, backend, concurrency = 10, (1, 8, 8), "flips", "flips", "numpy", 1

    def __init__(self, after: int) -> None:
        self._left = after

    def classify(self, batch):
        self._left -= len(batch)
        votes = (batch.reshape(len(batch), -1)[:, :32].sum(axis=1) > 4).astype(np.int64)
        return votes if self._left > 0 else 1 - votes

    def prepare_thread(self) -> None: ...
    def release_threads(self) -> None: ...


def flipping_run(out: Path, *, after: int) -> None:
    with prepare_run(spec(), out) as run:
        run.smoothed._classifier = Flipping(after)
        execute_run(run)


@pytest.mark.parametrize("after", [2000, 9000])
def test_a_run_whose_model_changes_is_spoilt(tmp_path, after):
    out = tmp_path / "run"
    with pytest.raises(ModelMismatchError):
        flipping_run(out, after=after)
    told = invoke(app, "verify", out, "--unfinished")
    assert told.exit_code == 1
    assert "must not be used" in told.output
    with pytest.raises(RunError, match="must not be used"):
        finish_run(spec(), out)


@pytest.mark.parametrize("verb", ["table", "report", "recertify", "attack"])
def test_nothing_is_made_of_a_spoilt_run(tmp_path, verb):
    out = tmp_path / "run"
    with pytest.raises(ModelMismatchError):
        flipping_run(out, after=9000)
    further = {
        "recertify": ("--alpha", 0.01, "--out", tmp_path / "new"),
        "report": ("--output", tmp_path / "page.html"),
    }
    with pytest.raises(RunError, match="must not be used"):
        invoke(app, verb, out, *further.get(verb, ()))


def test_a_memory_keeps_the_probe_of_its_model(tmp_path):
    finish_run(spec(memory=str(tmp_path / "memory.sqlite")), tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "memory.sqlite")) as connection, connection:
        ((probe,),) = connection.execute("SELECT probe FROM probes").fetchall()
        flipped = probe.replace('"votes": [', '"votes": [9, ', 1)
        assert flipped != probe
        votes = flipped.index("]")
        shortened = flipped[: flipped.rindex(",", 0, votes)] + flipped[votes:]
        connection.execute("UPDATE probes SET probe = ?", (shortened,))
    with pytest.raises(ModelError, match="is not the one of the memory"):
        finish_run(spec(memory=str(tmp_path / "memory.sqlite"), seed=4), tmp_path / "second")
