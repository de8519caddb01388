"""The search for points at which the smoothed classifier of a run changes its answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.attacks import Assessment, Target, ddn, pgd, random_start, steepest_direction
from smoothcert.attacks.attack_gradients import to_numpy
from smoothcert.attacks.attack_settings import AttackMethod, AttackSettings
from smoothcert.attacks.attack_targets import TargetFactory, choose_device, name_sources
from smoothcert.attacks.geometry import clip_to_bounds, mask_gradients, per_row
from smoothcert.noise import from_grid, to_grid
from smoothcert.records import FloatArray, InputArray, IntArray, Norm
from smoothcert.sampling.sampler import Progress

BoolArray = NDArray[np.bool_]

_DISTANCE_MARGIN = 1e-12
"""Exceeds the relative rounding error of a float64 distance between float32 points."""
_PULL_ATTEMPTS = 30
_GRID_SHARES = np.linspace(1.0, 0.8, 41)
"""Shares of the way to a point at which rounding to the grid is tried."""


@dataclass(frozen=True, slots=True, eq=False)
class StrongestPoints:
    """points: (B, *shape). moved: (B,), whether the attack ever saw a gradient."""

    points: InputArray
    moved: BoolArray


class PointSearch(Protocol):
    """A search for points at which a smoothed classifier changes its answer. It does not decide whether one does."""

    @property
    def norm(self) -> Norm: ...

    @property
    def closed(self) -> bool:
        """Whether certificates hold at their radius too, where distances are rounded down like radii."""

    @property
    def objective(self) -> str:
        """The name of what is changed."""

    @property
    def source(self) -> str:
        """What the direction comes from."""

    @property
    def most_workers(self) -> int | None:
        """How many groups may be attacked in parallel; None for any number."""

    @property
    def samples_per_input(self) -> int:
        """The progress that one input and radius makes."""

    def limit(self, radius: str, *, certified: float) -> float:
        """The largest distance of a point, for a radius as given and the certified radius of the input."""

    def measure(self, points: InputArray, inputs: InputArray) -> FloatArray:
        """(B,): the distances of points (B, *shape) from the inputs."""

    def find_points(
        self,
        inputs: InputArray,
        predictions: IntArray,
        *,
        sigmas: FloatArray,
        limits: FloatArray,
        seed: int,
        progress: Progress | None = None,
    ) -> StrongestPoints:
        """For each input (B, *shape) the strongest point found, no farther than its limit (B,)."""


@dataclass(frozen=True, slots=True)
class AttackSearch:
    """An attack on the inputs of one run. It finds points, and does not decide whether they prove anything.

    targets: what is attacked. grid: levels of the noise grid, if any.
    """

    settings: AttackSettings
    targets: TargetFactory
    norm: Norm
    bounds: tuple[float, float] | None
    grid: int | None = None

    @property
    def closed(self) -> bool:
        return False

    @property
    def objective(self) -> str:
        return self.targets.objective

    @property
    def source(self) -> str:
        return name_sources(self.targets)

    @property
    def most_workers(self) -> int | None:
        if choose_device(self.targets).type != "cpu":
            return 1
        return min((one.concurrency for one in self.targets.models if one.concurrency is not None), default=None)

    def limit(self, radius: str, *, certified: float) -> float:
        return AttackSettings.limit(radius, certified=certified)

    def measure(self, points: InputArray, inputs: InputArray) -> FloatArray:
        return distances(points, inputs, self.norm)

    @property
    def samples_per_input(self) -> int:
        """Noisy copies classified for one input and radius."""
        restarts, steps = self.settings.restarts, self.settings.steps
        count, attacked_cost, comparing_cost = self.targets.evaluations
        evaluations = restarts * count * (steps + 1 if self.settings.method == AttackMethod.DDN else steps)
        compared = self._candidates if self._candidates > 1 else 0
        return (evaluations * attacked_cost + compared * comparing_cost) * self.settings.draws

    @property
    def _candidates(self) -> int:
        """How many points are compared for one input."""
        ends = 2 if self.settings.method == AttackMethod.DDN else 1
        return self.settings.restarts * self.targets.evaluations[0] * ends

    def find_points(
        self,
        inputs: InputArray,
        predictions: IntArray,
        *,
        sigmas: FloatArray,
        limits: FloatArray,
        seed: int,
        progress: Progress | None = None,
    ) -> StrongestPoints:
        """For each input (B, *shape) the strongest point found, provably no farther than its limit (B,).

        Several candidates are compared under new noise, the same for all, because the largest of many noisy losses is
        often just the luckiest. Inputs without any gradient cause one more attack from a random point, which is not
        part of `samples_per_input`.
        """
        device = choose_device(self.targets)
        generator = torch.Generator(device=device).manual_seed(seed)
        clean = torch.from_numpy(inputs).to(device)
        radius = torch.from_numpy(limits).to(clean)
        group = self.targets.build(torch.from_numpy(predictions).to(device), sigmas, generator)
        samples = self.settings.draws * len(inputs)
        ends: list[Tensor] = []
        moved = torch.zeros(len(inputs), dtype=torch.bool, device=device)
        for one in group.attacked:
            target = _ObservedTarget(one, self.bounds, samples * group.attacked_cost, progress, torch.zeros_like(moved))
            for restart in range(self.settings.restarts):
                start = None
                if restart > 0:
                    start = random_start(clean, radius=radius, generator=generator, norm=self.norm)
                ends += self._attack(target, clean, radius, start)
            if (~target.moved & (radius > 0)).any():
                target.progress = None
                start = random_start(clean, radius=radius, generator=generator, norm=self.norm)
                ends += self._attack(target, clean, radius, start)
            moved |= target.moved
        seen: BoolArray = moved.cpu().numpy()
        allowed = [self._enforce_limits(to_numpy(end), inputs, limits) for end in ends]
        if len(allowed) == 1:
            return StrongestPoints(allowed[0], seen)
        candidates = [torch.from_numpy(points).to(clean) for points in allowed]
        noise_state = generator.get_state()
        assessments = []
        for points in candidates:
            generator.set_state(noise_state)
            assessments.append(group.comparing(points))
            if progress is not None and 1 < self._candidates >= len(assessments):
                progress(samples * group.comparing_cost)
        return StrongestPoints(to_numpy(_select_strongest(candidates, assessments)), seen)

    def _enforce_limits(self, points: InputArray, inputs: InputArray, limits: FloatArray) -> InputArray:
        """Move points within their limits, and onto the grid of the noise if there is one."""
        within = pull_inside(points, inputs, limits, self.norm, self.bounds)
        return within if self.grid is None else snap_to_grid(within, inputs, limits, self.norm, self.grid)

    def _attack(self, target: Target, clean: Tensor, radius: Tensor, start: Tensor | None) -> list[Tensor]:
        """The end point of pgd; for ddn, which looks for short perturbations, also the point at the full radius."""
        steps = self.settings.steps
        if self.settings.method == AttackMethod.DDN:
            shortest = ddn(target, clean, steps=steps, radius=radius, start=start, bounds=self.bounds)
            farthest = clean + steepest_direction(shortest - clean) * per_row(radius, clean)
            return [shortest, clip_to_bounds(farthest, self.bounds)]
        return [
            pgd(
                target,
                clean,
                radius=radius,
                steps=steps,
                step_size=self.settings.step_size,
                start=start,
                bounds=self.bounds,
                norm=self.norm,
            )
        ]


@dataclass(slots=True, eq=False)
class _ObservedTarget:
    """A target that reports its samples as progress, and notes per row whether there ever was a gradient."""

    target: Target
    bounds: tuple[float, float] | None
    samples: int
    progress: Progress | None
    moved: Tensor

    def __call__(self, points: Tensor, /) -> Assessment:
        seen = self.target(points)
        self.moved = self.moved | mask_gradients(seen.gradients, points, self.bounds).flatten(1).any(dim=1)
        if self.progress is not None:
            self.progress(self.samples)
        return seen


def _select_strongest(candidates: list[Tensor], assessments: list[Assessment]) -> Tensor:
    """Per row, the point with the largest loss; wrong answers come first."""
    losses = torch.stack([each.losses.nan_to_num(-math.inf, math.inf, -math.inf) for each in assessments])
    wrong = torch.stack([each.wrong for each in assessments])
    eligible = wrong | ~wrong.any(dim=0)
    best = losses.masked_fill(~eligible, -math.inf).argmax(dim=0)
    return torch.stack(candidates)[best, torch.arange(len(best), device=best.device)]


def distances(points: InputArray, inputs: InputArray, norm: Norm) -> FloatArray:
    """(B,): distances of float32 points (B, *shape) from the inputs, computed in float64 and rounded up."""
    deltas = (points.astype(np.float64) - inputs.astype(np.float64)).reshape(len(points), -1)
    return _row_lengths(deltas, norm) * (1.0 + _DISTANCE_MARGIN)


def _row_lengths(deltas: FloatArray, norm: Norm) -> FloatArray:
    """(B,) for (B, d)."""
    match norm:
        case Norm.L1:
            total: FloatArray = np.abs(deltas).sum(axis=1)
            return total
        case Norm.L2:
            return np.asarray(np.sqrt(np.square(deltas).sum(axis=1)))
    assert_never(norm)


def pull_inside(
    points: InputArray, inputs: InputArray, limits: FloatArray, norm: Norm, bounds: tuple[float, float] | None
) -> InputArray:
    """Move points (B, *shape) that are farther than their limit (B,) towards their input until they are not.

    Each attempt aims a little closer, so that rounding to float32 cannot keep a point outside. The last resort is the
    input itself.
    """
    pulled = points.copy()
    for attempt in range(_PULL_ATTEMPTS):
        length = distances(pulled, inputs, norm)
        outside = length > limits
        if not outside.any():
            return pulled
        share = limits[outside] / length[outside] * (1.0 - 2.0 ** (attempt - _PULL_ATTEMPTS))
        column = share.reshape(-1, *(1 for _ in inputs.shape[1:]))
        start = inputs[outside].astype(np.float64)
        pulled[outside] = (start + column * (pulled[outside] - start)).astype(np.float32)
        if bounds is not None:
            np.clip(pulled, *bounds, out=pulled)
    outside = distances(pulled, inputs, norm) > limits
    pulled[outside] = inputs[outside]
    return pulled


def snap_to_grid(points: InputArray, inputs: InputArray, limits: FloatArray, norm: Norm, levels: int) -> InputArray:
    """Grid points near these points (B, *shape), no farther from their inputs than the limits (B,).

    Rounds to the nearest grid point, after a step back towards the input if that is too far. If nothing else fits, it
    truncates each coordinate towards the input, which is never farther than the point itself.
    """
    places = to_grid(inputs, levels).reshape(len(inputs), -1)
    steps = (points.astype(np.float64) - inputs.astype(np.float64)).reshape(len(inputs), -1) * (levels - 1)
    chosen = np.trunc(steps)
    open_rows = np.ones(len(inputs), dtype=np.bool_)
    for share in _GRID_SHARES:
        rounded = np.rint(share * steps)
        fits = open_rows & (_row_lengths(rounded, norm) / (levels - 1) * (1.0 + _DISTANCE_MARGIN) <= limits)
        chosen[fits] = rounded[fits]
        open_rows &= ~fits
    return from_grid((places + chosen.astype(np.int32)), levels).reshape(inputs.shape)
