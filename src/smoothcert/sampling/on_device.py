"""Sampling on an accelerator: noise, votes and counts stay there until the shard is done."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from smoothcert.errors import ModelError
from smoothcert.models.base import DeviceClassifier
from smoothcert.noise.gaussian import noise_level, split_seed
from smoothcert.noise.with_torch import standard_normals
from smoothcert.records import InputArray, IntArray
from smoothcert.sampling.plan import Request, Slice


class DeviceVoteCounter:
    """Counts in a tensor on the device; one synchronisation when the counts are read."""

    def __init__(self, classifier: DeviceClassifier, inputs: InputArray, requests: Sequence[Request]) -> None:
        self._classifier = classifier
        self._requests = requests
        self._shape = inputs.shape[1:]
        self._inputs = torch.from_numpy(inputs).to(classifier.device).reshape(len(inputs), -1)
        self._columns = classifier.num_classes + 1
        self._counts = torch.zeros(len(requests) * self._columns, dtype=torch.int64, device=classifier.device)
        # A vote outside the announced classes must not land in a neighbour's count; it is remembered and reported.
        self._strays = torch.zeros((), dtype=torch.int64, device=classifier.device)

    def add(self, slices: Sequence[Slice]) -> None:
        with torch.inference_mode():
            noisy = torch.cat([self._noisy(piece) for piece in slices]).reshape(-1, *self._shape)
            votes = self._classifier.classify_tensor(noisy)
            if votes.shape != (slices[-1].last_row,):
                raise ModelError(
                    f"the model returned votes of shape {tuple(votes.shape)} for {slices[-1].last_row} inputs"
                )
            stray = (votes < 0) | (votes >= self._columns)
            self._strays += stray.sum()
            offsets = torch.cat([torch.full((p.last_row - p.first_row,), p.request * self._columns) for p in slices])
            cells = votes.clamp(0, self._columns - 1) + offsets.to(votes.device)
            self._counts.index_add_(0, cells, torch.ones_like(cells))

    def _noisy(self, piece: Slice) -> torch.Tensor:
        request = self._requests[piece.request]
        normals = standard_normals(
            key=split_seed(request.stream.seed),
            index=request.stream.index,
            stage=int(request.stream.stage),
            start=piece.counter,
            count=piece.last_row - piece.first_row,
            size=self._inputs.shape[1],
            device=self._inputs.device,
        )
        return self._inputs[request.row] + float(noise_level(request.sigma)) * normals

    def counts(self) -> IntArray:
        if int(self._strays) > 0:
            raise ModelError(f"the model voted {int(self._strays)} times for a class outside 0 … {self._columns - 2}")
        counts: IntArray = self._counts.reshape(-1, self._columns).cpu().numpy().astype(np.int64)
        return counts
