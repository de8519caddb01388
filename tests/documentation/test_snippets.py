"""The code in README and docs runs as it stands, and every documented command has options that exist."""

from __future__ import annotations

import re
import shlex
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import typer

from smoothcert.cli.main import app

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NEEDS_A_CLUSTER = {"cluster.md"}


def snippets(page: Path, language: str) -> list[str]:
    return [code for name, code in _FENCE.findall(page.read_text()) if name == language]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if snippets(page, language)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages say the reader has: the models of `make demo`."""
    from smoothcert.cli.demo import Demo

    folder = tmp_path_factory.mktemp("reader")
    Demo(folder / "demo", seed=0, sigmas=(0.25,), epochs=20).train(0.25)
    return folder


@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_python_snippets_run_one_after_the_other(page: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in _NEEDS_A_CLUSTER:
        pytest.importorskip("ray")
    monkeypatch.chdir(world)
    reader = types.ModuleType(f"snippets_of_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, reader.__name__, reader)  # dataclasses look up the module of a class
    for number, code in enumerate(snippets(page, "python"), start=1):
        exec(compile(code, f"{page.name}, snippet {number}", "exec"), reader.__dict__)


def documented_commands() -> list[tuple[str, str]]:
    """(page, command) for every `smoothcert …` in a code block; continued lines are joined, comments dropped."""
    found = []
    for page in PAGES:
        for code in snippets(page, ""):
            for line in code.replace("\\\n", " ").splitlines():
                command = re.sub(r"(^|\s)#.*", "", line).strip()
                if command.startswith("smoothcert "):
                    found.append((page.name, command))
    return found


def test_there_are_commands_to_check() -> None:
    assert len(documented_commands()) > 60


@pytest.mark.parametrize(("page", "command"), documented_commands())
def test_every_option_of_a_documented_command_exists(page: str, command: str) -> None:
    """`…` stands for options given before, and $C for a list of options; everything else must be known to the verb."""
    words = [word for word in shlex.split(command)[1:] if word != "…" and not word.startswith("$")]
    verb: Any = typer.main.get_command(app)
    while hasattr(verb, "commands"):  # recent versions of typer have a click of their own
        assert words, f"{page}: {command}"
        assert words[0] in verb.commands, f"{page}: {command}"
        verb = verb.commands[words.pop(0)]
    known = {name for parameter in verb.params for name in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0] for word in words if word.startswith("-") and not re.match(r"-\d", word)}
    assert used <= known | {"--help", "-h"}, f"{page}: {command}"
