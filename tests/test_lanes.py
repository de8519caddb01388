"""The table of slow tests names tests that exist, and each kind of slow test has a representative in the fast lane."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lanes import LANES, is_slow

REPOSITORY = Path(__file__).resolve().parent.parent


def exists(entry: str) -> bool:
    """Whether an entry names a folder or a file of tests, or a class or function in one."""
    path, *names = entry.partition("[")[0].split("::")
    if not names:
        return (REPOSITORY / path).is_file() or any((REPOSITORY / path).glob("**/test_*.py"))
    if not (REPOSITORY / path).is_file():
        return False
    body: list[ast.stmt] = ast.parse((REPOSITORY / path).read_text()).body
    for name in names:
        found = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name]
        if not found:
            return False
        body = found[0].body
    return True


@pytest.mark.parametrize("kind", LANES)
def test_entries_name_tests_that_exist(kind: str) -> None:
    gone = [entry for entry in (*LANES[kind].slow, *LANES[kind].representatives) if not exists(entry)]
    assert gone == [], "these were renamed or removed: correct tests/support/lanes.py"


@pytest.mark.parametrize("kind", LANES)
def test_each_kind_has_a_representative_in_the_fast_lane(kind: str) -> None:
    assert LANES[kind].representatives
    assert not any(is_slow(entry) for entry in LANES[kind].representatives)


def test_slow_is_a_folder_a_file_or_a_test() -> None:
    assert is_slow("tests/cli/test_kill.py::test_kill_nine_ten_times")
    assert not is_slow("tests/cli/test_kill.pyx::test_kill_nine_ten_times")
    assert not is_slow("tests/numerics/test_roots.py::test_anything")
    assert not exists("tests/cli/test_kill.py::test_that_is_not_there")
