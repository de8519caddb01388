"""Weights from a file for a network of the user's own code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError, ModelError
from smoothcert.files import require_readable
from smoothcert.models.architectures import Standardisation
from smoothcert.models.checkpoints import (
    check_plain,
    fill_network,
    find_state,
    read_header,
    read_tensors,
    read_torch_file,
)

_WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes of all names that torch.nn.DataParallel and torch.compile add."""


class AdjustedWeightsWarning(UserWarning):
    """Weights were taken from one entry of a file, or their names were changed."""


class StatedForm(NamedTuple):
    """What a checkpoint of smoothcert states besides the weights: the layer in front of the network, and its classes.

    Files of other programs state neither.
    """

    standardise: Standardisation | None = None
    class_names: tuple[str, ...] = ()


def load_own_weights(network: nn.Module, path: Path, *, name: str) -> StatedForm:
    """Copy a state_dict from a file into the network. name: of the network, for messages.

    The names and shapes of all tensors must be those of the network, and no number may be rounded. A state_dict inside
    a training checkpoint is found, and the prefixes of wrappers are removed; a warning says so.
    """
    missing = ModelError(
        f"there is no file {path} with the weights of {name}: give its place by --weights, or by --replay-weights "
        "for verify"
    )
    require_readable(path, missing)
    state, stated = _read_state(path)
    for prefix in _WRAPPERS:
        if all(one.startswith(prefix) for one in state) and not any(
            one.startswith(prefix) for one in network.state_dict()
        ):
            state = {one.removeprefix(prefix): tensor for one, tensor in state.items()}
            _warn(f"{path.name}: all names begin with {prefix!r}, which a wrapper of the network added; it was removed")
    _check_is_exact(network, state, path, name=name)
    fill_network(network, state, path, name=name)
    return stated


def _read_state(path: Path) -> tuple[dict[str, Tensor], StatedForm]:
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        raise InputError(f"--weights {path} is a whole network: give it as --model {path}, without --weights")
    if suffix != ".safetensors":
        state, entry = find_state(read_torch_file(path), path)
        if entry is not None:
            _warn(f"{path.name}: its entry {entry!r} holds the weights; nothing else in it is used")
        return state, StatedForm()
    state, document = read_tensors(path)
    check_plain(state, path)
    if document is None:
        return state, StatedForm()
    header = read_header(path, document)
    if header.standardise is not None:
        # Saved as Sequential(Standardise, network).
        state = {one.removeprefix("1."): tensor for one, tensor in state.items() if not one.startswith("0.")}
    return state, StatedForm(header.standardise, header.class_names)


def _check_is_exact(network: nn.Module, state: Mapping[str, Tensor], path: Path, *, name: str) -> None:
    """A number that the precision of the network cannot hold would make it another function."""
    wanted = network.state_dict()
    for one in wanted.keys() & state.keys():
        stored, dtype = state[one], wanted[one].dtype
        if stored.dtype != dtype and not torch.equal(stored, stored.to(dtype).to(stored.dtype)):
            raise ModelError(
                f"{path} holds {one} in {stored.dtype}, and {name} has it in {dtype}, which would round it: make the "
                "network in the precision of its weights"
            )


def _warn(message: str) -> None:
    warnings.warn(message, AdjustedWeightsWarning, stacklevel=3)
