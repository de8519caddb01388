"""`smoothcert sigma train`: a noise level that a network learns for one base classifier."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli import options as o

if TYPE_CHECKING:
    from smoothcert.data.base import Dataset
    from smoothcert.sigma.network import SigmaNetwork
    from smoothcert.training.sigma_network import SigmaTrainingConfig, SigmaTrainingProgress

_HELD_OUT = 2000


class Objective(enum.StrEnum):
    RADIUS = "radius"
    THEOREM = "theorem"


def train_sigma(
    model: Annotated[Path, typer.Option("--model", help="The base classifier: a .safetensors or .pth file.")],
    data: Annotated[str, typer.Option("--data", help="A dataset by name (see `data list`) or a file of yours.")],
    sigma_min: Annotated[float, typer.Option("--sigma-min", help="Smallest sigma, in the units of the input.")],
    lipschitz: Annotated[float, typer.Option("--lipschitz", help="Largest Lipschitz constant of sigma.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, .safetensors.")],
    objective: Annotated[
        Objective,
        typer.Option(
            "--objective",
            help="radius: sigma times the margin, what `envelope` pays for. theorem: what `lipschitz` pays for.",
        ),
    ] = Objective.RADIUS,
    sigma: Annotated[
        float | None, typer.Option("--sigma", help="About where sigma starts (default: 1.1 times the smallest).")
    ] = None,
    most: Annotated[float | None, typer.Option("--most", help="Largest sigma (default: no limit).")] = None,
    hidden: Annotated[
        str, typer.Option("--hidden", help="Widths of the hidden layers, such as 200 or 200,50.")
    ] = "200",
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over the data.")] = 3,
    samples: Annotated[int, typer.Option("--samples", help="Noises for each input and step.")] = 8,
    batch: Annotated[int, typer.Option("--batch", help="Inputs in a step.")] = 100,
    rate: Annotated[float, typer.Option("--lr", help="Peak learning rate of the one-cycle schedule.")] = 0.003,
    penalty: Annotated[float, typer.Option("--penalty", help="Times the sum of the spectral norms, as a cost.")] = 0.01,
    p_min: Annotated[
        float | None,
        typer.Option("--p-min", help="How far scores are kept from 0 and 1 (default: radius 1e-3, theorem 1e-7)."),
    ] = None,
    max_inputs: Annotated[
        int, typer.Option("--max", help="Train on at most this many inputs, evenly spread.")
    ] = 10_000,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of weights, order and noise (default: from the operating system).")
    ] = None,
    arch: o.Arch = None,
    input_range: o.InputRange = None,
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    threads: Annotated[int | None, typer.Option("--threads", help="Cores used (default: all).")] = None,
    as_json: o.Json = False,
) -> None:
    """Learn a noise level sigma(x) that never changes faster than a given Lipschitz constant.

    The base classifier stays as it is. Nothing is overwritten; Ctrl-C stops after the current batch and writes nothing.
    """
    import secrets

    from smoothcert.cli.fitting import both_splits, check_new_rule
    from smoothcert.cli.progress import stop_on_interrupt
    from smoothcert.models.devices import import_torch
    from smoothcert.sigma.files import save_rule

    import_torch("training")
    from smoothcert.models.checkpoints import load_checkpoint
    from smoothcert.training.sigma_network import SigmaObjective, SigmaTrainingConfig, train_sigma_network

    check_new_rule(out)
    dataset, held_out = both_splits(data, data_root=data_root, input_range=input_range)
    loaded = load_checkpoint(model, arch=arch, input_shape=tuple(dataset.input_shape))
    config = SigmaTrainingConfig(
        floor=sigma_min, lipschitz=lipschitz, seed=secrets.randbits(63) if seed is None else seed,
        objective=SigmaObjective(objective), hidden=_widths(hidden), first_sigma=sigma, most=most, epochs=epochs,
        batch=batch, samples=samples, peak_rate=rate, penalty=penalty, p_least=p_min, most_inputs=max_inputs,
        score_lipschitz=_score_lipschitz(objective, sigma_min, lipschitz, dataset, p_min),
    )  # fmt: skip
    with stop_on_interrupt("batch") as stop, _shown_progress() as progress:
        trained = train_sigma_network(
            config, loaded.module, dataset, device=device, threads=threads, progress=progress, stop=stop
        )
    facts = _facts(
        config,
        trained.rule,
        dataset if held_out is None else held_out,
        history=trained.history,
        seconds=trained.seconds,
    )
    facts |= {"model": loaded.file_digest, "dataset": dataset.name, "data": dataset.digest}
    save_rule(out, trained.rule, facts=facts)
    _print_result(out, trained.rule, facts, as_json=as_json)


def _widths(text: str) -> tuple[int, ...]:
    from smoothcert.errors import InputError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--hidden {text!r} cannot be read: expected widths such as 200 or 200,50") from None


def _score_lipschitz(
    objective: Objective, sigma_min: float, lipschitz: float, dataset: Dataset, p_min: float | None
) -> float | None:
    """The constant L of the theorem, where it is what is trained for."""
    import math

    from smoothcert.certificates.lipschitz import DEFAULT_P_MIN, lipschitz_constant

    if objective is Objective.RADIUS:
        return None
    dimension = math.prod(dataset.input_shape)
    p_min = DEFAULT_P_MIN if p_min is None else p_min
    return float(lipschitz_constant(sigma_min=sigma_min, lipschitz=lipschitz, dimension=dimension, p_min=p_min))


def _facts(
    config: SigmaTrainingConfig, rule: SigmaNetwork, held_out: Dataset, *, history: tuple[float, ...], seconds: float
) -> dict[str, Any]:
    from smoothcert.sigma.over_data import dataset_sigmas, evenly_spread

    indices = evenly_spread(len(held_out), most=_HELD_OUT)
    sigmas = dataset_sigmas(rule, held_out, indices)
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
def _shown_progress() -> Iterator[Callable[[SigmaTrainingProgress], None]]:
    """A bar with the mean radius and time left on a terminal; one line an epoch elsewhere."""
    from smoothcert.cli.progress import timed_bars

    bars = timed_bars()
    if bars is None:
        yield _line_an_epoch
        return
    with bars:
        task = bars.add_task("training sigma")

        def show(report: SigmaTrainingProgress) -> None:
            bars.update(task, completed=report.step, total=report.steps, description=_sentence(report))

        yield show


def _line_an_epoch(report: SigmaTrainingProgress) -> None:
    if report.step * report.epochs == report.epoch * report.steps:
        typer.echo(_sentence(report), err=True)


def _sentence(report: SigmaTrainingProgress) -> str:
    return f"epoch {report.epoch}/{report.epochs}  mean radius {report.radius:.4f}"


def _print_result(out: Path, rule: SigmaNetwork, facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"sigma_rule": str(out), "digest": rule.digest, **facts}))
        return
    seen = facts["sigma"]
    typer.echo(f"{out}: {rule.description}")
    typer.echo(f"Lipschitz constant {rule.lipschitz_constant:.10g}, by exact singular values")
    typer.echo(
        f"sigma on {seen['inputs']} {seen['split']} inputs: min {seen['min']:.4f}, mean {seen['mean']:.4f}, "
        f"max {seen['max']:.4f}"
    )
    typer.echo(f"{facts['seconds']:.0f} s, seed {facts['training']['seed']}")
