"""Serve the page of runs in progress on this machine, and update it when a run grows."""

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
from smoothcert.report.content import ReportRequest, build_content
from smoothcert.report.page import render_page, render_waiting
from smoothcert.runs.load import split_certificate

HOST = "127.0.0.1"
_SECONDS_OF_PATIENCE = 30
"""Timeout for a client that sends nothing or does not read its answer."""
_REST = 3.0
"""A page is kept for this many times as long as it took to render, because a large run grows faster than that."""


def state_of(paths: Sequence[Path]) -> str:
    """A digest that changes whenever one of the runs does: of the sizes and times of its files."""
    digest = hashlib.sha256()
    for path in paths:
        # A missing file is a state like any other.
        with contextlib.suppress(RunError, OSError):
            place = split_certificate(path)[0]
            for file in sorted(place.iterdir()) if place.is_dir() else [place]:
                digest.update(_state_of_file(file))
    return digest.hexdigest()


def _state_of_file(file: Path) -> bytes:
    if file.suffix in (".lock", ".sqlite-shm"):  # reading changes them
        return b""
    try:
        status = file.stat()
    except OSError:
        return b""
    return f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape")


class Page:
    """The page for the current state of the runs, rendered on request and kept until the state changes."""

    def __init__(self, request: ReportRequest) -> None:
        self._request = request
        self._made: tuple[str, bytes] | None = None
        self._keep_until = 0.0
        self._lock = threading.Lock()

    def state(self) -> str:
        """The state of the runs; or that of the page, while it is too recent to be rendered again."""
        made = self._made
        return made[0] if made is not None and time.monotonic() < self._keep_until else state_of(self._request.runs)

    def content(self) -> bytes:
        with self._lock:
            # Read first: what is written while the page is rendered is another state, which the browser asks for.
            state = self.state()
            if self._made is None or self._made[0] != state:
                began = time.monotonic()
                self._made = (state, self._render(state))
                now = time.monotonic()
                self._keep_until = now + _REST * (now - began)
            return self._made[1]

    def _render(self, state: str) -> bytes:
        try:
            return render_page(build_content(self._request), follow=state)
        except (SmoothcertError, OSError) as error:
            return render_waiting(str(error), follow=state)


def serve(request: ReportRequest, *, port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM, in the main thread. announce: called with the address. port: 0 for any."""
    try:
        server = server_for(request, port=port)
    except OSError as error:
        raise RunError(f"port {port} of {HOST} cannot be used: {error.strerror or error}") from error
    with server, contextlib.suppress(KeyboardInterrupt), _interrupt_on_signals():
        announce(f"http://{HOST}:{server.server_port}/")
        server.serve_forever(poll_interval=0.2)


@contextlib.contextmanager
def _interrupt_on_signals() -> Iterator[None]:
    """Let both signals interrupt, also in a background job of a script, where SIGINT is ignored by default."""
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
        # HTTPServer would look up the host name of this machine in the network.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that closes its connection early is not an error.
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def server_for(request: ReportRequest, *, port: int) -> ThreadingHTTPServer:
    page = Page(request)

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "smoothcert", ""
        timeout = _SECONDS_OF_PATIENCE

        def do_GET(self) -> None:
            if self.headers.get("Host") not in _host_names(self.server.server_port):  # type: ignore[attr-defined]
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
            # No other page may embed this one; a policy inside the page cannot state that.
            self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing to the terminal."""

    return _Server((HOST, port), Handler)


def _host_names(port: int) -> set[str]:
    """The host names of this server. Any other name is that of a foreign site which resolves to this machine."""
    names = {HOST, "localhost"}
    return {f"{name}:{port}" for name in names} | (names if port == 80 else set())
