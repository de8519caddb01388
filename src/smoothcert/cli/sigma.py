"""`smoothcert sigma`: noise levels that depend on the input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli import options as o
from smoothcert.cli.sigma_train import train_sigma
from smoothcert.cli.verb import Verb

if TYPE_CHECKING:
    from smoothcert.records import FloatArray
    from smoothcert.sigma.knn_fitting import FittedSigma, OffsetChoice
    from smoothcert.sigma.rule import SigmaRule

app = typer.Typer(help="Fit, train and show rules for a sigma that depends on the input.", no_args_is_help=True)
app.command("train", cls=Verb)(train_sigma)

_SHOWN = 2000


@app.command("fit", cls=Verb)
def fit_command(
    data: Annotated[str, typer.Option("--data", help="The name of a dataset (see `data list`), or a file.")],
    sigma: Annotated[float, typer.Option("--sigma", help="Base value of sigma, in the units of the input.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, .safetensors.")],
    k: Annotated[
        int | None, typer.Option("--k", help="Number of nearest neighbours (default: proposed from the data).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Largest change of log sigma per unit of distance (default: see --loss)."),
    ] = None,
    offset: Annotated[
        str,
        typer.Option("--offset", help="Mean distance at which sigma has its base value: lowest, mean, or a number."),
    ] = "lowest",
    most: Annotated[float | None, typer.Option("--most", help="Largest value of sigma (default: no limit).")] = None,
    loss: Annotated[
        float,
        typer.Option("--loss", help="The proposed --rate is the largest that costs at most this share of the radius."),
    ] = 0.05,
    max_points: Annotated[
        int | None, typer.Option("--max-points", help="Fit on at most this many inputs, evenly spread (default: all).")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write the histogram to this .png, .svg or .pdf file.")
    ] = None,
    input_range: o.InputRange = None,
    label_column: o.LabelColumn = None,
    resize: o.Resize = None,
    data_root: o.DataRoot = None,
    as_json: o.Json = False,
) -> None:
    """Fit a sigma that increases with the mean distance to the nearest training inputs.

    Omitted parameters are proposed from the data. The rule is fitted on the training split. The histogram shows sigma
    of held-out inputs.
    """
    from smoothcert.analysis.figures import check_figure_path
    from smoothcert.cli.counting import inputs_progress
    from smoothcert.cli.fitting import check_new_rule, load_splits
    from smoothcert.sigma.knn_fitting import KnnSettings, fit_knn
    from smoothcert.sigma.over_data import compute_sigmas, spread_evenly
    from smoothcert.sigma.rule_files import save_rule

    check_new_rule(out)
    if plot is not None:
        check_figure_path(plot)
    settings = KnnSettings(
        base_sigma=sigma, k=k, rate=rate, offset=_parse_offset(offset), most=most, loss=loss, most_points=max_points
    )
    dataset, held_out = load_splits(
        data, data_root=data_root, input_range=input_range, resize=resize, label_column=label_column
    )
    with inputs_progress("distances") as progress:
        fitted = fit_knn(dataset, settings, progress=progress)
    shown = dataset if held_out is None else held_out
    with inputs_progress("sigma") as progress:
        chosen = spread_evenly(len(shown), most=_SHOWN)
        sigmas = compute_sigmas(fitted.rule, shown, chosen, progress=progress)
    facts = {**fitted.facts(), "sigma": {"split": shown.split, **_summarise(sigmas)}}
    save_rule(out, fitted.rule, facts=facts)
    if plot is not None:
        _draw(sigmas, plot, base_sigma=sigma, title=f"sigma over {len(sigmas)} {shown.split} inputs of {shown.name}")
    if as_json:
        typer.echo(json.dumps({"file": str(out), **_to_json(fitted.rule), **facts}))
    else:
        _print_fit(out, fitted, sigmas, split=shown.split, plot=plot)


@app.command("show", cls=Verb)
def show_command(
    file: Annotated[Path, typer.Argument(help="A rule written by `sigma fit` or `sigma train`.")],
    as_json: o.Json = False,
) -> None:
    """Show a rule and what is proved about it."""
    from smoothcert.sigma.rule_files import load_stored_rule

    stored = load_stored_rule(file)
    if as_json:
        typer.echo(json.dumps({"file": str(file), **_to_json(stored.rule), **stored.facts}))
        return
    typer.echo(f"{file}: sigma(x) = {stored.rule.description}")
    typer.echo(f"envelope: {_describe_envelope(stored.rule)}")
    for name, reason in stored.facts.get("reasons", {}).items():
        typer.echo(f"{name}: {reason}")
    if "dataset" in stored.facts:
        typer.echo(f"fitted on: {stored.facts['dataset']}, split {stored.facts.get('split', 'train')}")
    if "sigma" in stored.facts:
        typer.echo(_describe_summary(stored.facts["sigma"], split=stored.facts["sigma"]["split"]))
    typer.echo(f"digest: {stored.rule.digest}")


def _parse_offset(text: str) -> float | OffsetChoice:
    from smoothcert.errors import InputError
    from smoothcert.sigma.knn_fitting import OffsetChoice

    try:
        return OffsetChoice(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--offset {text!r} cannot be read: expected lowest, mean, or a number") from None


def _summarise(sigmas: FloatArray) -> dict[str, Any]:
    return {
        "inputs": len(sigmas),
        "min": float(sigmas.min()),
        "mean": float(sigmas.mean()),
        "max": float(sigmas.max()),
    }


def _describe_summary(summary: Any, *, split: str) -> str:
    return (
        f"sigma of {summary['inputs']} {split} inputs: min {summary['min']:.5g}, mean {summary['mean']:.5g}, "
        f"max {summary['max']:.5g}"
    )


def _to_json(rule: SigmaRule) -> dict[str, Any]:
    envelope = None if rule.envelope is None else dict(rule.envelope.to_json())
    return {"rule": dict(rule.to_json()), "digest": rule.digest, "envelope": envelope}


def _describe_envelope(rule: SigmaRule) -> str:
    from smoothcert.records.envelopes import LipschitzSigma, SemiElastic

    match rule.envelope:
        case None:
            return "none is proved, so nothing can be certified"
        case SemiElastic(rate=rate):
            return f"within distance a, sigma changes by a factor of at most exp({rate:g}·a) (semi-elastic)"
        case LipschitzSigma(constant=constant, floor=floor):
            return f"within distance a, sigma changes by at most {constant:g}·a, and it is never below {floor:g}"
    return json.dumps(dict(rule.envelope.to_json()))


def _print_fit(out: Path, fitted: FittedSigma, sigmas: FloatArray, *, split: str, plot: Path | None) -> None:
    from smoothcert.analysis.sigma_figures import format_sigma_histogram

    rule = fitted.rule
    values = {"k": f"{rule.k}", "offset": f"{rule.offset:g}", "rate": f"{rule.rate:g}"}
    for name, reason in fitted.reasons.items():
        typer.echo(f"{name} = {values[name]}: {reason}")
    if fitted.ladder:
        typer.echo("\n     k  stability  scatter")
        for step in fitted.ladder:
            typer.echo(f"{step.k:6d}  {step.stability:9.4f}  {step.scatter:7.4f}{'  <' if step.k == rule.k else ''}")
    summary = _summarise(sigmas)
    typer.echo(f"\n{_describe_summary(summary, split=split)} ({summary['mean'] / rule.base_sigma:.4f} times the base)")
    typer.echo(format_sigma_histogram(sigmas))
    typer.echo(f"\nenvelope: {_describe_envelope(rule)}")
    typer.echo(f"wrote {out}" + ("" if plot is None else f" and {plot}"))


def _draw(sigmas: FloatArray, path: Path, *, base_sigma: float, title: str) -> None:
    from smoothcert.analysis.figures import skip_matplotlib_docstrings
    from smoothcert.analysis.sigma_figures import draw_sigma_histogram

    skip_matplotlib_docstrings()
    draw_sigma_histogram(sigmas, path, base_sigma=base_sigma, title=title)
