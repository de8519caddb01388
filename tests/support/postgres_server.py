"""A private PostgreSQL server for tests, in its own directory and on its own socket, stopped by its process id."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

_SECONDS_TO_START = 60


class NoServerError(Exception):
    """PostgreSQL is not installed and cannot be installed."""


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a private server and yield the address of a database in it. It is removed afterwards."""
    programs = _programs()
    # Not pytest's own directory: PostgreSQL does not run as root, and another user cannot reach that. Its sockets need
    # a short path, too.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        _give_away(folder)
        _run([programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "tester", "--no-sync"], folder)
        with _serving(programs / "postgres", folder):
            yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _serving(program: Path, folder: Path) -> Iterator[None]:
    # Only its clients are killed, so its writes need not be synced to the disk.
    settings = ["listen_addresses=", "max_connections=50", "fsync=off"]
    command: list[Path | str] = [program, "-D", folder / "data", "-k", folder]
    for setting in settings:
        command += ["-c", setting]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(_as_ordinary_user(command), stdout=log, stderr=log, cwd=folder)
    try:
        _wait_until_ready(server, folder)
        yield
    finally:
        # SIGINT: disconnect everyone and stop.
        server.send_signal(2)
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path) -> None:
    import psycopg

    deadline = time.monotonic() + _SECONDS_TO_START
    while True:
        try:
            psycopg.connect(f"postgresql://tester@/postgres?host={folder}").close()
            return
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise NoServerError((folder / "server.log").read_text()) from error
            time.sleep(0.1)


def _programs() -> Path:
    """The directory of Debian's server programs. A missing package is installed if possible."""
    if not (found := _installed()):
        _install()
        found = _installed()
    if not found:
        raise NoServerError("PostgreSQL is not installed, and apt-get could not install it")
    return found


def _installed() -> Path | None:
    # Only a complete directory: while the package is being unpacked, programs are missing.
    places = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    whole = [place for place in places if (place / "postgres").is_file() and (place.parent / "lib").is_dir()]
    return max(whole, key=lambda place: float(place.parent.name), default=None)


def _install() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    with FileLock(Path(tempfile.gettempdir()) / "smoothcert-tests-apt.lock"):
        if _installed():
            return
        # The package must not start its own server.
        Path("/etc/postgresql-common").mkdir(exist_ok=True)
        quiet = Path("/etc/postgresql-common/createcluster.conf")
        if not quiet.exists():
            quiet.write_text("create_main_cluster = false\n")
        options = ["-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confold"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", *options, "postgresql"]):
            subprocess.run(["apt-get", *arguments], env=environment, capture_output=True, timeout=300, check=False)


def _give_away(folder: Path) -> None:
    """Change the owner to the user the server runs as."""
    folder.chmod(0o700)
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        # Its clients run as root and need no permissions.


def _as_ordinary_user(command: list[Path | str]) -> list[str]:
    words = [str(word) for word in command]
    if os.geteuid() != 0:
        return words
    user = pwd.getpwnam("postgres")
    # setpriv replaces itself by the program, so that the process id is the server's.
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *words]


def _run(command: list[Path | str], folder: Path) -> None:
    done = subprocess.run(_as_ordinary_user(command), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServerError(f"{command[0]} failed: {done.stderr}")
