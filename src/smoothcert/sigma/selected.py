"""A noise level chosen by a smoothed selector: what a selector's file says of its levels and of its own noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.errors import InputError, MissingExtraError, ModelError
from smoothcert.records.selection import check_levels
from smoothcert.settings_text import real_number
from smoothcert.strict_json import strict_loads

_METADATA_KEY = "smoothcert"


@dataclass(frozen=True, slots=True)
class SelectorFacts:
    """levels: the noise levels that the outputs of a selector stand for, in order. sigma: of its own noise."""

    levels: tuple[float, ...]
    sigma: float

    def __post_init__(self) -> None:
        for value in (*self.levels, self.sigma):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{value:g} is not a positive noise level")

    def to_json(self) -> dict[str, Any]:
        return {"levels": list(self.levels), "sigma": self.sigma}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SelectorFacts:
        return cls(tuple(float(level) for level in document["levels"]), float(document["sigma"]))


def read_selector_facts(place: str) -> SelectorFacts | None:
    """What the file of a selector says, as `smoothcert selector train` writes it; None for anything else."""
    file = Path(place)
    if file.suffix != ".safetensors" or not file.is_file():
        return None
    try:
        import safetensors
    except ImportError as error:
        raise MissingExtraError("safetensors", "torch", "reading a safetensors file") from error
    try:
        with safetensors.safe_open(file, framework="numpy") as stream:
            text = (stream.metadata() or {}).get(_METADATA_KEY)
        document = None if text is None else strict_loads(text)
        stated = document.get("selector") if isinstance(document, dict) else None
        return None if stated is None else SelectorFacts.from_json(stated)
    except (safetensors.SafetensorError, ValueError, OSError, RecursionError, KeyError, TypeError) as error:
        raise ModelError(
            f"{file} is not a readable safetensors file: {error}; it may be cut short or damaged"
        ) from error


def settle_facts(place: object, levels: Sequence[float] | None, sigma: float | None) -> SelectorFacts:
    """Levels and noise level of the selector: those that are given, else those that its file states.

    place: of the file; anything else states nothing.
    """
    if str(place).endswith(".safetensors") and not Path(str(place)).is_file():
        raise ModelError(f"{place} does not exist: a selector was expected there")
    stated = read_selector_facts(str(place)) if isinstance(place, str | Path) else None
    name = str(place) if isinstance(place, str | Path) else "the selector"
    if levels is None and stated is None:
        raise InputError(f"{name} does not say which noise levels it chooses among: give levels, as in 0.25,0.5,1.0")
    if sigma is None and stated is None:
        raise InputError(f"{name} does not say its own noise level: give the noise level of the selector")
    wanted = stated.levels if stated is not None and levels is None else read_levels(levels)
    check_levels(wanted)
    own = stated.sigma if stated is not None and sigma is None else real_number(sigma, name="selector_sigma")
    if not 0 < own < math.inf:
        raise InputError(f"the noise level of the selector must be a positive finite number, not {own:g}")
    return SelectorFacts(wanted, own)


def read_levels(levels: Any) -> tuple[float, ...]:
    """Noise levels as somebody gave them; an InputError if they are not a list of numbers."""
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise InputError(f"levels must be a list of noise levels, such as [0.25, 0.5, 1.0], not {levels!r}")
    return tuple(real_number(level, name="levels") for level in levels)
