"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_reference() -> Path:
    """Published results, kept beside the repository and never inside it."""
    path = REPOSITORY.parent / "shared" / "reference"
    if not path.is_dir():
        pytest.skip("the published results (../shared/reference) are not on this machine")
    return path
