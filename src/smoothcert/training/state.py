"""A training in progress on disk: one safetensors file, replaced as a whole, with no code in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from smoothcert.errors import CorruptRunError, ManifestMismatchError, ModelError
from smoothcert.models.checkpoints import FORMAT_VERSION, read_tensors, write_tensors


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One epoch: the mean loss and its terms, the accuracy under noise after it, the last learning rate, the mean noise
    level of the training inputs, and the seconds the training had taken by its end.
    """

    loss: float
    accuracy: float
    terms: Mapping[str, float]
    rate: float
    sigma: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Where a training stands: `batch` batches of `epoch` are done.

    computing: device, threads and version of torch, on which the last bits depend.
    parameters, averaged, best: tensors of the network, of its moving average and of the best epoch so far, by name,
    buffers included; the last two may be empty. optimiser: its state, see `state_by_name`. noise: state of the noise
    generator of this epoch. levels: σ of every training input where it moves. sums: of every term of the loss over the
    inputs of this epoch so far.
    """

    settings: Mapping[str, Any]
    computing: Mapping[str, Any]
    epoch: int
    batch: int
    sums: Mapping[str, float]
    seconds: float
    history: tuple[EpochResult, ...]
    noise: Tensor
    levels: Tensor | None
    parameters: Mapping[str, Tensor]
    averaged: Mapping[str, Tensor]
    best: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]


_GROUPS = ("parameters", "averaged", "best", "optimiser")


def partial_path(out: Path) -> Path:
    """Where the training that will write `out` keeps its state."""
    return out.with_name(out.name + ".partial")


def save_state(path: Path, state: TrainingState) -> None:
    tensors = {f"{group}/{name}": tensor for group in _GROUPS for name, tensor in getattr(state, group).items()}
    tensors["noise"] = state.noise
    if state.levels is not None:
        tensors["levels"] = state.levels
    document = {
        "format": FORMAT_VERSION,
        "settings": dict(state.settings),
        "computing": dict(state.computing),
        "epoch": state.epoch,
        "batch": state.batch,
        "sums": dict(state.sums),
        "seconds": state.seconds,
        "history": [asdict(result) for result in state.history],
    }
    write_tensors(path, {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, document)


def load_state(path: Path) -> TrainingState:
    """Reads what `save_state` wrote; a CorruptRunError if it is damaged."""
    try:
        tensors, document = read_tensors(path)
        if document is None:
            raise ModelError(f"{path} was not written by smoothcert train")
        return TrainingState(
            settings=dict(document["settings"]),
            computing=dict(document["computing"]),
            epoch=int(document["epoch"]),
            batch=int(document["batch"]),
            sums={name: float(value) for name, value in document["sums"].items()},
            seconds=float(document["seconds"]),
            history=tuple(EpochResult(**result) for result in document["history"]),
            noise=tensors["noise"],
            levels=tensors.get("levels"),
            **{group: _below(f"{group}/", tensors) for group in _GROUPS},
        )
    except (ModelError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptRunError(
            f"the unfinished training {path} cannot be read ({error}); delete it to start again"
        ) from error


def check_same_settings(stored: Mapping[str, Any], given: Mapping[str, Any], path: Path) -> None:
    """ManifestMismatchError that lists every setting that differs."""
    differences = [
        f"{name} was {stored.get(name)}, now {given.get(name)}"
        for name in sorted({*stored, *given})
        if stored.get(name) != given.get(name)
    ]
    if differences:
        raise ManifestMismatchError(
            f"the unfinished training {path} has other settings: {'; '.join(differences)}. "
            "Give the old settings to go on with it, or delete it to start again"
        )


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
