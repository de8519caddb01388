"""A torch module as the user gave it: the same object, precision and device, called with one row at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import BatchTooLargeError, InputError, ModelError, ModelMismatchError
from smoothcert.models.adapter import MODEL_FAILURES
from smoothcert.models.autocast_module import autocast_dtype_of
from smoothcert.models.devices import torch_threads
from smoothcert.models.original import FLOAT32_ROUNDING, Answer, Ask
from smoothcert.models.scores import ScoreRule
from smoothcert.models.votes import FloatingArray, check_logits_shape, votes_from_logits
from smoothcert.records import InputArray

_ROUNDING = {
    torch.float64: 1e-9,
    torch.float32: FLOAT32_ROUNDING,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""Relative rounding error of logits in a deep network, by the coarsest precision in it."""

_switching = threading.Lock()
"""Held while a module of the user is switched to evaluation mode."""


class TorchOriginal:
    """The user's module, called in evaluation mode and restored afterwards.

    input_dtype: what the module takes, see `accepted_dtype`. The classifier sets `scores_are`.
    """

    def __init__(self, module: nn.Module, *, num_classes: int, input_dtype: torch.dtype) -> None:
        self._module = module
        self._num_classes = num_classes
        self._input_dtype = input_dtype
        self._device = module_device(module)
        self.scores_are = ScoreRule.SOFTMAX
        self._coarsest = max((_ROUNDING.get(dtype, 0.0) for dtype in computing_dtypes(module)), default=0.0)
        self._mark = self._read_mark()
        self._known: tuple[InputArray, Tensor] | None = None

    def answer(self, row: InputArray, /) -> Answer:
        with self.asking(scores=True) as ask:
            return ask(row)

    @contextmanager
    def asking(self, *, scores: bool) -> Iterator[Ask]:
        """See `original.asking`: the module is switched to evaluation mode once."""
        check_no_autocast()
        with self._prepared():
            yield lambda row: self._answer(row, scores=scores)

    def _answer(self, row: InputArray, *, scores: bool) -> Answer:
        logits = self._compute(row[None])
        values = as_array(logits)
        own_scores = None
        if scores or self.scores_are is not ScoreRule.SOFTMAX:  # the other rules also check the outputs
            votes, (own_scores,) = self.scores_are.votes_and_scores(values)
        else:
            votes = votes_from_logits(values)
        return Answer(
            vote=int(votes[0]),
            logits=values[0].astype(np.float64),
            scores=own_scores,
            rounding=self.rounding_of(logits),
            last_place=torch.finfo(logits.dtype).eps,
        )

    def remember(self, batch: InputArray, logits: Tensor) -> None:
        """Store the logits of a batch, for `check_unchanged`."""
        self._known = batch, logits
        self._mark = self._read_mark()

    def check_unchanged(self) -> None:
        """ModelMismatchError if the stored logits changed. The module runs only if its tensors were modified."""
        if self._known is None or self._read_mark() == self._mark:
            return
        batch, logits = self._known
        if not logits_agree(logits, self.logits(batch), rounding=self.rounding_of(logits)):
            raise ModelMismatchError(
                f"the module {type(self._module).__name__} was changed after it was given, and what is sampled is a "
                "copy of it as it was then: make a new SmoothedClassifier for the module as it is now"
            )
        self._mark = self._read_mark()

    def _read_mark(self) -> list[tuple[int, int]]:
        """Identity of every tensor, and how often it was changed in place."""
        tensors = (*self._module.parameters(), *self._module.buffers())
        return [(id(tensor), int(getattr(tensor, "_version", 0))) for tensor in tensors]

    def rounding_of(self, logits: Tensor) -> float:
        """Relative error of logits of this module. The coarsest precision decides."""
        return max(self._coarsest, _ROUNDING.get(self._input_dtype, 0.0), _ROUNDING.get(logits.dtype, 0.0))

    def logits(self, batch: InputArray) -> Tensor:
        """(B, K) for (B, *input_shape) float32, in the precision of the module."""
        with self._prepared():
            return self._compute(batch)

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        # One row is too little work for several threads: waiting for each other made it thirty times slower.
        with evaluation_mode(self._module), torch.no_grad(), torch_threads(1):
            yield

    def _compute(self, batch: InputArray) -> Tensor:
        inputs = torch.tensor(batch, dtype=self._input_dtype, device=self._device)
        try:
            logits = self._module(inputs)
        except MODEL_FAILURES as error:
            raise ModelError(
                f"the model failed on {len(batch)} input{'s' * (len(batch) > 1)} alone: {last_line(error)}. A base "
                "classifier must answer every input by itself"
            ) from error
        check_is_logits(logits)
        if len(batch) == 1 and tuple(logits.shape) == (self._num_classes,):
            logits = logits[None]  # a squeeze inside the module removes the batch axis of a single input
        check_logits_shape(tuple(logits.shape), batch_size=len(batch), num_classes=self._num_classes)
        return cast(Tensor, logits.detach())


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch the module to evaluation mode inside the block; every part gets its mode back.

    Only the flags are set: the module's own `train` may do more, which could not be undone.
    """
    training = [part for part in module.modules() if part.training]
    if not training:
        yield
        return
    with _switching:
        for part in training:
            part.training = False
        try:
            yield
        finally:
            for part in training:
                part.training = True


def accepted_dtype(network: nn.Module, input_shape: tuple[int, ...] | None) -> torch.dtype:
    """The type in which a module takes its input.

    Noisy copies are float32. Only a module that rejects float32 gets them in the type of its first floating-point
    parameter. Nothing in the module is converted.
    """
    found = floating_dtypes(network)
    if not found or found[0] is torch.float32:
        return torch.float32
    if input_shape is None:
        return torch.float32 if torch.float32 in found else found[0]
    try:
        with evaluation_mode(network), torch.no_grad():
            network(torch.zeros((2, *input_shape), dtype=torch.float32, device=module_device(network)))
    except MODEL_FAILURES:
        return found[0]
    return torch.float32


def floating_dtypes(module: nn.Module) -> list[torch.dtype]:
    """The floating-point types of parameters, then of buffers, in order of occurrence."""
    tensors = [*module.parameters(), *module.buffers()]
    return list(dict.fromkeys(tensor.dtype for tensor in tensors if tensor.is_floating_point()))


def computing_dtypes(module: nn.Module) -> list[torch.dtype]:
    """`floating_dtypes`, and the half precision in which the module is computed, if one was requested."""
    chosen = autocast_dtype_of(module)
    return floating_dtypes(module) + ([] if chosen is None else [chosen])


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def module_device(module: nn.Module) -> torch.device:
    """The device of the first parameter or buffer; the CPU if there is none."""
    return next((tensor.device for tensor in (*module.parameters(), *module.buffers())), torch.device("cpu"))


def check_no_autocast() -> None:
    """InputError inside a `torch.autocast` block, which has no effect in the threads that call the model."""
    for kind in ("cpu", "cuda", "mps"):
        if torch.is_autocast_enabled(kind):
            raise InputError(
                f"this is called inside torch.autocast({kind!r}), which changes the model's precision only here and "
                "not in the threads that sample: use autocast inside the model's forward instead"
            )


def logits_agree(expected: Tensor, found: Tensor, *, rounding: float = FLOAT32_ROUNDING) -> bool:
    """Whether two tensors of logits differ by at most `rounding` times the largest one."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    scale = float(expected.nan_to_num(0.0, 0.0, 0.0).abs().max())
    return torch.allclose(expected, found, rtol=rounding, atol=rounding * scale, equal_nan=True)


def compute_logits(forward: Callable[[Tensor], Tensor], inputs: Tensor, *, num_classes: int) -> Tensor:
    """(B, num_classes) logits of a batch; ModelError if the model fails or returns anything else."""
    try:
        logits = forward(inputs)
    except torch.OutOfMemoryError as error:
        raise BatchTooLargeError(f"a batch of {len(inputs)} does not fit in memory; use a smaller --batch") from error
    except MODEL_FAILURES as error:
        raise ModelError(
            f"the model failed on a {dtype_name(inputs.dtype)} batch of shape {tuple(inputs.shape)}: {last_line(error)}"
        ) from error
    check_is_logits(logits)
    check_logits_shape(tuple(logits.shape), batch_size=len(inputs), num_classes=num_classes)
    return logits


def check_is_logits(logits: object) -> None:
    """ModelError unless a module's answer is one floating-point tensor."""
    if not isinstance(logits, Tensor):
        raise ModelError(
            f"the model answers with a {type(logits).__name__}; expected one tensor of logits, (batch, classes)"
        )
    if not logits.is_floating_point():
        raise ModelError(
            f"the model answers with {logits.dtype} values; expected floating-point logits, (batch, classes)"
        )


def as_array(logits: Tensor) -> FloatingArray:
    """Copy to host memory. numpy has no bfloat16; float32 holds its values and those of float16 exactly."""
    dtype = logits.dtype if logits.dtype in (torch.float32, torch.float64) else torch.float32
    return cast(FloatingArray, logits.to(dtype).cpu().numpy())


def last_line(error: BaseException) -> str:
    """The last line of a torch error, below the listing of graph code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
