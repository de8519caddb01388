"""What every rule for the noise level offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from smoothcert.records import FloatArray, InputArray
from smoothcert.records.envelopes import Envelope


@runtime_checkable
class SigmaRule(Protocol):
    """A deterministic function σ(x) > 0 and what is proved about it.

    envelope: how far σ may move around an input; None where nothing is proved, and then nothing can be certified.
    digest: identifies the function, for the manifest. description: one line for people.
    """

    @property
    def envelope(self) -> Envelope | None: ...

    @property
    def digest(self) -> str: ...

    @property
    def description(self) -> str: ...

    def sigmas(self, inputs: InputArray, /) -> FloatArray:
        """σ of every input, within a relative error of 1e-11 of the function the envelope was proved for.

        inputs: (m, *input_shape) float32. Returns (m,) float64. What an input gets does not depend on the others in the
        batch, to the bit.
        """

    def to_json(self) -> Mapping[str, Any]:
        """Its parameters, for the manifest."""
