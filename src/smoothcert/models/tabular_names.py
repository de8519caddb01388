"""The names that models of tables have: of their classes, and of the columns they were fitted on."""

from __future__ import annotations

from typing import Any

from smoothcert.errors import ModelError
from smoothcert.models.base import BaseClassifier


def get_class_names(classifier: BaseClassifier) -> tuple[str, ...]:
    """The names of the classes, if the classifier has any; else empty."""
    names = tuple(map(str, getattr(classifier, "class_names", ())))
    if len(names) not in (0, classifier.num_classes):
        raise ModelError(f"{classifier.description} has {len(names)} class_names for {classifier.num_classes} classes")
    return names


def get_feature_names(model: Any) -> tuple[str, ...]:
    """The columns that a scikit-learn estimator, or its adapter, takes by name; empty if it takes them by position."""
    names = getattr(model, "feature_names", None)
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(map(str, names))
