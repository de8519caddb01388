"""Docstrings as Markdown: paragraphs of the form `name: meaning` become lists."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_NAMED = re.compile(r"(?P<names>[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): (?P<meaning>.+)", re.DOTALL)


def make_lists(docstring: str) -> str:
    """Turn every paragraph whose unindented lines all begin with `name: ` into a list; keep the others."""
    return "\n\n".join(_make_list(paragraph) for paragraph in docstring.split("\n\n"))


def _make_list(paragraph: str) -> str:
    items = [_NAMED.fullmatch(item) for item in re.split(r"\n(?=\S)", paragraph.strip("\n"))]
    if not all(items):
        return paragraph
    return "\n".join(f"- `{item['names']}`: {' '.join(item['meaning'].split())}" for item in items if item)


class DocstringLists(Extension):
    """Applies `make_lists` to every docstring that the site shows."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = make_lists(obj.docstring.value)
