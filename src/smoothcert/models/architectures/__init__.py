"""Networks by name.

`build` is the one door: it checks that the network fits the input, and puts `Standardise` in front when
asked. Importing this package does not import torch; building a network does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from smoothcert.errors import InputError

if TYPE_CHECKING:
    from torch import nn

Standardisation = tuple[Sequence[float], Sequence[float]]
"""(mean, std), one number each or one per channel."""

ARCHITECTURES = ("mlp", "lenet", "small_net", "cifar_resnet20", "cifar_resnet110", "resnet50")
"""The names people use. Also valid: `mlp-WIDTH-WIDTH…` for other hidden widths, `cifar_resnetDEPTH` for depth
6k+2.
"""


def build(
    arch: str, *, num_classes: int, input_shape: Sequence[int], standardise: Standardisation | None = None
) -> nn.Module:
    """A network with fresh weights, taking (B, *input_shape) and giving (B, num_classes) logits.

    With `standardise` it is Sequential(Standardise, network), so parameter names get the prefix `1.`;
    without, it is the bare network.
    """
    if num_classes < 2:
        raise InputError(f"a classifier needs at least 2 classes, not {num_classes}")
    if not input_shape or min(input_shape) < 1:
        raise InputError(f"input shape {tuple(input_shape)} is not usable: give positive sizes, as in (1, 28, 28)")
    network = _network(arch, num_classes, tuple(input_shape))
    if standardise is None:
        return network
    return _standardised(network, tuple(input_shape), standardise)


def canonical_name(arch: str) -> str:
    """`arch` as checkpoints and manifests spell it; InputError with the near names if there is no such
    network.
    """
    name = arch.strip().lower()
    name = name.replace("_", "-") if name.startswith("mlp") else name.replace("-", "_")
    if name in ARCHITECTURES or re.fullmatch(r"mlp(-[1-9]\d{0,8})+|cifar_resnet[1-9]\d{0,4}", name):
        return name
    near = difflib.get_close_matches(name, ARCHITECTURES, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(ARCHITECTURES)}"
    raise InputError(f"there is no architecture {arch!r}: {hint}")


def _network(arch: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    name = canonical_name(arch)
    if name.startswith("mlp"):
        return _mlp(name, num_classes, input_shape)
    if name.startswith("cifar_resnet"):
        return _cifar_resnet(name, num_classes, input_shape)
    return _CONVOLUTIONAL[name](num_classes, input_shape)


def _mlp(name: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    from smoothcert.models.architectures.mlp import MLP

    hidden = tuple(int(width) for width in name.split("-")[1:])
    return MLP(input_shape=input_shape, num_classes=num_classes, hidden=hidden or (200,))


def _cifar_resnet(name: str, num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    from smoothcert.models.architectures.cifar_resnet import CifarResNet

    depth = int(name.removeprefix("cifar_resnet"))
    channels = _channels(name, input_shape, side=32)
    return CifarResNet(depth=depth, channels=channels, num_classes=num_classes)


def _lenet(num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    from smoothcert.models.architectures.lenet import LeNet

    return LeNet(channels=_channels("lenet", input_shape, side=28), num_classes=num_classes)


def _small_net(num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    from smoothcert.models.architectures.small_net import SmallNet

    return SmallNet(channels=_channels("small_net", input_shape, side=7), num_classes=num_classes)


def _resnet50(num_classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    from smoothcert.models.architectures.resnet50 import ResNet50

    return ResNet50(channels=_channels("resnet50", input_shape, side=None), num_classes=num_classes)


_CONVOLUTIONAL: dict[str, Callable[[int, tuple[int, ...]], nn.Module]] = {
    "lenet": _lenet,
    "small_net": _small_net,
    "resnet50": _resnet50,
}


def _channels(name: str, input_shape: tuple[int, ...], *, side: int | None) -> int:
    """Channels of an image of the size the network needs; InputError otherwise."""
    fits = len(input_shape) == 3 and (side is None or input_shape[1:] == (side, side))
    if fits:
        return input_shape[0]
    wanted = "(channels, height, width)" if side is None else f"(channels, {side}, {side})"
    raise InputError(f"{name} takes inputs of shape {wanted}, not {input_shape}; mlp takes any shape")


def _standardised(network: nn.Module, input_shape: tuple[int, ...], standardise: Standardisation) -> nn.Module:
    from torch import nn

    from smoothcert.models.standardise import Standardise

    mean, std = standardise
    if len(mean) not in (1, input_shape[0]):
        raise InputError(
            f"standardisation has {len(mean)} means; inputs of shape {input_shape} need 1 or {input_shape[0]}"
        )
    return nn.Sequential(Standardise(mean, std), network)
