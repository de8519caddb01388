"""Results as a pandas frame: one row for each input, flat columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smoothcert.pandas_extra import import_pandas
from smoothcert.records import CertifiedPoint, Stage
from smoothcert.runs.exports import point_rows
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.runs.vote_rows import count_votes

if TYPE_CHECKING:
    import pandas

    from smoothcert.results.results import Results

_WHOLE = ("label", "prediction")
_WORDS = ("outcome", "reason", "certificate", "label_name", "prediction_name")


def make_frame(results: Results) -> pandas.DataFrame:
    """The columns of `export`, the reason as a sentence, names of classes where known, and the votes of every class.

    votes_0, votes_1, …: of the estimation, or of the prediction. selection_votes_0, …: of the selection. Missing values
    are NA.
    """
    pd = import_pandas()
    columns = results.columns
    frame = {name: _as_series(pd, name, values) for name, values in _list_columns(columns).items()}
    frame |= {name: pd.array(values, dtype="Int64") for name, values in _list_votes(results.points).items()}
    return pd.DataFrame(frame)


def _list_columns(columns: ResultColumns) -> dict[str, list[Any]]:
    """By name, in the order of an export."""
    rows = point_rows(columns)
    for row, reason in zip(rows, columns.reason, strict=True):
        row["reason"] = None if reason is None else str(reason)
        row["correct"] = None if row["correct"] is None else bool(row["correct"])
    listed: dict[str, list[Any]] = {}
    for name in rows[0]:
        listed[name] = [row[name] for row in rows]
    return listed


def _as_series(pd: Any, name: str, values: list[Any]) -> Any:
    if name == "index":
        return pd.array(values, dtype="int64")
    if name in _WHOLE:
        return pd.array(values, dtype="Int64")
    if name in _WORDS:
        return pd.array(values, dtype="string")
    if name == "correct":
        return pd.array(values, dtype="boolean")
    return pd.array([float("nan") if value is None else value for value in values], dtype="float64")


def _list_votes(points: Sequence[CertifiedPoint]) -> dict[str, list[int | None]]:
    """One column for each stage and class, and one for samples without a finite answer if there are any."""
    votes: dict[str, list[int | None]] = {}
    for prefix, stages in (
        ("votes", (Stage.ESTIMATION, Stage.PREDICTION)),
        ("selection_votes", (Stage.SELECTION,)),
    ):
        tallies = [next((tally for stage in stages if (tally := point.tally(stage))), None) for point in points]
        counted = [None if tally is None else count_votes(tally) for tally in tallies]
        classes = max((len(one[0]) for one in counted if one is not None), default=0)
        for label in range(classes):
            votes[f"{prefix}_{label}"] = [None if one is None else int(one[0][label]) for one in counted]
        if any(one is not None and one[1] for one in counted):
            votes[f"{prefix}_invalid"] = [None if one is None else one[1] for one in counted]
    return votes
