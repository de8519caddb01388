"""Torch modules as base classifiers: a fused graph on the processor, the module itself on an accelerator."""

from __future__ import annotations

import copy
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.errors import BatchTooLargeError, InputError, ModelError
from smoothcert.models.devices import make_thread_sequential, reproducible_kernels, restore_thread_default, usable_cores
from smoothcert.models.failures import MODEL_FAILURES
from smoothcert.models.freezing import Forward, frozen_graph
from smoothcert.models.module_digest import module_digest
from smoothcert.models.scores import decided_rule
from smoothcert.models.votes import check_batch, check_logits_shape, known_num_classes, votes_from_logits
from smoothcert.records import FloatArray, InputArray, IntArray

FloatingArray = NDArray[np.floating[Any]]

ROW_MULTIPLE = 16
"""Batches on the processor are filled up to a multiple of this.

Matrix kernels sum the rows of a very small batch, and the last rows of an odd one, in another order. With
whole multiples the logits of a row came out bit for bit the same whatever batch it was in, wherever it stood
there and however many threads worked (measured for every small architecture here, see the tests): so the
batch size changes no vote.
"""


class TorchClassifier:
    """A torch module on the processor; the caller's module is copied, never changed.

    With `input_shape` the copy is traced, frozen and fused (about twice as fast on small networks), if that
    graph agrees with the module on random batches of other sizes; otherwise the module runs as it is.
    `backend` says which. Any number of threads may call `classify`; each works on one core. Scores are the softmax of
    the logits, in float64, or the outputs themselves where they are probabilities (`scores_are`).
    """

    gives_scores = True

    def __init__(
        self, module: nn.Module, *, num_classes: int | None = None, input_shape: tuple[int, ...] | None = None
    ) -> None:
        network = private_copy(module, torch.device("cpu"))
        self.input_shape = input_shape
        self.num_classes = known_num_classes(tried_num_classes(network, input_shape), num_classes)
        frozen = None if input_shape is None else frozen_graph(network, input_shape)
        self._forward: Forward = network if frozen is None else frozen
        self.backend = f"torch cpu {'eager' if frozen is None else 'frozen'}{_precision_note()}"
        self.scores_are = decided_rule(self._logits, input_shape=input_shape)
        self.description = described(module, self.num_classes) + self.scores_are.note
        self.digest = module_digest(network, backend=self.backend + self.scores_are.note)
        self.concurrency = usable_cores()

    def classify(self, batch: InputArray, /) -> IntArray:
        return votes_from_logits(self._logits(batch))

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        return self.scores_are.votes_and_scores(self._logits(batch))

    def _logits(self, batch: InputArray) -> FloatingArray:
        check_batch(batch, self.input_shape)
        inputs = _as_tensor(filled_up(batch))
        with torch.inference_mode():
            logits = _logits(self._forward, inputs, self.num_classes)
        return _as_array(logits)[: len(batch)]

    def prepare_thread(self) -> None:
        make_thread_sequential()

    def release_threads(self) -> None:
        restore_thread_default()


class TorchDeviceClassifier:
    """A torch module on `device`, usually an accelerator; inputs, logits and votes can all stay there.

    The module is copied there once. Full float32 with deterministic kernels; one thread at a time. Scores are computed
    from the logits in host memory: not every accelerator has float64.
    """

    gives_scores = True

    def __init__(
        self,
        module: nn.Module,
        *,
        device: torch.device,
        num_classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.device = device
        self._network = private_copy(module, device)
        self.input_shape = input_shape
        with reproducible_kernels():
            self.num_classes = known_num_classes(tried_num_classes(self._network, input_shape), num_classes)
        self.backend = f"torch {device.type}"
        self.scores_are = decided_rule(self._host_logits, input_shape=input_shape)
        self.description = described(module, self.num_classes) + self.scores_are.note
        self.digest = module_digest(self._network, backend=self.backend + self.scores_are.note)
        self.concurrency = 1

    def classify(self, batch: InputArray, /) -> IntArray:
        check_batch(batch, self.input_shape)
        votes = self.classify_tensor(_as_tensor(batch).to(self.device))
        return cast(IntArray, votes.cpu().numpy())

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        check_batch(batch, self.input_shape)
        return self.votes_and_scores_tensor(_as_tensor(batch).to(self.device))

    def classify_tensor(self, batch: Tensor, /) -> Tensor:
        with torch.inference_mode(), reproducible_kernels():
            return tensor_votes(self._logits(batch))

    def votes_and_scores_tensor(self, batch: Tensor, /) -> tuple[IntArray, FloatArray]:
        with torch.inference_mode(), reproducible_kernels():
            return self.scores_are.votes_and_scores(_as_array(self._logits(batch)))

    def _host_logits(self, batch: InputArray) -> FloatingArray:
        with torch.inference_mode(), reproducible_kernels():
            return _as_array(self._logits(_as_tensor(batch).to(self.device)))

    def _logits(self, batch: Tensor) -> Tensor:
        if self.input_shape is not None and tuple(batch.shape[1:]) != self.input_shape:
            raise InputError(
                f"inputs of shape {tuple(batch.shape[1:])} were given, but the model takes {self.input_shape}"
            )
        return _logits(self._network, batch, self.num_classes)

    def prepare_thread(self) -> None:
        """Nothing to prepare: the device does its own scheduling."""

    def release_threads(self) -> None:
        """Nothing to undo."""


def tensor_votes(logits: Tensor) -> Tensor:
    """`votes_from_logits` for a (B, K) tensor on any device: (B,) int64 in {0, …, K}.

    The lowest class among those equal to the maximum is computed, not left to how a device breaks ties. A NaN
    equals nothing, so its row falls through to K; an infinite maximum is sent there.
    """
    num_classes = logits.shape[1]
    largest = logits.amax(dim=1, keepdim=True)
    wins = (logits == largest) & torch.isfinite(largest)
    classes = torch.arange(num_classes, device=logits.device)
    return torch.where(wins, classes, num_classes).amin(dim=1)


def private_copy(module: nn.Module, device: torch.device) -> nn.Module:
    """A float32 copy in evaluation mode on `device`, without gradients."""
    try:
        twin = copy.deepcopy(module)
    except Exception as error:
        raise ModelError(
            f"the module {type(module).__name__} cannot be copied ({error}); give a module that copy.deepcopy accepts"
        ) from error
    twin = twin.to(device=device, dtype=torch.float32).eval().requires_grad_(False)
    # The layout in memory decides which kernel runs, so equal weights must have equal layouts.
    return cast(nn.Module, twin.to(memory_format=torch.contiguous_format))  # type: ignore[call-overload]


def _logits(forward: Forward, inputs: Tensor, num_classes: int) -> Tensor:
    try:
        logits = forward(inputs)
    except torch.OutOfMemoryError as error:
        raise BatchTooLargeError(f"a batch of {len(inputs)} does not fit in memory; use a smaller --batch") from error
    except MODEL_FAILURES as error:
        raise ModelError(
            f"the model failed on a float32 batch of shape {tuple(inputs.shape)}: {_last_line(error)}"
        ) from error
    _check_is_logits(logits)
    check_logits_shape(tuple(logits.shape), batch_size=len(inputs), num_classes=num_classes)
    return logits


def _check_is_logits(logits: object) -> None:
    if not isinstance(logits, Tensor):
        raise ModelError(
            f"the model answers with a {type(logits).__name__}; expected one tensor of logits, (batch, classes)"
        )
    if not logits.is_floating_point():
        raise ModelError(
            f"the model answers with {logits.dtype} values; expected floating-point logits, (batch, classes)"
        )


def tried_num_classes(network: nn.Module, input_shape: tuple[int, ...] | None) -> int | None:
    """Columns of the logits for two zero inputs; None if the input shape is not known."""
    if input_shape is None:
        return None
    device = next((tensor.device for tensor in network.state_dict().values()), torch.device("cpu"))
    try:
        with torch.inference_mode():
            logits = network(torch.zeros((2, *input_shape), device=device))
    except MODEL_FAILURES as error:
        raise ModelError(f"the model does not take inputs of shape {input_shape}: {_last_line(error)}") from error
    _check_is_logits(logits)
    if logits.ndim != 2 or len(logits) != 2:
        raise ModelError(
            f"the model answers 2 inputs with values of shape {tuple(logits.shape)}; expected logits (2, classes)"
        )
    return int(logits.shape[1])


def filled_up(batch: InputArray) -> InputArray:
    """The batch with rows of zeros at its end, up to a multiple of ROW_MULTIPLE."""
    missing = -len(batch) % ROW_MULTIPLE
    if missing == 0:
        return batch
    return np.concatenate([batch, np.zeros((missing, *batch.shape[1:]), dtype=np.float32)])


def _as_tensor(batch: InputArray) -> Tensor:
    """The array as a tensor, sharing memory where torch can (it cannot express a read-only one)."""
    return torch.from_numpy(batch if batch.flags.writeable else batch.copy())


def _as_array(logits: Tensor) -> FloatingArray:
    return cast(FloatingArray, logits.to(_numpy_dtype(logits)).cpu().numpy())


def _numpy_dtype(logits: Tensor) -> torch.dtype:
    """numpy has no bfloat16."""
    return logits.dtype if logits.dtype in (torch.float32, torch.float64) else torch.float32


def _precision_note() -> str:
    precision = torch.get_float32_matmul_precision()
    return "" if precision == "highest" else f", float32 matmul precision {precision}"


def described(module: nn.Module, num_classes: int) -> str:
    """One line for people."""
    count = sum(parameter.numel() for parameter in module.parameters())
    layers = ", ".join(type(part).__name__ for part in module) if isinstance(module, nn.Sequential) else ""
    name = f"{type(module).__name__}({layers})" if layers and len(layers) < 60 else type(module).__name__
    return f"torch {name}, {count} parameters, {num_classes} classes"


def _last_line(error: BaseException) -> str:
    """The sentence of a torch error without the listing of graph code above it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
