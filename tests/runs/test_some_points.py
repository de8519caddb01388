"""Reading some results of a run, and knowing where each came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from report_runs import made_run
from smoothcert.data import load_dataset
from smoothcert.errors import RunError
from smoothcert.runs.load import load_all, load_each
from smoothcert.runs.store import RunStore


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "run", load_dataset("digits"), source="digits", inputs=12)


def test_some_points_are_those_of_all_in_the_order_asked_for(run: Path) -> None:
    with RunStore.open(run) as store:
        every = {point.index: point for point in store.points()}
        assert store.points_of([7, 2, 11]) == [every[7], every[2], every[11]]
        assert store.points_of([]) == []


def test_a_point_that_is_not_there_is_said(run: Path) -> None:
    with RunStore.open(run) as store:
        with pytest.raises(RunError, match="no result for input 12"):
            store.points_of([3, 12])
        assert store.points_of([3])[0].index == 3


def test_each_result_knows_its_place(run: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t0\t0\t0.5\t1\t1.0\n")
    found = load_each([run, log, run])
    assert [place for place, _ in found] == [run, log, run]
    assert [results.name for _, results in found] == [results.name for results in load_all([run, log, run])]
