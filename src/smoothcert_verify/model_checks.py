"""How often the model itself was asked again while a run was sampled, and what that shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from smoothcert_verify.arithmetic import upper_limit
from smoothcert_verify.sentences import as_object

ERROR = Fraction(1, 1000)
"""Of the statement about votes that are not the model's own."""
NOT_ASKED = (
    "nothing is stored of asking the model itself again about what was counted: the votes come from another run, or "
    "from an earlier version"
)
_LEAST_ASKED, _ONE_IN = 2000, 1000
_SLACK = 2
"""A run that was killed has lost the count of what it asked last."""


def check_counts(
    rows: Sequence[tuple[Any, ...]] | None, manifest: Mapping[str, Any], *, samples: int
) -> tuple[tuple[int, int, int] | None, list[str]]:
    """Copies drawn, asked again and tied, over the whole run, and sentences about what cannot be.

    rows: those numbers for every shard; None where the run has no table of them. samples: those that are stored.
    """
    if "probe" not in as_object(manifest.get("extra")):
        return None, []
    if rows is None:
        return None, ["the table of how often the model was asked again is missing"]
    if any(type(value) is not int or value < 0 for row in rows for value in row):
        return None, ["how often the model was asked again is told by something that is no number"]
    if any(asked > drawn or ties > asked for drawn, asked, ties in rows):
        return None, [
            "the model was asked about more copies again than were drawn, or more of them tied than were asked"
        ]
    drawn, asked, ties = (sum(column) for column in zip(*rows, strict=True)) if rows else (0, 0, 0)
    problems = []
    if drawn < samples:
        problems.append(f"{drawn} noisy copies were drawn as it counts them, and {samples} are stored")
    if asked < min(_LEAST_ASKED, drawn) // _SLACK or asked < drawn // (_SLACK * _ONE_IN):
        problems.append(f"the model was asked again about {asked} of {drawn} noisy copies, fewer than a run asks")
    return (drawn, asked, ties), problems


def share_of_other_votes(*, asked: int, ties: int) -> float:
    """An upper bound on the share of votes that are not the model's own; wrong with probability at most ERROR.

    By Clopper and Pearson, for copies picked uniformly from all that were drawn. With no tie it is 1 - ERROR^(1/asked),
    which is below ln(1/ERROR)/asked.
    """
    return float(upper_limit(ties, asked, ERROR))
