"""How results are laid out for whoever reads them."""

from __future__ import annotations

import shutil
import sys

import typer


def terminal_width() -> int | None:
    """Columns of the terminal results are printed on; None where they go to a file or a program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str) -> None:
    """A line for whoever watches; standard output carries results alone."""
    typer.echo(text, err=True)
