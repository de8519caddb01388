"""A run as CSV or JSON for other programs: every column, in full precision."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothcert.files import write_atomically
from smoothcert.records import CertifiedPoint
from smoothcert.runs.result_columns import NO_CLASS, OUTCOMES, ResultColumns
from smoothcert.runs.vote_rows import list_votes

_OWN = (
    "index", "label", "prediction", "label_name", "prediction_name", "outcome", "radius", "correct", "sigma", "p_a",
    "seconds", "certificate", "reason", "votes",
)  # fmt: skip


def write_csv(results: ResultColumns, path: Path, *, overwrite: bool = False) -> None:
    """One row for each input, after a header. A field is empty if its value is unknown. `reason` is the code."""
    rows = point_rows(results)
    for row in rows:
        row["reason"] = None if row["reason"] is None else row["reason"]["code"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode("utf-8", "backslashreplace"), overwrite=overwrite)


def write_json(
    results: ResultColumns, path: Path, *, points: Sequence[CertifiedPoint] = (), overwrite: bool = False
) -> None:
    """An object with facts about the run and the list `points`. Unknown values are null; there is no NaN.

    points: the same inputs with their tallies, whose votes are written too; a log has none.
    """
    votes = {point.index: list_votes(point) for point in points}
    rows = point_rows(results)
    for row in rows if votes else ():
        row["votes"] = votes[row["index"]]
    document = {
        "run": results.name,
        "alpha": results.alpha,
        "num_classes": results.num_classes,
        "norm": results.norm.value,
        "scale": None if results.scale is None else list(results.scale.numbers),
        "has_radius": results.has_radius,
        "independent_noise": results.independent_noise,
        "class_names": list(results.class_names) or None,
        "points": rows,
    }
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    # A file name that is not UTF-8 contains lone surrogates, which JSON can only express as escapes.
    write_atomically(path, text.encode("utf-8", "backslashreplace"), overwrite=overwrite)


def point_rows(results: ResultColumns) -> list[dict[str, Any]]:
    """One mapping for each input, all with the same keys. Radii have full precision."""
    correct, labelled = results.correct, results.labelled
    return [
        {
            "index": int(results.index[k]),
            "label": _class_or_none(int(results.label[k])),
            "prediction": _class_or_none(int(results.prediction[k])),
            **_name_classes(results, k),
            "outcome": OUTCOMES[results.outcome[k]].value,
            "radius": float(results.radius[k]) if results.has_radius else None,
            "correct": int(correct[k]) if labelled[k] else None,
            "sigma": _finite_or_none(float(results.sigma[k])),
            "p_a": _finite_or_none(float(results.p_a[k])),
            "seconds": _finite_or_none(float(results.seconds[k])),
            "certificate": str(results.certificate[k]) or None,
            "reason": None if results.reason[k] is None else results.reason[k].to_json(),
            # A column of a log may have one of these names.
            **{
                f"{key} of the log" if key in _OWN else key: _finite_or_none(float(column[k]))
                for key, column in results.extra.items()
            },
        }
        for k in range(len(results))
    ]


def _name_classes(results: ResultColumns, position: int) -> dict[str, str | None]:
    """The names of label and prediction, if the classes have names."""
    if not results.class_names:
        return {}
    known = dict(enumerate(results.class_names))
    return {
        "label_name": known.get(int(results.label[position])),
        "prediction_name": known.get(int(results.prediction[position])),
    }


def _class_or_none(label: int) -> int | None:
    return None if label == NO_CLASS else label


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
