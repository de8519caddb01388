"""The two lanes of the tests: which ones `make test` leaves to `make test-all`.

`make test` runs what takes milliseconds, and one representative of each slow kind. A test is slow if it has
`@pytest.mark.slow`, or if an entry of SLOW is its path, one of its folders, or its path and name; an entry in
REPRESENTATIVES keeps a test in the fast lane. `tests/test_lanes.py` fails where an entry no longer names anything.
"""

from __future__ import annotations

from collections.abc import Iterable

SLOW: dict[str, tuple[str, ...]] = {}
"""By kind: folders, files, or tests as FILE::NAME (all parameters) or FILE::CLASS::NAME."""

REPRESENTATIVES: tuple[str, ...] = ()
"""Tests of SLOW that `make test` runs all the same: FILE::NAME, or FILE::NAME[PARAMETERS]."""


def is_slow(node: str) -> bool:
    """Whether a test, named as pytest does from the folder of the repository, is left to `make test-all`."""
    return not _names(REPRESENTATIVES, node) and any(_names(entries, node) for entries in SLOW.values())


def _names(entries: Iterable[str], node: str) -> bool:
    return any(node == entry or node.startswith((f"{entry}/", f"{entry}::", f"{entry}[")) for entry in entries)
