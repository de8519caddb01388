"""A full disk, a read-only place, a clock that goes back, closed streams, odd names: nothing lost, and a sentence."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli_runner import command, environment
from foreseen import same_every_time
from run_specs import make_spec
from smoothcert.cli.main import app
from smoothcert.errors import RunError, SmoothcertError
from smoothcert.files import write_whole
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.store import RunStore
from smoothcert.spec import RunSpec

MODEL = "sample_models:digits_by_brightness"


def spec(**changes: object) -> RunSpec:
    settings: dict[str, object] = {
        "task": "certify", "model": MODEL, "data": "digits", "sigma": 0.25, "n0": 20, "n": 200, "alpha": 0.001,
        "max_inputs": 40, "seed": 3, "batch": 64, "certificate": "gaussian",
    }  # fmt: skip
    return make_spec(**{**settings, **changes})  # type: ignore[arg-type]


def finish(asked: RunSpec, out: Path, *, before: Callable[[], object] = lambda: None, **hooks: Any) -> None:
    """Run or resume. before: done when the run is there, and nothing is in it yet."""
    with prepare_run(asked, out) as prepared:
        before()
        execute_run(prepared, **hooks)


def fill(place: Path, *, leave: int = 0) -> None:
    """All the room there is, but for so many bytes."""
    with (place / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while os.statvfs(place).f_bavail * os.statvfs(place).f_bsize > leave:
            filler.write(b"x" * 4096)


def stored(run: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(run / "results.sqlite") as connection:
        return connection.execute("SELECT idx, radius, prediction FROM verdicts ORDER BY idx").fetchall()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    path = tmp_path_factory.mktemp("runs") / "run"
    finish(spec(), path)
    return path


class TestDisk:
    @pytest.fixture
    def small_disk(self, tmp_path: Path) -> Iterator[Path]:
        """A file system of 200 kB, where one can be mounted."""
        place = tmp_path / "disk"
        place.mkdir()
        mounted = os.name == "posix" and shutil.which("mount") is not None
        if (
            not mounted
            or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(place)], capture_output=True, check=False
            ).returncode
        ):
            pytest.skip("no file system can be mounted here")
        yield place
        subprocess.run(["umount", "-l", str(place)], check=False)

    def test_a_full_disk_loses_no_result(self, small_disk: Path, run: Path) -> None:
        """Fails where a shard is written in parts, and where SQLite's own error goes through."""
        out = small_disk / "run"
        with pytest.raises(RunError, match="full"):
            finish(spec(), out, before=lambda: fill(small_disk, leave=12_288))
        (small_disk / "filler").unlink()
        before = stored(out)
        assert before == stored(run)[: len(before)]
        finish(spec(), out)
        assert stored(out) == stored(run)

    def test_no_room_for_a_run_at_all(self, small_disk: Path) -> None:
        """Fails where half a run is left, which the next attempt takes for somebody's."""
        fill(small_disk)
        with pytest.raises(RunError, match=r"full|No space"):
            finish(spec(), small_disk / "run")
        (small_disk / "filler").unlink()
        finish(spec(max_inputs=2), small_disk / "run")
        assert len(stored(small_disk / "run")) == 2

    def test_a_file_is_whole_or_as_it_was(self, tmp_path: Path) -> None:
        """Fails with Path.write_bytes: the old file is gone before the new one is known to fit."""
        path = tmp_path / "x"
        path.write_bytes(b"old")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        import signal

        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                write_whole(path, b"n" * 5000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert path.read_bytes() == b"old"
        assert [found.name for found in tmp_path.iterdir()] == ["x"]

    def test_a_read_only_place(self, tmp_path: Path) -> None:
        """Fails where it is found out after the sampling, or by a traceback. Root is stopped by a mount alone."""
        place = tmp_path / "place"
        place.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "ro,size=100k", "none", str(place)], capture_output=True, check=False
        )
        if mounted.returncode:
            if os.geteuid() == 0:
                pytest.skip("no read-only place can be made for root here")
            place.chmod(0o555)
        try:
            with pytest.raises(RunError, match=r"cannot be (created|written)"):
                finish(spec(), place / "run")
        finally:
            subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)
            place.chmod(0o755)

    def test_a_place_below_a_file(self, tmp_path: Path) -> None:
        """Fails where NotADirectoryError goes through."""
        (tmp_path / "file").write_text("")
        with pytest.raises(RunError, match="cannot be"):
            finish(spec(), tmp_path / "file" / "run")

    def test_a_run_removed_while_it_is_written(self, tmp_path: Path) -> None:
        """Fails where results go on into a file that has no name any more, and are reported as stored."""
        out = tmp_path / "run"
        removed = threading.Event()

        def remove(_: object) -> None:
            if not removed.is_set():
                shutil.rmtree(out)
                removed.set()

        with pytest.raises(RunError, match="cannot be used"):
            finish(spec(n=2000, max_inputs=200), out, on_shard=remove)
        assert removed.is_set()


def test_a_clock_that_goes_back(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where durations are differences of time.time(), or order is told by it."""
    now = iter(range(10**9, 0, -1))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    finish(spec(), tmp_path / "run")
    assert stored(tmp_path / "run") == stored(run)
    with RunStore.open(tmp_path / "run") as store:
        assert all(point.seconds >= 0 for point in store.points())


def test_nothing_asks_the_wall_clock_how_long_it_took() -> None:
    """Fails as soon as somebody subtracts one time.time() from another."""
    import smoothcert

    sources = Path(smoothcert.__file__).parent.rglob("*.py")
    assert [str(file) for file in sources if "time.time(" in file.read_text(encoding="utf-8")] == []


def shell(line: str, *arguments: object, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A shell's line with "$@" for the command; variables are set in its environment."""
    return subprocess.run(
        ["bash", "-c", line, "bash", *command(*arguments)],
        capture_output=True, env={**environment(), **variables}, timeout=120, check=False,
    )  # fmt: skip


SURROUNDINGS = {
    "standard output closed": ('"$@" >&-', {}),
    "all closed": ('"$@" <&- >&- 2>&-', {}),
    "standard input closed": ('"$@" <&-', {}),
    "a reader that leaves": ('"$@" | true; exit ${PIPESTATUS[0]}', {}),
    "nowhere to write": ('"$@" >/dev/full', {}),
    "plain ASCII": ('"$@"', {"PYTHONIOENCODING": "ascii"}),
    "no locale": ('"$@"', {"LC_ALL": "C", "LANG": "C"}),
    "a dumb terminal of one column": ('"$@"', {"TERM": "dumb", "COLUMNS": "1"}),
    "a terminal without size": ('"$@"', {"COLUMNS": "0", "LINES": "nonsense"}),
}


@pytest.mark.parametrize(("line", "variables"), SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_where_a_table_is_printed(run: Path, line: str, variables: dict[str, str]) -> None:
    """Fails where sys.stdout is believed to be there, and to know every letter."""
    told = shell(line, "table", run, **variables)
    assert b"Traceback" not in told.stderr, told.stderr.decode(errors="replace")
    assert b"Exception ignored" not in told.stderr
    assert told.returncode in (0, 1)


@pytest.mark.parametrize("verb", [("certify", "--help"), ("data", "list")], ids=str)
def test_help_in_plain_ascii(verb: tuple[str, ...]) -> None:
    """Fails where the letters of a help text decide: `certify --help` was a UnicodeEncodeError."""
    told = shell('"$@"', *verb, PYTHONIOENCODING="ascii")
    assert told.returncode == 0, told.stderr
    assert b"Traceback" not in told.stderr


def test_file_names_that_are_no_text(run: Path, tmp_path: Path) -> None:
    """Fails where a name is printed strictly, in a locale that says UTF-8."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run\xff"))
    shutil.copytree(run, odd)
    for arguments in (("table", odd), ("table", odd, "--json"), ("table", Path(f"{odd}-not-here"))):
        told = shell('"$@"', *arguments, PYTHONIOENCODING="utf-8:strict")
        assert b"Traceback" not in told.stderr, told.stderr
        assert told.returncode in (0, 5)


@pytest.mark.parametrize("length", [300, 5000])
def test_names_that_are_too_long(length: int) -> None:
    """Fails with a traceback, or with a screen full of one letter."""
    told = shell('"$@"', "table", "a" * length)
    assert b"Traceback" not in told.stderr
    assert told.returncode != 0
    assert len(told.stderr) < 600


WORDS = st.sampled_from(
    ["radius", "table", "export", "plot", "compare", "plan", "data", "list", "memory", "sigma", "--sigma", "--p-a",
     "--n", "--alpha", "--radii", "--bound", "--rho", "--format", "--digits", "--certificate", "-o", "--json", "--gold",
     "--classes", "0", "-1", "1e400", "nan", "inf", "0.5", "gaussian", "best-of(", "a,b", "0,,1", "/dev/null", "/", ".",
     "/dev/zero", "nothere", "text", "csv", "\ud800", "\x1b[2J", "--help", "--", "@", "x@y", "", "9" * 400]
)  # fmt: skip


@settings(same_every_time, max_examples=80)
@given(st.lists(WORDS | st.text(max_size=4), max_size=7))
def test_any_words_on_the_command_line(words: list[str]) -> None:
    """Fails where an option is used before it is seen what it is."""
    result = CliRunner().invoke(app, words)
    error = result.exception
    assert error is None or isinstance(error, SystemExit | SmoothcertError | OSError), (words, error)


def test_a_line_for_every_while_without_a_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails where progress is told by finished batches alone: a slow model looks like a dead one."""
    from smoothcert.cli import progress

    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.05)
    with progress.samples_progress(100) as advance:
        time.sleep(0.3)
        advance(10)
    assert "no batch was finished in the last" in capsys.readouterr().err


def test_exports_are_read_back_by_strict_readers(run: Path, tmp_path: Path) -> None:
    """Fails where NaN or Infinity is written into JSON."""
    told = shell('"$@"', "export", run, "--format", "json", "-o", tmp_path / "x.json")
    assert told.returncode == 0, told.stderr

    def refused(constant: str) -> None:
        raise ValueError(constant)

    json.loads((tmp_path / "x.json").read_text(), parse_constant=refused)
