"""README and pages keep their form, and their links lead somewhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
LINKED = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
_FENCE = re.compile(r"^[ ]*```.*?^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def read_text(path: Path) -> str:
    """The text outside of code blocks."""
    if path.suffix == ".ipynb":
        cells = nbformat.read(path, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    else:
        text = path.read_text()
    return _FENCE.sub("", text)


@cache
def list_anchors(path: Path) -> frozenset[str]:
    """The anchors of the headings, as mkdocs and code hosts make them, and those that are written out."""
    text = read_text(path)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return frozenset({re.sub(r"\s+", "-", word) for word in words} | set(re.findall(r"\{ *#([\w-]+)", text)))


def find_broken_links(path: Path) -> list[str]:
    broken = []
    for link in _LINK.findall(read_text(path)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        place = path.parent / target if target else path
        is_generated = place.suffix == ".md" and place.exists() and "<!-- generated:" in place.read_text()
        if not place.exists() or (
            anchor and place.suffix in (".md", ".ipynb") and not is_generated and anchor not in list_anchors(place)
        ):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", [*LINKED, *PAGES, *NOTEBOOKS], ids=name_of)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    assert find_broken_links(path) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A title\n\n## A part of it\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#a-part-of-it) [b](other.md#no-part) [c](missing.md)\n\n```\n[d](missing.md)\n```\n")
    assert find_broken_links(page) == ["other.md#no-part", "missing.md"]


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_a_page_says_for_whom_it_is(path: Path) -> None:
    assert re.match(r"# .+\n\nFor ", path.read_text())


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_lines_are_at_most_100_characters(path: Path) -> None:
    long = [
        line
        for line in read_text(path).splitlines()
        if len(line) > 100 and not line.startswith(("|", "    ")) and not _LINK.search(line)
    ]
    assert long == []


def test_the_readme_has_at_most_500_words() -> None:
    assert len((REPOSITORY / "README.md").read_text().split()) <= 500
