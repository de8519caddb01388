"""What the checker must know of every kind of noise, whatever the base classifier sees of an input under it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.noise_streams import Stream

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]


class NoisyInput(Protocol):
    """The noisy copies of one input that the base classifier was asked about."""

    def copies(self, stream: Stream, start: int, count: int) -> Floats:
        """Samples start … start+count-1: (count, d) float32."""

    def pairs(self, stream: Stream, start: int, count: int) -> tuple[Floats, Floats]:
        """Both noisy copies of each draw: at x+ε and at x-ε."""

    def normals(self, stream: Stream, start: int, count: int) -> NDArray[np.float64]:
        """The noise itself at level 1, as it is added up for gradients: (count, d) float64."""


@dataclass(frozen=True, slots=True)
class NoiseForm(ABC):
    """norm: of the certified balls."""

    name: str
    norm: str

    @property
    def is_sampled(self) -> bool:
        """Whether votes are samples of all that there are. If not, every evaluation is made, and nothing costs α."""
        return True

    @abstractmethod
    def has_room(self, *, sigma: float, levels: int) -> bool:
        """Whether this level is possible on a grid of inputs."""

    def count_evaluations(self, *, sigma: float, levels: int) -> int | None:
        """How many evaluations of an input there are; None if they are sampled."""
        return None

    @abstractmethod
    def copies_on_grid(self, x: Floats, *, sigma: float, levels: int) -> NoisyInput:
        """What the base classifier sees of an input that must lie on the grid; a ValueError if it does not."""


def read_places(x: Floats, levels: int) -> Whole:
    """The whole numbers k of an input k/(L-1) on a grid of L levels; a ValueError if it is not on it."""
    k: Whole = np.rint(x.astype(np.float64) * (levels - 1)).astype(np.int64)
    if not np.array_equal(divide_places(k, levels - 1), x):
        raise ValueError(f"the input is not on a grid of {levels} levels")
    return k


def round_to_grid(x: Floats, levels: int) -> Floats:
    """The nearest input on the grid, halves to even."""
    return divide_places(np.rint(x.astype(np.float64) * (levels - 1)).astype(np.int64), levels - 1)


def divide_places(places: Whole, steps: int) -> Floats:
    """places/steps in float32, rounded once; places are less than 2^24."""
    return np.asarray(places.astype(np.float32) / np.float32(steps), dtype=np.float32)
