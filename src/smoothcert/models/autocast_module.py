"""A torch module computed in half precision by torch.autocast: another function than the module itself."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError, ModelError
from smoothcert.models.devices import check_bfloat16


class AutocastModule(nn.Module):
    """The module under torch.autocast, wherever and in whatever thread it is called.

    Weights stay as they are: products and convolutions round them, and their inputs, to `dtype`. What autocast computes
    in float32, such as softmax, stays float32, and so does what the module itself excludes. The logits keep their type.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self.dtype = dtype
        self.training = False  # of this object alone: the module's own mode is the user's

    def forward(self, inputs: Tensor) -> Any:
        # No cache: rounded weights would be kept between calls only of weights that are trained.
        with torch.autocast(inputs.device.type, dtype=self.dtype, cache_enabled=False):
            return self.module(inputs)


def autocast_dtype_of(module: nn.Module) -> torch.dtype | None:
    """The precision that was requested of this module; None without a request."""
    return module.dtype if isinstance(module, AutocastModule) else None


def in_half_precision(module: nn.Module, dtype: str, device: torch.device) -> AutocastModule:
    """The module in this precision, "bfloat16" or "float16"; an error if autocast would not compute it so."""
    _check_can_be_autocast(module, dtype)
    chosen: torch.dtype = getattr(torch, dtype)
    if chosen is torch.bfloat16:
        check_bfloat16(device, option="--dtype")
    _check_takes_effect(chosen, device)
    return AutocastModule(module, chosen)


def _check_can_be_autocast(module: nn.Module, dtype: str) -> None:
    """ModelError for a module that has a precision of its own."""
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise ModelError(
            f"--dtype {dtype} is for torch modules: a TorchScript program was compiled for the precision it has. Leave "
            "--dtype out"
        )
    tensors = (*module.parameters(), *module.buffers())
    other = next((one.dtype for one in tensors if one.is_floating_point() and one.dtype is not torch.float32), None)
    if other is not None:
        name = str(other).removeprefix("torch.")
        raise ModelError(
            f"--dtype {dtype} is for float32 networks, and the model has {name} values, whose precision is not "
            "changed: leave --dtype out, or convert the model to float32 yourself"
        )


def _check_takes_effect(dtype: torch.dtype, device: torch.device) -> None:
    """InputError where torch would switch autocast off with a warning, and the model would stay float32."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autocast(device.type, dtype=dtype, cache_enabled=False):
                found = torch.mm(torch.eye(2, device=device), torch.eye(2, device=device)).dtype
    except RuntimeError as error:
        raise InputError(f"torch does not compute in {dtype} on {device}: {error}. Leave --dtype out") from error
    if found is not dtype:
        raise InputError(
            f"torch computes in {found} on {device}, although {dtype} was requested: leave --dtype out, or use another "
            "--device"
        )
