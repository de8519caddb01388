"""`smoothcert compare`: the certified radii of one run relative to those of another, input by input."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.analysis.table_choices import TableFormat
from smoothcert.cli.table import DigitsOption, JsonOption
from smoothcert.errors import InputError

if TYPE_CHECKING:
    from smoothcert.analysis.comparison import Comparison


def compare(
    run_a: Annotated[
        Path, typer.Argument(metavar="RUN_A", show_default=False, help="RUN, RUN@CERTIFICATE or a TSV log.")
    ],
    run_b: Annotated[
        Path,
        typer.Argument(metavar="RUN_B", show_default=False, help="The baseline: RUN, RUN@CERTIFICATE or a TSV log."),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", show_default=False, help="Also draw the histogram: a png, svg or pdf file."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", show_default=False, help="Text above the figure.")] = None,
    bins: Annotated[
        str | None,
        typer.Option(
            "--bins",
            show_default=False,
            help="Width of a bin in percent, such as 0.5, or edges such as -5,0,5,10 (default: chosen from the data).",
        ),
    ] = None,
    inputs: Annotated[
        bool,
        typer.Option(
            "--inputs",
            help="List every counted input; in text and json in addition to the numbers, else instead of them.",
        ),
    ] = False,
    wrong_too: Annotated[
        bool, typer.Option("--wrong-too", help="Count every certified input, not only those certified correctly.")
    ] = False,
    form: Annotated[TableFormat, typer.Option("--format", help="How to print the numbers.")] = TableFormat.TEXT,
    json_output: JsonOption = False,
    digits: DigitsOption = None,
) -> None:
    """Compare the certified radii of RUN_A with those of the baseline RUN_B, input by input.

    Inputs are matched by index. An input counts if at least one run certifies it correctly. The ratio of radii is
    computed for inputs that both runs certify as the same class.
    """
    if title is not None and output is None:
        raise InputError("--title is the text above a figure: it needs -o FILE")
    # Imported here, so that `smoothcert --help` does not import numpy.
    from smoothcert.analysis.comparison import compare as compare_runs
    from smoothcert.runs.load import load_pair

    comparison = compare_runs(*load_pair(run_a, run_b), wrong_too=wrong_too)
    form = TableFormat.JSON if json_output else form
    text = _print_comparison(comparison, form=form, digits=digits, bins=bins, inputs=inputs)
    if output is not None:
        from smoothcert.analysis.comparison_plot import draw_comparison
        from smoothcert.analysis.figures import skip_matplotlib_docstrings

        skip_matplotlib_docstrings()
        draw_comparison(comparison, output, bins=bins, title=title)
    typer.echo(text)
    if form is TableFormat.CSV:
        # A CSV file cannot contain sentences.
        for note in comparison.notes:
            typer.echo(f"smoothcert: {note}", err=True)
    if output is not None:
        typer.echo(f"wrote {output}", err=form in (TableFormat.CSV, TableFormat.JSON))


def _print_comparison(
    comparison: Comparison, *, form: TableFormat, digits: int | None, bins: str | None, inputs: bool
) -> str:
    from smoothcert.analysis.comparison import flat_table, inputs_table, summarise_comparison
    from smoothcert.analysis.tables import render

    if form is TableFormat.JSON:
        return _print_json(comparison, bins=bins, inputs=inputs)
    if form is TableFormat.TEXT:
        return _print_text(comparison, digits=digits, bins=bins, inputs=inputs)
    if inputs:
        return render(inputs_table(comparison), form=form, digits=digits)
    summary = summarise_comparison(comparison)
    if form is TableFormat.CSV:
        return render(flat_table(summary), form=form, digits=digits)
    return "\n\n".join(render(table, form=form, digits=digits) for table in comparison.tables)


def _print_json(comparison: Comparison, *, bins: str | None, inputs: bool) -> str:
    import json
    from dataclasses import asdict

    from smoothcert.analysis.comparison import inputs_table, summarise_comparison
    from smoothcert.analysis.comparison_plot import choose_edges, make_histogram

    document = summarise_comparison(comparison).to_json() | {
        "histogram": make_histogram(comparison, choose_edges(comparison, bins=bins)).to_json(),
        "p_a": [None if found is None else asdict(found) for found in comparison.p_a.values()],
        "notes": list(map(str, comparison.notes)),
    }
    if inputs:
        document["inputs"] = inputs_table(comparison).to_json()
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)


def _print_text(comparison: Comparison, *, digits: int | None, bins: str | None, inputs: bool) -> str:
    import textwrap

    from smoothcert.analysis.comparison import comparison_tables, inputs_table, summarise_comparison
    from smoothcert.analysis.comparison_plot import format_histogram
    from smoothcert.analysis.tables import p_a_table, render
    from smoothcert.cli.printing import terminal_width

    width = terminal_width()
    tables = [*comparison_tables(summarise_comparison(comparison)), p_a_table(comparison.p_a)]
    parts = [render(table, form=TableFormat.TEXT, digits=digits, width=width) for table in tables if table is not None]
    parts.append(format_histogram(comparison, bins=bins))
    if inputs:
        # A long listing comes after the histogram and before the notes, which stay visible on the screen.
        parts.append(render(inputs_table(comparison), form=TableFormat.TEXT, digits=digits, width=width))
    if comparison.notes:
        parts.append("\n".join(textwrap.fill(str(note), 80, break_long_words=False) for note in comparison.notes))
    return "\n\n".join(parts)
