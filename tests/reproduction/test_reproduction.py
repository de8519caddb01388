"""Reproductions: steps in child processes are skipped, resumed, killed and refused."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

import experiments.reproduction.running as running
from cli_runner import SUPPORT, invoke, smoothcert
from experiments.reproduction import Reproduction, make_plan, measure, parse_recipe, run_rows
from experiments.reproduction.measuring import measure_finished_rows
from experiments.reproduction.reporting import comparison_text, make_document, result_page, status_text
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.cli.main import app
from smoothcert.errors import (
    CorruptRunError,
    InputError,
    InterruptedRunError,
    ManifestMismatchError,
    RunBusyError,
    RunError,
    StepFailedError,
)

PYTHONPATH = os.pathsep.join(filter(None, [str(SUPPORT), str(SUPPORT.parent.parent), os.environ.get("PYTHONPATH")]))
INPUTS = 30
TEXT = """
title = "Digits by their brightness"
source = "nobody"
about = "No training: the model is a formula, the rule is fitted in a second."
time = "seconds"
[settings]
n = 400
[quick]
n = 200
[steps.rule]
makes = "rule.safetensors"
command = "sigma fit --data digits --sigma 0.25 --k 5 --rate 0.01 --max-points 200 --out {out}"
[steps.constant]
makes = "constant"
command = "certify --model sample_models:digits_by_brightness --num-classes 10 --data digits --sigma 0.25 --n {n} --max 30 --batch 100 --seed 1 --out {out}"
[steps.varying]
makes = "varying"
command = "certify --model sample_models:digits_by_brightness --num-classes 10 --data digits --sigma-rule {rule} --n {n} --max 30 --batch 100 --seed 1 --out {out}"
[steps.log]
reads = "{logs}/log"
[[tables]]
title = "Both"
against = "constant"
radii = [0, 0.1]
rows = [
  { name = "constant", of = "constant", acr = 0.1, accuracy = 0.1, abstention = 0.2, misclassification = 0.3, certified = [0.1, 0.05], class_spread = nan, largest_radius = nan },
  { name = "varying", of = "varying", acr = 0.1, radius_ratio = 1.01, acr_ratio = 1.0, time_ratio = nan },
  { name = "released", of = "log", against = "log", acr = 0.1 },
]
"""  # noqa: E501


@pytest.fixture(autouse=True)
def _models_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def at(directory: Path, text: str = TEXT, *, quick: bool = False, logs: Path | None = None) -> Reproduction:
    return Reproduction(make_plan(parse_recipe("example", text), quick=quick), directory, logs=logs)


def run(reproduction: Reproduction, only: str | None = None, stop: threading.Event | None = None) -> list[str]:
    """Runs the rows; returns the products of the steps that ran."""
    said: list[str] = []
    rows = reproduction.plan.select_rows([] if only is None else [only])
    run_rows(reproduction, rows, threads=1, stop=stop, say=said.append)
    return [line.rpartition(" ")[2] for line in said]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", PYTHONPATH)
        directory = tmp_path_factory.mktemp("reproduction") / "here"
        assert run(at(directory)) == ["constant", "rule.safetensors", "varying"]
        yield directory


def test_what_is_done_is_not_done_again(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_run_child", lambda *_: pytest.fail("a step was run"))
    assert run(at(finished)) == []


def test_numbers_are_those_of_table_and_compare(finished: Path) -> None:
    reproduction = at(finished)
    ours = {(one.row.name, one.number.measure, one.number.radius): one for one in measure_finished_rows(reproduction)}
    (table,) = json.loads(invoke(app, "table", finished / "constant", "--radii", "0,0.1", "--json").stdout)
    for name in ("acr", "accuracy", "abstention", "misclassification"):
        assert ours["constant", name, None].ours == table[name]
    assert [ours["constant", "certified", r].ours for r in (0.0, 0.1)] == list(table["certified_accuracy"].values())
    (classes,) = json.loads(invoke(app, "table", finished / "constant", "--classes", "--json").stdout)
    assert ours["constant", "class_spread", None].ours == classes["class_spread"]
    compared = json.loads(invoke(app, "compare", finished / "varying", finished / "constant", "--json").stdout)
    assert ours["varying", "radius_ratio", None].ours == compared["ratio_mean"]
    (varying,) = json.loads(invoke(app, "table", finished / "varying", "--json").stdout)
    assert ours["varying", "acr_ratio", None].ours == pytest.approx(varying["acr"] / table["acr"])
    exported = finished.parent / "constant.csv"
    invoke(app, "export", finished / "constant", "--format", "csv", "-o", exported)
    with exported.open() as file:
        rows = [row for row in csv.DictReader(file) if row["label"] == row["prediction"]]
    assert ours["constant", "largest_radius", None].ours == max(float(row["radius"]) for row in rows)
    acr = ours["constant", "acr", None]
    assert (acr.points, acr.n, acr.difference) == (INPUTS, "400", pytest.approx(table["acr"] - 0.1))
    assert ours["constant", "class_spread", None].difference is None


def test_the_report_says_what_was_run_and_what_is_missing(finished: Path) -> None:
    reproduction = at(finished)
    measured = measure_finished_rows(reproduction)
    page = result_page(reproduction, measured, command=["python", "-m", "experiments", "example", "--only", "a b"])
    assert "python -m experiments example --only 'a b'" in page
    assert "| `smoothcert sigma fit --data digits" in page
    assert page.count(" | done | ") == 3
    assert "### Both" in page
    assert "released logs are not available (1 of 3 rows): released. Give their folder with --logs DIR." in page
    document = make_document(reproduction, measured)
    assert document["missing"] == ["released"]
    assert all(step["seconds"] > 0 for step in document["steps"])
    assert "2 of 3 rows are finished" in status_text(reproduction, reproduction.plan.rows)


def test_certificate_names_one_of_several(finished: Path) -> None:
    text = TEXT.replace('of = "varying", acr', 'of = "varying", certificate = "dipole", acr')
    with pytest.raises(RunError, match="does not have the certificate dipole"):
        measure(at(finished, text), at(finished, text).plan.rows[1])


def test_logs_are_read_where_they_are(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
    reproduction = at(finished, logs=tmp_path)
    released = [one.ours for one in measure_finished_rows(reproduction) if one.row.name == "released"]
    assert released == [0.5]
    (tmp_path / "log").unlink()
    assert "log does not exist" in status_text(reproduction, reproduction.plan.rows)


def test_quick_says_that_it_is_not_comparable(tmp_path: Path) -> None:
    reproduction = at(tmp_path / "quick", quick=True)
    assert run(reproduction, "constant") == ["constant"]
    measured = measure_finished_rows(reproduction)
    text = comparison_text(reproduction, measured, form=TableFormat.TEXT)
    assert "NOT comparable" in text
    assert "ours (quick)" in text
    document = make_document(reproduction, measured)
    assert not document["comparable"]
    assert {row["difference"] for row in document["rows"]} == {None}
    with pytest.raises(ManifestMismatchError, match="holds example --quick, not example: use another --out"):
        at(tmp_path / "quick")


def test_a_changed_recipe_is_refused_with_the_difference(finished: Path) -> None:
    with pytest.raises(ManifestMismatchError, match=r"(?s)constant was made by.*--n 400.*would be made by.*--n 401"):
        at(finished, TEXT.replace("n = 400", "n = 401"))
    assert run(at(finished, TEXT.replace("acr = 0.1, accuracy", "acr = 0.2, accuracy"))) == []


RULES = """
title = "Two rules"
source = "nobody"
about = "Steps that take a second."
time = "seconds"
[steps.rule]
makes = "rule-{k}.safetensors"
command = "sigma fit --data digits --sigma 0.25 --k {k} --rate {rate} --max-points 200 --out {out}"
[[tables]]
of = "rule"
name = "k={k}"
rows = [{ k = 5, rate = 0.01, acr = nan }, { k = 6, rate = 0.01, acr = nan }]
"""


def test_a_step_not_begun_may_change(tmp_path: Path) -> None:
    """A later version of a recipe may change steps that were not started."""
    assert run(at(tmp_path / "here", RULES), "k=5") == ["rule-5.safetensors"]
    assert run(at(tmp_path / "here", RULES.replace("k = 6, rate = 0.01", "k = 6, rate = 0.02"))) == [
        "rule-6.safetensors"
    ]
    with pytest.raises(ManifestMismatchError, match=r"rule-6\.safetensors was made by"):
        at(tmp_path / "here", RULES)


def test_a_product_that_was_there_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rule-5.safetensors").write_bytes(b"copied from elsewhere")
    reproduction = at(tmp_path, RULES)
    assert run(reproduction) == ["rule-6.safetensors"]
    words = [reproduction.state(row.result).description for row in reproduction.plan.rows]
    assert words == ["done (found)", "done"]


def test_what_was_there_stays_so_once_there_is_a_record(tmp_path: Path) -> None:
    """A copied product stays marked as found, even after a failed attempt."""
    failing = at(tmp_path / "here", RULES.replace("k = 5, rate = 0.01", "k = 5, rate = -1"))
    with pytest.raises(StepFailedError):
        run(failing, "k=5")
    (tmp_path / "here" / "rule-5.safetensors").write_bytes(b"copied from elsewhere")
    (tmp_path / "here" / "rule-6.safetensors").write_bytes(b"this one, too")
    rules = RULES.replace("k = 5, rate = 0.01", "k = 5, rate = -1")
    assert run(at(tmp_path / "here", rules)) == []
    again = at(tmp_path / "here", rules)
    assert [again.state(row.result).description for row in again.plan.rows] == ["done (found)"] * 2
    assert len(json.loads((tmp_path / "here" / "reproduction.json").read_text())["steps"]) == 2


MODELS = """
title = "A network of a second"
source = "nobody"
about = "A model, a rule and a memory that results depend on."
time = "seconds"
[settings]
[quick]
[steps.model]
makes = "model.safetensors"
command = "train --data digits --arch mlp-8 --sigma 0.25 --epochs 1 --seed 1 --out {out}"
[steps.fixed]
makes = "fixed"
command = "certify --model {model} --data digits --sigma 0.25 --n0 20 --n 100 --max 4 --seed 1 --out {out}"
[steps.searched]
makes = "searched"
command = "certify --model {model} --data digits --sigma 0.25 --sigma-rule optimised --memory m.sqlite --n0 20 --n 100 --max 4 --seed 1 --out {out}"
[[tables]]
rows = [{ name = "fixed", of = "fixed", acr = nan }, { name = "searched", of = "searched", acr = nan }]
"""  # noqa: E501


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("trained") / "here"
    assert run(at(directory, MODELS)) == ["model.safetensors", "fixed", "searched"]
    return directory


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def remove_model(place: Path) -> None:
    place.unlink()
    place.with_suffix(".curves.csv").unlink()


def another_model(place: Path) -> None:
    remove_model(place)
    made = smoothcert(
        "train", "--data", "digits", "--arch", "mlp-8", "--sigma", 0.25, "--epochs", 1, "--seed", 2, "--out", place
    )
    assert made.returncode == 0, made.stderr


def test_a_replaced_model_is_refused_with_the_difference(copied: Path) -> None:
    another_model(copied / "model.safetensors")
    with pytest.raises(ManifestMismatchError, match=r"fixed was made with another model\.safetensors: its digest was"):
        at(copied, MODELS)
    shutil.rmtree(copied / "fixed")
    shutil.rmtree(copied / "searched")
    (copied / "m.sqlite").unlink()
    assert run(at(copied, MODELS)) == ["fixed", "searched"]
    assert at(copied, MODELS).state(at(copied, MODELS).plan.rows[0].steps[0]).description == "done (found)"


def test_a_deleted_model_made_again_is_compared(copied: Path) -> None:
    remove_model(copied / "model.safetensors")
    assert run(at(copied, MODELS)) == ["model.safetensors"]  # the same to the bit
    remove_model(copied / "model.safetensors")
    record = json.loads((copied / "reproduction.json").read_text())
    record["steps"]["fixed"]["used"]["model.safetensors"] = "0123456789abcdef"
    (copied / "reproduction.json").write_text(json.dumps(record))
    with pytest.raises(
        ManifestMismatchError, match=r"fixed was made with another model\.safetensors.* 0123456789ab, now"
    ):
        run(at(copied, MODELS))


def test_a_run_is_worth_nothing_without_its_memory(copied: Path, tmp_path: Path) -> None:
    memory = copied / "m.sqlite"
    memory.rename(tmp_path / "elsewhere.sqlite")
    with pytest.raises(ManifestMismatchError, match=r"searched promised regions in m\.sqlite, which does not exist"):
        at(copied, MODELS)
    memory.write_bytes(b"something else")
    with pytest.raises(ManifestMismatchError, match=r"m\.sqlite does not hold the regions that searched promised"):
        run(at(copied, MODELS))
    (tmp_path / "elsewhere.sqlite").rename(memory)
    assert run(at(copied, MODELS)) == []


def test_a_run_that_was_there_names_its_rule_itself(finished: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(finished, tmp_path / "copy"))
    (here / "reproduction.json").unlink()
    (here / "rule.safetensors").unlink()
    words = ("sigma", "fit", "--data", "digits", "--sigma", 0.25, "--k", 6, "--rate", 0.01, "--max-points", 200)
    invoke(app, *words, "--out", here / "rule.safetensors")
    with pytest.raises(ManifestMismatchError, match=r"varying was made with another rule\.safetensors"):
        at(here)


def test_an_older_format_is_refused(finished: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(finished, tmp_path / "copy"))
    state = json.loads((here / "reproduction.json").read_text())
    state["format"] = 1
    (here / "reproduction.json").write_text(json.dumps(state))
    with pytest.raises(ManifestMismatchError, match=r"holds example in format 1, which is not supported, not example"):
        at(here)


def test_a_failing_step_stops_it_with_the_command_and_its_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reproduction = at(tmp_path / "here", RULES.replace("rate = 0.01", "rate = -1"))
    with pytest.raises(
        StepFailedError, match=r"failed with exit code 2.*\n.*smoothcert sigma fit .*--rate -1"
    ) as caught:
        run(reproduction)
    assert caught.value.exit_code == 2
    assert "smoothcert: " in capfd.readouterr().err  # what the step itself had to say
    first, second = (reproduction.record(row.result) for row in reproduction.plan.rows)
    assert first is not None
    assert (first.begun, first.ended) == (1, 1)
    assert second is None  # nothing is begun after a failure


def test_a_step_that_makes_nothing_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"did not complete rule-5\.safetensors \(started\)"):
        run(at(tmp_path / "here", RULES.replace("--out {out}", "--out other-{k}.safetensors")), "k=5")


LONG = TEXT.replace("n = 400", "n = 100000")


def stored(directory: Path) -> int:
    if not (directory / "manifest.json").exists():
        return 0
    connection = sqlite3.connect(directory / "results.sqlite", timeout=30)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM points").fetchone()[0])
    finally:
        connection.close()


def when_some_is_stored(directory: Path, act: object) -> threading.Thread:
    """Calls `act` as soon as the run in the directory holds a result."""

    def watch() -> None:
        deadline = time.monotonic() + 120
        while stored(directory) == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        act()  # type: ignore[operator]

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def votes(directory: Path) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(directory / "results.sqlite")
    try:
        return list(
            connection.execute("SELECT idx, stage, start, stop, counts FROM tallies ORDER BY idx, stage, start")
        )
    finally:
        connection.close()


def test_a_killed_step_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[subprocess.Popen[bytes]] = []
    begin = subprocess.Popen

    def remembered(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        children.append(begin(*arguments, **options))  # type: ignore[call-overload]
        return children[-1]

    monkeypatch.setattr(running.subprocess, "Popen", remembered)
    directory = tmp_path / "killed"
    killer = when_some_is_stored(directory / "constant", lambda: os.kill(children[-1].pid, signal.SIGKILL))
    with pytest.raises(StepFailedError, match="was killed by signal 9") as caught:
        run(at(directory, LONG), "constant")
    killer.join()
    assert caught.value.exit_code == 1
    assert 0 < stored(directory / "constant") < INPUTS
    reproduction = at(directory, LONG)
    assert f"{stored(directory / 'constant')} of {INPUTS} inputs" in status_text(reproduction, reproduction.plan.rows)
    assert run(reproduction, "constant") == ["constant"]
    assert run(at(tmp_path / "whole", LONG), "constant") == ["constant"]
    assert votes(directory / "constant") == votes(tmp_path / "whole" / "constant")
    record = reproduction.record(reproduction.plan.rows[0].result)
    assert record is not None
    assert (record.begun, record.ended) == (2, 2)


def test_asked_to_stop_it_stores_what_it_has(tmp_path: Path) -> None:
    stop = threading.Event()
    directory = tmp_path / "here"
    asking = when_some_is_stored(directory / "constant", stop.set)
    with pytest.raises(InterruptedRunError, match="stopped in: smoothcert certify"):
        run(at(directory, LONG), "constant", stop)
    asking.join()
    assert 0 < stored(directory / "constant") < INPUTS
    with pytest.raises(InterruptedRunError, match="between two steps"):
        run(at(directory, LONG), "constant", stop)


@pytest.mark.parametrize("by_option", [False, True], ids=["environment", "option"])
def test_a_data_folder_named_from_here_is_named_from_the_root_for_steps(
    by_option: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def child(words: object, reproduction: Reproduction, stop: object, environment: dict[str, str]) -> int:
        seen.append(environment)
        (reproduction.directory / "rule-5.safetensors").write_bytes(b"made")
        return 0

    monkeypatch.setattr(running, "_run_child", child)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SMOOTHCERT_DATA", "elsewhere" if by_option else "sets")
    reproduction = at(Path("here"), RULES)
    run_rows(reproduction, reproduction.plan.select_rows(["k=5"]), data_root=Path("sets") if by_option else None)
    assert [environment["SMOOTHCERT_DATA"] for environment in seen] == [str(tmp_path / "sets")]


WATCHER = """
import sys
from pathlib import Path
from experiments.reproduction import Reproduction, make_plan, parse_recipe, run_rows
plan = make_plan(parse_recipe("example", Path(sys.argv[1]).read_text()), quick=False)
run_rows(Reproduction(plan, Path(sys.argv[2])), plan.select_rows(["constant"]), threads=1)
"""


def ended(process: int) -> bool:
    """Whether a process is gone, or a zombie that its new parent has not reaped.

    The first thread of a process is dead before its others are, and files, with their locks, stay open until the last.
    """
    try:
        dead = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return dead and len(list(Path(f"/proc/{process}/task").iterdir())) == 1
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a process that its parent died")
def test_killed_with_nine_it_leaves_no_step_behind(tmp_path: Path) -> None:
    """While the step runs, which is prolonged here, no other reproduction can start; its results are stored."""
    (tmp_path / "recipe.toml").write_text(LONG)
    directory = tmp_path / "here"
    watcher = subprocess.Popen([sys.executable, "-c", WATCHER, tmp_path / "recipe.toml", directory])
    when_some_is_stored(directory / "constant", lambda: None).join()
    (step,) = map(int, Path(f"/proc/{watcher.pid}/task/{watcher.pid}/children").read_text().split())
    os.kill(step, signal.SIGSTOP)
    watcher.kill()
    watcher.wait()
    try:
        with pytest.raises(RunBusyError, match="a step whose reproduction was killed"):
            run(at(directory, LONG), "constant")
    finally:
        os.kill(step, signal.SIGCONT)
    deadline = time.monotonic() + 60
    while not ended(step) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended(step)
    assert 0 < stored(directory / "constant") < INPUTS
    reproduction = at(directory, LONG)
    with reproduction.lock():
        record = reproduction.record(reproduction.plan.rows[0].result)
    assert record is not None
    assert (record.begun, record.ended) == (1, 0)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(RunError, match=r"holds letters\.txt and no reproduction"):
        run(at(tmp_path))
    with pytest.raises(InputError, match="is a file"):
        run(at(tmp_path / "letters.txt"))


def test_two_at_once_are_refused(finished: Path) -> None:
    with FileLock(finished / "reproduction.lock"), pytest.raises(RunBusyError, match="another process"):
        run(at(finished))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "reproduction.json").write_text('{"steps": 3}')
    with pytest.raises(CorruptRunError, match=r"reproduction\.json is damaged"):
        at(tmp_path)


def test_python_dash_m_is_the_command_line(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "smoothcert", "--version"], capture_output=True, text=True, check=True
    )
    assert found.stdout == smoothcert("--version").stdout != ""
