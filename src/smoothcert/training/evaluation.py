"""Accuracy of a network under noise: what its votes will be worth."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from smoothcert.data import Dataset
from smoothcert.models.torch_classifier import tensor_votes
from smoothcert.records import FloatArray, IntArray, Noise
from smoothcert.training.batches import as_levels, seeded_generator
from smoothcert.training.module_modes import evaluating
from smoothcert.training.noisy_inputs import with_noise

_BATCH = 500


def noisy_accuracy(
    module: nn.Module,
    dataset: Dataset,
    *,
    noise: Noise = Noise.GAUSSIAN,
    sigma: float | FloatArray,
    seed: int,
    device: torch.device,
    among: IntArray | None = None,
) -> float:
    """Fraction of inputs classified rightly, each under one noise of level sigma.

    sigma: of all inputs, or (len(dataset),) with one for each. among: the indices of the inputs; None takes all.
    """
    indices = np.arange(len(dataset)) if among is None else among
    generator = seeded_generator(seed, "evaluation", device=device)
    correct = 0
    with evaluating(module), torch.inference_mode():
        for start in range(0, len(indices), _BATCH):
            chosen = indices[start : start + _BATCH]
            inputs = torch.from_numpy(np.array(dataset.inputs(chosen), dtype=np.float32)).to(device)
            level = as_levels(sigma[chosen], device) if isinstance(sigma, np.ndarray) else sigma
            votes = tensor_votes(module(with_noise(noise, inputs, sigma=level, generator=generator)))
            correct += int((votes.cpu().numpy() == dataset.labels[chosen]).sum())
    return correct / len(indices)
