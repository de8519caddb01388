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
from smoothcert.errors import InputError, InterruptedRunError, RunError

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
    keep: Annotated[
        bool, typer.Option("--keep", help="Copy finished rows to experiments/results/NAME, and check all that is kept.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Print the tables of what is kept, of all recipes or of NAME.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the recipes.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Number of threads (default: one per core; with --quick, 1).")
    ] = None,
    data_root: o.DataRoot = None,
    as_json: o.Json = False,
) -> None:
    """Train, certify and tabulate what a paper reports, and print paper | ours | difference.

    Ctrl-C stops; the same command resumes. Finished steps do not run again. The table is also written to result.md.
    --keep, --tables, --status and --list run nothing.
    """
    from experiments.reproduction import Reproduction, load_recipe, make_plan

    if show_list:
        _print_list(as_json=as_json)
        return
    if tables:
        _print_tables(name, as_json=as_json)
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
    if keep:
        _keep(reproduction, rows)
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
    from experiments.reproduction.kept import KeptResults
    from experiments.reproduction.reporting import status_text

    if not as_json:
        kept = None if reproduction.plan.quick else KeptResults(reproduction.plan)
        typer.echo(status_text(reproduction, rows, kept=kept, width=terminal_width()) + "\n")
    _print_result(reproduction, as_json=as_json)


def _keep(reproduction: Reproduction, rows: tuple[PlannedRow, ...]) -> None:
    from experiments.reproduction.keeping import keep_rows
    from experiments.reproduction.kept import KeptResults
    from experiments.reproduction.kept_checks import find_problems

    if reproduction.plan.quick:
        raise InputError("--quick --keep is not possible: the results of a smoke test are not kept")
    added = keep_rows(reproduction, rows)
    kept = KeptResults(reproduction.plan)
    if problems := find_problems(kept):
        raise RunError(f"{kept.directory} must not be committed:\n  " + "\n  ".join(problems))
    total = len(kept.list_kept_rows())
    typer.echo(f"kept {len(added)} of {len(rows)} rows; {total} rows of the recipe are in {kept.directory}")


def _print_tables(name: str | None, *, as_json: bool) -> None:
    from experiments.reproduction.kept_tables import all_tables, load_kept, make_documents
    from smoothcert.analysis.table_choices import TableFormat

    kept = load_kept([] if name is None else [name])
    if as_json:
        typer.echo(json.dumps(make_documents(kept), indent=1, ensure_ascii=False))
    else:
        typer.echo(all_tables(kept, form=TableFormat.MARKDOWN))


def _print_list(*, as_json: bool) -> None:
    from experiments.reproduction import list_recipes, load_recipe
    from experiments.reproduction.kept_tables import load_kept

    recipes = [load_recipe(name) for name in list_recipes()]
    kept = {one.plan.recipe.name: len(one.list_kept_rows()) for one in load_kept()}
    if as_json:
        facts = [
            {"name": recipe.name, "title": recipe.title, "source": recipe.source, "time": recipe.time,
             "rows": len(recipe.rows), "kept": kept[recipe.name]}
            for recipe in recipes
        ]  # fmt: skip
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    widest = max(len(recipe.name) for recipe in recipes)
    for recipe in recipes:
        rows = f"{len(recipe.rows)} rows, {kept[recipe.name]} kept"
        typer.echo(f"{recipe.name.ljust(widest)}  {recipe.title} ({rows}, {recipe.time})")


if __name__ == "__main__":
    run(app)
