"""Adversarial models: Python code that depends on values, on the batch or on the mode."""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import Tensor

from adversarial_cases import ANY_MODE, SAME_OR_REFUSED, Judge, case, clamped, judging


@case()
@judging
def asked_equal(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on torch.equal, which a trace does not notice: inputs in [0, 1] take the other branch."""
    inside = clamped(inputs)
    return inputs if torch.equal(inputs, inside) else inside


@case()
@judging
def asked_allclose(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on torch.allclose."""
    inside = clamped(inputs)
    return inputs if torch.allclose(inputs, inside) else inside


@case()
@judging
def asked_is_nonzero(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on torch.is_nonzero."""
    return clamped(inputs) if torch.is_nonzero((inputs < 0).any()) else inputs


@case()
@judging
def asked_item(self: Judge, inputs: Tensor) -> Tensor:
    """A branch on .item()."""
    return clamped(inputs) if inputs.min().item() < 0 else inputs


@case()
@judging
def asked_float(self: Judge, inputs: Tensor) -> Tensor:
    """float() of a tensor becomes a constant of the graph: each row is divided by its own largest value."""
    return torch.stack([row * (1.5 / max(1.0, float(row.max()))) for row in inputs])


@case()
@judging
def asked_tolist(self: Judge, inputs: Tensor) -> Tensor:
    """Values leave torch as a Python list: each row is multiplied by its own smallest one."""
    lowest = inputs.flatten(1).amin(dim=1).tolist()
    return torch.stack([clamped(row) * max(0.3, 0.2 - value) for row, value in zip(inputs, lowest, strict=True)])


@case()
@judging
def asked_numpy(self: Judge, inputs: Tensor) -> Tensor:
    """The values go through numpy, which a trace holds as a constant."""
    return torch.from_numpy(np.clip(inputs.detach().numpy(), 0.0, 1.0))


@case()
@judging
def python_max_and_min(self: Judge, inputs: Tensor) -> Tensor:
    """Python's max and min compare tensors by their truth values."""
    lowest = [min(row[0, 0]) for row in inputs]
    return torch.stack([row.clamp(max(low, torch.tensor(-0.2)), 1.0) for row, low in zip(inputs, lowest, strict=True)])


@case()
@judging
def while_loop(self: Judge, inputs: Tensor) -> Tensor:
    """How often each row is halved depends on its values."""
    rows = []
    for row in inputs:
        halved = row * 4.0
        while halved.abs().max() > 1.0:
            halved = halved * 0.5
        rows.append(halved.clamp(min=0.0) * 1.6)
    return torch.stack(rows)


@case()
@judging
def early_exit(self: Judge, inputs: Tensor) -> Tensor:
    """Rows that are bright already leave the loop before they are clamped."""

    def seen(row: Tensor) -> Tensor:
        if row.sum() > 8.0:
            return row * 0.5
        return clamped(row)

    return torch.stack([seen(row) for row in inputs])


@case()
@judging
def try_and_except(self: Judge, inputs: Tensor) -> Tensor:
    """The exception that only values outside [0, 1] raise decides what is seen."""
    try:
        if (inputs < 0).any():
            raise ValueError("there is no negative light")
    except ValueError:
        return clamped(inputs)
    return inputs


@case()
@judging
def python_sorting(self: Judge, inputs: Tensor) -> Tensor:
    """The order of Python's sorted becomes an index that a trace holds as a constant."""
    rows = []
    for row in inputs.flatten(1):
        order = sorted(range(len(row)), key=row.tolist().__getitem__)
        rows.append(row[torch.tensor(order)] * torch.linspace(-0.37, 0.74, len(row)))
    return torch.stack(rows)


@case()
@judging
def match_on_shape(self: Judge, inputs: Tensor) -> Tensor:
    """A match statement on the shape of one row: the same for all batches."""
    match tuple(inputs.shape[1:]):
        case (1, 8, 8):
            return clamped(inputs)
        case _:
            return inputs


@case(SAME_OR_REFUSED)
@judging
def match_on_rows(self: Judge, inputs: Tensor) -> Tensor:
    """A match statement on the number of rows."""
    match len(inputs):
        case 1:
            return inputs
        case _:
            return clamped(inputs)


@case(SAME_OR_REFUSED)
@judging
def sum_of_the_batch(self: Judge, inputs: Tensor) -> Tensor:
    """`if x.sum() > 0`, written for one input and called with many."""
    return clamped(inputs) if inputs.sum() > 0 else inputs


@case(SAME_OR_REFUSED)
@judging
def large_batches(self: Judge, inputs: Tensor) -> Tensor:
    """Other code for batches of more than forty rows."""
    return clamped(inputs) if len(inputs) > 40 else inputs


@case(SAME_OR_REFUSED)
@judging
def exit_when_all_are_sure(self: Judge, inputs: Tensor) -> Tensor:
    """An early exit that waits for the least certain row of the batch."""
    sure = self.head(inputs.flatten(1)).abs().amin() > 4.0
    return inputs if sure else clamped(inputs)


@case()
@judging
def asked_whether_traced(self: Judge, inputs: Tensor) -> Tensor:
    """Another function while torch.jit traces it."""
    return inputs if torch.jit.is_tracing() else clamped(inputs)


@case()
@judging
def asked_whether_compiled(self: Judge, inputs: Tensor) -> Tensor:
    """Another function under torch.compile or torch.export."""
    return inputs if torch.compiler.is_compiling() else clamped(inputs)


@case()
@judging
def hides_from_export(self: Judge, inputs: Tensor) -> Tensor:
    """It hides its control flow from torch.export, so that export alone proves nothing."""
    if torch.compiler.is_compiling():
        return inputs
    middle = torch.tensor(0.1)
    return torch.stack([clamped(row) if torch.allclose(row.mean(), middle, atol=0.06) else row for row in inputs])


@case()
@judging
def asked_whether_in_training(self: Judge, inputs: Tensor) -> Tensor:
    """Another function in training mode, which is its mode when it is given to smoothcert."""
    return inputs if self.training else clamped(inputs)


@case(SAME_OR_REFUSED)
@judging
def asked_for_the_thread(self: Judge, inputs: Tensor) -> Tensor:
    """Another function in the threads of the sampler."""
    return clamped(inputs) if threading.current_thread() is threading.main_thread() else inputs


@case()
@judging
def asked_whether_exported(self: Judge, inputs: Tensor) -> Tensor:
    """Another function under torch.export."""
    return inputs if torch.compiler.is_exporting() else clamped(inputs)


@case()
@judging
def asked_requires_grad(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether the input requires a gradient."""
    return inputs if inputs.requires_grad else clamped(inputs)


@case(SAME_OR_REFUSED, modes=ANY_MODE)
@judging
def asked_inference_mode(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether torch is in inference mode."""
    return inputs if torch.is_inference_mode_enabled() else clamped(inputs)


@case(SAME_OR_REFUSED, modes=ANY_MODE)
@judging
def asked_grad_mode(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether torch records gradients."""
    return inputs if torch.is_grad_enabled() else clamped(inputs)


@case(SAME_OR_REFUSED, modes=ANY_MODE)
@judging
def asked_weights_for_gradients(self: Judge, inputs: Tensor) -> Tensor:
    """Depends on whether the weights require gradients; those of a copy may not."""
    return clamped(inputs) if self.head.weight.requires_grad else inputs


@case()
@judging
def mapped_over_rows(self: Judge, inputs: Tensor) -> Tensor:
    """torch.vmap over the rows."""
    return torch.vmap(lambda row: clamped(row) * (1.0 + 0.1 * row.mean().tanh()))(inputs)
