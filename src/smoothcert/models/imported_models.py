"""Models that are the user's own code, `package.module:attribute`, with weights from a file where they are given."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.errors import InputError, ModelError
from smoothcert.models.adapter import MODEL_FAILURES
from smoothcert.models.architectures import Standardisation, standardise_first
from smoothcert.user_code import call_factory, find_object, list_required_arguments, needs_arguments_error

if TYPE_CHECKING:
    from torch import nn


class RandomWeightsWarning(UserWarning):
    """The weights of a network are those it was constructed with, and they are random."""


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """model: any object. has_random_weights: it was just constructed, and every construction gives other weights.

    class_names: that the file of its weights states; else empty.
    """

    model: Any
    has_random_weights: bool = False
    class_names: tuple[str, ...] = ()


def import_model(
    spec: str,
    *,
    weights: str | None = None,
    standardise: Standardisation | None = None,
    input_shape: tuple[int, ...] | None = None,
    code_folder: str | None = None,
) -> ImportedModel:
    """Import a model, load its weights, and put `Standardise` in front of it, if they are given.

    Both are for torch modules. code_folder: imported from there, with a warning, if there is no such module here.
    """
    try:
        found = find_object(spec, code_folder=code_folder)
        model: Any = call_factory(spec, found)
        if not is_torch_module(model):
            _refuse_options_of_networks(spec, model, weights, standardise)
            return ImportedModel(model)
        is_new = model is not found
        class_names: tuple[str, ...] = ()
        if weights is not None:
            # A module that lives in the user's code is not changed.
            model = model if is_new else copy.deepcopy(model)
            if input_shape is not None:
                from smoothcert.models.architectures.own_network import initialise_lazy_layers

                initialise_lazy_layers(model, input_shape=input_shape, name=spec)
            standardise, class_names = _load_weights(model, Path(weights), spec, standardise)
        random = is_new and weights is None and _is_random(model, spec, found)
    except MODEL_FAILURES as error:
        if isinstance(error, Exception):
            raise
        raise ModelError(f"{spec} ended while it was imported: {type(error).__name__}: {error}") from error
    if random:
        warnings.warn(_describe_random(spec), RandomWeightsWarning, stacklevel=2)
    if standardise is not None:
        model = standardise_first(model, standardise, input_shape)
    return ImportedModel(model, random, class_names)


def is_torch_module(model: object) -> bool:
    """Whether it is an nn.Module. torch is not imported for that."""
    return inherits(model, "torch.nn.modules.module", "Module")


def inherits(value: object, package: str, name: str) -> bool:
    """Whether a class of that name is among the ancestors. package: it or a module in it has the class.

    The package is not imported.
    """
    return any(
        kind.__name__ == name and f"{kind.__module__}.".startswith(f"{package}.") for kind in type(value).__mro__
    )


def _refuse_options_of_networks(
    spec: str, model: object, weights: str | None, standardise: Standardisation | None
) -> None:
    if weights is not None:
        required = list_required_arguments(model) if callable(model) else []
        if required:
            raise needs_arguments_error(spec, required)
        raise InputError(
            f"--weights {weights} are for a torch module, and {spec} is a {type(model).__name__}: name a class, or a "
            "function without arguments, that makes the module"
        )
    if standardise is not None:
        raise InputError(
            f"--standardise is for torch modules, and {spec} is a {type(model).__name__}: standardise inside it"
        )


def _load_weights(
    network: nn.Module, path: Path, spec: str, standardise: Standardisation | None
) -> tuple[Standardisation | None, tuple[str, ...]]:
    """Returns the standardisation to use, the one given or the one in the file, and the class names of the file."""
    from smoothcert.models.own_weights import load_own_weights

    stored, class_names = load_own_weights(network, path, name=spec)
    if standardise is None or stored is None:
        return standardise or stored, class_names
    given = (tuple(standardise[0]), tuple(standardise[1]))
    if given != stored:
        raise ModelError(f"{path} says standardise is {stored}, but {given} was given; omit it to use what it says")
    return stored, class_names


def _is_random(network: nn.Module, spec: str, factory: Any) -> bool:
    """Whether another construction gives other numbers. A class may load its weights itself, or fix a seed.

    Layers such as LazyLinear draw their weights after the construction, when they see the first inputs.
    """
    import torch
    from torch.nn.parameter import is_lazy

    if any(map(is_lazy, _list_tensors(network))):
        return True
    try:
        other = call_factory(spec, factory)
        pairs = zip(_list_tensors(network), _list_tensors(other), strict=True)
        return not all(torch.equal(one, two) for one, two in pairs)
    except (ModelError, RuntimeError, ValueError, TypeError):  # cannot be made twice, or not compared
        return False


def _list_tensors(network: Any) -> list[Any]:
    return [*network.parameters(), *network.buffers()]


def _describe_random(spec: str) -> str:
    return (
        f"WARNING: {spec} was just constructed: its weights are random, and a second construction gave others. What is "
        "certified is an untrained network that exists only in this process: the run cannot be resumed, attacked or "
        "replayed. Give its weights by --weights FILE, or load them in the code"
    )
