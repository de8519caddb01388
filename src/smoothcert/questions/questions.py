"""What may be asked of every input, and when its votes are looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoothcert.errors import CorruptRunError, InputError
from smoothcert.records import Proof

_FIRST_LOOK = 64
_GROWTH = (3, 20)
"""Each look comes after 3/20 more samples than the one before: at most that share is drawn in vain."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Is the radius at least R? For each of these R, kept in increasing order."""

    radii: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.radii:
            raise InputError("there is no radius to decide: give at least one, such as 0.25,0.5")
        for radius in self.radii:
            if not (math.isfinite(radius) and radius > 0):
                raise InputError(f"{radius:g} cannot be decided: a radius must be a positive finite number")
        if len(set(self.radii)) < len(self.radii):
            raise InputError(f"a radius to decide was given twice: {', '.join(f'{radius:g}' for radius in self.radii)}")
        object.__setattr__(self, "radii", tuple(sorted(map(float, self.radii))))

    @property
    def proof(self) -> Proof:
        """The test that answers it, which gets all of α."""
        return Proof.TOP_DECIDED

    def parameters(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {"decide": list(self.radii)}

    def __str__(self) -> str:
        return f"decide {', '.join(f'{radius:g}' for radius in self.radii)}"


@dataclass(frozen=True, slots=True)
class Precision:
    """What is the radius? Answered when less than `width` more could still be certified."""

    width: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.width) and self.width > 0):
            raise InputError(f"a precision of {self.width:g} cannot be had: a positive finite distance was expected")

    @property
    def proof(self) -> Proof:
        """The test that answers it, which gets all of α."""
        return Proof.TOP_SEQUENCE

    def parameters(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {"precision": self.width}

    def __str__(self) -> str:
        return f"precision {self.width:g}"


Question = Decide | Precision


def asked_question(*, decide: float | Sequence[float] | None, precision: float | None) -> Question | None:
    """The question these settings ask; None for neither, which means a fixed number of samples."""
    if decide is not None and precision is not None:
        raise InputError("decide and precision are two questions: ask one of them in a run")
    if decide is not None:
        return Decide((decide,) if isinstance(decide, int | float) else tuple(decide))
    return None if precision is None else Precision(precision)


def parse_question(*, decide: str | None, precision: float | None) -> Question | None:
    """The same from the options of the command line, where radii are a list such as 0.25,0.5,0.75."""
    if decide is None:
        return asked_question(decide=None, precision=precision)
    try:
        radii = [float(part) for part in decide.split(",")]
    except ValueError as error:
        raise InputError(f"--decide {decide!r} cannot be read: expected radii such as 0.25,0.5,0.75") from error
    return asked_question(decide=radii, precision=precision)


def stated_question(parameters: Mapping[str, Any], *, run: object) -> Question | None:
    """The question a manifest states; None for a run with a fixed number of samples."""
    decide, precision = parameters.get("decide"), parameters.get("precision")
    try:
        return asked_question(decide=None if decide is None else tuple(decide), precision=precision)
    except (InputError, TypeError, ValueError) as error:
        raise CorruptRunError(f"{run} does not say what was asked of its inputs: {error}") from error


def looks(n: int) -> tuple[int, ...]:
    """After how many samples the votes are looked at: from 64 on, each time 15 % more, and at the end, n.

    A pure function of n, so a run that is resumed, or made by other workers, looks at the same times.
    """
    found, at = [], _FIRST_LOOK
    while at < n:
        found.append(at)
        at += at * _GROWTH[0] // _GROWTH[1]
    return (*found, n)
