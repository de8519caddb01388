"""`smoothcert recertify`: a stored run at another α, a smaller n or by another certificate, without the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from smoothcert.cli import options as o


def recertify(
    run: Annotated[Path, typer.Argument(help="A run directory made by `certify`.")],
    alpha: Annotated[float | None, typer.Option("--alpha", help="The new error probability.")] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            help="Use N samples: the first N where N is 10, 20, 50, 100, …; else the last ones are thinned at random.",
        ),
    ] = None,
    certificate: o.Certificates = None,
    best_of: o.BestOf = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also store the result as a run of its own.")] = None,
    radii: Annotated[str | None, typer.Option("--radii", help="Radii of the table, as in `table`.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON, as `table --json` does.")] = False,
) -> None:
    """Recompute every radius of a run from its stored votes.

    Fix the settings you report before looking at the results: alpha does not cover the best of several.
    """
    from smoothcert.analysis.options import TableFormat
    from smoothcert.analysis.summary import default_radii, parse_radii, summarise
    from smoothcert.analysis.tables import render, summary_table
    from smoothcert.cli.printing import terminal_width
    from smoothcert.engines.recertify import recertify_run
    from smoothcert.runs.results import Results

    wanted = o.certificate_text(certificate, best_of=best_of)
    recertified = recertify_run(run, alpha=alpha, n=n, certificate=wanted)
    if out is not None:
        recertified.save(out)
    parameters = recertified.parameters
    expected = parameters.get("inputs")
    results = Results.from_points(
        recertified.points, name=(out or run).name, alpha=parameters["alpha"], expected=expected
    )
    summary = summarise(results, radii=default_radii([results]) if radii is None else parse_radii(radii))
    if as_json:
        typer.echo(json.dumps([summary.to_json()]))
    else:
        notes = [f"alpha {parameters['alpha']:g}, n {parameters['n']}, {parameters['certificate']}"]
        if results.unfinished is not None:
            notes.append(results.unfinished)
        table = summary_table([summary], notes=notes)
        typer.echo(render(table, form=TableFormat.TEXT, width=terminal_width()))
