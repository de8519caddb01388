"""The one training loop: any objective, checkpointed after every epoch, resumed bit for bit."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from smoothcert.data.base import Dataset
from smoothcert.errors import InputError, InterruptedRunError, ModelError
from smoothcert.models.architectures import Standardisation, build
from smoothcert.models.checkpoints import CheckpointHeader, save_checkpoint
from smoothcert.models.devices import reproducible_kernels, resolve_device, torch_threads, usable_cores
from smoothcert.sigma.over_data import Done
from smoothcert.training.batches import Batches, channel_statistics, seeded_generator
from smoothcert.training.config import TrainingConfig
from smoothcert.training.evaluation import noisy_accuracy
from smoothcert.training.levels import NoiseLevels
from smoothcert.training.objective import Batch
from smoothcert.training.schedule import one_cycle
from smoothcert.training.state import (
    EpochResult,
    TrainingState,
    check_same_settings,
    load_state,
    partial_path,
    save_state,
)

_EVALUATED_EACH_EPOCH = 2000
_SECONDS_BETWEEN_REPORTS = 0.2


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """How far a training is. loss: mean over the epoch so far. accuracy: under noise, after the last whole
    epoch.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A finished training. accuracy: under noise of the objective's kind and sigma, on all held-out
    inputs if there are any.
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
    progress: Callable[[TrainingProgress], None] | None = None,
    preparing: Done | None = None,
    stop: threading.Event | None = None,
) -> TrainedModel:
    """Train on `dataset` and write a checkpoint to `out`, which must not exist.

    After every epoch the whole state is in `out`.partial; with `resume` a training found there goes on, and
    ends with the same weights as one that was never stopped, given the same device and thread count. Once
    `stop` is set the current batch is finished, the state is stored and InterruptedRunError raised. held_out:
    where accuracy under noise is measured; the training data if None. threads: cores used, all by default.

    Where the objective's noise level is a rule, σ of every input is computed once, before the first step; `preparing`
    hears (inputs done, inputs in all) of each dataset.
    """
    _check_output(out, resume=resume)
    chosen = resolve_device(device)
    settings = {**config.to_json(), "data": dataset.digest}
    state = load_state(partial_path(out)) if partial_path(out).exists() else None
    if state is not None:
        check_same_settings(state.settings, settings, partial_path(out))
    levels = NoiseLevels.of(config.objective.sigma, dataset, held_out, progress=_until(stop, preparing))
    with torch_threads(threads or usable_cores()), reproducible_kernels():
        loop = _Loop(
            config, dataset, settings=settings, held_out=held_out, levels=levels, out=out, device=chosen,
            progress=progress, stop=stop,
        )  # fmt: skip
        if state is not None:
            loop.restore(state)
        loop.run()
        return loop.finish()


def _check_output(out: Path, *, resume: bool) -> None:
    if out.exists():
        raise InputError(f"{out} exists and is never overwritten; choose another --out or move it away")
    if partial_path(out).exists() and not resume:
        raise InputError(
            f"{partial_path(out)} holds an unfinished training; "
            "add --resume to go on with it, or delete it to start again"
        )


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
        held_out: Dataset | None,
        levels: NoiseLevels,
        out: Path,
        device: torch.device,
        progress: Callable[[TrainingProgress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        self._config = config
        self._dataset = dataset
        self._judged_on = dataset if held_out is None else held_out
        self._out = out
        self._device = device
        self._progress = progress
        self._stop = stop
        self._settings = settings
        self._levels = levels
        self._standardise = channel_statistics(dataset) if config.standardise else None
        module = _fresh_module(config, dataset, self._standardise)
        # With channels last, convolutions train about one and a half times as fast on a processor.
        self._module: nn.Module = module.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._optimizer = torch.optim.SGD(
            self._module.parameters(),
            lr=config.peak_rate,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            nesterov=config.momentum > 0,
        )
        self._batches = Batches(dataset, batch=config.batch, seed=config.seed, device=device, sigma=levels.training)
        self._epoch = self._batch = 0
        self._noise = self._fresh_noise()
        self._loss_sum = torch.zeros((), device=device, dtype=torch.float32)
        self._history: tuple[EpochResult, ...] = ()
        self._seconds_before = 0.0
        self._began = time.perf_counter()
        self._last_report = -math.inf

    def run(self) -> None:
        while self._epoch < self._config.epochs:
            self._module.train()
            for batch in self._batches.epoch(self._epoch, first=self._batch):
                self._step(batch)
                if self._batch < len(self._batches):
                    self._report(every=_SECONDS_BETWEEN_REPORTS)
                if self._stop is not None and self._stop.is_set():
                    self._interrupt()
            self._end_epoch()

    def finish(self) -> TrainedModel:
        """Measures the network on everything held out, writes the checkpoint and removes the state."""
        accuracy = self._accuracy(most=None)
        header = CheckpointHeader(
            arch=self._config.arch,
            num_classes=self._dataset.num_classes,
            input_shape=tuple(self._dataset.input_shape),
            standardise=self._standardise,
            training={
                **self._settings,
                "dataset": self._dataset.name,
                **self._levels.summary(),
                "loss": self._history[-1].loss,
                "noisy_accuracy": accuracy,
                "noisy_accuracy_split": self._judged_on.split,
                "seconds": round(self._seconds, 1),
                "torch": str(torch.__version__),
            },
        )
        save_checkpoint(self._out, self._module, header)
        partial_path(self._out).unlink(missing_ok=True)
        return TrainedModel(
            path=self._out,
            module=self._module.eval(),
            header=header,
            history=self._history,
            accuracy=accuracy,
            seconds=self._seconds,
        )

    def restore(self, state: TrainingState) -> None:
        self._module.load_state_dict(dict(state.parameters))
        for name, parameter in self._module.named_parameters():
            if name in state.momenta:
                self._optimizer.state[parameter]["momentum_buffer"] = state.momenta[name].to(self._device)
        self._epoch, self._batch = state.epoch, state.batch
        self._noise = self._fresh_noise()
        self._noise.set_state(state.noise)
        self._loss_sum.fill_(state.loss_sum)
        self._history = state.history
        self._seconds_before = state.seconds

    def _step(self, batch: Batch) -> None:
        self._optimizer.param_groups[0]["lr"] = one_cycle(
            self._done_steps, steps=self._all_steps, peak=self._config.peak_rate
        )
        loss = self._config.objective.loss(self._module, batch, self._noise)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._loss_sum += loss.detach() * len(batch.labels)
        self._batch += 1

    def _end_epoch(self) -> None:
        loss = float(self._loss_sum) / len(self._dataset)
        self._check_finite(loss)
        accuracy = self._accuracy(most=_EVALUATED_EACH_EPOCH)
        self._history = (*self._history, EpochResult(loss=loss, accuracy=accuracy))
        self._report(every=0.0)
        self._epoch, self._batch = self._epoch + 1, 0
        self._noise = self._fresh_noise()
        self._loss_sum.zero_()
        self._save()

    def _accuracy(self, *, most: int | None) -> float:
        return noisy_accuracy(
            self._module,
            self._judged_on,
            noise=self._config.objective.noise,
            sigma=self._levels.judging,
            seed=self._config.seed,
            device=self._device,
            most=most,
        )

    def _report(self, *, every: float) -> None:
        now = time.perf_counter()
        if self._progress is None or now - self._last_report < every:
            return
        self._last_report = now
        seen = min(self._batch * self._config.batch, len(self._dataset))
        loss = float(self._loss_sum) / max(seen, 1)
        self._check_finite(loss)
        self._progress(
            TrainingProgress(
                step=self._done_steps,
                steps=self._all_steps,
                epoch=self._epoch + 1,
                epochs=self._config.epochs,
                loss=loss,
                accuracy=self._history[-1].accuracy if self._history else None,
            )
        )

    def _interrupt(self) -> None:
        self._save()
        raise InterruptedRunError(
            f"stopped after {self._done_steps} of {self._all_steps} steps; the state is in {partial_path(self._out)}. "
            "Go on with the same command and --resume"
        )

    def _save(self) -> None:
        momenta = {
            name: self._optimizer.state[parameter]["momentum_buffer"]
            for name, parameter in self._module.named_parameters()
            if self._optimizer.state.get(parameter, {}).get("momentum_buffer") is not None
        }
        state = TrainingState(
            settings=self._settings,
            epoch=self._epoch,
            batch=self._batch,
            loss_sum=float(self._loss_sum),
            seconds=self._seconds,
            history=self._history,
            parameters=self._module.state_dict(),
            momenta=momenta,
            noise=self._noise.get_state(),
        )
        save_state(partial_path(self._out), state)

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


def _fresh_module(config: TrainingConfig, dataset: Dataset, standardise: Standardisation | None) -> nn.Module:
    """First weights by the seed alone; torch's layers only draw from the global generator, which is put back
    after.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(seeded_generator(config.seed, "weights").get_state())
        return build(
            config.arch,
            num_classes=dataset.num_classes,
            input_shape=dataset.input_shape,
            standardise=standardise,
        )
