"""The answers of a run, input by input."""

from dataclasses import replace

import numpy as np

from results_strategies import simple_run
from smoothcert.analysis.answers import answer_table, list_answers
from smoothcert.analysis.table_choices import TableFormat
from smoothcert.analysis.tables import render
from smoothcert.runs.result_columns import NO_CLASS


def test_a_few_answers_are_all_shown() -> None:
    run = simple_run(right=2, wrong=1, abstained=1, failed=1)
    assert render(answer_table(run), form=TableFormat.TEXT).split("\n") == [
        "index  label  prediction  outcome",
        "─────  ─────  ──────────  ─────────",
        "    0      0           0  certified",
        "    1      0           0  certified",
        "    2      0           1  certified",
        "    3      0           –  abstained",
        "    4      0           –  failed",
        "class 0: 2, class 1: 1, abstained: 1, failed: 1",
    ]
    assert list_answers(run)[3] == {"index": 3, "label": 0, "prediction": None, "outcome": "abstained"}


def test_of_many_answers_the_first_are_shown() -> None:
    run = simple_run(right=15, wrong=10)
    lines = render(answer_table(run), form=TableFormat.TEXT).split("\n")
    assert lines[-2:] == ["… and 5 more; --json lists all", "class 0: 15, class 1: 10"]
    assert len(lines) == 2 + 20 + 2
    assert len(list_answers(run)) == 25


def test_without_labels_there_is_no_column_for_them() -> None:
    run = simple_run(right=2)
    unlabelled = replace(run, label=np.full(len(run), NO_CLASS))
    assert [column.key for column in answer_table(unlabelled).columns] == ["index", "prediction", "outcome"]
    assert list_answers(unlabelled)[0]["label"] is None
