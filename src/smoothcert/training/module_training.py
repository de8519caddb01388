"""`smoothcert.train`: train a network of the user under noise, in Python."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from smoothcert.errors import InputError
from smoothcert.noise import as_noise
from smoothcert.records import Noise
from smoothcert.sampling.evaluations import read_level
from smoothcert.sigma.rule import SigmaRule
from smoothcert.training.carried_sigma import CarriedSigma
from smoothcert.training.choices import USUAL_RATES, Augment, FloatFormat, Optimiser
from smoothcert.training.config import TrainingConfig
from smoothcert.training.holding_out import HELD_OUT_SHARE, describe_hold_out
from smoothcert.training.input_splitting import read_splitting
from smoothcert.training.objective import Objective
from smoothcert.training.objectives import parse_objective
from smoothcert.training.schedule import Schedule, parse_schedule
from smoothcert.training.shown_progress import TrainingProgressOption, show_training
from smoothcert.training.state import choose_seed
from smoothcert.training.training_data import as_dataset, read_training_data
from smoothcert.training.training_loop import TrainedModel
from smoothcert.training.training_run import run_training

ChoiceT = TypeVar("ChoiceT", Optimiser, Augment, FloatFormat)


def train(
    module: nn.Module | str,
    data: Any,
    *,
    sigma: float | SigmaRule | None = None,
    evaluations: int | None = None,
    objective: str | Objective = "gaussian",
    validation: Any = None,
    epochs: int = 10,
    batch: int = 256,
    lr: float | None = None,
    noise: str | Noise = Noise.GAUSSIAN,
    grid: int | None = None,
    offset_seed: int | None = None,
    carried: CarriedSigma | None = None,
    optimiser: str = "sgd",
    schedule: str | Schedule = "one-cycle",
    weight_decay: float = 1e-4,
    average: float = 0.0,
    augment: str = "none",
    precision: str = "float32",
    patience: int | None = None,
    out: str | Path | None = None,
    seed: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    tensorboard: str | Path | None = None,
    progress: TrainingProgressOption = None,
) -> TrainedModel:
    """Train a torch module to classify correctly under noise; `module, history = train(…)`.

    The module is trained in place, and returned in evaluation mode on the device. It maps (B, *input_shape) to
    (B, classes) logits and standardises its inputs itself. A name instead, such as "lenet" or "mynet:Net", builds a
    network whose first weights depend only on the seed, as `smoothcert train --arch` does.

    data: the name of a dataset, a file, (x, y) as arrays or tensors, a torch Dataset of (input, label), or its
    DataLoader; it is read once. validation: where accuracy under noise is measured after every epoch: the same kinds of
    data, or the share of `data` to hold out by a seeded shuffle. None: the test split of a dataset by name, a fifth of
    a file without one, and otherwise the training inputs themselves.

    sigma: the noise level in the units of the input, or a rule for it. objective: as on the command line, such as
    "consistency" or "consistency:weight=5,noises=4". lr: peak learning rate, 0.1 for sgd and 0.001 for adamw.
    noise: gaussian, uniform or splitting, which takes `evaluations` instead of sigma, if you like. Its inputs are
    rounded to a grid of `grid` levels (256). offset_seed: the seed of the smoothed classifier (0).
    out: a checkpoint to write (.safetensors), and the curves beside it. Its state is stored after every epoch and once
    a minute; the same call resumes an interrupted training, on the CPU bit for bit. None: nothing is written.
    seed: of order, noise and dropout; random if None. progress: None shows a bar on terminals and in notebooks, True a
    line per epoch elsewhere too, False nothing; or a function of `TrainingProgress`, called several times a second.
    The other arguments are the options of `smoothcert train`.
    """
    path = None if out is None else Path(out)
    if path is not None and path.suffix != ".safetensors":
        raise InputError(f"out={str(out)!r} must end in .safetensors, the format of checkpoints")
    arch, network = _name_network(module)
    chosen = choose_word(Optimiser, optimiser, "optimiser")
    dataset, held_out = read_training_data(data)
    hold_out: float | None = None
    if isinstance(validation, (int, float)):
        held_out, hold_out = None, float(validation)
    elif validation is not None:
        held_out = as_dataset(validation, split="validation")
    elif held_out is None and isinstance(data, (str, Path)):
        hold_out = HELD_OUT_SHARE
        warnings.warn(describe_hold_out(dataset), stacklevel=2)
    kind = as_noise(noise)
    config = TrainingConfig(
        arch=arch, sigma=read_level(sigma, evaluations, noise=kind, grid=grid),
        seed=choose_seed(seed, path, resume=True), noise=kind, splitting=read_splitting(grid, offset_seed),
        objective=parse_objective(objective) if isinstance(objective, str) else objective,
        carried=carried, epochs=epochs, batch=batch, optimiser=chosen,
        schedule=parse_schedule(schedule) if isinstance(schedule, str) else schedule,
        peak_rate=USUAL_RATES[chosen] if lr is None else lr, weight_decay=weight_decay, average=average,
        augment=choose_word(Augment, augment, "augment"), precision=choose_word(FloatFormat, precision, "precision"),
        patience=patience, hold_out=hold_out,
    )  # fmt: skip
    with show_training(progress) as report:
        return run_training(
            config, dataset, network=network, held_out=held_out, out=path, resume=True, device=device, threads=threads,
            tensorboard=None if tensorboard is None else Path(tensorboard), progress=report,
            notice=lambda text: warnings.warn(text, stacklevel=4),
        )  # fmt: skip


def _name_network(module: object) -> tuple[str, nn.Module | None]:
    """(architecture, module of the user or None)."""
    if isinstance(module, str):
        return module, None
    if not isinstance(module, nn.Module):
        hint = f": call it, {module.__name__}()" if isinstance(module, type) else ""
        raise InputError(f"a {type(module).__name__} cannot be trained; expected a torch.nn.Module{hint}")
    kind = type(module)
    return f"{kind.__module__}:{kind.__qualname__}", module


def choose_word(kind: type[ChoiceT], value: str, name: str) -> ChoiceT:
    if value not in list(kind):
        raise InputError(f"{name}={value!r} is unknown: use {', '.join(kind)}")
    return kind(value)
