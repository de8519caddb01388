"""A proxy before a PostgreSQL server that can fall silent: connections stay open, and nothing passes any more."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit


class SilentProxy:
    """address: of the database through this proxy, with a password that the server does not ask for."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._socket_path = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._messages_left: int | None = None
        self._speaks = threading.Event()
        self._speaks.set()
        self._open: list[socket.socket] = []
        port = self._listening.getsockname()[1]
        self.address = f"postgresql://{parts.username}:s3cret@127.0.0.1:{port}{parts.path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def fall_silent(self, *, after: int = 0) -> None:
        """Pass this many further messages of clients, and then nothing in any direction."""
        self._messages_left = after
        if after == 0:
            self._speaks.clear()

    def speak(self) -> None:
        """Pass everything again. What was said meanwhile is lost."""
        self._messages_left = None
        self._speaks.set()

    def close(self) -> None:
        for one in [self._listening, *self._open]:
            # Wakes the thread that waits for it.
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._socket_path)
                self._open += [client, server]
                for source, sink, counts in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass_on, args=(source, sink, counts), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                if counts and self._messages_left is not None:
                    if self._messages_left == 0:
                        self._speaks.clear()
                    else:
                        self._messages_left -= 1
                if self._speaks.is_set():
                    sink.sendall(data)
            # The other side is gone. A silent network would not tell.
            if self._speaks.is_set():
                sink.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy_before(target: str) -> Iterator[SilentProxy]:
    """target: the address of a database of `postgres_server`."""
    proxy = SilentProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
