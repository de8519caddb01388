"""Training data in the order a seed gives, as tensors on the device that computes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from smoothcert.data.base import Dataset
from smoothcert.errors import DataError
from smoothcert.records import FloatArray
from smoothcert.training.objective import Batch

PRELOAD_BYTES = 2 * 2**30
"""Data up to this size is held as one tensor on the device; larger data is read batch by batch."""

_CHUNK = 1024


class Batches:
    """Batches of one dataset. The order of an epoch is a pure function of (seed, epoch).

    sigma: noise level of all inputs, or (len(dataset),) with one for each.
    """

    def __init__(
        self, dataset: Dataset, *, batch: int, seed: int, device: torch.device, sigma: float | FloatArray
    ) -> None:
        if len(dataset) < 2:
            raise DataError(
                f"{dataset.name} has {len(dataset)} inputs in split {dataset.split}; training needs at least 2"
            )
        if int(dataset.labels.min()) < 0 or int(dataset.labels.max()) >= dataset.num_classes:
            raise DataError(
                f"{dataset.name} has inputs without a label in 0 … {dataset.num_classes - 1}; training needs one each"
            )
        self._dataset = dataset
        self._batch = batch
        self._seed = seed
        self._device = device
        self._labels = torch.from_numpy(np.array(dataset.labels, dtype=np.int64)).to(device)
        self._sigma = noise_levels(sigma, device) if isinstance(sigma, np.ndarray) else sigma
        size = 4 * len(dataset) * math.prod(dataset.input_shape)
        self._inputs = self._read(slice(None)) if size <= PRELOAD_BYTES else None

    def __len__(self) -> int:
        """Batches in an epoch; the last may be smaller."""
        return -(-len(self._dataset) // self._batch)

    def epoch(self, epoch: int, *, first: int = 0) -> Iterator[Batch]:
        """The batches `first`, first+1, … of that epoch."""
        order = torch.randperm(len(self._dataset), generator=seeded_generator(self._seed, "order", epoch))
        for chosen in torch.split(order, self._batch)[first:]:
            there = chosen.to(self._device)
            sigma = self._sigma[there] if isinstance(self._sigma, Tensor) else self._sigma
            yield Batch(inputs=self._rows(chosen), labels=self._labels[there], sigma=sigma)

    def _rows(self, chosen: Tensor) -> Tensor:
        return self._read(chosen.numpy()) if self._inputs is None else self._inputs[chosen.to(self._device)]

    def _read(self, indices: slice | np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(np.array(self._dataset.inputs(indices), dtype=np.float32)).to(self._device)


def noise_levels(sigmas: FloatArray, device: torch.device) -> Tensor:
    """The levels as noise is multiplied with them: float32 on the device."""
    return torch.from_numpy(sigmas.astype(np.float32)).to(device)


def seeded_generator(
    seed: int, purpose: str, number: int = 0, *, device: torch.device | None = None
) -> torch.Generator:
    """A generator of its own for each (seed, purpose, number)."""
    text = hashlib.sha256(f"{seed} {purpose} {number}".encode()).digest()
    generator = torch.Generator(device=device if device is not None else "cpu")
    return generator.manual_seed(int.from_bytes(text[:8], "little") >> 1)


def channel_statistics(dataset: Dataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) per channel of (C, H, W) inputs, over all values otherwise; a constant channel gets std 1."""
    per_channel = len(dataset.input_shape) == 3
    total: np.ndarray[tuple[int], np.dtype[np.float64]] = np.zeros(dataset.input_shape[0] if per_channel else 1)
    squares, count = total.copy(), 0
    for start in range(0, len(dataset), _CHUNK):
        block = np.asarray(dataset.inputs(slice(start, start + _CHUNK)), dtype=np.float64)
        values = np.moveaxis(block, 1, 0).reshape(block.shape[1], -1) if per_channel else block.reshape(1, -1)
        total += values.sum(axis=1)
        squares += np.square(values).sum(axis=1)
        count += values.shape[1]
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
    deviation[deviation < 1e-6] = 1.0
    return tuple(mean.tolist()), tuple(deviation.tolist())
