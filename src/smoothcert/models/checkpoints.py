"""Checkpoints that hold tensors and plain text, never code.

smoothcert writes safetensors files whose metadata has a JSON header: the network, its training, and a digest of the
tensors to detect damage. Files of other programs are read with `torch.load(weights_only=True)` and a warning.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from smoothcert.errors import InputError, MissingExtraError, ModelError, SmoothcertError
from smoothcert.files import require_readable, write_whole
from smoothcert.models.architectures import Standardisation, build, canonical_name, is_own
from smoothcert.models.digests import file_digest
from smoothcert.models.published_networks import find_published, guess_input_shape, guess_num_classes
from smoothcert.models.torch_digest import feed_tensors
from smoothcert.strict_json import strict_loads

FORMAT_VERSION = 1
_METADATA_KEY = "smoothcert"
_SMALL = 1_000_000
"""A network that has this many weights more than its file is refused without being built. A smaller one is built, so
that the message can name what is missing.
"""


_STATE_ENTRIES = ("state_dict", "model_state_dict", "model")
"""Where training programs put the weights in a checkpoint that also holds other things."""


class ForeignCheckpointWarning(UserWarning):
    """A checkpoint that smoothcert did not write was read; the message has its digest."""


@dataclass(frozen=True, slots=True)
class CheckpointHeader:
    """Description of the network in a checkpoint. `training` holds plain JSON facts for people.

    class_names: one for each class, from the training data; empty if classes are only numbered. selector: of a network
    that chooses a noise level, the levels and its own noise level (`sigma.selected`); None for other networks.
    """

    arch: str
    num_classes: int
    input_shape: tuple[int, ...]
    standardise: Standardisation | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    selector: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if len(self.class_names) not in (0, self.num_classes):
            raise ValueError(f"{len(self.class_names)} names for {self.num_classes} classes")

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT_VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        standardise = document["standardise"]
        return cls(
            arch=str(document["arch"]),
            num_classes=int(document["num_classes"]),
            input_shape=tuple(int(size) for size in document["input_shape"]),
            standardise=None if standardise is None else (tuple(standardise[0]), tuple(standardise[1])),
            training=dict(document["training"]),
            class_names=tuple(map(str, document.get("class_names", ()))),  # older checkpoints have none
            selector=document.get("selector"),
        )


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A network in evaluation mode on the CPU, its description, and the SHA-256 of its file."""

    module: nn.Module
    header: CheckpointHeader
    file_digest: str


def save_checkpoint(path: Path, module: nn.Module, header: CheckpointHeader, *, overwrite: bool = False) -> None:
    """Write the tensors of `module` with `header`, atomically. An existing file is refused unless `overwrite`."""
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists and is never overwritten; choose another name or move it away")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    write_tensors(path, tensors, header.to_json())


def load_checkpoint(
    path: Path,
    *,
    arch: str | None = None,
    num_classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    standardise: Standardisation | None = None,
) -> LoadedCheckpoint:
    """Read a checkpoint of smoothcert, whose header must agree with the arguments, or of another program.

    Other programs write `{arch, state_dict, …}`, a bare state_dict, or bare safetensors. The prefixes `module.` (data
    parallel) and `1.` (a network after its normalisation layer) are removed. Such files do not contain the
    normalisation: it is known for published checkpoints, and `standardise` overrides it. `arch`, `num_classes` and
    `input_shape` override or supply what the file does not say.

    A checkpoint of the user's own network needs `arch`, `package.module:attribute`, which *is imported and run*. Code
    that only the file names is never imported.
    """
    if path.suffix.lower() != ".safetensors":
        document, digest = read_torch_file(path), file_digest(path)
        return _load_foreign(path, digest, document, arch, num_classes, input_shape, standardise)
    tensors, header_document = read_tensors(path)
    if header_document is None:
        return _load_foreign(path, file_digest(path), tensors, arch, num_classes, input_shape, standardise)
    loaded = _load_own(path, tensors, header_document, arch)
    header = loaded.header
    if input_shape is not None and input_shape != header.input_shape:
        raise ModelError(f"{path} takes inputs of shape {header.input_shape}, but the inputs have shape {input_shape}")
    given = {
        "arch": None if arch is None else canonical_name(arch),
        "num_classes": num_classes,
        "standardise": None if standardise is None else (tuple(standardise[0]), tuple(standardise[1])),
    }
    for name, value in given.items():
        stored = getattr(header, name)
        if value is not None and value != stored:
            raise ModelError(
                f"{path} says {name} is {stored}, but {value} was given; omit it to use the checkpoint as it is"
            )
    return loaded


def write_tensors(path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None:
    """Write a safetensors file with `document` as JSON in its metadata, atomically even in a power failure."""
    safetensors = _import_safetensors()
    tensors = _separate(tensors)
    stamped = {**document, "tensors_sha256": _tensors_digest(tensors)}
    data = safetensors.torch.save(dict(tensors), metadata={_METADATA_KEY: json.dumps(stamped, allow_nan=False)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Tensors and JSON document of a safetensors file; the document is None if another program wrote the file."""
    safetensors = _import_safetensors()
    try:
        with safetensors.safe_open(_require_file(path), framework="pt") as stream:
            metadata = stream.metadata() or {}
            tensors: dict[str, Tensor] = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        document: Any = strict_loads(metadata[_METADATA_KEY]) if _METADATA_KEY in metadata else None
    except Exception as error:  # safetensors and torch raise their own unrelated classes
        if isinstance(error, SmoothcertError):
            raise
        raise ModelError(
            f"{path} is not a readable safetensors file: {error}; it may be cut short or damaged"
        ) from error
    if document is None:
        return tensors, None
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise ModelError(f"{path} has checkpoint format {version}; this smoothcert reads format {FORMAT_VERSION}")
    if document.get("tensors_sha256") != _tensors_digest(tensors):
        raise ModelError(f"{path} is damaged: its tensors do not match the digest written with them")
    return tensors, document


def read_training_facts(path: Path) -> Mapping[str, Any]:
    """The `training` of a checkpoint's header, without reading its tensors; empty for files of other programs."""
    with _import_safetensors().safe_open(_require_file(path), framework="pt") as stream:
        metadata = stream.metadata() or {}
    document = strict_loads(metadata[_METADATA_KEY]) if _METADATA_KEY in metadata else None
    return {} if document is None else read_header(path, document).training


def read_header(path: Path, document: Mapping[str, Any]) -> CheckpointHeader:
    """The header of a checkpoint of smoothcert; a ModelError where it is incomplete."""
    try:
        return CheckpointHeader.from_json(document)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise ModelError(
            f"{path} has an incomplete header ({error!r}); write it again with smoothcert train"
        ) from error


def _load_own(
    path: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any], arch: str | None
) -> LoadedCheckpoint:
    header = read_header(path, document)
    if is_own(header.arch):
        header = replace(header, arch=_require_named_code(path, header.arch, arch))
    module = _build_network(path, header, tensors)
    fill_network(module, tensors, path)
    return LoadedCheckpoint(module=module, header=header, file_digest=file_digest(path))


def _load_foreign(
    path: Path,
    digest: str,
    document: Any,
    arch: str | None,
    num_classes: int | None,
    input_shape: tuple[int, ...] | None,
    standardise: Standardisation | None,
) -> LoadedCheckpoint:
    state, key = find_state(document, path)
    stated = None if key is None else document.get("arch")
    stated_arch = stated if isinstance(stated, str) else None
    name = arch or stated_arch
    if name is None:
        raise ModelError(
            f"{path} does not say which network it holds: give arch (--arch), for example resnet50; or, for a network "
            f"of your own, the code that makes it: --model mynet:Net --weights {path}"
        )
    if is_own(name):
        name = _require_named_code(path, name, arch)
        raise ModelError(f"{path} was not written by smoothcert: load it with --model {name} --weights {path}")
    tensors, stored_standardise = _remove_prefixes(state)
    known = find_published(name, stated_arch, path)
    tensors = known.rename(tensors)
    shape = input_shape or known.input_shape or guess_input_shape(known.arch, tensors)
    if shape is None:
        raise ModelError(f"{path} does not say which inputs {name} takes: give input_shape, for example (1, 28, 28)")
    header = CheckpointHeader(
        arch=known.arch,
        num_classes=num_classes or guess_num_classes(tensors, path),
        input_shape=shape,
        standardise=standardise or stored_standardise or known.standardise,
    )
    module = _build_network(path, header, tensors)
    network = module if header.standardise is None else module[1]  # type: ignore[index]
    fill_network(network, tensors, path)
    warnings.warn(
        f"{path.name} was not written by smoothcert; tensors were read, no code was run. SHA-256 {digest}",
        ForeignCheckpointWarning,
        stacklevel=3,
    )
    return LoadedCheckpoint(module=module, header=header, file_digest=digest)


def _require_named_code(path: Path, stated: str, given: str | None) -> str:
    """The code that builds the network, if the user named it. What only a file names may be anybody's code."""
    if given is None:
        raise ModelError(
            f"{path} holds the weights of {stated}, which is not a network of smoothcert, and code named by a file is "
            f"never imported. If you trust {stated}, add --arch {stated} (arch= of load_classifier in Python), or name "
            "where that network is now"
        )
    if not is_own(given):
        raise ModelError(f"{path} holds the weights of {stated}, but arch {given} was given: give --arch {stated}")
    return canonical_name(given)


def _tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    hasher = hashlib.sha256()
    feed_tensors(hasher, tensors)
    return hasher.hexdigest()


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with copies of those that share memory, such as tied weights: safetensors refuses them."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
    return separate


def _require_file(path: Path) -> Path:
    require_readable(path, ModelError(f"there is no file {path}; give the path of a checkpoint"))
    return path


def _import_safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise MissingExtraError("safetensors", "torch", "reading and writing checkpoints") from error
    return safetensors


def read_torch_file(path: Path) -> Any:
    """The tensors and plain values of a torch file. No code in it is run."""
    try:
        return torch.load(_require_file(path), map_location="cpu", weights_only=True)
    except ModelError:
        raise
    except Exception as error:  # torch raises many types, from EOFError to UnpicklingError, for a bad file
        reason = next((line for line in str(error).splitlines() if "GLOBAL" in line), "").strip()
        why = f"it asks to run code ({reason[:160]})" if reason else "it is cut short, damaged, or not a torch file"
        raise ModelError(
            f"{path} was not loaded: {why}; only files of plain tensors are read. If it holds a whole module, save its "
            "weights alone, torch.save(net.state_dict(), FILE), and give --model mynet:Net --weights FILE"
        ) from error


def find_state(document: Any, path: Path) -> tuple[dict[str, Tensor], str | None]:
    """The named tensors of a torch file, and the entry they were found in; None if they are the whole file."""
    entries = document if isinstance(document, Mapping) else {}
    key = next((name for name in _STATE_ENTRIES if isinstance(entries.get(name), Mapping)), None)
    state = document if key is None else entries[key]
    is_named = isinstance(state, Mapping) and state and all(isinstance(name, str) for name in state)
    if not is_named or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(
            f"{path} holds a {type(document).__name__}, not named tensors; "
            "expected {'arch': …, 'state_dict': …} or a state_dict"
        )
    check_plain(state, path)
    return dict(state), key


def check_plain(tensors: Mapping[str, Tensor], path: Path) -> None:
    """ModelError unless all tensors are arrays of real numbers stored in the file.

    A tensor may claim to be larger than its storage, by any factor.
    """
    for name, tensor in tensors.items():
        is_usual = tensor.layout is torch.strided and tensor.device.type == "cpu"
        if not is_usual or tensor.is_nested or tensor.is_quantized or tensor.is_complex():
            kind = "nested" if tensor.is_nested else f"{tensor.dtype} {tensor.layout} on {tensor.device.type}"
            raise ModelError(f"{path} holds {name} as {kind}; expected plain tensors of real numbers")
    numbers, size = sum(tensor.numel() for tensor in tensors.values()), path.stat().st_size
    if numbers > size:
        raise ModelError(f"{path} claims to hold {numbers:,} numbers in its {size:,} bytes; save plain tensors")


def _remove_prefixes(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Standardisation | None]:
    """Tensors by the names in the bare network, and (mean, std) if a normalisation layer `0.` was saved too."""
    tensors = dict(state)
    standardise: Standardisation | None = None
    while True:
        first_layer = {name for name in tensors if name.startswith("0.")}
        rest = tensors.keys() - first_layer
        if rest and all(name.startswith("module.") for name in tensors):
            tensors = {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
        elif rest and all(name.startswith("1.") for name in rest):
            if {"0.mean", "0.std"} <= first_layer:
                mean, std = (tuple(float(value) for value in tensors[name].reshape(-1)) for name in ("0.mean", "0.std"))
                standardise = mean, std
            tensors = {name.removeprefix("1."): tensors[name] for name in tensors if name in rest}
        else:
            return tensors, standardise


def _build_network(path: Path, header: CheckpointHeader, tensors: Mapping[str, Tensor]) -> nn.Module:
    """The described network, if its size is close to that of the tensors."""
    check_plain(tensors, path)
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
    """A lower bound on the number of weights of the network, computed without allocating them.

    0 for a network of the user, who named it and may build what they like.
    """
    if is_own(header.arch):
        return 0
    if header.arch.startswith("cifar_resnet"):
        # Building the layers is slow even without weights; every layer has at least one tensor.
        if int(header.arch.removeprefix("cifar_resnet")) > len(tensors):
            raise InputError(f"{header.arch} has more layers than the file has tensors, {len(tensors)}")
        return 64 * header.num_classes + math.prod(header.input_shape[:1])
    with torch.device("meta"):
        network = build(header.arch, num_classes=header.num_classes, input_shape=header.input_shape)
    return sum(tensor.numel() for tensor in network.state_dict().values())


def fill_network(network: nn.Module, tensors: Mapping[str, Tensor], path: Path, *, name: str | None = None) -> None:
    """Copy the tensors into the network; ModelError names the first few that do not fit. name: of the network."""
    wanted = network.state_dict()
    # Counters of seen batches are missing in old files and do not affect the results.
    required = {one for one in wanted if not one.endswith("num_batches_tracked")}
    problems = _list_names("lacks", sorted(required - tensors.keys()))
    problems += _list_names("has besides", sorted(tensors.keys() - wanted.keys()))
    shapes = [
        f"{one} of shape {tuple(tensors[one].shape)} instead of {tuple(wanted[one].shape)}"
        for one in wanted.keys() & tensors.keys()
        if tensors[one].shape != wanted[one].shape
    ]
    problems += _list_names("has", sorted(shapes))
    if problems:
        raise ModelError(f"{path} does not fit {name or type(network).__name__}: it {'; it '.join(problems)}")
    # In the precision of the network: a weight of 1e300 is infinite there.
    if not all(bool(torch.isfinite(tensor.to(torch.float32)).all()) for tensor in tensors.values()):
        raise ModelError(f"{path} holds weights that are not finite numbers; the training it came from diverged")
    network.load_state_dict(dict(tensors), strict=False)


def _list_names(verb: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"{verb} {', '.join(names[:3])}{more}"]
