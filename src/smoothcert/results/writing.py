"""Results in the formats of other programs, as `smoothcert export` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smoothcert.errors import InputError, RunError
from smoothcert.runs.certificate_documents import write_documents
from smoothcert.runs.exports import write_csv, write_json
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.tsv import write_cohen_tsv

_BY_SUFFIX = {".csv": "csv", ".json": "json", ".tsv": "cohen-tsv"}
_FORMATS = (*_BY_SUFFIX.values(), "certificate")


def write_results(
    columns: ResultColumns,
    path: Path,
    *,
    form: str | None,
    overwrite: bool,
    hold: Callable[[], HeldRun] | None,
) -> Path:
    """Write the file, or the directory of certificates. form: None takes the one that the name ends in.

    hold: reads the run with its tallies; None for a log, which has none.
    """
    form = _BY_SUFFIX.get(path.suffix.lower()) if form is None else form
    if form not in _FORMATS:
        raise InputError(
            f"{path.name} does not say in which format to write: give a name that ends in {', '.join(_BY_SUFFIX)}, or "
            f"format, one of {', '.join(_FORMATS)}"
        )
    match form:
        case "csv":
            write_csv(columns, path, overwrite=overwrite)
        case "json":
            write_json(columns, path, points=() if hold is None else hold().points, overwrite=overwrite)
        case "cohen-tsv":
            write_cohen_tsv(columns, path, overwrite=overwrite)
        case _:
            if hold is None:
                raise RunError(f"{columns.name} is a log, which has no tallies to check a certificate with")
            write_documents(hold(), path, overwrite=overwrite)
    return path
