"""Looking for points at which a smoothed classifier changes its answer: the attacks, set up for one run."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

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
    steepest,
)
from smoothcert.attacks.attack_settings import AttackMethod, AttackSettings, GradientSource
from smoothcert.attacks.geometry import inside, per_row, usable
from smoothcert.errors import InputError
from smoothcert.models import TORCH_SUFFIXES, BaseClassifier, resolve_device
from smoothcert.models.checkpoints import load_checkpoint
from smoothcert.models.scores import gives_scores
from smoothcert.models.torch_classifier import private_copy
from smoothcert.noise import from_grid, to_grid
from smoothcert.records import FloatArray, InputArray, IntArray, Noise, Norm
from smoothcert.sampling.sampler import Progress
from smoothcert.sigma import SigmaRule
from smoothcert.spec import RunSpec
from smoothcert.user_code import import_object, is_code_name

BoolArray = NDArray[np.bool_]

_DISTANCE_MARGIN = 1e-12
"""More than what float64 can lose in a distance between float32 points, relative to it."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """points: (B, *shape). moved: (B,), whether the attack saw a gradient anywhere."""

    points: InputArray
    moved: BoolArray


@dataclass(frozen=True, slots=True)
class Search:
    """An attack on the inputs of one run; `points` finds them, without deciding whether they prove anything.

    module: what is differentiated; None estimates gradients from the answers of `classifier`, by `source`. rule: the
    noise level at every point, asked anew at every step, by one thread at a time; None takes the level of the input
    throughout. by_votes: the answer of the smoothed classifier is that of most votes, not of the largest mean score.
    """

    settings: AttackSettings
    classifier: BaseClassifier
    module: nn.Module | None
    source: GradientSource
    device: torch.device
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
        """Noisy copies looked at for one input and radius."""
        restarts, steps = self.settings.restarts, self.settings.steps
        if self.settings.method == AttackMethod.DDN:
            looks = restarts * (steps + 1) + 2 * restarts
        else:
            looks = restarts * steps + (restarts if restarts > 1 else 0)
        return looks * self.settings.draws

    def points(
        self,
        inputs: InputArray,
        predictions: IntArray,
        *,
        sigmas: FloatArray,
        limits: FloatArray,
        seed: int,
        progress: Progress | None = None,
    ) -> Found:
        """For each input (B, *shape) the strongest point found, certainly no farther than its limit (B,).

        Where there are several, they are compared under noise that is new, and the same for all: the largest of many
        noisy losses, as the attack saw them on its way, is often just the luckiest. Where there was no gradient to
        follow, one more attack starts at a random point; it is not part of `samples_per_input`.
        """
        generator = torch.Generator(device=self.device).manual_seed(seed)
        clean = torch.from_numpy(inputs).to(self.device)
        target = self._target(torch.from_numpy(predictions).to(self.device), sigmas, generator, progress)
        radius = torch.from_numpy(limits).to(clean)
        ends = self._attacked(target, clean, radius, None)
        for _ in range(1, self.settings.restarts):
            ends += self._attacked(target, clean, radius, self._random(clean, radius, generator))
        if (~target.moved & (radius > 0)).any():
            target.progress = None
            ends += self._attacked(target, clean, radius, self._random(clean, radius, generator))
        moved: BoolArray = target.moved.cpu().numpy()
        safe = [self._safe(_host(end), inputs, limits) for end in ends]
        if len(safe) == 1:
            return Found(safe[0], moved)
        candidates = [torch.from_numpy(points).to(clean) for points in safe]
        judging = generator.get_state()
        seen = []
        for points in candidates:
            generator.set_state(judging)
            seen.append(target(points))
        return Found(_host(_strongest(candidates, seen)), moved)

    def _safe(self, points: InputArray, inputs: InputArray, limits: FloatArray) -> InputArray:
        """The points within their limits, and on the grid where only its points can be asked about."""
        inside = pulled_inside(points, inputs, limits, self.norm, self.bounds)
        return inside if self.grid is None else put_on_grid(inside, inputs, limits, self.norm, self.grid)

    def _random(self, clean: Tensor, radius: Tensor, generator: torch.Generator) -> Tensor:
        return random_start(clean, radius=radius, generator=generator, norm=self.norm)

    def _attacked(self, target: Target, clean: Tensor, radius: Tensor, start: Tensor | None) -> list[Tensor]:
        """Where pgd ends. For ddn, which looks for a short way, the end of it and the point as far as allowed."""
        steps = self.settings.steps
        if self.settings.method == AttackMethod.DDN:
            shortest = ddn(target, clean, steps=steps, radius=radius, start=start, bounds=self.bounds)
            farthest = clean + steepest(shortest - clean) * per_row(radius, clean)
            return [shortest, inside(farthest, self.bounds)]
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

    def _target(
        self, labels: Tensor, sigmas: FloatArray, generator: torch.Generator, progress: Progress | None
    ) -> _Watched:
        sigma = self._sigma(sigmas)
        draws = self.settings.draws
        at_once = max(1, self.samples_at_once // len(labels))
        if self.module is not None:
            fresh = FreshNoise(self.noise, draws, generator, at_once=at_once)
            objective = AttackObjective(self.settings.objective)
            target: Target = SmoothedTarget(self.module, labels, sigma, fresh, objective, by_votes=self.by_votes)
        else:
            # Each noise is used with both signs.
            fresh = FreshNoise(self.noise, math.ceil(draws / 2), generator, at_once=max(1, at_once // 2))
            target = EstimatedTarget(self._answers, labels, sigma, fresh, self.noise)
        return _Watched(target, self.bounds, draws * len(labels), progress, torch.zeros_like(labels, dtype=torch.bool))

    def _sigma(self, sigmas: FloatArray) -> Tensor | Callable[[Tensor], Tensor]:
        rule = self.rule
        if rule is None:
            return torch.from_numpy(sigmas).to(device=self.device, dtype=torch.float32)

        def level(points: Tensor) -> Tensor:
            with self.rule_lock:
                return torch.from_numpy(rule.sigmas(_host(points))).to(points)

        return level

    def _answers(self, batch: Tensor) -> Tensor:
        """(N, K): scores, or the votes as ones, on the device of the batch."""
        values = np.ascontiguousarray(_host(batch))
        if self.source is GradientSource.SCORES and gives_scores(self.classifier):
            scores = self.classifier.votes_and_scores(values)[1]
            return torch.from_numpy(scores).to(batch)
        votes = torch.from_numpy(self.classifier.classify(values)).to(batch.device)
        classes = torch.arange(self.classifier.num_classes, device=batch.device)
        return (votes[:, None] == classes).to(batch.dtype)


def _host(points: Tensor) -> InputArray:
    values: InputArray = points.detach().cpu().numpy()
    return values


@dataclass(slots=True, eq=False)
class _Watched:
    """A target that tells how many samples it took, and keeps in mind, row by row, whether it ever had a gradient."""

    target: Target
    bounds: tuple[float, float] | None
    samples: int
    progress: Progress | None
    moved: Tensor

    def __call__(self, points: Tensor, /) -> Assessment:
        seen = self.target(points)
        self.moved = self.moved | usable(seen.gradients, points, self.bounds).flatten(1).any(dim=1)
        if self.progress is not None:
            self.progress(self.samples)
        return seen


def _strongest(candidates: list[Tensor], seen: list[Assessment]) -> Tensor:
    """Row by row the point that is wrong, or else has the largest loss."""
    losses = torch.stack([look.losses.nan_to_num(-math.inf, math.inf, -math.inf) for look in seen])
    wrong = torch.stack([look.wrong for look in seen])
    considered = wrong | ~wrong.any(dim=0)
    chosen = losses.masked_fill(~considered, -math.inf).argmax(dim=0)
    return torch.stack(candidates)[chosen, torch.arange(len(chosen), device=chosen.device)]


def distances(points: InputArray, inputs: InputArray, norm: Norm) -> FloatArray:
    """(B,): how far float32 points (B, *shape) are from the inputs, in float64 and rounded up."""
    deltas = (points.astype(np.float64) - inputs.astype(np.float64)).reshape(len(points), -1)
    length: FloatArray = np.abs(deltas).sum(axis=1) if norm is Norm.L1 else np.sqrt(np.square(deltas).sum(axis=1))
    return length * (1.0 + _DISTANCE_MARGIN)


def pulled_inside(
    points: InputArray, inputs: InputArray, limits: FloatArray, norm: Norm, bounds: tuple[float, float] | None
) -> InputArray:
    """The points (B, *shape), those farther than their limit (B,) moved towards their input until they are not.

    Each try aims a little lower, so that rounding to float32 cannot keep a point outside; after the last it is the
    input itself.
    """
    pulled = points.copy()
    for attempt in range(_TRIES):
        length = distances(pulled, inputs, norm)
        outside = length > limits
        if not outside.any():
            return pulled
        share = limits[outside] / length[outside] * (1.0 - 2.0 ** (attempt - _TRIES))
        column = share.reshape(-1, *(1 for _ in inputs.shape[1:]))
        start = inputs[outside].astype(np.float64)
        pulled[outside] = (start + column * (pulled[outside] - start)).astype(np.float32)
        if bounds is not None:
            np.clip(pulled, *bounds, out=pulled)
    outside = distances(pulled, inputs, norm) > limits
    pulled[outside] = inputs[outside]
    return pulled


_TRIES = 30


def put_on_grid(points: InputArray, inputs: InputArray, limits: FloatArray, norm: Norm, levels: int) -> InputArray:
    """Points of the grid near these points (B, *shape), and no farther from their inputs than the limits (B,).

    Rounded to the nearest, after a step back towards the input where that is too far. Cutting every step off towards
    the input never leads farther than the point itself, which is within its limit.
    """
    places = to_grid(inputs, levels).reshape(len(inputs), -1)
    steps = (points.astype(np.float64) - inputs.astype(np.float64)).reshape(len(inputs), -1) * (levels - 1)
    chosen = np.trunc(steps)
    open_rows = np.ones(len(inputs), dtype=np.bool_)
    for share in _SHARES:
        rounded = np.rint(share * steps)
        length = np.abs(rounded).sum(axis=1) if norm is Norm.L1 else np.sqrt(np.square(rounded).sum(axis=1))
        fits = open_rows & (length / (levels - 1) * (1.0 + _DISTANCE_MARGIN) <= limits)
        chosen[fits] = rounded[fits]
        open_rows &= ~fits
    return from_grid((places + chosen.astype(np.int32)), levels).reshape(inputs.shape)


_SHARES = np.linspace(1.0, 0.8, 41)
"""How far along the way to the point the roundings are tried."""


def gradient_source(
    spec: RunSpec, classifier: BaseClassifier, settings: AttackSettings, *, input_shape: tuple[int, ...]
) -> tuple[nn.Module | None, GradientSource, torch.device]:
    """What is differentiated, or what gradients are estimated from, and where that is computed."""
    wanted = GradientSource(settings.gradient)
    if wanted in (GradientSource.AUTO, GradientSource.EXACT):
        module = _module(spec, input_shape)
        if module is not None:
            device = resolve_device(spec.model.device)
            return private_copy(module, device), GradientSource.EXACT, device
        if wanted is GradientSource.EXACT:
            raise InputError(
                f"{spec.model.place} is not a torch module, so it has no gradient: use --gradient scores or "
                "votes, which need only its answers"
            )
    scored = gives_scores(classifier)
    if wanted is GradientSource.SCORES and not scored:
        raise InputError(f"{spec.model.place} answers with classes alone: use --gradient votes")
    by_scores = scored and wanted is not GradientSource.VOTES
    return None, GradientSource.SCORES if by_scores else GradientSource.VOTES, torch.device("cpu")


def _module(spec: RunSpec, input_shape: tuple[int, ...]) -> nn.Module | None:
    """The torch module that the spec names; None if it is something else."""
    if is_code_name(spec.model.place):
        found = import_object(spec.model.place)
        return found if isinstance(found, nn.Module) else None
    if Path(spec.model.place).suffix.lower() not in (".safetensors", *TORCH_SUFFIXES):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what there is to say was said when the classifier was loaded
        return load_checkpoint(
            Path(spec.model.place),
            arch=spec.model.arch,
            num_classes=spec.model.num_classes,
            input_shape=input_shape,
            standardise=spec.model.standardise,
        ).module
