"""Plans: which commands run, in which order, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.reproduction import Plan, make_plan, parse_recipe
from smoothcert.errors import InputError

TEXT = """
title = "t"
source = "s"
about = "a"
time = "seconds"
[settings]
n = 100
data = "digits"
[quick]
only = ["b 0.5*"]
n = 10
[steps.model]
makes = "model-{sigma}.safetensors"
command = "train --data {data} --sigma {sigma} --out {out}"
[steps.first]
makes = "first-{sigma}"
command = "certify --model {model} --n {n} --out {out}"
[steps.second]
makes = "second-{sigma}"
command = "certify --model {model} --n {n} --note '{note}' --out {out}"
[steps.log]
reads = "{logs}/log-{sigma}"
[[tables]]
title = "A"
of = "first"
name = "a {sigma}"
rows = [{ sigma = 0.50, acr = 0.40 }, { sigma = 1.0, n = 7, acr = nan }]
[[tables]]
title = "B"
of = "second"
against = "first"
note = "two words"
name = "b {sigma}"
radii = [0, 0.5]
rows = [{ sigma = 0.50, certified = [1, 0.250], radius_ratio = 1.1 }]
[[tables]]
of = "log"
name = "log"
rows = [{ sigma = 0.5, acr = 0.3 }]
"""


def plan(text: str = TEXT, *, quick: bool = False) -> Plan:
    return make_plan(parse_recipe("example", text), quick=quick)


def test_numbers_keep_their_digits() -> None:
    first, second, third, _ = plan().rows
    assert [row.name for row in plan().rows] == ["a 0.50", "a 1.0", "b 0.50", "log"]
    assert (first.published[0].printed, first.published[0].value) == ("0.40", 0.4)
    assert second.published[0].printed is None
    assert [(one.measure, one.radius, one.printed) for one in third.published] == [
        ("certified", 0.0, "1"),
        ("certified", 0.5, "0.250"),
        ("radius_ratio", None, "1.1"),
    ]


def test_a_step_runs_after_the_steps_it_needs_and_once() -> None:
    row = plan().rows[2]
    assert [step.product for step in row.steps] == ["model-0.50.safetensors", "second-0.50", "first-0.50"]
    assert row.steps[0] == plan().rows[0].steps[0]
    assert row.result.command == (
        "certify", "--model", "model-0.50.safetensors", "--n", "100", "--note", "two words", "--out", "second-0.50",
    )  # fmt: skip


def test_a_row_overrides_settings_and_quick_overrides_both() -> None:
    assert "--n 7 " in plan().rows[1].result.command_line
    quick = plan(quick=True)
    assert [row.name for row in quick.rows] == ["b 0.50"]
    assert "--n 10 " in quick.rows[0].result.command_line
    everything = plan(TEXT.replace('only = ["b 0.5*"]\n', ""), quick=True)
    assert "--n 10 " in everything.rows[1].result.command_line


def test_the_folder_of_the_logs_is_filled_in_last() -> None:
    log = plan().rows[3]
    assert log.needs_logs
    assert not plan().rows[0].needs_logs
    assert log.result.path(Path("out"), Path("/somewhere")) == Path("/somewhere/log-0.5")
    assert "somewhere" not in log.result.product


def test_rows_are_selected_by_a_part_of_their_name() -> None:
    whole = plan()
    assert whole.select_rows([]) == whole.rows
    assert [row.name for row in whole.select_rows(["A ?.0"])] == ["a 1.0"]
    assert [row.name for row in whole.select_rows(["b", "log"])] == ["b 0.50", "log"]
    with pytest.raises(InputError, match=r"matches nothing-like-it; its rows are: a 0\.50, a 1\.0"):
        whole.select_rows(["nothing-like-it"])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("--data {data}", "--data {date}", r"uses \{date\} in '\{date\}' but does not set it"),
        ("--data {data}", "--data {second}", "has a cycle: second needs model needs second|first needs model"),
        ('makes = "second-{sigma}"', 'makes = "first-{sigma}"', "makes first-0.50 in two ways:\n  smoothcert certify"),
        ('name = "a {sigma}"', 'name = "a"', r"several rows called \[\('A', 'a'\)\]"),
    ],
)
def test_invalid_recipes_are_refused(old: str, new: str, complaint: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError, match=complaint):
        plan(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--note '{note}'", "--note '{note}}'"),
        ("--note '{note}'", "--note '{note'"),
        ("--note '{note}'", "--note '{}'"),
        ("--note '{note}'", "--note '{note.real}'"),
        ("--note '{note}'", "--note '{note:d}'"),
        ("--note '{note}'", "--note 'open"),
        ('name = "b {sigma}"', 'name = "b }{sigma}"'),
    ],
)
def test_a_malformed_text_is_named(old: str, new: str) -> None:
    """A stray } was a ValueError of Python's formatter."""
    assert old in TEXT
    with pytest.raises(InputError, match=r"the recipe example has (the malformed text|a command with an open quote)"):
        plan(TEXT.replace(old, new))
