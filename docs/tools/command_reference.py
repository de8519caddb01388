"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

_FENCE = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MOST_EXAMPLES = 3
_TYPES = {"TEXT": "TEXT", "INTEGER": "N", "FLOAT": "X", "BOOLEAN": ""}


def describe_commands(app: typer.Typer, pages: list[Path]) -> str:
    """Markdown: a section for each command, in the order of `--help`. pages: where examples are looked for."""
    examples = collect_examples(pages)
    return "\n\n".join(
        _describe_command(name, command, examples) for name, command in walk_commands(typer.main.get_command(app))
    )


def walk_commands(command: Any, name: str = "smoothcert") -> Iterator[tuple[str, Any]]:
    """(full name, command) for the program and everything below it."""
    yield name, command
    for below in getattr(command, "commands", {}).values():
        if not below.hidden:
            yield from walk_commands(below, f"{name} {below.name}")


def collect_examples(pages: list[Path]) -> list[str]:
    """The commands in unlabelled code blocks; continued lines are joined, comments and repetitions dropped."""
    lines = (
        re.sub(r"(^|\s)#.*", "", re.sub(r"\s+", " ", line)).strip()
        for page in pages
        for code in _FENCE.findall(page.read_text())
        for line in code.replace("\\\n", " ").splitlines()
    )
    return list(dict.fromkeys(line for line in lines if line.startswith("smoothcert ") and "…" not in line))


def _describe_command(name: str, command: Any, examples: list[str]) -> str:
    parts = [f"## {name} {{ #{name.replace(' ', '-')} }}", _tidy(command.help or ""), _usage(name, command)]
    mine = [line for line in examples if f"{line} ".startswith(f"{name} ")][:_MOST_EXAMPLES]
    if mine and not hasattr(command, "commands"):
        parts += ["Examples:", "```\n" + "\n".join(mine) + "\n```"]
    panels: dict[str | None, list[Any]] = {}
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            panels.setdefault(getattr(parameter, "rich_help_panel", None), []).append(parameter)
    for panel, parameters in panels.items():
        parts += [f"**{panel}**"] if panel else []
        parts += [_describe_parameter(name, parameter) for parameter in parameters]
    if command.epilog and name != "smoothcert":
        parts.append(_tidy(command.epilog))
    return "\n\n".join(part for part in parts if part)


def _usage(name: str, command: Any) -> str:
    pieces = [name]
    if hasattr(command, "commands"):
        pieces += ["COMMAND", "…"]
    else:
        pieces += [_argument(one) for one in command.params if one.param_type_name == "argument"]
        pieces += ["[OPTIONS]"] if any(one.param_type_name == "option" for one in command.params) else []
    return "```text\n" + " ".join(pieces) + "\n```"


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    name = name if parameter.nargs == 1 else f"{name}..."
    return name if parameter.required else f"[{name}]"


def _describe_parameter(command: str, parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        forms, key = _argument(parameter), parameter.name
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        forms, key = f"{names} {_value(parameter)}".strip(), parameter.opts[0].lstrip("-")
    anchor = f"{command} {key}".replace(" ", "-")
    notes = [_tidy(parameter.help or "")]
    notes += ["Required."] if parameter.required else []
    notes += ["Can be repeated."] if _is_silent_repetition(parameter) else []
    default = _default(parameter)
    notes += [f"Default: `{default}`."] if default else []
    return f"`{forms}`{{ #{anchor} }}\n:   {' '.join(note for note in notes if note)}"


def _is_silent_repetition(parameter: Any) -> bool:
    return bool(getattr(parameter, "multiple", False)) and "repeated" not in (parameter.help or "")


def _value(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if getattr(parameter, "is_flag", False):
        return ""
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return "|".join(str(choice) for choice in choices)
    name = str(parameter.type.name).upper()
    return _TYPES.get(name.removesuffix(" RANGE"), name)


def _default(parameter: Any) -> str:
    """The default as it is typed, or nothing where there is none."""
    default = parameter.default
    if default is None or isinstance(default, bool) or callable(default) or default in ((), [], ""):
        return ""
    if isinstance(default, list | tuple):
        return ",".join(str(one) for one in default)
    return str(getattr(default, "value", default))


def _tidy(text: str) -> str:
    """Help text as Markdown: paragraphs on one line each; brackets, stars and pipes outside code are characters."""
    paragraphs = (" ".join(paragraph.split()) for paragraph in text.replace("\b", "").split("\n\n"))
    pieces = re.split(r"(`[^`]*`)", "\n\n".join(paragraphs))
    return "".join(piece if piece.startswith("`") else re.sub(r"([\[\]*_<>|$])", r"\\\1", piece) for piece in pieces)
