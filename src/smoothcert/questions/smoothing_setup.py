"""What the theorems are told about a smoothed classifier."""

from __future__ import annotations

import math
from collections.abc import Sequence

from smoothcert.certificates import Portfolio
from smoothcert.errors import InputError
from smoothcert.records import ConstantSigma, Envelope, Noise, Smoothing, Widened
from smoothcert.records.feature_scale import FeatureScale

SIGMA_SLACK = 2.0**-22
"""Relative room in every envelope for the error with which σ is computed and carried by float32 noise.

A rule is right to 1e-11; noise in float32 has its level to about 3e-8. The room costs about √N times as much of a
standard deviation: 5e-6 σ in MNIST's dimension, 7e-5 σ in ImageNet's.
"""

FLOAT32_ROUNDING = 2.0**-25
"""The most that rounding to float32 moves a number in [0, 1]."""


def describe_smoothing(
    envelope: Envelope | None,
    *,
    dimension: int,
    num_classes: int,
    noise: Noise = Noise.GAUSSIAN,
    remembered: bool = False,
    grid: int | None = None,
    scale: FeatureScale | None = None,
    dtype: str | None = None,
) -> Smoothing:
    """The record that certificates take. A σ with neither an envelope nor a memory is refused.

    remembered: a memory keeps the regions, so each input counts as having a constant σ of its own.
    """
    if remembered:
        envelope = ConstantSigma()
    if envelope is None:
        raise InputError(
            "this sigma has no envelope: nothing is proved about how fast it changes between inputs, so no radius "
            "would hold. Either use a sigma with an envelope (`smoothcert sigma fit` and `sigma train` make one; for a "
            "function of your own state a SemiElastic, LipschitzSigma or MonotoneEnvelope that you can prove), or keep "
            "all promised regions in a memory (--memory FILE, or memory= in Python), which makes any sigma sound. "
            "`smoothcert predict` works without either"
        )
    if not isinstance(envelope, ConstantSigma):
        # On a grid distances are those of k/(grid-1), and σ is computed at the nearest float32 values: at the certified
        # input and at any other input.
        shift = 0.0 if grid is None else 2.0 * FLOAT32_ROUNDING * math.sqrt(dimension)
        envelope = Widened(envelope, slack=SIGMA_SLACK, shift=shift)
    return Smoothing(
        envelope=envelope,
        dimension=dimension,
        num_classes=num_classes,
        noise=noise,
        remembered=remembered,
        grid=grid,
        scale=scale,
        dtype=dtype,
    )


def check_levels(sigmas: Sequence[float], smoothing: Smoothing) -> None:
    """Refuse votes drawn at several noise levels if σ is supposed to be constant."""
    if len(set(sigmas)) > 1 and not smoothing.varying and not smoothing.remembered:
        raise InputError(
            f"these votes were drawn with sigma from {min(sigmas):g} to {max(sigmas):g}, so it is not constant: state "
            "the envelope by which it varies"
        )


def check_one_region(portfolio: Portfolio, smoothing: Smoothing) -> None:
    """A memory promises one region for an input, by a theorem about a constant σ in the norm of the noise."""
    certificate = portfolio.certificates[0]
    if len(portfolio.certificates) > 1:
        raise InputError(
            f"a memory promises one region for an input, and {portfolio} would give several radii: name one certificate"
        )
    if certificate.varying_sigma:
        raise InputError(
            f"{certificate.name} is about a sigma whose change is bounded; with a memory each region is that of one "
            "constant sigma: use the certificate gaussian"
        )
    if certificate.norm is not smoothing.norm:
        raise InputError(
            f"{portfolio} gives radii in the {certificate.norm} norm, and with {smoothing.noise} noise a memory keeps "
            f"regions in the {smoothing.norm} norm"
        )
