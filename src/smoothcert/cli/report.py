"""`smoothcert report`: one HTML page about runs and logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.analysis.table_choices import BoundChoice
from smoothcert.cli.table import AlphaOption, RhoOption, RunsArgument
from smoothcert.errors import InputError

if TYPE_CHECKING:
    from smoothcert.report.plane import AnswerRegions
    from smoothcert.runs.resumption import Moved

_POINTS, _SAMPLES = 64, 1000


def report(
    runs: RunsArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", show_default=False, help="The page to write (default: report.html)."),
    ] = None,
    radii: Annotated[
        str | None,
        typer.Option("--radii", show_default=False, help="Radii such as 0,0.25,0.5 (default: chosen from the data)."),
    ] = None,
    gallery: Annotated[int, typer.Option("--gallery", min=0, max=200, help="Inputs shown of each run.")] = 24,
    data: Annotated[
        str | None,
        typer.Option("--data", show_default=False, help="Where the inputs are, if not where the runs state."),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", show_default=False, help="Text above the page.")] = None,
    paths: Annotated[
        bool, typer.Option("--paths", help="Show the folders of models and data on this machine.")
    ] = False,
    rho: RhoOption = 0.001,
    alpha: AlphaOption = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Serve the page on this machine and follow runs in progress until Ctrl-C."),
    ] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of --watch; 0 chooses a free one.")] = 0,
    regions: Annotated[
        bool,
        typer.Option(
            "--regions",
            help="For inputs in the plane: load the models of the runs, as `attack` does, and draw the decision "
            "regions, estimated at the points of a grid.",
        ),
    ] = False,
    region_points: Annotated[
        int | None,
        typer.Option(
            "--region-points", show_default=f"{_POINTS}", help="With --regions: points along the longer side."
        ),
    ] = None,
    region_samples: Annotated[
        int | None,
        typer.Option("--region-samples", show_default=f"{_SAMPLES}", help="With --regions: samples at each point."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", show_default=False, help="With --regions: where the model is now, for all runs."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("--weights", show_default=False, help="With --regions: where the weights of the model are now."),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", show_default=False, help="With --regions: where the memory of the runs is now."),
    ] = None,
) -> None:
    """Write one self-contained HTML page: curves, tables, classes, comparisons and a gallery of inputs.

    The page is one file and needs no network. Its figures are those of `smoothcert table`.
    """
    if watch and output is not None:
        raise InputError("--watch serves the page and writes no file: remove -o")
    if watch and regions:
        raise InputError(
            "--watch renders the page again whenever a run grows, and --regions would evaluate the model each time: "
            "use one of them"
        )
    if not regions:
        _refuse(region_points=region_points, region_samples=region_samples, model=model, weights=weights, memory=memory)
    # Imported here, so that `smoothcert --help` does not import numpy.
    from smoothcert.report.content import ReportRequest
    from smoothcert.runs.resumption import Moved

    moved = Moved(model=model, weights=weights, data=data, memory=memory)
    request = ReportRequest(
        runs=tuple(runs),
        radii=radii,
        gallery=gallery,
        data=data,
        title=title,
        bound=BoundChoice(rho=rho, alpha=alpha),
        paths=paths,
        decide=_asking(region_points, region_samples, moved) if regions else None,
    )
    if watch:
        from smoothcert.report.watching import serve

        serve(request, port=port, announce=lambda address: typer.echo(f"{address} (press Ctrl-C to stop)"))
        return
    from smoothcert.report.page import write_report

    path = output or Path("report.html")
    size = write_report(request, path)
    typer.echo(f"wrote {path} ({size / 1e6:.1f} MB)")


def _refuse(**given: str | int | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} is about the decision regions: it needs --regions")


def _asking(points: int | None, samples: int | None, moved: Moved) -> AnswerRegions:
    from smoothcert.cli.region_maps import make_decider
    from smoothcert.runs.decision_regions import MapSettings

    settings = MapSettings(points=_POINTS if points is None else points, n=_SAMPLES if samples is None else samples)
    settings.check()
    return make_decider(settings, moved)
