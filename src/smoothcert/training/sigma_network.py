"""Training of a σ network: a Lipschitz function σ(x) for a fixed base classifier, for a large mean certified radius.

The gradient of σ is that of the smoothed scores at x + σ(x)ε. There are two objectives:

- `theorem`: the radius of Bergstrom et al., Theorem 3, (Φ⁻¹(ḡ_y) - Φ⁻¹(ḡ_y'))/(2L). L depends on the smallest σ and the
  Lipschitz constant, which are fixed, but not on σ(x). So a larger σ(x) helps only where noise raises the margin, which
  is rare, and σ decreases to its floor.
- `radius` (default): σ(x)·(Φ⁻¹(ḡ_y) - Φ⁻¹(ḡ_y'))/2, the radius of the tight certificate in the limit of a slowly
  varying σ. A larger σ(x) helps as long as the scores stay high.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.data import Dataset
from smoothcert.errors import DataError, InputError, InterruptedRunError, ModelError
from smoothcert.models.devices import reproducible_kernels, resolve_device, torch_threads, usable_cores
from smoothcert.models.torch_classifier import private_copy
from smoothcert.sigma.network import SigmaNetwork, shrunk
from smoothcert.sigma.over_data import spread_evenly
from smoothcert.training.batches import read_inputs, seeded_generator
from smoothcert.training.choices import SigmaObjective
from smoothcert.training.modules import use_fast_layout
from smoothcert.training.schedule import OneCycle

_SOFTNESS = 0.1
"""Width, in Φ⁻¹ units, of the transition at margin 0: misclassified inputs keep a small gradient."""
_POWER_STEPS = 2
"""Power iterations per step. Their vectors are kept between steps; the final norms are exact."""
_CALIBRATED_ON = 512


@dataclass(frozen=True, slots=True)
class SigmaTrainingConfig:
    """Settings of one training with Adam and a one-cycle schedule.

    floor, most: smallest and largest σ. lipschitz: largest Lipschitz constant of σ. first_sigma: approximate initial σ,
    1.1 · floor if None. samples: noises per input and step. most_inputs: train on at most this many, evenly spread.
    penalty: weight λ of the sum of the layers' spectral norms, subtracted from the radius. p_least: scores are clamped
    this far from 0 and 1 before Φ⁻¹; for `theorem` its p_min, 1e-7 if None; for `radius` about what the samples of a
    certification can prove, 1e-3 if None. score_lipschitz: L of the theorem, required for `theorem`.
    """

    floor: float
    lipschitz: float
    seed: int
    objective: SigmaObjective = SigmaObjective.RADIUS
    hidden: tuple[int, ...] = (200,)
    first_sigma: float | None = None
    most: float | None = None
    epochs: int = 3
    batch: int = 100
    samples: int = 8
    peak_rate: float = 0.003
    penalty: float = 0.01
    p_least: float | None = None
    score_lipschitz: float | None = None
    most_inputs: int | None = 10_000

    def __post_init__(self) -> None:
        for name in ("floor", "lipschitz", "peak_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name.replace('_', ' ')} {value} must be a positive finite number")
        for name in ("epochs", "batch", "samples", *(("most_inputs",) if self.most_inputs is not None else ())):
            if getattr(self, name) < 1:
                raise InputError(f"{name.replace('_', ' ')} {getattr(self, name)} must be at least 1")
        if any(width < 1 for width in self.hidden):
            raise InputError(f"hidden widths {self.hidden} must be positive; 200 is usual")
        if not self.floor <= self.start < math.inf:
            raise InputError(f"sigma cannot start at {self.start}: expected at least the floor {self.floor}")
        if self.most is not None and not self.start < self.most < math.inf:
            raise InputError(f"most {self.most} must be a finite number above the initial sigma {self.start}")
        if not (math.isfinite(self.penalty) and self.penalty >= 0):
            raise InputError(f"penalty {self.penalty} must be a finite number, at least 0; 0.01 is usual")
        if not 0 < self.least_score < 0.5:
            raise InputError(
                f"scores cannot be clamped {self.least_score} away from 0 and 1: expected a number in (0, 0.5)"
            )
        if not 0 <= self.seed < 2**64:
            raise InputError(f"seed is {self.seed}: expected 0 … 2^64-1")
        if self.objective is SigmaObjective.THEOREM and not (self.score_lipschitz and self.score_lipschitz > 0):
            raise InputError("the objective 'theorem' needs score_lipschitz, the constant L of the theorem")

    @property
    def start(self) -> float:
        """Approximate initial σ."""
        return 1.1 * self.floor if self.first_sigma is None else self.first_sigma

    @property
    def least_score(self) -> float:
        """Distance that scores keep from 0 and 1."""
        if self.p_least is not None:
            return self.p_least
        return 1e-7 if self.objective is SigmaObjective.THEOREM else 1e-3

    def to_json(self) -> dict[str, Any]:
        """JSON values. Equal settings, model, data and thread count give equal networks."""
        return {**asdict(self), "objective": self.objective.value, "hidden": list(self.hidden)}


@dataclass(frozen=True, slots=True)
class SigmaTrainingProgress:
    """Progress of a training. radius: mean of the objective without the penalty, over the epoch so far."""

    step: int
    steps: int
    epoch: int
    epochs: int
    radius: float


@dataclass(frozen=True, slots=True)
class TrainedSigma:
    """A finished training. history: mean of the objective without the penalty, per epoch."""

    rule: SigmaNetwork
    history: tuple[float, ...]
    seconds: float


def train_sigma_network(
    config: SigmaTrainingConfig,
    module: nn.Module,
    dataset: Dataset,
    *,
    device: str = "auto",
    threads: int | None = None,
    progress: Callable[[SigmaTrainingProgress], None] | None = None,
    stop: threading.Event | None = None,
) -> TrainedSigma:
    """Train σ for `module`, (B, *input_shape) → (B, classes) logits, which is copied and not changed.

    When `stop` is set, the current batch is finished and InterruptedRunError is raised; nothing is saved.
    """
    target = resolve_device(device)
    with torch_threads(threads or usable_cores()), reproducible_kernels():
        began = time.perf_counter()
        data = _SigmaTrainingData(dataset, config, target)
        sigma = _TrainedLayers(config, math.prod(dataset.input_shape), target)
        sigma.calibrate(data.first_inputs())
        network = private_copy(module, target)
        use_fast_layout(network)
        history = _fit(sigma, network, data, config, progress, stop)
        return TrainedSigma(rule=sigma.to_rule(), history=history, seconds=time.perf_counter() - began)


def radius_objective(config: SigmaTrainingConfig, logits: Tensor, labels: Tensor, sigma: Tensor) -> Tensor:
    """(B,) radii to maximise, smooth in logits and sigma, and close to 0 for misclassified inputs.

    logits: (B, samples, classes); labels, sigma: (B,).
    """
    # Φ⁻¹ near 1 needs float64.
    scores = logits.to(torch.float64).softmax(dim=2).mean(dim=1)
    classes, least = scores.shape[1], config.least_score
    if config.objective is SigmaObjective.THEOREM:
        scores = (1.0 - classes * least) * scores + least
    else:
        scores = scores.clamp(least, 1.0 - least)
    own = nn.functional.one_hot(labels, classes).to(torch.bool)
    others = scores.masked_fill(own, least).amax(dim=1)
    margin = 0.5 * (torch.special.ndtri(scores[own]) - torch.special.ndtri(others))
    positive = nn.functional.softplus(margin, beta=1.0 / _SOFTNESS)
    if config.objective is SigmaObjective.THEOREM:
        assert config.score_lipschitz is not None
        return positive / config.score_lipschitz
    return positive * sigma


def _fit(
    sigma: _TrainedLayers,
    module: nn.Module,
    data: _SigmaTrainingData,
    config: SigmaTrainingConfig,
    progress: Callable[[SigmaTrainingProgress], None] | None,
    stop: threading.Event | None,
) -> tuple[float, ...]:
    optimizer = torch.optim.Adam(sigma.parameters(), lr=config.peak_rate)
    steps, step = config.epochs * len(data), 0
    history: list[float] = []
    for epoch in range(config.epochs):
        noise = seeded_generator(config.seed, "sigma noise", epoch, device=data.device)
        total, seen = 0.0, 0
        for inputs, labels in data.epoch(epoch):
            optimizer.param_groups[0]["lr"] = OneCycle().rate(step, steps=steps, peak=config.peak_rate)
            radii = _compute_radii(sigma, module, inputs, labels, noise, config)
            loss = config.penalty * sigma.sum_of_norms() - radii.mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            sigma.limit_norms()
            step, total, seen = step + 1, total + float(radii.detach().sum()), seen + len(labels)
            if not math.isfinite(total):
                raise ModelError(
                    f"the training of sigma diverged in epoch {epoch + 1}: lower --lr ({config.peak_rate})"
                )
            if progress is not None:
                progress(SigmaTrainingProgress(step, steps, epoch + 1, config.epochs, total / seen))
            if stop is not None and stop.is_set():
                raise InterruptedRunError(f"stopped after {step} of {steps} steps; nothing was written")
        history.append(total / seen)
    return tuple(history)


def _compute_radii(
    sigma: _TrainedLayers,
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    noise: torch.Generator,
    config: SigmaTrainingConfig,
) -> Tensor:
    levels = sigma(inputs)
    shape = (len(inputs), config.samples, *inputs.shape[1:])
    draws = torch.randn(shape, generator=noise, device=inputs.device)
    noisy = inputs[:, None] + levels.to(draws.dtype).reshape(-1, *(1 for _ in shape[1:])) * draws
    logits: Tensor = module(noisy.flatten(0, 1))
    return radius_objective(config, logits.reshape(*shape[:2], -1), labels, levels)


class _TrainedLayers(nn.Module):
    """σ during the training: every layer has spectral norm at most 1, and the output is multiplied by the constant.

    ReLU is homogeneous, so this covers every network whose product of norms is at most the constant, and the size of an
    optimiser step does not depend on the constant.
    """

    def __init__(self, config: SigmaTrainingConfig, inputs: int, device: torch.device) -> None:
        super().__init__()
        generator = seeded_generator(config.seed, "sigma weights")
        widths = (inputs, *config.hidden, 1)
        weights = [torch.randn(after, before, generator=generator) for before, after in itertools.pairwise(widths)]
        self._config = config
        self.weights = nn.ParameterList(
            nn.Parameter(weight / torch.linalg.matrix_norm(weight, 2)) for weight in weights
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in widths[1:])
        self._vectors = [torch.randn(before, generator=generator).to(device) for before in widths[:-1]]
        self.to(device)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B,) float64, in [floor, most]."""
        raised = self._output(inputs).relu()
        sigma = self._config.floor + raised.to(torch.float64)
        return sigma if self._config.most is None else sigma.clamp(max=self._config.most)

    def calibrate(self, inputs: Tensor) -> None:
        """Set the last bias so that the mean of σ on these inputs is about its initial value."""
        with torch.no_grad():
            self.biases[-1] += self._config.start - self._config.floor - self._output(inputs).mean()

    def sum_of_norms(self) -> Tensor:
        """Sum of the spectral norms of the layers of the final network, with a gradient."""
        return self._factor * torch.stack([self._norm(number) for number in range(len(self.weights))]).sum()

    @torch.no_grad()
    def limit_norms(self) -> None:
        """Scale every layer to a norm of at most 1."""
        for number, weight in enumerate(self.weights):
            weight /= self._norm(number).clamp(min=1.0)

    def to_rule(self) -> SigmaNetwork:
        """The network in double precision, with the constant divided evenly among the layers and enforced exactly."""
        weights = [self._factor * _as_array(weight) for weight in self.weights]
        biases = [self._factor ** (number + 1) * _as_array(bias) for number, bias in enumerate(self.biases)]
        biases[-1] = _as_array(self.biases[-1])  # already in units of σ
        kept = shrunk(weights, lipschitz=self._config.lipschitz)
        return SigmaNetwork(weights=kept, biases=tuple(biases), floor=self._config.floor, most=self._config.most)

    @property
    def _factor(self) -> float:
        return float(self._config.lipschitz ** (1.0 / len(self.weights)))

    def _output(self, inputs: Tensor) -> Tensor:
        hidden = inputs.flatten(1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = nn.functional.linear(hidden, weight, bias).relu()
        output: Tensor = self._config.lipschitz * (hidden @ self.weights[-1][0]) + self.biases[-1]
        return output

    def _norm(self, number: int) -> Tensor:
        """Spectral norm of a layer by continued power iteration, with a gradient."""
        weight, right = self.weights[number], self._vectors[number]
        with torch.no_grad():
            for _ in range(_POWER_STEPS):
                left = nn.functional.normalize(weight @ right, dim=0)
                right = nn.functional.normalize(weight.T @ left, dim=0)
        self._vectors[number] = right
        norm: Tensor = torch.linalg.vector_norm(weight @ right)
        return norm


class _SigmaTrainingData:
    """The training inputs, in an order that is a pure function of (seed, epoch)."""

    def __init__(self, dataset: Dataset, config: SigmaTrainingConfig, device: torch.device) -> None:
        indices = spread_evenly(len(dataset), most=config.most_inputs)
        self._indices = indices[dataset.labels[indices] >= 0]
        if len(self._indices) == 0:
            raise DataError(f"{dataset.name} has no labelled inputs in split {dataset.split}, which training needs")
        self._dataset = dataset
        self._config = config
        self.device = device

    def __len__(self) -> int:
        """Number of batches per epoch; the last may be smaller."""
        return -(-len(self._indices) // self._config.batch)

    def epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self._indices), generator=seeded_generator(self._config.seed, "sigma order", epoch))
        for chosen in torch.split(order, self._config.batch):
            indices = self._indices[chosen.numpy()]
            labels = torch.from_numpy(self._dataset.labels[indices]).to(self.device)
            yield read_inputs(self._dataset, indices, self.device), labels

    def first_inputs(self) -> Tensor:
        return read_inputs(self._dataset, self._indices[:_CALIBRATED_ON], self.device)


def _as_array(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return tensor.detach().cpu().numpy().astype(np.float64)
