"""`smoothcert data`: list and fetch datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli import options as o
from smoothcert.cli.verb import Verb

if TYPE_CHECKING:
    from smoothcert.data import DatasetInfo

app = typer.Typer(help="List and fetch datasets.", no_args_is_help=True)

RootOption = Annotated[
    Path | None,
    typer.Option("--root", help="Folder of fetched datasets (default: $SMOOTHCERT_DATA, or the user's cache)."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_WIDTH_FOR_DESCRIPTIONS = 130


@app.command("list", cls=Verb)
def list_command(root: RootOption = None, as_json: JsonOption = False) -> None:
    """List the named datasets and whether they are available."""
    from smoothcert.data import list_datasets

    infos = list_datasets(root=root)
    if as_json:
        typer.echo(json.dumps([_make_document(info) for info in infos], indent=2))
    else:
        _print_table(infos)


@app.command("fetch", cls=Verb)
def fetch_command(
    name: Annotated[str, typer.Argument(autocompletion=o.complete_data, help="A name from `smoothcert data list`.")],
    source_folder: Annotated[
        Path | None,
        typer.Option("--from", help="Take the files from this folder or archive instead of downloading them."),
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a dataset, check it, and store it."""
    from smoothcert.cli.progress import fetch_progress
    from smoothcert.data import fetch

    # Progress goes to stderr; stdout carries only the result.
    with fetch_progress() as progress:
        report = fetch(name, root=root, source_folder=source_folder, progress=progress)
    if as_json:
        folder = None if report.folder is None else str(report.folder)
        facts = {"name": report.name, "folder": folder, "source": report.source, "fetched": report.fetched}
        typer.echo(json.dumps({**facts, "bytes": report.size}, indent=2))
    elif report.folder is None:
        typer.echo(f"{report.name} is {report.source}: nothing to fetch")
    else:
        verb = "fetched and checked" if report.fetched else "already stored and intact"
        typer.echo(f"{report.name}: {verb}, {report.size:,} bytes in {report.folder} (from {report.source})")


def _make_document(info: DatasetInfo) -> dict[str, Any]:
    entry = info.entry
    return {
        "name": entry.name,
        "summary": entry.summary,
        "shape": list(entry.input_shape),
        "classes": entry.num_classes,
        "sizes": {"train": entry.train, "test": entry.test},
        "levels": entry.levels,
        "input_range": None if entry.input_range is None else list(entry.input_range),
        "here": info.here,
        "where": info.where,
    }


def _print_table(infos: tuple[DatasetInfo, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    # The description does not fit into eighty columns.
    titles = ["name", "shape", "classes", "train", "test", "here", "where from"]
    if console.width >= _WIDTH_FOR_DESCRIPTIONS:
        titles.append("what")
    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=title in ("name", "shape"), overflow="fold")
    for info in infos:
        entry = info.entry
        sizes = ["yours" if size is None else f"{size}" for size in (entry.train, entry.test)]
        shape = "x".join(map(str, entry.input_shape))
        here = "yes" if info.here else "no"
        cells = [entry.name, shape, str(entry.num_classes), *sizes, here, info.where, entry.summary]
        table.add_row(*cells[: len(titles)])
    console.print(table)
