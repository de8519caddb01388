"""What the sampler asks of a base classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from smoothcert.records import FloatArray, InputArray, IntArray

if TYPE_CHECKING:
    import torch


class BaseClassifier(Protocol):
    """A deterministic function from inputs to {0, …, num_classes-1} or "no valid answer".

    digest: identifies the function (weights, architecture, back end), for the manifest. description: one line
    for people. backend: which engine computes it ("torch cpu frozen", "onnxruntime cpu", …); another back end
    is another floating-point function. input_shape: shape of one input, or None if any shape is taken.
    concurrency: how many threads may call `classify` at once.
    """

    num_classes: int
    input_shape: tuple[int, ...] | None
    digest: str
    description: str
    backend: str
    concurrency: int

    def classify(self, batch: InputArray, /) -> IntArray:
        """Votes for a batch.

        batch: (B, *input_shape) float32, C-contiguous. Returns (B,) int64. A tie goes to the lowest class. A
        row whose largest logit is not finite (NaN anywhere, +inf, or nothing but -inf) gets `num_classes`: an
        invalid vote.
        """

    def prepare_thread(self) -> None:
        """Called once in every thread that will call `classify` (for example to make it single-threaded inside)."""

    def release_threads(self) -> None:
        """Called by the thread that started those, after they have ended: leaves the process as it was."""


@runtime_checkable
class ScoringClassifier(BaseClassifier, Protocol):
    """A classifier that can also say how strongly it holds for each class, for soft smoothing.

    gives_scores: False where this one cannot, because what it stands on answers with classes alone.
    """

    gives_scores: bool

    def votes_and_scores(self, batch: InputArray, /) -> tuple[IntArray, FloatArray]:
        """The votes of `classify`, and scores (B, num_classes) float64 in [0, 1] of the same batch.

        Both come from one pass: votes cannot be told from scores, because different logits may have equal scores.
        The scores of a row add up to 1, to within a few rounding errors; those of an invalid row count for nothing.
        """


@runtime_checkable
class FirstLayerNoise(BaseClassifier, Protocol):
    """A classifier in host memory that sees its input through one linear layer, x ↦ tail(Wx + b), and that is smoothed
    by drawing Wε from its own law.

    tail: the rest, which takes what that layer gives, (B, width).
    """

    tail: BaseClassifier

    def hidden(self, inputs: InputArray, /) -> InputArray:
        """Wx + b. inputs: (m, *input_shape); returns (m, width) float32."""

    def colour(self, normals: InputArray, out: InputArray, /) -> None:
        """Standard normals (rows, width) → draws of Wε at σ = 1, into `out` of the same shape."""

    def lifted(self, x: InputArray, hidden: InputArray, /, *, sigma: float) -> InputArray:
        """A noisy copy x + ε with W(x + ε) + b = hidden, to within rounding, where ε ~ N(0, σ²I) given that.

        x: (*input_shape); hidden: (width,). Returns the shape of x, float32.
        """


@runtime_checkable
class DeviceClassifier(BaseClassifier, Protocol):
    """A classifier whose inputs live on an accelerator; noise and counts stay there too."""

    device: torch.device

    def classify_tensor(self, batch: torch.Tensor, /) -> torch.Tensor:
        """The same as `classify`, for a float32 tensor on `device`; returns an int64 tensor on `device`."""


@runtime_checkable
class ScoringDeviceClassifier(DeviceClassifier, ScoringClassifier, Protocol):
    """A classifier on an accelerator that gives scores."""

    def votes_and_scores_tensor(self, batch: torch.Tensor, /) -> tuple[IntArray, FloatArray]:
        """`votes_and_scores` for a float32 tensor on `device`; the answer lies in host memory."""
