"""Every sentence that describes an outcome, a reason, a settlement, a guarantee or a remark.

Sentences are made here from codes and numbers, and nothing reads them back: they can be reworded freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smoothcert.records.outcomes import Reason, ReasonCode, Remark, RemarkCode, Settlement

if TYPE_CHECKING:
    from smoothcert.records.points import Guarantee, Promise

NOT_SOUND = "not sound in floating point"
"""Part of every description of noise that is added in float32."""

_MOST_NUMBERS = 20
"""Numbers of a scale that a sentence shows."""
_FLOAT_GUARANTEE = f"The noise was added in float32 and is treated as ideal noise, which is {NOT_SOUND}."

_SETTLEMENTS = {
    Settlement.WHOLE: "the claimed region overlaps no region of another class and is promised in full",
    Settlement.CUT: "the claimed region was cut so that it does not overlap a region of another class",
    Settlement.OVERRULED: "the input lies in a region of another class: that class is the answer, in a smaller region",
    Settlement.INHERITED: "nothing was claimed: the input lies in a promised region, and its class is the answer",
}

_REASONS = {
    ReasonCode.NO_FINITE_ANSWER: "the model gave no finite answer for {invalid} of {n} samples",
    ReasonCode.TOO_FEW_VOTES: "{votes} of {n} votes for class {label} prove nothing",
    ReasonCode.TOO_FEW_PAIRED_VOTES: "{votes} of {n} votes at x+ε for class {label} prove nothing",
    ReasonCode.OTHER_CLASS_LEADS: (
        "selection picked class {label}, but class {leader} leads in estimation, with {leader_votes} of {n} votes to "
        "{votes}"
    ),
    ReasonCode.LOW_MEAN_SCORE: "a mean score of {mean:.4g} over {n} samples for class {label} proves nothing",
    ReasonCode.NO_SIGNIFICANT_CLASS: (
        "the two leading classes are too close to call: {votes} and {runner_up} of {n} votes"
    ),
    ReasonCode.LEAD_TOO_SMALL: (
        "class {label} has {votes} of {n} votes and another class {runner_up}: a change of a single vote may give "
        "another answer"
    ),
    ReasonCode.RADIUS_IMPOSSIBLE: "no probability below 1 gives a radius of {radius:g} at this noise level",
    ReasonCode.RADIUS_REFUTED: "{votes} of {n} votes for class {label} refute a radius of {radius:g}",
    ReasonCode.RADIUS_UNDECIDED: (
        "a radius of {radius:g} is undecided: with {votes} of {n} votes for class {label} it cannot be proved within "
        "{limit} samples"
    ),
    ReasonCode.BELOW_PRECISION: (
        "{votes} of {n} votes for class {label} prove nothing, and no radius of {width:g} could be proved within "
        "{limit} samples"
    ),
    ReasonCode.REGION_CUT: _SETTLEMENTS[Settlement.CUT],
    ReasonCode.REGION_OVERRULED: _SETTLEMENTS[Settlement.OVERRULED],
    ReasonCode.REGION_INHERITED: _SETTLEMENTS[Settlement.INHERITED],
    ReasonCode.NO_ROOM_IN_MEMORY: "earlier promises leave no room around this input: only its own answer is kept",
    ReasonCode.IN_PROMISED_REGION: "the input lies in the region promised at position {position} of the memory",
    ReasonCode.LEVEL_PROVES_NOTHING: "the votes at the noise level {sigma:g}, which may be selected, prove no class",
    ReasonCode.LEVEL_NOT_PROVED: "the selector's votes do not prove that the noise level {sigma:g} is selected",
    ReasonCode.LEVELS_DISAGREE: (
        "the leading noise level {sigma:g} answers class {label}, but a level that is not excluded proves no class or "
        "another one"
    ),
    ReasonCode.POSSIBLE_LEVELS_DIFFER: "the {levels} noise levels that may be selected answer different classes",
}

_REMARKS = {
    RemarkCode.FLOAT_NOISE: f"noise was added in float32 and is treated as ideal noise; {NOT_SOUND}.",
    RemarkCode.HALF_OF_THE_VOTES: (
        "{certificates} used only the votes at x+ε, half of all votes, because those at x-ε depend on them; compare "
        "dipole with a separate run."
    ),
    RemarkCode.ANSWERS_FROM_MEMORY: "{answers} of {inputs} answers were looked up in a memory.",
    RemarkCode.REGIONS_OF_MEMORY: (
        "regions kept by a memory: {settlements}. The radii hold for as long as the memory is kept and consulted, and "
        "depend on the order of the inputs."
    ),
    RemarkCode.SAMPLES_SPENT: (
        "{total:,} samples for {inputs} inputs, {mean:,.0f} each, selection included: {percent:.3g} % of n0 + n = "
        "{limit:,} samples each. The most for one input was {most:,}."
    ),
    RemarkCode.DECIDED_RADII: (
        "only the radii {radii} were decided. Each input has the largest of them that is proved, so ACR and certified "
        "accuracy between them are lower bounds; nothing is known about larger radii."
    ),
    RemarkCode.UNFINISHED: "unfinished: {done} of {expected} inputs.",
    RemarkCode.SEVERAL_CERTIFICATES: "number of largest radii by certificate: {certificates}.",
    RemarkCode.OTHER_NORM: "radii are in the {norm} norm.",
    RemarkCode.SCALED_NORM: "radii are in the scaled {norm} norm, {measured}.",
    RemarkCode.EVERY_EVALUATION: (
        "certain, for inputs whose values are multiples of 1/{steps}: all evaluations were made, at most {n} of an "
        "input, and no probability is involved."
    ),
    RemarkCode.HALF_PRECISION: (
        "the model was computed in {dtype}, by torch.autocast: the results are about it in that precision, and not in "
        "float32."
    ),
    RemarkCode.RANDOM_WEIGHTS: "the weights of the model were random: it was constructed for the run, not trained.",
}


def describe_reason(reason: Reason) -> str:
    return _REASONS[reason.code].format(**reason.numbers)


def describe_remark(remark: Remark) -> str:
    """The remark as one sentence or more, with the name of the results in front."""
    values = {name: _format_value(value) for name, value in remark.values.items()}
    if remark.code is RemarkCode.SCALED_NORM:
        values["measured"] = describe_scale(remark.values["scale"])
    return f"{remark.name}: {_REMARKS[remark.code].format(**values)}"


def _format_value(value: Any) -> Any:
    """A list or mapping as text in a sentence; numbers stay numbers, because a format may follow."""
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value)
    return value


def describe_noise(grid: int | None, *, first_layer: bool = False) -> str:
    """How noise is added: in exact steps of a grid with this many levels, or in float32."""
    if grid is not None:
        return f"in exact steps of 1/{grid - 1}"
    return f"float32{', in the first layer' if first_layer else ''}, {NOT_SOUND}"


def describe_guarantee(guarantee: Guarantee) -> str:
    """The whole promise of a certified point."""
    statement = _state(guarantee) if guarantee.promise is None else _state_promise(guarantee, guarantee.promise)
    if guarantee.dtype is not None:
        statement = f"{statement} The model is computed in {guarantee.dtype}."
    return statement if guarantee.sound_in_floating_point else f"{statement} {_FLOAT_GUARANTEE}"


def _state(guarantee: Guarantee) -> str:
    if guarantee.is_certain:
        return (
            f"Certain: the smoothed classifier answers class {guarantee.label} at every input on the grid of "
            f"{guarantee.grid} levels within {guarantee.radius!r} in {_name_distance(guarantee)} of this one, rounded "
            "to that grid. All evaluations were made, and no probability is involved."
        )
    return (
        f"Except with probability at most {guarantee.alpha!r} over the sampling, the smoothed classifier answers class "
        f"{guarantee.label} at every point closer than {guarantee.radius!r} in {_name_distance(guarantee)}."
    )


def _name_distance(guarantee: Guarantee) -> str:
    if guarantee.scale is None:
        return f"{guarantee.norm} distance"
    return f"scaled {guarantee.norm} distance, {describe_scale(guarantee.scale.numbers)}"


def describe_scale(numbers: Sequence[float]) -> str:
    """How distances are measured with a scale."""
    shown = ", ".join(f"{number:g}" for number in numbers[:_MOST_NUMBERS])
    more = f", … ({len(numbers)} numbers)" if len(numbers) > _MOST_NUMBERS else ""
    return f"in which the change of each feature is divided by its scale ({shown}{more})"


def _state_promise(guarantee: Guarantee, promise: Promise) -> str:
    kept = (
        f"From position {promise.position} of the memory {promise.memory[:12]} on, and for as long as that memory is "
        f"kept and consulted, the answer is class {guarantee.label} at every point within {guarantee.radius!r} in "
        f"{_name_distance(guarantee)}."
    )
    if guarantee.alpha is None:
        return f"{kept} An earlier claim promised it; this input lies in its region."
    if guarantee.is_certain:
        return (
            f"{kept} All evaluations of this claim were made: for certain, the classifier smoothed with the sigma of "
            "this input gives the same answer."
        )
    return (
        f"{kept} Except with probability at most {guarantee.alpha!r} over the sampling of this claim, the classifier "
        "smoothed with the sigma of this input gives the same answer."
    )
