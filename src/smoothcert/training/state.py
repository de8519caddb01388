"""A training in progress on disk: one safetensors file, replaced as a whole, with no code in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from smoothcert.errors import CorruptRunError, ManifestMismatchError, ModelError
from smoothcert.models.checkpoints import FORMAT_VERSION, read_tensors, write_tensors


@dataclass(frozen=True, slots=True)
class EpochResult:
    """Mean loss over an epoch, and the accuracy under noise after it."""

    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Where a training stands: `batch` batches of `epoch` are done.

    parameters, momenta: by parameter name (parameters include buffers; momenta is empty before the first step).
    noise: state of the noise generator of this epoch. loss_sum: sum of losses over the inputs of this epoch so far.
    """

    settings: Mapping[str, Any]
    epoch: int
    batch: int
    loss_sum: float
    seconds: float
    history: tuple[EpochResult, ...]
    parameters: Mapping[str, Tensor]
    momenta: Mapping[str, Tensor]
    noise: Tensor


def partial_path(out: Path) -> Path:
    """Where the training that will write `out` keeps its state."""
    return out.with_name(out.name + ".partial")


def save_state(path: Path, state: TrainingState) -> None:
    tensors = {f"parameters/{name}": tensor for name, tensor in state.parameters.items()}
    tensors |= {f"momenta/{name}": tensor for name, tensor in state.momenta.items()}
    tensors["noise"] = state.noise
    document = {
        "format": FORMAT_VERSION,
        "settings": dict(state.settings),
        "epoch": state.epoch,
        "batch": state.batch,
        "loss_sum": state.loss_sum,
        "seconds": state.seconds,
        "history": [[result.loss, result.accuracy] for result in state.history],
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
            epoch=int(document["epoch"]),
            batch=int(document["batch"]),
            loss_sum=float(document["loss_sum"]),
            seconds=float(document["seconds"]),
            history=tuple(EpochResult(loss=loss, accuracy=accuracy) for loss, accuracy in document["history"]),
            parameters=_below("parameters/", tensors),
            momenta=_below("momenta/", tensors),
            noise=tensors["noise"],
        )
    except (ModelError, KeyError, TypeError, ValueError) as error:
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
