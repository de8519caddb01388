"""Names of classes, and labels as positions among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from smoothcert.errors import InputError

NO_LABEL = -1
"""The label of an input without one, in arrays and files."""
_MOST_SHOWN, _LONGEST = 8, 60


def name_classes(classes: Iterable[object]) -> tuple[str, ...]:
    """The names of classes, such as scikit-learn's `classes_`; empty if they are only the numbers 0, 1, 2, …"""
    names = tuple(name_class(one) for one in classes)
    return () if are_positions(names) else names


def name_class(value: object) -> str:
    """A class as text. A whole number has one name whatever its type: 3, 3.0 and np.int64(3) are "3"."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | float | np.integer | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def are_positions(names: Sequence[str]) -> bool:
    """Whether these are the numbers 0, 1, 2, … in order, which say no more than the position of a class."""
    return all(name == str(place) for place, name in enumerate(names))


def are_numbers(names: Sequence[str]) -> bool:
    """Whether every class is named by a whole number."""
    return all(map(_is_number, names))


def find_position(label: object, names: Sequence[str]) -> int:
    """The position of a label among the names of the classes; an InputError if it is none of them.

    Classes may also be given by position, if none of them is named by a number. -1 is "no label", unless a class has
    that name.
    """
    name = name_class(label)
    if name in names:
        return names.index(name)
    if name == str(NO_LABEL):
        return NO_LABEL
    if not isinstance(label, str) and name.isdecimal() and int(name) < len(names) and not any(map(_is_number, names)):
        return int(name)
    raise InputError(f"the label {clip_name(label)} is not a class of the model: expected one of {list_names(names)}")


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def find_shared_names(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The names that all runs with names agree on; empty if they differ, or if there are none."""
    known = {names for names in several if names}
    return known.pop() if len(known) == 1 else ()


def list_names(names: Sequence[str]) -> str:
    """The first names, for a message."""
    shown = ", ".join(map(clip_name, names[:_MOST_SHOWN]))
    return f"{shown}, …" if len(names) > _MOST_SHOWN else shown


def clip_name(name: object) -> str:
    """A name that may be very long, for a message."""
    return repr(_clip(name if isinstance(name, str) else name_class(name)))


def title_class(label: int, names: Sequence[str]) -> str:
    """The number of a class and its name, if it has one, on one line: "1 dog"."""
    return f"{label} {show_name(names[label])}" if 0 <= label < len(names) else str(label)


def show_name(name: str) -> str:
    """A name on one line, with escapes for what cannot be printed; names may come from a stranger's file."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in _clip(name))


def _clip(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
