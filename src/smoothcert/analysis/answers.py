"""The answers of a run, input by input: as a short table, and complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from smoothcert.analysis.tables import Cell, Column, Kind, Table
from smoothcert.records import Outcome
from smoothcert.records.class_names import title_class
from smoothcert.runs.result_columns import NO_CLASS, OUTCOMES, ResultColumns

_SHOWN = 20


def list_answers(run: ResultColumns) -> list[dict[str, Cell]]:
    """Index, label, prediction and outcome of every input, with names of classes if there are any.

    None for a class that there is not.
    """
    names: dict[int, Cell] = dict(enumerate(run.class_names))
    return [
        {
            "index": index,
            "label": None if label == NO_CLASS else label,
            "prediction": None if prediction == NO_CLASS else prediction,
            **({"label_name": names.get(label), "prediction_name": names.get(prediction)} if names else {}),
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
    classes = ("label", "prediction") if run.class_names else ()
    kinds = {"outcome": Kind.NAME, **dict.fromkeys(classes, Kind.NAME)}
    columns = tuple(Column(key, key, kinds.get(key, Kind.COUNT)) for key in keys)

    def show(key: str, value: Cell) -> Cell:
        return title_class(value, run.class_names) if key in classes and isinstance(value, int) else value

    rows = tuple(tuple(show(key, answer[key]) for key in keys) for answer in answers[:_SHOWN])
    more = [f"… and {len(answers) - _SHOWN} more; --json lists all"] if len(answers) > _SHOWN else []
    return Table(columns, rows, notes=(*more, _count_answers(answers, run.class_names)))


def _count_answers(answers: list[dict[str, Cell]], names: Sequence[str]) -> str:
    """Such as "class 3: 12, class 5: 8, abstained: 2"."""
    classes = Counter(answer["prediction"] for answer in answers if isinstance(answer["prediction"], int))
    others = Counter(answer["outcome"] for answer in answers if answer["prediction"] is None)
    counts = [f"class {title_class(label, names)}: {classes[label]}" for label in sorted(classes)]
    counts += [f"{outcome.value}: {others[outcome.value]}" for outcome in Outcome if others[outcome.value]]
    return ", ".join(counts)
