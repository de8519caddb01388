"""`smoothcert doctor`: check noise, votes and speed on a device of this machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.cli.printing import say
from smoothcert.errors import ExitCode


def doctor(
    device: o.Device = "auto",
    speeds: Annotated[bool, typer.Option("--speeds/--no-speeds", help="Also measure samples per second.")] = True,
    as_json: o.Json = False,
) -> None:
    """Check noise, votes and speed on this machine, in about a minute.

    The noise of every law must have the same bits as on the processor, votes must be those of the processor, and must
    depend neither on the batch nor on repetition. If you have a GPU, please send the output: paste it into an issue.
    Exit code 1: a check failed.
    """
    from smoothcert import __version__
    from smoothcert.diagnosis import diagnose
    from smoothcert.models.devices import resolve_device

    target = resolve_device(device)
    found = diagnose(target, version=__version__, speeds=speeds, progress=lambda what: say(f"{what} …"))
    typer.echo(json.dumps(found.to_json()) if as_json else found.describe())
    if not found.passed:
        raise typer.Exit(ExitCode.FAILURE)
