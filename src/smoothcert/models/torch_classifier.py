"""Torch modules as base classifiers: a fused graph on the CPU, the module itself on an accelerator."""

from __future__ import annotations

import copy
import warnings
from contextlib import AbstractContextManager
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from smoothcert.errors import ModelError
from smoothcert.models.adapter import MODEL_FAILURES, Adapter
from smoothcert.models.autocast_module import AutocastModule, autocast_dtype_of
from smoothcert.models.backends import TORCH
from smoothcert.models.devices import (
    make_thread_sequential,
    reproducible_kernels,
    restore_thread_default,
    torch_threads,
    usable_cores,
)
from smoothcert.models.freezing import Forward, Frozen, check_batches, freeze
from smoothcert.models.half_precision import note_dtype
from smoothcert.models.scores import decide_rule
from smoothcert.models.torch_digest import module_digest
from smoothcert.models.torch_logits import LogitsOnly
from smoothcert.models.torch_original import (
    TorchOriginal,
    accepted_dtype,
    as_array,
    check_is_logits,
    check_no_autocast,
    compute_logits,
    dtype_name,
    floating_dtypes,
    last_line,
    logits_agree,
    module_device,
)
from smoothcert.models.votes import FloatingArray, check_batch, resolve_num_classes
from smoothcert.records import FloatArray, InputArray, IntArray

ROW_MULTIPLE = 16
"""Batches on the CPU are padded to a multiple of this.

Matrix kernels sum the rows of a very small batch, and the last rows of an odd one, in another order. With whole
multiples the logits of a row were bit for bit the same in every batch, at every position and with any number of
threads (measured for every small architecture here, see the tests): so the batch size changes no vote.
"""


class TorchAdapter(Adapter):
    """What the adapters of torch modules share. The caller's module is copied, never changed.

    `original` is the caller's own object. Scores are the softmax of the logits, in float64, or the outputs themselves
    if they are probabilities (`scores_are`). autocast_dtype: the half precision that was requested, if any.
    """

    original: TorchOriginal
    autocast_dtype: str | None = None

    def _adopt(
        self, module: nn.Module, network: nn.Module, *, num_classes: int | None, input_shape: tuple[int, ...] | None
    ) -> None:
        """Try the private copy `network` and compare it with the module."""
        self.input_shape = input_shape
        chosen = autocast_dtype_of(module)
        self.autocast_dtype = None if chosen is None else dtype_name(chosen)
        self._input_dtype = accepted_dtype(network, input_shape)
        found = _count_classes(network, input_shape, self._input_dtype)
        self.num_classes = resolve_num_classes(found, num_classes)
        self.original = make_original(
            module, network, num_classes=self.num_classes, input_shape=input_shape, input_dtype=self._input_dtype
        )

    def _identify(
        self, module: nn.Module, network: nn.Module, *, backend: str, program: ExportedProgram | None = None
    ) -> None:
        """Decide how scores are computed, then describe and hash the model."""
        self.backend = backend
        self.scores_are = self.original.scores_are = decide_rule(self._logits, input_shape=self.input_shape)
        self.description = _describe(module, self.num_classes) + self.scores_are.note
        self.digest = module_digest(network, backend=self.backend + self.scores_are.note, program=program)


class TorchClassifier(TorchAdapter):
    """A torch module on the CPU, in its own precision, or in half precision if that was requested.

    With `input_shape` the copy is traced, frozen and fused (about twice as fast on small networks) if that is shown to
    be the same function (`freezing`). Otherwise the copy runs as it is, and `as_given` gives the reason. Any number of
    threads may call `classify`, each on one core, unless the module is not known to be one graph: then it may keep
    state, and one thread calls it.
    """

    backend_name = TORCH
    has_independent_rows = True

    def __init__(
        self, module: nn.Module, *, num_classes: int | None = None, input_shape: tuple[int, ...] | None = None
    ) -> None:
        check_no_autocast()
        network = private_copy(module, torch.device("cpu"))
        self._adopt(module, network, num_classes=num_classes, input_shape=input_shape)
        if input_shape is None:
            frozen = Frozen(None, "the shape of its inputs is not known")
        else:
            frozen = freeze(network, input_shape, input_dtype=self._input_dtype)
        self._forward: Forward = network if frozen.forward is None else frozen.forward
        self.as_given = frozen.reason
        kind = "eager" if frozen.forward is None else "frozen"
        precision = torch.get_float32_matmul_precision()
        matmul_note = "" if precision == "highest" else f", float32 matmul precision {precision}"
        backend = f"torch cpu {kind}{_precision_note(network, self._input_dtype)}{matmul_note}"
        self._identify(module, network, backend=backend, program=frozen.program)
        self.concurrency = usable_cores() if frozen.is_graph else 1
        # Which kernel oneDNN takes for half precision is not known for every processor, so nothing is claimed of it.
        self.has_independent_rows = self.autocast_dtype is None

    def _logits(self, batch: InputArray, /) -> FloatingArray:
        check_batch(batch, self.input_shape)
        inputs = _as_tensor(pad_batch(batch)).to(self._input_dtype)
        with torch.inference_mode():
            logits = compute_logits(self._forward, inputs, num_classes=self.num_classes)
        return as_array(logits)[: len(batch)]

    def prepare_thread(self) -> None:
        make_thread_sequential()

    def release_threads(self) -> None:
        restore_thread_default()

    def in_calling_thread(self) -> AbstractContextManager[None]:
        return torch_threads(1)


class TorchDeviceClassifier(TorchAdapter):
    """A torch module on `device`, usually an accelerator; inputs, logits and votes can all stay there.

    float32 is computed in full precision with deterministic kernels, by one thread at a time. Scores are computed in
    host memory, because not every accelerator has float64.
    """

    backend_name = TORCH

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
        with reproducible_kernels():
            self._adopt(module, self._network, num_classes=num_classes, input_shape=input_shape)
        backend = f"torch {device.type}{_precision_note(self._network, self._input_dtype)}"
        self._identify(module, self._network, backend=backend)
        self.concurrency = 1

    @property
    def input_dtype(self) -> torch.dtype:
        """The type that inputs are converted to: `classify_tensor` takes it as well as float32."""
        return self._input_dtype

    def classify(self, batch: InputArray, /) -> IntArray:
        check_batch(batch, self.input_shape)
        votes = self.classify_tensor(_as_tensor(batch).to(self.device))
        return cast(IntArray, votes.cpu().numpy())

    def classify_tensor(self, batch: Tensor, /) -> Tensor:
        with torch.inference_mode(), reproducible_kernels():
            return tensor_votes(self._tensor_logits(batch))

    def votes_and_scores_tensor(self, batch: Tensor, /) -> tuple[IntArray, FloatArray]:
        with torch.inference_mode(), reproducible_kernels():
            return self.scores_are.votes_and_scores(as_array(self._tensor_logits(batch)))

    def _logits(self, batch: InputArray, /) -> FloatingArray:
        with torch.inference_mode(), reproducible_kernels():
            return as_array(self._tensor_logits(_as_tensor(batch).to(self.device)))

    def _tensor_logits(self, batch: Tensor) -> Tensor:
        check_batch(batch, self.input_shape)
        return compute_logits(self._network, batch.to(self._input_dtype), num_classes=self.num_classes)


def tensor_votes(logits: Tensor) -> Tensor:
    """`votes_from_logits` for a (B, K) tensor on any device: (B,) int64 in {0, …, K}.

    The lowest class among equal maxima is computed explicitly, because devices break ties differently. NaN equals
    nothing, so its row gets K; so does a row with an infinite maximum.
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
            # Parameters of a copied script are not leaves, and torch looks for their gradients to move them too.
            warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor", category=UserWarning)
            twin = twin.to(device=device).eval()
            for parameter in twin.parameters():
                if parameter.is_leaf:  # those of a copied script are not
                    parameter.requires_grad_(False)
            # The memory layout decides which kernel runs, so equal weights must have equal layouts.
            return cast(nn.Module, twin.to(memory_format=torch.contiguous_format))  # type: ignore[call-overload]
    except Exception as error:
        kinds = ", ".join(map(dtype_name, floating_dtypes(module))) or "no"
        raise ModelError(
            f"the module {type(module).__name__} with {kinds} values cannot be moved to {device}: {last_line(error)}. "
            "Its precision is not changed: use --device cpu, or convert the module yourself"
        ) from error


def make_original(
    module: nn.Module,
    network: nn.Module,
    *,
    num_classes: int,
    input_shape: tuple[int, ...] | None,
    input_dtype: torch.dtype,
) -> TorchOriginal:
    """The caller's module, for later comparisons. ModelError if its private copy is another function."""
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
        copied = network(batch.to(module_device(network), input_dtype))
    if not logits_agree(own.cpu(), copied.cpu(), rounding=rounding):
        raise ModelError(
            f"a copy of the module {type(module).__name__} gives other logits than the module itself, so a private "
            "copy cannot be used: look for hooks that refer to the module, for a custom __deepcopy__, and for code "
            "that checks whether gradients are recorded"
        )
    original.remember(batch.numpy(), own)
    return original


def _count_classes(network: nn.Module, input_shape: tuple[int, ...] | None, input_dtype: torch.dtype) -> int | None:
    """Columns of the logits of two zero inputs; None if the input shape is unknown."""
    if input_shape is None:
        return None
    try:
        with torch.inference_mode():
            logits = network(torch.zeros((2, *input_shape), dtype=input_dtype, device=module_device(network)))
    except MODEL_FAILURES as error:
        raise ModelError(f"the model does not take inputs of shape {input_shape}: {last_line(error)}") from error
    check_is_logits(logits)
    if logits.ndim != 2 or len(logits) != 2:
        raise ModelError(
            f"the model answers 2 inputs with values of shape {tuple(logits.shape)}; expected logits (2, classes)"
        )
    return int(logits.shape[1])


def pad_batch(batch: InputArray) -> InputArray:
    """Append rows of zeros up to a multiple of ROW_MULTIPLE."""
    missing = -len(batch) % ROW_MULTIPLE
    if missing == 0:
        return batch
    return np.concatenate([batch, np.zeros((missing, *batch.shape[1:]), dtype=np.float32)])


def _as_tensor(batch: InputArray) -> Tensor:
    """The array as a tensor that shares its memory, or a copy of a read-only array, which torch does not support."""
    return torch.from_numpy(batch if batch.flags.writeable else batch.copy())


def _precision_note(network: nn.Module, input_dtype: torch.dtype) -> str:
    """The floating-point types other than float32, for the text of the back end."""
    kinds = [dtype_name(dtype) for dtype in floating_dtypes(network) if dtype is not torch.float32]
    if input_dtype is not torch.float32:
        kinds.append(f"inputs cast to {dtype_name(input_dtype)}")
    if (chosen := autocast_dtype_of(network)) is not None:
        kinds.append(f"autocast to {dtype_name(chosen)}")
    return "".join(f", {kind}" for kind in kinds)


def _describe(module: nn.Module, num_classes: int) -> str:
    note, chosen = "", autocast_dtype_of(module)
    if isinstance(module, AutocastModule):
        module = module.module
    if isinstance(module, LogitsOnly):
        module, note = module.module, ", its logits only"
    note += note_dtype(None if chosen is None else dtype_name(chosen))
    count = sum(parameter.numel() for parameter in module.parameters())
    layers = ", ".join(type(part).__name__ for part in module) if isinstance(module, nn.Sequential) else ""
    name = f"{type(module).__name__}({layers})" if layers and len(layers) < 60 else type(module).__name__
    return f"torch {name}, {count} parameters, {num_classes} classes{note}"
