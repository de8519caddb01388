"""Open stored runs and logs, and compare two of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.errors import InputError, RunError
from smoothcert.results.contents import Content, DirectoryContent, LogContent
from smoothcert.results.results import Results
from smoothcert.runs.load import split_certificate
from smoothcert.runs.tsv import read_log

if TYPE_CHECKING:
    from smoothcert.analysis.comparison import Comparison


def open_run(path: str | Path, *, name: str | None = None) -> Results:
    """The results in a run directory, or in a log such as those of Cohen et al. RUN@CERTIFICATE selects a certificate.

    A run in progress is opened as it is now. name: in tables; by default the last part of the path.
    """
    place, certificate = split_certificate(Path(path).expanduser())
    place = _resolve(place)
    name = name or (place.name or str(place)) + ("" if certificate is None else f"@{certificate}")
    content: Content = DirectoryContent(place) if place.is_dir() else LogContent(read_log(place, name=name), place)
    return Results(content, name=name, certificate=certificate)


def compare(a: Results | str | Path, b: Results | str | Path, *, wrong_too: bool = False) -> Comparison:
    """Compare the certified radii of two results, or stored runs, input by input; b is the baseline.

    Inputs are matched by index. An input counts if at least one of the two certifies its label, or any class if it has
    no label. wrong_too: if at least one certifies any class.
    """
    from smoothcert.analysis.comparison import compare as compare_columns

    first, second = (_as_results(one) for one in (a, b))
    if not np.isin(first.columns.index, second.columns.index).any():
        raise RunError(
            f"{first.name} and {second.name} have no input in common: inputs are matched by index, and each call of "
            "certify numbers its inputs on from the last. Give the same indices to both calls: indices=range(len(x))"
        )
    return compare_columns(first.columns, second.columns, wrong_too=wrong_too)


def _resolve(place: Path) -> Path:
    """The absolute path, which stays right when the working directory changes. A link keeps its name."""
    return place.resolve() if place.name in ("", "..") else place.parent.resolve() / place.name


def _as_results(given: Results | str | Path) -> Results:
    if isinstance(given, Results):
        return given
    if isinstance(given, str | Path):
        return open_run(given)
    raise InputError(f"{type(given).__name__} cannot be compared; expected Results, or the path of a run or a log")
