"""What people give as inputs: arrays, tensors, images, torch datasets and loaders. torch and PIL are not imported."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.imported_models import inherits
from smoothcert.models.tabular_names import get_feature_names
from smoothcert.records import InputArray
from smoothcert.records.class_names import clip_name
from smoothcert.sampling.dataset_items import (
    DatasetItems,
    is_iterable_dataset,
    is_loader,
    is_map_dataset,
    split_item,
)
from smoothcert.sampling.given_arrays import Shape, read_array, read_numbers, read_one, stack_inputs
from smoothcert.sampling.given_labels import merge_labels, read_labels
from smoothcert.sampling.inputs import InputSource
from smoothcert.sampling.pandas_inputs import check_same_order, list_columns
from smoothcert.sigma import SigmaRule
from smoothcert.sigma.envelope_check import check_spread_inputs

_MOST_KEPT = 2**28
"""Bytes. A map-style dataset whose inputs take more is read again when they are needed."""
_RANDOM_SAMPLERS = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
_ONE_INPUT = "a certificate is about one input: remove random transforms"


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
    x: Any,
    checker: Checker,
    *,
    labels: Any,
    indices: Sequence[int] | None,
    first_index: int,
    keep_all: bool = False,
) -> InputSource:
    """The inputs of a call, all of them checked before anything is sampled.

    x: see `read_array`, or a torch Dataset or DataLoader, whose labels are taken. A loader or an iterable dataset is
    read once and kept. So is a map-style dataset of up to 256 MiB, or of any size with `keep_all`; the items of a
    larger one are read again when they are needed, so it need not fit into memory. indices: None counts from
    first_index.
    """
    own_labels: Sequence[Any] | None = None
    items, inputs = None, None
    if is_map_dataset(x):
        items = DatasetItems(x, reason=_ONE_INPUT, known_shape=lambda: checker.known_shape)
        inputs = _check_items(items, checker, keep_all=keep_all)
        count, own_labels = len(items), items.labels
    else:
        if is_loader(x) or is_iterable_dataset(x):
            x, own_labels = _read_all(x, checker.known_shape)
        inputs = _check_array(x, checker)
        count = len(inputs)

    def load(positions: Sequence[int]) -> InputArray:
        if inputs is None:
            assert items is not None
            return checker.check_inputs(items.read(positions))
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
    return InputSource(
        indices=list(indices),
        labels=merge_labels(own, given),
        load=load,
        is_kept=inputs is not None,
        feature_names=get_feature_names(checker.classifier) or list_columns(x),
    )


def _check_items(items: DatasetItems, checker: Checker, *, keep_all: bool) -> InputArray | None:
    """All items, once they were checked; None if they are too large to be kept."""
    kept: InputArray | None = None
    for part in items.parts():
        inputs = checker.check_inputs(items.read(part))
        if part.start == 0 and (keep_all or len(items) * inputs[0].nbytes <= _MOST_KEPT):
            kept = np.empty((len(items), *inputs.shape[1:]), dtype=np.float32)
        if kept is not None:
            kept[part.start : part.stop] = inputs
    if kept is not None:
        items.check_repeats()
    return kept


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


def _read_all(given: Any, input_shape: Shape | None) -> tuple[NDArray[Any], list[Any]]:
    """All inputs and labels of a loader or an iterable dataset."""
    batch_sampler = getattr(given, "batch_sampler", None)
    _refuse_random_order(given, batch_sampler)
    rows: list[NDArray[Any]] = []
    labels: list[Any] = []
    for item in given:
        value, label = split_item(item)
        if batch_sampler is None:
            rows.append(read_one(value, input_shape))
            labels.append(label)
        else:
            batch = read_array(value)
            rows.extend(batch)
            labels.extend([None] * len(batch) if label is None else _list_labels(label, len(batch)))
    if not rows:
        raise InputError(f"there are no inputs to work on: the {type(given).__name__} is empty")
    return stack_inputs(rows), labels


def _list_labels(labels: Any, count: int) -> Sequence[Any]:
    """The labels of a batch, one for each input."""
    values = read_numbers(labels) if hasattr(labels, "detach") else labels
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
