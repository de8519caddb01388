"""`smoothcert selector train`: train a classifier that chooses a noise level for each input."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from smoothcert.cli import options as o
from smoothcert.cli import training_options as t
from smoothcert.cli.printing import say
from smoothcert.cli.selector_options import parse_levels
from smoothcert.training.choices import USUAL_RATES, Augment, FloatFormat, Optimiser

if TYPE_CHECKING:
    from smoothcert.training import TrainedSelector, TrainingProgress


def train_selector_command(
    data: t.TrainingData,
    models: Annotated[
        str,
        typer.Option(
            "--models",
            metavar="A,B,...",
            rich_help_panel=o.WHAT,
            help="Base classifiers: one for each level, in the same order, or one for all.",
        ),
    ],
    levels: Annotated[
        str,
        typer.Option(
            "--levels", metavar="S,S,...", rich_help_panel=o.NOISE, help="The noise levels to choose among, ascending."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", rich_help_panel=o.OUTPUT, help="Checkpoint to write (.safetensors).")
    ],
    sigma: Annotated[
        float | None,
        typer.Option(
            "--sigma", rich_help_panel=o.NOISE, help="Noise level of the selector itself (default: the largest level)."
        ),
    ] = None,
    n: Annotated[
        int,
        o.count(
            "--n", "Samples of each training input at each level, by which the best level is chosen.", panel=o.SAMPLING
        ),
    ] = 100,
    votes: Annotated[
        Path | None,
        typer.Option(
            "--votes",
            rich_help_panel=o.SAMPLING,
            help="Where these samples are stored (default: beside --out). Another selector for the same models can "
            "use the file.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
            rich_help_panel=o.WHAT,
            help="Network of the selector, as in `train` (default: that of the last model, if its file states it).",
        ),
    ] = None,
    softness: Annotated[
        float,
        typer.Option(
            "--softness",
            rich_help_panel=o.TRAINING,
            help="A level whose radius is smaller than the best by less than about this much is nearly as good a "
            "choice; 0: only the best level is right.",
        ),
    ] = 0.0,
    balance: Annotated[
        bool,
        typer.Option(
            "--balance",
            rich_help_panel=o.TRAINING,
            help="At the end, shift the outputs so that the mean estimated radius is largest on inputs that were kept "
            "out. Where no choice is worth more, that is always the same level.",
        ),
    ] = False,
    objective: Annotated[
        str,
        typer.Option("--objective", rich_help_panel=o.TRAINING, help="As in `train`, with its settings."),
    ] = "consistency",
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
    average: t.WeightAverage = 0.0,
    augment: Annotated[
        Augment, typer.Option("--augment", rich_help_panel=o.TRAINING, help="As in `train`.")
    ] = Augment.NONE,
    precision: t.StepPrecision = FloatFormat.FLOAT32,
    seed: t.TrainingSeed = None,
    resume: Annotated[
        bool, typer.Option("--resume", rich_help_panel=o.OUTPUT, help="Resume the unfinished training beside --out.")
    ] = False,
    backend: o.Backend = None,
    input_range: o.InputRange = None,
    label_column: o.LabelColumn = None,
    resize: o.Resize = None,
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    threads: t.Threads = None,
    as_json: o.JsonOutput = False,
) -> None:
    """Train a selector: a classifier that chooses a noise level for each input.

    Every training input is sampled at each level; its best level is the one at which the base classifier has the
    largest estimated radius for the right class. The selector is trained under noise to answer that level. Use it by
    `certify --sigma-rule selector.safetensors --model A,B,...`.

    Nothing is overwritten. Ctrl-C stops after the current batch; the same command with --resume resumes. A fifth of a
    file without a test split is held out, as in `train`: with the seed of the base classifiers it is the same fifth.
    """
    from smoothcert.cli.fitting import load_splits
    from smoothcert.cli.progress import stop_on_interrupt
    from smoothcert.errors import InputError
    from smoothcert.models import load_classifier
    from smoothcert.models.devices import import_torch
    from smoothcert.records.selection import check_levels

    import_torch("training")
    from smoothcert import training

    if out.suffix != ".safetensors":
        raise InputError(f"--out {out} must end in .safetensors, the format of checkpoints")
    places, chosen = models.split(","), parse_levels(levels)
    check_levels(chosen)  # before the data are loaded
    dataset, test = load_splits(
        data, data_root=data_root, input_range=input_range, resize=resize, label_column=label_column
    )
    if test is None:
        say(training.describe_hold_out(dataset))
    store = training.votes_path(out) if votes is None else votes
    own_seed, votes_seed = training.choose_seeds(seed, out, store, resume=resume)
    if votes_seed != own_seed:
        say(f"the votes in {store} are used, which were sampled with seed {votes_seed}")
    config = training.SelectorConfig(
        levels=chosen, n=n, softness=softness, balance=balance,
        training=training.TrainingConfig(
            arch=arch or training.find_arch(places[-1]), objective=training.parse_objective(objective),
            sigma=max(chosen) if sigma is None else sigma, seed=own_seed,
            epochs=epochs, batch=batch, optimiser=optimiser,
            peak_rate=USUAL_RATES[optimiser] if rate is None else rate, average=average,
            augment=augment, precision=precision,
        ),
        share_held_out=training.HELD_OUT_SHARE if test is None else None,
    )  # fmt: skip
    classifiers = [
        load_classifier(place, input_shape=dataset.input_shape, device=device, backend=backend) for place in places
    ]
    with stop_on_interrupt("batch") as stop, _show_progress() as (sampling, progress):
        trained = training.train_selector_network(
            config, dataset, classifiers, out=out, votes_file=store, votes_seed=votes_seed, resume=resume,
            device=device, threads=threads, sampling=sampling, progress=progress, notice=say, stop=stop,
        )  # fmt: skip
    _print_result(trained, data, models, store, as_json=as_json)


@contextmanager
def _show_progress() -> Iterator[tuple[Callable[[int, int], None], Callable[[TrainingProgress], None]]]:
    """Callbacks for the sampling of the levels and for the training: a bar on a terminal, lines elsewhere."""
    from smoothcert.cli.counting import plain_lines
    from smoothcert.cli.progress import timed_bars
    from smoothcert.training import print_epoch

    bars = timed_bars()
    if bars is None:
        yield plain_lines("levels of the inputs"), print_epoch
        return
    with bars:
        sampling = bars.add_task("levels of the inputs", total=None)
        task = bars.add_task("training", total=None)

        def sampled(done: int, total: int) -> None:
            bars.update(sampling, completed=done, total=total)

        def show(report: TrainingProgress) -> None:
            bars.update(task, completed=report.step, total=report.steps, description=report.describe())

        yield sampled, show


def _print_result(selector: TrainedSelector, data: str, models: str, store: Path, *, as_json: bool) -> None:
    trained, report, levels = selector.trained, selector.report, selector.votes.levels
    assert trained.path is not None
    if as_json:
        more = {"report": report.to_json(), "selector": trained.header.selector, "votes_file": str(store)}
        typer.echo(json.dumps({"model": str(trained.path), **trained.header.training, **more}))
        return
    facts = trained.header.training
    typer.echo(
        f"{trained.path}: {trained.header.arch}, noise {facts['sigma']:g}, {trained.seconds:.0f} s, seed "
        f"{facts['seed']}; the votes at the levels are in {store}"
    )
    typer.echo(
        f"on {report.inputs} training inputs that were kept out, {report.n} samples each: the best level chosen for "
        f"{report.right:.1%}; {report.certainty:.1%} of the samples agree, all of them for {report.certain:.1%} of the "
        "inputs"
    )
    if (balance := facts.get("balance")) is not None:
        typer.echo(
            f"outputs shifted by {', '.join(f'{shift:.3g}' for shift in balance['shifts'])}: estimated mean radius "
            f"{balance['after']:.3f} instead of {balance['before']:.3f}, on other inputs that were kept out"
        )
    typer.echo("\n  level   best for  chosen for  estimated mean radius")
    for level, best, chosen, radius in zip(levels, report.best, report.chosen, report.radii, strict=True):
        typer.echo(f"{level:7g}  {best:9.1%}  {chosen:10.1%}  {radius:.3f}")
    typer.echo(
        f"estimated mean radius: selected {report.selected:.3f}, published form {report.published:.3f}, with the best "
        f"level of each input {report.oracle:.3f}"
    )
    command = ["smoothcert", "certify", "--sigma-rule", str(trained.path), "--model", models, "--data", data]
    typer.echo(shlex.join(command))
