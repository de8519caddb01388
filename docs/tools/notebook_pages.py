"""An executed notebook as a Markdown page and its figures."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class NotebookPage:
    """markdown: the page; figures: PNG images by the name that the page uses; has_table: whether it shows HTML."""

    markdown: str
    figures: dict[str, bytes]
    has_table: bool


def make_page(executed: Path, name: str) -> NotebookPage:
    """The page of an executed notebook. Its figures are `figures/NAME-CELL-OUTPUT.png`, beside the page."""
    import nbformat

    figures: dict[str, bytes] = {}
    parts: list[str] = []
    has_table = False
    for number, cell in enumerate(nbformat.read(executed, as_version=4).cells, start=1):
        if cell.cell_type == "markdown":
            parts.append(_with_download(cell.source, name) if not parts else cell.source)
            continue
        if cell.cell_type != "code":
            continue
        parts.append(_fence(cell.source, "python"))
        for place, output in enumerate(cell.outputs, start=1):
            figure = f"figures/{name}-{number}-{place}.png"
            parts.append(_show(output, figure, figures))
            has_table = has_table or "text/html" in output.get("data", {})
    return NotebookPage("\n\n".join(part for part in parts if part), figures, has_table)


def _with_download(markdown: str, name: str) -> str:
    return f"{markdown}\n\n[Download this notebook](download/{name}.ipynb)"


def _show(output: Any, figure: str, figures: dict[str, bytes]) -> str:
    if output.output_type == "stream":
        return _show_text(output.text)
    data = output.get("data", {})
    if "image/png" in data:
        figures[figure] = base64.b64decode(data["image/png"])
        return f"![Figure made by the code above]({figure})"
    if "text/html" in data:
        # Blank lines would end the block of HTML.
        return '<div class="notebook-html">' + re.sub(r"\n\s*\n", "\n", data["text/html"]) + "</div>"
    return _show_text(data.get("text/plain", ""))


def _show_text(text: str) -> str:
    """Printed text as a terminal leaves it: of a line written several times, the last version."""
    plain = _COLOURS.sub("", text)
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1].rstrip() for line in plain.split("\n")]
    shown = "\n".join(lines).strip("\n")
    return _fence(shown, "text .notebook-text") if shown else ""


def _fence(code: str, language: str) -> str:
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", code)), default=0))
    return f"{ticks} {{ .{language} }}\n{code}\n{ticks}"
