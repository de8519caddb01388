"""The answers of a run, input by input: as a short table, and complete."""

from __future__ import annotations

from collections import Counter

from smoothcert.analysis.tables import Cell, Column, Kind, Table
from smoothcert.records import Outcome
from smoothcert.runs.result_columns import NO_CLASS, OUTCOMES, ResultColumns

_SHOWN = 20


def list_answers(run: ResultColumns) -> list[dict[str, Cell]]:
    """Index, label, prediction and outcome of every input; None for a class that there is not."""
    return [
        {
            "index": index,
            "label": None if label == NO_CLASS else label,
            "prediction": None if prediction == NO_CLASS else prediction,
            "outcome": OUTCOMES[outcome].value,
        }
        for index, label, prediction, outcome in zip(
            run.index.tolist(), run.label.tolist(), run.prediction.tolist(), run.outcome.tolist(), strict=True
        )
    ]


def answer_table(run: ResultColumns) -> Table:
    """The first answers, and below them how many inputs there are of each class."""
    answers = list_answers(run)
    keys = ["index", *(["label"] if run.labelled.any() else []), "prediction", "outcome"]
    kinds = {"outcome": Kind.NAME}
    columns = tuple(Column(key, key, kinds.get(key, Kind.COUNT)) for key in keys)
    rows = tuple(tuple(answer[key] for key in keys) for answer in answers[:_SHOWN])
    more = [f"… and {len(answers) - _SHOWN} more; --json lists all"] if len(answers) > _SHOWN else []
    return Table(columns, rows, notes=(*more, _count_answers(answers)))


def _count_answers(answers: list[dict[str, Cell]]) -> str:
    """Such as "class 3: 12, class 5: 8, abstained: 2"."""
    classes = Counter(answer["prediction"] for answer in answers if isinstance(answer["prediction"], int))
    others = Counter(answer["outcome"] for answer in answers if answer["prediction"] is None)
    counts = [f"class {label}: {classes[label]}" for label in sorted(classes)]
    counts += [f"{outcome.value}: {others[outcome.value]}" for outcome in Outcome if others[outcome.value]]
    return ", ".join(counts)
