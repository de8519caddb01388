"""Shift the outputs of a trained selector so that the radii it gives are largest, on inputs it was not trained on.

A training follows a smooth stand-in for what counts, the mean of min over k of max(E_k, R_k)
(docs/explanation/certificates/selected-sigma.md). With one number added to each output, little is left to choose, so
the mean itself can be maximised. A shift that is large enough always chooses the same level: on these inputs no level
alone is better than the result.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.data import Dataset
from smoothcert.errors import InterruptedRunError
from smoothcert.records import FloatArray, IntArray
from smoothcert.training.batches import read_inputs, seeded_generator
from smoothcert.training.modules import evaluation_mode
from smoothcert.training.selector_report import estimate_exclusions

Logits = NDArray[np.float32]

LEAST_BALANCED = 100
"""With fewer inputs, shifts would fit these inputs and not others."""
MOST_BALANCED, SAMPLES_BALANCED = 1000, 500
"""At most this many inputs, and how often each is sampled."""
_SHARES = np.linspace(0.0, 1.0, 41)
_MOST_ROUNDS = 8
_INPUTS_COMPARED = 8


@dataclass(frozen=True, slots=True)
class Balance:
    """shifts: (K,), what is added to the outputs. before, after: mean estimated radius without and with them."""

    shifts: tuple[float, ...]
    before: float
    after: float


def balance_outputs(logits: Logits, radii: FloatArray, *, sigma: float) -> Balance:
    """The shifts with the largest mean radius, found by changing one output at a time until none is improved.

    logits: (m, n, K), finite, of n noisy copies of m inputs; radii: (m, K), of each level alone. sigma: of the
    selector.
    """
    levels = range(logits.shape[2])
    shifts = np.zeros(len(levels), dtype=np.float32)
    before = after = _mean_radius(logits, radii, sigma=sigma)
    for _ in range(_MOST_ROUNDS):
        tried = [other for level in levels for other in _list_candidates(logits, shifts, level)]
        means = [_mean_radius(logits + other, radii, sigma=sigma) for other in tried]
        best = int(np.argmax(means))
        if means[best] <= after:
            break
        shifts, after = tried[best], means[best]
    return Balance(tuple(float(shift) for shift in shifts - shifts.max()), before, after)


def _list_candidates(logits: Logits, shifts: Logits, level: int) -> Iterator[Logits]:
    """Other shifts of one output, with which it is the largest one of some shares of the copies, from none to all."""
    shifted = logits + shifts
    lacking = np.delete(shifted, level, axis=2).max(axis=2) - shifted[:, :, level]
    for further in np.quantile(lacking, _SHARES) + np.linspace(-1.0, 1.0, len(_SHARES)):
        other = shifts.copy()
        other[level] += np.float32(further)
        yield other


def _mean_radius(logits: Logits, radii: FloatArray, *, sigma: float) -> float:
    chosen = logits.argmax(axis=2)
    votes: IntArray = np.stack([(chosen == level).sum(axis=1) for level in range(logits.shape[2])], axis=1)
    return float(np.maximum(estimate_exclusions(votes, sigma=sigma), radii).min(axis=1).mean())


def balance_selector(
    module: nn.Module,
    dataset: Dataset,
    radii: FloatArray,
    *,
    sigma: float,
    seed: int,
    device: torch.device,
    stop: threading.Event | None = None,
) -> Balance | None:
    """Balance the outputs of `module` in place, on the inputs of `dataset`, whose levels have these radii: (m, K).

    None, and nothing is changed, if no shift is better, or if no linear layer makes the outputs.
    """
    logits = sample_logits(module, dataset, sigma=sigma, n=SAMPLES_BALANCED, seed=seed, device=device, stop=stop)
    if not np.isfinite(logits).all():
        return None
    balance = balance_outputs(logits, radii, sigma=sigma)
    if balance.after <= balance.before:
        return None
    inputs = read_inputs(dataset, slice(0, _INPUTS_COMPARED), device)
    return balance if shift_outputs(module, balance.shifts, inputs=inputs) else None


def shift_outputs(module: nn.Module, shifts: Sequence[float], *, inputs: Tensor) -> bool:
    """Add the shifts to the bias of the last linear layer with so many outputs.

    False, and nothing is changed, if there is none, or if the outputs for `inputs` do not move by the shifts.
    """
    layers = [
        part
        for part in module.modules()
        if isinstance(part, nn.Linear) and part.out_features == len(shifts) and part.bias is not None
    ]
    if not layers:
        return False
    bias = layers[-1].bias
    with evaluation_mode(module), torch.no_grad():
        added = torch.tensor(shifts, dtype=bias.dtype, device=bias.device)
        before, old = module(inputs), bias.clone()
        bias.add_(added)
        if torch.allclose(module(inputs), before + added, rtol=1e-4, atol=1e-4):
            return True
        bias.copy_(old)
    return False


def sample_logits(
    module: nn.Module,
    dataset: Dataset,
    *,
    sigma: float,
    n: int,
    seed: int,
    device: torch.device,
    stop: threading.Event | None = None,
) -> Logits:
    """(len(dataset), n, K): logits of n noisy copies of each input."""
    generator = seeded_generator(seed, "balance", device=device)
    found = []
    with evaluation_mode(module), torch.inference_mode():
        for index in range(len(dataset)):
            if stop is not None and stop.is_set():
                raise InterruptedRunError("stopped while the outputs were balanced; resume with the same command")
            x = read_inputs(dataset, slice(index, index + 1), device)
            noise = torch.randn((n, *x.shape[1:]), generator=generator, device=device)
            found.append(module(x + sigma * noise).float().cpu().numpy())
    return np.stack(found)
