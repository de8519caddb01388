"""The names that models of tables have: of their classes, and of the columns they were fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smoothcert.errors import InputError, ModelError
from smoothcert.models.base import BaseClassifier
from smoothcert.records.class_names import list_names


def get_class_names(classifier: BaseClassifier) -> tuple[str, ...]:
    """The names of the classes, if the classifier has any; else empty."""
    names = tuple(map(str, getattr(classifier, "class_names", ())))
    if len(names) not in (0, classifier.num_classes):
        raise ModelError(f"{classifier.description} has {len(names)} class_names for {classifier.num_classes} classes")
    return names


def check_same_classes(named: Sequence[tuple[str, BaseClassifier]]) -> None:
    """Refuse base classifiers of several noise levels whose classes differ. named: with the name for messages."""
    (first_name, first), *others = named
    for name, other in others:
        if (other.num_classes, get_class_names(other)) != (first.num_classes, get_class_names(first)):
            raise ModelError(
                f"the base classifiers of all levels must have the same classes: {first_name} has {first.num_classes}, "
                f"and {name} has {other.num_classes}"
                + (", with other names" if other.num_classes == first.num_classes else "")
            )


def get_feature_names(model: Any) -> tuple[str, ...]:
    """The columns that a scikit-learn estimator, or its adapter, takes by name; empty if it takes them by position."""
    names = getattr(model, "feature_names", None)
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(map(str, names))


def settle_class_names(classifier: BaseClassifier, given: tuple[str, ...]) -> tuple[str, ...]:
    """The names that were given, or else those of the classifier; an InputError where they contradict each other."""
    own = get_class_names(classifier)
    if not given:
        return own
    if len(given) != classifier.num_classes:
        raise InputError(f"{len(given)} class_names were given, but the model has {classifier.num_classes} classes")
    if len(set(given)) < len(given):
        raise InputError(f"a name is given to two classes: {list_names(given)}")
    if own and own != given:
        raise InputError(f"class_names are {list_names(given)}, but the classes of the model are {list_names(own)}")
    return given
