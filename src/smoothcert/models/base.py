"""The protocols that base classifiers follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard, runtime_checkable

from smoothcert.records import FloatArray, InputArray, IntArray

if TYPE_CHECKING:
    import torch


class BaseClassifier(Protocol):
    """A deterministic function from inputs to {0, …, num_classes-1} or "no valid answer".

    digest: identifies the function (weights, architecture, back end), for the manifest. description: one line for
    people. backend: what computes the model ("torch cpu frozen", "onnxruntime cpu", …); another back end is another
    floating-point function. input_shape: shape of one input, or None if any shape is accepted. concurrency: how many
    threads may call `classify` at once.
    """

    num_classes: int
    input_shape: tuple[int, ...] | None
    digest: str
    description: str
    backend: str
    concurrency: int

    def classify(self, batch: InputArray, /) -> IntArray:
        """Votes (B,) int64 for a batch (B, *input_shape), float32 and C-contiguous.

        Ties go to the lowest class. A row whose largest logit is not finite (NaN anywhere, +inf, or only -inf) gets
        `num_classes`, the invalid vote.
        """

    def prepare_thread(self) -> None:
        """Called once in every thread that will call `classify`, for example to limit it to one core."""

    def release_threads(self) -> None:
        """Called by the thread that started those threads, after they ended, to restore the process."""


@runtime_checkable
class ScoringClassifier(BaseClassifier, Protocol):
    """A classifier that also gives a score for each class, for soft smoothing.

    gives_scores: False if the underlying model returns labels only.
    """

    gives_scores: bool

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        """The votes of `classify`, and scores (B, num_classes) float64 in [0, 1] of the same batch, in one pass.

        Votes cannot be computed from scores, because different logits may have equal scores. The scores of a row sum
        to 1 within a few rounding errors. The scores of an invalid row are not used.
        """


@runtime_checkable
class FirstLayerNoise(BaseClassifier, Protocol):
    """A classifier in host memory with a linear first layer, x ↦ tail(Wx + b), that is smoothed by drawing Wε.

    tail: the rest of the network; it takes the output of the layer, (B, width).
    """

    tail: BaseClassifier

    def hidden(self, inputs: InputArray, /) -> InputArray:
        """Wx + b. inputs: (m, *input_shape); returns (m, width) float32."""

    def colour(self, normals: InputArray, out: InputArray, /) -> None:
        """Turn standard normals (rows, width) into draws of Wε at σ = 1, written to `out` of the same shape."""

    def lift(self, x: InputArray, hidden: InputArray, /, *, sigma: float) -> InputArray:
        """A noisy copy x + ε with W(x + ε) + b = hidden, within rounding, and ε ~ N(0, σ²I) given that.

        x: (*input_shape); hidden: (width,). Returns the shape of x, float32.
        """


@runtime_checkable
class DeviceClassifier(BaseClassifier, Protocol):
    """A classifier whose inputs are on an accelerator; noise and counts stay there too.

    It may have an attribute `input_dtype`, a type that it converts float32 inputs to: then the noise is written in that
    type, and `classify_tensor` gets it.
    """

    device: torch.device

    def classify_tensor(self, batch: torch.Tensor, /) -> torch.Tensor:
        """`classify` for a float32 tensor on `device`; returns an int64 tensor on `device`."""


@runtime_checkable
class ScoringDeviceClassifier(DeviceClassifier, ScoringClassifier, Protocol):
    """A classifier on an accelerator that gives scores."""

    def votes_and_scores_tensor(self, batch: torch.Tensor, /) -> tuple[IntArray, FloatArray]:
        """`votes_and_scores` for a float32 tensor on `device`; the results are in host memory."""


def is_first_layer_noise(classifier: BaseClassifier) -> TypeGuard[FirstLayerNoise]:
    # The attribute first: comparing an object with a protocol takes longer than a small model.
    return hasattr(classifier, "lift") and isinstance(classifier, FirstLayerNoise)


def input_dtype_of(classifier: DeviceClassifier) -> torch.dtype:
    """The type in which noisy copies are written for a classifier: float32, unless it says otherwise."""
    import torch

    dtype: torch.dtype = getattr(classifier, "input_dtype", torch.float32)
    return dtype


def is_on_device(classifier: BaseClassifier) -> TypeGuard[DeviceClassifier]:
    return hasattr(classifier, "classify_tensor") and isinstance(classifier, DeviceClassifier)
