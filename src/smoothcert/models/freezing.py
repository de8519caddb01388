"""A torch module as a frozen, fused graph for the processor, where that is the same function."""

from __future__ import annotations

import copy
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils._python_dispatch import TorchDispatchMode

from smoothcert.models.stock_modules import is_changed, is_stock
from smoothcert.models.torch_original import floating_dtypes, logits_agree

Forward = Callable[[Tensor], Tensor]

_NOISE_LEVELS = (0.0, 0.25, 1.0)
_EXAMPLE_ROWS = 16


@dataclass(frozen=True, slots=True)
class Frozen:
    """What became of a module. forward: the fused graph; None where the module must run as it was given, and `reason`
    says why. is_graph: whether it is known to be one graph, whatever the values; what is not may keep state. program:
    the module as `torch.export` wrote it down, where that was needed to know it.
    """

    forward: Forward | None
    reason: str = ""
    is_graph: bool = False
    program: ExportedProgram | None = None


class RowwiseLinear(nn.Linear):
    """A linear layer the graph optimiser leaves alone.

    It would store the weights transposed; the matrix kernel then chosen for few classes gives a row other
    last bits at odd positions of the batch than at even ones. The product as torch itself writes it does not,
    and is no slower.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2:
            return super().forward(inputs)
        return torch.addmm(self.bias, inputs, self.weight.t())


def freeze(network: nn.Module, input_shape: tuple[int, ...], *, input_dtype: torch.dtype) -> Frozen:
    """The traced, frozen and fused network, where that is the same function.

    A trace follows one example. It is the whole network only if no Python code in it looks at values. That is known of
    a closed list of layers (`stock_modules`); of all others it is shown by `torch.export`, which runs the network on
    tensors that have no values, for batches of any size. What passes is traced, compared with the network on noisy
    batches, and used if it agrees.
    """
    program = None
    batches = [batch.to(input_dtype) for batch in check_batches(input_shape)]
    if not is_stock(network):
        try:
            program = exported_program(network, input_shape, input_dtype=input_dtype)
        except Exception as error:  # whatever export or the user's code may raise: the module itself still works
            return Frozen(None, f"torch.export cannot write it down as one graph ({summary(error)})")
        if _catches_failures(network, batches[0]):
            return Frozen(None, "an operation fails inside it, and it goes on without")
        if _keeps_state(network, batches[0]):
            return Frozen(None, "it changes its own attributes or buffers when it is called")
    coarse = [dtype for dtype in floating_dtypes(network) if dtype not in (torch.float32, torch.float64)]
    if coarse:
        return Frozen(None, f"it computes in {str(coarse[0]).removeprefix('torch.')}", True, program)
    try:
        graph = _traced(network, batches[0])
        # Twice: the first calls of a graph only observe, the optimised plan runs from then on.
        agrees = same_logits(network, graph, batches, calls=2)
    except Exception as error:  # whatever a graph compiler may raise
        return Frozen(None, f"torch.jit cannot trace it ({summary(error)})", True, program)
    if not agrees:
        return Frozen(None, "the fused graph gives other logits", True, program)
    return Frozen(graph, "", True, program)


def exported_program(network: nn.Module, input_shape: tuple[int, ...], *, input_dtype: torch.dtype) -> ExportedProgram:
    """The network as one graph for batches of any size. Raises where Python code depends on values or batch size."""
    example = check_batches(input_shape)[0].to(input_dtype)
    with _silence(), torch.no_grad():
        return torch.export.export(network, (example,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)


@contextmanager
def _silence() -> Iterator[None]:
    """Torch logs, warns and prints about modules it cannot export; here that is an ordinary answer."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _traced(network: nn.Module, example: Tensor) -> Forward:
    with warnings.catch_warnings(), torch.no_grad():
        # torch.jit is deprecated in favour of a compiler that needs a C++ tool chain on the user's machine.
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.", category=DeprecationWarning)
        # Raised where Python code looks at values: the trace would hold one branch only.
        warnings.filterwarnings("error", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        rowwise = _with_rowwise_layers(copy.deepcopy(network))
        traced = torch.jit.trace(rowwise, example.clone(), check_trace=False)  # type: ignore[no-untyped-call]
        return cast(Forward, torch.jit.optimize_for_inference(traced))


def check_batches(input_shape: tuple[int, ...]) -> list[Tensor]:
    """Batches of several sizes on which another form of a network is compared with it: values in [0, 1], and the same
    under noise, which leaves that range.
    """
    generator = torch.Generator().manual_seed(0)
    batches = []
    for rows in (_EXAMPLE_ROWS, 32, 48):
        levels = torch.tensor(_NOISE_LEVELS).repeat(rows)[:rows].reshape(-1, *(1 for _ in input_shape))
        clean = torch.rand((rows, *input_shape), generator=generator)
        batches.append(clean + levels * torch.randn((rows, *input_shape), generator=generator))
    return batches


def same_logits(network: Forward, other: Forward, batches: Sequence[Tensor], *, calls: int = 1) -> bool:
    """Whether another form of a float32 or float64 network gives its logits on these batches, at the first `calls`."""
    with torch.inference_mode():
        # Each gets a batch of its own: a module may change what it is given.
        expected = [network(batch.clone()) for batch in batches]
        return all(
            logits_agree(logits, other(batch.clone()))
            for _ in range(calls)
            for logits, batch in zip(expected, batches, strict=True)
        )


def _with_rowwise_layers(network: nn.Module) -> nn.Module:
    """Every plain linear layer with a bias made rowwise, in place; one that does anything else keeps doing it."""
    for layer in network.modules():
        if type(layer) is nn.Linear and layer.bias is not None and not is_changed(layer):
            layer.__class__ = RowwiseLinear
    return network


def _keeps_state(network: nn.Module, example: Tensor) -> bool:
    """Whether a call leaves the network with other attributes, or other values in them: threads would share these."""
    before = _content(network)
    with torch.no_grad():
        network(example.clone())
    after = _content(network)
    return before.keys() != after.keys() or any(
        mark != after[key][1] or not (value is after[key][0] or (isinstance(value, _PLAIN) and value == after[key][0]))
        for key, (value, mark) in before.items()
    )


_PLAIN = (bool, int, float, str)


def _content(network: nn.Module) -> dict[tuple[str, str], tuple[object, int]]:
    """Every attribute of every part; with tensors how often they were changed in place, with collections their size."""

    def mark(value: object) -> int:
        return len(value) if isinstance(value, (dict, list, set)) else int(getattr(value, "_version", 0))

    return {
        (name, key): (value, mark(value))
        for name, part in network.named_modules()
        for key, value in {**vars(part), **part._parameters, **part._buffers}.items()
    }


class _FailedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether an operation of torch raised, also where the code around it caught that."""

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
    """Whether the network catches an operation that fails. Which one fails depends on values, and a failure while
    torch.jit traces can end the process.
    """
    operations = _FailedOperations()
    with operations, torch.no_grad():
        network(example.clone())
    return operations.found


def summary(error: Exception) -> str:
    """The first sentence of an error of torch's, which may go on for pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
