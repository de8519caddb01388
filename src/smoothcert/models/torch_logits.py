"""Torch modules that answer with more than logits, such as those of Hugging Face, as modules that give logits only."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoothcert.models.adapter import MODEL_FAILURES
from smoothcert.models.torch_original import accepted_dtype, evaluation_mode, module_device
from smoothcert.models.votes import find_logits, warn_of_logits


class LogitsOnly(nn.Module):
    """The logits of a module: of everything it answers, only they decide a vote. The module itself is not changed."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Tensor:
        return cast(Tensor, find_logits(self.module(inputs))[0])


def take_logits(module: nn.Module, input_shape: tuple[int, ...] | None) -> nn.Module:
    """The module, or its logits only, with a warning, if it answers two zero inputs with more.

    Without input_shape nothing is known about its answers. A module that fails is returned: its error is reported by
    the adapter. A copy is asked, because a call may change the module, and what it is like before the first call is
    what the adapter compares with. Lazy layers cannot be copied before their first call.
    """
    if input_shape is None or isinstance(module, LogitsOnly):
        return module
    try:
        twin = module if any(map(is_lazy, module.parameters())) else copy.deepcopy(module)
        inputs = torch.zeros((2, *input_shape), dtype=accepted_dtype(twin, input_shape), device=module_device(twin))
        with evaluation_mode(twin), torch.no_grad():
            answer = twin(inputs)
    except MODEL_FAILURES:
        return module
    _, place = find_logits(answer)
    if not place:
        return module
    warn_of_logits(answer, place)
    return LogitsOnly(module)
