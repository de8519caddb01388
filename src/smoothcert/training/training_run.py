"""`train`: run a training from its settings to the checkpoint, or resume it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from smoothcert.data import Dataset
from smoothcert.errors import InputError, InterruptedRunError
from smoothcert.files import hold_lock, lock_path_of
from smoothcert.models.devices import reproducible_kernels, resolve_device, torch_threads, usable_cores
from smoothcert.records import IntArray
from smoothcert.sigma.over_data import Done
from smoothcert.sigma.rule import SigmaRule
from smoothcert.training.augment import check_can_augment
from smoothcert.training.batches import seeded_generator
from smoothcert.training.carried_sigma import CarriedLevels
from smoothcert.training.config import TrainingConfig
from smoothcert.training.curves import CsvCurves, CurveWriter, TensorBoardCurves, curves_path
from smoothcert.training.noise_levels import ConstantLevels, NoiseLevels, RuleLevels
from smoothcert.training.state import TrainingState, check_same_settings, load_state, partial_path
from smoothcert.training.training_loop import (
    EVALUATED_EACH_EPOCH,
    TrainedModel,
    TrainingLoop,
    TrainingProgress,
    TrainingSetup,
)

_MOST_HELD_BACK = 0.1


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
    """Train on `dataset`, write a checkpoint to `out`, which must not exist, and the curves to a csv file beside it.

    The state is stored in `out`.partial after every epoch and once a minute. With `resume`, a training found there is
    resumed with the same number of threads, unless `threads` is given. On the CPU the result is bit for bit that of an
    uninterrupted training; `notice` is called if device, threads or torch differ. When `stop` is set, the current batch
    is finished, the state is stored and InterruptedRunError is raised.

    held_out: where accuracy under noise is measured; the training data if None. threads: default all cores.
    tensorboard: a log directory. If the noise level is a rule, σ of every input is computed before the first step, and
    `preparing` is called with (inputs done, all inputs) for each dataset.
    """
    check_can_augment(config.augment, dataset.input_shape)
    _check_output(out, resume=resume)
    partial = partial_path(out)
    with hold_lock(partial):
        try:
            _check_output(out, resume=resume)
            target = resolve_device(device)
            settings = {**config.to_json(), "data": dataset.digest}
            state = load_state(partial) if partial.exists() else None
            if state is not None:
                check_same_settings(state.settings, settings, partial)
            computing = _describe_computing(target, threads, state, notice)
            evaluated_on = dataset if held_out is None else held_out
            held_back = None if config.patience is None else _choose_held_back(dataset, config.seed)
            report = _stop_preparation(stop, preparing)
            levels = _make_levels(config, dataset, evaluated_on, held_back, device=target, progress=report)
            curves: list[CurveWriter] = [CsvCurves(curves_path(out))]
            if tensorboard is not None:
                curves.append(TensorBoardCurves(tensorboard, done=0 if state is None else state.epoch))
            setup = TrainingSetup(
                config=config, dataset=dataset, evaluated_on=evaluated_on, held_back=held_back, levels=levels,
                settings=settings, computing=computing, out=out, device=target, curves=curves, progress=progress,
                stop=stop,
            )  # fmt: skip
            with torch_threads(computing["threads"]), reproducible_kernels():
                loop = TrainingLoop(setup)
                if state is not None:
                    loop.restore(state)
                loop.run()
                return loop.finish()
        finally:
            if not partial.exists():
                # The checkpoint is finished, or nothing was started: the lock protects nothing.
                lock_path_of(partial).unlink(missing_ok=True)


def _describe_computing(
    device: torch.device, threads: int | None, state: TrainingState | None, notice: Callable[[str], None] | None
) -> dict[str, Any]:
    """Device, threads and torch, on which the last bits depend. Gives notice if a resumed training used others."""
    before = {} if state is None else state.computing
    now = {
        "device": device.type,
        "threads": threads or before.get("threads") or usable_cores(),
        "torch": str(torch.__version__),
    }
    changed = [f"{name} was {before[name]}, now {now[name]}" for name in now if before and before[name] != now[name]]
    if changed and notice is not None:
        notice(f"the training is resumed, but its bits may differ: {'; '.join(changed)}")
    return now


def _make_levels(
    config: TrainingConfig,
    dataset: Dataset,
    evaluated_on: Dataset,
    held_back: IntArray | None,
    *,
    device: torch.device,
    progress: Done,
) -> NoiseLevels:
    if isinstance(config.sigma, SigmaRule):
        return RuleLevels(config.sigma, dataset, evaluated_on, device=device, progress=progress)
    start = float(config.sigma)
    if config.carried is not None:
        return CarriedLevels(config.carried, start=start, count=len(dataset), noise=config.noise, held_back=held_back)
    return ConstantLevels(start)


def _check_output(out: Path, *, resume: bool) -> None:
    if out.exists():
        raise InputError(f"{out} exists and is never overwritten; choose another --out or move it away")
    if partial_path(out).exists() and not resume:
        raise InputError(
            f"{partial_path(out)} holds an unfinished training; add --resume to resume it, or delete it to start again"
        )
    if curves_path(out).exists() and not resume:
        raise InputError(f"{curves_path(out)} exists and is never overwritten; move it away or choose another --out")


def _stop_preparation(stop: threading.Event | None, preparing: Done | None) -> Done:
    """A callback that reports the progress of the preparation, and interrupts it when `stop` is set."""

    def report(done: int, total: int) -> None:
        if preparing is not None:
            preparing(done, total)
        if stop is not None and stop.is_set():
            raise InterruptedRunError(
                "stopped before training, while sigma of the inputs was computed; run the same command again"
            )

    return report


def _choose_held_back(dataset: Dataset, seed: int) -> IntArray:
    """Indices of training inputs that are only evaluated: at most a tenth, and at most EVALUATED_EACH_EPOCH."""
    count = min(EVALUATED_EACH_EPOCH, max(1, int(_MOST_HELD_BACK * len(dataset))))
    chosen: IntArray = torch.randperm(len(dataset), generator=seeded_generator(seed, "kept back"))[:count].numpy()
    return chosen
