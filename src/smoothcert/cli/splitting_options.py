"""Options of runs under splitting, which makes every evaluation there is instead of drawing samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smoothcert.cli import options as o
from smoothcert.errors import InputError

if TYPE_CHECKING:
    from smoothcert.cli.run_options import RunOptions
    from smoothcert.spec import QuestionSpec, SigmaSpec

SPLITTING = "splitting"
Evaluations = Annotated[
    str | None,
    typer.Option(
        "--evaluations",
        metavar="N[,N...]",
        rich_help_panel=o.RARE,
        help="With --noise splitting, instead of --sigma: how many evaluations each input takes, such as 441. They are "
        "all there are, so certificates are certain: --n, --n0 and --alpha do not apply. With --sigma-rule, the most "
        "that one may take. Inputs are 8-bit, or are rounded to the levels that --grid gives. --seed decides the "
        "offsets, which are a part of the classifier (default: 0).",
    ),
]
TrainingEvaluations = Annotated[
    int | None,
    typer.Option(
        "--evaluations",
        rich_help_panel=o.RARE,
        help="With --noise splitting, instead of --sigma: how many evaluations `certify` will make of each input, such "
        "as 441.",
    ),
]
TrainingGrid = Annotated[
    int | None,
    typer.Option(
        "--grid",
        rich_help_panel=o.RARE,
        help="With --noise splitting: the number of levels that inputs are rounded to (default: 256, of 8-bit images).",
    ),
]
OffsetSeed = Annotated[
    int | None,
    typer.Option(
        "--offset-seed",
        rich_help_panel=o.RARE,
        help="With --noise splitting: the --seed of `certify` (default: 0), which decides the offsets. A network is "
        "trained for one choice of them.",
    ),
]
_ABOUT_SAMPLES = ("n", "n0", "alpha", "decide", "precision")


def read_evaluations(run: RunOptions) -> list[float | None] | None:
    """The levels that --evaluations gives; None if it gives none."""
    if run.evaluations is None:
        return None
    from smoothcert.noise import level_of

    if run.noise != SPLITTING:
        raise InputError("--evaluations are counted with --noise splitting; other noises take --sigma and --n")
    counts = _parse_counts(run.evaluations)
    if run.sigma_rule is not None:
        return None  # the most that an input may take
    if run.sigma is not None:
        raise InputError("--sigma and --evaluations decide the same: give one of them")
    return [level_of(count, levels=levels_of(run)) for count in counts]


def _parse_counts(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--evaluations {text!r} is invalid: expected a number such as 441") from error


def levels_of(run: RunOptions) -> int:
    """The levels of inputs that are split: 8-bit, unless --grid says otherwise."""
    from smoothcert.sampling.grid_choice import EIGHT_BITS

    if run.grid == "float":
        raise InputError("splitting is for inputs on a grid, not for noise in float32: leave --grid out, or give 256")
    return int(run.grid) if run.grid.isdecimal() else EIGHT_BITS


def settle_question(run: RunOptions, question: QuestionSpec, sigma: SigmaSpec) -> tuple[QuestionSpec, float]:
    """The question of a run at this level, and its alpha. With splitting, what is about samples is refused."""
    if run.noise != SPLITTING:
        return question, run.alpha
    from smoothcert.questions.every_evaluation import refuse_setting
    from smoothcert.spec import EveryEvaluation

    for name in _ABOUT_SAMPLES:
        if name in run.context.params and o.is_given(run.context, name):
            raise InputError(refuse_setting(f"--{name}"))
    if run.shared_noise:
        raise InputError("splitting has the same offsets for all inputs already: leave --shared-noise out")
    return EveryEvaluation(n=_count_most(run, sigma)), 0.0


def _count_most(run: RunOptions, sigma: SigmaSpec) -> int:
    """The evaluations of every input, or the most that one may take."""
    from smoothcert.noise import evaluations_of
    from smoothcert.sampling.evaluations import most_evaluations
    from smoothcert.sigma import OptimisedSigma
    from smoothcert.spec import ConstantLevel, OptimisedLevel

    if isinstance(sigma, ConstantLevel):
        return evaluations_of(sigma.level, levels=levels_of(run))
    if run.evaluations is not None:
        (most,) = _parse_counts(run.evaluations)
        return most
    if isinstance(sigma, OptimisedLevel):
        searched = OptimisedSigma(sigma.start, least=sigma.least, most=sigma.most)
        return most_evaluations(searched, None, levels=levels_of(run))
    raise InputError("--sigma-rule gives every input a level: give --evaluations too, the most that one may take")


def describe_training(facts: Mapping[str, Any]) -> str:
    """What a training is told to prepare for. facts: its settings."""
    return (
        f"inputs are rounded to a grid of {facts['grid']} levels and split: each step sees one of "
        f"{facts['evaluations']} evaluations of an input; offsets by seed {facts['offset_seed']}"
    )


def suggest_level(facts: Mapping[str, Any], levels: int | None) -> dict[str, str | None]:
    """The options of `certify` that smooth as the training did. facts: of a checkpoint; levels: of the data."""
    if "evaluations" not in facts:
        return {"--sigma": None if facts.get("sigma") is None else f"{facts['sigma']:g}"}
    from smoothcert.sampling.grid_choice import EIGHT_BITS

    is_usual = levels == facts["grid"] == EIGHT_BITS
    return {
        "--evaluations": str(facts["evaluations"]),
        "--grid": None if is_usual else str(facts["grid"]),
        "--seed": str(facts["offset_seed"]) if facts["offset_seed"] else None,
    }
