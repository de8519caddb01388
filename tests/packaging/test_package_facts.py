"""What the files that describe the package say agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import smoothcert
from tools.check_wheels import list_sdist_mistakes, list_wheel_mistakes
from tools.walk import WalkError, list_steps
from tools.wheel_smoke import OWN_CHECKS

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NO_SMOKE_TEST = {"fuzz", "all", "dev", "docs"}
TORCH_IS_PINNED = "torch"


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def test_the_version_is_stated_once_and_repeated_correctly() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert re.search(r"^version: (.+)$", read("CITATION.cff"), re.MULTILINE)[1] == smoothcert.__version__  # type: ignore[index]
    newest, date = re.search(r"^## (\S+) \((.+)\)$", read("CHANGELOG.md"), re.MULTILINE).groups()  # type: ignore[union-attr]
    assert newest == smoothcert.__version__
    assert f'date-released: "{date}"' in read("CITATION.cff")


def test_every_extra_has_a_smoke_test() -> None:
    assert set(PROJECT["optional-dependencies"]) - NO_SMOKE_TEST == set(OWN_CHECKS) - {"core"}


def lower_ends() -> dict[str, str]:
    """By name of a package: the lower end of its version range, in the core and in the extras that people install."""
    extras = PROJECT["optional-dependencies"]
    ranges = [*PROJECT["dependencies"], *(line for name in set(extras) - NO_SMOKE_TEST for line in extras[name])]
    found = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:; .+)?", line) for line in ranges]
    assert all(found), ranges
    return {match[1].lower(): match[2] for match in found if match}


def test_the_minimums_are_the_lower_ends_of_the_ranges() -> None:
    lines = [line for line in read("constraints-minimum.txt").splitlines() if not line.startswith("#")]
    minimums = {name.lower(): version for name, _, version in (line.partition("==") for line in lines)}
    ranges = lower_ends()
    assert minimums.keys() == ranges.keys()
    tested = {name for name in ranges if (minimums[name] + ".0").startswith(ranges[name] + ".")}
    assert ranges.keys() - tested == {TORCH_IS_PINNED}


def test_the_core_tests_of_the_workflows_exist() -> None:
    assert all((REPOSITORY / path).exists() for path in read("tools/core_tests.txt").split())


WHEEL = {
    "smoothcert/__init__.py",
    "smoothcert/py.typed",
    "smoothcert/report/templates/page.html",
    "smoothcert/report/templates/charts.json",
    "smoothcert_verify/__init__.py",
    "smoothcert_verify/py.typed",
    "smoothcert-1.dist-info/licenses/LICENSE",
}
SDIST = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "src/smoothcert/__init__.py"}


def test_contents_of_wheel_and_sdist() -> None:
    assert list_wheel_mistakes(WHEEL) == []
    assert list_sdist_mistakes(SDIST) == []
    assert list_wheel_mistakes(WHEEL | {"tests/test_x.py"}) == ["the wheel has tests/test_x.py"]
    assert list_wheel_mistakes(WHEEL - {"smoothcert/py.typed"}) == ["the wheel has no smoothcert/py.typed"]
    assert list_wheel_mistakes(WHEEL - {"smoothcert-1.dist-info/licenses/LICENSE"}) == ["the wheel has no LICENSE"]
    assert list_sdist_mistakes(SDIST | {"tests/test_x.py"}) == ["the sdist has tests/test_x.py"]


def test_the_walk_takes_every_line_that_a_stranger_types() -> None:
    assert list_steps("```\nsmoothcert --help  # all\nmake demo\n```\n\n```python\nimport os\n```\n") == [
        ("shell", "smoothcert --help  # all"),
        ("python", "import os\n"),
    ]
    with pytest.raises(WalkError, match="curl"):
        list_steps("```\ncurl example\n```\n")
    assert len(list_steps(read("README.md"))) >= 5
