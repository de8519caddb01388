"""Labels that people give, checked against the classes of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records.class_names import NO_LABEL, find_position

Labels = list[int | None]


def read_labels(labels: Any, *, count: int, num_classes: int, class_names: Sequence[str] = ()) -> Labels:
    """One class 0 … num_classes-1 for each input, or None. None and -1 mean that an input has no label.

    class_names: of the model, if it has any; labels are then given by name.
    """
    if labels is None:
        return [None] * count
    found = _list_labels(labels)
    if len(found) != count:
        raise InputError(f"{count} inputs came with {len(found)} labels; one each is needed")
    if class_names:
        found = [_find_class(_as_plain(label), class_names) for label in found]
    return [_read_label(label, position, num_classes) for position, label in enumerate(found)]


def merge_labels(own: Labels, given: Labels) -> Labels:
    """Labels of a dataset and those given as labels=, which must not contradict each other."""
    for position, (one, other) in enumerate(zip(own, given, strict=True)):
        if one is not None and other is not None and one != other:
            raise InputError(
                f"the dataset says that input {position} has label {one}, and labels= says {other}: give one of them"
            )
    return [other if one is None else one for one, other in zip(own, given, strict=True)]


def _list_labels(labels: Any) -> list[Any]:
    values = labels.detach().cpu() if hasattr(labels, "detach") else labels
    if hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim > 1:
            raise _refuse_rows(array.shape)
        return list(np.atleast_1d(array))
    if isinstance(values, Sequence) and not isinstance(values, str):
        return list(values)
    return [values]


def _read_label(label: Any, position: int, num_classes: int) -> int | None:
    value = _as_plain(label)
    if value is None:
        return None
    if isinstance(value, (list, tuple)) or hasattr(value, "shape"):
        raise _refuse_rows(("m", len(value)))
    expected = f"0 … {num_classes - 1}, or None for an input without a label"
    if not isinstance(value, (bool, int, float)):
        raise InputError(
            f"the label of input {position} is {value!r}; expected the number of its class, {expected}: the position "
            "of the name in the list of classes"
        )
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise InputError(f"the label of input {position} is {value}; expected a whole number, {expected}")
    if value == NO_LABEL:
        return None
    if not 0 <= value < num_classes:
        raise InputError(f"the label of input {position} is {value}; the classes of the model are {expected}")
    return int(value)


def _find_class(label: Any, class_names: Sequence[str]) -> Any:
    """The position of a class; rows of numbers are left to be refused."""
    is_one = isinstance(label, str | bool | int | float)
    return find_position(label, class_names) if is_one else label


def _as_plain(label: Any) -> Any:
    """The number in a scalar of numpy or torch; everything else as it is."""
    try:
        return label.item()
    except (AttributeError, TypeError, ValueError, RuntimeError):  # no scalar, or more than one number
        return label


def _refuse_rows(shape: tuple[Any, ...]) -> InputError:
    shown = str(shape).replace("'", "")
    return InputError(
        f"labels have shape {shown}; expected one number for each input. One-hot rows become labels with argmax(axis=1)"
    )
