"""A run as CSV or JSON for other programs: every column, in full precision."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

from smoothcert.files import write_atomically
from smoothcert.runs.results import NO_CLASS, OUTCOMES, Results

Value = str | int | float | None
_OWN = ("index", "label", "prediction", "outcome", "radius", "correct", "sigma", "p_a", "seconds", "certificate")


def write_csv(results: Results, path: Path, *, overwrite: bool = False) -> None:
    """One row an input under a header; what is unknown is an empty field."""
    rows = point_rows(results)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode("utf-8", "backslashreplace"), overwrite=overwrite)


def write_json(results: Results, path: Path, *, overwrite: bool = False) -> None:
    """An object with the facts of the run and the list `points`; what is unknown is null. Never NaN."""
    document = {
        "run": results.name,
        "alpha": results.alpha,
        "num_classes": results.num_classes,
        "norm": results.norm.value,
        "has_radius": results.has_radius,
        "independent_noise": results.independent_noise,
        "points": point_rows(results),
    }
    text = json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    # A name that is not UTF-8 holds halves of surrogate pairs, which JSON can only say as an escape.
    write_atomically(path, text.encode("utf-8", "backslashreplace"), overwrite=overwrite)


def point_rows(results: Results) -> list[dict[str, Value]]:
    """One mapping an input, the same keys in each. Radii keep full precision."""
    correct, labelled, certificates = results.correct, results.labelled, results.certificate
    return [
        {
            "index": int(results.index[position]),
            "label": _class_or_none(int(results.label[position])),
            "prediction": _class_or_none(int(results.prediction[position])),
            "outcome": OUTCOMES[results.outcome[position]].name.lower(),
            "radius": float(results.radius[position]) if results.has_radius else None,
            "correct": int(correct[position]) if labelled[position] else None,
            "sigma": _finite_or_none(float(results.sigma[position])),
            "p_a": _finite_or_none(float(results.p_a[position])),
            "seconds": _finite_or_none(float(results.seconds[position])),
            "certificate": str(certificates[position]) or None,
            # A log may call a column of its own as one of these is called; it is not taken for it.
            **{
                f"{key} of the log" if key in _OWN else key: _finite_or_none(float(column[position]))
                for key, column in results.extra.items()
            },
        }
        for position in range(len(results))
    ]


def _class_or_none(label: int) -> int | None:
    return None if label == NO_CLASS else label


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
