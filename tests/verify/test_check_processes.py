"""A run whose inputs are checked by several processes is found to be what one process finds it to be."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flint")

from smoothcert_verify import check_processes
from smoothcert_verify.reports import Report
from smoothcert_verify.run_checks import verify_run
from smoothcert_verify.run_reading import RunReader
from verified_runs import altered, copy_of, make_run, resealed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Two inputs are a part and two processes are used; the list says of every part whether it was confirmed."""
    monkeypatch.setattr(check_processes, "_LEAST_INPUTS", 1)
    monkeypatch.setattr(check_processes, "_INPUTS_PER_PART", 2)
    monkeypatch.setattr(check_processes, "count_cores", lambda: 2)
    confirmed: list[bool] = []
    confirm = check_processes._CheckProcess.confirm

    def noting(*arguments: Any) -> Any:
        confirmed.append((answer := confirm(*arguments)) is not None)
        return answer

    monkeypatch.setattr(check_processes._CheckProcess, "confirm", noting)
    return confirmed


def summary_of(report: Report) -> dict[str, Any]:
    entries = [(one.index, one.label, one.sigma, one.promise, one.answers) for one in report.entries]
    return {
        "counts": (report.inputs, report.bounds, report.radii, report.by_memory),
        "alpha": pytest.approx(report.alpha),
        "discrepancies": [finding.to_json() for finding in report.discrepancies],
        "remarks": [(finding.to_json(), count) for finding, count in report.remarks],
        "model checks": report.model_checks,
        "entries": entries,
    }


def in_one_process(run: Path) -> dict[str, Any]:
    """Four inputs are too few for more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_processes, "_LEAST_INPUTS", 4000)
        return summary_of(verify_run(run))


@pytest.mark.parametrize("kind", ["votes", "memory", "float-noise", "scaled", "best-of", "predict"])
def test_other_processes_confirm_what_is_proved(kind: str, folder: Path, several: list[bool]) -> None:
    run = make_run(kind, folder / kind)
    report = verify_run(run)
    assert several
    assert all(several)
    assert report.discrepancies == []
    assert summary_of(report) == in_one_process(run)
    again = report.entries[0].read_again()
    assert again["input"]["index"] == report.entries[0].index
    assert again["tallies"]


def test_what_is_wrong_is_found(folder: Path, tmp_path: Path, several: list[bool]) -> None:
    run = copy_of(make_run("votes", folder / "forged"), tmp_path)
    altered(run / "results.sqlite", "UPDATE verdicts SET radius = radius * 2 WHERE radius > 0")
    resealed(run)
    found = summary_of(verify_run(run))
    assert False in several
    assert found == in_one_process(run)
    assert found["discrepancies"]


def test_processes_that_end_early(folder: Path, several: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("votes", folder / "early")
    monkeypatch.setattr(check_processes, "_START", "raise SystemExit(1)")
    assert summary_of(verify_run(run)) == in_one_process(run)
    assert not any(several)


def test_no_process_can_be_started(folder: Path, several: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run("votes", folder / "alone")

    def refused(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refused)
    assert summary_of(verify_run(run)) == in_one_process(run)
    assert not several


def test_a_manifest_that_was_exchanged_is_not_confirmed(
    folder: Path, several: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run("votes", folder / "exchanged")
    monkeypatch.setattr(check_processes, "canonical_digest", lambda _: "0" * 64)
    assert verify_run(run).discrepancies == []
    assert not any(several)


def test_progress_counts_every_input(folder: Path, several: list[bool]) -> None:
    seen: list[tuple[int, int]] = []
    verify_run(make_run("votes", folder / "counted"), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_interrupt_ends_the_processes(folder: Path, several: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    run, started = make_run("votes", folder / "stopped"), list[Any]()
    start: Callable[..., None] = check_processes._CheckProcess.__init__

    def noting(process: Any, *arguments: Any, **settings: Any) -> None:
        start(process, *arguments, **settings)
        started.append(process._process)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(check_processes._CheckProcess, "__init__", noting)
    with pytest.raises(KeyboardInterrupt):
        verify_run(run, progress=interrupted)
    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


class TestStreaming:
    @pytest.fixture
    def reader(self, folder: Path) -> Iterator[RunReader]:
        with RunReader(make_run("memory", folder / "streamed")) as reader:
            reader.open_results()
            yield reader

    def test_the_same_rows_as_one_by_one(self, reader: RunReader) -> None:
        indices = reader.indices()
        assert len(indices) == 4
        assert list(reader.stream_inputs(indices)) == [reader.read_input(index) for index in indices]
        assert list(reader.stream_inputs(indices[1:3])) == [reader.read_input(index) for index in indices[1:3]]

    @pytest.mark.parametrize("order", [[120, 60], [60, 60], ["60"], []])
    def test_other_indices_are_read_one_by_one(self, order: list[Any], reader: RunReader) -> None:
        assert list(reader.stream_inputs(order)) == []

    def test_a_table_with_indices_of_another_type(self, folder: Path, tmp_path: Path) -> None:
        """In a column of texts 60 and '60' are equal, so one by one rows are found that a pass would miss."""
        run = copy_of(make_run("memory", folder / "texts"), tmp_path)
        with closing(sqlite3.connect(run / "results.sqlite")) as connection, connection:
            rows = connection.execute("SELECT * FROM promises").fetchall()
            columns = [row[1] for row in connection.execute("PRAGMA table_info(promises)")]
            connection.execute("DROP TABLE promises")
            connection.execute(f"CREATE TABLE promises (idx TEXT, {', '.join(columns[1:])})")
            connection.executemany(f"INSERT INTO promises VALUES ({', '.join('?' * len(columns))})", rows)
        with RunReader(run) as reader:
            reader.open_results()
            assert list(reader.stream_inputs(reader.indices())) == []
            assert reader.read_input(60).rows["promises"]


def test_the_answer_of_a_process_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = verify_run(make_run("votes", folder / "packed"))
    packed = json.dumps(check_processes._pack(report))
    assert "\n" not in packed
    back = check_processes._unpack(json.loads(packed), report.entries[0].run, Path("run"))
    assert (back.inputs, back.radii) == (report.inputs, report.radii)
    assert [one.answers for one in back.entries] == [one.answers for one in report.entries]
    assert capsys.readouterr().out == ""
