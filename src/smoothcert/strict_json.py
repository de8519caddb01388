"""Read JSON strictly: refuse what Python's reader accepts although it is not valid JSON."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def strict_loads(content: bytes | str) -> Any:
    """Parse JSON. Raises a ValueError for NaN, infinities, numbers like 1e999, duplicate names and very deep nesting.

    NaN compares false with everything, and two readers can disagree about duplicate names, so neither may occur in a
    document that proves something.
    """
    if isinstance(content, bytes):
        content = content.decode(json.detect_encoding(content), "surrogatepass")
    try:
        return _DECODER.decode(content)  # json.loads would make a new decoder for each text
    except RecursionError as error:
        raise ValueError("its lists or objects are nested too deeply") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _parse_finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is larger than any float")
    return value


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("an object has the same name twice")
    return values


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_finite, object_pairs_hook=_build_object)
