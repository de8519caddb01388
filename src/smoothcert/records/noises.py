"""The noises that can be added to an input, and the norms that certificates are stated in."""

from __future__ import annotations

import enum


class Norm(enum.StrEnum):
    L1 = "l1"
    L2 = "l2"


class Noise(enum.StrEnum):
    """What is added to an input before the base classifier sees it; the value is the name on the command line.

    The noise level is called sigma throughout: the standard deviation σ of each coordinate of Gaussian noise N(0, σ²I),
    and the half-width λ of uniform noise on [-λ, λ]^d.
    """

    GAUSSIAN = "gaussian"
    UNIFORM = "uniform"
