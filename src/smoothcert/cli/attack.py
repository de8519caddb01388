"""`smoothcert attack`: how much room is left between what a run certifies and what an attack can break."""

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
            show_default="certified",
            help="Radii to attack within, as in 0.25,0.5; or 'certified': each input just inside its own radius.",
        ),
    ] = None,
    method: Annotated[str, typer.Option("--method", help="pgd, or ddn (l2 only).")] = "pgd",
    objective: Annotated[
        str, typer.Option("--objective", help="What is maximised: soft-vote, -log of the mean softmax; or mean-loss.")
    ] = "soft-vote",
    gradient: Annotated[
        str,
        typer.Option(
            "--gradient",
            help="exact (torch models), scores or votes (any model, estimated from its answers), or auto.",
        ),
    ] = "auto",
    steps: Annotated[int, typer.Option("--steps", help="Steps of an attack.")] = 20,
    step_size: Annotated[
        float | None, typer.Option("--step-size", help="Length of a step of pgd (default: 2*radius/steps).")
    ] = None,
    draws: Annotated[int, typer.Option("--draws", help="Noisy copies of a point behind one gradient.")] = 100,
    restarts: Annotated[
        int, typer.Option("--restarts", help="Attacks on an input: one from the input, the others from random points.")
    ] = 1,
    n: Annotated[int, typer.Option("--n", help="Fresh samples that check what an attack found.")] = 10_000,
    looks: Annotated[
        int,
        typer.Option(
            "--looks",
            help="How often a certificate is checked that is neither confirmed nor contradicted: each time with ten "
            "times as many new samples.",
        ),
    ] = 3,
    bounds: Annotated[
        str, typer.Option("--bounds", help="Where points may lie: in the range of the data, or any (data, any).")
    ] = "data",
    alpha: Annotated[
        float, typer.Option("--alpha", help="Probability that any change reported, of all together, is none.")
    ] = 0.001,
    skip: Annotated[int, typer.Option("--skip", help="Take every SKIP-th input of the run.")] = 1,
    max_inputs: o.Max = None,
    seed: o.Seed = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The record of the attack, JSON lines (default: attack.jsonl in the run)."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Where the model lies now.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="Where the data lies now.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Where the memory of the run lies now.")] = None,
    data_root: o.DataRoot = None,
    device: Annotated[
        str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps (default: that of the run).")
    ] = None,
    workers: o.Workers = None,
    as_json: o.Json = False,
) -> None:
    """Attack the inputs of a run; accuracy under attack beside certified accuracy.

    Every change of an answer is checked with fresh samples. One inside a certified radius must not happen: the command
    then names the inputs and leaves with exit code 7, also when it was stopped. The same command goes on where it was.
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
    from smoothcert.attacks.attack_run import run_attack
    from smoothcert.cli.progress import samples_progress, stop_on_interrupt

    each = attack.samples_per_test
    if attack.finished:
        say(f"{attack.finished} of {attack.tests} attacks are already in {attack.record.path}")
    with stop_on_interrupt("groups of inputs") as stop:
        try:
            with samples_progress(attack.tests * each, done=attack.finished * each) as progress:
                run_attack(attack, stop=stop, progress=progress, notice=say)
        except (InterruptedRunError, KeyboardInterrupt) as error:
            stopped = (
                f"stopped; {len(attack.record.found)} of {attack.tests} attacks are in {attack.record.path}. The same "
                "command resumes them"
            )
            if any(result.breaks_certificate for result in attack.record.found):
                say(stopped)
                _fail_if_broken(attack)  # what is proved weighs more than that it was stopped
            raise InterruptedRunError(stopped) from error


def _report(attack: Attack, *, as_json: bool) -> None:
    """Print the rows, then fail if there is anything to fail for."""
    from smoothcert.analysis.options import TableFormat
    from smoothcert.analysis.tables import render
    from smoothcert.attacks.attack_report import attack_rows, remarks
    from smoothcert.cli.printing import terminal_width

    results = attack.record.found
    certifying = attack.manifest.task == "certify"
    rows = attack_rows(attack.points, results, attack.settings.radii, has_radii=certifying)
    if as_json:
        broken = [result.to_json() for result in results if result.breaks_certificate]
        unsettled = [result.to_json() for result in results if result.unsettled]
        typer.echo(json.dumps({"rows": [row.to_json() for row in rows], "broken": broken, "unsettled": unsettled}))
    else:
        typer.echo(render(_table(rows, attack), form=TableFormat.TEXT, width=terminal_width()))
    for remark in remarks(results, attack.settings):
        say(remark)
    _fail_if_broken(attack)


def _fail_if_broken(attack: Attack) -> None:
    from smoothcert.attacks.attack_report import fail_if_broken

    fail_if_broken(
        attack.record.found,
        norm=attack.search.norm,
        run_alpha=attack.manifest.spec.alpha,
        check_alpha=attack.settings.alpha,
        evidence=attack.record.path,
    )


def _table(rows: list[AttackRow], attack: Attack) -> Table:
    from smoothcert.analysis.tables import Column, Kind, Table

    remembering = attack.smoothed.memory is not None
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
    chosen = attack.settings
    notes = (
        f"{chosen.method}, {chosen.objective if attack.search.module is not None else 'soft-vote'}, gradients: "
        f"{attack.search.source}, {chosen.steps} steps, {chosen.draws} draws, {chosen.restarts} restarts; changes "
        f"checked with {chosen.n} fresh samples; seed {chosen.seed}; {attack.record.path}",
    )
    return Table(columns, cells, notes)
