"""`smoothcert train`: a base classifier under noise, with progress, stopped and resumed at will."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o

if TYPE_CHECKING:
    from smoothcert.sigma.base import SigmaRule
    from smoothcert.training import Objective, TrainedModel, TrainingProgress


class TrainingNoise(enum.StrEnum):
    """What a network may be trained with; the words of `Noise`, which is slow to import."""

    GAUSSIAN = "gaussian"
    UNIFORM = "uniform"


def train(
    data: Annotated[str, typer.Option("--data", help="A dataset by name (see `data list`) or a file of yours.")],
    arch: Annotated[str, typer.Option("--arch", help="mlp, lenet, small_net, cifar_resnet20, resnet50, …")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The checkpoint to write, .safetensors.")],
    sigma: Annotated[
        float | None,
        typer.Option("--sigma", help="Noise level to train with, in the units of the input; needed without a rule."),
    ] = None,
    noise: Annotated[
        TrainingNoise,
        typer.Option("--noise", help="The kind of noise to train with; for uniform noise --sigma is the half-width."),
    ] = TrainingNoise.GAUSSIAN,
    sigma_rule: Annotated[
        Path | None,
        typer.Option("--sigma-rule", help="A rule (see `sigma fit`) that gives every input its own noise level."),
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over the data.")] = 10,
    batch: Annotated[int, typer.Option("--batch", help="Inputs in a step.")] = 256,
    rate: Annotated[float, typer.Option("--lr", help="Peak learning rate of the one-cycle schedule.")] = 0.1,
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="L2 penalty on the weights.")] = 1e-4,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of weights, order and noise (default: from the operating system).")
    ] = None,
    standardise: Annotated[
        bool, typer.Option("--standardise/--no-standardise", help="Let the model's first layer standardise inputs.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the unfinished training beside --out.")] = False,
    input_range: o.InputRange = None,
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    threads: Annotated[int | None, typer.Option("--threads", help="Cores used (default: all).")] = None,
    as_json: o.Json = False,
) -> None:
    """Train a network with noise added to its inputs, of one level or, if Gaussian, of a level for every input.

    Nothing is overwritten. Ctrl-C stops after the current batch; the same command with --resume goes on.
    """
    from smoothcert.cli.fitting import both_splits
    from smoothcert.cli.progress import stop_on_interrupt
    from smoothcert.errors import InputError
    from smoothcert.models.devices import import_torch

    import_torch("training")
    from smoothcert.training import TrainingConfig
    from smoothcert.training import train as run_training

    if out.suffix != ".safetensors":
        raise InputError(f"--out {out} must end in .safetensors: that is the format checkpoints are written in")
    objective = _objective(noise, sigma, sigma_rule)
    config = TrainingConfig(
        arch=arch, objective=objective, seed=_seed(seed, out, resume=resume), epochs=epochs, batch=batch,
        peak_rate=rate, weight_decay=weight_decay, standardise=standardise,
    )  # fmt: skip
    dataset, held_out = both_splits(data, data_root=data_root, input_range=input_range)
    with stop_on_interrupt("batch") as stop, _shown_progress() as (preparing, progress):
        trained = run_training(
            config, dataset, held_out=held_out, out=out, resume=resume, device=device, threads=threads,
            progress=progress, preparing=preparing, stop=stop,
        )  # fmt: skip
    _print_result(trained, as_json=as_json)


def _objective(noise: TrainingNoise, sigma: float | None, rule_file: Path | None) -> Objective:
    from smoothcert.errors import InputError
    from smoothcert.training import GaussianAugmentation, UniformAugmentation

    if noise is TrainingNoise.GAUSSIAN:
        return GaussianAugmentation(sigma=_noise_level(sigma, rule_file))
    if rule_file is not None:
        raise InputError(
            f"--sigma-rule {rule_file} cannot be trained with under --noise uniform: rules are for Gaussian noise. "
            "Give one half-width with --sigma"
        )
    if sigma is None:
        raise InputError("the noise level is missing: give --sigma, which is the half-width of uniform noise")
    return UniformAugmentation(sigma=sigma)


def _noise_level(sigma: float | None, rule_file: Path | None) -> float | SigmaRule:
    """The number given, or the rule; both may be given where they say the same."""
    from smoothcert.errors import InputError

    if rule_file is None:
        if sigma is None:
            raise InputError("the noise level is missing: give --sigma, or --sigma-rule with a rule for every input")
        return sigma
    from smoothcert.sigma.files import load_rule

    rule = load_rule(rule_file)
    base = rule.to_json().get("base_sigma")
    if sigma is not None and sigma != base:
        stated = "has no single noise level" if base is None else f"has the base value {base:g}"
        raise InputError(f"--sigma {sigma:g} contradicts {rule_file}, which {stated}; leave --sigma out")
    return rule


def _seed(given: int | None, out: Path, *, resume: bool) -> int:
    """The seed given, that of the training to resume, or a fresh one."""
    import secrets

    from smoothcert.training import load_state, partial_path

    if given is not None:
        return given
    if resume and partial_path(out).exists():
        return int(load_state(partial_path(out)).settings["seed"])
    return secrets.randbits(63)


@contextmanager
def _shown_progress() -> Iterator[tuple[Callable[[int, int], None], Callable[[TrainingProgress], None]]]:
    """How far the preparation is, then a bar with loss, accuracy and time left on a terminal; lines elsewhere."""
    from smoothcert.cli.counting import plain_lines
    from smoothcert.cli.progress import timed_bars

    bars = timed_bars()
    if bars is None:
        yield plain_lines("sigma"), _line_an_epoch
        return
    with bars:
        task = bars.add_task("starting", total=None)

        def prepare(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total, description="sigma of the inputs")

        def show(report: TrainingProgress) -> None:
            bars.update(task, completed=report.step, total=report.steps, description=_sentence(report))

        yield prepare, show


def _line_an_epoch(report: TrainingProgress) -> None:
    if report.step * report.epochs == report.epoch * report.steps:
        typer.echo(_sentence(report), err=True)


def _sentence(report: TrainingProgress) -> str:
    accuracy = "" if report.accuracy is None else f"  accuracy under noise {report.accuracy:.3f}"
    return f"epoch {report.epoch}/{report.epochs}  loss {report.loss:.4f}{accuracy}"


def _print_result(trained: TrainedModel, *, as_json: bool) -> None:
    facts = trained.header.training
    if as_json:
        typer.echo(json.dumps({"model": str(trained.path), "arch": trained.header.arch, **facts}))
        return
    objective = facts["objective"]
    if "sigma" in objective:
        kind = "uniform noise" if objective["name"] == TrainingNoise.UNIFORM else "noise"
        noise = f"{kind} {objective['sigma']:g}"
    else:
        noise = f"noise of {facts['sigma_trained_with']['mean']:.4g} on average"
    typer.echo(
        f"{trained.path}: {trained.header.arch}, {trained.accuracy:.2%} of the {facts['noisy_accuracy_split']} inputs "
        f"right under {noise}, {trained.seconds:.0f} s, seed {facts['seed']}"
    )
