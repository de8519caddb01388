"""Digests of objects: equal content gives equal digests in any process, and nothing is unpickled."""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from smoothcert.errors import ModelError
from smoothcert.models.object_parts import (
    Parts,
    UnreadableError,
    UsedOfModule,
    atom_digest,
    parts_of,
    qualified_name,
)

_MOST_OBJECTS = 5_000_000

_Key = tuple[str, Hashable]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def text_digest(*parts: str) -> str:
    """SHA-256 over the parts, each with its length, so that moving a boundary changes the digest."""
    return _hash_of(*(part.encode() for part in parts)).hex()


def feed(hasher: hashlib._Hash, data: bytes) -> None:
    """Add the length of `data`, then `data`."""
    hasher.update(len(data).to_bytes(8, "little"))
    hasher.update(data)


def object_digest(value: object, *, lenient: bool = False) -> str:
    """SHA-256 over everything in `value`: data, the code of functions and classes, what they refer to.

    These do not count: the order of a set, the order in which attributes were set, addresses, and which equal parts are
    one object in memory. The order of a dictionary counts, because a model may iterate over it. (Pickle bytes encode
    identity, which changes when an estimator is saved and loaded.)

    Unreadable parts, such as locks, raise a ModelError. With `lenient`, and where functions, classes and torch modules
    refer to them, they count by their type only.
    """
    root = atom_digest(value)
    if root is None:
        root = _root_digest(_read(value, lenient=lenient), _key(value))
    return root.hex()


def contains(value: object, part: object, *, lenient: bool = False) -> bool:
    """Whether `part` is one of the objects that the digest of `value` covers."""
    return atom_digest(value) is None and _key(part) in _read(value, lenient=lenient)


@dataclass(frozen=True, slots=True)
class _Node:
    """One object. children: digests of parts without parts of their own, and keys of other nodes."""

    value: object  # keeps the object alive, and with it its id
    parts: Parts
    children: tuple[bytes | _Key, ...]

    def compute_hash(self, known: Mapping[_Key, bytes]) -> bytes:
        """SHA-256 of label and children."""
        children = [child if isinstance(child, bytes) else known[child] for child in self.children]
        return _hash_of(self.parts.label.encode(), *(children if self.parts.ordered else sorted(children)))

    def inner_keys(self) -> Iterator[_Key]:
        return (child for child in self.children if not isinstance(child, bytes))


def _key(value: object) -> _Key:
    return ("module", value) if isinstance(value, UsedOfModule) else ("object", id(value))


def _hash_of(*contents: bytes) -> bytes:
    hasher = hashlib.sha256()
    for content in contents:
        feed(hasher, content)
    return hasher.digest()


def _read(root: object, *, lenient: bool) -> dict[_Key, _Node]:
    """Every object in `root`, by key.

    Parts that must be readable are read first, so that the order of a set does not decide whether reading fails.
    """
    nodes: dict[_Key, _Node] = {}
    strict: list[object] = [] if lenient else [root]
    tolerant: list[object] = [root] if lenient else []
    while strict or tolerant:
        must_be_readable = bool(strict)
        value = strict.pop() if must_be_readable else tolerant.pop()
        if _key(value) in nodes:
            continue
        if len(nodes) >= _MOST_OBJECTS:
            raise ModelError(f"no digest can be made of the model: it has over {_MOST_OBJECTS:,} parts; give digest=")
        parts = _read_parts(value, must_be_readable=must_be_readable)
        known = [(child, atom_digest(child)) for child in parts.children]
        children = tuple(_key(child) if digest is None else digest for child, digest in known)
        nodes[_key(value)] = _Node((value, parts.children), parts, children)
        waiting = strict if must_be_readable and not parts.lenient else tolerant
        waiting.extend(child for child, digest in known if digest is None)
    return nodes


def _read_parts(value: object, *, must_be_readable: bool) -> Parts:
    try:
        return parts_of(value)
    except UnreadableError as error:
        kind = type(value)
        if must_be_readable:
            raise ModelError(
                f"no digest can be made of the model: its {kind.__qualname__} cannot be read ({error}); give digest="
            ) from error
        return Parts(f"unreadable {qualified_name(kind)}")


def _root_digest(nodes: Mapping[_Key, _Node], root: _Key) -> bytes:
    """The digest of one object from those of its parts, which may contain one another."""
    digests: dict[_Key, bytes] = {}
    cyclic: dict[_Key, _Node] = {}
    for group in _strong_components(nodes):
        key = group[0]
        children = set(nodes[key].inner_keys())
        if len(group) > 1 or key in children or not children.isdisjoint(cyclic):
            cyclic |= {one: nodes[one] for one in group}
        else:
            digests[key] = nodes[key].compute_hash(digests)
    return _digest_with_cycles(cyclic, digests, root) if cyclic else digests[root]


def _digest_with_cycles(cyclic: Mapping[_Key, _Node], known: dict[_Key, bytes], root: _Key) -> bytes:
    """The digest of `root` if objects contain themselves. cyclic: all objects that lead into a cycle.

    All objects start with one colour. Each round colours them by their label and the colours of their children, until
    no round separates further objects. The set of pairs (colour, next colour) then describes the whole, up to which
    equal parts are one object (the coarsest bisimulation).
    """
    before: dict[_Key, bytes] = {}
    colours = dict.fromkeys(cyclic, b"")
    while len(set(colours.values())) > len(set(before.values())):
        before = colours
        colours = {key: node.compute_hash(ChainMap(before, known)) for key, node in cyclic.items()}
    return _hash_of(b"with cycles", colours[root], *sorted({before[key] + colours[key] for key in cyclic}))


def _strong_components(nodes: Mapping[_Key, _Node]) -> Iterator[list[_Key]]:
    """Groups of objects that contain one another, each after all groups it refers to (Tarjan 1972, iterative)."""
    numbers: dict[_Key, int] = {}
    lowest: dict[_Key, int] = {}
    unfinished: dict[_Key, None] = {}
    path: list[tuple[_Key, Iterator[_Key]]] = []

    def enter(key: _Key) -> None:
        numbers[key] = lowest[key] = len(numbers)
        unfinished[key] = None
        path.append((key, nodes[key].inner_keys()))

    for start in nodes:
        if start not in numbers:
            enter(start)
        while path:
            key, children = path[-1]
            child = next(children, None)
            if child is None:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[key])
                if lowest[key] == numbers[key]:
                    yield _pop_through(key, unfinished)
            elif child not in numbers:
                enter(child)
            elif child in unfinished:
                lowest[key] = min(lowest[key], numbers[child])


def _pop_through(key: _Key, unfinished: dict[_Key, None]) -> list[_Key]:
    """Remove and return the last keys, back to and including `key`."""
    group: list[_Key] = []
    while not group or group[-1] != key:
        group.append(unfinished.popitem()[0])
    return group
