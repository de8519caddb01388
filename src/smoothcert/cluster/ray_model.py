"""Send a base classifier to other machines as bytes, so that no disk is shared, and check it there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from smoothcert.environment import code_digest, list_versions
from smoothcert.errors import ClusterError, ModelError
from smoothcert.models import as_classifier, load_classifier
from smoothcert.models.base import BaseClassifier
from smoothcert.models.scaled_classifier import scale_classifier
from smoothcert.models.zoo import locate_model
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.user_code import is_code_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """What must be equal on all nodes. environment: versions of libraries. code: digest of smoothcert."""

    digest: str
    backend: str
    num_classes: int
    environment: Mapping[str, str]
    code: str

    @classmethod
    def of(cls, classifier: BaseClassifier) -> Self:
        return cls(
            digest=classifier.digest,
            backend=classifier.backend,
            num_classes=classifier.num_classes,
            environment=list_versions(),
            code=code_digest(),
        )

    def check_agrees(self, there: ModelIdentity, *, node: str) -> None:
        """Refuse a node with other software (ClusterError) or another model (ModelError)."""
        names = sorted(self.environment.keys() | there.environment.keys())
        differing = [
            f"{name} {there.environment.get(name, 'is missing')} there and {self.environment.get(name, 'missing')} here"
            for name in names
            if there.environment.get(name) != self.environment.get(name)
        ]
        if there.code != self.code:
            differing.append(f"smoothcert {there.code[:12]} there and {self.code[:12]} here")
        if differing:
            raise ClusterError(
                f"node {node} has other software than this machine: {'; '.join(differing)}. Results would depend on "
                "the node: install the same versions everywhere"
            )
        if (there.digest, there.backend, there.num_classes) != (self.digest, self.backend, self.num_classes):
            raise ModelError(
                f"on node {node} the model is another function: digest {there.digest} ({there.backend}, "
                f"{there.num_classes} classes) there, and {self.digest} ({self.backend}, {self.num_classes} classes) "
                "here. Check that every node has the same code and uses the same kind of device"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """A model, ready to be sent. arguments: of `load_classifier` or `as_classifier`.

    named: package.module:attribute, whose weights may be in files; pickled: a Python object; otherwise files hold the
    model. files: bytes by name, the file to load first. by_value: the code of the object is pickled with it, so its
    source text cannot be read on the node. scale: of the features, if each has its own noise level.
    """

    arguments: Mapping[str, Any]
    files: Mapping[str, bytes] | None = None
    named: str | None = None
    pickled: bytes | None = None
    by_value: bool = False
    scale: FeatureScale | None = None

    def unpack(self, identity: ModelIdentity) -> BaseClassifier:
        """Make the classifier in this process. identity: of the sender's classifier."""
        classifier = self._load()
        if self.scale is not None:
            classifier = scale_classifier(classifier, self.scale)
        if self.by_value and classifier.backend == identity.backend:
            classifier.digest = identity.digest
        return classifier

    def _load(self) -> BaseClassifier:
        if self.files is not None:
            with _write_files(self.files) as file:
                if self.named is not None:
                    return load_classifier(self.named, **{**self.arguments, "weights": file})
                return load_classifier(file, **self.arguments)
        if self.named is not None:
            return load_classifier(self.named, **self.arguments)
        assert self.pickled is not None
        return as_classifier(_unpickle_model(self.pickled), **self.arguments)


@contextmanager
def _write_files(files: Mapping[str, bytes]) -> Iterator[Path]:
    """The first of these files, on disk with the others beside it."""
    with tempfile.TemporaryDirectory(prefix="smoothcert-") as folder:
        for name, content in files.items():
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        yield Path(folder) / next(iter(files))


def pack_model(model: object, arguments: Mapping[str, Any], scale: FeatureScale | None = None) -> PackedModel:
    """Pack a model: a path, package.module:attribute, or an object that can be pickled."""
    return replace(_pack(model, arguments), scale=scale)


def _pack(model: object, arguments: Mapping[str, Any]) -> PackedModel:
    if isinstance(model, str) and is_code_name(model):
        weights = arguments.get("weights")
        files = None if weights is None else _read_files(Path(weights))
        return PackedModel(arguments=arguments, named=model, files=files)
    if isinstance(model, (str, Path)):
        return PackedModel(arguments=arguments, files=_read_files(locate_model(model)))
    return PackedModel(arguments=arguments, pickled=_pickle_model(model), by_value=_is_pickled_by_value(model))


def _read_files(path: Path) -> dict[str, bytes]:
    if not path.is_file():
        raise ModelError(f"the model cannot be sent to the cluster: there is no file {path}")
    beside: list[Path] = []
    if path.suffix.lower() == ".onnx":
        from smoothcert.models.onnx_session import external_files

        beside = external_files(path)
    return {path.name: path.read_bytes()} | {
        file.relative_to(path.parent).as_posix(): file.read_bytes() for file in beside
    }


def _pickle_model(model: object) -> bytes:
    from ray import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(model)
    except Exception as error:  # any object can be given, and can raise anything here
        raise ModelError(
            f"the {type(model).__name__} cannot be sent to other processes ({type(error).__name__}: {error}): give "
            "a torch module, a path or package.module:attribute"
        ) from error
    return content


def _unpickle_model(content: bytes) -> object:
    from ray import cloudpickle

    try:
        model: object = cloudpickle.loads(content)
    except ImportError as error:
        raise ModelError(
            f"the model needs code that is not installed ({error}): install its package on every node"
        ) from error
    return model


def _is_pickled_by_value(model: Any) -> bool:
    """Whether some class or function of the model is pickled as code: from a script, or local to a function."""
    parts = list(model.modules()) if callable(getattr(model, "modules", None)) else [model]
    named = [part if hasattr(part, "__qualname__") else type(part) for part in parts]
    return any(each.__module__ == "__main__" or "<locals>" in each.__qualname__ for each in named)
