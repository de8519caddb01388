"""The scale of the features of a run: inputs are divided by it before noise is added and distances are measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.findings import Finding, note, refuse
from smoothcert_verify.json_values import Later, ListOf, Number, Optional

SCALE = Later(Optional(ListOf(Number(2.0**-126, 2.0**127), 1)))
"""Numbers that float32 holds with all its digits. Runs of earlier versions have none."""
_MOST_SHOWN = 20


def check_scale(noise: Mapping[str, Any], *, shape: Sequence[int], sigma: str) -> Iterator[Finding]:
    """A scale has a number for each feature of a flat input, and goes with noise in float32 at the input, of one level.

    sigma: the kind of the rule for σ.
    """
    scale = noise.get("scale")
    if scale is None:
        return
    if list(shape) != [len(scale)]:
        yield note("differs", field="run.spec.noise.scale", value=len(scale), expected=list(shape))
    for field, value, expected in (
        ("run.spec.noise.grid", noise["grid"], None),
        ("run.spec.noise.place", noise["place"], "input"),
        ("run.spec.sigma.kind", sigma, "constant"),
    ):
        if value != expected:
            yield note("not-with-a-scale", field=field, value=value, expected=expected)


def divide_by_scale(x: NDArray[np.float32], scale: Sequence[float] | None) -> NDArray[np.float32]:
    """A flat input in the units of its noise: each value divided in float64, then rounded to float32."""
    if scale is None:
        return x
    if len(scale) != x.size:
        raise refuse("differs", field="run.spec.noise.scale", value=len(scale), expected=x.size)
    with np.errstate(over="ignore"):
        return np.array([float(value) / number for value, number in zip(x.tolist(), scale, strict=True)], np.float32)


def describe_distance(norm: str, scale: Sequence[float] | None) -> str:
    """The distance that a radius is about."""
    if scale is None:
        return f"{norm} distance"
    shown = ", ".join(f"{number:g}" for number in scale[:_MOST_SHOWN])
    more = f", … ({len(scale)} numbers)" if len(scale) > _MOST_SHOWN else ""
    return (
        f"scaled {norm} distance, in which the change |x'_j - x_j| of each feature is divided by its scale s_j "
        f"(s = {shown}{more})"
    )
