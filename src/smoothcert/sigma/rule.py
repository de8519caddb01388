"""The protocol of rules for the noise level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from smoothcert.records import FloatArray, InputArray
from smoothcert.records.envelopes import Envelope


@runtime_checkable
class SigmaRule(Protocol):
    """A deterministic function σ(x) > 0 and what is proved about it.

    envelope: bounds how much σ changes around an input; None if nothing is proved, and then nothing can be certified
    without a memory. digest: identifies the function, for the manifest. description: one line for messages.
    """

    @property
    def envelope(self) -> Envelope | None: ...

    @property
    def digest(self) -> str: ...

    @property
    def description(self) -> str: ...

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        """σ of every input, with a relative error of at most 1e-11 from the function the envelope was proved for.

        inputs: (m, *input_shape) float32. Returns (m,) float64. Each value depends on its own input only, to the bit.
        """

    def to_json(self) -> Mapping[str, Any]:
        """The parameters, for the manifest."""
