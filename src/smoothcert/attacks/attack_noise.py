"""The noise that an attack adds to its points: fixed, or fresh in each evaluation; in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from smoothcert.noise import additive_law_of
from smoothcert.records import Noise


class NoiseSource(Protocol):
    """Unit noise for a batch. Targets multiply it by sigma and add it to the points."""

    def chunks(self, points: Tensor, /) -> Iterator[Tensor]:
        """Chunks (k, B, *shape) with dtype and device of `points` (B, *shape): all draws of one evaluation."""


@dataclass(frozen=True, slots=True, eq=False)
class FixedNoise:
    """The same noise in each evaluation, so that the loss is a smooth function of the point (SmoothAdv training).

    noises: (m, B, *shape). at_once: draws per chunk; None puts all in one.
    """

    noises: Tensor
    at_once: int | None = None

    def chunks(self, points: Tensor, /) -> Iterator[Tensor]:
        yield from torch.split(self.noises, self.at_once or len(self.noises))


@dataclass(frozen=True, slots=True, eq=False)
class FreshNoise:
    """New noise in each evaluation, from a generator on the device of the points.

    at_once: draws per chunk; None puts all in one. On the CPU the noise does not depend on it.
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
    return additive_law_of(kind).draw_with_generator(like, generator)
