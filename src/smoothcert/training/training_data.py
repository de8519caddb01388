"""What people give to train on: a dataset, arrays or tensors, a torch Dataset or DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, default_collate

from smoothcert.data import ArrayDataset, Dataset, load_splits
from smoothcert.errors import InputError
from smoothcert.sampling.dataset_items import DatasetItems, is_loader, is_map_dataset
from smoothcert.sampling.given_arrays import read_array
from smoothcert.sampling.given_labels import read_labels
from smoothcert.sampling.inputs import to_float32

_READ_ONCE = 'a training reads it once: remove random transforms, and use augment="shift" or "flip-crop"'
_MOST_CLASSES = 1_000_000
_EXPECTED = (
    "expected the name of a dataset, a file, (x, y) as arrays or tensors, a torch Dataset of (input, label), or its "
    "DataLoader"
)


def read_training_data(data: Any) -> tuple[Dataset, Dataset | None]:
    """The training data and its test split. Only a dataset that is named or a file has one."""
    if isinstance(data, (str, Path)):
        return load_splits(str(data))
    return as_dataset(data, split="train"), None


def as_dataset(data: Any, *, split: str) -> Dataset:
    """A dataset of smoothcert as it is; anything else is read into memory once. Every input needs a label.

    The order and batches of a DataLoader are not used: a training shuffles by its own seed. uint8 means 0 … 255, as in
    files, and bool 0 and 1; other values are kept, in float32.
    """
    if all(hasattr(data, name) for name in ("inputs", "labels", "digest")):
        dataset: Dataset = data
        return dataset
    if is_loader(data):
        data = _dataset_of_loader(data)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        inputs, labels = read_array(data[0]), data[1]
    elif is_map_dataset(data):
        inputs, labels = _read_items(data)
    else:
        raise InputError(f"a {type(data).__name__} is not data to train on: {_EXPECTED}")
    known = read_labels(labels, count=len(inputs), num_classes=_MOST_CLASSES)
    if None in known:
        raise InputError(f"input {known.index(None)} has no label; training needs a label for every input")
    stored, levels = _choose_storage(inputs)
    numbers = np.array(known, dtype=np.int64)
    return ArrayDataset(
        name="data",
        split=split,
        stored=stored,
        labels=numbers,
        num_classes=max(2, int(numbers.max()) + 1),
        input_range=None if levels is None else (0.0, 1.0),
        levels=levels,
    )


def _choose_storage(inputs: NDArray[Any]) -> tuple[NDArray[Any], int | None]:
    """The array to store and its number of grid levels, as for files."""
    if inputs.dtype == np.uint8:
        return inputs, 256
    if inputs.dtype == np.bool_:
        return inputs.astype(np.uint8), 2
    return to_float32(inputs, None), None


def _dataset_of_loader(loader: DataLoader[Any]) -> Any:
    """The dataset of a loader that gives all of its items, each once."""
    sampler = loader.sampler
    is_complete = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
    )
    if not is_complete:
        raise InputError(
            f"the DataLoader chooses inputs by a {type(sampler).__name__}, which a training cannot repeat when it is "
            "resumed: give the inputs it is about as a Dataset, for example torch.utils.data.Subset"
        )
    if loader.collate_fn is not default_collate:
        raise InputError(
            "the DataLoader has its own collate_fn, which may change the inputs: give a Dataset of (input, label)"
        )
    return loader.dataset


def _read_items(dataset: Any) -> tuple[NDArray[Any], list[Any]]:
    """All inputs and labels of a map-style dataset."""
    items = DatasetItems(dataset, reason=_READ_ONCE)
    parts = [items.read(part) for part in items.parts()]
    items.check_repeats()
    if any(part.shape[1:] != parts[0].shape[1:] for part in parts):
        raise InputError("the inputs of the dataset differ in shape: resize or crop them first")
    return np.concatenate(parts), items.labels
