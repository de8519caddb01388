"""PostgreSQL servers that stop answering: an error in time that names the memory, and Ctrl-C that ends the wait."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psycopg
import pytest

from cli_runner import command, start
from damaged_memories import KEY, centre
from memory_models import plane_points
from silent_proxy import SilentProxy, proxy_before
from smoothcert.errors import RegionMemoryError
from smoothcert.memory import RegionMemory, open_memory, postgres_connection
from smoothcert.memory.postgres_log import hide_secrets
from smoothcert_verify.findings import MemoryPlaceError
from smoothcert_verify.memory_places import open_place
from smoothcert_verify.postgres_connection import ReadingConnection, name_place

SECONDS = 2.0
"""Allowed for an answer that never comes. Answers that come have the usual time."""


@pytest.fixture
def proxy(new_database: Callable[[], str]) -> Iterator[SilentProxy]:
    with proxy_before(new_database()) as proxy:
        yield proxy


def allow(memory: RegionMemory, seconds: float) -> None:
    memory._log._open().seconds_of_silence = seconds  # type: ignore[attr-defined]


def test_a_claim_whose_answer_never_comes(proxy: SilentProxy) -> None:
    """After each message of a claim: an error says what was waited for. Made again, the claim is stored once."""
    waited_for = set()
    with open_memory(proxy.address, KEY) as memory:
        memory.claim(centre(1), 0, 1.0)
        for after in range(12):
            memory.lookup(centre(1))  # connects again
            memory._next_look = 0.0
            allow(memory, SECONDS)
            proxy.fall_silent(after=after)
            with pytest.raises(RegionMemoryError, match="has not answered for 2 s; waited for: ") as caught:
                memory.claim(centre(2 + after), 1, 1.0)
            proxy.speak()
            assert hide_secrets(proxy.address) in str(caught.value)
            assert "s3cret" not in str(caught.value)
            waited_for.add(str(caught.value).partition("waited for: ")[2].partition(".")[0])
            assert memory.claim(centre(2 + after), 1, 1.0).position == 2 + after
            if "a claim to be committed" in str(caught.value):
                assert "committed. The claim being made may be stored or not" in str(caught.value)
                break
        assert memory.audit().consistent
    lock = "its lock, which one writer at a time holds"
    assert waited_for == {"claims to be read", lock, "a claim to be written", "a claim to be committed"}


def test_a_connection_that_is_never_made(proxy: SilentProxy) -> None:
    proxy.fall_silent()
    with pytest.raises(RegionMemoryError, match=r"cannot be reached: .*timeout.*connect_timeout=30") as caught:
        open_memory(f"{proxy.address}?connect_timeout=2", KEY)
    assert hide_secrets(proxy.address) in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_server_that_is_silent_from_the_first_statement(
    proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(postgres_connection.LimitedConnection, "seconds_of_silence", SECONDS)
    # A client asks for encryption, logs in, and is asked whether the server takes writes.
    for after in range(3, 7):
        proxy.fall_silent(after=after)
        with pytest.raises(RegionMemoryError, match=r"not answered|timeout"):
            open_memory(f"{proxy.address}?connect_timeout=2", KEY)
        proxy.speak()
    assert capfd.readouterr().err == ""


def test_a_writer_that_holds_the_lock(new_database: Callable[[], str]) -> None:
    address = new_database()
    with open_memory(address, KEY) as memory:
        memory.claim(centre(1), 0, 1.0)
        with psycopg.connect(address) as other:
            other.execute("SELECT 1 FROM smoothcert_heads FOR UPDATE")
            allow(memory, SECONDS)
            with pytest.raises(
                RegionMemoryError, match=r"waited for: its lock, which one writer at a time holds\. Check"
            ):
                memory.claim(centre(2), 0, 1.0)
        assert memory.claim(centre(2), 0, 1.0).position == 2


def test_the_limits_are_those_of_the_address(new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    address = new_database()

    def settings(more: str = "") -> tuple[float | None, dict[str, str]]:
        connection = postgres_connection.connect(address + more)
        try:
            return connection.seconds_of_silence, connection.info.get_parameters()
        finally:
            connection.close()

    seconds, given = settings()
    assert seconds == postgres_connection.SECONDS_OF_SILENCE
    assert (given["connect_timeout"], given["keepalives_idle"], given["tcp_user_timeout"]) == ("10", "30", "60000")
    assert settings("&options=-c%20statement_timeout%3D5min")[0] == 310
    assert settings("&options=-c%20statement_timeout%3D0")[0] is None
    assert (
        settings("&connect_timeout=7&keepalives_idle=5")[1].items()
        >= {"connect_timeout": "7", "keepalives_idle": "5"}.items()
    )
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "8")
    assert settings()[1]["connect_timeout"] == "8"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET statement_timeout = '20s'")
    assert settings()[0] == 30
    with open_memory(address + "&options=-c%20statement_timeout%3D200", KEY) as memory:
        other = psycopg.connect(address)
        other.execute("SELECT 1 FROM smoothcert_heads FOR UPDATE")
        with pytest.raises(RegionMemoryError, match=r"statement timeout .*waited for: its lock"):
            memory.claim(centre(1), 0, 1.0)
        other.close()
        assert memory.claim(centre(1), 0, 1.0).position == 1


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("connect_timeout=5&keepalives_idle=9", "?connect_timeout=5&keepalives_idle=9"),
        ("options=-c%20statement_timeout%3D5min", "?options=-c%20statement_timeout%3D5min"),
        ("options=-c%20own.key%3Ds3cret", ""),
        ("options=-c%20statement_timeout%3D5min%20-c%20own.key%3Ds3cret", ""),
    ],
)
def test_a_resumed_run_keeps_the_limits(options: str, shown: str) -> None:
    """The address that is shown is also the one that a run stores."""
    assert hide_secrets(f"postgresql://ann@host/db?{options}") == f"postgresql://ann@host/db{shown}"


CLAIMING = """
import sys
from damaged_memories import KEY, centre
from smoothcert.memory import open_memory

with open_memory(sys.argv[1], KEY) as memory:
    number = 0
    while True:
        number += 1
        memory.claim(centre(number), 0, 1.0)
        print(number, flush=True)
"""


@contextlib.contextmanager
def running(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = start(words)
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_until(stream: IO[str] | None, part: str) -> None:
    assert stream is not None
    while part not in (line := stream.readline()):
        assert line, f"it ended without {part!r}"


def test_ctrl_c_ends_the_wait(proxy: SilentProxy) -> None:
    """Without any limit on answers, one Ctrl-C ends a claim that is waiting."""
    address = f"{proxy.address}?options=-c%20statement_timeout%3D0"
    with running([sys.executable, "-c", CLAIMING, address]) as process:
        read_until(process.stdout, "1")
        proxy.fall_silent()
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=50)
    assert errors.endswith("KeyboardInterrupt\n")


@pytest.mark.slow
def test_ctrl_c_twice_ends_a_run(proxy: SilentProxy, tmp_path: Path) -> None:
    data, out = plane_points(tmp_path / "points.npz", count=400), tmp_path / "run"
    words = command(
        "certify", "--model", "memory_models:in_unit_ball", "--num-classes", 2, "--data", data, "--input-range",
        "any", "--sigma", 0.5, "--sigma-rule", "optimised", "--search", "grid:points=3,noises=8,check=8",
        "--sigma-range", "0.1,2", "--n0", 20, "--n", 1000, "--seed", 1, "--out", out,
        "--memory", f"{proxy.address}?options=-c%20statement_timeout%3D0",
    )  # fmt: skip
    with running(words) as process:
        read_until(process.stderr, "memory postgresql://")
        proxy.fall_silent(after=40)
        time.sleep(5)
        process.send_signal(signal.SIGINT)
        read_until(process.stderr, "press Ctrl-C again")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert f"smoothcert certify --resume {out}" in errors
    assert "Traceback" not in errors


def test_a_checker_whose_answers_never_come(proxy: SilentProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_memory(proxy.address, KEY) as memory:
        for number in range(1, 4):
            memory.claim(centre(number), 0, 1.0)
    with open_place(proxy.address) as place:
        (stored,) = place.memories()
        assert [claim.position for claim in place.claims(stored.number)] == [1, 2, 3]
    monkeypatch.setattr(ReadingConnection, "seconds_of_silence", SECONDS)
    sentence = r"127.0.0.1:\d+, database fresh\d+, .* no answer for 2 s"
    with pytest.raises(MemoryPlaceError, match=sentence) as caught, open_place(proxy.address) as place:  # noqa: PT012
        proxy.fall_silent()
        place.memories()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("postgresql://ann:s3cret@host:5433/db", "the PostgreSQL server host:5433, database db,"),
        ("postgresql://ann:s3/cret@host/db", "the PostgreSQL server"),
        ("postgresql://ann:s3cret", "the PostgreSQL server"),
        ("postgresql://[ann:s3cret@host/db", "the PostgreSQL server host, database db,"),
        ("postgresql://[s3cret/db", "the PostgreSQL server"),
    ],
)
def test_a_checker_names_no_password(address: str, name: str) -> None:
    assert name_place(address) == name
