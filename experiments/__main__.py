"""`python -m experiments NAME`: reproduce a published table, step by step."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.cli.main import run
from smoothcert.cli.printing import say, terminal_width
from smoothcert.cli.verb import Verb
from smoothcert.errors import InputError, InterruptedRunError

if TYPE_CHECKING:
    from experiments.reproduction import PlannedRow, Reproduction

_PAGE = "result.md"
_LOGS = "SMOOTHCERT_LOGS"

app = typer.Typer(
    name="python -m experiments",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@app.command(cls=Verb)
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Name of the recipe; --list shows all names.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Run the same steps with small settings, in about a minute. A smoke test only."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Output folder (default: runs/reproduce/NAME).")
    ] = None,
    logs: Annotated[
        Path | None,
        typer.Option("--logs", help=f"Folder of results released by the authors (default: ${_LOGS}, if it is set)."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Make only rows whose name contains this; * and ? are wildcards. Repeatable."),
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Show the progress without running anything.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Number of threads (default: one per core; with --quick, 1).")
    ] = None,
    data_root: o.DataRoot = None,
    as_json: o.Json = False,
) -> None:
    """Train, certify and tabulate what a paper reports, and print paper | ours | difference.

    Ctrl-C stops; the same command resumes. Finished steps do not run again. The table is also written to result.md.
    """
    from experiments.reproduction import Reproduction, load_recipe, make_plan

    if show_list:
        _print_list(as_json=as_json)
        return
    if name is None:
        raise InputError("NAME is required: the name of a recipe; `python -m experiments --list` shows all names")
    patterns = only or []
    plan = make_plan(load_recipe(name), quick=quick)
    rows = plan.select_rows(patterns)
    folder = Path("runs") / "reproduce" / (f"{name}-quick" if quick else name) if out is None else out
    reproduction = Reproduction(plan, folder, logs=_find_logs(logs))
    if status:
        _print_status(reproduction, rows, as_json=as_json)
        return
    if all(reproduction.lacks_logs(row) for row in rows):
        raise InputError(
            f"{name} reads results that the authors released: give their folder with --logs DIR or in the environment "
            f"variable {_LOGS}"
        )
    command = ["python", "-m", "experiments", name, *(["--quick"] if quick else [])]
    for option, value in (("--out", out), ("--logs", logs), ("--threads", threads), ("--data-root", data_root)):
        command += [] if value is None else [option, str(value)]
    command += [word for pattern in patterns for word in ("--only", pattern)]
    # The steps of --quick are too small to benefit from a second core.
    _run_rows(reproduction, rows, threads=threads or (1 if quick else None), data_root=data_root, command=command)
    _print_result(reproduction, as_json=as_json)


def _find_logs(given: Path | None) -> Path | None:
    variable = os.environ.get(_LOGS)
    folder = given if given is not None else Path(variable).expanduser() if variable else None
    if folder is not None and not folder.is_dir():
        source = "--logs" if given is not None else _LOGS
        raise InputError(f"{source} {folder} is not a folder: expected the one that holds cohen2019 and levine2021")
    return folder


def _run_rows(
    reproduction: Reproduction,
    rows: tuple[PlannedRow, ...],
    *,
    threads: int | None,
    data_root: Path | None,
    command: list[str],
) -> None:
    """Run the rows. The page is written however that ends. command: the command line that resumes."""
    from experiments.reproduction import run_rows
    from smoothcert.cli.progress import stop_on_interrupt

    try:
        with stop_on_interrupt("step's shard") as stop:
            run_rows(reproduction, rows, threads=threads, data_root=data_root, stop=stop, say=say)
    except (InterruptedRunError, KeyboardInterrupt) as error:
        detail = str(error) or "stopped at once"
        raise InterruptedRunError(f"{detail}. Resume with: {shlex.join(command)}") from error
    finally:
        _write_page(reproduction, command)


def _write_page(reproduction: Reproduction, command: list[str]) -> None:
    from experiments.reproduction.measuring import measure_finished_rows
    from experiments.reproduction.reporting import result_page
    from smoothcert.files import write_atomically

    if reproduction.directory.is_dir():
        page = result_page(reproduction, measure_finished_rows(reproduction), command=command)
        write_atomically(reproduction.directory / _PAGE, page.encode(), overwrite=True)


def _print_result(reproduction: Reproduction, *, as_json: bool) -> None:
    from experiments.reproduction.measuring import measure_finished_rows
    from experiments.reproduction.reporting import comparison_text, make_document
    from smoothcert.analysis.table_choices import TableFormat

    measurements = measure_finished_rows(reproduction)
    if as_json:
        typer.echo(json.dumps(make_document(reproduction, measurements), indent=1, ensure_ascii=False))
        return
    recipe = reproduction.plan.recipe
    typer.echo(f"{recipe.title}\nPublished: {recipe.source}\n")
    typer.echo(comparison_text(reproduction, measurements, form=TableFormat.TEXT, width=terminal_width()))
    if (page := reproduction.directory / _PAGE).exists():
        say(f"\nalso in {page}")


def _print_status(reproduction: Reproduction, rows: tuple[PlannedRow, ...], *, as_json: bool) -> None:
    from experiments.reproduction.reporting import status_text

    if not as_json:
        typer.echo(status_text(reproduction, rows, width=terminal_width()) + "\n")
    _print_result(reproduction, as_json=as_json)


def _print_list(*, as_json: bool) -> None:
    from experiments.reproduction import list_recipes, load_recipe

    recipes = [load_recipe(name) for name in list_recipes()]
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


if __name__ == "__main__":
    run(app)
