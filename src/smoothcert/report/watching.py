"""The page of runs in progress, served on this machine alone and made anew when a run has grown."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from smoothcert.errors import RunError, SmoothcertError
from smoothcert.report.content import Request, content
from smoothcert.report.page import render_page, render_waiting
from smoothcert.runs.load import split_certificate

HOST = "127.0.0.1"
_SECONDS_OF_PATIENCE = 30
"""With a client that says nothing, or does not take what it asked for."""
_REST = 3.0
"""A page is shown for at least so many times as long as it took to make: a large run grows faster than it is drawn."""


def state_of(paths: Sequence[Path]) -> str:
    """What changes whenever one of the runs does: sizes and times of its files."""
    digest = hashlib.sha256()
    for path in paths:
        # What is not there, or goes away meanwhile, is a state like any other.
        with contextlib.suppress(RunError, OSError):
            place = split_certificate(path)[0]
            for file in sorted(place.iterdir()) if place.is_dir() else [place]:
                digest.update(_state_of_file(file))
    return digest.hexdigest()


def _state_of_file(file: Path) -> bytes:
    if file.suffix in (".lock", ".sqlite-shm"):  # reading touches them
        return b""
    try:
        status = file.stat()
    except OSError:
        return b""
    return f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape")


class Page:
    """The page for the state the runs are in, made when somebody asks for it and kept until they change."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._made: tuple[str, bytes] | None = None
        self._keep_until = 0.0
        self._lock = threading.Lock()

    def state(self) -> str:
        """Of the runs; or of the page, where it was made too short a time ago to be made again."""
        made = self._made
        return made[0] if made is not None and time.monotonic() < self._keep_until else state_of(self._request.runs)

    def content(self) -> bytes:
        with self._lock:
            # Taken first: what is written while the page is made shows up as another state, and is asked for again.
            state = self.state()
            if self._made is None or self._made[0] != state:
                began = time.monotonic()
                self._made = (state, self._render(state))
                now = time.monotonic()
                self._keep_until = now + _REST * (now - began)
            return self._made[1]

    def _render(self, state: str) -> bytes:
        try:
            return render_page(content(self._request), follow=state)
        except (SmoothcertError, OSError) as error:
            return render_waiting(str(error), follow=state)


def serve(request: Request, *, port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM; for the main thread. announce hears the address. port: 0 takes a free one."""
    try:
        server = server_for(request, port=port)
    except OSError as error:
        raise RunError(f"port {port} of {HOST} cannot be used: {error.strerror or error}") from error
    with server, contextlib.suppress(KeyboardInterrupt), _ended_by_signals():
        announce(f"http://{HOST}:{server.server_port}/")
        server.serve_forever(poll_interval=0.2)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Both signals interrupt, also in a job that a script began in the background, where Ctrl-C is ignored at first."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks the network for the name of this machine.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that goes away in the middle of an answer is no news.
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def server_for(request: Request, *, port: int) -> ThreadingHTTPServer:
    page = Page(request)

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "smoothcert", ""
        timeout = _SECONDS_OF_PATIENCE

        def do_GET(self) -> None:
            if self.headers.get("Host") not in _own_names(self.server.server_port):  # type: ignore[attr-defined]
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path == "/":
                self._send(page.content(), "text/html; charset=utf-8")
            elif self.path == "/state":
                self._send(page.state().encode(), "text/plain; charset=utf-8")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            # No other page may frame this one or take it in: the policy inside the page cannot say that.
            self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the terminal is for people."""

    return _Server((HOST, port), Handler)


def _own_names(port: int) -> set[str]:
    """What a browser calls this server. Another name is a foreign page's that had its name point here, to read ours."""
    names = {HOST, "localhost"}
    return {f"{name}:{port}" for name in names} | (names if port == 80 else set())
