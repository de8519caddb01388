"""A noise level given by a user's function, with the envelope its author has proved."""

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

    It is called with one input at a time, so that inputs cannot influence each other. Its relative error must be at
    most 1e-11. envelope: what is proved about it; None if nothing is, and then it can be sampled but not certified.

    The digest covers the code of the function and of the envelope and the values they refer to: closures, defaults,
    attributes, global names (`models.digests`). It does *not* cover files that the function reads. For those give
    `digest`, for example the SHA-256 of the file, so that a run resumed with another file is refused.
    """

    def __init__(
        self, function: Callable[[InputArray], float], *, envelope: Envelope | None, digest: str | None = None
    ) -> None:
        named = function if hasattr(function, "__qualname__") else type(function)
        self._name = f"{getattr(named, '__module__', '?')}.{getattr(named, '__qualname__', '?')}"
        self._function = function
        self.envelope = envelope
        self.description = f"the function {self._name}"
        content = object_digest((function, envelope), lenient=True)
        self.digest = text_digest("callable", self._name, content, str(self._envelope_json()), digest or "")

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        return np.array([self._call(x) for x in inputs], dtype=np.float64)

    def to_json(self) -> Mapping[str, Any]:
        return {"kind": "callable", "name": self._name, "envelope": self._envelope_json()}

    def _call(self, x: InputArray) -> float:
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
        return None if self.envelope is None else dict(self.envelope.to_json())
