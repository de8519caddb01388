"""Training data in the order a seed gives, as tensors on the device that computes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smoothcert.data import Dataset
from smoothcert.errors import DataError
from smoothcert.records import FloatArray, IntArray

PRELOAD_BYTES = 2 * 2**30
"""Data up to this size is held as one tensor on the device; larger data is read batch by batch."""

_CHUNK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Inputs of a dataset on the device that computes: their indices (B,), inputs (B, *input_shape), labels (B,)."""

    indices: Tensor
    inputs: Tensor
    labels: Tensor


class Batches:
    """Batches of one dataset. The order of an epoch is a pure function of (seed, epoch).

    kept_back: (k,) indices that are never given out.
    """

    def __init__(
        self, dataset: Dataset, *, batch: int, seed: int, device: torch.device, kept_back: IntArray | None = None
    ) -> None:
        if int(dataset.labels.min()) < 0 or int(dataset.labels.max()) >= dataset.num_classes:
            raise DataError(
                f"{dataset.name} has inputs without a label in 0 … {dataset.num_classes - 1}; training needs one each"
            )
        every = np.arange(len(dataset))
        self._used = torch.from_numpy(every if kept_back is None else np.setdiff1d(every, kept_back))
        if len(self._used) < 2:
            raise DataError(
                f"{dataset.name} has {len(self._used)} inputs in split {dataset.split} to learn from; "
                "training needs at least 2"
            )
        self._dataset = dataset
        self._batch = batch
        self._seed = seed
        self._device = device
        self._labels = torch.from_numpy(np.array(dataset.labels, dtype=np.int64)).to(device)
        size = 4 * len(dataset) * math.prod(dataset.input_shape)
        self._inputs = self._read(slice(None)) if size <= PRELOAD_BYTES else None

    def __len__(self) -> int:
        """Batches in an epoch; the last may be smaller."""
        return -(-len(self._used) // self._batch)

    @property
    def inputs(self) -> int:
        """Inputs in an epoch."""
        return len(self._used)

    def epoch(self, epoch: int, *, first: int = 0) -> Iterator[Rows]:
        """The batches `first`, first+1, … of that epoch."""
        order = torch.randperm(len(self._used), generator=seeded_generator(self._seed, "order", epoch))
        for chosen in torch.split(self._used[order], self._batch)[first:]:
            there = chosen.to(self._device)
            inputs = self._read(chosen.numpy()) if self._inputs is None else self._inputs[there]
            yield Rows(indices=there, inputs=inputs, labels=self._labels[there])

    def _read(self, indices: slice | np.ndarray[tuple[int], np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(np.array(self._dataset.inputs(indices), dtype=np.float32)).to(self._device)


def as_levels(sigmas: FloatArray, device: torch.device) -> Tensor:
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
