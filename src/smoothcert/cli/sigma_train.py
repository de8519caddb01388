"""`smoothcert sigma train`: train a σ network for one base classifier."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from smoothcert.cli import options as o
from smoothcert.cli import training_options as t
from smoothcert.training.choices import SigmaObjective

if TYPE_CHECKING:
    from smoothcert.data import Dataset
    from smoothcert.sigma.network import SigmaNetwork
    from smoothcert.training.sigma_network import SigmaTrainingConfig, SigmaTrainingProgress

_HELD_OUT = 2000


def train_sigma(
    model: Annotated[
        Path,
        typer.Option("--model", rich_help_panel=o.WHAT, help="Base classifier: .safetensors, .pth or zoo:NAME."),
    ],
    data: t.TrainingData,
    sigma_min: Annotated[
        float, typer.Option("--sigma-min", rich_help_panel=o.NOISE, help="Smallest sigma, in the units of the input.")
    ],
    lipschitz: Annotated[
        float, typer.Option("--lipschitz", rich_help_panel=o.NOISE, help="Largest Lipschitz constant of sigma.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", rich_help_panel=o.OUTPUT, help="File to write (.safetensors).")],
    objective: Annotated[
        SigmaObjective,
        typer.Option(
            "--objective",
            rich_help_panel=o.TRAINING,
            help="radius: sigma times the margin, for `envelope` certificates. theorem: for `lipschitz` certificates.",
        ),
    ] = SigmaObjective.RADIUS,
    sigma: Annotated[
        float | None,
        typer.Option(
            "--sigma", rich_help_panel=o.NOISE, help="Approximate initial sigma (default: 1.1 times the smallest)."
        ),
    ] = None,
    most: Annotated[
        float | None, typer.Option("--most", rich_help_panel=o.NOISE, help="Largest sigma (default: no limit).")
    ] = None,
    hidden: Annotated[
        str,
        typer.Option("--hidden", rich_help_panel=o.NOISE, help="Widths of the hidden layers, such as 200 or 200,50."),
    ] = "200",
    epochs: t.Epochs = 3,
    samples: Annotated[
        int, typer.Option("--samples", rich_help_panel=o.TRAINING, help="Noises per input and step.")
    ] = 8,
    batch: t.StepBatch = 100,
    rate: Annotated[
        float, typer.Option("--lr", rich_help_panel=o.TRAINING, help="Peak learning rate of the one-cycle schedule.")
    ] = 0.003,
    penalty: Annotated[
        float, typer.Option("--penalty", rich_help_panel=o.TRAINING, help="Weight of the sum of the spectral norms.")
    ] = 0.01,
    p_min: Annotated[
        float | None,
        typer.Option(
            "--p-min",
            rich_help_panel=o.TRAINING,
            help="Distance that scores keep from 0 and 1 (default: radius 1e-3, theorem 1e-7).",
        ),
    ] = None,
    max_inputs: Annotated[
        int,
        o.count("--max", "Train on at most this many inputs, evenly spread.", panel=o.WHAT),
    ] = 10_000,
    seed: t.TrainingSeed = None,
    arch: o.Arch = None,
    input_range: o.InputRange = None,
    label_column: o.LabelColumn = None,
    resize: o.Resize = None,
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    threads: t.Threads = None,
    as_json: o.JsonOutput = False,
) -> None:
    """Train a noise level sigma(x) with a bounded Lipschitz constant.

    The base classifier is not changed. Nothing is overwritten. Ctrl-C stops after the current batch and writes nothing.
    """
    import secrets

    from smoothcert.cli.fitting import check_new_rule, load_splits
    from smoothcert.cli.progress import stop_on_interrupt
    from smoothcert.models.devices import import_torch
    from smoothcert.sigma.rule_files import save_rule

    import_torch("training")
    from smoothcert.models.checkpoints import load_checkpoint
    from smoothcert.models.zoo import locate_model
    from smoothcert.training.sigma_network import SigmaTrainingConfig, train_sigma_network

    check_new_rule(out)
    dataset, held_out = load_splits(
        data, data_root=data_root, input_range=input_range, resize=resize, label_column=label_column
    )
    loaded = load_checkpoint(locate_model(model), arch=arch, input_shape=tuple(dataset.input_shape))
    config = SigmaTrainingConfig(
        floor=sigma_min, lipschitz=lipschitz, seed=secrets.randbits(63) if seed is None else seed,
        objective=objective, hidden=_parse_widths(hidden), first_sigma=sigma, most=most, epochs=epochs,
        batch=batch, samples=samples, peak_rate=rate, penalty=penalty, p_least=p_min, most_inputs=max_inputs,
        score_lipschitz=_score_lipschitz(objective, sigma_min, lipschitz, dataset, p_min),
    )  # fmt: skip
    with stop_on_interrupt("batch") as stop, _show_progress() as progress:
        trained = train_sigma_network(
            config, loaded.module, dataset, device=device, threads=threads, progress=progress, stop=stop
        )
    facts = _collect_facts(
        config,
        trained.rule,
        dataset if held_out is None else held_out,
        history=trained.history,
        seconds=trained.seconds,
    )
    facts |= {"model": loaded.file_digest, "dataset": dataset.name, "data": dataset.digest}
    save_rule(out, trained.rule, facts=facts)
    _print_result(out, trained.rule, facts, as_json=as_json)


def _parse_widths(text: str) -> tuple[int, ...]:
    from smoothcert.errors import InputError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--hidden {text!r} is invalid: expected widths such as 200 or 200,50") from None


def _score_lipschitz(
    objective: SigmaObjective, sigma_min: float, lipschitz: float, dataset: Dataset, p_min: float | None
) -> float | None:
    """The constant L of the theorem; None for the other objective."""
    import math

    from smoothcert.certificates.lipschitz import DEFAULT_P_MIN, lipschitz_constant

    match objective:
        case SigmaObjective.RADIUS:
            return None
        case SigmaObjective.THEOREM:
            dimension = math.prod(dataset.input_shape)
            p_min = DEFAULT_P_MIN if p_min is None else p_min
            return float(lipschitz_constant(sigma_min=sigma_min, lipschitz=lipschitz, dimension=dimension, p_min=p_min))
        case _:
            assert_never(objective)


def _collect_facts(
    config: SigmaTrainingConfig, rule: SigmaNetwork, held_out: Dataset, *, history: tuple[float, ...], seconds: float
) -> dict[str, Any]:
    from smoothcert.sigma.over_data import compute_sigmas, spread_evenly

    indices = spread_evenly(len(held_out), most=_HELD_OUT)
    sigmas = compute_sigmas(rule, held_out, indices)
    return {
        "training": config.to_json(),
        "history": list(history),
        "seconds": round(seconds, 1),
        "lipschitz": rule.lipschitz_constant,
        "sigma": {
            "split": held_out.split,
            "inputs": len(indices),
            "min": float(sigmas.min()),
            "mean": float(sigmas.mean()),
            "max": float(sigmas.max()),
        },
    }


@contextmanager
def _show_progress() -> Iterator[Callable[[SigmaTrainingProgress], None]]:
    """A callback: a progress bar on a terminal, one line per epoch elsewhere."""
    from smoothcert.cli.progress import timed_bars

    bars = timed_bars()
    if bars is None:
        yield _print_epoch
        return
    with bars:
        task = bars.add_task("training sigma")

        def show(report: SigmaTrainingProgress) -> None:
            bars.update(task, completed=report.step, total=report.steps, description=_describe(report))

        yield show


def _print_epoch(report: SigmaTrainingProgress) -> None:
    if report.step * report.epochs == report.epoch * report.steps:
        typer.echo(_describe(report), err=True)


def _describe(report: SigmaTrainingProgress) -> str:
    return f"epoch {report.epoch}/{report.epochs}  mean radius {report.radius:.4f}"


def _print_result(out: Path, rule: SigmaNetwork, facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"sigma_rule": str(out), "digest": rule.digest, **facts}))
        return
    sigma = facts["sigma"]
    typer.echo(f"{out}: {rule.description}")
    typer.echo(f"Lipschitz constant {rule.lipschitz_constant:.10g}, from exact singular values")
    typer.echo(
        f"sigma on {sigma['inputs']} {sigma['split']} inputs: min {sigma['min']:.4f}, mean {sigma['mean']:.4f}, "
        f"max {sigma['max']:.4f}"
    )
    typer.echo(f"{facts['seconds']:.0f} s, seed {facts['training']['seed']}")
