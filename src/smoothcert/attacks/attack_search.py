"""The search for points at which the smoothed classifier of a run changes its answer."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert.attacks import (
    Assessment,
    AttackObjective,
    EstimatedTarget,
    FreshNoise,
    SmoothedTarget,
    Target,
    ddn,
    pgd,
    random_start,
    steepest_direction,
)
from smoothcert.attacks.attack_settings import AttackMethod, AttackSettings, GradientSource
from smoothcert.attacks.geometry import clip_to_bounds, mask_gradients, per_row
from smoothcert.errors import InputError
from smoothcert.models import TORCH_SUFFIXES, BaseClassifier, resolve_device
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.models.imported_models import import_model
from smoothcert.models.scores import gives_scores
from smoothcert.models.torch_classifier import private_copy
from smoothcert.models.torch_logits import take_logits
from smoothcert.models.torchscript import is_torchscript, load_torchscript
from smoothcert.noise import from_grid, to_grid
from smoothcert.records import FloatArray, InputArray, IntArray, Noise, Norm
from smoothcert.sampling.sampler import Progress
from smoothcert.sigma import SigmaRule
from smoothcert.spec import ModelSpec, RunSpec
from smoothcert.user_code import is_code_name

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


@dataclass(frozen=True, slots=True)
class GradientAccess:
    """How gradients are computed. module: to differentiate; None estimates gradients from answers, by `source`."""

    module: nn.Module | None
    source: GradientSource
    device: torch.device


@dataclass(frozen=True, slots=True)
class AttackSearch:
    """An attack on the inputs of one run. It finds points, and does not decide whether they prove anything.

    rule: gives the noise level at each point, in each step, one thread at a time; None keeps the level of the input.
    by_votes: the smoothed classifier answers by votes, not by mean scores. samples_at_once: noisy copies that are
    differentiated together. grid: levels of the noise grid, if any.
    """

    settings: AttackSettings
    classifier: BaseClassifier
    gradients: GradientAccess
    noise: Noise
    norm: Norm
    rule: SigmaRule | None
    by_votes: bool
    bounds: tuple[float, float] | None
    samples_at_once: int
    grid: int | None = None
    rule_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def samples_per_input(self) -> int:
        """Noisy copies classified for one input and radius."""
        restarts, steps = self.settings.restarts, self.settings.steps
        if self.settings.method == AttackMethod.DDN:
            evaluations = restarts * (steps + 1) + 2 * restarts
        else:
            evaluations = restarts * steps + (restarts if restarts > 1 else 0)
        return evaluations * self.settings.draws

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
        device = self.gradients.device
        generator = torch.Generator(device=device).manual_seed(seed)
        clean = torch.from_numpy(inputs).to(device)
        target = self._build_target(torch.from_numpy(predictions).to(device), sigmas, generator, progress)
        radius = torch.from_numpy(limits).to(clean)

        def attack_from_random_point() -> list[Tensor]:
            start = random_start(clean, radius=radius, generator=generator, norm=self.norm)
            return self._attack(target, clean, radius, start)

        ends = self._attack(target, clean, radius, None)
        for _ in range(1, self.settings.restarts):
            ends += attack_from_random_point()
        if (~target.moved & (radius > 0)).any():
            target.progress = None
            ends += attack_from_random_point()
        moved: BoolArray = target.moved.cpu().numpy()
        allowed = [self._enforce_limits(_to_numpy(end), inputs, limits) for end in ends]
        if len(allowed) == 1:
            return StrongestPoints(allowed[0], moved)
        candidates = [torch.from_numpy(points).to(clean) for points in allowed]
        noise_state = generator.get_state()
        assessments = []
        for points in candidates:
            generator.set_state(noise_state)
            assessments.append(target(points))
        return StrongestPoints(_to_numpy(_select_strongest(candidates, assessments)), moved)

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

    def _build_target(
        self, labels: Tensor, sigmas: FloatArray, generator: torch.Generator, progress: Progress | None
    ) -> _ObservedTarget:
        sigma = self._sigma_at_points(sigmas)
        draws = self.settings.draws
        at_once = max(1, self.samples_at_once // len(labels))
        if self.gradients.module is not None:
            noises = FreshNoise(self.noise, draws, generator, at_once=at_once)
            objective = AttackObjective(self.settings.objective)
            target: Target = SmoothedTarget(
                self.gradients.module, labels, sigma, noises, objective, by_votes=self.by_votes
            )
        else:
            # Each noise is used with both signs.
            noises = FreshNoise(self.noise, math.ceil(draws / 2), generator, at_once=max(1, at_once // 2))
            target = EstimatedTarget(self._classify, labels, sigma, noises, self.noise)
        moved = torch.zeros_like(labels, dtype=torch.bool)
        return _ObservedTarget(target, self.bounds, draws * len(labels), progress, moved)

    def _sigma_at_points(self, sigmas: FloatArray) -> Tensor | Callable[[Tensor], Tensor]:
        rule = self.rule
        if rule is None:
            return torch.from_numpy(sigmas).to(device=self.gradients.device, dtype=torch.float32)

        def compute_sigmas(points: Tensor) -> Tensor:
            with self.rule_lock:
                return torch.from_numpy(rule.sigmas(_to_numpy(points))).to(points)

        return compute_sigmas

    def _classify(self, batch: Tensor) -> Tensor:
        """(N, K): scores or one-hot votes, on the device of the batch."""
        values = np.ascontiguousarray(_to_numpy(batch))
        if self.gradients.source is GradientSource.SCORES and gives_scores(self.classifier):
            scores = self.classifier.votes_and_scores(values)[1]
            return torch.from_numpy(scores).to(batch)
        votes = torch.from_numpy(self.classifier.classify(values)).to(batch.device)
        classes = torch.arange(self.classifier.num_classes, device=batch.device)
        return (votes[:, None] == classes).to(batch.dtype)


def _to_numpy(points: Tensor) -> InputArray:
    values: InputArray = points.detach().cpu().numpy()
    return values


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


def choose_gradients(
    spec: RunSpec, classifier: BaseClassifier, settings: AttackSettings, *, input_shape: tuple[int, ...]
) -> GradientAccess:
    """Exact gradients for torch modules; otherwise estimates from scores or votes, as the settings ask."""
    wanted = GradientSource(settings.gradient)
    if wanted in (GradientSource.AUTO, GradientSource.EXACT):
        module = _load_module(spec, input_shape)
        if module is not None:
            device = resolve_device(spec.model.device)
            return GradientAccess(private_copy(module, device), GradientSource.EXACT, device)
        if wanted is GradientSource.EXACT:
            raise InputError(
                f"{spec.model.place} is not a torch module, so it has no gradient: use --gradient scores or votes, "
                "which estimate it from answers"
            )
    has_scores = gives_scores(classifier)
    if wanted is GradientSource.SCORES and not has_scores:
        raise InputError(f"{spec.model.place} answers with classes alone, without scores: use --gradient votes")
    by_scores = has_scores and wanted is not GradientSource.VOTES
    return GradientAccess(None, GradientSource.SCORES if by_scores else GradientSource.VOTES, torch.device("cpu"))


def _load_module(spec: RunSpec, input_shape: tuple[int, ...]) -> nn.Module | None:
    """The torch module that the spec names; None if the model is of another kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same warnings were shown when the classifier was loaded
        model = _load_object(spec.model, input_shape)
        return take_logits(model, input_shape) if isinstance(model, nn.Module) else None


def _load_object(model: ModelSpec, input_shape: tuple[int, ...]) -> object:
    if is_code_name(model.place):
        return import_model(
            model.place,
            weights=model.weights,
            standardise=model.standardise,
            input_shape=input_shape,
            code_folder=model.code_folder,
        ).model
    path = Path(model.place)
    if path.suffix.lower() not in (".safetensors", *TORCH_SUFFIXES):
        return None
    if path.suffix.lower() in TORCH_SUFFIXES and is_torchscript(path):
        return load_torchscript(path)
    return load_checkpoint(
        path,
        arch=model.arch,
        num_classes=model.num_classes,
        input_shape=input_shape,
        standardise=model.standardise,
    ).module
