"""`report --watch`: served here alone, ended by Ctrl-C; and where the page is written by other verbs."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from cli_runner import command, environment, smoothcert
from report_runs import made_run
from smoothcert.data import load_dataset
from smoothcert.demo import Demo
from smoothcert.report.content import Request
from smoothcert.report.watching import server_for, state_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_run(tmp_path / "run", load_dataset("digits"), source="digits", inputs=20)


@pytest.fixture
def server(run: Path) -> Iterator[ThreadingHTTPServer]:
    found = server_for(Request(runs=(run,), gallery=4), port=0)
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def answer(server: ThreadingHTTPServer, path: str, *, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
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


def test_the_state_changes_with_the_run_and_not_by_reading(run: Path) -> None:
    before = state_of([run])
    assert smoothcert("table", run).returncode == 0
    assert state_of([run]) == before
    os.utime(run / "results.sqlite", (0, 0))
    assert state_of([run]) != before


def test_ctrl_c_ends_it_quietly(run: Path) -> None:
    with subprocess.Popen(
        command("report", run, "--watch"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as watching:
        assert watching.stdout is not None
        address = watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        _, complaints = watching.communicate(timeout=30)
    assert address.startswith("http://127.0.0.1:")
    assert (watching.returncode, complaints) == (0, "")


def test_watch_and_a_file_exclude_each_other(run: Path, tmp_path: Path) -> None:
    done = smoothcert("report", run, "--watch", "-o", tmp_path / "x.html")
    assert done.returncode == 2
    assert "leave -o out" in done.stderr


def test_the_demonstration_ends_with_a_page(tmp_path: Path) -> None:
    show = Demo(tmp_path, seed=0)
    for seed, sigma in enumerate(show.sigmas):
        made_run(show.run_path(sigma), load_dataset("digits"), source="digits", inputs=20, seed=seed, sigma=sigma)
    assert "digits" in show.write_report().read_text(encoding="utf-8")
