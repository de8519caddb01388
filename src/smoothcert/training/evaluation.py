"""Accuracy of a network under Gaussian noise: what its votes will be worth."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from smoothcert.data.base import Dataset
from smoothcert.models.torch_classifier import tensor_votes
from smoothcert.training.batches import seeded_generator
from smoothcert.training.gaussian import with_noise

_BATCH = 500


def noisy_accuracy(
    module: nn.Module, dataset: Dataset, *, sigma: float, seed: int, device: torch.device, most: int | None = None
) -> float:
    """Fraction of inputs classified rightly, each under one noise of level sigma.

    most: at most this many inputs, evenly spread over the dataset; None takes all.
    """
    count = len(dataset) if most is None else min(most, len(dataset))
    indices = np.linspace(0, len(dataset) - 1, count).astype(np.int64)
    generator = seeded_generator(seed, "evaluation", device=device)
    was_training = module.training
    module.eval()
    correct = 0
    with torch.inference_mode():
        for start in range(0, count, _BATCH):
            chosen = indices[start : start + _BATCH]
            inputs = torch.from_numpy(np.array(dataset.inputs(chosen), dtype=np.float32)).to(device)
            votes = tensor_votes(module(with_noise(inputs, sigma=sigma, generator=generator)))
            correct += int((votes.cpu().numpy() == dataset.labels[chosen]).sum())
    module.train(was_training)
    return correct / count
