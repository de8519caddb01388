"""`smoothcert advise`: which certificate to use, and how long it takes here."""

from __future__ import annotations

import dataclasses
import json
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli import options as o

if TYPE_CHECKING:
    from smoothcert.runs.advice import Advice, Choice, Situation, Wishes
    from smoothcert.spec import RunSpec

_WIDTH = 100
_REPEATED = (
    "model", "data", "split", "input_range", "input_shape", "resize", "label_column", "data_root", "weights", "arch",
    "standardise", "num_classes", "backend", "dtype", "device", "workers", "sigma_scale", "grid",
)  # fmt: skip
"""Options that the printed command repeats as they were given."""


def advise(
    context: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    inputs: Annotated[
        int | None, o.count("--inputs", "How many inputs to certify (default: 500, or all).", panel=o.WHAT)
    ] = None,
    sigma: Annotated[
        str | None,
        typer.Option(
            "--sigma",
            metavar="S[,S...]",
            rich_help_panel=o.NOISE,
            help="Noise level, or several to choose from (default: some that suit the range of the data).",
        ),
    ] = None,
    norm: Annotated[
        str,
        typer.Option(
            "--norm",
            rich_help_panel=o.CERTIFICATE,
            autocompletion=o.complete_words("l2", "l1"),
            help="The norm of the radii: l2 or l1.",
        ),
    ] = "l2",
    radius: Annotated[
        float | None, typer.Option("--radius", rich_help_panel=o.CERTIFICATE, help="The radius that matters to you.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", metavar="TIME", rich_help_panel=o.SAMPLING, help="The time you have: 90s, 30m or 2h."),
    ] = None,
    alpha: o.Alpha = 0.001,
    device: o.Device = "auto",
    workers: o.Workers = None,
    as_json: o.JsonOutput = False,
    split: o.Split = "test",
    input_range: o.InputRange = None,
    input_shape: o.InputShape = None,
    resize: o.Resize = None,
    label_column: o.LabelColumn = None,
    data_root: o.DataRoot = None,
    weights: o.Weights = None,
    arch: o.Arch = None,
    standardise: o.Standardise = None,
    num_classes: o.NumClasses = None,
    backend: o.Backend = None,
    dtype: o.Dtype = None,
    sigma_scale: o.SigmaScale = None,
    grid: o.Grid = "detect",
) -> None:
    """Say which certificate to use: the command, its time on this machine, and what alternatives cost or gain.

    Needs --model and --data. The speed is measured for about two seconds, and a few votes are drawn; nothing is
    certified. Times and accuracies are estimates.
    """
    from smoothcert.cli import spec_options as build
    from smoothcert.cli.progress import fetch_progress
    from smoothcert.errors import InputError
    from smoothcert.runs.advice import Wishes, parse_seconds
    from smoothcert.runs.alternatives import advise as make_advice
    from smoothcert.runs.building import NamedParts
    from smoothcert.runs.execution import check_spec
    from smoothcert.runs.pilot import measure_situation
    from smoothcert.spec import ConstantLevel, FixedN, LocalEngineSpec, RunSpec

    if model is None or data is None:
        missing = [name for name, value in (("--model", model), ("--data", data)) if value is None]
        raise InputError(f"advice needs {' and '.join(missing)}")
    noises = {"l2": "gaussian", "l1": "uniform"}
    if norm not in noises:
        raise InputError(f"--norm {norm} is unknown: use l2 or l1")
    levels = [level for level in build.parse_sigmas(sigma) if level is not None]
    wishes = Wishes(
        words=tuple(_repeat_options(context)),
        sigma=levels[0] if len(levels) == 1 else None,
        radius=radius,
        budget=None if budget is None else parse_seconds(budget),
        inputs=inputs,
        alpha=alpha,
    )
    spec = RunSpec(
        task="certify",
        model=build.build_model(
            model,
            arch=arch,
            standardise=standardise,
            num_classes=num_classes,
            backend=backend,
            device=device,
            weights=weights,
            dtype=dtype,
        ),
        data=build.build_data(
            data,
            split=split,
            root=data_root,
            input_range=input_range,
            input_shape=input_shape,
            skip=1,
            max_inputs=None,
            label_column=label_column,
            resize=resize,
        ),
        noise=build.build_noise(
            noises[norm], grid=grid, noise_at="input", shared=False, scale=build.parse_scale(sigma_scale)
        ),
        sigma=ConstantLevel(level=levels[0] if levels else 1.0),
        question=FixedN(n=100_000, n0=100),
        alpha=alpha,
        engine=LocalEngineSpec(workers=workers),
    )
    check_spec(spec)
    with fetch_progress() as fetching:
        situation = measure_situation(spec, levels, NamedParts(fetching))
    advice = _avoid_existing_run(make_advice(situation, wishes), spec)
    if as_json:
        typer.echo(json.dumps(_make_document(situation, wishes, advice), indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(_describe(situation, wishes, advice)))


def _repeat_options(context: typer.Context) -> list[str]:
    """The options of model, data and engine as the user gave them."""
    given: list[str] = []
    options = {one.name: one.opts[0] for one in context.command.params if one.name is not None}
    for name in _REPEATED:
        if str(context.get_parameter_source(name)).endswith("COMMANDLINE"):
            given += [options[name], str(context.params[name])]
    return given


def _avoid_existing_run(advice: Advice, spec: RunSpec) -> Advice:
    """Name another directory if the usual one has a run: its settings may be different."""
    scaled = "-scaled" if spec.noise.scale is not None else ""
    usual = o.default_out("certify", spec.model.weights or spec.model.place, spec.data.place, advice.plan.sigma, None)
    usual = usual.with_name(usual.name + scaled)
    if not usual.exists() or advice.choice.command is None:
        return advice
    number = 2
    while (free := Path(f"{usual}-{number}")).exists():
        number += 1
    command = f"{advice.choice.command} --out {shlex.quote(str(free))}"
    return dataclasses.replace(advice, choice=dataclasses.replace(advice.choice, command=command))


def _describe(situation: Situation, wishes: Wishes, advice: Advice) -> list[str]:
    from smoothcert.runs.advice import format_seconds, median_share

    shape = "x".join(map(str, situation.input_shape))
    noise = (
        f"noise in exact steps of {situation.grid} levels"
        if situation.grid is not None
        else f"noise in float32 ({situation.why_float})"
    )
    speed = situation.speed
    lines = [
        *_wrap(f"Model: {_name_model(situation)}; {situation.backend}"),
        *_wrap(
            f"Data: {situation.data}, {situation.size} inputs of shape {shape}, "
            f"{'labelled' if situation.is_labelled else 'not labelled'}; {noise}"
        ),
        *_wrap(
            f"Speed: {_round(speed.samples_per_second)} samples/s, measured with batch {speed.batch} and "
            f"{speed.workers} {'worker' if speed.workers == 1 else 'workers'}; the model alone takes "
            f"{1000 * speed.check_seconds:.2g} ms for one input"
        ),
        "",
        _title_of_votes(situation),
        f"  {'sigma':>8}  {'right' if situation.is_labelled else 'unchanged':>9}  {'with p_A > 1/2':>14}  median p_A",
        *(
            f"  {votes.sigma:>8g}  {votes.accuracy:>9.0%}  {votes.certified_accuracy:>14.0%}  "
            f"{median_share(votes):>10.3f}" + ("   <- used below" if votes.sigma == advice.plan.sigma else "")
            for votes in situation.votes
        ),
        "",
        f"Recommended: {advice.choice.title}; {advice.plan.inputs} inputs, about "
        f"{format_seconds(advice.choice.seconds or 0.0)}, radius at most {_format_radius(advice.choice)}",
        "",
        f"  {advice.choice.command}",
        "",
        *_wrap(_explain(advice, wishes)),
        "",
        "Alternatives (estimated time, largest possible radius):",
    ]
    for one in advice.alternatives:
        time = "" if one.seconds is None else format_seconds(one.seconds)
        lines.append(f"  {one.title:<40}  {time:>8}  {_format_radius(one)}".rstrip())
        lines += _wrap(one.remark, indent=6)
    return [*lines, "", *(line for note in advice.notes for line in _wrap(note))]


def _name_model(situation: Situation) -> str:
    classes = f"{situation.num_classes} classes"
    return situation.model if classes in situation.model else f"{situation.model}, {classes}"


def _title_of_votes(situation: Situation) -> str:
    first = situation.votes[0]
    clean = "" if situation.clean_accuracy is None else f"; without noise {situation.clean_accuracy:.0%} are right"
    what = "" if situation.is_labelled else "; unchanged: the class without noise still wins"
    return f"Estimates from {first.votes} votes on each of {len(first.hits)} inputs{clean}{what}:"


def _explain(advice: Advice, wishes: Wishes) -> str:
    text = advice.choice.remark
    if advice.plan.decide is not None:
        text += f" About {advice.samples_per_input:.0f} samples per input, at most {advice.plan.n} (simulated)."
    if advice.certified_share is not None:
        text += f" About {advice.certified_share:.0%} of the inputs are right and reach {wishes.radius:g} (estimate)."
    return text


def _format_radius(choice: Choice) -> str:
    from smoothcert.numerics.rounding import format_down

    return "" if choice.largest_radius is None else format_down(choice.largest_radius, decimals=3)


def _round(value: float) -> str:
    """Two significant digits, with separators."""
    return f"{int(float(f'{value:.2g}')):,}" if value >= 1 else f"{value:.2g}"


def _wrap(text: str, *, indent: int = 0) -> list[str]:
    space = " " * indent
    return textwrap.wrap(
        text, _WIDTH, initial_indent=space, subsequent_indent=space, break_long_words=False, break_on_hyphens=False
    )


def _make_document(situation: Situation, wishes: Wishes, advice: Advice) -> dict[str, Any]:
    from smoothcert.runs.advice import median_share

    measured = dataclasses.asdict(situation)
    del measured["smoothing"]
    measured["noise"] = str(situation.noise)
    measured["norm"] = str(situation.noise.norm)
    measured["votes"] = [
        {
            "sigma": votes.sigma,
            "votes": votes.votes,
            "inputs": len(votes.hits),
            "accuracy": votes.accuracy,
            "certified_accuracy": votes.certified_accuracy,
            "median_p_a": median_share(votes),
        }
        for votes in situation.votes
    ]
    asked = {key: value for key, value in dataclasses.asdict(wishes).items() if key != "words"}
    return {"found": measured, "asked": asked, **dataclasses.asdict(advice)}
