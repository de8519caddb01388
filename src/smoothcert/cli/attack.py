"""`smoothcert attack`: the gap between the accuracy that a run certifies and the accuracy under attack."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.cli.printing import say
from smoothcert.errors import InterruptedRunError

if TYPE_CHECKING:
    from smoothcert.analysis.tables import Table
    from smoothcert.attacks.attack_report import AttackRow
    from smoothcert.attacks.attack_run import Attack


def attack(
    run: Annotated[
        Path,
        typer.Argument(help="A run directory made by `certify` or `predict`, or RUN@CERTIFICATE (default: the first)."),
    ],
    radius: Annotated[
        list[str] | None,
        typer.Option(
            "--radius",
            rich_help_panel=o.ATTACK,
            show_default="certified",
            help="Radii to attack within, e.g. 0.25,0.5; or 'certified': each input just inside its certified radius.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            rich_help_panel=o.ATTACK,
            show_default="pgd, or greedy for splitting",
            help="pgd, ddn (l2 only), or greedy (splitting only).",
        ),
    ] = "auto",
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            rich_help_panel=o.ATTACK,
            help="The loss to maximise: soft-vote, -log of the mean softmax; or mean-loss.",
        ),
    ] = "soft-vote",
    gradient: Annotated[
        str,
        typer.Option(
            "--gradient",
            rich_help_panel=o.ATTACK,
            help="exact (torch models), scores or votes (estimated from answers of any model), or auto.",
        ),
    ] = "auto",
    steps: Annotated[int, typer.Option("--steps", rich_help_panel=o.ATTACK, help="Number of steps.")] = 20,
    step_size: Annotated[
        float | None,
        typer.Option(
            "--step-size", rich_help_panel=o.ATTACK, help="Length of a step of pgd (default: 2*radius/steps)."
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option("--draws", rich_help_panel=o.ATTACK, help="Noisy copies of a point per gradient.")
    ] = 100,
    restarts: Annotated[
        int,
        typer.Option(
            "--restarts",
            rich_help_panel=o.ATTACK,
            help="Attacks per input: the first starts at the input, the others at random points.",
        ),
    ] = 1,
    n: Annotated[int, o.count("--n", "Fresh samples that check each point found.", panel=o.SAMPLING)] = 10_000,
    looks: Annotated[
        int,
        typer.Option(
            "--looks",
            rich_help_panel=o.SAMPLING,
            help="The most checks of a certificate that is neither confirmed nor contradicted; each takes ten times as "
            "many new samples.",
        ),
    ] = 3,
    bounds: Annotated[
        str,
        typer.Option(
            "--bounds", rich_help_panel=o.ATTACK, help="Where points may lie: data (in the range of the data) or any."
        ),
    ] = "data",
    alpha: Annotated[
        float,
        typer.Option(
            "--alpha",
            rich_help_panel=o.SAMPLING,
            help="Probability that any reported change is wrong, over all checks.",
        ),
    ] = 0.001,
    skip: Annotated[
        int, typer.Option("--skip", rich_help_panel=o.WHAT, help="Take every SKIP-th input of the run.")
    ] = 1,
    max_inputs: o.Max = None,
    seed: o.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            rich_help_panel=o.OUTPUT,
            help="The record of the attack, as JSON lines (default: attack.jsonl in the run).",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", rich_help_panel=o.RARE, help="The new place of the model; of several, a,b,c."),
    ] = None,
    selector: Annotated[
        str | None, typer.Option("--selector", rich_help_panel=o.RARE, help="The new place of the selector.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option("--weights", rich_help_panel=o.RARE, help="The new place of the weights of the model.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", rich_help_panel=o.RARE, help="The new place of the data.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", rich_help_panel=o.RARE, help="The new place of the memory of the run.")
    ] = None,
    data_root: o.DataRoot = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", rich_help_panel=o.ENGINE, help="auto, cpu, cuda, cuda:1, mps (default: as in the run)."
        ),
    ] = None,
    workers: o.Workers = None,
    as_json: o.JsonOutput = False,
) -> None:
    """Attack the inputs of a run, and compare the accuracy under attack with the certified accuracy.

    Fresh samples check each change of an answer. A change inside a certified radius breaks the certificate: the command
    then lists the inputs and ends with exit code 7, also after an interruption. The same command resumes an attack.
    """
    from smoothcert.cli.progress import fetch_progress
    from smoothcert.models.devices import import_torch

    import_torch("attacking a run")
    from smoothcert.attacks.attack_run import prepare_attack
    from smoothcert.attacks.attack_settings import CERTIFIED, AttackSettings, parse_attack_radii
    from smoothcert.runs.resumption import Moved
    from smoothcert.spec import LocalEngineSpec

    settings = AttackSettings(
        radii=parse_attack_radii([CERTIFIED] if radius is None else radius),
        method=method,
        objective=objective,
        gradient=gradient,
        steps=steps,
        step_size=step_size,
        draws=draws,
        restarts=restarts,
        n=n,
        looks=looks,
        bounds=bounds,
        alpha=alpha,
        skip=skip,
        max_inputs=max_inputs,
        seed=seed,
    )
    with contextlib.ExitStack() as stack:
        with fetch_progress() as fetching:
            prepared = stack.enter_context(
                prepare_attack(
                    run,
                    settings,
                    out=out,
                    notice=say,
                    fetching=fetching,
                    moved=Moved(
                        model=model,
                        selector=selector,
                        weights=weights,
                        data=data,
                        data_root=None if data_root is None else str(data_root),
                        memory=memory,
                        device=device,
                        engine=None if workers is None else LocalEngineSpec(workers=workers),
                    ),
                )
            )
        _run(prepared)
        _report(prepared, as_json=as_json)


def _run(attack: Attack) -> None:
    from smoothcert.attacks.attack_report import fail_if_broken
    from smoothcert.attacks.attack_run import run_attack
    from smoothcert.cli.progress import samples_progress, stop_on_interrupt

    each = attack.samples_per_test
    if attack.recorded_before:
        say(f"{attack.recorded_before} of {attack.tests} attacks are already in {attack.record.path}")
    with stop_on_interrupt("groups of inputs") as stop:
        try:
            with samples_progress(attack.tests * each, done=attack.recorded_before * each) as progress:
                run_attack(attack, stop=stop, progress=progress, notice=say)
        except (InterruptedRunError, KeyboardInterrupt) as error:
            stopped = (
                f"stopped; {len(attack.record.results)} of {attack.tests} attacks are in {attack.record.path}. Repeat "
                "the command to resume"
            )
            if any(result.breaks_certificate for result in attack.record.results):
                say(stopped)
                fail_if_broken(attack)  # a broken certificate is reported rather than the interruption
            raise InterruptedRunError(stopped) from error


def _report(attack: Attack, *, as_json: bool) -> None:
    """Print the rows, then raise an error if a certificate is broken."""
    from smoothcert.analysis.table_choices import TableFormat
    from smoothcert.analysis.tables import render
    from smoothcert.attacks.attack_report import attack_rows, fail_if_broken, list_remarks
    from smoothcert.cli.printing import terminal_width

    results = attack.record.results
    rows = attack_rows(attack)
    if as_json:
        broken = [result.to_json() for result in results if result.breaks_certificate]
        unsettled = [result.to_json() for result in results if result.is_unsettled]
        typer.echo(json.dumps({"rows": [row.to_json() for row in rows], "broken": broken, "unsettled": unsettled}))
    else:
        typer.echo(render(_build_table(rows, attack), form=TableFormat.TEXT, width=terminal_width()))
    for remark in list_remarks(attack):
        say(remark)
    fail_if_broken(attack)


def _build_table(rows: list[AttackRow], attack: Attack) -> Table:
    from smoothcert.analysis.tables import Column, Kind, Table

    remembering = attack.attacked.remembers
    columns = (
        Column("radius", "radius", Kind.NAME),
        Column("inputs", "inputs", Kind.COUNT),
        Column("attacked", "attacked", Kind.COUNT),
        Column("certified_accuracy", "certified", Kind.FRACTION),
        Column("empirical_accuracy", "under attack", Kind.FRACTION),
        Column("gap", "gap", Kind.FRACTION),
        Column("changed", "changed", Kind.COUNT),
        Column("abstained", "abstained", Kind.COUNT),
        Column("not_moved", "not moved", Kind.COUNT),
        *([Column("from_memory", "from memory", Kind.COUNT)] if remembering else []),
        Column("unsettled", "unsettled", Kind.COUNT),
        Column("broken", "broken", Kind.COUNT),
    )
    cells = tuple(tuple(getattr(row, column.key) for column in columns) for row in rows)
    settings, search = attack.settings, attack.search
    check = f"by all {settings.n} evaluations" if settings.certain else f"with {settings.n} fresh samples"
    notes = (
        f"{settings.method}, {search.objective}, gradients: {search.source}, {settings.steps} steps, "
        f"{settings.draws} draws, {settings.restarts} restarts; changes checked {check}; seed {settings.seed}; "
        f"{attack.record.path}",
    )
    return Table(columns, cells, notes)
