"""A base classifier of scaled inputs: u ↦ f(u·s), for a noise level of each feature. torch only for accelerators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from smoothcert.errors import InputError
from smoothcert.models.backends import get_backend_name
from smoothcert.models.base import BaseClassifier, ScoringDeviceClassifier, is_first_layer_noise, is_on_device
from smoothcert.models.digests import text_digest
from smoothcert.models.original import Answer, Ask, Changeable, Original, asking, original_of
from smoothcert.models.scores import gives_scores, require_scores
from smoothcert.models.votes import check_batch
from smoothcert.records import FloatArray, InputArray, IntArray
from smoothcert.records.feature_scale import FeatureScale

if TYPE_CHECKING:
    import torch

_PASSED_ON = (
    "class_names", "feature_names", "scores_are", "has_independent_rows", "has_random_weights", "as_given",
    "in_calling_thread", "autocast_dtype",
)  # fmt: skip
"""What some classifiers have, and what is true of their scaled form too."""


class ScaledClassifier:
    """f behind a multiplication: rows are multiplied by the scale in float32, value by value, then classified by f.

    The digest covers f and the scale. `original` asks the user's own object about the multiplied row.
    """

    def __init__(self, base: BaseClassifier, scale: FeatureScale) -> None:
        self.base = base
        self.scale = scale
        self.num_classes = base.num_classes
        self.input_shape: tuple[int, ...] | None = (len(scale.numbers),)
        self.digest = text_digest("scaled inputs", base.digest, *map(repr, scale.numbers))
        self.description = f"{base.description}, each feature with its own noise level"
        self.backend = base.backend
        self.backend_name = get_backend_name(base)
        self.concurrency = base.concurrency
        self.gives_scores = gives_scores(base)
        self.prepare_thread = base.prepare_thread
        self.release_threads = base.release_threads
        self.original = ScaledOriginal(original_of(base), scale)
        for name in _PASSED_ON:
            if hasattr(base, name):
                setattr(self, name, getattr(base, name))

    def classify(self, batch: InputArray, /) -> IntArray:
        check_batch(batch, self.input_shape)
        return self.base.classify(self.scale.multiply(batch))

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        check_batch(batch, self.input_shape)
        return require_scores(self.base).votes_and_scores(self.scale.multiply(batch))


class ScaledDeviceClassifier(ScaledClassifier):
    """As `ScaledClassifier`, for a classifier on an accelerator: the multiplication happens there."""

    def __init__(self, base: Any, scale: FeatureScale) -> None:
        import torch

        super().__init__(base, scale)
        self.device = base.device
        self._on_device = torch.from_numpy(scale.factors).to(base.device)

    def classify_tensor(self, batch: torch.Tensor, /) -> torch.Tensor:
        return cast(ScoringDeviceClassifier, self.base).classify_tensor(batch * self._on_device)

    def votes_and_scores_tensor(self, batch: torch.Tensor, /) -> tuple[IntArray, FloatArray]:
        return cast(ScoringDeviceClassifier, self.base).votes_and_scores_tensor(batch * self._on_device)


class ScaledOriginal:
    """The user's own object, asked about u·s."""

    def __init__(self, original: Original, scale: FeatureScale) -> None:
        self._original = original
        self._scale = scale

    def answer(self, row: InputArray, /) -> Answer:
        return self._original.answer(self._scale.multiply(row))

    @contextmanager
    def asking(self, *, scores: bool) -> Iterator[Ask]:
        with asking(self._original, scores=scores) as ask:
            yield lambda row: ask(self._scale.multiply(row))

    def check_unchanged(self) -> None:
        """ModelMismatchError if the user's object was changed, as far as it can tell."""
        if isinstance(self._original, Changeable):
            self._original.check_unchanged()


def scale_classifier(base: BaseClassifier, scale: FeatureScale) -> BaseClassifier:
    """The classifier of inputs that were divided by the scale; an InputError if there is none."""
    if is_first_layer_noise(base):
        raise InputError(
            "a sigma for each feature needs the noise at the input, and it is drawn in the first layer: leave "
            "noise_at (--noise-at) out"
        )
    if base.input_shape is not None:
        scale.check_fits(base.input_shape)
    return ScaledDeviceClassifier(base, scale) if is_on_device(base) else ScaledClassifier(base, scale)
