"""pandas frames as inputs, and labels that come with them. pandas itself is not imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smoothcert.data.matching import find_order
from smoothcert.errors import InputError
from smoothcert.models.imported_models import inherits
from smoothcert.records import FloatArray
from smoothcert.records.class_names import list_names

_NUMERIC = "biuf"


def is_frame(x: Any) -> bool:
    """Whether x is a pandas DataFrame."""
    return inherits(x, "pandas", "DataFrame")


def list_columns(x: Any) -> tuple[str, ...]:
    """The names of the columns of a frame; empty for anything else."""
    return tuple(str(name) for name in x.columns) if is_frame(x) else ()


def read_frame(frame: Any, feature_names: Sequence[str]) -> FloatArray:
    """The numbers of a frame, (rows, columns), with columns in the order of `feature_names`, if those are known.

    An InputError names columns that the model lacks or does not take, and columns that are not numeric.
    """
    if feature_names:
        order = find_order(list_columns(frame), feature_names)
        frame = frame if order is None else frame.iloc[:, order]
    wrong = [str(name) for name, kind in zip(frame.columns, frame.dtypes, strict=True) if not _is_numeric(kind)]
    if wrong:
        raise InputError(
            f"the column {list_names(wrong)} is not numeric: noise is added to numbers only. Encode it before the "
            "model, with the numbers as the input that is certified, or fit the model without it"
        )
    values: FloatArray = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def check_same_order(x: Any, labels: Any) -> None:
    """Refuse labels whose index is that of the frame in another order."""
    if not (is_frame(x) and (inherits(labels, "pandas", "Series") or is_frame(labels))) or x.index.equals(labels.index):
        return
    if len(x) == len(labels) and x.index.sort_values().equals(labels.index.sort_values()):
        raise InputError("the labels are in another order than the rows of the frame: give labels.loc[frame.index]")


def _is_numeric(dtype: Any) -> bool:
    """numpy's numbers and booleans, and those of pandas that may be missing."""
    return getattr(dtype, "kind", "O") in _NUMERIC
