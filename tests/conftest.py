"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

# Some virtual machines announce AMX instructions and stop a process that uses them. Set before torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail a test. The gate tries the same examples every time; at home new ones are looked for.
settings.register_profile("gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("home", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate" if os.environ.get("CI") else "home")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """Published results, kept beside the repository and never inside it."""
    path = REPOSITORY.parent / "shared" / "reference"
    if not path.is_dir():
        pytest.skip("the published results (../shared/reference) are not on this machine")
    return path
