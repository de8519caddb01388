"""Reading JSON documents of ours: what is no JSON, though Python's reader takes it, is refused."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def strict_loads(content: bytes | str) -> Any:
    """The value in strict JSON; a ValueError for NaN, infinities, numbers like 1e999 and a name twice in an object.

    A NaN compares false with everything, and two readers may take different ones of two equal names: neither can stand
    in a document that something is proved from.
    """
    return json.loads(content, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_distinct)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is larger than any float")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same name twice")
    return found
