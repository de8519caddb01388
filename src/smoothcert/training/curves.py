"""Training curves, written after every epoch: a csv file beside the checkpoint, and TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from smoothcert.errors import InputError, MissingExtraError
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
        try:
            str(directory).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"the name of the TensorBoard directory {str(directory)!r} is not UTF-8, which TensorBoard needs: "
                "choose another"
            ) from error
        self._directory = directory
        with self._naming_directory():
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
        with self._naming_directory():
            for name, value in scalars.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()

    def close(self) -> None:
        with self._naming_directory():
            self._writer.close()

    @contextmanager
    def _naming_directory(self) -> Iterator[None]:
        """An error of TensorBoard's writer names no file."""
        try:
            yield
        except OSError as error:
            raise InputError(
                f"TensorBoard curves cannot be written to {self._directory}: {error.strerror or error}"
            ) from error
