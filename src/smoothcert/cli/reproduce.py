"""`smoothcert reproduce`: a published table made again, step by step, stopped and resumed at will."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.errors import InputError

if TYPE_CHECKING:
    from smoothcert.reproduction import Reproduction

_PAGE = "result.md"
_LOGS = "SMOOTHCERT_LOGS"


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The recipe; --list shows those there are.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="The same steps, made small: about a minute, figures that mean nothing."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where everything goes (default: runs/reproduce/NAME).")
    ] = None,
    logs: Annotated[
        Path | None,
        typer.Option("--logs", help=f"Folder of results released by the authors (default: ${_LOGS}, if it is set)."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Rows whose name holds this, * and ? allowed. May be given several times."),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Say how far it is; run nothing.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the recipes there are.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Cores used (default: all; with --quick one).")
    ] = None,
    data_root: o.DataRoot = None,
    as_json: o.Json = False,
) -> None:
    """Train, certify and tabulate what a paper reports, and print paper | ours | difference.

    Ctrl-C stops; the same command goes on. What is done is never done again. The table is also in result.md.
    """
    from smoothcert.reproduction import Reproduction, load_recipe, make_plan

    if listed:
        _print_list(as_json=as_json)
        return
    if name is None:
        raise InputError("which table? Give the NAME of a recipe; `smoothcert reproduce --list` shows them")
    plan = make_plan(load_recipe(name), quick=quick)
    rows = plan.chosen(only or [])
    folder = Path("runs") / "reproduce" / (f"{name}-quick" if quick else name) if out is None else out
    reproduction = Reproduction(plan, folder, logs=_logs(logs))
    if status:
        _print_status(reproduction, only or [], as_json=as_json)
        return
    if all(reproduction.lacks_logs(row) for row in rows):
        raise InputError(
            f"{name} reads results that the authors released: give their folder with --logs DIR, or in the environment "
            f"variable {_LOGS}"
        )
    typed = _typed(name, quick=quick, out=out, logs=logs, only=only or [], threads=threads, data_root=data_root)
    # What --quick does is too small for a second core: its threads would mostly wait for each other.
    _run(reproduction, only or [], threads=threads or (1 if quick else None), data_root=data_root, typed=typed)
    _print_result(reproduction, as_json=as_json)


def _logs(given: Path | None) -> Path | None:
    usual = os.environ.get(_LOGS)
    folder = given if given is not None else Path(usual).expanduser() if usual else None
    if folder is not None and not folder.is_dir():
        said = "--logs" if given is not None else _LOGS
        raise InputError(f"{said} {folder} is not a folder: expected the one that holds cohen2019 and levine2021")
    return folder


def _typed(
    name: str, *, quick: bool, out: Path | None, logs: Path | None, only: list[str], threads: int | None,
    data_root: Path | None,
) -> list[str]:  # fmt: skip
    """The command line that does the same again."""
    words = ["smoothcert", "reproduce", name, *(["--quick"] if quick else [])]
    for option, value in (("--out", out), ("--logs", logs), ("--threads", threads), ("--data-root", data_root)):
        words += [] if value is None else [option, str(value)]
    return words + [word for pattern in only for word in ("--only", pattern)]


def _run(
    reproduction: Reproduction, only: list[str], *, threads: int | None, data_root: Path | None, typed: list[str]
) -> None:
    """Work through the rows; however that ends, the page says what is done."""
    from smoothcert.cli.progress import stop_on_interrupt
    from smoothcert.errors import InterruptedRunError
    from smoothcert.reproduction import run_rows

    def say(text: str) -> None:
        typer.echo(text, err=True)

    try:
        with stop_on_interrupt("step's shard") as stop:
            rows = reproduction.plan.chosen(only)
            run_rows(reproduction, rows, threads=threads, data_root=data_root, stop=stop, say=say)
    except (InterruptedRunError, KeyboardInterrupt) as error:
        _write_page(reproduction, typed)
        detail = str(error) or "stopped at once"
        raise InterruptedRunError(f"{detail}. Go on with: {shlex.join(typed)}") from error
    except BaseException:
        _write_page(reproduction, typed)
        raise
    _write_page(reproduction, typed)


def _write_page(reproduction: Reproduction, typed: list[str]) -> None:
    from smoothcert.files import write_atomically
    from smoothcert.reproduction.reporting import measured_rows, result_page

    if reproduction.directory.is_dir():
        page = result_page(reproduction, measured_rows(reproduction), typed=typed)
        write_atomically(reproduction.directory / _PAGE, page.encode(), overwrite=True)


def _print_result(reproduction: Reproduction, *, as_json: bool) -> None:
    from smoothcert.analysis.options import TableFormat
    from smoothcert.cli.printing import terminal_width
    from smoothcert.reproduction.reporting import as_json as document
    from smoothcert.reproduction.reporting import comparison_text, measured_rows

    measured = measured_rows(reproduction)
    if as_json:
        typer.echo(json.dumps(document(reproduction, measured), indent=1, ensure_ascii=False))
        return
    recipe = reproduction.plan.recipe
    typer.echo(f"{recipe.title}\nPublished: {recipe.source}\n")
    typer.echo(comparison_text(reproduction, measured, form=TableFormat.TEXT, width=terminal_width()))
    if (page := reproduction.directory / _PAGE).exists():
        typer.echo(f"\nalso in {page}", err=True)


def _print_status(reproduction: Reproduction, only: list[str], *, as_json: bool) -> None:
    from smoothcert.cli.printing import terminal_width
    from smoothcert.reproduction.reporting import status_text

    if not as_json:
        typer.echo(status_text(reproduction, reproduction.plan.chosen(only), width=terminal_width()) + "\n")
    _print_result(reproduction, as_json=as_json)


def _print_list(*, as_json: bool) -> None:
    from smoothcert.reproduction import load_recipe, recipe_names

    recipes = [load_recipe(name) for name in recipe_names()]
    if as_json:
        facts = [
            {"name": recipe.name, "title": recipe.title, "source": recipe.source, "time": recipe.time,
             "rows": len(recipe.rows)}
            for recipe in recipes
        ]  # fmt: skip
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    widest = max(len(recipe.name) for recipe in recipes)
    for recipe in recipes:
        typer.echo(f"{recipe.name.ljust(widest)}  {recipe.title} ({len(recipe.rows)} rows, {recipe.time})")
