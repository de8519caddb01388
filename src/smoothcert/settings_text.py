"""Settings as text: `name:setting=value,…` on the command line and in manifests, a dataclass in Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from decimal import Decimal, DecimalException
from typing import Any, ClassVar, Protocol, TypeVar

from smoothcert.errors import InputError


class NamedSettings(Protocol):
    """A dataclass of numbers and words, with a name. Its settings are its fields."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


SettingsT = TypeVar("SettingsT", bound=NamedSettings)
_LARGEST_NUMBER = 10**24


def whole_number(value: object, *, name: str) -> int:
    """A count such as 100000, 1e5 or "1e5" as an int; an InputError if it is not a whole number.

    value: an int, a float, a numpy scalar, or text. name: how messages call it, such as n or --n.
    """
    try:
        # A bool is not a count. Text goes through Decimal, because a float would round large numbers.
        number = None if isinstance(value, bool) else Decimal(value if isinstance(value, (int, str)) else str(value))
    except DecimalException:
        number = None
    if number is None or not number.is_finite():
        raise InputError(f"{name} is {value!r}; expected a whole number such as 100000 or 1e5")
    if not -_LARGEST_NUMBER <= number <= _LARGEST_NUMBER:
        raise InputError(f"{name} is too large: expected at most {_LARGEST_NUMBER:,}")
    if number != int(number):
        raise InputError(f"{name} is {value!r}, which has a fraction; expected a whole number such as 100000 or 1e5")
    return int(number)


def as_counts(**values: object) -> Iterator[int | None]:
    """Optional whole numbers by name, also of numpy, as ints; an int of any size and None stay as they are."""
    for name, value in values.items():
        yield value if value is None or type(value) is int else whole_number(value, name=name)


def real_number(value: object, *, name: str) -> float:
    """A number such as 0.001, also a numpy scalar, as a float; an InputError if it is none."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; expected a number") from None


def parse_settings(text: str, kinds: Mapping[str, type[SettingsT]], *, what: str) -> SettingsT:
    """Parse the text that `format_settings` writes. Omitted settings have their default.

    kinds: classes by name. what: the noun for messages, such as "search for sigma".
    """
    name, _, listed = text.strip().partition(":")
    kind = kinds.get(name.strip())
    if kind is None:
        raise InputError(f"there is no {what} {name!r}; choose {', '.join(kinds)}")
    known = {field.name: field for field in fields(kind)}
    settings: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in listed.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if key not in known or key in settings:
            problem = "is given twice" if key in settings else "is unknown"
            takes = f"{name} takes {', '.join(known)}" if known else f"{name} takes no settings"
            raise InputError(f"{item!r} in the {what} {text!r}: {key!r} {problem}; {takes}")
        settings[key] = _parse_value(value, known[key], item=item)
    return kind(**settings)


def format_settings(settings: NamedSettings) -> str:
    """The name with all settings that are not None, as `parse_settings` reads it."""
    values = collect_settings(settings)
    listed = ",".join(f"{name}={value if isinstance(value, str) else repr(value)}" for name, value in values.items())
    return f"{settings.name}:{listed}" if values else settings.name


def collect_settings(settings: NamedSettings) -> dict[str, Any]:
    """The settings that are not None, as JSON values."""
    given = {field: value for field in fields(settings) if (value := getattr(settings, field.name)) is not None}
    # 1 and 1.0 are the same setting and must give the same digest.
    return {field.name: value if field.type in {"int", "str"} else float(value) for field, value in given.items()}


def _parse_value(text: str, field: Field[Any], *, item: str) -> int | float | str:
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
        raise InputError(f"{item!r} is invalid: expected {expected} after the equals sign") from None
