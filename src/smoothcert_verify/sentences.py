"""Small things every check needs: values in sentences, and values of doubtful type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
"""What reading a document of the wrong shape may raise."""


def as_object(value: Any) -> Mapping[str, Any]:
    """The value, or an empty object where it is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> Sequence[Any]:
    """The value, or an empty list where it is none."""
    return value if isinstance(value, list) else []


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same type: True is not 1, and 1.0 is not 1."""
    return type(one) is type(other) and bool(one == other)


def is_hexadecimal(value: Any, length: int) -> bool:
    return isinstance(value, str) and len(value) == length and set(value) <= set("0123456789abcdef")


def shown(value: Any) -> str:
    """A value for a sentence, cut short, on one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "something too long to be shown"
    return text if len(text) <= 80 else text[:77] + "..."


def told(error: BaseException) -> str:
    """An error for a sentence."""
    if isinstance(error, KeyError):
        return f"there is no {shown(error.args[0] if error.args else '')}"
    return f"{type(error).__name__}: {str(error)[:200]}"
