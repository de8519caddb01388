"""`smoothcert export`: one run in the formats of other programs."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from smoothcert.errors import RunError


class ExportFormat(enum.StrEnum):
    COHEN_TSV = "cohen-tsv"
    CSV = "csv"
    JSON = "json"
    CERTIFICATE = "certificate"
    ARCHIVE = "archive"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", show_default=False, help="RUN, RUN@CERTIFICATE or a TSV log.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", show_default=False, help="The file to write; for certificate and archive, the directory."
        ),
    ],
    form: Annotated[ExportFormat, typer.Option("--format", help="What to write.")] = ExportFormat.COHEN_TSV,
    digits: Annotated[
        int, typer.Option("--digits", min=0, max=15, help="Decimals of a radius in cohen-tsv, rounded down.")
    ] = 6,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Write a run as the usual log (idx label predict radius correct time), as csv, json, certificates or an archive.

    In cohen-tsv radii are rounded down, and abstentions and failures are both -1. csv and json contain everything in
    full precision, json also the votes of every class. certificate writes a JSON file for each input, which
    `smoothcert verify` can check. archive writes the whole run as two small files, without the folders of this machine;
    every command that reads runs reads the directory, but nothing can be added to it.
    """
    if form is ExportFormat.ARCHIVE:
        _export_archive(run, output, force=force)
        return
    if form is ExportFormat.CERTIFICATE:
        _export_certificates(run, output, force=force)
        return
    # Imported here, so that `smoothcert --help` does not import numpy.
    from smoothcert.runs.exports import write_csv, write_json
    from smoothcert.runs.load import load_all, load_points
    from smoothcert.runs.tsv import write_cohen_tsv

    results, *others = load_all([run])
    if form is ExportFormat.COHEN_TSV:
        write_cohen_tsv(results, output, digits=digits, overwrite=force)
    elif form is ExportFormat.CSV:
        write_csv(results, output, overwrite=force)
    else:
        write_json(results, output, points=load_points(run), overwrite=force)
    typer.echo(f"wrote {len(results)} inputs to {output}")
    if results.scale is not None and form is not ExportFormat.JSON:
        typer.echo(f"smoothcert: {form} does not state the norm: radii are in the scaled norm of the run", err=True)
    if others:
        names = ", ".join(other.name for other in others)
        typer.echo(f"smoothcert: only {results.name} was written; {run} also has {names}", err=True)


def _export_certificates(run: Path, out: Path, *, force: bool) -> None:
    from smoothcert.cli.counting import inputs_progress
    from smoothcert.runs.certificate_documents import write_certificates

    if run.is_file():
        raise RunError(f"{run} is a log, which has no tallies to check a certificate with: give a run directory")
    with inputs_progress("certificates") as progress:
        files = write_certificates(run, out, overwrite=force, progress=progress)
    typer.echo(f"wrote {len(files)} certificates to {out}")


def _export_archive(run: Path, out: Path, *, force: bool) -> None:
    from smoothcert.runs.archives import write_archive

    if run.is_file():
        raise RunError(f"{run} is a log, which has no manifest and no tallies: give a run directory")
    inputs = write_archive(run, out, overwrite=force)
    typer.echo(f"wrote {inputs} inputs to {out}")
