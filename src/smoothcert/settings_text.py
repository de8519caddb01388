"""Settings in words: `name:setting=value,…` on the command line and in manifests, a dataclass inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, TypeVar

from smoothcert.errors import InputError


class Worded(Protocol):
    """A dataclass of numbers and words with a name. Its settings are its fields."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


Kind = TypeVar("Kind", bound=Worded)


def parse_worded(text: str, kinds: Mapping[str, type[Kind]], *, what: str) -> Kind:
    """The dataclass of that name with the settings given; `written` gives the text back.

    kinds: by the word that names them. what: the noun for messages, as "search for sigma".
    """
    name, _, listed = text.strip().partition(":")
    kind = kinds.get(name.strip())
    if kind is None:
        raise InputError(f"there is no {what} {name!r}; choose {', '.join(kinds)}")
    known = {each.name: each for each in fields(kind)}
    settings: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in listed.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in known or key in settings:
            problem = "is given twice" if key in settings else "is unknown"
            takes = f"{name} takes {', '.join(known)}" if known else f"{name} takes no settings"
            raise InputError(f"{item!r} in the {what} {text!r}: {key!r} {problem}; {takes}")
        settings[key] = _value(value, known[key], item=item)
    return kind(**settings)


def written(worded: Worded) -> str:
    """The name with all settings, as `parse_worded` reads it; what is None is left out."""
    values = settings_of(worded)
    listed = ",".join(f"{name}={value if isinstance(value, str) else repr(value)}" for name, value in values.items())
    return f"{worded.name}:{listed}" if values else worded.name


def settings_of(worded: Worded) -> dict[str, Any]:
    """The settings that are not None, as plain JSON."""
    given = {each: value for each in fields(worded) if (value := getattr(worded, each.name)) is not None}
    # A number typed without a point is the same number, and makes the same digest.
    return {each.name: value if each.type in {"int", "str"} else float(value) for each, value in given.items()}


def _value(text: str, field: Field[Any], *, item: str) -> int | float | str:
    try:
        match field.type:
            case "int":
                return int(text)
            case "str":
                return text
            case _:
                return float(text)
    except ValueError:
        expected = "a whole number" if field.type == "int" else "a number"
        raise InputError(f"{item!r} cannot be read: expected {expected} after the equals sign") from None
