"""The interface between the training loop and an objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from smoothcert.noise import AdditiveLaw, law_of
from smoothcert.records import Noise
from smoothcert.training.input_splitting import Splitting

ADDED_NOISES = frozenset(noise for noise in Noise if isinstance(law_of(noise), AdditiveLaw))
"""The noises of formulas and attacks that need x + noise. Others give noisy copies of x, and nothing else."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The data of one step, on the device of the network.

    inputs: (B, *input_shape) float32, clean. labels: (B,) int64. sigma: the noise level, one number or (B,) float32.
    noise: kind of noise. progress: the fraction of the training that is done, in [0, 1). targets: (B, classes) float32,
    a distribution over the classes for each input, of data where several classes are right; None for labels alone.
    splitting: how inputs are split, if that is the noise; sigma is then one number.
    radii: (B, classes) float32, of a selector: the radius that each level would give; None for other data.
    """

    inputs: Tensor
    labels: Tensor
    sigma: float | Tensor
    noise: Noise = Noise.GAUSSIAN
    progress: float = 0.0
    targets: Tensor | None = None
    radii: Tensor | None = None
    splitting: Splitting = field(default_factory=Splitting)

    @property
    def wanted(self) -> Tensor:
        """What cross-entropy is taken with: the targets if there are any, else the labels."""
        return self.labels if self.targets is None else self.targets


class Objective(Protocol):
    """Computes the loss of a batch.

    An objective is a frozen dataclass of numbers and words without state. Its fields are its settings on the command
    line (`name:setting=value,…`), and a training is resumed only with equal settings.

    name: on the command line. noises_allowed: the kinds of noise that its formula is valid for. An objective may also
    have `aliases`, a tuple of further names, and `uses_targets`, True if it minimises the cross-entropy with
    `Batch.wanted`. Without it, a training with targets is refused.
    """

    name: ClassVar[str]
    noises_allowed: ClassVar[frozenset[Noise]]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def terms(self, module: nn.Module, batch: Batch, generator: torch.Generator, /) -> Mapping[str, Tensor]:
        """The scalar terms of the loss by name, each a mean over the batch. Their sum is minimised.

        All randomness comes from `generator`, on the device of the inputs. The module is in training mode before and
        after the call.
        """
