"""`smoothcert table`: the results of runs and logs as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smoothcert.analysis.table_choices import BoundChoice, BoundMethod, TableFormat
from smoothcert.errors import InputError

RunsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", show_default=False, help="Run directories, RUN@CERTIFICATE, or TSV logs."),
]
BoundOption = Annotated[
    BoundMethod | None,
    typer.Option(
        "--bound", show_default=False, help="Add a lower bound on the test set's true certified accuracy, per radius."
    ),
]
RhoOption = Annotated[float, typer.Option("--rho", help="Probability that the bound at one radius is wrong.")]
AlphaOption = Annotated[
    float | None,
    typer.Option("--alpha", show_default=False, help="Error probability per input, for logs, which do not state it."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; the same as --format json.")]
DigitsOption = Annotated[
    int | None,
    typer.Option(
        "--digits",
        min=0,
        max=15,
        show_default=False,
        help="Decimals (default: 3; csv and json: all). Radii, ACR and bounds are rounded down, the rest to nearest.",
    ),
]
CommonOption = Annotated[bool, typer.Option("--common", help="Use only the inputs that all runs contain.")]


def table(
    runs: RunsArgument,
    radii: Annotated[
        str | None,
        typer.Option("--radii", show_default=False, help="Radii such as 0,0.25,0.5 (default: chosen from the data)."),
    ] = None,
    form: Annotated[TableFormat, typer.Option("--format", help="How to print the table.")] = TableFormat.TEXT,
    json_output: JsonOption = False,
    digits: DigitsOption = None,
    bound: BoundOption = None,
    rho: RhoOption = 0.001,
    alpha: AlphaOption = None,
    classes: Annotated[bool, typer.Option("--classes", help="Show accuracy by class, and its spread.")] = False,
    envelope: Annotated[bool, typer.Option("--envelope", help="Add the best run at each radius.")] = False,
    gold: Annotated[
        Path | None,
        typer.Option(
            "--gold", show_default=False, help="Compare the answers with those of this run or log, the gold standard."
        ),
    ] = None,
    common: CommonOption = False,
) -> None:
    """Print certified accuracy per radius, ACR, abstention and misclassification of runs.

    A run is a run directory or a TSV log. Certified accuracy at r is the share of inputs that are correct with a radius
    of at least r: they keep their answer under every perturbation smaller than r.
    """
    if classes and gold is not None:
        raise InputError("--classes and --gold print different tables: use one of them")
    # Imported here, so that `smoothcert --help` does not import numpy.
    from smoothcert.analysis.formatting import TableRequest, format_results
    from smoothcert.cli.printing import terminal_width

    request = TableRequest(
        runs=tuple(runs),
        radii=radii,
        form=TableFormat.JSON if json_output else form,
        digits=digits,
        bound=None if bound is None else BoundChoice(method=bound, rho=rho, alpha=alpha),
        classes=classes,
        envelope=envelope,
        gold=gold,
        common=common,
    )
    typer.echo(format_results(request, width=terminal_width()))
