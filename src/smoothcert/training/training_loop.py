"""The training loop: any objective, with stored state, resumed bit for bit."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import torch
from torch import Tensor, nn

from smoothcert.data import Dataset
from smoothcert.data.matching import list_class_names
from smoothcert.errors import InterruptedRunError, ManifestMismatchError, ModelError
from smoothcert.models.architectures import Standardisation, build, is_own
from smoothcert.models.architectures.own_network import count_logits
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.models.devices import check_bfloat16
from smoothcert.records import IntArray
from smoothcert.sigma.over_data import spread_evenly
from smoothcert.sigma.selected import SelectorFacts
from smoothcert.training.augment import augment_images
from smoothcert.training.batches import Batches, Rows, channel_statistics, seeded_generator
from smoothcert.training.choices import FloatFormat
from smoothcert.training.config import TrainingConfig
from smoothcert.training.curves import CurveWriter
from smoothcert.training.evaluation import noisy_accuracy
from smoothcert.training.input_splitting import Splitting
from smoothcert.training.modules import AveragedModule, Bfloat16Module, use_fast_layout
from smoothcert.training.noise_levels import NoiseLevels
from smoothcert.training.objective import Batch
from smoothcert.training.optimisers import build_optimiser, collect_state, restore_state
from smoothcert.training.state import EpochResult, History, TrainingState, partial_path, save_state

EVALUATED_EACH_EPOCH = 2000
"""Most inputs on which accuracy is measured after an epoch."""
_SECONDS_BETWEEN_REPORTS = 0.2
_SECONDS_BETWEEN_STATES = 60.0


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """Progress of a training.

    loss: mean over the epoch so far. accuracy: under noise, after the last complete epoch, on the inputs that
    `evaluated_on` names, as in `EpochResult`. seconds_left: an estimate; None at the start.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float | None
    evaluated_on: str
    seconds_left: float | None

    def describe(self) -> str:
        """One line: epoch, loss, accuracy."""
        accuracy = "" if self.accuracy is None else f"  {self.evaluated_on} accuracy under noise {self.accuracy:.3f}"
        return f"epoch {self.epoch}/{self.epochs}  loss {self.loss:.4f}{accuracy}"


def print_epoch(report: TrainingProgress) -> None:
    """Print a line on standard error at the end of every epoch."""
    if report.step * report.epochs == report.epoch * report.steps:
        ahead = report.seconds_left if report.step < report.steps else None
        left = "" if ahead is None else f"  about {ahead:.0f} s left"
        print(report.describe() + left, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A finished training. Unpacks to (module, history).

    path: the checkpoint, None if none was written. module: in evaluation mode. accuracy: under the noise of the
    training, on all held-out inputs if there are any.
    """

    path: Path | None
    module: nn.Module
    header: CheckpointHeader
    history: History
    accuracy: float
    seconds: float

    def __iter__(self) -> Iterator[Any]:
        return iter((self.module, self.history))


Adjustment = Callable[[nn.Module], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """What a training loop works with.

    network: the module of the user, trained in place; None: built from config.arch.
    evaluated_on: inputs on which accuracy is measured. held_back: indices of training inputs that decide when to stop.
    settings: compared when resuming. computing: device, threads and torch. out: None to write nothing.
    selector: what the checkpoint of a selector says of its levels; None for other networks. adjust: changes the
    finished network before it is evaluated and saved, and returns what the checkpoint says of that.
    """

    config: TrainingConfig
    network: nn.Module | None
    dataset: Dataset
    evaluated_on: Dataset
    held_back: IntArray | None
    levels: NoiseLevels
    settings: Mapping[str, Any]
    computing: Mapping[str, Any]
    out: Path | None
    device: torch.device
    curves: Sequence[CurveWriter]
    progress: Callable[[TrainingProgress], None] | None
    stop: threading.Event | None
    selector: SelectorFacts | None = None
    adjust: Adjustment | None = None


class TrainingLoop:
    """The state of one training between steps."""

    def __init__(self, setup: TrainingSetup) -> None:
        config = setup.config
        self._setup = setup
        self._config = config
        self._levels = setup.levels
        self._standardise = channel_statistics(setup.dataset) if config.standardise else None
        network = setup.network
        self._module = _build_module(config, setup.dataset, self._standardise) if network is None else network
        self._module.to(setup.device)
        use_fast_layout(self._module)
        self._num_classes = setup.dataset.num_classes
        if is_own(config.arch):
            self._num_classes = _check_network(self._module, config.arch, setup.dataset)
        self._computing_module = _set_precision(self._module, config.precision, setup.device)
        self._averaged = AveragedModule(self._module, decay=config.average) if config.average > 0 else None
        self._optimiser = build_optimiser(
            config.optimiser,
            self._module,
            rate=config.peak_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        self._batches = Batches(
            setup.dataset, batch=config.batch, seed=config.seed, device=setup.device, held_back=setup.held_back
        )
        self._best: Mapping[str, Tensor] = {}
        self._epoch = self._batch = 0
        self._noise = self._make_noise()
        self._sums: dict[str, Tensor] = {}
        self._history = History()
        self._seconds_before = 0.0
        self._steps_before = 0
        self._began = time.perf_counter()
        self._last_report = -math.inf
        self._last_save = self._began

    def run(self) -> None:
        stop = self._setup.stop
        while self._epoch < self._config.epochs and not self._is_patience_over():
            self._module.train()
            for rows in self._batches.epoch(self._epoch, first=self._batch):
                self._step(rows)
                if self._batch < len(self._batches):
                    self._report(every=_SECONDS_BETWEEN_REPORTS)
                    if time.perf_counter() - self._last_save > _SECONDS_BETWEEN_STATES:
                        self._save()
                if stop is not None and stop.is_set():
                    self._interrupt()
            self._end_epoch()

    def finish(self) -> TrainedModel:
        """Evaluate the network on all held-out inputs, write the checkpoint and delete the state."""
        setup = self._setup
        if self._best:
            self._evaluated.load_state_dict(dict(self._best))
        adjusted = {} if setup.adjust is None else setup.adjust(self._evaluated)
        if self._averaged is not None:
            self._module.load_state_dict(self._averaged.module.state_dict())
        taken = self._best_epoch() + 1 if self._best else self._epoch
        accuracy = self._accuracy(setup.evaluated_on, among=None)
        header = CheckpointHeader(
            arch=self._config.arch,
            num_classes=self._num_classes,
            input_shape=tuple(setup.dataset.input_shape),
            standardise=self._standardise,
            class_names=list_class_names(setup.dataset, self._num_classes),
            training={
                **setup.settings,
                "dataset": setup.dataset.name,
                **self._levels.summary(),
                **adjusted,
                "epochs_done": self._epoch,
                "epoch_taken": taken,
                "loss": self._history[taken - 1].loss,
                "noisy_accuracy": accuracy,
                "noisy_accuracy_split": setup.evaluated_on.split,
                "noisy_accuracy_inputs": len(setup.evaluated_on),
                "seconds": round(self._seconds, 1),
                **setup.computing,
            },
            selector=None if setup.selector is None else setup.selector.to_json(),
        )
        if setup.out is not None:
            save_checkpoint(setup.out, self._module, header)
            partial_path(setup.out).unlink(missing_ok=True)
        for curves in setup.curves:
            curves.close()
        return TrainedModel(setup.out, self._module.eval(), header, self._history, accuracy, self._seconds)

    def restore(self, state: TrainingState) -> None:
        try:
            self._module.load_state_dict(dict(state.parameters))
        except RuntimeError as error:
            raise ManifestMismatchError(
                f"the unfinished training of {self._setup.out} has another network than {self._config.arch} is now "
                f"({' '.join(str(error).split())}). Use the old network to resume it, or delete it to start again"
            ) from error
        if self._averaged is not None:
            self._averaged.module.load_state_dict(dict(state.averaged))
        self._best = state.best
        restore_state(self._optimiser, self._module, state.optimiser)
        self._levels.restore(state.levels)
        self._epoch, self._batch = state.epoch, state.batch
        self._noise = self._make_noise()
        self._noise.set_state(state.noise)
        self._sums = {name: torch.tensor(value, device=self._setup.device) for name, value in state.sums.items()}
        self._history = state.history
        self._seconds_before = state.seconds
        self._steps_before = self._done_steps

    @property
    def _evaluated(self) -> nn.Module:
        """The network that is evaluated and saved."""
        return self._module if self._averaged is None else self._averaged.module

    def _step(self, rows: Rows) -> None:
        progress = self._done_steps / self._all_steps
        self._seed_layers("layers", self._done_steps)
        inputs = augment_images(rows.inputs, self._config.augment, self._noise)
        sigma = self._levels.select(rows, self._computing_module, progress=progress, generator=self._noise)
        batch = Batch(
            inputs, rows.labels, sigma, noise=self._config.noise, progress=progress, targets=rows.targets,
            radii=rows.radii, splitting=self._config.splitting or Splitting(),
        )  # fmt: skip
        terms = self._config.objective.terms(self._computing_module, batch, self._noise)
        self._optimiser.param_groups[0]["lr"] = self._rate(self._done_steps)
        self._optimiser.zero_grad(set_to_none=True)
        torch.stack(tuple(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        if self._averaged is not None:
            self._averaged.update(self._module, step=self._done_steps)
        for name, term in terms.items():
            added = term.detach() * len(rows.labels)
            self._sums[name] = self._sums[name] + added if name in self._sums else added
        self._batch += 1

    def _rate(self, step: int) -> float:
        return self._config.schedule.rate(step, steps=self._all_steps, peak=self._config.peak_rate)

    def _end_epoch(self) -> None:
        terms = {name: float(value) / self._batches.inputs for name, value in self._sums.items()}
        self._check_finite(sum(terms.values()))
        result = EpochResult(
            loss=sum(terms.values()),
            accuracy=self._epoch_accuracy(),
            terms=terms,
            rate=self._rate(self._done_steps - 1),
            sigma=self._levels.mean,
            seconds=self._seconds,
            evaluated_on=self._evaluated_each_epoch,
        )
        self._history = History((*self._history, result))
        self._report(every=0.0)
        self._epoch, self._batch = self._epoch + 1, 0
        self._noise = self._make_noise()
        self._sums = {}
        if self._config.patience is not None and self._best_epoch() == self._epoch - 1:
            self._best = {name: tensor.detach().clone() for name, tensor in self._evaluated.state_dict().items()}
        # Curves before state: if killed in between, the epoch is repeated and written again; none is missing.
        for curves in self._setup.curves:
            curves.write(self._history)
        self._save()

    def _epoch_accuracy(self) -> float:
        """On the held-back inputs if there are any: the held-out inputs must not decide when to stop."""
        setup = self._setup
        if setup.held_back is not None:
            return self._accuracy(setup.dataset, among=setup.held_back)
        among = spread_evenly(len(setup.evaluated_on), most=EVALUATED_EACH_EPOCH)
        return self._accuracy(setup.evaluated_on, among=among)

    @property
    def _evaluated_each_epoch(self) -> str:
        return self._setup.evaluated_on.split if self._setup.held_back is None else "held-back"

    def _accuracy(self, dataset: Dataset, *, among: IntArray | None) -> float:
        self._seed_layers("evaluation of layers")
        return noisy_accuracy(
            self._evaluated,
            dataset,
            noise=self._config.noise,
            sigma=self._levels.training if dataset is self._setup.dataset else self._levels.evaluation,
            seed=self._config.seed,
            device=self._setup.device,
            among=among,
            splitting=self._config.splitting,
        )

    def _best_epoch(self) -> int:
        accuracies = [result.accuracy for result in self._history]
        return accuracies.index(max(accuracies))

    def _is_patience_over(self) -> bool:
        patience = self._config.patience
        return patience is not None and self._epoch > 0 and self._epoch - 1 - self._best_epoch() >= patience

    def _report(self, *, every: float) -> None:
        now = time.perf_counter()
        if self._setup.progress is None or now - self._last_report < every:
            return
        self._last_report = now
        seen = min(self._batch * self._config.batch, self._batches.inputs)
        loss = sum(float(value) for value in self._sums.values()) / max(seen, 1)
        self._check_finite(loss)
        done, steps = self._done_steps, self._all_steps
        done_now = done - self._steps_before
        self._setup.progress(
            TrainingProgress(
                step=done,
                steps=steps,
                epoch=self._epoch + 1,
                epochs=self._config.epochs,
                loss=loss,
                accuracy=self._history[-1].accuracy if self._history else None,
                evaluated_on=self._evaluated_each_epoch,
                seconds_left=(now - self._began) / done_now * (steps - done) if done_now > 0 else None,
            )
        )

    def _interrupt(self) -> None:
        self._save()
        stopped = f"stopped after {self._done_steps} of {self._all_steps} steps"
        if self._setup.out is None:
            raise InterruptedRunError(f"{stopped}; nothing was stored")
        raise InterruptedRunError(
            f"{stopped}; the state is in {partial_path(self._setup.out)}. Resume with the same command and --resume"
        )

    def _save(self) -> None:
        if self._setup.out is None:
            return
        state = TrainingState(
            settings=self._setup.settings,
            computing=self._setup.computing,
            epoch=self._epoch,
            batch=self._batch,
            sums={name: float(value) for name, value in self._sums.items()},
            seconds=self._seconds,
            history=self._history,
            noise=self._noise.get_state(),
            levels=self._levels.state(),
            parameters=self._module.state_dict(),
            averaged={} if self._averaged is None else self._averaged.module.state_dict(),
            best=self._best,
            optimiser=collect_state(self._optimiser, self._module),
        )
        save_state(partial_path(self._setup.out), state)
        self._last_save = time.perf_counter()

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            out = self._setup.out
            delete = "" if out is None else f" and delete {partial_path(out)} if it exists"
            raise ModelError(
                f"the training diverged in epoch {self._epoch + 1}: the loss is {loss}. Lower --lr "
                f"(it is {self._config.peak_rate}){delete}"
            )

    def _seed_layers(self, purpose: str, number: int = 0) -> None:
        """Seed torch's global generator, from which layers of the user such as Dropout draw: a pure function of the
        step, so that there is no state to store. The caller restores the generator after the training."""
        seed = seeded_generator(self._config.seed, purpose, number).initial_seed()
        torch.default_generator.manual_seed(seed)
        if self._setup.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _make_noise(self) -> torch.Generator:
        return seeded_generator(self._config.seed, "noise", self._epoch, device=self._setup.device)

    @property
    def _done_steps(self) -> int:
        return self._epoch * len(self._batches) + self._batch

    @property
    def _all_steps(self) -> int:
        return self._config.epochs * len(self._batches)

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began


def _set_precision(module: nn.Module, precision: FloatFormat, device: torch.device) -> nn.Module:
    match precision:
        case FloatFormat.FLOAT32:
            return module
        case FloatFormat.BFLOAT16:
            check_bfloat16(device)
            return Bfloat16Module(module)
        case _:
            assert_never(precision)


def _check_network(module: nn.Module, arch: str, dataset: Dataset) -> int:
    """Check a network of the user, and return its number of logits, at least one per class of the data."""
    logits = count_logits(module, input_shape=tuple(dataset.input_shape), name=arch)
    if logits < dataset.num_classes:
        raise ModelError(f"{arch} gives {logits} logits, but {dataset.name} has {dataset.num_classes} classes")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ModelError(f"{arch} has no parameters to train")
    return logits


def _build_module(config: TrainingConfig, dataset: Dataset, standardise: Standardisation | None) -> nn.Module:
    """Build the network with weights that depend only on the seed.

    torch initialises layers from its global generator, which is restored afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(seeded_generator(config.seed, "weights").get_state())
        return build(
            config.arch, num_classes=dataset.num_classes, input_shape=dataset.input_shape, standardise=standardise
        )
