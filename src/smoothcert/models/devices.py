"""Devices and threads of torch. Nothing else in smoothcert decides them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from smoothcert.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import torch

_MOST_THREADS = 4096
"""Far more than any machine has cores, and few enough to be started."""


def parse_device(name: str) -> tuple[str, int | None]:
    """("auto" | "cpu" | "cuda" | "mps", index or None) of a device name. Does not import torch."""
    match = re.fullmatch(r"(auto|cpu|cuda|mps)(?::(\d+))?", name.strip().lower())
    if match is None or (match[2] is not None and match[1] != "cuda"):
        raise InputError(f"device {name!r} is unknown: use auto, cpu, cuda, cuda:1 (the second card) or mps")
    return match[1], None if match[2] is None else int(match[2])


def resolve_device(name: str) -> torch.device:
    """The torch device of that name; InputError if it is not available. "auto" prefers cuda, then mps, then cpu."""
    kind, index = parse_device(name)
    import_torch("computing with torch")
    import torch

    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if kind == "mps" and not torch.backends.mps.is_available():
        raise InputError("device 'mps' is not available: it needs a Mac with Apple silicon; use --device cpu or auto")
    if kind != "cuda":
        return torch.device(kind)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no usable CUDA card"
        raise InputError(f"device 'cuda' is not available: {why}; use --device cpu or auto")
    if index is not None and index >= count:
        raise InputError(f"device 'cuda:{index}' is not available: this machine has {count}, cuda:0 … cuda:{count - 1}")
    return torch.device("cuda", 0 if index is None else index)


def usable_cores() -> int:
    """CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def make_thread_sequential() -> None:
    """Limit torch to one core in the calling thread; parallelism comes from many such threads."""
    import torch

    torch.set_num_threads(1)


def restore_thread_default() -> None:
    """Give later threads as many cores as the calling one has: the last setting in any thread decides that."""
    import torch

    torch.set_num_threads(torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use `count` cores in the calling thread inside the block; an InputError if that is not a possible number."""
    import torch

    if not 1 <= count <= _MOST_THREADS:
        raise InputError(f"threads={count} is not possible: expected a number from 1 to {_MOST_THREADS}")

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def reproducible_kernels() -> Iterator[None]:
    """Full float32 and deterministic kernels on accelerators: no TF32, no autotuning by timing.

    These are process-wide settings of torch, so only one thread at a time may be inside.
    """
    import torch

    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


def check_bfloat16(device: torch.device, *, option: str = "--precision") -> None:
    """InputError if the device does not support bfloat16. option: which requested it."""
    import torch

    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise InputError(
            f"{torch.cuda.get_device_name(device)} has no bfloat16: leave {option} out, or use a newer card"
        )


def off_mps(tensor: torch.Tensor) -> torch.Tensor:
    """Move a tensor from MPS, which has neither float64 nor the normal quantile, to the CPU."""
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def in_float64(tensor: torch.Tensor) -> torch.Tensor:
    """A float64 copy, on the CPU if the device has no float64 (MPS)."""
    import torch

    return off_mps(tensor).to(torch.float64)


def import_torch(purpose: str) -> Any:
    """The torch package, or a MissingExtraError that names the purpose."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch", purpose) from error
    return torch
