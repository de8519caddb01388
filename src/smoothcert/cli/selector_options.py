"""Options about a noise level that is chosen by a smoothed selector, and the `SelectedSpec` that they request."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from smoothcert.cli import options as o
from smoothcert.errors import InputError

if TYPE_CHECKING:
    from smoothcert.cli.run_options import RunOptions
    from smoothcert.records.selection import SelectorBounds
    from smoothcert.runs.selected_spec import SelectedSpec
    from smoothcert.spec import ModelSpec, QuestionSpec

Selector = Annotated[
    str | None,
    typer.Option(
        "--selector",
        rich_help_panel=o.SELECTOR,
        help="A classifier with one output for each noise level, which chooses the level of every input. --model then "
        "takes one model for each level, as in a,b,c, or one for all.",
    ),
]
Levels = Annotated[
    str | None,
    typer.Option(
        "--levels",
        metavar="S,S,...",
        rich_help_panel=o.SELECTOR,
        help="The noise levels, ascending. The default is what the file of the selector says.",
    ),
]
SelectorSigma = Annotated[
    float | None,
    typer.Option(
        "--selector-sigma",
        rich_help_panel=o.SELECTOR,
        help="Noise level of the selector itself; by default what its file says.",
    ),
]
SelectorN = Annotated[
    int | None,
    o.count("--selector-n", "Samples of the selector; by default as many as of each level.", panel=o.SELECTOR),
]
SelectorAlpha = Annotated[
    float | None,
    typer.Option(
        "--selector-alpha", rich_help_panel=o.SELECTOR, help="The selector's part of --alpha; by default half."
    ),
]
SampledLevels = Annotated[
    int | None,
    o.count(
        "--sampled-levels",
        "Sample only this many levels of each input, those with most of the selector's n0 votes; by default all.",
        panel=o.SELECTOR,
    ),
]
SelectorBoundsOption = Annotated[
    str | None,
    typer.Option(
        "--selector-bounds",
        rich_help_panel=o.SELECTOR,
        autocompletion=o.complete_words("two-class", "multi-class"),
        help="two-class bounds the leading level against all others together; multi-class, the default for three or "
        "more levels and a fixed n, bounds each level.",
    ),
]


def uses_selector(run: RunOptions) -> bool:
    """Whether these options request a selector: by --selector, or by the file of one as --sigma-rule."""
    from smoothcert.sigma.selected import read_selector_facts

    if run.selector is not None:
        return True
    for option, given in (
        ("--levels", run.levels),
        ("--selector-sigma", run.selector_sigma),
        ("--selector-n", run.selector_n),
        ("--selector-alpha", run.selector_alpha),
        ("--sampled-levels", run.sampled_levels),
        ("--selector-bounds", run.selector_bounds),
    ):
        if given is not None and (run.sigma_rule is None or read_selector_facts(run.sigma_rule) is None):
            raise InputError(
                f"{option} is about a selector: it needs --selector, or the file of a selector as --sigma-rule"
            )
    return run.sigma_rule is not None and read_selector_facts(run.sigma_rule) is not None


def build_selected(
    run: RunOptions,
    *,
    task: str,
    question: QuestionSpec,
    certificates: list[str] | None = None,
    rigorous: bool = False,
) -> tuple[Path, SelectedSpec]:
    """The run directory, and what is requested."""
    from msgspec.structs import replace

    from smoothcert.cli import spec_options as build
    from smoothcert.records.selection import SELECTED, choose_upper_alpha
    from smoothcert.runs.selected_spec import SelectedSpec, choose_bounds
    from smoothcert.sigma.selected import settle_facts

    place = run.selector or run.sigma_rule
    assert place is not None
    if run.model is None or run.data is None:
        raise InputError("a selector chooses among noise levels: give --model, one for each or one for all, and --data")
    if task == "predict" and (run.sampled_levels is not None or run.selector_bounds is not None):
        raise InputError(
            "--sampled-levels and --selector-bounds are for certify: predict samples every level that may be selected"
        )
    _refuse_other_rules(run)
    facts = settle_facts(place, None if run.levels is None else parse_levels(run.levels), run.selector_sigma)
    plain = build.build_part(run, task=task, model=run.model.split(",")[0], question=question)
    bounds = cast("SelectorBounds", run.selector_bounds or choose_bounds(question, levels=len(facts.levels)))
    forms = () if task == "predict" else tuple(certificates or (SELECTED,))
    selector_alpha = run.alpha / 2 if run.selector_alpha is None else run.selector_alpha
    selector_n = question.n if run.selector_n is None else run.selector_n
    spec = SelectedSpec(
        task=plain.task,
        selector=_build_selector(run, place, len(facts.levels)),
        selector_sigma=facts.sigma,
        levels=facts.levels,
        models=tuple(build.build_model_of(run, model, weights=run.weights) for model in run.model.split(",")),
        data=plain.data,
        noise=plain.noise,
        question=question,
        selector_question=replace(question, n=selector_n),
        alpha=run.alpha,
        selector_alpha=selector_alpha,
        upper_alpha=choose_upper_alpha(run.alpha, selector_alpha, bounds=bounds, forms=forms),
        sampled=run.sampled_levels or len(facts.levels),
        selector_bounds=bounds,
        certificates=forms,
        seed=secrets.randbits(128) if run.seed is None else run.seed,
        batch=run.batch,
        rigorous=rigorous,
        engine=plain.engine,
    )
    spec.check()
    out = run.out or o.default_out(task, run.model.split(",")[0], run.data, None, place)
    return out, _with_recorded_seed(spec, out, given=run.seed is not None)


def _build_selector(run: RunOptions, place: str, outputs: int) -> ModelSpec:
    """The selector, about which --arch, --standardise, --num-classes and --weights say nothing."""
    from smoothcert.cli import spec_options as build
    from smoothcert.user_code import is_code_name

    return build.build_model(
        place,
        arch=None,
        standardise=None,
        # Code that answers with levels instead of scores does not show how many there are.
        num_classes=outputs if is_code_name(place) else None,
        backend=run.backend,
        device=run.device,
        weights=None,
    )


def resume_selected(run: RunOptions, *, task: str) -> SelectedSpec | None:
    """The spec of the selected run that is resumed, with what may be given again; None for an ordinary run."""
    from msgspec.structs import replace

    from smoothcert.cli import spec_options as build
    from smoothcert.runs.run_files import is_object, is_selected, locate_data
    from smoothcert.runs.selected_reopening import split_models
    from smoothcert.runs.selected_run import SelectedRun
    from smoothcert.runs.selected_spec import SELECTOR

    if run.resume is None:
        return None
    if not is_selected(run.resume):
        if is_selected(run.resume.parent):
            raise InputError(f"{run.resume} is a part of {run.resume.parent}: resume that, with --resume")
        return None
    o.check_only_moved(run.context)
    stored = SelectedRun.open(run.resume)
    spec = stored.spec
    if spec.task != task:
        raise InputError(f"{run.resume} is a {spec.task} run: it cannot be resumed by {task}")
    models = spec.models
    if (places := split_models(stored, run.model)) is not None:
        models = tuple(
            replace(model, place=place, code_folder=None) for model, place in zip(models, places, strict=True)
        )
    selector = spec.selector if run.selector is None else replace(spec.selector, place=run.selector, code_folder=None)
    if run.device != "auto":
        selector = replace(selector, device=run.device)
        models = tuple(replace(model, device=run.device) for model in models)
    kept = locate_data(run.resume / SELECTOR, spec.data)
    data = replace(kept, place=run.data or kept.place, root=kept.root if run.data_root is None else str(run.data_root))
    for option, model in (("--selector", selector), *(("--model", model) for model in models)):
        if is_object(model.place):
            raise InputError(
                f"{model.place} of {run.resume} was a Python object, which only its own program has: name it by "
                f"{option}, or make the same call in Python again"
            )
    engine = build.build_moved_engine(build.list_engine_options(run), spec.engine)
    return replace(spec, selector=selector, models=models, data=data, engine=engine)


def _with_recorded_seed(spec: SelectedSpec, out: Path, *, given: bool) -> SelectedSpec:
    """A seed that was not requested is the one that a run was begun with."""
    from msgspec.structs import replace

    from smoothcert.runs.run_files import is_selected
    from smoothcert.runs.selected_run import SelectedRun

    if given or not is_selected(out):
        return spec
    return replace(spec, seed=SelectedRun.open(out).spec.seed)


def _refuse_other_rules(run: RunOptions) -> None:
    given = {
        "--sigma": run.sigma,
        "--memory": run.memory,
        "--search": run.search,
        "--sigma-range": run.sigma_range,
        "--sigma-scale": run.sigma_scale,
        "--sigma-rule": run.sigma_rule if run.selector is not None else None,
    }
    for option, value in given.items():
        if value is not None:
            raise InputError(f"{option} does not go with a selector, which chooses among --levels")


def parse_levels(text: str) -> tuple[float, ...]:
    """The numbers in --levels; `check_levels` says whether they can be noise levels."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--levels {text!r} is invalid: expected numbers such as 0.25,0.5,1.0") from error
