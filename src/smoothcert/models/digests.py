"""Digests of objects: equal content gives equal digests in any process, and nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from smoothcert.errors import ModelError

_ATOMS = (type(None), bool, int, float, complex, str, bytes)


class Hasher(Protocol):
    def update(self, data: Any, /) -> None: ...

    def hexdigest(self) -> str: ...


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def text_digest(*parts: str) -> str:
    """SHA-256 over the parts, each with its length, so that moving a boundary changes it."""
    hasher = hashlib.sha256()
    for part in parts:
        feed(hasher, part.encode())
    return hasher.hexdigest()


def feed(hasher: Hasher, data: bytes) -> None:
    """Adds `data` with its length in front."""
    hasher.update(len(data).to_bytes(8, "little"))
    hasher.update(data)


def object_digest(value: object) -> str:
    """SHA-256 over everything `value` would be pickled from, without pickling it.

    An object is taken apart by the protocol pickle uses (`__reduce_ex__`), which only *reads* it; nothing is
    rebuilt, so no foreign code is run. Hashing pickle bytes would be shorter but is not reproducible: they
    also encode which equal parts are one object in memory, which changes when an estimator is saved and
    loaded.
    """
    hasher = hashlib.sha256()
    _feed_object(hasher, value, ())
    return hasher.hexdigest()


def _feed_object(hasher: Hasher, value: object, parents: tuple[int, ...]) -> None:
    if id(value) in parents:
        feed(hasher, b"cycle %d" % parents[::-1].index(id(value)))
        return
    feed(hasher, type(value).__qualname__.encode())
    inner = (*parents, id(value))
    if isinstance(value, _ATOMS):
        feed(hasher, value if isinstance(value, bytes) else repr(value).encode())
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        feed(hasher, f"{value.dtype.str}{value.shape}".encode())
        feed(hasher, np.ascontiguousarray(value).tobytes())
    elif isinstance(value, np.ndarray):
        _feed_sequence(hasher, (value.shape, *value.ravel().tolist()), inner)
    elif isinstance(value, Mapping):
        _feed_unordered(hasher, value.items(), inner)
    elif isinstance(value, (set, frozenset)):
        _feed_unordered(hasher, value, inner)
    elif isinstance(value, (list, tuple)):
        _feed_sequence(hasher, value, inner)
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
        feed(hasher, f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', repr(value))}".encode())
    else:
        _feed_sequence(hasher, _parts(value), inner)


def _feed_sequence(hasher: Hasher, values: Iterable[object], parents: tuple[int, ...]) -> None:
    for value in values:
        _feed_object(hasher, value, parents)


def _feed_unordered(hasher: Hasher, values: Iterable[object], parents: tuple[int, ...]) -> None:
    digests = []
    for value in values:
        part = hashlib.sha256()
        _feed_object(part, value, parents)
        digests.append(part.digest())
    for digest in sorted(digests):
        feed(hasher, digest)


def _parts(value: object) -> tuple[object, ...]:
    """What pickle would rebuild `value` from: constructor, arguments, state, list items, dictionary items."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception as error:
        kind = type(value).__qualname__
        raise ModelError(
            f"no digest can be made of the model: its {kind} cannot be read ({error}); give digest="
        ) from error
    if isinstance(reduced, str):
        return (reduced,)
    constructor, arguments, *rest = reduced
    return (constructor, arguments, *(part if _is_plain(part) else list(part) for part in rest))


def _is_plain(part: object) -> bool:
    """True unless it is one of the iterators `__reduce_ex__` may give for the items of a list or dictionary."""
    return not hasattr(part, "__next__")


def source_text(thing: Any) -> str:
    """Source of a class or function where it can be read, else an empty text."""
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""
