"""Torch modules as base classifiers: a fused graph on the processor, the module itself on an accelerator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import BatchTooLargeError, InputError, ModelError
from smoothcert.models.devices import make_thread_sequential, reproducible_kernels, restore_thread_default, usable_cores
from smoothcert.models.failures import MODEL_FAILURES
from smoothcert.models.freezing import Forward, Frozen, check_batches, freeze
from smoothcert.models.module_digest import module_digest
from smoothcert.models.scores import decided_rule
from smoothcert.models.torch_original import (
    FloatingArray,
    TorchOriginal,
    accepted_dtype,
    as_array,
    check_is_logits,
    check_no_autocast,
    floating_dtypes,
    home_of,
    last_line,
    logits_agree,
)
from smoothcert.models.votes import check_batch, check_logits_shape, known_num_classes, votes_from_logits
from smoothcert.records import FloatArray, InputArray, IntArray

ROW_MULTIPLE = 16
"""Batches on the processor are filled up to a multiple of this.

Matrix kernels sum the rows of a very small batch, and the last rows of an odd one, in another order. With
whole multiples the logits of a row came out bit for bit the same whatever batch it was in, wherever it stood
there and however many threads worked (measured for every small architecture here, see the tests): so the
batch size changes no vote.
"""


class TorchClassifier:
    """A torch module on the processor; the caller's module is copied, never changed, and keeps its precision.

    With `input_shape` the copy is traced, frozen and fused (about twice as fast on small networks), if it can be shown
    that this is the same function (`freezing`); otherwise the copy runs as it is, and `as_given` says why. `backend`
    says which. Any number of threads may call `classify` at once, each working on one core, unless the module is not
    known to be one graph: then it may keep state, and one thread asks it. Scores are the softmax of the logits, in
    float64, or the outputs themselves where they are probabilities (`scores_are`).

    `original` is the caller's own object.
    """

    gives_scores = True

    def __init__(
        self, module: nn.Module, *, num_classes: int | None = None, input_shape: tuple[int, ...] | None = None
    ) -> None:
        check_no_autocast()
        network = private_copy(module, torch.device("cpu"))
        self.input_shape = input_shape
        self._input_dtype = accepted_dtype(network, input_shape)
        found = tried_num_classes(network, input_shape, input_dtype=self._input_dtype)
        self.num_classes = known_num_classes(found, num_classes)
        self.original = checked_original(
            module, network, num_classes=self.num_classes, input_shape=input_shape, input_dtype=self._input_dtype
        )
        frozen = self._frozen(network)
        self._forward: Forward = network if frozen.forward is None else frozen.forward
        self.as_given = frozen.reason
        kind = "eager" if frozen.forward is None else "frozen"
        self.backend = f"torch cpu {kind}{precision_note(network, self._input_dtype)}{_matmul_note()}"
        self.scores_are = self.original.scores_are = decided_rule(self._logits, input_shape=input_shape)
        self.description = described(module, self.num_classes) + self.scores_are.note
        self.digest = module_digest(network, backend=self.backend + self.scores_are.note, program=frozen.program)
        self.concurrency = usable_cores() if frozen.is_graph else 1

    def _frozen(self, network: nn.Module) -> Frozen:
        if self.input_shape is None:
            return Frozen(None, "the shape of its inputs is not known")
        return freeze(network, self.input_shape, input_dtype=self._input_dtype)

    def classify(self, batch: InputArray, /) -> IntArray:
        return votes_from_logits(self._logits(batch))

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        return self.scores_are.votes_and_scores(self._logits(batch))

    def _logits(self, batch: InputArray) -> FloatingArray:
        check_batch(batch, self.input_shape)
        inputs = _as_tensor(filled_up(batch)).to(self._input_dtype)
        with torch.inference_mode():
            logits = _logits(self._forward, inputs, self.num_classes)
        return as_array(logits)[: len(batch)]

    def prepare_thread(self) -> None:
        make_thread_sequential()

    def release_threads(self) -> None:
        restore_thread_default()


class TorchDeviceClassifier:
    """A torch module on `device`, usually an accelerator; inputs, logits and votes can all stay there.

    The module is copied there once, in its own precision; float32 is computed in full, with deterministic kernels. One
    thread at a time. Scores are computed from the logits in host memory: not every accelerator has float64. `original`
    is the caller's own object, wherever it lies.
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
        check_no_autocast()
        self.device = device
        self._network = private_copy(module, device)
        self.input_shape = input_shape
        with reproducible_kernels():
            self._input_dtype = accepted_dtype(self._network, input_shape)
            found = tried_num_classes(self._network, input_shape, input_dtype=self._input_dtype)
            self.num_classes = known_num_classes(found, num_classes)
            self.original = checked_original(
                module, self._network, num_classes=self.num_classes, input_shape=input_shape,
                input_dtype=self._input_dtype,
            )  # fmt: skip
        self.backend = f"torch {device.type}{precision_note(self._network, self._input_dtype)}"
        self.scores_are = self.original.scores_are = decided_rule(self._host_logits, input_shape=input_shape)
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
            return self.scores_are.votes_and_scores(as_array(self._logits(batch)))

    def _host_logits(self, batch: InputArray) -> FloatingArray:
        with torch.inference_mode(), reproducible_kernels():
            return as_array(self._logits(_as_tensor(batch).to(self.device)))

    def _logits(self, batch: Tensor) -> Tensor:
        if self.input_shape is not None and tuple(batch.shape[1:]) != self.input_shape:
            raise InputError(
                f"inputs of shape {tuple(batch.shape[1:])} were given, but the model takes {self.input_shape}"
            )
        return _logits(self._network, batch.to(self._input_dtype), self.num_classes)

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
    """A copy in evaluation mode on `device`, without gradients, in the precision of the module."""
    try:
        twin = copy.deepcopy(module)
    except Exception as error:
        raise ModelError(
            f"the module {type(module).__name__} cannot be copied ({error}); give a module that copy.deepcopy accepts"
        ) from error
    try:
        with warnings.catch_warnings():
            # Parameters of a copied script are no leaves, and torch looks for their gradients to move them too.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor", category=UserWarning)
            twin = twin.to(device=device).eval()
            for parameter in twin.parameters():
                if parameter.is_leaf:  # those of a copied script are not
                    parameter.requires_grad_(False)
            # The layout in memory decides which kernel runs, so equal weights must have equal layouts.
            return cast(nn.Module, twin.to(memory_format=torch.contiguous_format))  # type: ignore[call-overload]
    except Exception as error:
        kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in floating_dtypes(module)) or "no"
        raise ModelError(
            f"the module {type(module).__name__} with {kinds} values cannot be moved to {device}: {last_line(error)}. "
            "Its precision is not changed: use --device cpu, or convert the module yourself"
        ) from error


def checked_original(
    module: nn.Module,
    network: nn.Module,
    *,
    num_classes: int,
    input_shape: tuple[int, ...] | None,
    input_dtype: torch.dtype,
) -> TorchOriginal:
    """The caller's module, to be asked again; a ModelError where the private copy of it is another function."""
    original = TorchOriginal(module, num_classes=num_classes, input_dtype=input_dtype)
    if input_shape is None:
        return original
    batch = check_batches(input_shape)[0]
    own, again = (original.logits(batch.numpy()) for _ in range(2))
    rounding = original.rounding_of(own)
    if not logits_agree(own, again, rounding=rounding / 10.0):
        raise ModelError(
            "the model gives different logits for the same batch; a base classifier must be "
            "deterministic: noise belongs to the smoothing, and dropout must follow eval mode"
        )
    with torch.inference_mode():
        copied = network(batch.to(home_of(network), input_dtype))
    if not logits_agree(own.cpu(), copied.cpu(), rounding=rounding):
        raise ModelError(
            f"a copy of the module {type(module).__name__} answers otherwise than the module itself, so it cannot be "
            "kept apart from it: look for hooks that hold on to the module, for a __deepcopy__ of its own, and for "
            "code that asks whether gradients are recorded"
        )
    original.remember(batch.numpy(), own)
    return original


def _logits(forward: Callable[[Tensor], Tensor], inputs: Tensor, num_classes: int) -> Tensor:
    try:
        logits = forward(inputs)
    except torch.OutOfMemoryError as error:
        raise BatchTooLargeError(f"a batch of {len(inputs)} does not fit in memory; use a smaller --batch") from error
    except MODEL_FAILURES as error:
        kind = str(inputs.dtype).removeprefix("torch.")
        raise ModelError(
            f"the model failed on a {kind} batch of shape {tuple(inputs.shape)}: {last_line(error)}"
        ) from error
    check_is_logits(logits)
    check_logits_shape(tuple(logits.shape), batch_size=len(inputs), num_classes=num_classes)
    return logits


def tried_num_classes(
    network: nn.Module, input_shape: tuple[int, ...] | None, *, input_dtype: torch.dtype = torch.float32
) -> int | None:
    """Columns of the logits for two zero inputs; None if the input shape is not known."""
    if input_shape is None:
        return None
    try:
        with torch.inference_mode():
            logits = network(torch.zeros((2, *input_shape), dtype=input_dtype, device=home_of(network)))
    except MODEL_FAILURES as error:
        raise ModelError(f"the model does not take inputs of shape {input_shape}: {last_line(error)}") from error
    check_is_logits(logits)
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


def precision_note(network: nn.Module, input_dtype: torch.dtype) -> str:
    """What a reader must know of the precision of a module that is not all float32."""
    found = [dtype for dtype in floating_dtypes(network) if dtype is not torch.float32]
    kinds = list(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in found))
    if input_dtype is not torch.float32:
        kinds.append(f"inputs cast to {str(input_dtype).removeprefix('torch.')}")
    return "".join(f", {kind}" for kind in kinds)


def _matmul_note() -> str:
    precision = torch.get_float32_matmul_precision()
    return "" if precision == "highest" else f", float32 matmul precision {precision}"


def described(module: nn.Module, num_classes: int) -> str:
    """One line for people."""
    count = sum(parameter.numel() for parameter in module.parameters())
    layers = ", ".join(type(part).__name__ for part in module) if isinstance(module, nn.Sequential) else ""
    name = f"{type(module).__name__}({layers})" if layers and len(layers) < 60 else type(module).__name__
    return f"torch {name}, {count} parameters, {num_classes} classes"
