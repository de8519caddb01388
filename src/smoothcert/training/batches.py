"""Batches of training data in a seeded order, as tensors on the device of the network."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.data import Dataset
from smoothcert.errors import DataError
from smoothcert.records import FloatArray, IntArray

PRELOAD_BYTES = 2 * 2**30
"""Data up to this size is loaded as one tensor; larger data is read batch by batch."""

_CHUNK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A batch of a dataset.

    indices: (B,). inputs: (B, *input_shape). labels: (B,). targets, radii: (B, classes), as in `Batch`, or None.
    """

    indices: Tensor
    inputs: Tensor
    labels: Tensor
    targets: Tensor | None = None
    radii: Tensor | None = None


class Batches:
    """Batches of one dataset. The order of an epoch is a pure function of (seed, epoch).

    The last batch may be smaller. A single input that is left over joins the batch before it: it has no batch
    statistics of its own, and layers such as BatchNorm1d refuse it.
    held_back: (k,) indices that are excluded.
    """

    def __init__(
        self, dataset: Dataset, *, batch: int, seed: int, device: torch.device, held_back: IntArray | None = None
    ) -> None:
        if int(dataset.labels.min()) < 0 or int(dataset.labels.max()) >= dataset.num_classes:
            raise DataError(
                f"{dataset.name} has inputs without a label in 0 … {dataset.num_classes - 1}; "
                "training needs a label for every input"
            )
        every = np.arange(len(dataset))
        self._used = torch.from_numpy(every if held_back is None else np.setdiff1d(every, held_back))
        if len(self._used) < 2:
            raise DataError(
                f"{dataset.name} has {len(self._used)} inputs in split {dataset.split} to train on; "
                "training needs at least 2"
            )
        self._dataset = dataset
        self._batch = batch
        self._seed = seed
        self._device = device
        self._labels = torch.from_numpy(np.array(dataset.labels, dtype=np.int64)).to(device)
        self._targets, self._radii = (
            None if values is None else torch.from_numpy(values).to(device)
            for values in (find_targets(dataset), getattr(dataset, "radii", None))
        )
        size = 4 * len(dataset) * math.prod(dataset.input_shape)
        self._inputs = self._read(slice(None)) if size <= PRELOAD_BYTES else None

    def __len__(self) -> int:
        """Number of batches per epoch."""
        full, left = divmod(len(self._used), self._batch)
        return full + (left > 1)

    @property
    def inputs(self) -> int:
        """Number of inputs per epoch."""
        return len(self._used)

    def epoch(self, epoch: int, *, first: int = 0) -> Iterator[Rows]:
        """Yield the batches of an epoch, starting with number `first`."""
        order = torch.randperm(len(self._used), generator=seeded_generator(self._seed, "order", epoch))
        sizes = [self._batch] * (len(self) - 1)
        for chosen in torch.split(self._used[order], [*sizes, len(order) - sum(sizes)])[first:]:
            indices = chosen.to(self._device)
            inputs = self._read(chosen.numpy()) if self._inputs is None else self._inputs[indices]
            targets, radii = (None if each is None else each[indices] for each in (self._targets, self._radii))
            yield Rows(indices=indices, inputs=inputs, labels=self._labels[indices], targets=targets, radii=radii)

    def _read(self, indices: slice | IntArray) -> Tensor:
        return read_inputs(self._dataset, indices, self._device)


def find_targets(dataset: Dataset) -> NDArray[np.float32] | None:
    """(len(dataset), classes): a distribution over the classes for each input; None if the dataset has labels only."""
    targets: NDArray[np.float32] | None = getattr(dataset, "targets", None)
    return targets


def read_inputs(dataset: Dataset, indices: slice | IntArray, device: torch.device) -> Tensor:
    """Read inputs as a float32 tensor on the device."""
    return torch.from_numpy(np.array(dataset.inputs(indices), dtype=np.float32)).to(device)


def as_levels(sigmas: FloatArray, device: torch.device) -> Tensor:
    """Noise levels as a float32 tensor on the device."""
    return torch.from_numpy(sigmas.astype(np.float32)).to(device)


def seeded_generator(
    seed: int, purpose: str, number: int = 0, *, device: torch.device | None = None
) -> torch.Generator:
    """An independent generator for each (seed, purpose, number)."""
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
