"""What people give as inputs: arrays, tensors, images, torch datasets and loaders. torch and PIL are not imported."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.imported_models import inherits
from smoothcert.records import InputArray
from smoothcert.records.class_names import clip_name
from smoothcert.sampling.given_labels import merge_labels, read_labels
from smoothcert.sampling.inputs import InputSource
from smoothcert.sampling.pandas_inputs import check_same_order
from smoothcert.sigma import SigmaRule
from smoothcert.sigma.envelope_check import check_spread_inputs

_READ_TOGETHER = 256
"""Inputs of a dataset that are read at once when it is checked."""
_RANDOM_SAMPLERS = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
_ITEMS = "an item must be an input, or a pair (input, label)"

Shape = tuple[int, ...]


class Checker(Protocol):
    """What inputs are read for: a smoothed classifier, whose model may become known by the first of them."""

    @property
    def known_shape(self) -> Shape | None: ...

    @property
    def classifier(self) -> BaseClassifier: ...

    @property
    def class_names(self) -> tuple[str, ...]: ...

    def check_inputs(self, x: Any) -> InputArray:
        """Raw inputs as (m, *input_shape) float32; InputError if they cannot be used."""


def read_source(
    x: Any, checker: Checker, *, labels: Any, indices: Sequence[int] | None, first_index: int
) -> InputSource:
    """The inputs of a call, all of them checked before anything is sampled.

    x: see `read_array`, or a torch Dataset or DataLoader, whose labels are taken. Items of a map-style dataset are read
    here and again when they are needed, so the dataset need not fit into memory; a loader or an iterable
    dataset is read once and kept. indices: None counts from first_index.
    """
    own_labels: Sequence[Any] | None = None
    if is_map_dataset(x):
        items = DatasetItems(x, checker)
        for part in items.parts():
            checker.check_inputs(items.read(part))
        count, own_labels = len(items), items.labels

        def load(positions: Sequence[int]) -> InputArray:
            return checker.check_inputs(items.read(positions))
    else:
        if is_loader(x) or is_iterable_dataset(x):
            x, own_labels = _read_all(x, checker.known_shape)
        inputs = _check_array(x, checker)
        count = len(inputs)

        def load(positions: Sequence[int]) -> InputArray:
            chosen: InputArray = inputs[np.asarray(positions)]
            return chosen

    indices = range(first_index, first_index + count) if indices is None else _read_indices(indices)
    check_same_order(x, labels)
    num_classes, class_names = checker.classifier.num_classes, checker.class_names
    own, given = (
        read_labels(one, count=count, num_classes=num_classes, class_names=class_names) for one in (own_labels, labels)
    )
    if len(indices) != count:
        raise InputError(f"{count} inputs came with {len(indices)} indices; one each is needed")
    if len(set(indices)) != count:
        raise InputError("an index was given twice: two inputs would share their noise")
    return InputSource(indices=list(indices), labels=merge_labels(own, given), load=load)


def _read_indices(indices: Sequence[Any]) -> list[int]:
    """Whole numbers of any type as int: a tensor and its copy are equal, but not the same to a set."""
    try:
        return [operator.index(index) for index in indices]
    except TypeError as error:
        raise InputError(f"indices={clip_name(indices)} must be whole numbers, one for each input") from error


class HasLevels(Protocol):
    """A smoothed classifier that gives inputs their noise levels by a rule."""

    @property
    def rule(self) -> SigmaRule: ...

    def sigmas(self, inputs: InputArray, indices: Sequence[int]) -> dict[int, float]:
        """The noise level of each row."""


def check_envelope(smoothed: HasLevels, source: InputSource) -> None:
    """InputError if levels of these inputs contradict the envelope that their rule states. Nothing is sampled."""

    def ask(positions: Sequence[int]) -> None:
        smoothed.sigmas(source.load(positions), [source.indices[position] for position in positions])

    check_spread_inputs(smoothed.rule, len(source), ask)


def _check_array(x: Any, checker: Checker) -> InputArray:
    is_first = checker.known_shape is None
    try:
        return checker.check_inputs(x)
    except ModelError as error:
        if is_first and type(error) is ModelError:
            raise ModelError(f"{error}. If x is a single input, give x[None], a batch of one") from error
        raise


def read_array(x: Any, input_shape: Shape | None = None) -> NDArray[Any]:
    """One array of numbers from an array, a tensor on any device, an image of PIL, or a list of them.

    Values are not changed: bfloat16, which numpy does not have, becomes float32. Pixels of images are put in the order
    of `input_shape`, channels first if it is not known. A single image, or a single input of that shape, becomes a
    batch of one.
    """
    if is_image(x):
        return _read_image(x, input_shape)[None]
    if isinstance(x, (list, tuple)) and x and all(is_image(one) or hasattr(one, "shape") for one in x):
        return _stack([_read_one(one, input_shape) for one in x])
    array = _read_numbers(x)
    return array[None] if array.shape == input_shape else array


def is_map_dataset(x: Any) -> bool:
    """Whether x is indexed like a torch Dataset: items by number, which are not rows of an array."""
    is_plain = isinstance(x, (list, tuple, str, bytes, Mapping)) or hasattr(x, "__array__")
    return not is_plain and hasattr(x, "__getitem__") and not is_loader(x) and not is_iterable_dataset(x)


def is_loader(x: Any) -> bool:
    return inherits(x, "torch.utils.data", "DataLoader")


def is_iterable_dataset(x: Any) -> bool:
    return inherits(x, "torch.utils.data", "IterableDataset")


def is_image(x: Any) -> bool:
    return inherits(x, "PIL", "Image")


class DatasetItems:
    """Items of a map-style dataset, read on demand. labels: of all items, once all were read; None where one has none.

    An item that differs when it is read again is refused: a certificate is about one input.
    """

    def __init__(self, dataset: Any, checker: Checker) -> None:
        try:
            self._count = len(dataset)
        except TypeError as error:
            raise InputError(f"a {type(dataset).__name__} has no length: give a dataset with __len__") from error
        if self._count == 0:
            raise InputError("there are no inputs to work on: the dataset is empty")
        self._dataset = dataset
        self._checker = checker
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
        return _stack([self._read_item(int(position)) for position in positions], positions)

    def _read_item(self, position: int) -> NDArray[Any]:
        try:
            item = self._dataset[position]
        except Exception as error:  # any error of the user's own code
            raise InputError(f"item {position} of the dataset failed: {type(error).__name__}: {error}") from error
        value, label = split_item(item)
        self._labels[position] = label
        array = _read_one(value, self._checker.known_shape)
        digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
        if self._digests.setdefault(position, digest) != digest:
            raise InputError(
                f"item {position} of the dataset was another input when it was read again, and a certificate is about "
                "one input: remove random transforms"
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


def _read_all(given: Any, input_shape: Shape | None) -> tuple[NDArray[Any], list[Any]]:
    """All inputs and labels of a loader or an iterable dataset."""
    batch_sampler = getattr(given, "batch_sampler", None)
    _refuse_random_order(given, batch_sampler)
    rows: list[NDArray[Any]] = []
    labels: list[Any] = []
    for item in given:
        value, label = split_item(item)
        if batch_sampler is None:
            rows.append(_read_one(value, input_shape))
            labels.append(label)
        else:
            batch = read_array(value)
            rows.extend(batch)
            labels.extend([None] * len(batch) if label is None else _list_labels(label, len(batch)))
    if not rows:
        raise InputError(f"there are no inputs to work on: the {type(given).__name__} is empty")
    return _stack(rows), labels


def _list_labels(labels: Any, count: int) -> Sequence[Any]:
    """The labels of a batch, one for each input."""
    values = _read_numbers(labels) if hasattr(labels, "detach") else labels
    if getattr(values, "shape", (0,)) == () or not hasattr(values, "__len__") or len(values) != count:
        raise InputError(f"the loader gives a batch of {count} inputs with labels {labels!r}; one label each is needed")
    return list(values)


def _refuse_random_order(given: Any, batch_sampler: Any) -> None:
    for sampler in (getattr(given, "sampler", None), getattr(batch_sampler, "sampler", None)):
        if any(inherits(sampler, "torch.utils.data", name) for name in _RANDOM_SAMPLERS):
            raise InputError(
                "the DataLoader shuffles, so its inputs would get other numbers and other noise each time: give "
                "shuffle=False, or the dataset itself"
            )


def _read_one(x: Any, input_shape: Shape | None) -> NDArray[Any]:
    return _read_image(x, input_shape) if is_image(x) else _read_numbers(x)


def _read_numbers(x: Any) -> NDArray[Any]:
    try:
        if hasattr(x, "detach"):
            x = x.detach().cpu()
            x = x.float() if str(x.dtype) == "torch.bfloat16" else x
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"inputs given as {type(x).__name__} cannot be read as one array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"inputs of type {array.dtype} cannot be smoothed; numbers were expected")
    return array


def _read_image(image: Any, input_shape: Shape | None) -> NDArray[Any]:
    """The pixels in the order that the model takes."""
    if image.mode in ("P", "PA"):
        raise InputError('images with a palette have no colours of their own: convert them with convert("RGB") first')
    pixels = _read_numbers(image)
    orders = [pixels[None], pixels, pixels[..., None]] if pixels.ndim == 2 else [np.moveaxis(pixels, -1, 0), pixels]
    fitting = [order for order in orders if order.shape == input_shape]
    if input_shape is not None and not fitting:
        raise InputError(
            f"a PIL image of {image.width} x {image.height} pixels, mode {image.mode}, gives inputs of shape "
            f"{orders[0].shape}, but the model takes {input_shape}: resize or convert it first"
        )
    return (fitting or orders)[0]


def _stack(arrays: Sequence[NDArray[Any]], positions: Sequence[int] | None = None) -> NDArray[Any]:
    """One array of inputs of equal shapes."""
    for place, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            first, other = (0, place) if positions is None else (positions[0], positions[place])
            raise InputError(
                f"input {other} has shape {array.shape}, and input {first} has {arrays[0].shape}; inputs of one shape "
                "were expected: resize or crop them first"
            )
    return np.stack(arrays)
