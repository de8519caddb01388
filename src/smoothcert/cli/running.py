"""Runs from the command line: make or resume, show progress, stop on request, print a summary."""

from __future__ import annotations

import contextlib
import shlex
import threading
from pathlib import Path

import typer

from smoothcert.analysis.formatting import TableRequest, format_table
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.cli.printing import say, terminal_width
from smoothcert.cli.progress import fetch_progress, show_count, stop_on_interrupt
from smoothcert.errors import InterruptedRunError
from smoothcert.records import Outcome
from smoothcert.runs.execution import PreparedRun, execute_run, prepare_run
from smoothcert.runs.load import load_all
from smoothcert.sigma import OptimisedRule
from smoothcert.spec import RunSpec


def run_spec(spec: RunSpec, out: Path, *, as_json: bool) -> None:
    """Make or resume the run in `out`, then print its results."""
    with contextlib.ExitStack() as stack:
        with fetch_progress() as fetching:
            run = stack.enter_context(prepare_run(spec, out, notice=say, fetching=fetching))
        if run.finished:
            say(f"{run.finished} of {len(run.indices)} inputs are already in {out}")
        with stop_on_interrupt() as stop:
            try:
                _run_showing_progress(run, stop)
            except (InterruptedRunError, KeyboardInterrupt) as error:
                finished = len(run.store.indices())
                raise InterruptedRunError(
                    f"stopped; {finished} of {len(run.indices)} inputs are stored. "
                    f"Resume with: smoothcert {spec.task} --resume {shlex.quote(str(out))}"
                ) from error
        rule = run.smoothed.rule
        if isinstance(rule, OptimisedRule) and rule.evaluations_spent:
            say(f"the search for sigma took {rule.evaluations_spent} evaluations of the model")
    _print_summary(spec, out, as_json=as_json)


def _run_showing_progress(run: PreparedRun, stop: threading.Event) -> None:
    count = run.count()
    with show_count(count):
        execute_run(run, stop=stop, progress=count.add_samples, on_shard=count.add_points)


def _print_summary(spec: RunSpec, out: Path, *, as_json: bool) -> None:
    request = TableRequest(runs=(out,), form=TableFormat.JSON if as_json else TableFormat.TEXT)
    found = load_all([out])
    results = found[0]
    typer.echo(format_table(found, request, width=terminal_width()))
    failed = int(results.is_outcome(Outcome.FAILED).sum())
    if failed:
        say(f"{failed} of {len(results)} inputs FAILED: the model gave no finite answer for most noisy copies of them")
    if not as_json:
        place = shlex.quote(str(out))
        figure = "" if spec.task == "predict" else f"   smoothcert plot {place} -o curve.png"
        say(f"next: smoothcert table {place}{figure}")
