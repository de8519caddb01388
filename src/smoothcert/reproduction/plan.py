"""A recipe with its variables filled in: which commands make which files, and which of them a row needs."""

from __future__ import annotations

import fnmatch
import shlex
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from smoothcert.errors import InputError
from smoothcert.reproduction.recipe import PublishedNumber, Recipe, RecipeError, RowRecipe, Value

_LOGS = "{logs}"
"""Stays in commands and paths until they are used: where the logs lie is no setting of a reproduction."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command and what it makes, relative to the folder of the reproduction; no command for a released log."""

    command: tuple[str, ...] | None
    product: str

    @property
    def needs_logs(self) -> bool:
        return _LOGS in self.product or any(_LOGS in word for word in self.command or ())

    @property
    def shown(self) -> str:
        """The command as one would type it, with {logs} for the folder of the logs."""
        return shlex.join(("smoothcert", *(self.command or ())))

    def words(self, logs: Path | None) -> tuple[str, ...]:
        return tuple(word.replace(_LOGS, str(logs)) for word in self.command or ())

    def place(self, directory: Path, logs: Path | None) -> Path:
        """Where the product lies."""
        return directory / self.product.replace(_LOGS, str(logs))

    def option(self, name: str) -> str | None:
        """What the command gives for an option, None where it does not name it."""
        words = self.command or ()
        return words[words.index(name) + 1] if name in words[:-1] else None

    def files(self, directory: Path, logs: Path | None) -> list[tuple[str, Path]]:
        """The words of the command, and where they lie if they are files. Neither what it makes, nor a memory, which it
        goes on writing.
        """
        written = {self.product, self.option("--memory")}
        named = [word for word in self.command or () if word not in written]
        return [(word, directory / word.replace(_LOGS, str(logs))) for word in dict.fromkeys(named)]


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """steps: all that is needed, in order; the last but for `against` makes the result."""

    table: str
    name: str
    result: Step
    against: Step | None
    certificate: str | None
    steps: tuple[Step, ...]
    published: tuple[PublishedNumber, ...]

    @property
    def needs_logs(self) -> bool:
        return any(step.needs_logs for step in self.steps)


@dataclass(frozen=True, slots=True)
class Plan:
    recipe: Recipe
    quick: bool
    rows: tuple[PlannedRow, ...]

    @property
    def comparable(self) -> bool:
        """Whether its figures may stand beside the published ones: not if --quick has changed a setting."""
        return not (self.quick and self.recipe.quick)

    def chosen(self, patterns: Sequence[str]) -> tuple[PlannedRow, ...]:
        """The rows whose names hold one of the patterns (* and ? as in file names); all of them without a pattern."""
        if not patterns:
            return self.rows
        chosen = tuple(row for row in self.rows if _matches(row.name, patterns))
        if not chosen:
            names = ", ".join(row.name for row in self.rows)
            raise InputError(f"no row of {self.recipe.name} matches {', '.join(patterns)}; its rows are: {names}")
        return chosen


def make_plan(recipe: Recipe, *, quick: bool) -> Plan:
    """Fill in the variables: settings, then those of the row, then, if asked for, those of `quick`."""
    changed = recipe.quick if quick else {}
    named = [(row, {**recipe.settings, **row.variables, **changed}) for row in recipe.rows]
    rows = [(row, _Filler(recipe, variables)) for row, variables in named]
    if quick and recipe.quick_only:
        rows = [(row, filler) for row, filler in rows if _matches(filler.text(row.name), recipe.quick_only)]
    plan = Plan(recipe=recipe, quick=quick, rows=tuple(_planned(row, filler) for row, filler in rows))
    _check(plan)
    return plan


def _planned(row: RowRecipe, filler: _Filler) -> PlannedRow:
    wanted = [row.of] if row.against is None else [row.of, row.against]
    steps = {name: None for one in wanted for name in filler.before(one)}
    return PlannedRow(
        table=row.table,
        name=filler.text(row.name),
        result=filler.step(row.of),
        against=None if row.against is None else filler.step(row.against),
        certificate=None if row.certificate is None else filler.text(row.certificate),
        steps=tuple(filler.step(name) for name in steps),
        published=row.published,
    )


class _Filler:
    """Fills the variables of one row into the steps of its recipe."""

    def __init__(self, recipe: Recipe, variables: Mapping[str, Value]) -> None:
        self._recipe = recipe
        self._values = {key: str(value) for key, value in variables.items()} | {"logs": _LOGS}

    def step(self, name: str) -> Step:
        found = self._recipe.steps[name]
        product = self.text(found.makes)
        if found.command is None:
            return Step(command=None, product=product)
        # Split before filling in, so that a value with a blank in it stays one word.
        words = (self.text(word, out=product) for word in shlex.split(found.command))
        return Step(command=tuple(words), product=product)

    def before(self, name: str, above: tuple[str, ...] = ()) -> list[str]:
        """The steps that must come first, and then this one, each once."""
        if name in above:
            raise RecipeError(f"the recipe {self._recipe.name} goes in a circle: {' needs '.join((*above, name))}")
        needed = [used for used in _names(self._recipe.steps[name].command or "") if used in self._recipe.steps]
        return list(dict.fromkeys([*(one for used in needed for one in self.before(used, (*above, name))), name]))

    def text(self, template: str, **further: str) -> str:
        values = self._values | further
        for used in _names(template):
            if used not in values and used in self._recipe.steps:
                values[used] = self.text(self._recipe.steps[used].makes)
            elif used not in values:
                raise RecipeError(f"the recipe {self._recipe.name} uses {{{used}}} in {template!r} and does not set it")
        return template.format_map(values)


def _names(template: str) -> Iterator[str]:
    return (name for _, name, _, _ in string.Formatter().parse(template) if name)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name.lower(), f"*{pattern.lower()}*") for pattern in patterns)


def _check(plan: Plan) -> None:
    """Rows can be told apart, and nothing is made by two different commands."""
    names = [(row.table, row.name) for row in plan.rows]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise RecipeError(f"the recipe {plan.recipe.name} has several rows called {sorted(repeated)}")
    made: dict[str, Step] = {}
    for step in (step for row in plan.rows for step in row.steps):
        if made.setdefault(step.product, step) != step:
            raise RecipeError(
                f"the recipe {plan.recipe.name} makes {step.product} in two ways:\n  {made[step.product].shown}\n  "
                f"{step.shown}"
            )
