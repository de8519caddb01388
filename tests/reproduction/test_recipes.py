"""The recipes in experiments/recipes, and invalid recipes."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command

from experiments.reproduction import Plan, Step, list_recipes, load_recipe, make_plan, parse_recipe
from smoothcert.certificates import get_portfolio
from smoothcert.cli.main import app
from smoothcert.errors import InputError

NAMES = [
    "alfarra-cifar-small",
    "alfarra-mnist",
    "bergstrom-mnist",
    "cohen-mnist",
    "cohen-tables",
    "jeong-mnist",
    "levine-small-mnist",
    "sukenik-cone",
    "sukenik-mnist",
]
COMMAND_LINE = get_command(app)
both_sizes = pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
every_recipe = pytest.mark.parametrize("name", NAMES)


def steps_of(plan: Plan) -> list[Step]:
    return list(dict.fromkeys(step for row in plan.rows for step in row.steps if step.command is not None))


def value_of(words: tuple[str, ...], option: str) -> str:
    return words[words.index(option) + 1]


def test_all_recipes_are_listed() -> None:
    assert list_recipes() == NAMES


@every_recipe
def test_each_says_what_it_is_and_has_published_numbers(name: str) -> None:
    recipe = load_recipe(name)
    assert all([recipe.title, recipe.source, recipe.about, recipe.time])
    assert any(number.value is not None for row in recipe.rows for number in row.published)
    assert recipe.quick or name == "cohen-tables"  # which takes seconds as it is


@both_sizes
@every_recipe
def test_every_command_is_one_that_the_command_line_understands(name: str, quick: bool) -> None:
    """Parses every command with all types and ranges; runs nothing."""
    for step in steps_of(make_plan(load_recipe(name), quick=quick)):
        command, words = COMMAND_LINE, list(step.command or ())
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        with command.make_context(step.command_line, list(words)):
            pass
        assert value_of(step.command or (), "--out") == step.product
        assert "--seed" in words or step.command[:2] == ("sigma", "fit"), "results would not be reproducible"


@every_recipe
def test_every_certificate_exists(name: str) -> None:
    for row in make_plan(load_recipe(name), quick=False).rows:
        words = row.result.command or ()
        named = [words[at + 1] for at, word in enumerate(words) if word == "--certificate"]
        if named:
            get_portfolio(named)
        assert row.certificate is None or row.certificate in named


@every_recipe
def test_every_objective_exists(name: str) -> None:
    pytest.importorskip("torch")
    from smoothcert.training import parse_objective

    for step in steps_of(make_plan(load_recipe(name), quick=False)):
        if step.command and step.command[0] == "train" and "--objective" in step.command:
            parse_objective(value_of(step.command, "--objective"))


@every_recipe
def test_quick_makes_less_of_the_same(name: str) -> None:
    full, quick = (make_plan(load_recipe(name), quick=quick) for quick in (False, True))
    assert {row.name for row in quick.rows} <= {row.name for row in full.rows}
    assert {row.published for row in quick.rows} <= {row.published for row in full.rows}
    verbs = [{(step.command or ("",))[0] for step in steps_of(plan)} for plan in (full, quick)]
    assert verbs[0] == verbs[1]
    assert full.comparable
    assert quick.comparable == (name == "cohen-tables")


def test_jeong_has_seven_objectives_at_three_levels_and_one_row_more() -> None:
    recipe = load_recipe("jeong-mnist")
    names = {(row.variables["label"], str(row.variables["sigma"])) for row in recipe.rows}
    assert len(names) == len(recipe.rows) == 22
    assert {sigma for _, sigma in names} == {"0.25", "0.50", "1.00"}
    best = {str(row.variables["sigma"]): row.published[0].value for row in recipe.rows[-3:]}
    assert best == {"0.25": 0.930, "0.50": 1.670, "1.00": 1.781}


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no recipe 'cohen-mnis'\. did you mean cohen-mnist\?.*sukenik-cone"):
        load_recipe("cohen-mnis")


GOOD = """
title = "t"
source = "s"
about = "a"
time = "seconds"
[settings]
n = 100
[steps.result]
command = "certify --n {n} --out {out}"
makes = "run"
[[tables]]
name = "row"
rows = [{ acr = 0.5 }]
"""


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_the_example_is_a_recipe() -> None:
    (row,) = make_plan(parse_recipe("example", GOOD), quick=False).rows
    assert row.result.command_line == "smoothcert certify --n 100 --out run"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("title = ", "is not TOML"),
        (changed('title = "t"', "title = 3"), "title is missing"),
        (changed('time = "seconds"', 'tiem = "seconds"'), "has tiem; expected about"),
        (changed("rows = [{ acr = 0.5 }]", "rows = []"), "no rows"),
        (changed("acr = 0.5", "n = 5"), "no published number"),
        (changed("acr = 0.5", 'acr = "high"'), "acr must be a number or nan"),
        (changed("acr = 0.5", "acr = true"), "acr must be a number or nan"),
        (changed("acr = 0.5", "certified = [0.5]"), r"each of the radii \[\]"),
        (changed("acr = 0.5", "radius_ratio = 1.0"), "name the second step in `against`"),
        (changed("acr = 0.5", 'acr = 0.5, of = "other"'), "names the unknown step 'other'; the steps are result"),
        (changed("acr = 0.5", "acr = 0.5, sigma = [1]"), r"sets sigma to \[1\]"),
        (changed("acr = 0.5", 'acr = 0.5, result = "x"'), "may not set result: the name is taken"),
        (changed("n = 100", 'logs = "x"'), "may not set logs"),
        (changed('makes = "run"', ""), "needs `command` and `makes`"),
        (changed('makes = "run"', 'reads = "run"'), "needs `command` and `makes`"),
    ],
)
def test_an_invalid_recipe_names_the_invalid_part(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        parse_recipe("example", text)
    assert re.match("the recipe example (is invalid|is not TOML)", str(caught.value))
