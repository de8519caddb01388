"""How results are laid out for whoever reads them."""

from __future__ import annotations

import shutil
import sys

import typer


def terminal_width() -> int | None:
    """Columns of the terminal results are printed on; None where they go to a file or a program."""
    # A process can be started with its standard output closed.
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if on_terminal else None


def say(text: str) -> None:
    """A line for whoever watches; standard output carries results alone."""
    typer.echo(text, err=True)
