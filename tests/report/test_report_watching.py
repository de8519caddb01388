"""`report --watch`: served on this machine only and stopped by Ctrl-C; pages written by other verbs."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from cli_runner import command, environment, smoothcert
from report_runs import made_run
from report_server import served
from smoothcert.cli.demo import Demo
from smoothcert.data import load_dataset
from smoothcert.errors import RunError
from smoothcert.report import watching
from smoothcert.report.content import ReportRequest
from smoothcert.report.watching import server_for, state_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "run", load_dataset("digits"), source="digits", inputs=20)


@pytest.fixture
def server(run: Path) -> Iterator[ThreadingHTTPServer]:
    with served(server_for(ReportRequest(runs=(run,), gallery=4), port=0)) as found:
        yield found


def answer(
    server: ThreadingHTTPServer, path: str, *, host: str | None = None, method: str = "GET"
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_the_page_and_its_state_are_served_and_nothing_else(server: ThreadingHTTPServer, run: Path) -> None:
    status, page = answer(server, "/")
    assert status == 200
    assert b"connect-src &#39;self&#39;" in page
    status, state = answer(server, "/state")
    assert (status, state.decode()) == (200, state_of([run]))
    assert state in page
    for path in ("/manifest.json", "/../run/manifest.json", "//etc/passwd", "/state/"):
        assert answer(server, path)[0] == 404


def test_only_this_machine_is_served_under_its_own_name(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1"):
        assert answer(server, "/", host=host)[0] == 403
    assert answer(server, "/state", host=f"localhost:{server.server_port}")[0] == 200


def test_other_methods_change_and_tell_nothing(server: ThreadingHTTPServer) -> None:
    assert answer(server, "/", method="HEAD") == (200, b"")
    assert answer(server, "/", method="HEAD", host="evil.example")[0] == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"):
        assert answer(server, "/", method=method)[0] == 501


def test_other_pages_may_not_take_it_in(server: ThreadingHTTPServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", "/state")
    headers = connection.getresponse().headers
    connection.close()
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_nobody_is_asked_for_a_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("a name was looked up")

    for name in ("getfqdn", "gethostbyaddr", "gethostbyname", "gethostbyname_ex", "getaddrinfo", "getnameinfo"):
        monkeypatch.setattr(socket, name, forbidden)
    with server_for(ReportRequest(runs=(run,)), port=0) as found:
        assert found.server_port > 0


def test_a_client_that_goes_away_is_no_news(server: ThreadingHTTPServer, capfd: pytest.CaptureFixture[str]) -> None:
    for request in (b"", b"GET", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.server_port):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(request)
    assert answer(server, "/")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_client_that_says_nothing_is_left(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SECONDS_OF_PATIENCE", 0.2)
    with (
        served(server_for(ReportRequest(runs=(run,)), port=0)) as found,
        socket.create_connection(("127.0.0.1", found.server_port), timeout=60) as silent,
    ):
        assert silent.recv(1) == b""


def test_many_clients_are_served_while_others_are_silent(server: ThreadingHTTPServer) -> None:
    with contextlib.ExitStack() as silent:
        for _ in range(50):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=60))
        assert answer(server, "/state")[0] == 200


def test_the_port_of_the_web_needs_no_number() -> None:
    assert watching._host_names(80) == {"127.0.0.1", "localhost", "127.0.0.1:80", "localhost:80"}
    assert watching._host_names(8080) == {"127.0.0.1:8080", "localhost:8080"}


def test_whatever_happens_to_the_run_there_is_a_page(
    server: ThreadingHTTPServer, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_REST", 0.0)
    assert b"Certified accuracy" in answer(server, "/")[1]
    states = {answer(server, "/state")[1]}
    whole = (run / "manifest.json").read_bytes()
    for content in (whole[:50], b"", b"\xff"):
        (run / "manifest.json").write_bytes(content)
        status, page = answer(server, "/")
        states.add(answer(server, "/state")[1])
        assert status == 200
        assert b"Nothing to show yet" in page
    (run / "manifest.json").write_bytes(whole)
    (run / "results.sqlite").write_bytes(b"SQLite format 3\0" + bytes(5000))
    assert b"Nothing to show yet" in answer(server, "/")[1]
    shutil.rmtree(run)
    assert b"does not exist" in answer(server, "/")[1]
    states.add(answer(server, "/state")[1])
    run.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t0\t0\t0.5\t1\t1.0\n")
    assert b"Certified accuracy" in answer(server, "/")[1]
    states.add(answer(server, "/state")[1])
    assert len(states) == 6


def test_a_folder_that_vanishes_or_is_closed_has_a_state(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanished(_: Path) -> Iterator[Path]:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "iterdir", vanished)
    assert state_of([run]) == state_of([])


def test_a_page_that_takes_long_is_kept_for_a_while(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    made = []

    def slowly(*_: object, **__: object) -> bytes:
        clock[0] += 10.0
        made.append(clock[0])
        return b"page"

    monkeypatch.setattr(watching.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(watching, "render_page", slowly)
    page = watching.Page(ReportRequest(runs=(run,), gallery=0))
    page.content()
    before = page.state()
    os.utime(run / "results.sqlite", (0, 0))
    assert page.state() == before
    page.content()
    assert len(made) == 1
    clock[0] += 31.0
    assert page.state() != before
    page.content()
    assert len(made) == 2


def test_a_port_that_is_taken_is_said(server: ThreadingHTTPServer, run: Path) -> None:
    with pytest.raises(RunError, match="cannot be used"):
        watching.serve(ReportRequest(runs=(run,)), port=server.server_port, announce=lambda _: None)


def test_the_state_changes_with_the_run_and_not_by_reading(run: Path) -> None:
    before = state_of([run])
    assert smoothcert("table", run).returncode == 0
    assert state_of([run]) == before
    os.utime(run / "results.sqlite", (0, 0))
    assert state_of([run]) != before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("in_the_background", [False, True])
def test_ctrl_c_ends_it_quietly(run: Path, number: signal.Signals, in_the_background: bool) -> None:
    """Background jobs of a shell script start with SIGINT ignored."""
    watch = [str(word) for word in command("report", run, "--watch")]
    program = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *watch] if in_the_background else watch
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline()
            process.send_signal(number)
            _, complaints = process.communicate(timeout=60)
        finally:
            process.kill()
    assert address.startswith("http://127.0.0.1:")
    assert (process.returncode, complaints) == (0, "")


def test_watch_and_a_file_exclude_each_other(run: Path, tmp_path: Path) -> None:
    done = smoothcert("report", run, "--watch", "-o", tmp_path / "x.html")
    assert done.returncode == 2
    assert "remove -o" in done.stderr


def test_the_demonstration_ends_with_a_page(tmp_path: Path) -> None:
    show = Demo(tmp_path, seed=0)
    for seed, sigma in enumerate(show.sigmas):
        made_run(show.run_path(sigma), load_dataset("digits"), source="digits", inputs=20, seed=seed, sigma=sigma)
    assert "digits" in show.write_report().read_text(encoding="utf-8")
