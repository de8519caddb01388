"""Base classifiers: anything that maps inputs to classes, behind one small protocol.

`as_classifier` takes an object, `load_classifier` a file or a `package.module:attribute`. Importing this
package does not import torch, onnxruntime or scikit-learn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from smoothcert.errors import InputError, MissingExtraError, ModelError
from smoothcert.models.architectures import ARCHITECTURES, Standardisation
from smoothcert.models.backends import (
    FASTEST,
    ONNXRUNTIME,
    TORCH,
    check_backend,
    check_own_backend,
    fastest,
    named_backend,
)
from smoothcert.models.base import BaseClassifier, DeviceClassifier, FirstLayerNoise, ScoringClassifier
from smoothcert.models.callable_classifier import CallableClassifier
from smoothcert.models.devices import import_torch, parse_device, resolve_device
from smoothcert.models.failures import MODEL_FAILURES
from smoothcert.models.guarded_classifier import GuardedClassifier
from smoothcert.own_code import imported

if TYPE_CHECKING:
    from smoothcert.models.checkpoints import CheckpointHeader

__all__ = [
    "ARCHITECTURES",
    "NOISE_AT",
    "BaseClassifier",
    "DeviceClassifier",
    "ScoringClassifier",
    "Standardisation",
    "as_classifier",
    "load_classifier",
    "parse_standardisation",
    "resolve_device",
]

TORCH_SUFFIXES = (".pth", ".pt", ".tar", ".ckpt", ".bin")
NOISE_AT = ("input", "first-layer")
"""Where the noise can be drawn; the first is the usual."""


def as_classifier(
    model: object,
    *,
    num_classes: int | None = None,
    input_shape: Sequence[int] | None = None,
    device: str = "auto",
    digest: str | None = None,
    noise_at: str = NOISE_AT[0],
    backend: str | None = None,
) -> BaseClassifier:
    """`model` as a base classifier: a torch module, a fitted scikit-learn classifier, a path, or any
    callable.

    num_classes may be left out where the model shows it (scikit-learn; or logits, when input_shape is given).
    input_shape is the shape of one input; a torch module on the processor runs about twice as fast when it is
    known. device: auto, cpu, cuda, cuda:1, mps. digest replaces the one computed; needed by callables whose
    weights lie elsewhere. What already is a base classifier is returned as it is. noise_at: "input", or "first-layer"
    for a torch network that sees its input through one linear layer (`first_layer`). backend: what computes a torch
    network: torch (the default), onnxruntime, or fastest, which measures both and takes the faster one. onnxruntime
    needs input_shape, and for it device "auto" is the processor.
    """
    shape = None if input_shape is None else tuple(int(size) for size in input_shape)
    classifier = _adapted(model, num_classes, shape, device, digest, noise_at, backend)
    if digest is not None and not isinstance(classifier, CallableClassifier):
        classifier.digest = digest
    return classifier


def load_classifier(
    spec: str | Path,
    *,
    num_classes: int | None = None,
    input_shape: Sequence[int] | None = None,
    device: str = "auto",
    arch: str | None = None,
    standardise: Standardisation | None = None,
    noise_at: str = NOISE_AT[0],
    backend: str | None = None,
) -> BaseClassifier:
    """The base classifier a file or an import names.

    `.safetensors` (ours, or bare weights with `arch`), `.onnx`, torch files (`.pth`, `.pt`, `.tar`: tensors
    only, never code), or `package.module:attribute`, which *imports and runs the named code*: an object, or a
    factory that takes no arguments. arch and standardise say what a file of another program
    does not; standardise=((0,), (1,)) means none. noise_at and backend as in `as_classifier`.
    """
    shape = None if input_shape is None else tuple(int(size) for size in input_shape)
    check_backend(backend)
    text = str(spec)
    suffix = Path(text).suffix.lower()
    if suffix == ".onnx":
        from smoothcert.models.onnx_classifier import OnnxClassifier

        _check_noise_at_input(noise_at, "an ONNX file")
        check_own_backend(backend, own=ONNXRUNTIME, model="an ONNX file")
        return OnnxClassifier(Path(text), num_classes=num_classes, input_shape=shape, device=device)
    if suffix == ".safetensors" or suffix in TORCH_SUFFIXES:
        return _from_checkpoint(Path(text), num_classes, shape, device, arch, standardise, noise_at, backend)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        model = _own_model(text)
        return as_classifier(
            model, num_classes=num_classes, input_shape=shape, device=device, noise_at=noise_at, backend=backend
        )
    raise ModelError(
        f"{text!r} is not a model smoothcert can load: give a .safetensors, .onnx, .pth or .pt file, or "
        "package.module:attribute for your own code"
    )


def parse_standardisation(text: str | None) -> Standardisation | None:
    """What the command line means: "MEAN/STD", one number or one for each channel, or "none"; nothing given is None."""
    if text is None:
        return None
    if text.strip().lower() == "none":
        return (0.0,), (1.0,)
    try:
        mean, std = (tuple(float(number) for number in part.split(",")) for part in text.split("/"))
    except ValueError:
        raise InputError(
            f"standardisation {text!r} cannot be read: expected MEAN/STD such as 0.13/0.31, or none"
        ) from None
    return mean, std


def _adapted(
    model: object,
    num_classes: int | None,
    input_shape: tuple[int, ...] | None,
    device: str,
    digest: str | None,
    noise_at: str,
    backend: str | None,
) -> BaseClassifier:
    parse_device(device)
    check_backend(backend)
    if noise_at not in NOISE_AT:
        raise InputError(f"there is no place {noise_at!r} for the noise: use {' or '.join(NOISE_AT)}")
    if _is_base_classifier(model):
        _check_noise_at_input(noise_at, f"a {type(model).__name__}, which is a base classifier already")
        own = named_backend(getattr(model, "backend", None))
        check_own_backend(backend, own=own, model=f"a {type(model).__name__}, a base classifier already")
        return cast(BaseClassifier, model)
    if isinstance(model, (str, Path)):
        return load_classifier(
            model,
            num_classes=num_classes,
            input_shape=input_shape,
            device=device,
            noise_at=noise_at,
            backend=backend,
        )
    if _inherits(model, "torch.nn.modules.module", "Module"):
        return _torch_classifier(model, num_classes, input_shape, device, noise_at, backend)
    _check_noise_at_input(noise_at, f"a {type(model).__name__}")
    check_own_backend(backend, own=None, model=f"a {type(model).__name__}")
    if _inherits(model, "sklearn.base", "BaseEstimator") or (hasattr(model, "predict") and hasattr(model, "classes_")):
        from smoothcert.models.sklearn_classifier import SklearnClassifier

        return SklearnClassifier(model, num_classes=num_classes, input_shape=input_shape)
    if type(model).__name__ == "InferenceSession":
        raise InputError(
            "an open onnxruntime session cannot be identified by its content; give the path of the .onnx file"
        )
    if callable(model):
        return CallableClassifier(model, num_classes=num_classes, input_shape=input_shape, digest=digest)
    raise InputError(
        f"a {type(model).__name__} is not a model: give a torch module, a fitted scikit-learn classifier, a path, or a "
        "function from arrays to logits or labels"
    )


def _own_model(spec: str) -> object:
    """What the name stands for; a base classifier of the user's own is held to the protocol."""
    try:
        model = imported(spec)
    except MODEL_FAILURES as error:
        if isinstance(error, Exception):
            raise
        raise ModelError(f"{spec} ended while it was imported: {type(error).__name__}: {error}") from error
    ours = type(model).__module__.partition(".")[0] == "smoothcert"
    if not _is_base_classifier(model) or ours or isinstance(model, (DeviceClassifier, FirstLayerNoise)):
        return model
    return GuardedClassifier(model, name=spec)


def _check_noise_at_input(noise_at: str, model: str) -> None:
    if noise_at != NOISE_AT[0]:
        raise InputError(f"--noise-at {noise_at} needs a torch network, whose layers can be told apart, not {model}")


def _is_base_classifier(model: object) -> bool:
    wanted = (
        "classify",
        "prepare_thread",
        "release_threads",
        "num_classes",
        "input_shape",
        "digest",
        "backend",
        "concurrency",
    )
    return not isinstance(model, type) and all(hasattr(model, name) for name in wanted)


def _inherits(model: object, module: str, name: str) -> bool:
    """Whether a class of that name is among the ancestors, found without importing the package it lives in."""
    return any(kind.__module__ == module and kind.__name__ == name for kind in type(model).__mro__)


def _torch_classifier(
    module: Any,
    num_classes: int | None,
    input_shape: tuple[int, ...] | None,
    device: str,
    noise_at: str,
    backend: str | None,
) -> BaseClassifier:
    if backend == FASTEST:
        return _fastest_classifier(module, num_classes, input_shape, device, noise_at)
    if noise_at != NOISE_AT[0]:
        return _with_noise_in_first_layer(module, num_classes, input_shape, device, backend)
    if backend == ONNXRUNTIME:
        from smoothcert.models.exported_classifier import ExportedClassifier

        return ExportedClassifier(module, num_classes=num_classes, input_shape=input_shape, device=device)
    from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier

    chosen = resolve_device(device)
    if chosen.type == "cpu":
        return TorchClassifier(module, num_classes=num_classes, input_shape=input_shape)
    return TorchDeviceClassifier(module, device=chosen, num_classes=num_classes, input_shape=input_shape)


def _fastest_classifier(
    module: Any, num_classes: int | None, input_shape: tuple[int, ...] | None, device: str, noise_at: str
) -> BaseClassifier:
    """By torch, or by onnxruntime where that can compute the module and is faster. An accelerator is left to torch."""
    by_torch = _torch_classifier(module, num_classes, input_shape, device, noise_at, TORCH)
    if isinstance(by_torch, DeviceClassifier) or input_shape is None:
        return by_torch
    try:
        by_onnxruntime = _torch_classifier(module, num_classes, input_shape, device, noise_at, ONNXRUNTIME)
    except (ModelError, MissingExtraError):
        return by_torch
    return fastest([by_torch, by_onnxruntime])


def _with_noise_in_first_layer(
    module: Any, num_classes: int | None, input_shape: tuple[int, ...] | None, device: str, backend: str | None
) -> BaseClassifier:
    from smoothcert.models.first_layer import FirstLayerClassifier

    kind = resolve_device(device).type
    if kind != "cpu":
        raise InputError(f"--noise-at {NOISE_AT[1]} is for the processor, not for {kind}: give --device cpu")
    if input_shape is None:
        raise InputError(f"--noise-at {NOISE_AT[1]} needs the shape of an input: give input_shape")

    def make_tail(rest: Any, num_classes: int | None, input_shape: tuple[int, ...]) -> ScoringClassifier:
        tail = _torch_classifier(rest, num_classes, input_shape, "cpu", NOISE_AT[0], backend)
        return cast(ScoringClassifier, tail)

    return FirstLayerClassifier(module, num_classes=num_classes, input_shape=input_shape, make_tail=make_tail)


def _from_checkpoint(
    path: Path,
    num_classes: int | None,
    input_shape: tuple[int, ...] | None,
    device: str,
    arch: str | None,
    standardise: Standardisation | None,
    noise_at: str,
    backend: str | None,
) -> BaseClassifier:
    import_torch(f"loading {path.name}")
    from smoothcert.models.checkpoints import load_any

    loaded = load_any(path, arch=arch, num_classes=num_classes, input_shape=input_shape, standardise=standardise)
    header = loaded.header
    classifier = _torch_classifier(loaded.module, header.num_classes, header.input_shape, device, noise_at, backend)
    told = f"{loaded.header.arch} from {path.name}, {classifier.num_classes} classes, inputs {_told(loaded.header)}"
    classifier.description = described_scores(told, classifier)
    return classifier


def described_scores(description: str, classifier: BaseClassifier) -> str:
    """The description of a model with what its scores are, where that is not the usual."""
    return description + getattr(getattr(classifier, "scores_are", None), "note", "")


def _told(header: CheckpointHeader) -> str:
    """How the model's first layer treats its inputs."""
    if header.standardise is None:
        return "not standardised"
    mean, std = (",".join(f"{value:g}" for value in values) for values in header.standardise)
    return f"standardised by mean {mean}, std {std}"
