"""Low-dimensional versions of MNIST from Levine et al., "Tight Second-Order Certificates": 7x7 means, 10 components.

Sums are over whole numbers that float64 holds exactly, and components are rounded to a grid far coarser than the
differences between linear algebra libraries, so the result is the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.records import FloatArray, InputArray

COMPONENTS = 10
_BLOCK = 4
_GREATEST_SUM = 255 * _BLOCK * _BLOCK
_COMPONENT_GRID = 2.0**22


def block_sums(images: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """(n, 28, 28) to (n, 7, 7): sums over 4x4 blocks, 0 … 4080. Divided by 4080 they are block means in [0, 1]."""
    n, height, width = images.shape
    blocks = images.reshape(n, height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK)
    # Rows first: the sums stay contiguous, four times faster than summing both axes at once.
    rows = blocks.sum(axis=2, dtype=np.uint16)
    return np.asarray(rows.sum(axis=-1, dtype=np.uint16))


def principal_components(train_sums: NDArray[np.uint16]) -> tuple[FloatArray, FloatArray]:
    """Sum of the training vectors (49,) and leading components (10, 49) in units of 2^-22, both whole numbers.

    The largest entry of a component is positive. Rounding changes an entry by at most 2^-23.
    """
    vectors = train_sums.reshape(len(train_sums), -1).astype(np.float64)
    total = vectors.sum(axis=0)
    scatter = vectors.T @ vectors - np.outer(total, total) / len(vectors)
    _, eigenvectors = np.linalg.eigh(scatter)
    leading = eigenvectors[:, ::-1][:, :COMPONENTS].T
    largest = leading[np.arange(COMPONENTS), np.abs(leading).argmax(axis=1)]
    return total, np.rint(leading * np.sign(largest)[:, None] * _COMPONENT_GRID)


def signs_by_extreme_image(train_sums: NDArray[np.uint16], components: FloatArray) -> FloatArray:
    """(10,) factors ±1 for the components, by the rule of scikit-learn before version 1.5.

    Of all training images, the one farthest from the mean along a component lies in its positive direction.
    """
    total = train_sums.reshape(len(train_sums), -1).sum(axis=0, dtype=np.float64)
    along = project(train_sums, total, components, train_size=len(train_sums))
    extreme = along[np.abs(along).argmax(axis=0), np.arange(COMPONENTS)]
    return np.where(extreme < 0, -1.0, 1.0)


def project(
    sums: NDArray[np.uint16], train_total: FloatArray, components: FloatArray, *, train_size: int
) -> InputArray:
    """(n, 10) coordinates of block means along the components, with the training mean as origin."""
    vectors = sums.reshape(len(sums), -1).astype(np.float64)
    # Exact: sums stay below 60000 · 4080 · 7 · 2^22 < 2^53, as the entries of a unit vector add up to 7 at most.
    along = vectors @ components.T
    origin = (train_total @ components.T) / train_size
    return ((along - origin) / (_GREATEST_SUM * _COMPONENT_GRID)).astype(np.float32)
