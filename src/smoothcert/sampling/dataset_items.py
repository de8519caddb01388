"""Items of torch datasets, which both training and certifying read. torch is not imported."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError
from smoothcert.models.imported_models import inherits
from smoothcert.sampling.given_arrays import Shape, read_one, stack_inputs

_READ_TOGETHER = 256
_READ_TWICE = 16
"""Items that are read twice where all are kept, so that random transforms are noticed."""
_ITEMS = "an item must be an input, or a pair (input, label)"


def is_map_dataset(x: Any) -> bool:
    """Whether x is indexed like a torch Dataset: items by number, which are not rows of an array."""
    is_plain = isinstance(x, (list, tuple, str, bytes, Mapping)) or hasattr(x, "__array__")
    return not is_plain and hasattr(x, "__getitem__") and not is_loader(x) and not is_iterable_dataset(x)


def is_loader(x: Any) -> bool:
    return inherits(x, "torch.utils.data", "DataLoader")


def is_iterable_dataset(x: Any) -> bool:
    return inherits(x, "torch.utils.data", "IterableDataset")


class DatasetItems:
    """Items of a map-style dataset, read on demand. labels: of all items, once all were read; None where one has none.

    An item that differs when it is read again is refused, with this reason. known_shape: gives the shape that images
    are read for, as soon as it is known.
    """

    def __init__(self, dataset: Any, *, reason: str, known_shape: Callable[[], Shape | None] = lambda: None) -> None:
        try:
            self._count = len(dataset)
        except TypeError as error:
            raise InputError(f"a {type(dataset).__name__} has no length: give a dataset with __len__") from error
        if self._count == 0:
            raise InputError("there are no inputs to work on: the dataset is empty")
        self._dataset = dataset
        self._reason = reason
        self._known_shape = known_shape
        self._labels: dict[int, Any] = {}
        self._digests: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def labels(self) -> list[Any]:
        return [self._labels.get(position) for position in range(self._count)]

    def parts(self) -> Iterator[range]:
        for start in range(0, self._count, _READ_TOGETHER):
            yield range(start, min(start + _READ_TOGETHER, self._count))

    def read(self, positions: Sequence[int]) -> NDArray[Any]:
        return stack_inputs([self._read_item(int(position)) for position in positions], positions)

    def check_repeats(self) -> None:
        """Read the first items again: where all were read and kept, a random transform shows here."""
        self.read(range(min(self._count, _READ_TWICE)))

    def _read_item(self, position: int) -> NDArray[Any]:
        try:
            item = self._dataset[position]
        except Exception as error:  # any error of the user's own code
            raise InputError(f"item {position} of the dataset failed: {type(error).__name__}: {error}") from error
        value, label = split_item(item)
        self._labels[position] = label
        array = read_one(value, self._known_shape())
        digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
        if self._digests.setdefault(position, digest) != digest:
            raise InputError(
                f"item {position} of the dataset was another input when it was read again, and {self._reason}"
            )
        return array


def split_item(item: Any) -> tuple[Any, Any]:
    """(input, label) of an item or batch; the label is None if there is none."""
    if isinstance(item, Mapping):
        names = ", ".join(str(name) for name in item)
        raise InputError(
            f"the dataset gives dictionaries ({names}), and which entry is the input is not known: {_ITEMS}. Wrap it, "
            "or give arrays: certify(inputs, labels=labels)"
        )
    if not isinstance(item, (tuple, list)):
        return item, None
    if len(item) not in (1, 2):
        raise InputError(f"the dataset gives items of {len(item)} parts; {_ITEMS}: wrap it to leave out the others")
    return item[0], item[1] if len(item) == 2 else None
