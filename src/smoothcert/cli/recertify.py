"""`smoothcert recertify`: recompute a stored run with another α, n or certificate, without the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.errors import InputError

if TYPE_CHECKING:
    from smoothcert.runs.result_columns import ResultColumns


def recertify(
    run: Annotated[Path, typer.Argument(help="A run directory made by `certify`, or a log of Levine et al.")],
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="The new error probability (default for logs: 0.001).")
    ] = None,
    n: Annotated[
        int | None,
        o.count(
            "--n",
            "Use N samples: the first N if N is 10, 20, 50, 100, …; otherwise votes are thinned at random, and "
            "other tallies are refused. For a log: its number of samples.",
        ),
    ] = None,
    certificate: o.Certificates = None,
    best_of: o.BestOf = False,
    sigma: Annotated[float | None, typer.Option("--sigma", help="For a log: its noise level.")] = None,
    dimension: Annotated[
        int | None, typer.Option("--dimension", help="For a second-order log: the dimension of an input.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also store the result: as a new run; for a log, as csv, json or tsv."),
    ] = None,
    radii: Annotated[str | None, typer.Option("--radii", help="Radii of the table, as in `table`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON, as `table --json` does.")] = False,
) -> None:
    """Recompute every radius of a run from its stored tallies, or of a log from its raw counts.

    Omitted settings keep their value. Choose the settings that you report before you look at results: alpha does not
    cover the best of several, unless --best-of splits it.
    """
    from smoothcert.analysis.summary import default_radii, parse_radii, summarise
    from smoothcert.analysis.table_choices import TableFormat
    from smoothcert.analysis.tables import render, summary_table
    from smoothcert.cli.printing import terminal_width

    if run.is_file():
        if certificate or best_of:
            raise InputError("a log has the counts of one certificate only: omit --certificate and --best-of")
        results, notes = _recertify_log(run, alpha=alpha, n=n, sigma=sigma, dimension=dimension, out=out)
    else:
        if sigma is not None or dimension is not None:
            raise InputError(f"--sigma and --dimension are for logs, and {run} is a run: omit them")
        results, notes = _recertify_run(run, alpha=alpha, n=n, certificate=certificate, best_of=best_of, out=out)
    chosen = default_radii(results) if radii is None else parse_radii(radii)
    summaries = [summarise(one, radii=chosen) for one in results]
    if as_json:
        typer.echo(json.dumps([summary.to_json() for summary in summaries]))
        for note in notes:
            typer.echo(f"smoothcert: {note}", err=True)
    else:
        table = summary_table(summaries, notes=notes)
        typer.echo(render(table, form=TableFormat.TEXT, width=terminal_width()))


def _recertify_run(
    run: Path, *, alpha: float | None, n: int | None, certificate: list[str] | None, best_of: bool, out: Path | None
) -> tuple[list[ResultColumns], list[str]]:
    from smoothcert.runs.recertification import recertify_stored

    results, spec = recertify_stored(run, out, alpha=alpha, n=n, certificate=certificate or None, best_of=best_of)
    notes = [f"alpha {spec.alpha:g}, n {spec.question.n}, {spec.certificate_text}"]
    notes += [note for one in results for note in one.notes]
    return results, list(dict.fromkeys(notes))


def _recertify_log(
    log: Path, *, alpha: float | None, n: int | None, sigma: float | None, dimension: int | None, out: Path | None
) -> tuple[list[ResultColumns], list[str]]:
    from smoothcert.runs.exports import write_csv, write_json
    from smoothcert.runs.recertify_log import USUAL_ALPHA, recertify_log
    from smoothcert.runs.tsv import write_cohen_tsv

    if sigma is None or n is None:
        raise InputError(f"{log} is a log, which contains neither sigma nor n: give --sigma and --n")
    alpha = USUAL_ALPHA if alpha is None else alpha
    recertified = recertify_log(log, sigma=sigma, n=n, alpha=alpha, dimension=dimension)
    if out is not None:
        write = {".csv": write_csv, ".json": write_json}.get(out.suffix.lower(), write_cohen_tsv)
        write(recertified.results, out)
    return [recertified.results], [f"alpha {alpha:g}, n {n}, {recertified.certificate}", *recertified.notes]
