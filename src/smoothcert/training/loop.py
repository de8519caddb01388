"""The one training loop: any objective, checkpointed as it goes, resumed bit for bit."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.data import Dataset
from smoothcert.errors import InputError, InterruptedRunError, ModelError
from smoothcert.files import alone_with, lock_beside
from smoothcert.models.architectures import Standardisation, build
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.models.devices import check_bfloat16, reproducible_kernels, resolve_device, torch_threads, usable_cores
from smoothcert.records import IntArray
from smoothcert.sigma.base import SigmaRule
from smoothcert.sigma.over_data import Done, evenly_spread
from smoothcert.training.augment import augmented, check_can_augment
from smoothcert.training.averaging import AveragedModule
from smoothcert.training.batches import Batches, Rows, channel_statistics, seeded_generator
from smoothcert.training.carried_sigma import CarriedLevels
from smoothcert.training.config import Precision, TrainingConfig
from smoothcert.training.curves import CsvCurves, Curves, TensorBoardCurves, curves_path
from smoothcert.training.evaluation import noisy_accuracy
from smoothcert.training.mixed_precision import InBfloat16
from smoothcert.training.noise_levels import ConstantLevels, NoiseLevels, RuleLevels
from smoothcert.training.objective import Batch
from smoothcert.training.optimisers import build_optimiser, restore_state, state_by_name
from smoothcert.training.state import (
    EpochResult,
    TrainingState,
    check_same_settings,
    load_state,
    partial_path,
    save_state,
)

_EVALUATED_EACH_EPOCH = 2000
_MOST_KEPT_BACK = 0.1
_SECONDS_BETWEEN_REPORTS = 0.2
_SECONDS_BETWEEN_STATES = 60.0


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a training is. loss: mean over the epoch so far. accuracy: under noise, after the last whole epoch, on
    the inputs that are held out, or kept back where these decide when to stop. seconds_left: a guess from the speed so
    far; None at the very start.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A finished training. accuracy: under noise of the kind and level trained with, on all held-out inputs if there
    are any.
    """

    path: Path
    module: nn.Module
    header: CheckpointHeader
    history: tuple[EpochResult, ...]
    accuracy: float
    seconds: float


def train(
    config: TrainingConfig,
    dataset: Dataset,
    *,
    out: Path,
    held_out: Dataset | None = None,
    resume: bool = False,
    device: str = "auto",
    threads: int | None = None,
    tensorboard: Path | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    preparing: Done | None = None,
    notice: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> TrainedModel:
    """Train on `dataset` and write a checkpoint to `out`, which must not exist, and its curves to a csv file beside it.

    After every epoch, and once a minute, the whole state is in `out`.partial; with `resume` a training found there goes
    on, with as many threads as before unless told otherwise, and ends on the CPU with the same bits as one that was
    never stopped; `notice` hears a sentence where device, threads or torch are others. Once `stop` is set the current
    batch is finished, the state is stored and InterruptedRunError raised. held_out: where accuracy under noise is
    measured; the training data if None. threads: cores used, all by default. tensorboard: a log directory for its
    scalars.

    Where the noise level is a rule, σ of every input is computed once, before the first step; `preparing`
    hears (inputs done, inputs in all) of each dataset.
    """
    check_can_augment(config.augment, dataset.input_shape)
    _check_output(out, resume=resume)
    with alone_with(partial_path(out)):
        try:
            _check_output(out, resume=resume)
            chosen = resolve_device(device)
            settings = {**config.to_json(), "data": dataset.digest}
            state = load_state(partial_path(out)) if partial_path(out).exists() else None
            if state is not None:
                check_same_settings(state.settings, settings, partial_path(out))
            computing = _computing(chosen, threads, state, notice)
            judged_on = dataset if held_out is None else held_out
            kept_back = None if config.patience is None else _kept_back(dataset, config.seed)
            levels = _noise_levels(
                config, dataset, judged_on, kept_back, device=chosen, progress=_until(stop, preparing)
            )
            curves: list[Curves] = [CsvCurves(curves_path(out))]
            if tensorboard is not None:
                curves.append(TensorBoardCurves(tensorboard, done=0 if state is None else state.epoch))
            with torch_threads(computing["threads"]), reproducible_kernels():
                loop = _Loop(
                    config, dataset, settings=settings, computing=computing, judged_on=judged_on, kept_back=kept_back,
                    levels=levels, out=out, device=chosen, curves=curves, progress=progress, stop=stop,
                )  # fmt: skip
                if state is not None:
                    loop.restore(state)
                loop.run()
                return loop.finish()
        finally:
            if not partial_path(out).exists():
                # Nothing is left to be alone with: the checkpoint is finished, or nothing was begun.
                lock_beside(partial_path(out)).unlink(missing_ok=True)


def _computing(
    device: torch.device, threads: int | None, state: TrainingState | None, notice: Callable[[str], None] | None
) -> dict[str, Any]:
    """What the last bits depend on; a notice where it is not what a training was begun with."""
    before = {} if state is None else state.computing
    now = {
        "device": device.type,
        "threads": threads or before.get("threads") or usable_cores(),
        "torch": str(torch.__version__),
    }
    changed = [f"{name} was {before[name]}, now {now[name]}" for name in now if before and before[name] != now[name]]
    if changed and notice is not None:
        notice(f"the training goes on, but not to the same bits: {'; '.join(changed)}")
    return now


def _noise_levels(
    config: TrainingConfig,
    dataset: Dataset,
    judged_on: Dataset,
    kept_back: IntArray | None,
    *,
    device: torch.device,
    progress: Done,
) -> NoiseLevels:
    if isinstance(config.sigma, SigmaRule):
        return RuleLevels(config.sigma, dataset, judged_on, device=device, progress=progress)
    if config.carried is not None:
        return CarriedLevels(
            config.carried, start=float(config.sigma), count=len(dataset), noise=config.noise, kept_back=kept_back
        )
    return ConstantLevels(float(config.sigma))


def _check_output(out: Path, *, resume: bool) -> None:
    if out.exists():
        raise InputError(f"{out} exists and is never overwritten; choose another --out or move it away")
    if partial_path(out).exists() and not resume:
        raise InputError(
            f"{partial_path(out)} holds an unfinished training; "
            "add --resume to go on with it, or delete it to start again"
        )
    if curves_path(out).exists() and not resume:
        raise InputError(f"{curves_path(out)} exists and is never overwritten; move it away or choose another --out")


def _until(stop: threading.Event | None, preparing: Done | None) -> Done:
    """Passes on how far the preparation is, until it is to stop."""

    def hear(done: int, total: int) -> None:
        if preparing is not None:
            preparing(done, total)
        if stop is not None and stop.is_set():
            raise InterruptedRunError(
                "stopped before training, while sigma of the inputs was computed; start the same command again"
            )

    return hear


class _Loop:
    """The state of one training between steps."""

    def __init__(
        self,
        config: TrainingConfig,
        dataset: Dataset,
        *,
        settings: Mapping[str, Any],
        computing: Mapping[str, Any],
        judged_on: Dataset,
        kept_back: IntArray | None,
        levels: NoiseLevels,
        out: Path,
        device: torch.device,
        curves: Sequence[Curves],
        progress: Callable[[TrainingProgress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        self._config = config
        self._dataset = dataset
        self._judged_on = judged_on
        self._out = out
        self._device = device
        self._curves = curves
        self._progress = progress
        self._stop = stop
        self._settings = settings
        self._computing_with = computing
        self._levels = levels
        self._standardise = channel_statistics(dataset) if config.standardise else None
        module = _fresh_module(config, dataset, self._standardise)
        # With channels last, convolutions train about one and a half times as fast on a processor.
        self._module: nn.Module = module.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._computing = _in_precision(self._module, config.precision, device)
        self._averaged = AveragedModule(self._module, decay=config.average) if config.average > 0 else None
        self._optimiser = build_optimiser(
            config.optimiser,
            self._module,
            rate=config.peak_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        self._kept_back = kept_back
        self._batches = Batches(dataset, batch=config.batch, seed=config.seed, device=device, kept_back=self._kept_back)
        self._best: Mapping[str, Tensor] = {}
        self._epoch = self._batch = 0
        self._noise = self._fresh_noise()
        self._sums: dict[str, Tensor] = {}
        self._history: tuple[EpochResult, ...] = ()
        self._seconds_before = 0.0
        self._steps_before = 0
        self._began = time.perf_counter()
        self._last_report = -math.inf
        self._last_save = self._began

    def run(self) -> None:
        while self._epoch < self._config.epochs and not self._is_patience_over():
            self._module.train()
            for rows in self._batches.epoch(self._epoch, first=self._batch):
                self._step(rows)
                if self._batch < len(self._batches):
                    self._between_steps()
                if self._stop is not None and self._stop.is_set():
                    self._interrupt()
            self._end_epoch()

    def finish(self) -> TrainedModel:
        """Measures the network on everything held out, writes the checkpoint and removes the state."""
        if self._best:
            self._judged.load_state_dict(dict(self._best))
        taken = self._best_epoch() + 1 if self._best else self._epoch
        accuracy = self._accuracy(self._judged_on, among=None)
        header = CheckpointHeader(
            arch=self._config.arch,
            num_classes=self._dataset.num_classes,
            input_shape=tuple(self._dataset.input_shape),
            standardise=self._standardise,
            training={
                **self._settings,
                "dataset": self._dataset.name,
                **self._levels.summary(),
                "epochs_done": self._epoch,
                "epoch_taken": taken,
                "loss": self._history[taken - 1].loss,
                "noisy_accuracy": accuracy,
                "noisy_accuracy_split": self._judged_on.split,
                "seconds": round(self._seconds, 1),
                **self._computing_with,
            },
        )
        save_checkpoint(self._out, self._judged, header)
        partial_path(self._out).unlink(missing_ok=True)
        for curves in self._curves:
            curves.close()
        return TrainedModel(
            path=self._out,
            module=self._judged.eval(),
            header=header,
            history=self._history,
            accuracy=accuracy,
            seconds=self._seconds,
        )

    def restore(self, state: TrainingState) -> None:
        self._module.load_state_dict(dict(state.parameters))
        if self._averaged is not None:
            self._averaged.module.load_state_dict(dict(state.averaged))
        self._best = state.best
        restore_state(self._optimiser, self._module, state.optimiser)
        self._levels.restore(state.levels)
        self._epoch, self._batch = state.epoch, state.batch
        self._noise = self._fresh_noise()
        self._noise.set_state(state.noise)
        self._sums = {name: torch.tensor(value, device=self._device) for name, value in state.sums.items()}
        self._history = state.history
        self._seconds_before = state.seconds
        self._steps_before = self._done_steps

    @property
    def _judged(self) -> nn.Module:
        """The network that is judged and written."""
        return self._module if self._averaged is None else self._averaged.module

    def _step(self, rows: Rows) -> None:
        progress = self._done_steps / self._all_steps
        inputs = augmented(rows.inputs, self._config.augment, self._noise)
        sigma = self._levels.of(rows, self._computing, progress=progress, generator=self._noise)
        batch = Batch(inputs, rows.labels, sigma, noise=self._config.noise, progress=progress)
        terms = self._config.objective.terms(self._computing, batch, self._noise)
        self._optimiser.param_groups[0]["lr"] = self._rate(self._done_steps)
        self._optimiser.zero_grad(set_to_none=True)
        torch.stack(tuple(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        if self._averaged is not None:
            self._averaged.follow(self._module, step=self._done_steps)
        for name, term in terms.items():
            added = term.detach() * len(rows.labels)
            self._sums[name] = self._sums[name] + added if name in self._sums else added
        self._batch += 1

    def _rate(self, step: int) -> float:
        return self._config.schedule.rate(step, steps=self._all_steps, peak=self._config.peak_rate)

    def _between_steps(self) -> None:
        self._report(every=_SECONDS_BETWEEN_REPORTS)
        if time.perf_counter() - self._last_save > _SECONDS_BETWEEN_STATES:
            self._save()

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
        )
        self._history = (*self._history, result)
        self._report(every=0.0)
        self._epoch, self._batch = self._epoch + 1, 0
        self._noise = self._fresh_noise()
        self._sums = {}
        if self._config.patience is not None and self._best_epoch() == self._epoch - 1:
            self._best = {name: tensor.detach().clone() for name, tensor in self._judged.state_dict().items()}
        # Shown before it is stored: killed in between, an epoch is made and shown again; none is left out.
        for curves in self._curves:
            curves.show(self._history)
        self._save()

    def _epoch_accuracy(self) -> float:
        """On inputs kept back where there are some: what is held out must not decide when to stop."""
        if self._kept_back is not None:
            return self._accuracy(self._dataset, among=self._kept_back)
        return self._accuracy(self._judged_on, among=evenly_spread(len(self._judged_on), most=_EVALUATED_EACH_EPOCH))

    def _accuracy(self, dataset: Dataset, *, among: IntArray | None) -> float:
        return noisy_accuracy(
            self._judged,
            dataset,
            noise=self._config.noise,
            sigma=self._levels.trained if dataset is self._dataset else self._levels.judging,
            seed=self._config.seed,
            device=self._device,
            among=among,
        )

    def _best_epoch(self) -> int:
        accuracies = [result.accuracy for result in self._history]
        return accuracies.index(max(accuracies))

    def _is_patience_over(self) -> bool:
        patience = self._config.patience
        return patience is not None and self._epoch > 0 and self._epoch - 1 - self._best_epoch() >= patience

    def _report(self, *, every: float) -> None:
        now = time.perf_counter()
        if self._progress is None or now - self._last_report < every:
            return
        self._last_report = now
        seen = min(self._batch * self._config.batch, self._batches.inputs)
        loss = sum(float(value) for value in self._sums.values()) / max(seen, 1)
        self._check_finite(loss)
        self._progress(
            TrainingProgress(
                step=self._done_steps,
                steps=self._all_steps,
                epoch=self._epoch + 1,
                epochs=self._config.epochs,
                loss=loss,
                accuracy=self._history[-1].accuracy if self._history else None,
                seconds_left=self._seconds_left(now),
            )
        )

    def _seconds_left(self, now: float) -> float | None:
        done_now = self._done_steps - self._steps_before
        return (now - self._began) / done_now * (self._all_steps - self._done_steps) if done_now > 0 else None

    def _interrupt(self) -> None:
        self._save()
        raise InterruptedRunError(
            f"stopped after {self._done_steps} of {self._all_steps} steps; the state is in {partial_path(self._out)}. "
            "Go on with the same command and --resume"
        )

    def _save(self) -> None:
        state = TrainingState(
            settings=self._settings,
            computing=self._computing_with,
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
            optimiser=state_by_name(self._optimiser, self._module),
        )
        save_state(partial_path(self._out), state)
        self._last_save = time.perf_counter()

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise ModelError(
                f"the training diverged in epoch {self._epoch + 1}: the loss is {loss}. Lower --lr "
                f"(it is {self._config.peak_rate}) and delete {partial_path(self._out)} if it is there"
            )

    def _fresh_noise(self) -> torch.Generator:
        return seeded_generator(self._config.seed, "noise", self._epoch, device=self._device)

    @property
    def _done_steps(self) -> int:
        return self._epoch * len(self._batches) + self._batch

    @property
    def _all_steps(self) -> int:
        return self._config.epochs * len(self._batches)

    @property
    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began


def _in_precision(module: nn.Module, precision: Precision, device: torch.device) -> nn.Module:
    """What the objective sees: the network, or one that computes in half the digits."""
    if precision is Precision.FLOAT32:
        return module
    check_bfloat16(device)
    return InBfloat16(module)


def _kept_back(dataset: Dataset, seed: int) -> IntArray:
    """Indices of training inputs that only judge: at most a tenth, at most as many as an epoch is judged on."""
    count = min(_EVALUATED_EACH_EPOCH, max(1, int(_MOST_KEPT_BACK * len(dataset))))
    chosen: IntArray = torch.randperm(len(dataset), generator=seeded_generator(seed, "kept back"))[:count].numpy()
    return chosen


def _fresh_module(config: TrainingConfig, dataset: Dataset, standardise: Standardisation | None) -> nn.Module:
    """First weights by the seed alone; torch's layers only draw from the global generator, which is put back
    after.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(seeded_generator(config.seed, "weights").get_state())
        return build(
            config.arch, num_classes=dataset.num_classes, input_shape=dataset.input_shape, standardise=standardise
        )
