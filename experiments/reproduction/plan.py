"""A recipe with its variables filled in: which command makes which file, and which steps a row needs."""

from __future__ import annotations

import fnmatch
import shlex
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.reproduction.recipe import PublishedNumber, Recipe, RecipeError, RowRecipe, Value
from smoothcert.errors import InputError

_LOGS = "{logs}"
"""Stays in commands and paths until they are used: the folder of the logs is not a setting of a reproduction."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command and its product, a path relative to the output folder. command: None for a released log."""

    command: tuple[str, ...] | None
    product: str

    @property
    def needs_logs(self) -> bool:
        return _LOGS in self.product or any(_LOGS in word for word in self.command or ())

    @property
    def command_line(self) -> str:
        """The command as typed in a shell, with {logs} for the folder of the logs."""
        return shlex.join(("smoothcert", *(self.command or ())))

    def arguments(self, logs: Path | None) -> tuple[str, ...]:
        """Arguments of `smoothcert`, with the folder of the logs filled in."""
        return tuple(word.replace(_LOGS, str(logs)) for word in self.command or ())

    def path(self, directory: Path, logs: Path | None) -> Path:
        """Path of the product."""
        return directory / self.product.replace(_LOGS, str(logs))

    def option(self, name: str) -> str | None:
        """Value of an option in the command; None if the command omits the option."""
        words = self.command or ()
        return words[words.index(name) + 1] if name in words[:-1] else None

    def input_paths(self, directory: Path, logs: Path | None) -> dict[str, Path]:
        """Every word of the command that may name an input file, and its path.

        The product and the memory are excluded: the step writes to them.
        """
        outputs = {self.product, self.option("--memory")}
        words = [word for word in self.command or () if word not in outputs]
        return {word: directory / word.replace(_LOGS, str(logs)) for word in words}


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row of a table. steps: everything the row needs, in order."""

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
    """All rows of a recipe. quick: with the small settings of --quick."""

    recipe: Recipe
    quick: bool
    rows: tuple[PlannedRow, ...]

    @property
    def comparable(self) -> bool:
        """Whether the results may be compared with the paper: not if --quick changed a setting."""
        return not (self.quick and self.recipe.quick)

    def select_rows(self, patterns: Sequence[str]) -> tuple[PlannedRow, ...]:
        """Rows whose names contain one of the patterns (* and ? as in file names); all rows without a pattern."""
        if not patterns:
            return self.rows
        selected = tuple(row for row in self.rows if _matches(row.name, patterns))
        if not selected:
            names = ", ".join(row.name for row in self.rows)
            raise InputError(f"no row of {self.recipe.name} matches {', '.join(patterns)}; its rows are: {names}")
        return selected


def make_plan(recipe: Recipe, *, quick: bool) -> Plan:
    """Fill in the variables. A row's variables override the settings; with quick, `quick` overrides both."""
    overrides = recipe.quick if quick else {}
    rows = [(row, _Filler(recipe, {**recipe.settings, **row.variables, **overrides})) for row in recipe.rows]
    if quick and recipe.quick_only:
        rows = [(row, filler) for row, filler in rows if _matches(filler.fill(row.name), recipe.quick_only)]
    plan = Plan(recipe=recipe, quick=quick, rows=tuple(_plan_row(row, filler) for row, filler in rows))
    _check_plan(plan)
    return plan


def _plan_row(row: RowRecipe, filler: _Filler) -> PlannedRow:
    targets = [row.of] if row.against is None else [row.of, row.against]
    names = dict.fromkeys(name for target in targets for name in filler.order_steps(target))
    return PlannedRow(
        table=row.table,
        name=filler.fill(row.name),
        result=filler.make_step(row.of),
        against=None if row.against is None else filler.make_step(row.against),
        certificate=None if row.certificate is None else filler.fill(row.certificate),
        steps=tuple(filler.make_step(name) for name in names),
        published=row.published,
    )


class _Filler:
    """Fills the variables of one row into the steps of its recipe."""

    def __init__(self, recipe: Recipe, variables: Mapping[str, Value]) -> None:
        self._recipe = recipe
        self._values = {key: str(value) for key, value in variables.items()} | {"logs": _LOGS}

    def make_step(self, name: str) -> Step:
        recipe = self._recipe.steps[name]
        product = self.fill(recipe.makes)
        if recipe.command is None:
            return Step(command=None, product=product)
        # Split before filling in: a value that contains a space stays one word.
        try:
            templates = shlex.split(recipe.command)
        except ValueError as error:
            raise RecipeError(f"the recipe {self._recipe.name} has a command with an open quote: {name}") from error
        words = (self.fill(word, out=product) for word in templates)
        return Step(command=tuple(words), product=product)

    def order_steps(self, name: str, above: tuple[str, ...] = ()) -> list[str]:
        """Names of the steps that a step needs, in order, followed by the step itself."""
        if name in above:
            raise RecipeError(f"the recipe {self._recipe.name} has a cycle: {' needs '.join((*above, name))}")
        variables = self._variables_of(self._recipe.steps[name].command or "")
        needed = [used for used in variables if used in self._recipe.steps]
        before = [step for used in needed for step in self.order_steps(used, (*above, name))]
        return list(dict.fromkeys([*before, name]))

    def fill(self, template: str, **further: str) -> str:
        values = self._values | further
        for used in self._variables_of(template):
            if used not in values and used in self._recipe.steps:
                values[used] = self.fill(self._recipe.steps[used].makes)
            elif used not in values:
                raise RecipeError(f"the recipe {self._recipe.name} uses {{{used}}} in {template!r} but does not set it")
        return template.format_map(values)

    def _variables_of(self, template: str) -> list[str]:
        """The names in braces."""
        try:
            pieces = [piece for piece in string.Formatter().parse(template) if piece[1] is not None]
        except ValueError as error:
            raise self._malformed(template) from error
        if any(not name or set(name) & set(".[") or form or conversion for _, name, form, conversion in pieces):
            raise self._malformed(template)
        return [str(name) for _, name, _, _ in pieces]

    def _malformed(self, template: str) -> RecipeError:
        return RecipeError(
            f"the recipe {self._recipe.name} has the malformed text {template!r}: a variable is written {{name}}, and "
            "a brace is doubled"
        )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name.lower(), f"*{pattern.lower()}*") for pattern in patterns)


def _check_plan(plan: Plan) -> None:
    """Require that row names are unique and that no two commands make the same product."""
    names = [(row.table, row.name) for row in plan.rows]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise RecipeError(f"the recipe {plan.recipe.name} has several rows called {sorted(repeated)}")
    steps: dict[str, Step] = {}
    for step in (step for row in plan.rows for step in row.steps):
        if steps.setdefault(step.product, step) != step:
            raise RecipeError(
                f"the recipe {plan.recipe.name} makes {step.product} in two ways:\n"
                f"  {steps[step.product].command_line}\n  {step.command_line}"
            )
