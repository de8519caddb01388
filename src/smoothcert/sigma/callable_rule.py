"""A noise level of one's own: any function of the input, with the envelope its author has proved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.models.digests import object_digest, text_digest
from smoothcert.records import Envelope, FloatArray, InputArray


class CallableRule:
    """A deterministic function from one input, a float32 array of shape input_shape, to σ > 0.

    It is called with one input at a time, so that no input can change what another gets, and must be right within a
    relative 1e-11. envelope: what is proved about it; None if nothing is, and then it can be sampled but not certified.

    The digest covers the code of the function and of the envelope, and the values they refer to: closures, defaults,
    attributes, global names (`models.digests`). It does *not* see what the function reads from a file: give `digest`,
    say the SHA-256 of that file, so that a run resumed with another is refused.
    """

    def __init__(
        self, function: Callable[[InputArray], float], *, envelope: Envelope | None, digest: str | None = None
    ) -> None:
        self._function = function
        self._name = _qualified_name(function)
        self._envelope = envelope
        content = object_digest((function, envelope), lenient=True)
        self._digest = text_digest("callable", self._name, content, str(self._envelope_json()), digest or "")

    @property
    def envelope(self) -> Envelope | None:
        return self._envelope

    @property
    def digest(self) -> str:
        return self._digest

    @property
    def description(self) -> str:
        return f"the function {self._name}"

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        return np.array([self._sigma(x) for x in inputs], dtype=np.float64)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "callable", "name": self._name, "envelope": self._envelope_json()}

    def _sigma(self, x: InputArray) -> float:
        try:
            sigma = float(self._function(x))
        except Exception as error:
            raise InputError(
                f"the sigma function {self._name} failed on an input of shape {x.shape}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not (math.isfinite(sigma) and sigma > 0):
            raise InputError(f"the sigma function {self._name} gave {sigma}; expected a positive finite number")
        return sigma

    def _envelope_json(self) -> dict[str, Any] | None:
        return None if self._envelope is None else dict(self._envelope.to_json())


def _qualified_name(function: object) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', '?')}"
