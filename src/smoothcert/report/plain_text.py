"""Text from outside, made safe to show: invisible characters and direction marks become escapes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

# Controls except tab and newline; lone surrogates; marks and overrides of writing direction; and characters without
# width, with which two names would look the same. Joiners stay between non-ASCII characters, which may need them.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\ud800-\udfff\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
    "|(?<![^\x00-\x7f\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200c\u200d])"
)
# Only these can end a <script> element or open a comment in it.
_MARKUP = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}

_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/\\~])(?:~|[A-Za-z]:)?[/\\](?:[^/\\\s\"',;]+[/\\])+(?=[^/\\\s\"',;])")
"""The folders of a path on a machine, before the last part of the path."""

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")


def escape_invisible(text: str) -> str:
    r"""The text with such characters written as \u202e: names stay legible and cannot reorder the text around them."""
    return _UNSHOWABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def hide_folders(text: str) -> str:
    """The text with every absolute path cut to its last part, as in "…/net.pt"."""
    return _ABSOLUTE_PATH.sub("…/", text)


def hide_folders_in_document(document: Any) -> Any:
    """A copy of a JSON document with `hide_folders` applied to every text; keys stay.

    Works without recursion: a document from outside may be nested more deeply than Python's stack allows.
    """
    whole = [json.loads(json.dumps(document))]
    pending: list[Any] = [whole]
    while pending:
        container = pending.pop()
        for key, item in list(container.items() if isinstance(container, dict) else enumerate(container)):
            if isinstance(item, str):
                container[key] = hide_folders(item)
            elif isinstance(item, dict | list):
                pending.append(item)
    return whole[0]


def clip(text: str, *, most: int) -> str:
    """The text, cut after `most` characters."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def escape_values(value: Any) -> Any:
    """`escape_invisible` for every text in nested lists and mappings; keys are trusted."""
    if isinstance(value, str):
        return escape_invisible(value)
    if isinstance(value, Mapping):
        return {key: escape_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [escape_values(inner) for inner in value]
    return value


def encode_for_script(value: Any) -> str:
    """JSON for a <script> element: pure ASCII, without markup or NaN."""
    text = json.dumps(escape_values(value), allow_nan=False, separators=(",", ":"))
    for character, escape in _MARKUP.items():
        text = text.replace(character, escape)
    return text


def escape_formula(text: str) -> str:
    """The text with an apostrophe in front if a spreadsheet would read it as a formula."""
    return f"'{text}" if text.startswith(_FORMULAS) else text
