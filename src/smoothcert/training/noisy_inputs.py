"""Noisy copies for training and evaluation, and their scores.

Noise comes from torch generators, which are fast. Certification uses the counter-based streams instead. Inputs that are
split have no other copies than those of certification: a generator chooses among them.
"""

from __future__ import annotations

import math
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.attacks.attack_noise import unit_noise
from smoothcert.attacks.geometry import per_row
from smoothcert.models.devices import off_mps
from smoothcert.records import Noise
from smoothcert.training.objective import Batch

_LEAST_SHARE = 1e-7
"""Mean scores are clamped to at least this before Φ⁻¹: single precision resolves nothing beyond ±5.2."""


def draw_copies(batch: Batch, count: int, generator: torch.Generator) -> Tensor:
    """`count` independent copies of each input under its noise: (count, B, *input_shape). For any noise."""
    match batch.noise:
        case Noise.GAUSSIAN | Noise.UNIFORM:
            return draw_noises(batch, count, generator).add_(batch.inputs)
        case Noise.SPLITTING:
            assert not isinstance(batch.sigma, Tensor)
            return batch.splitting.draw_copies(batch.inputs, count, level=batch.sigma, generator=generator)
        case _:
            assert_never(batch.noise)


def add_batch_noise(batch: Batch, generator: torch.Generator) -> Tensor:
    """One copy of each input under its noise: (B, *input_shape). The inputs themselves if sigma is the number 0."""
    if not isinstance(batch.sigma, Tensor) and batch.sigma == 0:
        return batch.inputs
    return draw_copies(batch, 1, generator).squeeze(0)


def draw_noises(batch: Batch, count: int, generator: torch.Generator) -> Tensor:
    """`count` independent noises per input, at its level: (count, B, *input_shape). For noise that is added."""
    return draw_unit_noises(batch.noise, batch.inputs, count, generator).mul_(per_row(batch.sigma, batch.inputs))


def draw_unit_noises(noise: Noise, inputs: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` independent noises of level 1 per input: (count, B, *input_shape)."""
    return unit_noise(noise, inputs.unsqueeze(0).expand(count, *inputs.shape), generator=generator)


def logits_of_copies(module: nn.Module, copies: Tensor) -> Tensor:
    """Logits of m copies of B inputs, (m, B, *input_shape), in one forward pass: (m, B, classes)."""
    logits: Tensor = module(copies.flatten(0, 1))
    return logits.view(*copies.shape[:2], -1)


def mean_log_softmax(logits: Tensor, *, beta: float = 1.0) -> Tensor:
    """log of the mean over copies of softmax(beta · logits). logits: (m, B, classes). Returns (B, classes), ≤ 0."""
    return (beta * logits).log_softmax(dim=2).logsumexp(dim=0) - math.log(len(logits))


def cross_entropy_of_copies(logits: Tensor, wanted: Tensor) -> Tensor:
    """Mean over copies and inputs. logits: (m, B, classes). wanted: labels (B,), or targets (B, classes)."""
    copies = wanted.unsqueeze(0).expand(len(logits), *wanted.shape)
    return functional.cross_entropy(logits.flatten(0, 1), copies.flatten(0, 1))


def soft_quantile(share: Tensor) -> Tensor:
    """Φ⁻¹ of mean scores, of any shape, between -5.2 and 5.2."""
    quantile: Tensor = torch.special.ndtri(off_mps(share.clamp(_LEAST_SHARE, 1.0 - _LEAST_SHARE)))
    return quantile.to(share.device)
