"""The help of every command: complete, in panels, and readable in a narrow terminal; shell completion."""

import itertools
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from cli_runner import command, environment
from code_tables import describe_exit_codes
from smoothcert import errors
from smoothcert.certificates import CERTIFICATES
from smoothcert.cli.main import app
from smoothcert.cli.options import CERTIFICATE_FORMS, PANELS
from smoothcert.data import list_datasets
from smoothcert.errors import ExitCode, SmoothcertError


def list_commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, group
    for name, one in getattr(group, "commands", {}).items():
        yield from list_commands(one, (*path, name))


COMMANDS = dict(list_commands(typer.main.get_command(app)))


def show_help(*path: str, option: str = "--help") -> str:
    """In a terminal of 80 columns."""
    done = CliRunner().invoke(app, [*path, option], env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    return done.output


def show_wide_help(verb: str) -> str:
    """In a terminal of 100 columns, by another process: this one has measured its terminal."""
    done = subprocess.run(
        command(verb, "--help"), capture_output=True, text=True, env={**environment(), "COLUMNS": "100"}, check=True
    )
    return done.stdout


@pytest.fixture(params=COMMANDS, ids=" ".join)
def path(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


def test_h_is_help(path: tuple[str, ...]) -> None:
    assert show_help(*path, option="-h") == show_help(*path)


def test_nothing_is_cut_in_eighty_columns(path: tuple[str, ...]) -> None:
    text = show_help(*path)
    assert max(map(len, text.splitlines())) <= 80
    words = set(text.replace("│", " ").split())
    for one in COMMANDS[path].params:
        options = [*one.opts, *one.secondary_opts] if one.param_type_name == "option" else []
        missing = [word for word in (*options, *(one.help or "").split()) if word not in words]
        assert missing == [], one.name


def test_the_docstring_is_wrapped_to_the_terminal(path: tuple[str, ...]) -> None:
    paragraphs = (COMMANDS[path].help or "").split("\n\n")
    assert not any("\n" in paragraph for paragraph in paragraphs)


@pytest.mark.parametrize("verb", ["certify", "predict"])
def test_common_options_fit_a_screen(verb: str) -> None:
    common, _, _ = show_wide_help(verb).strip().partition("╭─ Rarely needed")
    assert len(common.splitlines()) <= 42
    for option in ("--model", "--data", "--sigma", "--n ", "--alpha", "--seed", "--device", "--out", "--resume"):
        assert option in common


@pytest.mark.parametrize("verb", ["certify", "predict", "train", "attack"])
def test_options_are_in_panels(verb: str) -> None:
    shown = re.findall("╭─ (.+?) ─", show_help(verb))
    panels = [panel for panel in shown if panel != "Arguments"]
    assert panels == [panel for panel in PANELS if panel in panels]
    assert "Options" not in panels
    assert "Rarely needed" in panels


def test_all_forms_of_certificates_are_listed() -> None:
    """They are written out, because --help loads no theorem."""
    forms = CERTIFICATE_FORMS.removeprefix("Certificates: ").partition(". ")[0].split(", ")
    names = []
    for form in forms:
        name, *suffixes = re.split(r"\[(.+?)\]", form)[0], *re.findall(r"\[(.+?)\]", form)
        choices = [["", *suffix.split("|")] for suffix in suffixes]
        names += [name + "".join(chosen) for chosen in itertools.product(*choices)]
    assert sorted(names) == sorted(CERTIFICATES)


def list_errors(kind: type[SmoothcertError] = SmoothcertError) -> Iterator[type[SmoothcertError]]:
    yield kind
    for inner in kind.__subclasses__():
        yield from list_errors(inner)


def test_all_exit_codes_are_listed() -> None:
    said, page = " ".join(show_help().split()), describe_exit_codes()
    for error in list_errors():
        assert error.exit_code in list(ExitCode)
    for code in ExitCode:
        assert f"{code.value} {code.meaning}" in said
        assert re.search(rf"^\| {code.value} \| `\w+` \| {re.escape(code.meaning)} \|", page, re.MULTILINE)
    assert {int(number) for number in re.findall(r"exit (\d+)", errors.__doc__ or "")} <= {*ExitCode}


def complete(*words: str) -> list[str]:
    variables = {"COMP_WORDS": " ".join(("smoothcert", *words)), "COMP_CWORD": str(len(words))}
    variables["_SMOOTHCERT_COMPLETE"] = "complete_bash"
    return CliRunner().invoke(app, [], env=variables, prog_name="smoothcert").stdout.split()


def test_completion() -> None:
    assert complete("recer") == ["recertify"]
    assert complete("certify", "--data", "") == [info.entry.name for info in list_datasets()]
    assert complete("certify", "--certificate", "renyi") == ["renyi", "renyi-two-class"]
    assert complete("certify", "--model", "net") == []  # the shell completes file names
