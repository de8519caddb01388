"""Accuracy of a network under noise."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from smoothcert.data import Dataset
from smoothcert.models.torch_classifier import tensor_votes
from smoothcert.records import FloatArray, IntArray, Noise
from smoothcert.training.batches import as_levels, read_inputs, seeded_generator
from smoothcert.training.input_splitting import Splitting
from smoothcert.training.modules import evaluation_mode
from smoothcert.training.noisy_inputs import add_batch_noise
from smoothcert.training.objective import Batch

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
    splitting: Splitting | None = None,
) -> float:
    """Fraction of inputs classified correctly, each with one draw of noise.

    sigma: noise level, one number or (len(dataset),). among: indices of the inputs; None: all. splitting: how inputs
    are split, if that is the noise; None for the defaults.
    """
    indices = np.arange(len(dataset)) if among is None else among
    generator = seeded_generator(seed, "evaluation", device=device)
    correct = 0
    with evaluation_mode(module), torch.inference_mode():
        for start in range(0, len(indices), _BATCH):
            chosen = indices[start : start + _BATCH]
            batch = Batch(
                inputs=read_inputs(dataset, chosen, device),
                labels=torch.from_numpy(dataset.labels[chosen]),
                sigma=as_levels(sigma[chosen], device) if isinstance(sigma, np.ndarray) else sigma,
                noise=noise,
                splitting=splitting or Splitting(),
            )
            votes = tensor_votes(module(add_batch_noise(batch, generator))).cpu()
            correct += int((votes == batch.labels).sum())
    return correct / len(indices)
