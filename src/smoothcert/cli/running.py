"""Runs from the command line: make or resume, show progress, stop on request, print a summary."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from smoothcert.analysis.answers import answer_table
from smoothcert.analysis.formatting import TableRequest, format_table
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.analysis.tables import render
from smoothcert.cli.printing import say, terminal_width
from smoothcert.cli.progress import fetch_progress, show_count, stop_on_interrupt
from smoothcert.errors import ClusterError, InterruptedRunError, RegionMemoryError, RunError
from smoothcert.records import Outcome
from smoothcert.runs.building import RunParts
from smoothcert.runs.execution import PreparedRun, check_spec, execute_run, prepare_run
from smoothcert.runs.load import load_each
from smoothcert.runs.run_database import check_can_create_run
from smoothcert.runs.selected_execution import NamedObjects, make_selected_run
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.runs.store import RunStore
from smoothcert.sigma import OptimisedRule
from smoothcert.spec import RunSpec, Task


def run_spec(spec: RunSpec, out: Path, *, as_json: bool) -> None:
    """Make or resume the run in `out`, then print its results."""
    _make_run(spec, out, resume=f"Resume with: smoothcert {spec.task} --resume {shlex.quote(str(out))}")
    _print_results(spec.task, [out], as_json=as_json)


def run_specs(specs: Mapping[Path, RunSpec], *, as_json: bool) -> None:
    """Make or resume these runs, one after another, then print one table of all. specs: by run directory."""
    if len(specs) == 1:
        ((out, spec),) = specs.items()
        run_spec(spec, out, as_json=as_json)
        return
    for out, spec in specs.items():  # a mistake in the last one must not be found after hours of sampling
        check_spec(spec)
        if RunStore.exists(out.parent):
            raise RunError(f"{out.parent} is a run itself, and several runs are made below --out: choose another one")
        if not RunStore.exists(out):
            check_can_create_run(out)
    for number, (out, spec) in enumerate(specs.items(), start=1):
        say(f"run {number} of {len(specs)}: {out}")
        try:
            stopped = _make_run(spec, out, resume="Repeat the command to resume")
        except KeyboardInterrupt as error:  # before sampling began
            raise InterruptedRunError(
                f"stopped at run {number} of {len(specs)}. Repeat the command to resume"
            ) from error
        if stopped and number < len(specs):
            raise InterruptedRunError(f"stopped after run {number} of {len(specs)}. Repeat the command to resume")
    _print_results(next(iter(specs.values())).task, list(specs), as_json=as_json)


def run_selected(spec: SelectedSpec, out: Path, *, as_json: bool) -> None:
    """Make or resume the selected run in `out`, part after part, then print its results."""
    resume = f"Resume with: smoothcert {spec.task} --resume {shlex.quote(str(out))}"

    def make_part(part: RunSpec, place: Path, *, parts: RunParts) -> None:
        try:
            stopped = _make_run(part, place, resume=resume, parts=parts)
        except KeyboardInterrupt as error:  # before sampling began
            raise InterruptedRunError(f"stopped at {place.name}. {resume}") from error
        if stopped:
            raise InterruptedRunError(f"stopped after {place.name}. {resume}")

    with fetch_progress() as fetching:
        make_selected_run(spec, out, objects=NamedObjects(fetching), make_part=make_part, notice=say)
    _print_results(spec.task, [out], as_json=as_json)


def _make_run(spec: RunSpec, out: Path, *, resume: str, parts: RunParts | None = None) -> bool:
    """Make or resume the run in `out`. True if it was to stop, but had finished.

    resume: what to do after an interruption. parts: dataset and classifier, as in `prepare_run`.
    """
    with contextlib.ExitStack() as stack:
        with fetch_progress() as fetching:
            run = stack.enter_context(prepare_run(spec, out, notice=say, fetching=fetching, parts=parts))
        if run.finished:
            say(f"{run.finished} of {len(run.indices)} inputs are already in {out}")
        with stop_on_interrupt() as stop:
            try:
                _run_showing_progress(run, stop)
            except (InterruptedRunError, KeyboardInterrupt) as error:
                finished = len(run.store.indices())
                raise InterruptedRunError(
                    f"stopped; {finished} of {len(run.indices)} inputs are stored. {resume}"
                ) from error
            except (ClusterError, RegionMemoryError):
                say(f"{len(run.store.indices())} of {len(run.indices)} inputs are stored. {resume}")
                raise
        rule = run.smoothed.rule
        if isinstance(rule, OptimisedRule) and rule.evaluations_spent:
            say(f"the search for sigma took {rule.evaluations_spent} evaluations of the model")
        return stop.is_set()


def _run_showing_progress(run: PreparedRun, stop: threading.Event) -> None:
    count = run.count()
    with show_count(count):
        execute_run(run, stop=stop, progress=count.add_samples, on_shard=count.add_points)


def _print_results(task: Task, places: Sequence[Path], *, as_json: bool) -> None:
    """Print a table of these runs; of predictions, the answers before it."""
    loaded = load_each(places)
    first_of_each = dict(reversed(loaded))  # a run has one entry for each of its certificates
    answers = task == "predict"
    if answers and not as_json:
        for place in places:
            if len(places) > 1:
                typer.echo(f"{first_of_each[place].name}:")
            table = answer_table(first_of_each[place])
            typer.echo(render(table, form=TableFormat.TEXT, width=terminal_width()) + "\n")
    request = TableRequest(
        runs=tuple(places), form=TableFormat.JSON if as_json else TableFormat.TEXT, answers=answers and as_json
    )
    typer.echo(format_table([results for _, results in loaded], request, width=terminal_width()))
    for place in places:
        results = first_of_each[place]
        if failed := int(results.is_outcome(Outcome.FAILED).sum()):
            say(
                f"{failed} of {len(results)} inputs of {results.name} FAILED: the model gave no finite answer for most "
                "noisy copies of them"
            )
    if not as_json:
        quoted = " ".join(shlex.quote(str(place)) for place in places)
        figure = "" if task == "predict" else f"   smoothcert plot {quoted} -o curve.png"
        say(f"next: smoothcert table {quoted}{figure}")
