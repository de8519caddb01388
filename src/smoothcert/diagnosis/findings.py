"""What a diagnosis finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. detail: what was compared, or what is wrong."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Speed:
    """Samples per second of one network. bare: forward passes alone, on inputs that are there already."""

    network: str
    batch: int
    bare: float
    sampling: float

    @property
    def share(self) -> float:
        """Sampling ÷ bare forward pass."""
        return self.sampling / self.bare
