"""`run_training`: run a training from its settings to the checkpoint, or resume it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from smoothcert.data import Dataset, DatasetPart, write_part
from smoothcert.errors import InputError, InterruptedRunError
from smoothcert.files import hold_lock, lock_path_of
from smoothcert.models.devices import reproducible_kernels, resolve_device, torch_threads, usable_cores
from smoothcert.records import IntArray
from smoothcert.sigma.over_data import Done
from smoothcert.sigma.rule import SigmaRule
from smoothcert.sigma.selected import SelectorFacts
from smoothcert.training.augment import check_can_augment
from smoothcert.training.batches import find_targets, seeded_generator
from smoothcert.training.carried_sigma import CarriedLevels
from smoothcert.training.config import TrainingConfig
from smoothcert.training.curves import CsvCurves, CurveWriter, TensorBoardCurves, curves_path
from smoothcert.training.holding_out import held_out_path, hold_out
from smoothcert.training.input_splitting import check_can_be_split
from smoothcert.training.noise_levels import ConstantLevels, NoiseLevels, RuleLevels
from smoothcert.training.objective import Objective
from smoothcert.training.state import TrainingState, check_same_settings, load_state, partial_path
from smoothcert.training.training_loop import (
    EVALUATED_EACH_EPOCH,
    Adjustment,
    TrainedModel,
    TrainingLoop,
    TrainingProgress,
    TrainingSetup,
)

_MOST_HELD_BACK = 0.1


def run_training(
    config: TrainingConfig,
    dataset: Dataset,
    *,
    out: Path | None,
    network: nn.Module | None = None,
    held_out: Dataset | None = None,
    selector: SelectorFacts | None = None,
    adjust: Adjustment | None = None,
    further: Mapping[str, Any] | None = None,
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

    out: None to write nothing. network: a module of the user, trained in place; config.arch is its name.
    held_out: where accuracy under noise is measured; the training data if None. With config.hold_out it is a part of
    `dataset`, which is written to `held_out_path(out)`. selector, adjust: as in `TrainingSetup`. further: settings
    beside those of `config`, compared and recorded like them. threads: default all cores. tensorboard: a log directory.
    If the noise level is a rule, σ of every input is computed before the first step, and `preparing` is called with
    (inputs done, all inputs) for each dataset.
    """
    check_can_augment(config.augment, dataset.input_shape)
    with _reserve_output(out, resume=resume) as state:
        target = resolve_device(device)
        check_uses_targets(config.objective, dataset)
        if config.splitting is not None:
            for part in (dataset, *(() if held_out is None else (held_out,))):
                check_can_be_split(part)
        settings = {**config.to_json(), **(further or {}), "data": dataset.digest}
        if out is not None and state is not None:
            check_same_settings(state.settings, settings, partial_path(out))
        computing = _describe_computing(target, threads, state, notice)
        if config.hold_out is not None:
            dataset, held_out = hold_out(dataset, share=config.hold_out, seed=config.seed)
        evaluated_on = dataset if held_out is None else held_out
        held_back = None if config.patience is None else _choose_held_back(dataset, config.seed)
        report = _stop_preparation(stop, preparing)
        levels = _make_levels(config, dataset, evaluated_on, held_back, device=target, progress=report)
        setup = TrainingSetup(
            config=config, network=network, dataset=dataset, evaluated_on=evaluated_on, held_back=held_back,
            levels=levels, settings=settings, computing=computing, out=out, device=target,
            curves=_open_curves(out, tensorboard, state), progress=progress, stop=stop, selector=selector,
            adjust=adjust,
        )  # fmt: skip
        with torch_threads(computing["threads"]), reproducible_kernels(), _keep_random_state(target):
            loop = TrainingLoop(setup)
            if state is not None:
                loop.restore(state)
            loop.run()
            if out is not None and isinstance(held_out, DatasetPart):
                write_part(held_out_path(out), held_out)
            return loop.finish()


def check_uses_targets(objective: Objective, dataset: Dataset) -> None:
    """Refuse an objective that would ignore the targets of the data."""
    if find_targets(dataset) is not None and not getattr(objective, "uses_targets", False):
        raise InputError(
            f"the objective {objective.name} takes one label for each input, and {dataset.name} has soft targets: use "
            "consistency, stability or gaussian, or labels without softness"
        )


@contextmanager
def _reserve_output(out: Path | None, *, resume: bool) -> Iterator[TrainingState | None]:
    """Hold the lock of the output. Yields the state of the training to resume, None for a new one."""
    if out is None:
        yield None
        return
    check_output(out, resume=resume)
    partial = partial_path(out)
    with hold_lock(partial):
        try:
            check_output(out, resume=resume)
            yield load_state(partial) if partial.exists() else None
        finally:
            if not partial.exists():
                # The checkpoint is finished, or nothing was started: the lock protects nothing.
                lock_path_of(partial).unlink(missing_ok=True)


@contextmanager
def _keep_random_state(device: torch.device) -> Iterator[None]:
    """Restore torch's global generators, which the training seeds for layers that draw from them."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _open_curves(out: Path | None, tensorboard: Path | None, state: TrainingState | None) -> list[CurveWriter]:
    curves: list[CurveWriter] = [] if out is None else [CsvCurves(curves_path(out))]
    if tensorboard is not None:
        curves.append(TensorBoardCurves(tensorboard, done=0 if state is None else state.epoch))
    return curves


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


def check_output(out: Path, *, resume: bool) -> None:
    """Refuse a checkpoint that exists already, or an unfinished training that is not resumed."""
    if out.exists():
        raise InputError(f"{out} exists and is never overwritten; choose another --out or move it away")
    begun = partial_path(out).exists()
    if begun and not resume:
        raise InputError(
            f"{partial_path(out)} holds an unfinished training; add --resume to resume it, or delete it to start again"
        )
    # The held-out part is written at the very end, so without an unfinished training it belongs to something else.
    for beside, is_ours in ((curves_path(out), resume), (held_out_path(out), resume and begun)):
        if beside.exists() and not is_ours:
            raise InputError(f"{beside} exists and is never overwritten; move it away or choose another --out")


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
