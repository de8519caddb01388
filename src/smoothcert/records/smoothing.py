"""What a theorem may need to know about a smoothed classifier besides its votes."""

from __future__ import annotations

from dataclasses import dataclass, field

from smoothcert.records.envelopes import ConstantSigma, Envelope
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.records.noises import Noise, Norm


@dataclass(frozen=True, slots=True)
class Smoothing:
    """What a theorem may have to know of the smoothed classifier besides its votes.

    envelope: how far σ may move around an input. dimension: of an input; None where it is not known, which the theorems
    for a constant σ do not mind. num_classes: likewise. noise: what is added to an input. grid: inputs and noise are
    whole multiples of 1/(grid-1), and are added exactly; None for float32 noise, which is taken for the ideal one.
    scale: by which inputs are divided before noise is added; radii are those of the quotients. dtype: the half
    precision in which the model is computed; no theorem depends on it, and every statement names it.

    remembered: every input has a σ of its own, and what is certified of the classifier smoothed with that σ throughout
    is promised by a memory of regions. The theorems for a constant σ apply to each input by itself.
    """

    envelope: Envelope = field(default_factory=ConstantSigma)
    dimension: int | None = None
    num_classes: int | None = None
    noise: Noise = Noise.GAUSSIAN
    remembered: bool = False
    grid: int | None = None
    scale: FeatureScale | None = None
    dtype: str | None = None

    @property
    def norm(self) -> Norm:
        """The norm in which every theorem about this noise gives its radii."""
        return self.noise.norm

    @property
    def varying(self) -> bool:
        """Whether σ may differ from input to input."""
        return not isinstance(self.envelope, ConstantSigma)
