"""The noise a smoothed classifier is attacked through: always the same, or fresh at every look; in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from smoothcert.noise import law_of
from smoothcert.records import Noise


class Noises(Protocol):
    """Unit noise for a batch: multiplied by sigma and added to the points."""

    def chunks(self, points: Tensor, /) -> Iterator[Tensor]:
        """Chunks (k, B, *shape), like `points` (B, *shape) in dtype and device; together all draws of one look."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedNoise:
    """The same noises at every look, so that the loss is a smooth function of the point (SmoothAdv's training).

    noises: (m, B, *shape). at_once: draws in a chunk; None takes all.
    """

    noises: Tensor
    at_once: int | None = None

    def chunks(self, points: Tensor, /) -> Iterator[Tensor]:
        yield from torch.split(self.noises, self.at_once or len(self.noises))


@dataclass(frozen=True, slots=True, eq=False)
class FreshNoise:
    """New noises at every look, from `generator`, which lies on the device of the points.

    The noises do not depend on `at_once`, the draws in a chunk (None takes all), on the processor.
    """

    kind: Noise
    draws: int
    generator: torch.Generator
    at_once: int | None = None

    def chunks(self, points: Tensor, /) -> Iterator[Tensor]:
        step = self.at_once or self.draws
        for at in range(0, self.draws, step):
            count = min(step, self.draws - at)
            yield torch.stack([unit_noise(self.kind, points, generator=self.generator) for _ in range(count)])


def unit_noise(kind: Noise, like: Tensor, *, generator: torch.Generator) -> Tensor:
    """Independent noise of level 1, of the shape, dtype and device of `like`."""
    return law_of(kind).draw_with_generator(like, generator)
