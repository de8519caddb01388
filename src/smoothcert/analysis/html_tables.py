"""Tables as HTML for notebooks. Colours are those of the notebook, light or dark."""

from __future__ import annotations

from html import escape

from smoothcert.analysis.tables import Kind, Table, format_cells

_TABLE = "border-collapse:collapse;font-size:inherit;color:inherit;font-variant-numeric:tabular-nums;margin:.3em 0"
_CELL = "padding:.15em .7em;border:0;background:none;text-align:"
_RULE = ";border-bottom:1px solid currentColor"


def render_html(table: Table, *, digits: int | None = None) -> str:
    """A self-contained table; the best cells of a column are bold, notes are below. digits: as in `render`."""
    sides = ["left" if column.kind is Kind.NAME else "right" for column in table.columns]
    titles = [
        f'<th style="{_CELL}{side}{_RULE}">{escape(column.title)}</th>'
        for column, side in zip(table.columns, sides, strict=True)
    ]
    rows = []
    for number, cells in enumerate(format_cells(table, digits)):
        shown = [
            f"<b>{escape(cell)}</b>" if table.is_best(number, place) else escape(cell)
            for place, cell in enumerate(cells)
        ]
        rows.append("".join(f'<td style="{_CELL}{side}">{cell}</td>' for side, cell in zip(sides, shown, strict=True)))
    body = "".join(f'<tr style="background:none">{cells}</tr>' for cells in ["".join(titles), *rows])
    return f'<div style="overflow-x:auto"><table style="{_TABLE}">{body}</table></div>' + render_notes(table.notes)


def render_notes(notes: tuple[str, ...]) -> str:
    """Sentences below a table."""
    return "".join(f'<div style="opacity:.8;font-size:90%;max-width:60em">{escape(note)}</div>' for note in notes)
