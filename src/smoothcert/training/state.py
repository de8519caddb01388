"""The state of an unfinished training on disk: one safetensors file, replaced atomically."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from smoothcert.errors import CorruptRunError, ManifestMismatchError, ModelError
from smoothcert.models.checkpoints import FORMAT_VERSION, read_tensors, write_tensors
from smoothcert.pandas_extra import import_pandas

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class EpochResult:
    """Result of an epoch.

    loss, terms: means over the epoch. accuracy: under noise, after the epoch. rate: the last learning rate. sigma: mean
    noise level of the training inputs. seconds: of the training so far. evaluated_on: inputs that accuracy was measured
    on, such as "test", "held-out", or "held-back" with patience.
    """

    loss: float
    accuracy: float
    terms: Mapping[str, float]
    rate: float
    sigma: float
    seconds: float
    evaluated_on: str = ""


class History(tuple[EpochResult, ...]):
    """The results of all epochs, in order."""

    __slots__ = ()

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary per epoch, with the columns of the csv file of curves."""
        return [
            {
                "epoch": number,
                "loss": result.loss,
                **result.terms,
                "accuracy_under_noise": result.accuracy,
                "learning_rate": result.rate,
                "mean_sigma": result.sigma,
                "seconds": result.seconds,
                "evaluated_on": result.evaluated_on,
            }
            for number, result in enumerate(self, start=1)
        ]

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas frame."""
        frame: pd.DataFrame = import_pandas("a frame of the training history").DataFrame(self.to_rows())
        return frame


@dataclass(frozen=True, slots=True)
class TrainingState:
    """State of a training after `batch` batches of `epoch`.

    computing: device, threads and version of torch, on which the last bits depend.
    parameters, averaged, best: tensors by name, with buffers, of the network, its moving average and the best epoch;
    the last two may be empty. optimiser: see `collect_state`. noise: state of the noise generator of this epoch.
    levels: σ of every training input, if it changes. sums: sum of every loss term over the inputs of this epoch so far.
    """

    settings: Mapping[str, Any]
    computing: Mapping[str, Any]
    epoch: int
    batch: int
    sums: Mapping[str, float]
    seconds: float
    history: History
    noise: Tensor
    levels: Tensor | None
    parameters: Mapping[str, Tensor]
    averaged: Mapping[str, Tensor]
    best: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]


_GROUPS = ("parameters", "averaged", "best", "optimiser")


def partial_path(out: Path) -> Path:
    """Path of the state of the training that will write `out`."""
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
    """Read what `save_state` wrote. A damaged file is a CorruptRunError."""
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
            history=History(EpochResult(**result) for result in document["history"]),
            noise=tensors["noise"],
            levels=tensors.get("levels"),
            **{group: _select_group(f"{group}/", tensors) for group in _GROUPS},
        )
    except (ModelError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptRunError(
            f"the unfinished training {path} is damaged ({error}); delete it to start again"
        ) from error


def choose_seed(given: int | None, out: Path | None, *, resume: bool) -> int:
    """The given seed, the seed of the training to resume, or a random one."""
    if given is not None:
        return given
    if resume and out is not None and partial_path(out).exists():
        return int(load_state(partial_path(out)).settings["seed"])
    return secrets.randbits(63)


def check_same_settings(stored: Mapping[str, Any], given: Mapping[str, Any], path: Path) -> None:
    """Raise ManifestMismatchError with every setting that differs."""
    differences = [
        f"{name} was {stored.get(name)}, now {given.get(name)}"
        for name in sorted({*stored, *given})
        if stored.get(name) != given.get(name)
    ]
    if differences:
        raise ManifestMismatchError(
            f"the unfinished training {path} has other settings: {'; '.join(differences)}. "
            "Use the old settings to resume it, or delete it to start again"
        )


def _select_group(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
