"""Checkpoints that hold tensors and plain text, never code.

Ours are safetensors files whose metadata carries a JSON header: what the network is, what it was trained on,
and a digest of the tensors, so that damage is noticed. Files of others are read with
`torch.load(weights_only=True)`, with a warning and their digest.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError, MissingExtraError, ModelError, SmoothcertError
from smoothcert.files import write_whole
from smoothcert.models.architectures import Standardisation, build, canonical_name
from smoothcert.models.digests import file_digest
from smoothcert.models.module_digest import feed_tensors
from smoothcert.strict_json import strict_loads

FORMAT_VERSION = 1
_METADATA_KEY = "smoothcert"
_SMALL = 1_000_000
"""Weights that a network may have beyond its file before it is refused unbuilt: then what is missing can be named."""


class ForeignCheckpointWarning(UserWarning):
    """A checkpoint that smoothcert did not write was read; its digest is in the message."""


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    """What a checkpoint says about its network. `training` holds plain JSON facts for people."""

    arch: str
    num_classes: int
    input_shape: tuple[int, ...]
    standardise: Standardisation | None = None
    training: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "arch": self.arch,
            "num_classes": self.num_classes,
            "input_shape": list(self.input_shape),
            "standardise": None if self.standardise is None else [list(part) for part in self.standardise],
            "training": dict(self.training),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        standardise = document["standardise"]
        return cls(
            arch=str(document["arch"]),
            num_classes=int(document["num_classes"]),
            input_shape=tuple(int(size) for size in document["input_shape"]),
            standardise=None if standardise is None else (tuple(standardise[0]), tuple(standardise[1])),
            training=dict(document["training"]),
        )


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A network in evaluation mode on the processor, what it is, and the SHA-256 of the file it came from."""

    module: nn.Module
    header: CheckpointHeader
    file_digest: str


def save_checkpoint(path: Path, module: nn.Module, header: CheckpointHeader, *, overwrite: bool = False) -> None:
    """Writes the tensors of `module` with `header`, all or nothing. An existing file is refused unless
    `overwrite`.
    """
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists and is never overwritten; choose another name or move it away")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    write_tensors(path, tensors, header.to_json())


def load_checkpoint(path: Path) -> LoadedCheckpoint:
    """Reads what `save_checkpoint` wrote; a ModelError says what is wrong with a file that is damaged or not
    ours.
    """
    tensors, document = read_tensors(path)
    if document is None:
        raise ModelError(f"{path} holds tensors but no smoothcert header: say which network it is with arch (--arch)")
    try:
        header = CheckpointHeader.from_json(document)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ModelError(
            f"{path} has an incomplete header ({error!r}); write it again with smoothcert train"
        ) from error
    module = _fresh_network(path, header, tensors)
    _fill(module, tensors, path)
    return LoadedCheckpoint(module=module, header=header, file_digest=file_digest(path))


def load_any(
    path: Path,
    *,
    arch: str | None = None,
    num_classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    standardise: Standardisation | None = None,
) -> LoadedCheckpoint:
    """`load_checkpoint` or `load_foreign`, whichever the file is; contradictions with the header are refused."""
    if path.suffix.lower() != ".safetensors" or read_tensors(path)[1] is None:
        return load_foreign(path, arch=arch, num_classes=num_classes, input_shape=input_shape, standardise=standardise)
    loaded = load_checkpoint(path)
    header = loaded.header
    given = {
        "arch": None if arch is None else canonical_name(arch),
        "num_classes": num_classes,
        "standardise": None if standardise is None else (tuple(standardise[0]), tuple(standardise[1])),
    }
    if input_shape is not None and input_shape != header.input_shape:
        raise ModelError(f"{path} takes inputs of shape {header.input_shape}, but the inputs have shape {input_shape}")
    for name, value in given.items():
        stored = getattr(header, name)
        if value is not None and value != stored:
            raise ModelError(
                f"{path} says {name} is {stored}, but {value} was given; leave it out to use the checkpoint as it is"
            )
    return loaded


def load_foreign(
    path: Path,
    *,
    arch: str | None = None,
    num_classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    standardise: Standardisation | None = None,
) -> LoadedCheckpoint:
    """Reads weights written by other programs: `{arch, state_dict, …}`, a bare state_dict, or bare
    safetensors.

    The prefixes `module.` (data parallel) and `1.` (a network behind its normalisation layer) are removed.
    What the normalisation was is not in such files: it is known for the architectures of the published
    checkpoints, and `standardise` overrides it. `arch`, `num_classes` and `input_shape` override or supply
    what the file does not say.
    """
    digest = file_digest(_existing(path))
    document = read_tensors(path)[0] if path.suffix.lower() == ".safetensors" else _load_tensors_only(path)
    stated_arch, state = _arch_and_state(document, path)
    name = arch or stated_arch
    if name is None:
        raise ModelError(f"{path} does not say which network it holds: give arch (--arch), for example resnet50")
    tensors, stored_standardise = _without_prefixes(state)
    known = _known(name, stated_arch, path)
    shape = input_shape or _guessed_shape(known, tensors)
    if shape is None:
        raise ModelError(f"{path} does not say which inputs {name} takes: give input_shape, for example (1, 28, 28)")
    header = CheckpointHeader(
        arch=known.arch,
        num_classes=num_classes or _guessed_num_classes(tensors, path),
        input_shape=shape,
        standardise=standardise or stored_standardise or known.standardise,
    )
    module = _fresh_network(path, header, tensors)
    network = module if header.standardise is None else module[1]  # type: ignore[index]
    _fill(network, tensors, path)
    warnings.warn(
        f"{path.name} was not written by smoothcert; tensors were read, no code was run. SHA-256 {digest}",
        ForeignCheckpointWarning,
        stacklevel=2,
    )
    return LoadedCheckpoint(module=module, header=header, file_digest=digest)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None:
    """A safetensors file with `document` as JSON in its metadata; it appears whole or not at all, also in a
    power cut.
    """
    safetensors = _import_safetensors()
    stamped = {**document, "tensors_sha256": _tensors_digest(tensors)}
    data = safetensors.torch.save(dict(tensors), metadata={_METADATA_KEY: json.dumps(stamped, allow_nan=False)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Tensors and JSON document of a safetensors file; None for the document if another program wrote the
    file.
    """
    safetensors = _import_safetensors()
    try:
        with safetensors.safe_open(_existing(path), framework="pt") as stream:
            metadata = stream.metadata() or {}
            tensors: dict[str, Tensor] = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        document = strict_loads(metadata[_METADATA_KEY]) if _METADATA_KEY in metadata else None
    except Exception as error:  # safetensors and torch raise their own unrelated classes
        if isinstance(error, SmoothcertError):
            raise
        raise ModelError(
            f"{path} is not a readable safetensors file: {error}; it may be cut short or damaged"
        ) from error
    if document is not None:
        _check_document(document, tensors, path)
    return tensors, document


def _check_document(document: Any, tensors: Mapping[str, Tensor], path: Path) -> None:
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise ModelError(f"{path} has checkpoint format {version}; this smoothcert reads format {FORMAT_VERSION}")
    if document.get("tensors_sha256") != _tensors_digest(tensors):
        raise ModelError(f"{path} is damaged: its tensors do not match the digest written with them")


def _tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    hasher = hashlib.sha256()
    feed_tensors(hasher, tensors)
    return hasher.hexdigest()


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise ModelError(f"there is no file {path}; give the path of a checkpoint")
    return path


def _import_safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise MissingExtraError("safetensors", "torch", "reading and writing checkpoints") from error
    return safetensors


def _load_tensors_only(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a dozen kinds, from EOFError to UnpicklingError, for a bad file
        reason = next((line for line in str(error).splitlines() if "GLOBAL" in line), "").strip()
        why = f"it asks to run code ({reason[:160]})" if reason else "it is cut short, damaged, or not a torch file"
        raise ModelError(f"{path} was not loaded: {why}; only files of plain tensors are read") from error


def _arch_and_state(document: Any, path: Path) -> tuple[str | None, dict[str, Tensor]]:
    """(architecture the file states or None, named tensors)."""
    if isinstance(document, Mapping) and isinstance(document.get("state_dict"), Mapping):
        stated = document.get("arch")
        state = document["state_dict"]
    else:
        stated, state = None, document
    named = isinstance(state, Mapping) and state and all(isinstance(name, str) for name in state)
    if not named or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(
            f"{path} holds a {type(document).__name__}, not named tensors; "
            "expected {'arch': …, 'state_dict': …} or a state_dict"
        )
    _check_plain(state, path)
    return (stated if isinstance(stated, str) else None), dict(state)


def _check_plain(tensors: Mapping[str, Tensor], path: Path) -> None:
    """ModelError for what is not simply an array of real numbers that lie in the file.

    A tensor may say that it is larger than what is stored of it, by a factor without end.
    """
    for name, tensor in tensors.items():
        usual = tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not usual or tensor.is_nested or tensor.is_quantized or tensor.is_complex():
            kind = "nested" if tensor.is_nested else f"{tensor.dtype} {tensor.layout} on {tensor.device.type}"
            raise ModelError(f"{path} holds {name} as {kind}; expected plain tensors of real numbers")
    numbers, size = sum(tensor.numel() for tensor in tensors.values()), path.stat().st_size
    if numbers > size:
        raise ModelError(f"{path} claims to hold {numbers:,} numbers in its {size:,} bytes; save plain tensors")


def _without_prefixes(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Standardisation | None]:
    """Tensors under the bare network's names, and (mean, std) if a normalisation layer `0.` was saved with
    them.
    """
    tensors = dict(state)
    standardise: Standardisation | None = None
    while True:
        first_layer = {name for name in tensors if name.startswith("0.")}
        rest = tensors.keys() - first_layer
        if rest and all(name.startswith("module.") for name in tensors):
            tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
        elif rest and all(name.startswith("1.") for name in rest):
            if {"0.mean", "0.std"} <= first_layer:
                standardise = _numbers(tensors["0.mean"]), _numbers(tensors["0.std"])
            tensors = {name.removeprefix("1."): tensors[name] for name in tensors if name in rest}
        else:
            return tensors, standardise


def _numbers(tensor: Tensor) -> tuple[float, ...]:
    return tuple(float(value) for value in tensor.reshape(-1))


def _fresh_network(path: Path, header: CheckpointHeader, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The network that is described, if it is about as large as the tensors that are to fill it."""
    _check_plain(tensors, path)
    try:
        wanted, held = _least_values(header, tensors), sum(tensor.numel() for tensor in tensors.values())
        if wanted > 2 * held + _SMALL:
            raise ModelError(
                f"{path} does not fit {header.arch} for {header.num_classes} classes and inputs of shape "
                f"{header.input_shape}: that network has {wanted:,} weights, the file {held:,}"
            )
        return build(
            header.arch,
            num_classes=header.num_classes,
            input_shape=header.input_shape,
            standardise=header.standardise,
        ).eval()
    except (InputError, ValueError, TypeError, OverflowError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{path} describes a network that cannot be built: {reason}") from error


def _least_values(header: CheckpointHeader, tensors: Mapping[str, Tensor]) -> int:
    """How many numbers the network has, or at least has, found out without making room for them."""
    if header.arch.startswith("cifar_resnet"):
        # Made layer by layer, at a price even without their weights; each has some tensors.
        if int(header.arch.removeprefix("cifar_resnet")) > len(tensors):
            raise InputError(f"{header.arch} has more layers than the file has tensors, {len(tensors)}")
        return 64 * header.num_classes + math.prod(header.input_shape[:1])
    with torch.device("meta"):
        network = build(header.arch, num_classes=header.num_classes, input_shape=header.input_shape)
    return sum(tensor.numel() for tensor in network.state_dict().values())


def _checked_name(arch: str, path: Path) -> str:
    try:
        return canonical_name(arch)
    except InputError as error:
        raise ModelError(f"{path}: {error}; give the nearest with arch (--arch)") from error


def _fill(network: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copies the tensors in; ModelError names the first few that are missing, unexpected or of another shape."""
    wanted = network.state_dict()
    # Counters of seen batches: absent from old files, and without influence on what the network computes.
    required = {name for name in wanted if not name.endswith("num_batches_tracked")}
    problems = _listing("lacks", sorted(required - tensors.keys()))
    problems += _listing("has besides", sorted(tensors.keys() - wanted.keys()))
    shapes = [
        f"{name} {tuple(tensors[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in wanted.keys() & tensors.keys()
        if tensors[name].shape != wanted[name].shape
    ]
    problems += _listing("has the shape of", sorted(shapes))
    if problems:
        raise ModelError(f"{path} does not fit {type(network).__name__}: it {'; it '.join(problems)}")
    # In the precision they are used in: a weight of 1e300 is infinite there.
    if not all(bool(torch.isfinite(tensor.to(torch.float32)).all()) for tensor in tensors.values()):
        raise ModelError(f"{path} holds weights that are not finite numbers; the training it came from diverged")
    network.load_state_dict(dict(tensors), strict=False)


def _listing(verb: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"{verb} {', '.join(names[:3])}{more}"]


@dataclass(frozen=True, slots=True)
class _Published:
    """What the code that wrote a published checkpoint knew and the file does not say."""

    arch: str
    input_shape: tuple[int, ...] | None = None
    standardise: Standardisation | None = None


_CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_SMALL_MNIST = ((0.1307,), (0.2307,))

_PUBLISHED = {
    "cifar_resnet20": _Published("cifar_resnet20", (3, 32, 32), _CIFAR10),
    "cifar_resnet110": _Published("cifar_resnet110", (3, 32, 32), _CIFAR10),
    "resnet50": _Published("resnet50", (3, 224, 224), _IMAGENET),
    "small_mnist_net": _Published("small_net", (1, 7, 7), _SMALL_MNIST),
}


def _known(name: str, stated: str | None, path: Path) -> _Published:
    """What is known about the network; naming the architecture a file already states changes nothing."""
    published = _PUBLISHED.get(stated or "")
    if published is not None and name in (stated, published.arch):
        return published
    return _PUBLISHED.get(name) or _Published(arch=_checked_name(name, path))


def _guessed_shape(known: _Published, tensors: Mapping[str, Tensor]) -> tuple[int, ...] | None:
    if known.input_shape is not None:
        return known.input_shape
    sides = {"lenet": 28, "small_net": 7}
    if known.arch in sides and "conv1.weight" in tensors and tensors["conv1.weight"].ndim == 4:
        return (int(tensors["conv1.weight"].shape[1]), sides[known.arch], sides[known.arch])
    if known.arch.startswith("cifar_resnet"):
        return (3, 32, 32)
    if known.arch.startswith("mlp") and "layers.0.weight" in tensors and tensors["layers.0.weight"].ndim == 2:
        return (int(tensors["layers.0.weight"].shape[1]),)
    return None


def _guessed_num_classes(tensors: Mapping[str, Tensor], path: Path) -> int:
    """Rows of the last matrix: every network here ends in a linear layer."""
    matrices = [tensor for tensor in tensors.values() if tensor.ndim == 2]
    if not matrices:
        raise ModelError(f"{path} holds no linear layer, so the number of classes cannot be seen; give num_classes")
    return int(matrices[-1].shape[0])
