"""Printing to the terminal."""

from __future__ import annotations

import shutil
import sys

import typer


def terminal_width() -> int | None:
    """Columns of the terminal; None if standard output is not a terminal, or is closed."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return shutil.get_terminal_size().columns if on_terminal else None


def say(text: str) -> None:
    """Print a line to standard error, because standard output is for results only."""
    typer.echo(text, err=True)
