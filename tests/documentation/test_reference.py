"""The generated reference is complete: options, exit codes, fields of the schema, public names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import smoothcert
from code_tables import describe_exit_codes, describe_schema
from command_reference import collect_examples, describe_commands, walk_commands
from smoothcert.cli.main import app
from smoothcert.errors import ExitCode

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = DOCS / "reference" / "certificate.schema.json"
COMMANDS = list(walk_commands(typer.main.get_command(app)))


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The text of the reference by command."""
    text = describe_commands(app, [])
    parts = re.split(r"^## (.+) \{ #.+ \}$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_option_is_described(name: str, command: Any, sections: dict[str, str]) -> None:
    terms = " ".join(re.findall(r"^`(.+?)`\{", sections[name], re.MULTILINE)).replace(",", "").split()
    expected = {
        form
        for one in command.params
        if one.param_type_name == "option" and not one.hidden
        for form in (*one.opts, *one.secondary_opts)
    }
    assert expected <= set(terms)


def test_defaults_types_and_panels_are_shown(sections: dict[str, str]) -> None:
    assert re.search(
        r"^`--n N`\{ #smoothcert-certify-n \}\n:   .*Default: `100000`\.$", sections["smoothcert certify"], re.M
    )
    assert "**Rarely needed**" in sections["smoothcert certify"]


def test_examples_are_the_documented_commands(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```\nsmoothcert table runs/a \\\n    --json   # all\nsmoothcert plot …\n```\n")
    assert collect_examples([page]) == ["smoothcert table runs/a --json"]
    assert "Examples:\n\n```\nsmoothcert table runs/a --json\n```" in describe_commands(app, [page])


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_is_described(code: ExitCode) -> None:
    assert f"| {code.value} | `{code.name}` | {code.meaning} |" in describe_exit_codes()


def test_every_field_of_the_schema_is_described() -> None:
    text, schema = describe_schema(SCHEMA), json.loads(SCHEMA.read_text())
    assert all(f"| `{field}` |" in text for field in schema["properties"])
    assert all(f"{{ #def-{name} }}" in text for name in schema["$defs"])


@pytest.mark.parametrize("page", ["commands", "exit-codes", "certificate-schema", "published-tables"])
def test_the_pages_have_the_marks_that_are_replaced(page: str) -> None:
    part = "kept-results" if page == "published-tables" else page
    assert f"<!-- generated: {part} -->" in (DOCS / "reference" / f"{page}.md").read_text()


def test_every_public_name_is_in_the_reference_once() -> None:
    pages = "\n".join(page.read_text() for page in (DOCS / "reference" / "api").glob("*.md"))
    shown = re.findall(r"^::: smoothcert\.(\w+)$", pages, re.MULTILINE)
    # Errors are shown together, by their module.
    assert sorted([name for name in shown if name != "errors"]) == sorted({*smoothcert.__all__} - {"SmoothcertError"})
