"""Tables of the reference that are made from the code: exit codes, and the fields of a certificate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoothcert import errors


def describe_exit_codes() -> str:
    """Markdown: every exit code, its meaning, and the exceptions that end a command with it."""
    rows = ["| code | name | meaning | exceptions |", "|---|---|---|---|"]
    for code in errors.ExitCode:
        raised = ", ".join(f"`{name}`" for name in _exceptions_of(code))
        rows.append(f"| {code.value} | `{code.name}` | {code.meaning} | {raised or '–'} |")
    return "\n".join(rows)


def _exceptions_of(code: errors.ExitCode) -> list[str]:
    return [
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.SmoothcertError) and kind.exit_code == code
    ]


def describe_schema(path: Path) -> str:
    """Markdown: the fields of a certificate document, and a section for each definition of the schema."""
    schema = json.loads(path.read_text())
    parts = [schema["description"], "## The document", _field_table(schema)]
    for name, definition in schema.get("$defs", {}).items():
        parts.append(f"## Definition: {name} {{ #def-{name} }}")
        parts.append(_escape(definition.get("description", "")))
        if list(_walk_fields(definition)):
            parts.append(_field_table(definition))
        else:
            parts.append(f"Type: {_type_of(definition)}.")
    return "\n\n".join(part for part in parts if part)


def _field_table(schema: dict[str, Any]) -> str:
    rows = ["| field | type | required | meaning |", "|---|---|---|---|"]
    for name, field, required in _walk_fields(schema):
        meaning = _escape(field.get("description", ""))
        rows.append(f"| `{name}` | {_type_of(field)} | {'yes' if required else 'no'} | {meaning} |")
    return "\n".join(rows)


def _walk_fields(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield f"{prefix}{name}", field, name in required
        yield from _walk_fields(field, f"{prefix}{name}.")
        yield from _walk_fields(field.get("items", {}), f"{prefix}{name}[].")
    for kind in ("oneOf", "anyOf"):
        for choice in schema.get(kind, ()):
            yield from _walk_fields(choice, prefix)


def _type_of(field: dict[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#def-{name})"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(one)}`" for one in field["enum"])
    for kind in ("oneOf", "anyOf"):
        if kind in field:
            return " or ".join(dict.fromkeys(_type_of(choice) for choice in field[kind]))
    named = field.get("type", "object" if "properties" in field else "any value")
    text = " or ".join(named) if isinstance(named, list) else str(named)
    if named == "array" and "items" in field:
        text = f"array of {_type_of(field['items'])}"
    limits = _limits(field)
    return f"{text} {limits}" if limits else text


def _limits(field: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ", ".join(f"{sign} {field[key]}" for key, sign in signs.items() if key in field)


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("$", "\\$")
