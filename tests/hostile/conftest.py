"""Hostile input is tried the same way every time, and never with all the memory of the machine."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from foreseen import same_every_time

SPARE = 3 << 30
"""Bytes of address space a test may take beyond what the process has: room to work, none for a bomb."""

settings.register_profile("hostile", same_every_time)


@pytest.fixture(autouse=True, scope="module")
def _the_same_examples_every_time() -> Iterator[None]:
    before = settings.get_current_profile_name()
    settings.load_profile("hostile")
    yield
    settings.load_profile(before)


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[0]) * resource.getpagesize()


@pytest.fixture
def little_memory() -> Iterator[Callable[[], int]]:
    """Allocations far beyond what is there fail at once. Gives a function: the most bytes this process ever held."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + SPARE, before[1]))
    yield lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    resource.setrlimit(resource.RLIMIT_AS, before)
