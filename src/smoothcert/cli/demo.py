"""`smoothcert demo`: train, certify and draw, in front of you, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where everything goes.")] = Path("demo"),
    seed: Annotated[int, typer.Option("--seed", help="Seed of training and noise.")] = 0,
) -> None:
    """Train on digits at several noise levels, certify each model, write tables, figures and a page to look at.

    Stopped half-way, the same command goes on where it was.
    """
    from smoothcert.cli.progress import samples_progress, stop_on_interrupt
    from smoothcert.demo import Demo

    show = Demo(out, seed=seed)
    with stop_on_interrupt() as stop:
        for sigma in show.sigmas:
            typer.echo(f"sigma {sigma:g}: training on digits", err=True)
            show.train(sigma, stop=stop)
            typer.echo(
                f"sigma {sigma:g}: certifying {show.inputs} test images with {show.n} noisy copies each", err=True
            )
            with samples_progress(show.samples) as progress:
                show.certify(sigma, stop=stop, progress=progress)
    typer.echo(show.write_tables())
    for figure in show.write_figures():
        typer.echo(f"wrote {figure}", err=True)
    typer.echo(f"tables are in {out}/table.txt, .md and .tex; the runs in {out}/sigma-*", err=True)
    typer.echo(f"look at {show.write_report().resolve().as_uri()}", err=True)
