"""`smoothcert selector`: classifiers that choose a noise level for each input."""

from __future__ import annotations

import typer

from smoothcert.cli.selector_train import train_selector_command
from smoothcert.cli.verb import Verb

app = typer.Typer(help="Train a selector, which chooses a noise level for each input.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Train a selector, which chooses a noise level for each input."""


app.command("train", cls=Verb)(train_selector_command)
