"""Strict JSON: parsing without NaN or repeated names, canonical digests, and shapes that values are checked against.

A shape is called with a value and the name of its field. It raises an MalformedError that names the field. What passes
a shape may be indexed without further checks.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from smoothcert_verify.findings import MalformedError, refuse

Document = dict[str, Any]
Shape = Callable[[Any, str], None]

_LARGEST_NUMBER = 1e300


def parse_json(content: bytes | str) -> Any:
    """The value in strict JSON: no NaN, no infinity (also not as 1e999), and no repeated name in an object."""
    try:
        return json.loads(content, **_STRICT) if isinstance(content, bytes) else _DECODER.decode(content)
    except (ValueError, RecursionError) as error:
        raise refuse("not-json", error=str(error)) from error


def _refuse_constant(name: str) -> NoReturn:
    raise refuse("not-a-number", value=name)


def _parse_finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise refuse("number-too-large", value=text)
    return value


def _make_object(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise refuse("repeated-name")
    return found


def canonical_digest(document: Any) -> str:
    """SHA-256 of the JSON with sorted names and no spaces, in hexadecimal."""
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()
    except (ValueError, TypeError, RecursionError) as error:
        raise refuse("not-json", error=str(error)) from error


def is_same(one: Any, other: Any) -> bool:
    """Equal, and of the same type: True is not 1, and 1.0 is not 1."""
    return type(one) is type(other) and bool(one == other)


_STRICT: dict[str, Any] = {
    "parse_constant": _refuse_constant,
    "parse_float": _parse_finite,
    "object_pairs_hook": _make_object,
}
_DECODER = json.JSONDecoder(**_STRICT)


def _refuse_value(field: str, value: Any, expected: str) -> MalformedError:
    return refuse("invalid-value", field=field, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range."""

    least: int = 0
    most: int = 10**15

    def __call__(self, value: Any, field: str) -> None:
        if type(value) is not int or not self.least <= value <= self.most:
            raise _refuse_value(field, value, f"a whole number from {self.least} to {self.most}")


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number; least and most are allowed."""

    least: float = -_LARGEST_NUMBER
    most: float = _LARGEST_NUMBER

    def __call__(self, value: Any, field: str) -> None:
        if type(value) not in (int, float) or not self.least <= value <= self.most:
            raise _refuse_value(field, value, f"a number from {self.least:g} to {self.most:g}")


@dataclass(frozen=True, slots=True)
class Text:
    """A text; of this many hexadecimal digits, if that is given."""

    digits: int | None = None

    def __call__(self, value: Any, field: str) -> None:
        if not isinstance(value, str):
            raise _refuse_value(field, value, "a text")
        if self.digits is not None and (len(value) != self.digits or not set(value) <= set("0123456789abcdef")):
            raise _refuse_value(field, value, f"{self.digits} hexadecimal digits")


@dataclass(frozen=True, slots=True)
class OneOf:
    values: tuple[Any, ...]

    def __call__(self, value: Any, field: str) -> None:
        for known in self.values:
            if is_same(value, known):
                return
        raise _refuse_value(field, value, "one of " + ", ".join(map(repr, self.values)))


BOOLEAN = OneOf((True, False))
TEXT = Text()


@dataclass(frozen=True, slots=True)
class Optional:
    """Null, or the shape."""

    shape: Shape

    def __call__(self, value: Any, field: str) -> None:
        if value is not None:
            self.shape(value, field)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of the shape, with a number of items in the range."""

    shape: Shape
    least: int = 0
    most: int = 10**7

    def __call__(self, value: Any, field: str) -> None:
        if not isinstance(value, list | tuple) or not self.least <= len(value) <= self.most:
            raise _refuse_value(field, value, f"a list of at least {self.least} items")
        for place, item in enumerate(value):
            self.shape(item, f"{field}.{place}")


@dataclass(frozen=True, slots=True)
class TableOf:
    """An object with any names, all of whose values have the shape."""

    shape: Shape

    def __call__(self, value: Any, field: str) -> None:
        if not isinstance(value, dict):
            raise _refuse_value(field, value, "an object")
        for name, item in value.items():
            self.shape(item, f"{field}.{name[:60]}")


@dataclass(frozen=True, slots=True)
class Later:
    """The shape of a field that records made by earlier versions do not have."""

    shape: Shape

    def __call__(self, value: Any, field: str) -> None:
        self.shape(value, field)


class Record:
    """An object with exactly these fields."""

    def __init__(self, **fields: Shape) -> None:
        self.fields = fields
        self._names = fields.keys()

    def __call__(self, value: Any, field: str) -> None:
        if not isinstance(value, dict):
            raise _refuse_value(field, value, "an object")
        prefix = f"{field}." if field else ""
        if value.keys() == self._names:
            for name, shape in self.fields.items():
                shape(value[name], prefix + name)
            return
        for name, shape in self.fields.items():
            if name not in value and isinstance(shape, Later):
                continue
            if name not in value:
                raise refuse("missing-field", field=prefix + name)
            shape(value[name], prefix + name)
        for name in value:
            if name not in self.fields:
                raise refuse("unknown-field", field=f"{prefix}{name:.60}")


@dataclass(frozen=True, slots=True)
class Tagged:
    """A record whose field `kind` says which one it is."""

    records: Mapping[str, Record]

    def __call__(self, value: Any, field: str) -> None:
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in self.records:
            raise _refuse_value(f"{field}.kind", kind, "one of " + ", ".join(self.records))
        self.records[kind]({name: item for name, item in value.items() if name != "kind"}, field)


def accept_anything(value: Any, field: str) -> None:
    """The shape of what is information only."""


OBJECT = TableOf(accept_anything)


def read_fraction(entry: Mapping[str, Any], name: str) -> Fraction:
    """A finite number of an object, exactly."""
    Number()(entry.get(name), name)
    return Fraction(entry[name])
