"""The page of runs in progress, served on this machine alone and made anew when a run has grown."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from smoothcert.errors import RunError, SmoothcertError
from smoothcert.report.content import Request, content
from smoothcert.report.page import render_page, render_waiting
from smoothcert.runs.load import split_certificate

HOST = "127.0.0.1"


def state_of(paths: Sequence[Path]) -> str:
    """What changes whenever one of the runs does: sizes and times of its files."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            place = split_certificate(path)[0]
        except RunError:
            continue
        for file in sorted(place.iterdir()) if place.is_dir() else [place]:
            if file.suffix in (".lock", ".sqlite-shm"):  # reading touches them
                continue
            try:
                status = file.stat()
            except OSError:
                continue
            digest.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


class Page:
    """The page for the state the runs are in, made when somebody asks for it and kept until they change."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._made: tuple[str, bytes] | None = None
        self._lock = threading.Lock()

    def state(self) -> str:
        return state_of(self._request.runs)

    def content(self) -> bytes:
        with self._lock:
            # Taken first: what is written while the page is made shows up as another state, and is asked for again.
            state = self.state()
            if self._made is None or self._made[0] != state:
                self._made = (state, self._render(state))
            return self._made[1]

    def _render(self, state: str) -> bytes:
        try:
            return render_page(content(self._request), follow=state)
        except SmoothcertError as error:
            return render_waiting(str(error), follow=state)


def serve(request: Request, *, port: int, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. announce hears the address. port: 0 takes a free one."""
    try:
        server = server_for(request, port=port)
    except OSError as error:
        raise RunError(f"port {port} of {HOST} cannot be used: {error.strerror or error}") from error
    with server, contextlib.suppress(KeyboardInterrupt):
        announce(f"http://{HOST}:{server.server_port}/")
        server.serve_forever(poll_interval=0.2)


def server_for(request: Request, *, port: int) -> ThreadingHTTPServer:
    page = Page(request)

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "smoothcert", ""

        def do_GET(self) -> None:
            # Another name for this address would be a foreign page that had its name point here, to read ours.
            own = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}  # type: ignore[attr-defined]
            if self.headers.get("Host") not in own:
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path == "/":
                self._send(page.content(), "text/html; charset=utf-8")
            elif self.path == "/state":
                self._send(page.state().encode(), "text/plain; charset=utf-8")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the terminal is for people."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    server.daemon_threads = True
    return server
