"""A noise level for each feature, as it is given in Python: numbers in order, or by the names of features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smoothcert.errors import InputError
from smoothcert.models.base import BaseClassifier
from smoothcert.models.scaled_classifier import scale_classifier
from smoothcert.models.tabular_names import get_feature_names
from smoothcert.records.class_names import clip_name, list_names
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.sigma.constant import ConstantRule
from smoothcert.sigma.optimised import OptimisedSigma
from smoothcert.sigma.rule import SigmaRule


@dataclass(frozen=True, slots=True)
class GivenScale:
    """Numbers of a scale, before the model is known. names: of their features; empty if they are given in order."""

    scale: FeatureScale
    names: tuple[str, ...] = ()

    def apply(self, base: BaseClassifier, input_shape: tuple[int, ...]) -> tuple[BaseClassifier, FeatureScale]:
        """The classifier of scaled inputs, and the scale in the order of the features of the model."""
        scale = self._sort(get_feature_names(base)) if self.names else self.scale
        scale.check_fits(input_shape)
        return scale_classifier(base, scale), scale

    def _sort(self, features: Sequence[str]) -> FeatureScale:
        if not features:
            raise InputError(
                "sigma is given by the names of features, and the model does not name its features: give a list of "
                "numbers, in the order of the columns"
            )
        by_name = dict(zip(self.names, self.scale.numbers, strict=True))
        missing = [name for name in features if name not in by_name]
        unknown = [name for name in self.names if name not in features]
        if missing or unknown:
            what = f"it is missing for {list_names(missing)}" if missing else f"there is no {list_names(unknown)}"
            raise InputError(f"the model has {len(features)} features, and sigma is given for {len(by_name)}: {what}")
        return FeatureScale(tuple(by_name[name] for name in features))


def split_sigma(sigma: Any, sigma_scale: Any = None) -> tuple[Any, GivenScale | None]:
    """sigma and the scale of the features, None without one. A sigma of several numbers is that scale, and sigma 1."""
    several = _is_several(sigma)
    if sigma_scale is None:
        return (1.0, read_scale(sigma, name="sigma")) if several else (sigma, None)
    if several:
        raise InputError("sigma has several numbers, and sigma_scale is given too: give one number as sigma")
    if not isinstance(sigma, ConstantRule) and (callable(sigma) or isinstance(sigma, SigmaRule | OptimisedSigma)):
        raise InputError(
            f"sigma_scale is for a sigma that is one number; a {type(sigma).__name__} gives each input its own level"
        )
    return sigma, read_scale(sigma_scale, name="sigma_scale")


def read_scale(given: Any, *, name: str) -> GivenScale:
    """One number for each feature: a sequence or array, or a mapping or pandas Series by the names of features."""
    if isinstance(given, str):
        raise InputError(f"{name} is {clip_name(given)}; expected numbers, one for each feature")
    labels = list(given.keys()) if isinstance(given, Mapping) or hasattr(given, "keys") else []
    named = bool(labels) and all(isinstance(label, str) for label in labels)
    if isinstance(given, Mapping) and not named:
        given_by = list_names([str(label) for label in labels])
        raise InputError(f"{name} is given by {given_by}; expected the names of features")
    if len(set(labels)) < len(labels):
        raise InputError(f"{name} has a feature twice: {list_names(labels)}")
    values = list(given.values()) if isinstance(given, Mapping) else given
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is {clip_name(given)}; expected numbers, one for each feature") from error
    if numbers.ndim != 1:
        raise InputError(f"{name} has the shape {numbers.shape}; expected a list of numbers, one for each feature")
    return GivenScale(FeatureScale(tuple(numbers.tolist())), tuple(labels) if named else ())


def _is_several(sigma: Any) -> bool:
    """Whether sigma is a list, an array or a mapping, not one number, a rule or a function."""
    if isinstance(sigma, Mapping | list | tuple):
        return True
    return not callable(sigma) and hasattr(sigma, "__array__") and np.ndim(sigma) > 0
