"""`smoothcert train`: train a base classifier under noise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.cli import splitting_options as e
from smoothcert.cli import training_options as t
from smoothcert.cli.printing import say
from smoothcert.training.choices import USUAL_RATES, Augment, FloatFormat, Optimiser

if TYPE_CHECKING:
    from smoothcert.records import Noise
    from smoothcert.sigma.rule import SigmaRule
    from smoothcert.training import CarriedSigma, TrainedModel, TrainingProgress


def train(
    data: t.TrainingData,
    arch: Annotated[
        str,
        typer.Option(
            "--arch",
            rich_help_panel=o.WHAT,
            help="mlp, lenet, small_net, cifar_resnet20, resnet50, …, or package.module:attribute: your own module "
            "class, or a function that makes a module (imported and run).",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", rich_help_panel=o.OUTPUT, help="Checkpoint to write (.safetensors).")
    ],
    objective: Annotated[
        str,
        typer.Option(
            "--objective",
            rich_help_panel=o.TRAINING,
            help="gaussian (noise augmentation), stability, consistency, macer, adversarial, smoothadv, smoothmix, …, "
            "with settings such as consistency:weight=5,noises=4 (see docs/explanation/training.md).",
        ),
    ] = "gaussian",
    sigma: Annotated[
        float | None,
        typer.Option(
            "--sigma",
            rich_help_panel=o.NOISE,
            help="Noise level, in the units of the input. Required, unless --sigma-rule is a file.",
        ),
    ] = None,
    noise: Annotated[str, typer.Option("--noise", rich_help_panel=o.NOISE, help=f"{o.NOISES}.")] = "gaussian",
    sigma_rule: Annotated[
        str | None,
        typer.Option(
            "--sigma-rule",
            rich_help_panel=o.NOISE,
            help="A noise level per input: a file written by `sigma fit` or `sigma train`, or 'optimised' (with "
            "settings: optimised:after=0.5,rate=0.05), which starts at --sigma and changes during the training.",
        ),
    ] = None,
    epochs: t.Epochs = 10,
    batch: t.StepBatch = 256,
    optimiser: Annotated[
        Optimiser, typer.Option("--optimiser", rich_help_panel=o.TRAINING, help="sgd (Nesterov) or adamw.")
    ] = Optimiser.SGD,
    rate: Annotated[
        float | None,
        typer.Option(
            "--lr", rich_help_panel=o.TRAINING, help="Peak learning rate (default: 0.1 for sgd, 0.001 for adamw)."
        ),
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(
            "--schedule", rich_help_panel=o.TRAINING, help="one-cycle[:rise=0.3], or step[:drops=2,factor=0.1]."
        ),
    ] = "one-cycle",
    weight_decay: Annotated[
        float, typer.Option("--weight-decay", rich_help_panel=o.TRAINING, help="L2 penalty on the weights.")
    ] = 1e-4,
    average: t.WeightAverage = 0.0,
    augment: Annotated[
        Augment,
        typer.Option(
            "--augment",
            rich_help_panel=o.TRAINING,
            help="shift: small shifts, for digits; flip-crop: shifts and mirroring, for CIFAR-10.",
        ),
    ] = Augment.NONE,
    precision: t.StepPrecision = FloatFormat.FLOAT32,
    patience: Annotated[
        int | None,
        typer.Option(
            "--patience",
            rich_help_panel=o.TRAINING,
            help="Stop after this many epochs without better accuracy under noise on a held-back tenth of the training "
            "data (at most 2000 inputs), and use the best epoch.",
        ),
    ] = None,
    seed: t.TrainingSeed = None,
    standardise: Annotated[
        bool,
        typer.Option(
            "--standardise", rich_help_panel=o.TRAINING, help="Make a standardising layer the first layer of the model."
        ),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", rich_help_panel=o.OUTPUT, help="Resume the unfinished training beside --out.")
    ] = False,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            "--tensorboard", rich_help_panel=o.OUTPUT, help="Also write the curves for TensorBoard into this directory."
        ),
    ] = None,
    evaluations: e.TrainingEvaluations = None,
    grid: e.TrainingGrid = None,
    offset_seed: e.OffsetSeed = None,
    input_range: o.InputRange = None,
    label_column: o.LabelColumn = None,
    resize: o.Resize = None,
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    threads: t.Threads = None,
    as_json: o.JsonOutput = False,
) -> None:
    """Train a network to classify correctly under noise.

    Nothing is overwritten. Ctrl-C stops after the current batch; the same command with --resume resumes. The curves
    are written to a csv file beside the checkpoint. A fifth of a file without a test split is held out: not trained on,
    and written to an .npz file beside the checkpoint.
    """
    from smoothcert.cli.fitting import load_splits
    from smoothcert.cli.progress import stop_on_interrupt
    from smoothcert.errors import InputError
    from smoothcert.models.devices import import_torch

    import_torch("training")
    from smoothcert import training
    from smoothcert.sampling.evaluations import read_level

    if out.suffix != ".safetensors":
        raise InputError(f"--out {out} must end in .safetensors, the format of checkpoints")
    kind = _parse_noise(noise)
    if evaluations is not None:
        sigma = read_level(sigma, evaluations, noise=kind, grid=grid)
    level, carried = _parse_level(sigma, sigma_rule)
    dataset, held_out = load_splits(
        data, data_root=data_root, input_range=input_range, resize=resize, label_column=label_column
    )
    if held_out is None:
        say(training.describe_hold_out(dataset))
    config = training.TrainingConfig(
        arch=arch, objective=training.parse_objective(objective), sigma=level, carried=carried,
        noise=kind, splitting=training.read_splitting(grid, offset_seed),
        seed=training.choose_seed(seed, out, resume=resume), epochs=epochs, batch=batch, optimiser=optimiser,
        schedule=training.parse_schedule(schedule),
        peak_rate=USUAL_RATES[optimiser] if rate is None else rate, weight_decay=weight_decay, average=average,
        augment=augment, precision=precision, patience=patience,
        standardise=standardise, hold_out=training.HELD_OUT_SHARE if held_out is None else None,
    )  # fmt: skip
    if config.splitting is not None:
        say(e.describe_training(config.to_json()))
    with stop_on_interrupt("batch") as stop, _show_progress() as (preparing, progress):
        trained = training.run_training(
            config, dataset, held_out=held_out, out=out, resume=resume, device=device, threads=threads,
            tensorboard=tensorboard, progress=progress, preparing=preparing, notice=say, stop=stop,
        )  # fmt: skip
    _print_result(trained, data, levels=dataset.levels, input_range=input_range, as_json=as_json)


def _parse_noise(text: str) -> Noise:
    from smoothcert.errors import InputError
    from smoothcert.records import Noise

    if text not in list(Noise):
        raise InputError(f"--noise {text!r} is not supported: expected {' or '.join(Noise)}")
    return Noise(text)


def _parse_level(sigma: float | None, rule: str | None) -> tuple[float | SigmaRule, CarriedSigma | None]:
    """The noise level, a number or a rule, and the settings of its optimisation."""
    from smoothcert.errors import InputError
    from smoothcert.settings_text import parse_settings
    from smoothcert.training import CarriedSigma

    optimised = rule is not None and rule.partition(":")[0] == CarriedSigma.name
    if rule is None or optimised:
        if sigma is None:
            raise InputError("a noise level is required: give --sigma, or a file with --sigma-rule")
        carried = parse_settings(rule, {CarriedSigma.name: CarriedSigma}, what="rule for sigma") if rule else None
        return sigma, carried
    return _load_rule(Path(rule), sigma), None


def _load_rule(file: Path, sigma: float | None) -> SigmaRule:
    """Load a rule. --sigma is allowed only if it equals the base value of the rule."""
    from smoothcert.errors import InputError
    from smoothcert.sigma.rule_files import load_rule

    rule = load_rule(file)
    base = rule.to_json().get("base_sigma")
    if sigma is not None and sigma != base:
        stated = "has no single noise level" if base is None else f"has the base value {base:g}"
        raise InputError(f"--sigma {sigma:g} contradicts {file}, which {stated}; leave --sigma out")
    return rule


@contextmanager
def _show_progress() -> Iterator[tuple[Callable[[int, int], None], Callable[[TrainingProgress], None]]]:
    """Callbacks for the preparation and the training: a progress bar on a terminal, lines elsewhere."""
    from smoothcert.cli.counting import plain_lines
    from smoothcert.cli.progress import timed_bars
    from smoothcert.training import print_epoch

    bars = timed_bars()
    if bars is None:
        yield plain_lines("sigma"), print_epoch
        return
    with bars:
        task = bars.add_task("starting", total=None)

        def prepare(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total, description="sigma of the inputs")

        def show(report: TrainingProgress) -> None:
            bars.update(task, completed=report.step, total=report.steps, description=report.describe())

        yield prepare, show


def _print_result(
    trained: TrainedModel, data: str, *, levels: int | None, input_range: str | None, as_json: bool
) -> None:
    from smoothcert.models.architectures import is_own
    from smoothcert.training import held_out_path

    assert trained.path is not None
    facts, arch = trained.header.training, trained.header.arch
    held_out = held_out_path(trained.path)
    has_file = facts["hold_out"] is not None and held_out.exists()
    if as_json:
        place = {"held_out": str(held_out)} if has_file else {}
        typer.echo(json.dumps({"model": str(trained.path), "arch": arch, **place, **facts}))
        return
    if "sigma_trained_with" in facts:
        noise = f"{facts['noise']} noise of {facts['sigma_trained_with']['mean']:.4g} on average"
    elif "evaluations" in facts:
        noise = f"{facts['noise']} with {facts['evaluations']} evaluations"
    else:
        noise = f"{facts['noise']} noise {facts['sigma']:g}"
    early = f", stopped after epoch {facts['epochs_done']}" if facts["epochs_done"] < facts["epochs"] else ""
    best = f", weights of epoch {facts['epoch_taken']}" if facts["patience"] is not None else ""
    typer.echo(
        f"{trained.path}: {arch}, {trained.accuracy:.2%} of the {facts['noisy_accuracy_split']} inputs "
        f"correct under {noise}, {trained.seconds:.0f} s, seed {facts['seed']}{early}{best}"
    )
    if facts["hold_out"] is not None:
        kept = f"the {facts['noisy_accuracy_inputs']} held-out inputs, {held_out}" if has_file else "other inputs"
        typer.echo(f"{data} also holds the inputs that were trained on: certify {kept}")
    if has_file or is_own(arch):
        typer.echo(_suggest_certify(trained, held_out if has_file else data, levels=levels, input_range=input_range))


def _suggest_certify(trained: TrainedModel, data: Path | str, *, levels: int | None, input_range: str | None) -> str:
    """The command that certifies the model. levels: of the data."""
    import shlex

    from smoothcert.models.architectures import is_own

    arch, facts = trained.header.arch, trained.header.training
    options = {
        "--model": trained.path,
        "--arch": arch if is_own(arch) else None,
        "--data": data,
        "--input-range": input_range,
        "--noise": None if facts["noise"] == "gaussian" else facts["noise"],
        **e.suggest_level(facts, levels),
    }
    given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return shlex.join(["smoothcert", "certify", *given])
