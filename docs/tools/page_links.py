"""Links between files of the repository, as links between pages of the site."""

from __future__ import annotations

import posixpath
import re

INCLUDED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security-policy.md"}
"""Files beside docs/ that are pages of the site, and their names there."""

_FENCES = re.compile(r"(^[ ]*```.*?^[ ]*```[ ]*$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]+)\]\((?P<target>[^()\s]+)\)")


def rewrite_links(markdown: str, *, source: str, page: str) -> str:
    """markdown of the file `source` (from the repository's folder), to be shown as `page` (from docs/).

    Links to pages lead to pages. The site has no copy of other files of the repository: of links to them the text
    remains, as does a link with a scheme.
    """

    def rewrite(match: re.Match[str]) -> str:
        target, hash_sign, anchor = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if place.startswith("docs/"):
            there = place.removeprefix("docs/")
        elif place in INCLUDED:
            there = INCLUDED[place]
        elif place == "README.md":
            there = "index.md"
        else:
            return match["text"]
        relative = posixpath.relpath(there, posixpath.dirname(page) or ".")
        return f"[{match['text']}]({relative}{hash_sign}{anchor})"

    pieces = _FENCES.split(markdown)
    return "".join(piece if number % 2 else _LINK.sub(rewrite, piece) for number, piece in enumerate(pieces))
