"""A base classifier sent to other machines: as bytes, so that no disk need be shared, and checked on arrival."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from smoothcert.environment import code_digest, list_versions
from smoothcert.errors import ClusterError, ModelError
from smoothcert.models import as_classifier, load_classifier
from smoothcert.models.base import BaseClassifier
from smoothcert.user_code import is_code_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelIdentity:
    """What must agree wherever the model is asked. environment: versions of all that computes; code: our own."""

    digest: str
    backend: str
    num_classes: int
    environment: Mapping[str, str]
    code: str

    @classmethod
    def of(cls, classifier: BaseClassifier) -> Self:
        """That of a classifier in this process."""
        return cls(
            digest=classifier.digest,
            backend=classifier.backend,
            num_classes=classifier.num_classes,
            environment=list_versions(),
            code=code_digest(),
        )

    def check_agrees(self, there: ModelIdentity, *, node: str) -> None:
        """Refuse a node that would compute another function: a ClusterError where other software is installed, else a
        ModelError.
        """
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
                "who computed them: install the same versions on every node"
            )
        if (there.digest, there.backend, there.num_classes) != (self.digest, self.backend, self.num_classes):
            raise ModelError(
                f"on node {node} the model is another function: digest {there.digest} ({there.backend}, "
                f"{there.num_classes} classes) there, and {self.digest} ({self.backend}, {self.num_classes} classes) "
                "here. Is the same code installed on every node, and is the model asked on the same kind of device?"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedModel:
    """A model on its way. arguments: those of `load_classifier` or `as_classifier`.

    files: bytes by name, the model's own file first; or named: package.module:attribute; or pickled: a Python object.
    by_value: its code travels with the object, so that no source text of it can be read over there.
    """

    arguments: Mapping[str, Any]
    files: Mapping[str, bytes] | None = None
    named: str | None = None
    pickled: bytes | None = None
    by_value: bool = False

    def unpacked(self, identity: ModelIdentity) -> BaseClassifier:
        """The classifier, in this process. identity: of the one in the process that sent it."""
        if self.files is not None:
            return self._from_files(self.files)
        if self.named is not None:
            return load_classifier(self.named, **self.arguments)
        assert self.pickled is not None
        classifier = as_classifier(_unpickled(self.pickled), **self.arguments)
        if self.by_value and classifier.backend == identity.backend:
            classifier.digest = identity.digest
        return classifier

    def _from_files(self, files: Mapping[str, bytes]) -> BaseClassifier:
        with tempfile.TemporaryDirectory(prefix="smoothcert-") as folder:
            for name, content in files.items():
                place = Path(folder) / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            return load_classifier(Path(folder) / next(iter(files)), **self.arguments)


def shipped(model: object, arguments: Mapping[str, Any]) -> ShippedModel:
    """The model, made ready to be sent: a path, package.module:attribute, or an object that can be pickled."""
    if isinstance(model, str) and is_code_name(model):
        return ShippedModel(arguments=arguments, named=model)
    if isinstance(model, (str, Path)):
        return ShippedModel(arguments=arguments, files=_files_of(Path(model)))
    return ShippedModel(arguments=arguments, pickled=_pickled(model), by_value=_carries_its_code(model))


def _files_of(path: Path) -> dict[str, bytes]:
    if not path.is_file():
        raise ModelError(f"there is no file {path} to send to the cluster")
    beside: list[Path] = []
    if path.suffix.lower() == ".onnx":
        from smoothcert.models.onnx_session import external_files

        beside = external_files(path)
    return {path.name: path.read_bytes()} | {
        file.relative_to(path.parent).as_posix(): file.read_bytes() for file in beside
    }


def _pickled(model: object) -> bytes:
    from ray import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(model)
    except Exception as error:  # whatever an object does when it is taken apart
        raise ModelError(
            f"the {type(model).__name__} cannot be sent to other processes ({type(error).__name__}: {error}); give the "
            "engine a torch module, a path or package.module:attribute"
        ) from error
    return content


def _unpickled(content: bytes) -> object:
    from ray import cloudpickle

    try:
        found: object = cloudpickle.loads(content)
    except ImportError as error:
        raise ModelError(
            f"the model needs code that is not there ({error}): install the package that defines it on every node"
        ) from error
    return found


def _carries_its_code(model: Any) -> bool:
    """Whether a class or function it consists of is pickled as code, not by name: that of a script, or a local one."""
    parts = list(model.modules()) if callable(getattr(model, "modules", None)) else [model]
    named = [part if hasattr(part, "__qualname__") else type(part) for part in parts]
    return any(each.__module__ == "__main__" or "<locals>" in each.__qualname__ for each in named)
