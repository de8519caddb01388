"""`smoothcert export`: one run in the formats other programs read."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


class ExportFormat(enum.StrEnum):
    COHEN_TSV = "cohen-tsv"
    CSV = "csv"
    JSON = "json"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="RUN, RUN@CERTIFICATE or a TSV log.")],
    output: Annotated[Path, typer.Option("--output", "-o", show_default=False, help="The file to write.")],
    form: Annotated[ExportFormat, typer.Option("--format", help="What to write.")] = ExportFormat.COHEN_TSV,
    digits: Annotated[
        int, typer.Option("--digits", min=0, max=15, help="Decimals of a radius in cohen-tsv, rounded down.")
    ] = 6,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a run as the usual log (idx label predict radius correct time), as csv or as json.

    In cohen-tsv radii are rounded down, and abstentions and failures are both -1. csv and json hold
    everything, in full precision.
    """
    # Here and not above: `smoothcert --help` should not wait for numpy.
    from smoothcert.runs.exports import write_csv, write_json
    from smoothcert.runs.load import load_all
    from smoothcert.runs.tsv import write_cohen_tsv

    results, *others = load_all([run])
    if form is ExportFormat.COHEN_TSV:
        write_cohen_tsv(results, output, digits=digits, overwrite=force)
    else:
        (write_csv if form is ExportFormat.CSV else write_json)(results, output, overwrite=force)
    typer.echo(f"wrote {len(results)} inputs to {output}")
    if others:
        names = ", ".join(other.name for other in others)
        typer.echo(f"smoothcert: {run} carries more than {results.name}; also: {names}", err=True)
