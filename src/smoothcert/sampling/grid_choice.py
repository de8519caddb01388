"""The grid of a smoothed classifier: taken from its first inputs, if its noise can go in the steps of that grid."""

from __future__ import annotations

from collections.abc import Sequence

from smoothcert.errors import InputError
from smoothcert.models.base import BaseClassifier, FirstLayerNoise
from smoothcert.models.scores import require_scores
from smoothcert.noise import DETECT, FLOAT
from smoothcert.noise.input_grid import InputGrid
from smoothcert.records import ConstantSigma, InputArray, Noise, Smoothing, TallyKind
from smoothcert.sampling.inputs import InputRange
from smoothcert.sampling.sampler import check_can_sample
from smoothcert.sigma import OptimisedSigma, SigmaRule
from smoothcert.sigma.levels import list_likely_levels

SCALED_INPUTS = "inputs are divided by the scale of their features, and then lie on no grid"
"""Why the noise of scaled inputs is float32."""


EIGHT_BITS = 256
"""The levels of 8-bit inputs."""


def begin_grid(grid: int | str | None, *, noise: Noise, with_memory: bool, scaled: bool) -> InputGrid:
    """The grid of a classifier before it has seen inputs. scaled: they will be divided by a scale, and lie on none.

    Splitting is for 8-bit inputs, if nothing else is said; inputs are rounded to a grid that was given for it.
    """
    if not noise.sampled and not scaled:
        if grid in (FLOAT, None):
            raise InputError(f"{noise} is for inputs on a grid, not for noise in float32: leave grid out, or give 256")
        return InputGrid(EIGHT_BITS if grid == DETECT else grid, with_memory=with_memory, rounds=grid != DETECT)
    begun = InputGrid(grid, with_memory=with_memory)
    if scaled and begun.levels_so_far is not None:
        raise InputError(
            f"grid={grid} is for noise in exact steps, and inputs that are divided by a scale lie on no grid: leave "
            "grid out, or give one sigma for all features"
        )
    if scaled:
        begun.refuse(SCALED_INPUTS)
    return begun


def choose_grid(
    grid: InputGrid,
    inputs: InputArray,
    sigma: SigmaRule | OptimisedSigma,
    classifier: BaseClassifier,
    *,
    noise: Noise,
    input_range: InputRange | None,
) -> None:
    """Take the grid of the first inputs, if noise can go in its steps. Later inputs change nothing."""
    if grid.is_known:
        return
    if isinstance(classifier, FirstLayerNoise):
        grid.refuse("it is drawn in the first layer")
    elif not (is_constant(sigma) or _stays_near_zero(input_range)):
        grid.refuse("sigma varies, and inputs may lie outside [-1, 1]")

    def list_levels() -> Sequence[float]:
        return list_likely_levels(sigma, inputs)

    grid.detect(inputs, noise=noise, sigmas=list_levels, input_range=input_range)


def is_constant(sigma: SigmaRule | OptimisedSigma) -> bool:
    """Whether all inputs have one noise level."""
    return isinstance(sigma, SigmaRule) and isinstance(sigma.envelope, ConstantSigma)


def _stays_near_zero(input_range: InputRange | None) -> bool:
    """Whether no input has a value beyond ±1."""
    return input_range is not None and max(abs(bound) for bound in input_range) <= 1


def check_can_be_sampled(
    classifier: BaseClassifier, kind: TallyKind, smoothing: Smoothing, *, input_range: InputRange | None
) -> None:
    """An InputError if such tallies of the model cannot be drawn, or not with a known law."""
    check_can_sample(classifier, kind=kind, noise=smoothing.noise, grid=smoothing.grid)
    if kind is TallyKind.SCORES:
        require_scores(classifier)  # a model without scores is refused before anything is sampled
    _check_varying(smoothing, input_range)


def _check_varying(smoothing: Smoothing, input_range: InputRange | None) -> None:
    """Refuse a sigma that varies on a grid, where float32 may be too far from it."""
    if smoothing.varying and smoothing.grid is not None and not _stays_near_zero(input_range):
        raise InputError(
            "for inputs on a grid a sigma that varies is certified within [-1, 1], where it is known how far float32 "
            f"numbers are from the grid: give an input_range inside it, or grid={FLOAT!r}"
        )
