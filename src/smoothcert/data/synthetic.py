"""Toy datasets made by formula, bit for bit the same on every machine.

They use uniform draws of a counter-based generator (numpy keeps those streams fixed) and inverse-transform sampling.
Coordinates are rounded to multiples of 2^-20, far above the last-bit differences between mathematical libraries.
Classes alternate. `levine-swiss-roll` is the exception: it repeats the draws of its authors.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from smoothcert.data.arrays import ArrayDataset
from smoothcert.data.named_datasets import CATALOGUE
from smoothcert.errors import InputError
from smoothcert.records import FloatArray

CONE_HALF_ANGLE = math.radians(10.0)
CONE_SCALE = 8.0
"""Root mean square distance to the origin, in both classes."""
MAX_CONE_DIMENSION = 100_000

_SEEDS = {"train": 0, "test": 1}
_SWISS_ROLL_KEY, _CONE_KEY = 2021, 2022
_SWISS_ROLL_PER_CLASS = {"train": 1000, "test": 250}
_LEVINE_ROLL = {"train": (1000, 1), "test": (100, 2)}
_CONE_PER_CLASS = {"train": 500, "test": 100}
_GRID = 2.0**20


def make_swiss_roll(split: str) -> ArrayDataset:
    """Two spiral arms of one and a half turns in the unit disk, half a turn apart, with a little Gaussian scatter.

    Angle t in [π/2, 3π], radius t/(3π), points spread evenly along the arm; neighbouring arms are 1/3 apart and the
    scatter is 0.025 in each coordinate. 1000 training and 250 test points per class; inputs (n, 2).
    """
    from scipy.special import ndtri

    per_class = _SWISS_ROLL_PER_CLASS[split]
    uniform = _draw_uniform(_SWISS_ROLL_KEY, split, (2 * per_class, 3))
    labels = np.arange(2 * per_class) % 2
    # The length of the arm grows about as t², so a uniform t² spreads points evenly.
    low, high = 0.5 * math.pi, 3.0 * math.pi
    t = np.sqrt(low**2 + (high**2 - low**2) * uniform[:, 0])
    angle = t + math.pi * labels
    centre = (t / high)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _make_toy("swiss-roll", split, centre + 0.025 * ndtri(uniform[:, 1:]), labels, name="swiss-roll")


def make_levine_swiss_roll(split: str) -> ArrayDataset:
    """The Swiss roll of Levine et al., "Tight Second-Order Certificates": one arm, cut in the middle.

    Angle t uniform in [3π/2, 9π/2], points (t cos t, t sin t) with standard normal scatter, divided by 10; class 1 where
    t > 3π. Theirs is `make_swiss_roll` of scikit-learn with noise 1 and random states 1 (train) and 2 (test), without
    the second of its three coordinates; the same numbers are drawn here. 1000 training and 100 test points; inputs
    (n, 2).
    """
    count, state = _LEVINE_ROLL[split]
    # numpy keeps the streams of RandomState fixed for ever.
    generator = np.random.RandomState(state)
    t = 1.5 * math.pi * (1.0 + 2.0 * generator.uniform(size=count))
    generator.uniform(size=count)  # the coordinate that is left out
    scatter = generator.standard_normal((3, count))
    points = np.stack([t * np.cos(t) + scatter[0], t * np.sin(t) + scatter[2]], axis=1) / 10.0
    labels = (t > 3.0 * math.pi).astype(np.int64)
    return _make_toy("levine-swiss-roll", split, points, labels, name="levine-swiss-roll")


def make_cone(split: str, *, dimension: int) -> ArrayDataset:
    """A narrow cone with its vertex at the origin (class 0) against everything around it (class 1).

    From Súkeník et al., "Intriguing Properties of Input-Dependent Randomized Smoothing", A.1 (dimension 2) and
    A.5 (any dimension N). The cone opens along the first axis. Its points have a uniform angle to the axis, up to
    CONE_HALF_ANGLE, and a uniform direction around it; the others a uniform direction among those outside the cone.
    The distance to the origin is, in both classes, CONE_SCALE times the square root of a chi-square variable with one
    degree of freedom: the density falls as r^(1-N) exp(-r²/2s²), more peaked at the centre than a normal one. In the
    plane this is a uniform angle within two sectors. 500 training and 100 test points per class; inputs (n, dimension).

    The paper does not state angle, degrees of freedom and scale. They were fitted to the constant-sigma accuracies of
    its Table 5, the best of 20 settings tried, so agreement with that table confirms nothing. One 20-20 network per
    dimension, trained without noise, 300 votes a point, other radii of the same law, ours | paper: N=2 .95 | .943,
    6 .92 | .946, 18 .76 | .86, 60 .82 | .83, 180 .67 | .713, 400 .62 | .623. N/2 degrees of freedom (scales 1 to 10)
    and N (scale 1) were further off.
    """
    if not 2 <= dimension <= MAX_CONE_DIMENSION:
        raise InputError(f"a cone of dimension {dimension} is not supported: expected 2 … {MAX_CONE_DIMENSION}")
    per_class = _CONE_PER_CLASS[split]
    uniform = _draw_uniform(_CONE_KEY, split, (2 * per_class, dimension + 1))
    labels = np.arange(2 * per_class) % 2
    inside = labels == 0
    angle = np.where(inside, CONE_HALF_ANGLE * uniform[:, 0], _angle_outside_cone(uniform[:, 0], dimension))
    across = _unit_vectors(uniform[:, 2:])
    directions = np.concatenate([np.cos(angle)[:, None], np.sin(angle)[:, None] * across], axis=1)
    distance = CONE_SCALE * _square_root_of_chi_square(uniform[:, 1])
    name = "cone" if dimension == 2 else f"cone-{dimension}"
    return _make_toy("cone", split, distance[:, None] * directions, labels, name=name)


def _angle_outside_cone(uniform: FloatArray, dimension: int) -> FloatArray:
    """Angle to the first axis of a direction that is uniform on the sphere outside the cone.

    The squared sine s² of the angle has tail P(s² ≤ q) = I_q((N-1)/2, 1/2) on either half of the sphere.
    """
    from scipy.special import betainc, betaincinv

    a, b = 0.5 * (dimension - 1), 0.5
    in_cone = 0.5 * betainc(a, b, math.sin(CONE_HALF_ANGLE) ** 2)
    # Probability, over the whole sphere, of a smaller angle to the axis than the one drawn.
    below = in_cone + (1.0 - in_cone) * uniform
    front = below < 0.5
    tail = np.where(front, below, 1.0 - below)
    acute = np.arcsin(np.sqrt(betaincinv(a, b, np.clip(2.0 * tail, 0.0, 1.0))))
    return np.asarray(np.where(front, acute, math.pi - acute), dtype=np.float64)


def _unit_vectors(uniform: FloatArray) -> FloatArray:
    """(n, k) directions, uniform on the sphere, from (n, k) uniform numbers."""
    from scipy.special import ndtri

    if uniform.shape[1] == 1:
        return np.where(uniform < 0.5, -1.0, 1.0)
    normal = ndtri(uniform)
    return np.asarray(normal / np.linalg.norm(normal, axis=1, keepdims=True), dtype=np.float64)


def _square_root_of_chi_square(uniform: FloatArray) -> FloatArray:
    """Square root of a chi-square variable with one degree of freedom, that is |Z|, by its quantile function."""
    from scipy.special import ndtri

    return np.asarray(-ndtri(0.5 * uniform), dtype=np.float64)


def _draw_uniform(key: int, split: str, shape: tuple[int, int]) -> FloatArray:
    """Numbers strictly between 0 and 1: multiples of 2^-53, shifted by half a step."""
    generator = np.random.Generator(np.random.Philox(key=[key, _SEEDS[split]]))
    return generator.random(shape) + 2.0**-54


def _make_toy(entry: str, split: str, points: FloatArray, labels: NDArray[np.int64], *, name: str) -> ArrayDataset:
    known = CATALOGUE[entry]
    return ArrayDataset(
        name=name,
        split=split,
        stored=(np.rint(points * _GRID) / _GRID).astype(np.float32),
        labels=labels,
        num_classes=known.num_classes,
        class_names=known.class_names,
        input_range=None,
    )
