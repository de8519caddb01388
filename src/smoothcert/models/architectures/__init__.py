"""Networks by name.

`build` checks that the network fits the input, and puts `Standardise` in front if requested. Importing this package
does not import torch; building a network does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from smoothcert.errors import InputError

if TYPE_CHECKING:
    from torch import nn

Standardisation = tuple[Sequence[float], Sequence[float]]
"""(mean, std), one number each or one per channel."""

ARCHITECTURES = ("mlp", "lenet", "small_net", "cifar_resnet20", "cifar_resnet110", "resnet50")
"""The common names. Also valid: `mlp-WIDTH-WIDTH…` for other hidden widths, `cifar_resnetDEPTH` for depth 6k+2, and
`package.module:attribute` for code of the user.
"""


def build(
    arch: str, *, num_classes: int, input_shape: Sequence[int], standardise: Standardisation | None = None
) -> nn.Module:
    """A network with fresh weights that maps (B, *input_shape) to (B, num_classes) logits.

    With `standardise` it is Sequential(Standardise, network), so parameter names get the prefix `1.`; without, it is
    the bare network. A network of the user, `package.module:attribute`, *is imported and run*, and may have
    another number of logits.
    """
    shape = tuple(input_shape)
    if num_classes < 2:
        raise InputError(f"a classifier needs at least 2 classes, not {num_classes}")
    if not shape or min(shape) < 1:
        raise InputError(f"input shape {shape} is not usable: give positive sizes, as in (1, 28, 28)")
    network = _build_network(canonical_name(arch), num_classes, shape)
    return network if standardise is None else standardise_first(network, standardise, shape)


def standardise_first(
    network: nn.Module, standardise: Standardisation, input_shape: Sequence[int] | None
) -> nn.Sequential:
    """Sequential(Standardise, network); InputError if the numbers do not fit the input."""
    from torch import nn

    from smoothcert.models.standardise import Standardise

    mean, std = standardise
    if input_shape is not None and len(mean) not in (1, input_shape[0]):
        shape = tuple(input_shape)
        raise InputError(f"standardisation has {len(mean)} means; inputs of shape {shape} need 1 or {shape[0]}")
    return nn.Sequential(Standardise(mean, std), network)


def is_own(arch: str) -> bool:
    """Whether `arch` names code of the user. A class that is local to a function has <locals> in its name."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.<>]*", arch) is not None


def canonical_name(arch: str) -> str:
    """`arch` as spelled in checkpoints and manifests; InputError with similar names if there is no such network."""
    if is_own(arch.strip()):
        return arch.strip()
    name = arch.strip().lower()
    name = name.replace("_", "-") if name.startswith("mlp") else name.replace("-", "_")
    if name in ARCHITECTURES or re.fullmatch(r"mlp(-[1-9]\d{0,8})+|cifar_resnet[1-9]\d{0,4}", name):
        return name
    near = difflib.get_close_matches(name, ARCHITECTURES, n=2, cutoff=0.5)
    known = f"there are {', '.join(ARCHITECTURES)}, and package.module:attribute for your own"
    hint = f"did you mean {' or '.join(near)}?" if near else known
    raise InputError(f"there is no architecture {arch!r}: {hint}")


def _build_network(name: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    if is_own(name):
        return _build_own(name, input_shape)
    if name.startswith("mlp"):
        from smoothcert.models.architectures.mlp import MLP

        hidden = tuple(int(width) for width in name.split("-")[1:])
        return MLP(input_shape=input_shape, num_classes=num_classes, hidden=hidden or (200,))
    if name.startswith("cifar_resnet"):
        from smoothcert.models.architectures.cifar_resnet import CifarResNet

        depth = int(name.removeprefix("cifar_resnet"))
        return CifarResNet(depth=depth, channels=_channels(name, input_shape, side=32), num_classes=num_classes)
    if name == "lenet":
        from smoothcert.models.architectures.lenet import LeNet

        return LeNet(channels=_channels(name, input_shape, side=28), num_classes=num_classes)
    if name == "small_net":
        from smoothcert.models.architectures.small_net import SmallNet

        return SmallNet(channels=_channels(name, input_shape, side=7), num_classes=num_classes)
    assert name == "resnet50"
    from smoothcert.models.architectures.resnet50 import ResNet50

    return ResNet50(channels=_channels(name, input_shape, side=None), num_classes=num_classes)


def _build_own(name: str, input_shape: tuple[int, ...]) -> nn.Module:
    from smoothcert.models.architectures.own_network import import_network, initialise_lazy_layers

    network = import_network(name)
    initialise_lazy_layers(network, input_shape=input_shape, name=name)
    return network


def _channels(name: str, input_shape: tuple[int, ...], *, side: int | None) -> int:
    """Channels of an image of the size the network needs; InputError for other shapes."""
    if len(input_shape) == 3 and (side is None or input_shape[1:] == (side, side)):
        return input_shape[0]
    wanted = "(channels, height, width)" if side is None else f"(channels, {side}, {side})"
    raise InputError(f"{name} takes inputs of shape {wanted}, not {input_shape}; mlp takes any shape")
