"""`smoothcert verify`: check certificates and runs with the independent checker, `smoothcert_verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from smoothcert.cli import options as o


def verify(
    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|FILE...",
            show_default=False,
            help="Run directories; certificates by `export --format certificate`, or directories of them.",
        ),
    ],
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="PLACE",
            show_default=False,
            help="The memory the runs claimed from, an SQLite file or a postgresql:// URL: check its log too.",
        ),
    ] = None,
    replay: Annotated[
        tuple[str, int] | None,
        typer.Option(
            "--replay",
            metavar="MODEL K",
            show_default=False,
            help="Draw all samples of K inputs, chosen at random, again from the recorded seed, and count again. "
            "With a selector, MODEL is selector,a,b,c: one model for each level, or one for all.",
        ),
    ] = None,
    replay_indices: Annotated[
        str | None,
        typer.Option("--replay-indices", show_default=False, help="Replay these inputs instead, such as 0,17; K is 0."),
    ] = None,
    replay_weights: Annotated[
        str | None,
        typer.Option(
            "--replay-weights",
            show_default=False,
            help="Where the weights of MODEL are now, if it is code (default: where the run had them).",
        ),
    ] = None,
    replay_batch: Annotated[
        int | None,
        typer.Option(
            "--replay-batch",
            min=1,
            show_default=False,
            help="Ask the model in batches of this size instead of the recorded one. With 1, ask the original too.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            show_default=False,
            help="Where the data is now. Without --replay, only distances between inputs are measured.",
        ),
    ] = None,
    data_root: o.DataRoot = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Accept a run whose inputs are not all done.")
    ] = False,
    as_json: o.Json = False,
) -> None:
    """Recompute every bound and radius from the tallies in ball arithmetic, and check everything a run states.

    The code that made the run is not used. Exit code 0: everything is proved. Exit code 1: a check failed, and each
    discrepancy is printed.
    """
    from smoothcert.cli.counting import inputs_progress
    from smoothcert.results.verification import translate_checker_errors

    with translate_checker_errors():
        from smoothcert_verify.place_checks import CheckOptions, inspect_places
        from smoothcert_verify.summaries import summarise

        model, count = (None, 0) if replay is None else replay
        options = CheckOptions(
            memory=memory,
            model=model,
            count=count,
            indices=replay_indices,
            weights=replay_weights,
            batch=replay_batch,
            data=data,
            data_root=data_root,
            unfinished=unfinished,
        )
        inspection = inspect_places(
            places, options, show_progress=lambda title, unit: inputs_progress(title, unit=unit)
        )
    if as_json:
        typer.echo(json.dumps(inspection.to_json()))
    else:
        for line in summarise(inspection):
            typer.echo(line)
    if inspection.list_discrepancies():
        raise typer.Exit(1)
