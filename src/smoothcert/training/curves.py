"""Training curves, written after every epoch: a csv file beside the checkpoint, and TensorBoard."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from smoothcert.errors import MissingExtraError
from smoothcert.files import write_whole
from smoothcert.training.state import History

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def curves_path(out: Path) -> Path:
    """Path of the curves of the checkpoint `out`."""
    return out.with_suffix(".curves.csv")


class CurveWriter(Protocol):
    def write(self, history: History) -> None:
        """Called after every epoch with all results so far; the last one is new."""

    def close(self) -> None: ...


class CsvCurves:
    """One line per epoch. The file is rewritten each time, so a resumed training repeats no epoch."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, history: History) -> None:
        rows = history.to_rows()
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            rounded = {name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
            writer.writerow({**rounded, "seconds": f"{row['seconds']:.1f}"})
        write_whole(self._path, text.getvalue().encode())

    def close(self) -> None: ...


class TensorBoardCurves:
    """Scalars in a TensorBoard log directory. done: epochs done before resuming; later ones are purged."""

    def __init__(self, directory: Path, *, done: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError("tensorboard", "tensorboard", "curves for TensorBoard") from error
        self._writer: SummaryWriter = SummaryWriter(str(directory), purge_step=done + 1)

    def write(self, history: History) -> None:
        result, epoch = history[-1], len(history)
        scalars = {
            "loss": result.loss,
            **{f"terms/{name}": value for name, value in result.terms.items()},
            "accuracy under noise": result.accuracy,
            "learning rate": result.rate,
            "mean sigma": result.sigma,
        }
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
