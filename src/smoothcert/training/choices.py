"""Choices of a training. This module needs no torch, so the command line can import it."""

from __future__ import annotations

import enum


class Augment(enum.StrEnum):
    """Change of every training image before noise is added."""

    NONE = "none"
    SHIFT = "shift"
    FLIP_CROP = "flip-crop"


class Optimiser(enum.StrEnum):
    SGD = "sgd"
    ADAMW = "adamw"


USUAL_RATES = {Optimiser.SGD: 0.1, Optimiser.ADAMW: 0.001}
"""The peak learning rate, if none is given."""


class FloatFormat(enum.StrEnum):
    """Number format of forward and backward passes. Weights stay float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class SigmaObjective(enum.StrEnum):
    """What the training of a σ network maximises; see `sigma_network`."""

    THEOREM = "theorem"
    RADIUS = "radius"
