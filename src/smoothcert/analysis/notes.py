"""What a reader should know about a table or a comparison: codes with values. The sentences are made here only."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smoothcert.numerics.rounding import format_down_as_read, format_nearest

_MOST_INDICES_NAMED = 5
_CHANCE = 0.05
"""A difference between runs that is this probable without a cause is said to be possible by chance."""


class NoteCode(enum.StrEnum):
    CONTRADICTION = "contradiction"
    CLASSES_DIFFER = "classes-differ"
    LEFT_OUT = "left-out"
    SETTING_DIFFERS = "setting-differs"
    MODELS_DIFFER = "models-differ"
    DATA_DIFFER = "data-differ"
    SETTINGS_UNKNOWN = "settings-unknown"
    RADII_UNDECIDED = "radii-undecided"
    TEST_SET_BOUND = "test-set-bound"
    INPUTS_DIFFER = "inputs-differ"
    ACR_MISLEADS = "acr-misleads"


_SENTENCES = {
    NoteCode.CONTRADICTION: (
        "{found}. If both runs smooth the same model with the same sigma, one of the two is wrong each time, which has "
        "probability at most {probability} for an input: check that they do."
    ),
    NoteCode.CLASSES_DIFFER: "{found}: with different {reason} the runs are about different classifiers.",
    NoteCode.LEFT_OUT: "Left out: {inputs} only in {run}.",
    NoteCode.SETTING_DIFFERS: "The runs differ in {setting}: A has {a}, B has {b}.",
    NoteCode.MODELS_DIFFER: "The runs differ in model: they smooth different classifiers.",
    NoteCode.DATA_DIFFER: "The runs differ in data: inputs with the same index may not be the same.",
    NoteCode.SETTINGS_UNKNOWN: "Not both runs state {settings}: whether they agree was not checked.",
    NoteCode.RADII_UNDECIDED: "{run}: r={radii} not decided: the figure is that of the next larger decided radius.",
    NoteCode.TEST_SET_BOUND: (
        "≥: lower bound on the true certified accuracy of these inputs, wrong with probability at most {rho:g} at each "
        "radius ({method})."
    ),
    NoteCode.ACR_MISLEADS: (
        "{winner} has the larger ACR ({acrs}), but it certifies fewer inputs at small radii: at r={radius:g} "
        "{accuracies} of them. There {only_loser} only by {loser} and {only_winner} only by {winner}, which {chance}."
    ),
    NoteCode.INPUTS_DIFFER: "The runs contain different inputs; --common compares them on the inputs they share.",
}


@dataclass(frozen=True, slots=True)
class Note:
    """A code and its values. `str(note)` is the text for a person; `sentence` is the same without a prefix."""

    code: NoteCode
    values: Mapping[str, Any]

    @property
    def sentence(self) -> str:
        values = dict(self.values)
        if "indices" in values:
            values["found"] = _describe_conflicts(values["indices"])
            values["probability"] = _shortest(values["probability"], default="the sum of their two alphas")
        if self.code is NoteCode.LEFT_OUT:
            values["inputs"] = count_inputs(values["inputs"])
        if self.code is NoteCode.SETTING_DIFFERS:
            values |= {side: _range_text(values[side]) for side in ("a", "b")}
        if self.code is NoteCode.ACR_MISLEADS:
            values |= _describe_acr(values)
        return _SENTENCES[self.code].format(**values)

    def __str__(self) -> str:
        if self.code is NoteCode.ACR_MISLEADS and not _is_chance(self.values):
            return f"Warning: {self.sentence}"
        return f"CONTRADICTION: {self.sentence}" if self.code is NoteCode.CONTRADICTION else self.sentence


def count_inputs(number: int) -> str:
    """As in "1 input" or "1,500 inputs"."""
    return f"{number:,} input{'' if number == 1 else 's'}"


def _describe_conflicts(indices: tuple[int, ...]) -> str:
    first = ", ".join(map(str, indices[:_MOST_INDICES_NAMED]))
    more = ", …" if len(indices) > _MOST_INDICES_NAMED else ""
    verb = "is" if len(indices) == 1 else "are"
    return f"{count_inputs(len(indices))} {verb} certified as different classes by the two runs (index {first}{more})"


def _describe_acr(values: Mapping[str, Any]) -> dict[str, str]:
    acrs = [format_down_as_read(values[f"acr_{side}"], decimals=3) for side in ("winner", "loser")]
    shares = [format_nearest(values[f"accuracy_{side}"], decimals=3) for side in ("winner", "loser")]
    chance = "can be" if _is_chance(values) else "is hardly"
    return {
        "acrs": " against ".join(acrs),
        "accuracies": " against ".join(shares),
        "only_loser": f"{count_inputs(values['only_loser'])} {'is' if values['only_loser'] == 1 else 'are'} certified",
        "only_winner": f"{values['only_winner']:,}",
        "chance": f"{chance} chance (p = {values['probability']:.2g})",
    }


def _is_chance(values: Mapping[str, Any]) -> bool:
    return bool(values["probability"] > _CHANCE)


def _range_text(value: Any) -> str:
    """A number, or a range (least, most)."""
    if not isinstance(value, tuple):
        return _shortest(value)
    least, most = value
    return _shortest(least) if least == most else f"{least:g} to {most:g}"


def _shortest(value: Any, default: str = "") -> str:
    return default if value is None else f"{value:g}" if isinstance(value, float) else str(value)
