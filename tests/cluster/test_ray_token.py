"""A cluster that requires a token: Ray turns this on as soon as there is a file `~/.ray/auth_token`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runner import command, environment

TOKEN = "0123456789abcdef" * 4
TRIES = 4


def home_with(folder: Path, token: str | None) -> dict[str, str]:
    """The environment of a user with this token."""
    (folder / ".ray").mkdir(parents=True)
    if token is not None:
        (folder / ".ray" / "auth_token").write_text(token)
    ours = {name: value for name, value in environment().items() if not name.startswith("RAY_")}
    return {**ours, "HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def head(variables: dict[str, str]) -> Iterator[str]:
    """The address of a head that `ray start` has started, as in docs/how-to/cluster.md."""
    # On a busy machine Ray gives up its own start after some seconds, so it gets several tries.
    for _ in range(TRIES):
        # Its sockets need a short path.
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            port = free_port()
            process = start_head(variables, Path(folder), port)
            try:
                if (found := wait_for_head(process, Path(folder))) is not None:
                    yield f"{found}:{port}"
                    return
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    raise AssertionError(f"Ray did not start in {TRIES} tries")


def start_head(variables: dict[str, str], folder: Path, port: int) -> subprocess.Popen[bytes]:
    words = [
        sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--port", str(port), "--num-cpus",
        "1", "--object-store-memory", str(80 * 2**20), "--include-dashboard", "false", "--ray-client-server-port",
        str(free_port()), "--min-worker-port", "0", "--max-worker-port", "0", "--temp-dir", str(folder),
    ]  # fmt: skip
    with (folder / "head.log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, env=variables, start_new_session=True)


def wait_for_head(process: subprocess.Popen[bytes], folder: Path) -> str | None:
    """The host of the head, or None if it has ended."""
    while process.poll() is None:
        told = (folder / "head.log").read_text()
        if "Ray runtime started" in told:
            assert "Token authentication is enabled" in told
            return told.partition("Local node IP: ")[2].split()[0]
        time.sleep(0.2)
    return None


def certify(address: str, out: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = command(
        "certify", "--model", "sample_models:digits_by_brightness", "--num-classes", 10, "--data", "digits", "--sigma",
        0.25, "--n0", 10, "--n", 200, "--max", 2, "--seed", 3, "--batch", 64, "--actors", 1, "--out", out,
        "--engine", "ray", "--address", address,
    )  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, env=variables, timeout=400, check=False)


def test_a_cluster_with_a_token(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    ours = home_with(tmp_path / "ours", TOKEN)
    other = home_with(tmp_path / "other", TOKEN[::-1])
    nobody = home_with(tmp_path / "nobody", None)
    with head(ours) as address:
        for variables in (ours, {**other, "RAY_AUTH_MODE": "token"}, {**nobody, "RAY_AUTH_MODE": "token"}):
            refused = certify(address, tmp_path / "refused", variables)
            assert refused.returncode == 8, refused.stderr
            assert f"the Ray cluster at {address} requires its token" in refused.stderr
            assert "RAY_AUTH_MODE=token" in refused.stderr
            assert "Traceback" not in refused.stderr
            # Not a line of Ray's own.
            assert "gcs_client" not in refused.stderr
            assert TOKEN not in refused.stderr
        made = certify(address, tmp_path / "made", {**ours, "RAY_AUTH_MODE": "token"})
        assert made.returncode == 0, made.stderr
