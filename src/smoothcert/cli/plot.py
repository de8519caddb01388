"""`smoothcert plot`: figures of runs and logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smoothcert.analysis.table_choices import BoundChoice, PlotKind
from smoothcert.cli.table import AlphaOption, BoundOption, CommonOption, RhoOption, RunsArgument


def plot(
    runs: RunsArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", show_default=False, help="The figure: a png, svg or pdf file.")
    ],
    kind: Annotated[PlotKind, typer.Option("--kind", help="What to draw.")] = PlotKind.ACCURACY,
    title: Annotated[str | None, typer.Option("--title", show_default=False, help="Text above the figure.")] = None,
    bound: BoundOption = None,
    rho: RhoOption = 0.001,
    alpha: AlphaOption = None,
    common: CommonOption = False,
) -> None:
    """Draw certified accuracy against radius, the envelope over runs, the distribution of p_A, or accuracy by class."""
    # Imported here, so that `smoothcert --help` does not import numpy.
    from smoothcert.analysis.figures import skip_matplotlib_docstrings
    from smoothcert.analysis.metrics import common_inputs
    from smoothcert.analysis.plots import draw
    from smoothcert.runs.load import load_all

    results = load_all(runs)
    skip_matplotlib_docstrings()
    draw(
        common_inputs(results) if common else results,
        output,
        kind=kind,
        title=title,
        bound=None if bound is None else BoundChoice(method=bound, rho=rho, alpha=alpha),
    )
    typer.echo(f"wrote {output}")
