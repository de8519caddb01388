"""`smoothcert zoo`: list the trained networks that can be named zoo:NAME."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from smoothcert.cli import options as o

if TYPE_CHECKING:
    from smoothcert.models.zoo import ZooModel


def zoo(as_json: o.Json = False) -> None:
    """List the trained networks of this checkout, which can be named --model zoo:NAME.

    They are searched in $SMOOTHCERT_ZOO, and in experiments/models of the current folder and of the checkout of
    smoothcert. An installed package has none.
    """
    from smoothcert.models.zoo import list_folders, list_zoo

    models = list_zoo()
    if as_json:
        typer.echo(json.dumps([{**model.card, "weights": str(model.weights)} for model in models], indent=2))
    elif models:
        _print_table(models)
    else:
        folders = ", ".join(map(str, list_folders())) or "no folder experiments/models was found"
        typer.echo(f"there are no networks ({folders}); $SMOOTHCERT_ZOO may name a folder with some")


def _print_table(models: list[ZooModel]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("name", "data", "arch", "sigma", "accuracy", "ACR", "objective"):
        table.add_column(title, no_wrap=title == "name", overflow="fold")
    for model in models:
        card = model.card
        cells = [card["data"], card["arch"], card["sigma"], _value_of(card["accuracy"]), _value_of(card["acr"])]
        table.add_row(f"zoo:{model.name}", *map(str, cells), str(card["objective"]))
    Console().print(table)


def _value_of(measured: Any) -> str:
    """The number of a measurement to three digits, rounded down."""
    from smoothcert.numerics.rounding import format_down_as_read

    return "–" if measured is None else format_down_as_read(float(measured["value"]), decimals=3)
