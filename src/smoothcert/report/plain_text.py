"""Text from outside as it is shown: what has no picture, or would turn the page around, becomes an escape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# Controls but tab and newline, halves of surrogate pairs, and the marks and overrides of writing direction.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
# Inside a <script> only these could end it, or open a comment.
_MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def showable(text: str) -> str:
    r"""The text with such characters written as \u202e: names stay legible, and no name can reorder what is around."""
    return _UNSHOWABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


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
