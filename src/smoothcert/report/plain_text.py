"""Text from outside as it is shown: what has no picture, or would turn the page around, becomes an escape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# Controls but tab and newline; halves of surrogate pairs; marks and overrides of writing direction; and what takes no
# room, so that two names would look the same. Joiners stay between two characters that may need them: not ASCII ones.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\ud800-\udfff\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
    "|(?<![^\x00-\x7f\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200c\u200d])"
)
# Inside a <script> only these could end it, or open a comment.
_MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


def showable(text: str) -> str:
    r"""The text with such characters written as \u202e: names stay legible, and no name can reorder what is around."""
    return _UNSHOWABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clipped(text: str, *, most: int) -> str:
    """The beginning of a text that is longer than anything meant to be read there."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def showable_values(value: Any) -> Any:
    """`showable` for every text in lists and mappings, however deep; keys are ours."""
    if isinstance(value, str):
        return showable(value)
    if isinstance(value, Mapping):
        return {key: showable_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [showable_values(inner) for inner in value]
    return value


def script_json(value: Any) -> str:
    """JSON that may stand inside a <script> element: pure ASCII, without markup. Never NaN."""
    text = json.dumps(showable_values(value), allow_nan=False, separators=(",", ":"))
    for character, escape in _MARKUP.items():
        text = text.replace(character, escape)
    return text


def no_formula(text: str) -> str:
    """The text as a spreadsheet takes it for text: what begins like a formula gets an apostrophe."""
    return f"'{text}" if text.startswith(_FORMULAS) else text
