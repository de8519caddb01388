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
from smoothcert.cli.printing import say

if TYPE_CHECKING:
    from smoothcert.sigma.base import SigmaRule
    from smoothcert.training import CarriedSigma, TrainedModel, TrainingProgress


class TrainingNoise(enum.StrEnum):
    """What a network may be trained with; the words of `Noise`, which is slow to import."""

    GAUSSIAN = "gaussian"
    UNIFORM = "uniform"


class Optimiser(enum.StrEnum):
    """The words of `training.Optimiser`."""

    SGD = "sgd"
    ADAMW = "adamw"


class Augment(enum.StrEnum):
    """The words of `training.Augment`."""

    NONE = "none"
    SHIFT = "shift"
    FLIP_CROP = "flip-crop"


class Precision(enum.StrEnum):
    """The words of `training.Precision`."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def train(
    data: Annotated[str, typer.Option("--data", help="A dataset by name (see `data list`) or a file of yours.")],
    arch: Annotated[str, typer.Option("--arch", help="mlp, lenet, small_net, cifar_resnet20, resnet50, …")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The checkpoint to write, .safetensors.")],
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            help="gaussian (augmentation with noise), stability, consistency, macer, adversarial, smoothadv or "
            "smoothmix, with settings as in consistency:weight=5,noises=4 (all are in docs/training.md).",
        ),
    ] = "gaussian",
    sigma: Annotated[
        float | None,
        typer.Option("--sigma", help="Noise level to train with, in the units of the input; needed without a rule."),
    ] = None,
    noise: Annotated[
        TrainingNoise,
        typer.Option("--noise", help="The kind of noise to train with; for uniform noise --sigma is the half-width."),
    ] = TrainingNoise.GAUSSIAN,
    sigma_rule: Annotated[
        str | None,
        typer.Option(
            "--sigma-rule",
            help="A level for every input: a file by `sigma fit` or `sigma train`, or 'optimised' (also "
            "optimised:after=0.5,rate=0.05): from --sigma on, carried from epoch to epoch.",
        ),
    ] = None,
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over the data.")] = 10,
    batch: Annotated[int, typer.Option("--batch", help="Inputs in a step.")] = 256,
    optimiser: Annotated[Optimiser, typer.Option("--optimiser", help="sgd (Nesterov) or adamw.")] = Optimiser.SGD,
    rate: Annotated[
        float | None, typer.Option("--lr", help="Peak learning rate (default: 0.1 for sgd, 0.001 for adamw).")
    ] = None,
    schedule: Annotated[
        str, typer.Option("--schedule", help="one-cycle[:rise=0.3], or step[:drops=2,factor=0.1].")
    ] = "one-cycle",
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="L2 penalty on the weights.")] = 1e-4,
    average: Annotated[
        float, typer.Option("--average", help="Decay of a moving average of the weights, as 0.999; 0: none.")
    ] = 0.0,
    augment: Annotated[
        Augment,
        typer.Option("--augment", help="shift: small moves, for digits; flip-crop: moves and mirrors, for CIFAR-10."),
    ] = Augment.NONE,
    precision: Annotated[
        Precision, typer.Option("--precision", help="Of forward and backward passes; weights stay float32.")
    ] = Precision.FLOAT32,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience",
            help="Stop after so many epochs without better accuracy under noise on a tenth of the training data (at "
            "most 2000 inputs) kept back for this, and take the best epoch.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of weights, order and noise (default: from the operating system).")
    ] = None,
    standardise: Annotated[
        bool, typer.Option("--standardise/--no-standardise", help="Let the model's first layer standardise inputs.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the unfinished training beside --out.")] = False,
    tensorboard: Annotated[
        Path | None, typer.Option("--tensorboard", help="Write the curves for TensorBoard into this directory, too.")
    ] = None,
    input_range: o.InputRange = None,
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    threads: Annotated[int | None, typer.Option("--threads", help="Cores used (default: all).")] = None,
    as_json: o.Json = False,
) -> None:
    """Train a network to be right under noise.

    Nothing is overwritten. Ctrl-C stops after the current batch; the same command with --resume goes on. The curves
    are in a csv file beside the checkpoint.
    """
    from smoothcert.cli.fitting import both_splits
    from smoothcert.cli.progress import stop_on_interrupt
    from smoothcert.errors import InputError
    from smoothcert.models.devices import import_torch

    import_torch("training")
    from smoothcert import training
    from smoothcert.records import Noise

    if out.suffix != ".safetensors":
        raise InputError(f"--out {out} must end in .safetensors: that is the format checkpoints are written in")
    level, carried = _noise_level(sigma, sigma_rule)
    config = training.TrainingConfig(
        arch=arch, objective=training.parse_objective(objective), sigma=level, carried=carried,
        noise=Noise(noise.value), seed=_seed(seed, out, resume=resume), epochs=epochs, batch=batch,
        optimiser=training.Optimiser(optimiser.value), schedule=training.parse_schedule(schedule),
        peak_rate=_USUAL_RATES[optimiser] if rate is None else rate, weight_decay=weight_decay, average=average,
        augment=training.Augment(augment.value), precision=training.Precision(precision.value), patience=patience,
        standardise=standardise,
    )  # fmt: skip
    dataset, held_out = both_splits(data, data_root=data_root, input_range=input_range)
    with stop_on_interrupt("batch") as stop, _shown_progress() as (preparing, progress):
        trained = training.train(
            config, dataset, held_out=held_out, out=out, resume=resume, device=device, threads=threads,
            tensorboard=tensorboard, progress=progress, preparing=preparing, notice=say, stop=stop,
        )  # fmt: skip
    _print_result(trained, as_json=as_json)


_USUAL_RATES = {Optimiser.SGD: 0.1, Optimiser.ADAMW: 0.001}


def _noise_level(sigma: float | None, rule: str | None) -> tuple[float | SigmaRule, CarriedSigma | None]:
    """The number given or the rule, and how the number is to move."""
    from smoothcert.errors import InputError
    from smoothcert.settings_text import parse_worded
    from smoothcert.training import CarriedSigma

    optimised = rule is not None and rule.partition(":")[0] == CarriedSigma.name
    if rule is None or optimised:
        if sigma is None:
            raise InputError("the noise level is missing: give --sigma, or --sigma-rule with a rule for every input")
        carried = parse_worded(rule, {CarriedSigma.name: CarriedSigma}, what="rule for sigma") if rule else None
        return sigma, carried
    return _rule_from_file(Path(rule), sigma), None


def _rule_from_file(file: Path, sigma: float | None) -> SigmaRule:
    """A number may be given besides, where it says the same."""
    from smoothcert.errors import InputError
    from smoothcert.sigma.files import load_rule

    rule = load_rule(file)
    base = rule.to_json().get("base_sigma")
    if sigma is not None and sigma != base:
        stated = "has no single noise level" if base is None else f"has the base value {base:g}"
        raise InputError(f"--sigma {sigma:g} contradicts {file}, which {stated}; leave --sigma out")
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
        ahead = report.seconds_left if report.step < report.steps else None
        typer.echo(_sentence(report) + ("" if ahead is None else f"  about {ahead:.0f} s left"), err=True)


def _sentence(report: TrainingProgress) -> str:
    accuracy = "" if report.accuracy is None else f"  accuracy under noise {report.accuracy:.3f}"
    return f"epoch {report.epoch}/{report.epochs}  loss {report.loss:.4f}{accuracy}"


def _print_result(trained: TrainedModel, *, as_json: bool) -> None:
    facts = trained.header.training
    if as_json:
        typer.echo(json.dumps({"model": str(trained.path), "arch": trained.header.arch, **facts}))
        return
    kind = "uniform noise" if facts["noise"] == TrainingNoise.UNIFORM else "noise"
    if "sigma_trained_with" in facts:
        noise = f"{kind} of {facts['sigma_trained_with']['mean']:.4g} on average"
    else:
        noise = f"{kind} {facts['sigma']:g}"
    early = f", stopped after epoch {facts['epochs_done']}" if facts["epochs_done"] < facts["epochs"] else ""
    best = f", weights of epoch {facts['epoch_taken']}" if facts["patience"] is not None else ""
    typer.echo(
        f"{trained.path}: {trained.header.arch}, {trained.accuracy:.2%} of the {facts['noisy_accuracy_split']} inputs "
        f"right under {noise}, {trained.seconds:.0f} s, seed {facts['seed']}{early}{best}"
    )
