"""The digits bundled with scikit-learn: the dataset that is always here."""

from __future__ import annotations

import numpy as np

from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.catalogue import CATALOGUE
from smoothcert.errors import MissingExtraError
from smoothcert.records import IntArray


def digits(split: str) -> ArrayDataset:
    """8x8 images with values 0 … 16, divided by 16; inputs (n, 1, 8, 8).

    The split is fixed: of every class, in scikit-learn's order, each fourth image is a test image (445 of 1797), so
    both parts have the same class frequencies. The order is kept within each part.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn", "the digits dataset") from error
    bunch = load_digits()
    labels = np.asarray(bunch.target, dtype=np.int64)
    chosen = _is_test(labels) == (split == "test")
    known = CATALOGUE["digits"]
    return ArrayDataset(
        name=known.name,
        split=split,
        stored=np.asarray(bunch.images, dtype=np.uint8)[chosen].reshape(-1, *known.input_shape),
        labels=labels[chosen],
        num_classes=known.num_classes,
        class_names=known.class_names,
        levels=known.levels,
    )


def _is_test(labels: IntArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    test = np.zeros(labels.size, dtype=np.bool_)
    for label in np.unique(labels):
        test[np.flatnonzero(labels == label)[3::4]] = True
    return test
