"""What files of other programs do not say about their network: known for published ones, else guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from smoothcert.errors import InputError, ModelError
from smoothcert.models.architectures import Standardisation, canonical_name


@dataclass(frozen=True, slots=True)
class PublishedNetwork:
    """What the files of a published checkpoint do not say.

    layers: the authors' names of the layers, in the order in which our network has them as `layers.0`, `layers.1`, ….
    """

    arch: str
    input_shape: tuple[int, ...] | None = None
    standardise: Standardisation | None = None
    layers: tuple[str, ...] = ()

    def rename(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors by the names of our network. A file that has such names already is left as it is."""
        if any(name.startswith("layers.") for name in tensors):
            return dict(tensors)
        ours = {theirs: f"layers.{place}" for place, theirs in enumerate(self.layers)}
        parts = {name: name.rpartition(".") for name in tensors}
        return {f"{ours.get(layer, layer)}{dot}{last}": tensors[name] for name, (layer, dot, last) in parts.items()}


_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_SMALL_MNIST = ((0.1307,), (0.2307,))
_THREE_LINEAR = ("lin1", "lin2", "lin3")

_PUBLISHED = {
    "cifar_resnet20": PublishedNetwork("cifar_resnet20", (3, 32, 32), _CIFAR10),
    "cifar_resnet110": PublishedNetwork("cifar_resnet110", (3, 32, 32), _CIFAR10),
    "resnet50": PublishedNetwork("resnet50", (3, 224, 224), _IMAGENET),
    "small_mnist_net": PublishedNetwork("small_net", (1, 7, 7), _SMALL_MNIST),
    "small_mnist_pca_net": PublishedNetwork("mlp-100-100", (10,), layers=_THREE_LINEAR),
    "swiss_roll_net": PublishedNetwork("mlp-10-10", (2,), layers=_THREE_LINEAR),
}


def find_published(name: str, stated: str | None, path: Path) -> PublishedNetwork:
    """What is known about the network. Giving the architecture that the file states changes nothing."""
    published = _PUBLISHED.get(stated or "")
    if published is not None and name in (stated, published.arch):
        return published
    try:
        return _PUBLISHED.get(name) or PublishedNetwork(arch=canonical_name(name))
    except InputError as error:
        raise ModelError(f"{path}: {error}; give the nearest with arch (--arch)") from error


def guess_input_shape(arch: str, tensors: Mapping[str, Tensor]) -> tuple[int, ...] | None:
    sides = {"lenet": 28, "small_net": 7}
    if arch in sides and "conv1.weight" in tensors and tensors["conv1.weight"].ndim == 4:
        return (int(tensors["conv1.weight"].shape[1]), sides[arch], sides[arch])
    if arch.startswith("cifar_resnet"):
        return (3, 32, 32)
    if arch.startswith("mlp") and "layers.0.weight" in tensors and tensors["layers.0.weight"].ndim == 2:
        return (int(tensors["layers.0.weight"].shape[1]),)
    return None


def guess_num_classes(tensors: Mapping[str, Tensor], path: Path) -> int:
    """Rows of the last matrix, because every network here ends in a linear layer."""
    matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2]
    if not matrices:
        raise ModelError(f"{path} holds no linear layer to read the number of classes from; give num_classes")
    return int(matrices[-1].shape[0])
