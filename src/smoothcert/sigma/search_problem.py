"""The objective of every search for a noise level: the radius estimated from mean scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise import law_of
from smoothcert.records import FloatArray, IntArray, Noise
from smoothcert.sigma.search_samples import NoisyScores

USUAL_CLAMP = 1e-4
"""About the probability of another class that 100000 unanimous votes cannot exclude (7e-5 at α = 0.001).

A larger clamp hides how safe a class is at small σ and increases σ until that shows: with the paper's 0.02 the radii on
MNIST are smaller. For certificates over 10000 votes 5e-4 is as good.
"""
USUAL_CHECK = 100
"""Draws that detect a failed search. They do not distinguish levels whose radii differ by a few percent."""
MOST_EVALUATIONS = 10**9
"""The largest setting accepted by `check_count`."""


def estimate_radii(
    scores: FloatArray, labels: IntArray, sigmas: FloatArray, *, noise: Noise, clamp: float, two_class: bool
) -> FloatArray:
    """The radius at which the mean scores E_A and E_B meet under this noise: `NoiseLaw.estimated_radius`.

    E_A is the mean score of the label. E_B is 1 - E_A, as in certificates that bound one probability; with two_class it
    is the largest mean score of any other class, as in certificates that bound two, and in the paper. For Gaussian
    noise both are clipped to [clamp, 1-clamp]. The estimate is negative where the opponent leads. It is never part of a
    certificate.

    scores: (k, s, classes), labels: (k,), sigmas: (k, s). Returns (k, s).
    """
    place = np.broadcast_to(labels[:, np.newaxis, np.newaxis], (*sigmas.shape, 1))
    own = np.take_along_axis(scores, place, axis=2)[..., 0]
    others = scores.copy()
    np.put_along_axis(others, place, -np.inf, axis=2)
    best: FloatArray = others.max(axis=2) if two_class else 1.0 - own
    return law_of(noise).estimated_radius(own, best, sigma=sigmas, clamp=clamp)


@dataclass(frozen=True, slots=True)
class Problem:
    """m inputs, the class (m,) of each, and the range of the noise level. two_class: see `estimate_radii`."""

    samples: NoisyScores
    labels: IntArray
    start: float
    least: float
    most: float
    noise: Noise
    two_class: bool

    def radii(self, chosen: IntArray, sigmas: FloatArray, *, noises: int, clamp: float) -> FloatArray:
        """Estimate the radii of input chosen[i] at the levels sigmas[i], (k, s); the levels share fresh noise."""
        scores = self.samples.mean_scores(chosen, sigmas, noises=noises)
        return estimate_radii(
            scores, self.labels[chosen], sigmas, noise=self.noise, clamp=clamp, two_class=self.two_class
        )

    def every(self) -> IntArray:
        """The indices of all inputs."""
        return np.arange(len(self.labels))


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Refuse a setting that is not a whole number in least … MOST_EVALUATIONS."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_EVALUATIONS:
        raise InputError(f"{name}={value} of a search for sigma must be a whole number, at least {least}")


def check_clamp(value: float) -> None:
    """Refuse a clamp that is not between 0 and 0.5."""
    if not (isinstance(value, (int, float)) and 0.0 < value < 0.5):
        raise InputError(
            f"clamp={value} of a search for sigma must lie between 0 and 0.5: mean scores are clipped to "
            "[clamp, 1-clamp] before the normal quantile is taken (1e-4 is usual)"
        )
