"""What `certify` and `predict` do with their options: run or resume, show progress, stop on request, sum up."""

from __future__ import annotations

import contextlib
import shlex
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer

from smoothcert.analysis.options import TableFormat
from smoothcert.analysis.reporting import TableRequest, table_of
from smoothcert.certificates import get_portfolio
from smoothcert.cli import options as o
from smoothcert.cli.printing import say, terminal_width
from smoothcert.cli.progress import fetch_progress, inputs_progress, samples_progress, stop_on_interrupt
from smoothcert.errors import InputError, InterruptedRunError
from smoothcert.records import Outcome
from smoothcert.runs.jobs import Job, PreparedRun, Task, prepare
from smoothcert.runs.load import load_all
from smoothcert.runs.loop import Study, run_study
from smoothcert.sigma import OptimisedRule


def run_verb(context: typer.Context, *, task: Task) -> None:
    """Start the run the options describe, or go on with the one --resume names."""
    given = context.params
    settings: dict[str, Any] = {field.name: given[field.name] for field in fields(Job) if field.name in given}
    if settings["data_root"] is not None:
        settings["data_root"] = str(settings["data_root"])
    if given["resume"] is not None:
        o.check_only_moved(context)
        resumed = Path(given["resume"])
        moved = {key: settings[key] for key in o.MOVABLE}
        device = None if settings["device"] == "auto" else settings["device"]
        run_job(Job.of_run(resumed, task=task, **moved, device=device), resumed, as_json=given["as_json"])
        return
    if task == "certify":
        named = given["certificate"]
        if given["best_of"] and not named:
            raise InputError("--best-of chooses among several certificates: name them by --certificate")
        settings["certificate"] = str(get_portfolio(named, best_of=given["best_of"])) if named else None
    model, data, level = o.required(model=given["model"], data=given["data"], noise=_level(given))
    out = o.default_out(task, model, data, level) if given["out"] is None else Path(given["out"])
    run_job(Job(task=task, **settings), out, as_json=given["as_json"])


def _level(given: dict[str, Any]) -> float | str | None:
    """What tells runs apart by their noise: the level, or the rule; of an optimised one also where it begins."""
    sigma: float | None = given["sigma"]
    rule: str | None = given["sigma_rule"]
    if sigma is None or rule is None:
        return rule if sigma is None else sigma
    return f"{rule}-{sigma:g}"


def run_job(job: Job, out: Path, *, as_json: bool) -> None:
    """Run or resume, then print what came out."""
    with contextlib.ExitStack() as stack:
        with fetch_progress() as fetching:
            run = stack.enter_context(prepare(job, out, notice=say, fetching=fetching))
        if run.finished:
            say(f"{run.finished} of {len(run.indices)} inputs are already in {out}")
        with stop_on_interrupt() as stop:
            try:
                _run_showing_progress(run, stop)
            except (InterruptedRunError, KeyboardInterrupt) as error:
                finished = len(run.store.indices())
                raise InterruptedRunError(
                    f"stopped; {finished} of {len(run.indices)} inputs are stored. "
                    f"Go on with: smoothcert {job.task} --resume {shlex.quote(str(out))}"
                ) from error
        _report_search(run.study)
    _print_summary(job, out, as_json=as_json)


def _run_showing_progress(run: PreparedRun, stop: threading.Event) -> None:
    inputs = len(run.indices)
    if run.study.question is not None:
        with inputs_progress(inputs, done=run.finished) as (spent, finished):
            run_study(
                run.study,
                run.indices,
                run.store,
                stop=stop,
                progress=spent,
                on_shard=lambda points: finished(len(points)),
            )
        return
    per_input = run.study.samples_per_input
    with samples_progress(inputs * per_input, done=run.finished * per_input) as progress:
        run_study(run.study, run.indices, run.store, stop=stop, progress=progress)


def _report_search(study: Study) -> None:
    """What the search for sigma has cost in this process."""
    rule = study.smoothed.rule
    if isinstance(rule, OptimisedRule) and rule.evaluations_spent:
        say(f"the search for sigma took {rule.evaluations_spent} evaluations of the model")


def _print_summary(job: Job, out: Path, *, as_json: bool) -> None:
    request = TableRequest(runs=(out,), form=TableFormat.JSON if as_json else TableFormat.TEXT)
    found = load_all([out])
    results = found[0]
    typer.echo(table_of(found, request, width=terminal_width()))
    failed = int(results.is_outcome(Outcome.FAILED).sum())
    if failed:
        say(f"{failed} of {len(results)} inputs FAILED: the model gave no finite answer for most noisy copies of them")
    if not as_json:
        place = shlex.quote(str(out))
        figure = "" if job.task == "predict" else f"   smoothcert plot {place} -o curve.png"
        say(f"next: smoothcert table {place}{figure}")
