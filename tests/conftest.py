"""Fixtures shared by all tests, and the lane of each test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from lanes import is_slow

# There are as many test processes as cores: more threads inside each would only wait for each other, which takes three
# times as long. Set before anything imports numpy or torch; commands started by tests inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine must not fail a test. The gate tries the same examples every time, half as many as at home, where new
# ones are looked for.
settings.register_profile(
    "gate", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("home", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate" if os.environ.get("CI") else "home")

REPOSITORY = Path(__file__).resolve().parent.parent

_MULTIPLY_IN_BFLOAT16 = "import torch; torch.mm(torch.eye(64).bfloat16(), torch.eye(64).bfloat16())"


def pytest_configure() -> None:
    """Leave out AMX where a virtual machine announces its instructions and then refuses them.

    oneDNN would use them for bfloat16, and the process would be killed. Tried once on a machine, in a process of its
    own; workers of pytest-xdist and commands started by tests inherit the setting.
    """
    cpu, refused = Path("/proc/cpuinfo"), Path(tempfile.gettempdir()) / "smoothcert-tests-amx-is-refused"
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu.exists() or "amx_tile" not in cpu.read_text():
        return
    if not refused.exists():
        tried = subprocess.run([sys.executable, "-c", _MULTIPLY_IN_BFLOAT16], capture_output=True, check=False)
        refused.write_text("yes" if tried.returncode == -signal.SIGILL else "no")
    if refused.read_text() == "yes":
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that tests/support/lanes.py names as slow."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def two_torch_threads() -> Iterator[None]:
    """Torch computes with two threads, so that a test can see whether their number is left as it was."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """Published results, kept beside the repository and never inside it."""
    path = REPOSITORY.parent / "shared" / "reference"
    if not path.is_dir():
        pytest.skip("the published results (../shared/reference) are not on this machine")
    return path
