"""Votes of the user's object, one row at a time, on the noisy copies that smoothcert drew."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adversarial_models import SHAPE, SIZE, Case
from smoothcert.noise import add_noise
from smoothcert.records import CertifiedPoint, Noise, Stage, StreamId

SIGMA, SEED = 0.5, 2026
Mode = Callable[[], contextlib.AbstractContextManager[Any]]


def images() -> np.ndarray:
    """(3, 1, 8, 8) float32 in [0, 1]: nearly black, dark, and uneven. Not on a grid, so noise is float noise."""
    crooked = np.modf(np.arange(SIZE) * np.sqrt(2.0))[0]
    rows = [3e-4 * crooked, 0.1234 + 1e-3 * crooked, 0.05 + 0.2 * crooked**2]
    return np.stack(rows).astype(np.float32).reshape(len(rows), *SHAPE)


def noisy_copies(x: np.ndarray, index: int, stage: Stage, *, count: int, sigma: float = SIGMA) -> np.ndarray:
    """Samples 0 … count-1 of a stream around x, drawn again: (count, *x.shape) float32."""
    out = np.empty((count, x.size), dtype=np.float32)
    add_noise(Noise.GAUSSIAN, out, x.reshape(-1), StreamId(SEED, index, stage), sigma=sigma, start=0)
    return out.reshape(count, *x.shape)


@dataclass(frozen=True)
class Answers:
    """votes: (rows,), num_classes for a row without a finite answer. margin: how far the winner is ahead, as a share of
    the largest logit; infinite where the model answers with labels.
    """

    votes: np.ndarray
    margin: np.ndarray


def answers_of(model: Any, rows: np.ndarray, mode: Mode = torch.inference_mode) -> Answers:
    """The answers of the user's object to each row alone."""
    ask = _asking(model)
    with mode():
        given = [np.asarray(ask(row[None].copy()))[0] for row in rows]
    if given[0].ndim == 0:
        return Answers(np.array(given, dtype=np.int64), np.full(len(rows), np.inf))
    logits = np.array(given, dtype=np.float64)
    ordered = np.sort(np.nan_to_num(logits), axis=1)
    finite = np.isfinite(logits.max(axis=1))
    scale = np.maximum(np.abs(ordered).max(axis=1), 1e-30)
    margin = np.where(finite, (ordered[:, -1] - ordered[:, -2]) / scale, np.inf)
    return Answers(np.where(finite, logits.argmax(axis=1), logits.shape[1]), margin)


def _asking(model: Any) -> Callable[[np.ndarray], Any]:
    if isinstance(model, nn.Module):
        return _asking_module(model)
    if isinstance(model, Path):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        return lambda batch: session.run(None, {session.get_inputs()[0].name: batch})[0]
    if hasattr(model, "predict"):
        return lambda batch: model.predict(batch.reshape(len(batch), -1))
    return model


def _asking_module(module: nn.Module) -> Callable[[np.ndarray], Any]:
    """Call the module with float32, or in the precision of its first weights if it rejects float32."""

    def ask(batch: np.ndarray) -> Any:
        with evaluating(module):
            try:
                logits = module(torch.from_numpy(batch.copy()))
            except RuntimeError:
                logits = module(torch.from_numpy(batch.copy()).to(_own_dtype(module)))
        return logits.detach().to(torch.float64).numpy()

    return ask


def _own_dtype(module: nn.Module) -> torch.dtype:
    return next(parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode; the user's flags are restored."""
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, flag in flags:
            part.training = flag


def counted(point: CertifiedPoint, stage: Stage) -> np.ndarray:
    """(num_classes + 1,): the votes of a stage; the last entry counts answers that are not finite."""
    tallies = [tally for tally in point.tallies if tally.stream.stage is stage]
    return np.sum([[*tally.counts, tally.invalid] for tally in tallies], axis=0)


@dataclass(frozen=True)
class Comparison:
    """Counted votes and those of the user's object. differences: described, without ties within rounding."""

    differences: tuple[str, ...]
    classes: int
    tied_share: float

    @property
    def could_fail(self) -> bool:
        """Whether there are votes for both classes, and few ties."""
        return self.classes > 1 and self.tied_share < 0.25


def compared(
    model: Any, case: Case, points: Sequence[CertifiedPoint], inputs: np.ndarray, *, n0: int, n: int
) -> Comparison:
    """Compare in the mode that agrees best, if several modes are correct."""
    by_mode = [_compared(model, case.tolerance, mode, points, inputs, n0=n0, n=n) for mode in case.modes]
    return min(by_mode, key=lambda comparison: len(comparison.differences))


def _compared(
    model: Any, tolerance: float, mode: Mode, points: Sequence[CertifiedPoint], inputs: np.ndarray, *, n0: int, n: int
) -> Comparison:
    found, totals, ties = [], 0, 0
    for point, x in zip(points, inputs, strict=True):
        for stage, count in ((Stage.SELECTION, n0), (Stage.ESTIMATION, n)):
            votes = counted(point, stage)
            assert votes.sum() == count
            own = answers_of(model, noisy_copies(x, point.index, stage, count=count), mode)
            expected = np.bincount(own.votes, minlength=len(votes))
            changed, tied = int(np.abs(votes - expected).sum()) // 2, int((own.margin <= tolerance).sum())
            if changed > tied:
                found.append(
                    f"input {point.index}, {stage.name}: {votes.tolist()} were counted, and the model votes "
                    f"{expected.tolist()} ({tied} ties)"
                )
            totals, ties = totals + expected, ties + tied
    return Comparison(tuple(found), int(np.count_nonzero(totals)), ties / int(np.sum(totals)))


def state_of(model: Any) -> dict[str, Any]:
    """Flags, precisions and gradients of a module, which must not change. Empty for other objects."""
    if not isinstance(model, nn.Module):
        return {}
    tensors: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "training": [part.training for part in model.modules()],
        "tensors": {name: (tensor.dtype, tensor.requires_grad) for name, tensor in tensors.items()},
    }
