"""A torch module as a frozen, fused graph for the CPU, if that is the same function."""

from __future__ import annotations

import copy
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import TorchDispatchMode

from smoothcert.models.product_chain import ProductChain, find_products
from smoothcert.models.row_products import use_row_products
from smoothcert.models.torch_digest import hooks_of
from smoothcert.models.torch_original import computing_dtypes, dtype_name, logits_agree

Forward = Callable[[Tensor], Tensor]

_NOISE_LEVELS = (0.0, 0.25, 1.0)
_EXAMPLE_ROWS = 16
_STOCK_LAYERS = frozenset(
    {
        nn.Sequential, nn.ModuleList, nn.Identity, nn.Flatten, nn.Unflatten, nn.Dropout, nn.Dropout2d,
        nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm,
        nn.GroupNorm, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d,
        nn.AdaptiveAvgPool2d, nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Tanh, nn.Softplus,
        nn.Softmax, nn.LogSoftmax,
    }
)  # fmt: skip
"""Layers of torch whose `forward` is a fixed sequence of operations in evaluation mode. Subclasses do not count."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """The result of `freeze`.

    forward: the fused graph, or None if the module must run as it is; then `reason` says why. is_graph: whether the
    module is known to be one graph for all values; otherwise it may keep state. program: the result of `torch.export`,
    if that was needed.
    """

    forward: Forward | None
    reason: str = ""
    is_graph: bool = False
    program: ExportedProgram | None = None


def is_stock(network: nn.Module) -> bool:
    """Whether every part is a stock layer or from smoothcert's architectures, without hooks or replaced methods.

    The code of these classes shows that such a network has no control flow that depends on values, and keeps no state.
    For other networks `torch.export` shows it, but loading its compiler takes seconds.
    """
    if any(hooks_of(vars(torch_module), prefix="_global")):
        return False
    return all(_is_stock_type(type(part)) and not _is_changed(part) for part in network.modules())


def _is_stock_type(kind: type[nn.Module]) -> bool:
    if kind in _STOCK_LAYERS:
        # A method that was assigned to torch's class comes from another file.
        return kind.forward.__module__.startswith("torch.nn.modules.")
    found = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None)
    is_ours = kind.__module__.startswith("smoothcert.models.")
    return is_ours and found is kind and kind.forward.__module__ == kind.__module__


def _is_changed(part: nn.Module) -> bool:
    """Whether a hook, or a method assigned to this object, runs when the part is called."""
    return any(hooks_of(vars(part))) or any(callable(value) for value in vars(part).values())


def freeze(network: nn.Module, input_shape: tuple[int, ...], *, input_dtype: torch.dtype) -> Frozen:
    """Trace, freeze and fuse the network, if that is the same function.

    A trace follows one example, so it is the whole network only if no Python code in it depends on values. `is_stock`
    knows this for common layers. For all others `torch.export` shows it: it runs the network on tensors without
    values, for batches of any size. The trace is used if its logits agree with the network's on noisy batches.
    """
    program = None
    batches = [batch.to(input_dtype) for batch in check_batches(input_shape)]
    if not is_stock(network):
        try:
            program = export_program(network, input_shape, input_dtype=input_dtype)
        except Exception as error:  # anything that export or the user's code may raise: the module itself still works
            return Frozen(None, f"torch.export cannot write it down as one graph ({summarise_error(error)})")
        if _catches_failures(network, batches[0]):
            return Frozen(None, "an operation fails inside it, and the error is caught")
        if _keeps_state(network, batches[0]):
            return Frozen(None, "it changes its own attributes or buffers when it is called")
    coarse = [dtype for dtype in computing_dtypes(network) if dtype not in (torch.float32, torch.float64)]
    if coarse:
        return Frozen(None, f"it computes in {dtype_name(coarse[0])}", True, program)
    try:
        graph = _compile(network, batches[0])
        # Twice: the first calls of a graph only observe, the optimised plan runs from then on.
        agrees = same_logits(network, graph, batches, calls=2)
    except Exception as error:  # anything that a graph compiler may raise
        return Frozen(None, f"torch.jit cannot trace it ({summarise_error(error)})", True, program)
    if not agrees:
        return Frozen(None, "the fused graph gives other logits", True, program)
    return Frozen(graph, "", True, program)


def export_program(network: nn.Module, input_shape: tuple[int, ...], *, input_dtype: torch.dtype) -> ExportedProgram:
    """The network as one graph for batches of any size. Raises if Python code depends on values or batch size."""
    example = check_batches(input_shape)[0].to(input_dtype)
    with _silence(), torch.no_grad():
        return torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)


@contextmanager
def _silence() -> Iterator[None]:
    """Hide what torch logs, warns and prints about modules that it cannot export."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _compile(network: nn.Module, example: Tensor) -> Forward:
    """The fastest form: a network of stock layers ends in products where these are fast."""
    with torch.no_grad():
        begin, products = find_products(network, example) if is_stock(network) else (network, ())
    forward = None if begin is None else _trace(begin, example)
    return ProductChain(forward, products) if products or forward is None else forward


def _trace(network: nn.Module, example: Tensor) -> Forward:
    with warnings.catch_warnings(), torch.no_grad():
        rowwise = copy.deepcopy(network)
        use_row_products(rowwise, example, may_replace=lambda layer: not _is_changed(layer))
        # torch.jit is deprecated in favour of a compiler that needs a C++ tool chain on the user's machine.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.", category=DeprecationWarning)
        # Raised if Python code looks at values: the trace would contain one branch only.
        warnings.filterwarnings("error", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        traced = torch.jit.trace(rowwise, example.clone(), check_trace=False)  # type: ignore[no-untyped-call]
        return cast(Forward, torch.jit.optimize_for_inference(traced))


def check_batches(input_shape: tuple[int, ...]) -> list[Tensor]:
    """Batches of several sizes for comparing two forms of a network: values in [0, 1], with and without noise."""
    generator = torch.Generator().manual_seed(0)
    batches = []
    for rows in (_EXAMPLE_ROWS, 32, 48):
        levels = torch.tensor(_NOISE_LEVELS).repeat(rows)[:rows].reshape(-1, *(1 for _ in input_shape))
        clean = torch.rand((rows, *input_shape), generator=generator)
        batches.append(clean + levels * torch.randn((rows, *input_shape), generator=generator))
    return batches


def same_logits(network: Forward, other: Forward, batches: Sequence[Tensor], *, calls: int = 1) -> bool:
    """Whether another form of a float32 or float64 network gives its logits on these batches, in `calls` rounds."""
    with torch.inference_mode():
        # A module may change its argument, so each call gets a copy.
        expected = [network(batch.clone()) for batch in batches]
        return all(
            logits_agree(logits, other(batch.clone()))
            for _ in range(calls)
            for logits, batch in zip(expected, batches, strict=True)
        )


def _keeps_state(network: nn.Module, example: Tensor) -> bool:
    """Whether a call changes the attributes of the network, or the values in them: threads would share these."""
    before = _read_state(network)
    with torch.no_grad():
        network(example.clone())
    after = _read_state(network)
    plain = (bool, int, float, str)
    return before.keys() != after.keys() or any(
        mark != after[key][1] or not (value is after[key][0] or (isinstance(value, plain) and value == after[key][0]))
        for key, (value, mark) in before.items()
    )


def _read_state(network: nn.Module) -> dict[tuple[str, str], tuple[object, int]]:
    """Every attribute of every part, with the version of a tensor or the size of a collection."""

    def mark(value: object) -> int:
        return len(value) if isinstance(value, (dict, list, set)) else int(getattr(value, "_version", 0))

    return {
        (name, key): (value, mark(value))
        for name, part in network.named_modules()
        for key, value in {**vars(part), **part._parameters, **part._buffers}.items()
    }


class _FailedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records whether a torch operation raised, even if the code around it caught the error."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except BaseException:
            self.found = True
            raise


def _catches_failures(network: nn.Module, example: Tensor) -> bool:
    """Whether the network catches a failing operation.

    Which operation fails depends on values, and a failure while torch.jit traces can end the process.
    """
    operations = _FailedOperations()
    with operations, torch.no_grad():
        network(example.clone())
    return operations.found


def summarise_error(error: Exception) -> str:
    """Type and first line of an error of torch, which may have many pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
