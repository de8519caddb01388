"""Base classifiers: anything that maps inputs to classes, behind one small protocol.

`as_classifier` takes an object, `load_classifier` a file or a `package.module:attribute`. Importing this package does
not import torch, onnxruntime or scikit-learn.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from smoothcert.errors import InputError, MissingExtraError, ModelError
from smoothcert.files import require_readable
from smoothcert.models.architectures import ARCHITECTURES, Standardisation
from smoothcert.models.backends import (
    FASTEST,
    ONNXRUNTIME,
    TORCH,
    check_backend,
    check_only_backend,
    choose_fastest,
    get_backend_name,
)
from smoothcert.models.base import BaseClassifier, DeviceClassifier, FirstLayerNoise, ScoringClassifier
from smoothcert.models.callable_classifier import CallableClassifier
from smoothcert.models.devices import import_torch, parse_device, resolve_device
from smoothcert.models.guarded_classifier import GuardedClassifier, is_base_classifier
from smoothcert.models.half_precision import check_dtype_fits, check_no_dtype, note_dtype, read_dtype
from smoothcert.models.imported_models import ImportedModel, import_model, inherits, is_torch_module
from smoothcert.models.zoo import find_zoo_model, locate_model
from smoothcert.user_code import is_zoo_name, list_required_arguments

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
    "name_settled",
    "parse_standardisation",
    "resolve_device",
    "settle_model",
]

TORCH_SUFFIXES = (".pth", ".pt", ".tar", ".ckpt", ".bin")
_CODE_NAME = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"
NOISE_AT = ("input", "first-layer")
"""Where the noise can be drawn. The first is the default."""


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of `as_classifier` that say how a model is adapted."""

    num_classes: int | None
    input_shape: tuple[int, ...] | None
    device: str
    noise_at: str
    backend: str | None
    dtype: str | None

    def __post_init__(self) -> None:
        parse_device(self.device)
        check_backend(self.backend)
        check_dtype_fits(self.dtype, backend=self.backend, noise_at=self.noise_at)
        if self.noise_at not in NOISE_AT:
            raise InputError(f"there is no place {self.noise_at!r} for the noise: use {' or '.join(NOISE_AT)}")

    def check_fit(self, model: str, *, backend: str | None = None) -> None:
        """InputError for options that only torch networks have. backend: the only one that computes this model."""
        if self.noise_at != NOISE_AT[0]:
            raise InputError(f"--noise-at {self.noise_at} needs a torch network, whose layers are known, not {model}")
        check_only_backend(self.backend, only=backend, model=model)
        check_no_dtype(self.dtype, model)


def as_classifier(
    model: object,
    *,
    num_classes: int | None = None,
    input_shape: Sequence[int] | None = None,
    device: str = "auto",
    digest: str | None = None,
    noise_at: str = NOISE_AT[0],
    backend: str | None = None,
    dtype: object = None,
) -> BaseClassifier:
    """Adapt a torch module, a fitted scikit-learn classifier, a path, or any callable. Base classifiers are returned.

    num_classes may be omitted if the model shows it (scikit-learn; or logits, if input_shape is given). input_shape is
    the shape of one input; with it a torch module runs about twice as fast on the CPU. device: auto, cpu, cuda, cuda:1,
    mps. digest replaces the computed one; callables whose weights are stored elsewhere need it. noise_at: "input", or
    "first-layer" for a torch network with a linear first layer (`first_layer`). backend: what computes a torch network:
    torch (the default), onnxruntime, or fastest, which measures both. onnxruntime needs input_shape, and its device
    "auto" is the CPU. dtype: "bfloat16" or "float16" computes a float32 torch network in that precision by
    torch.autocast, which is another classifier.
    """
    options = _Options(num_classes, _as_shape(input_shape), device, noise_at, backend, read_dtype(dtype))
    classifier = _adapt(model, options, digest)
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
    dtype: object = None,
    weights: str | Path | None = None,
    code_folder: str | None = None,
) -> BaseClassifier:
    """Load a base classifier from a file or import it.

    spec: `zoo:NAME`, `.safetensors` (ours, or bare weights with `arch`), `.onnx`, torch files (`.pth`, `.pt`, `.tar`:
    tensors only, never code), or `package.module:attribute`, which *imports and runs the named code*: an object, or a
    factory without arguments. arch and standardise supply what a file of another program does not say;
    standardise=((0,), (1,)) means none. weights: for code that makes a torch module: a file with its state_dict
    (tensors only, never code). code_folder: where the code is, if it cannot be imported from here. The other options
    are those of `as_classifier`.
    """
    options = _Options(num_classes, _as_shape(input_shape), device, noise_at, backend, read_dtype(dtype))
    return _load(str(spec), options, arch, standardise, None if weights is None else str(weights), code_folder)


def parse_standardisation(text: str | None) -> Standardisation | None:
    """Parse "MEAN/STD", each one number or one per channel, or "none". None stays None."""
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


def _as_shape(sizes: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if sizes is None else tuple(int(size) for size in sizes)


def _load(
    spec: str,
    options: _Options,
    arch: str | None = None,
    standardise: Standardisation | None = None,
    weights: str | None = None,
    code_folder: str | None = None,
) -> BaseClassifier:
    zoo_model = find_zoo_model(spec) if is_zoo_name(spec) else None
    if zoo_model is None and re.fullmatch(_CODE_NAME, spec):
        if arch is not None:
            raise InputError(f"--arch {arch} is for a file of weights: {spec} is the network itself")
        return _load_code(spec, options, standardise, weights, code_folder)
    if weights is not None:
        raise InputError(
            f"--weights are for a network in your own code, as in --model mynet:Net --weights {weights}; "
            f"{spec} is not code"
        )
    if zoo_model is not None:
        return _load_checkpoint(zoo_model.weights, options, arch, standardise, name=zoo_model.label)
    suffix = Path(spec).suffix.lower()
    if suffix == ".onnx":
        from smoothcert.models.onnx_classifier import OnnxClassifier

        options.check_fit("an ONNX file", backend=ONNXRUNTIME)
        return OnnxClassifier(
            Path(spec), num_classes=options.num_classes, input_shape=options.input_shape, device=options.device
        )
    if suffix == ".safetensors" or suffix in TORCH_SUFFIXES:
        return _load_checkpoint(Path(spec), options, arch, standardise)
    raise _unknown_model_error(spec)


def _load_code(
    spec: str,
    options: _Options,
    standardise: Standardisation | None,
    weights: str | None,
    code_folder: str | None,
) -> BaseClassifier:
    imported = import_model(
        spec, weights=weights, standardise=standardise, input_shape=options.input_shape, code_folder=code_folder
    )
    model = _guard(imported.model, spec)
    try:
        classifier = _adapt(model, options)
    except ModelError as error:
        if not inspect.isroutine(model):
            raise
        names = ", ".join(parameter.name for parameter in list_required_arguments(model))
        raise ModelError(
            f"{error}. {spec} was taken as a function of a batch of inputs; if it makes the model, give a function "
            f"without required arguments, which calls it with {names or 'its arguments'}"
        ) from error
    if weights is not None:
        classifier.description += f", weights from {Path(weights).name}"
    if imported.class_names:
        cast(Any, classifier).class_names = imported.class_names
    return _note_random(classifier) if imported.has_random_weights else classifier


def _note_random(classifier: BaseClassifier) -> BaseClassifier:
    classifier.description += ", random weights"
    cast(Any, classifier).has_random_weights = True
    return classifier


def _adapt(model: object, options: _Options, digest: str | None = None) -> BaseClassifier:
    if isinstance(model, ImportedModel):
        classifier = _adapt(model.model, options, digest)
        return _note_random(classifier) if model.has_random_weights else classifier
    name = type(model).__name__
    if is_base_classifier(model):
        options.check_fit(f"a {name} (already a base classifier)", backend=get_backend_name(model))
        return cast(BaseClassifier, model)
    if isinstance(model, (str, Path)):
        return _load(str(model), options)
    if is_torch_module(model):
        from smoothcert.models.torch_logits import take_logits

        return _adapt_torch(take_logits(cast(Any, model), options.input_shape), options)
    options.check_fit(f"a {name}")
    if inherits(model, "sklearn.base", "BaseEstimator") or (hasattr(model, "predict") and hasattr(model, "classes_")):
        from smoothcert.models.sklearn_classifier import SklearnClassifier

        return SklearnClassifier(model, num_classes=options.num_classes, input_shape=options.input_shape)
    if name == "InferenceSession":
        raise InputError(
            "an open onnxruntime session cannot be identified by its content; give the path of the .onnx file"
        )
    _check_is_model(model)
    return CallableClassifier(
        cast(Any, model), num_classes=options.num_classes, input_shape=options.input_shape, digest=digest
    )


def _check_is_model(model: object) -> None:
    if not (callable(model) or is_base_classifier(model) or hasattr(model, "classes_")):
        raise InputError(
            f"a {type(model).__name__} is not a model: give a torch module, a fitted scikit-learn classifier, a path, "
            "or a function from arrays to logits or labels"
        )


def settle_model(model: object, *, device: str, noise_at: str, backend: str | None, dtype: str | None = None) -> object:
    """The model, or the object that `package.module:attribute` names; an error for what cannot work with any inputs.

    Refuses a path that does not exist, a device that this machine does not have, and unknown options. A file is read
    only when it is adapted. A network whose weights are random is an ImportedModel, which says so.
    """
    options = _Options(None, None, device, noise_at, backend, dtype)
    is_file, is_random, suffix = False, False, ""
    if isinstance(model, (str, Path)):
        suffix = (place := locate_model(model)).suffix.lower()
        is_file = suffix in (".onnx", ".safetensors", *TORCH_SUFFIXES)
        if is_file:
            require_readable(place, ModelError(f"there is no file {model}; give the path of a model"))
        else:
            imported = _import_code(str(model))
            model, is_random = imported.model, imported.has_random_weights
    if not is_file:
        _check_is_model(model)
    by_torch = is_torch_module(model) or (is_file and suffix != ".onnx")
    if by_torch and backend != ONNXRUNTIME and parse_device(options.device)[0] not in ("auto", "cpu"):
        resolve_device(options.device)
    return ImportedModel(model, has_random_weights=True) if is_random else model


def name_settled(model: object) -> str:
    """The type of what `settle_model` returned."""
    return type(model.model if isinstance(model, ImportedModel) else model).__name__


def _import_code(spec: str) -> ImportedModel:
    if not re.fullmatch(_CODE_NAME, spec):
        raise _unknown_model_error(spec)
    imported = import_model(spec)
    return replace(imported, model=_guard(imported.model, spec))


def _guard(model: object, spec: str) -> object:
    """A base classifier written by the user is checked against the protocol."""
    is_ours = type(model).__module__.partition(".")[0] == "smoothcert"
    if not is_base_classifier(model) or is_ours or isinstance(model, (DeviceClassifier, FirstLayerNoise)):
        return model
    return GuardedClassifier(model, name=spec)


def _unknown_model_error(spec: str) -> ModelError:
    hint = ", which is the name of a module, not its path" if ".py:" in spec else ""
    return ModelError(
        f"{spec!r} is not a model smoothcert can load: give a .safetensors, .onnx, .pth or .pt file, zoo:NAME, or "
        f"package.module:attribute for your own code{hint}"
    )


def _adapt_torch(module: Any, options: _Options) -> BaseClassifier:
    if options.backend == FASTEST:
        return _adapt_fastest(module, options)
    if options.noise_at != NOISE_AT[0]:
        return _adapt_first_layer(module, options)
    num_classes, input_shape = options.num_classes, options.input_shape
    if options.backend == ONNXRUNTIME:
        from smoothcert.models.exported_classifier import ExportedClassifier

        return ExportedClassifier(module, num_classes=num_classes, input_shape=input_shape, device=options.device)
    from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier

    device = resolve_device(options.device)
    if options.dtype is not None:
        from smoothcert.models.autocast_module import in_half_precision

        module = in_half_precision(module, options.dtype, device)
    if device.type == "cpu":
        return TorchClassifier(module, num_classes=num_classes, input_shape=input_shape)
    return TorchDeviceClassifier(module, device=device, num_classes=num_classes, input_shape=input_shape)


def _adapt_fastest(module: Any, options: _Options) -> BaseClassifier:
    """Computed by torch, or by onnxruntime if it supports the module and is faster. Accelerators always use torch."""
    by_torch = _adapt_torch(module, replace(options, backend=TORCH))
    if isinstance(by_torch, DeviceClassifier) or options.input_shape is None:
        return by_torch
    try:
        by_onnxruntime = _adapt_torch(module, replace(options, backend=ONNXRUNTIME))
    except (ModelError, MissingExtraError):
        return by_torch
    return choose_fastest([by_torch, by_onnxruntime])


def _adapt_first_layer(module: Any, options: _Options) -> BaseClassifier:
    from smoothcert.models.first_layer import FirstLayerClassifier

    kind = resolve_device(options.device).type
    if kind != "cpu":
        raise InputError(f"--noise-at {NOISE_AT[1]} is for the CPU, not for {kind}: give --device cpu")
    if options.input_shape is None:
        raise InputError(f"--noise-at {NOISE_AT[1]} needs the shape of an input: give input_shape")

    def make_tail(rest: Any, width: int) -> ScoringClassifier:
        tail_options = replace(options, input_shape=(width,), device="cpu", noise_at=NOISE_AT[0])
        return cast(ScoringClassifier, _adapt_torch(rest, tail_options))

    return FirstLayerClassifier(module, input_shape=options.input_shape, make_tail=make_tail)


def _load_checkpoint(
    path: Path, options: _Options, arch: str | None, standardise: Standardisation | None, *, name: str | None = None
) -> BaseClassifier:
    """name: of the file, in the description."""
    import_torch(f"loading {path.name}")
    from smoothcert.models.checkpoints import load_checkpoint
    from smoothcert.models.torchscript import is_torchscript, load_torchscript

    if path.suffix.lower() in TORCH_SUFFIXES and is_torchscript(path):
        if arch is not None or standardise is not None:
            raise InputError(f"{path} is TorchScript and holds its whole network: leave arch and standardise out")
        return _adapt(load_torchscript(path), options)
    loaded = load_checkpoint(
        path,
        arch=arch,
        num_classes=options.num_classes,
        input_shape=options.input_shape,
        standardise=standardise,
    )
    header = loaded.header
    options = replace(options, num_classes=header.num_classes, input_shape=header.input_shape)
    classifier = _adapt_torch(loaded.module, options)
    text = (
        f"{header.arch} from {name or path.name}, {classifier.num_classes} classes, inputs {_describe_inputs(header)}"
    )
    classifier.description = add_score_note(text + note_dtype(options.dtype), classifier)
    cast(Any, classifier).class_names = header.class_names
    return classifier


def add_score_note(description: str, classifier: BaseClassifier) -> str:
    """Append how the scores are computed, if that is not the default."""
    return description + getattr(getattr(classifier, "scores_are", None), "note", "")


def _describe_inputs(header: CheckpointHeader) -> str:
    if header.standardise is None:
        return "not standardised"
    mean, std = (",".join(f"{value:g}" for value in values) for values in header.standardise)
    return f"standardised by mean {mean}, std {std}"
