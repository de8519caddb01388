"""Recipes as they are written down: TOML in, checked records out.

A recipe says which steps make a result and what the paper has for it:

    title, source, about    what is reproduced, where the published numbers stand, what may be compared
    time                    roughly, on two cores
    settings                variables, used as {name} in steps
    quick                   variables that --quick puts in their place; `only` names the rows it makes
    steps.NAME              command: words after `smoothcert`; makes: the file or run. {NAME} in another step is what
                            this one makes, and so says that it comes first; {out} is what the step itself makes.
                            A step with `reads` in place of both is a released log; {logs} is the folder of those.
    tables                  title, and rows. A row has a value for each of its variables, and its published numbers by
                            the name of the measure. What is the same for all rows of a table may stand in the table.

In a row, `of` is the step whose result is measured (default: result), `against` a step it is compared with,
`certificate` (a variable, too) the one that is read where a run carries several, `name` what it is called (with
{variables}). A published number of nan means that the paper prints none: ours is shown alone.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from typing import Any

from smoothcert.errors import InputError
from smoothcert.reproduction.measures import MEASURES

Value = str | int | Decimal
"""Of a variable. Numbers keep the digits they are written with: 0.50 is 0.50 in commands, names and tables."""

_RECIPE_KEYS = {"title", "source", "about", "time", "digits", "settings", "quick", "steps", "tables"}
_TABLE_KEYS = {"title", "rows"}
_RESERVED = {"of", "against", "name", "radii"}
_SHARED_VARIABLES = {"logs", "out"}


class RecipeError(InputError):
    """A recipe cannot be used as it is written."""


@dataclass(frozen=True, slots=True)
class StepRecipe:
    """A step with its {variables} open. Either `command` and `makes`, or `reads`."""

    name: str
    command: str | None
    makes: str


@dataclass(frozen=True, slots=True)
class PublishedNumber:
    """measure: a key of MEASURES. radius: only for certified accuracy. printed: None where the paper prints none."""

    measure: str
    radius: float | None
    printed: str | None

    @property
    def value(self) -> float | None:
        return None if self.printed is None else float(self.printed)


@dataclass(frozen=True, slots=True)
class RowRecipe:
    """One line of a published table: what is measured, with which variables, and what the paper has for it."""

    table: str
    name: str
    of: str
    against: str | None
    certificate: str | None
    variables: Mapping[str, Value]
    published: tuple[PublishedNumber, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A whole recipe. quick_only: patterns of the rows --quick makes, all of them if there are none."""

    name: str
    title: str
    source: str
    about: str
    time: str
    digits: int
    settings: Mapping[str, Value]
    quick: Mapping[str, Value]
    quick_only: tuple[str, ...]
    steps: Mapping[str, StepRecipe]
    rows: tuple[RowRecipe, ...]


def recipe_names() -> list[str]:
    """The recipes there are, by name."""
    folder = resources.files("smoothcert.reproduction") / "recipes"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def load_recipe(name: str) -> Recipe:
    """The recipe of that name; an InputError that names those there are."""
    names = recipe_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"there is no recipe {name!r}. {hint}There are: {', '.join(names)}")
    text = (resources.files("smoothcert.reproduction") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    return parse_recipe(name, text)


def parse_recipe(name: str, text: str) -> Recipe:
    """The recipe in a TOML text; RecipeError with the place of what is wrong."""
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RecipeError(f"the recipe {name} is not TOML: {error}") from error
    return _Reader(name).recipe(document)


class _Reader:
    """Reads one recipe; knows its name, so that every complaint can say where."""

    def __init__(self, name: str) -> None:
        self._name = name

    def recipe(self, document: Mapping[str, Any]) -> Recipe:
        self._known("the recipe", document, _RECIPE_KEYS)
        quick = dict(self._mapping("quick", document))
        only = quick.pop("only", [])
        if not (isinstance(only, list) and all(isinstance(pattern, str) for pattern in only)):
            raise self._error(f"`only` of quick must be a list of patterns, not {only!r}")
        steps = {key: self._step(key, found) for key, found in self._mapping("steps", document).items()}
        settings = self._variables("settings", self._mapping("settings", document), steps)
        tables = self._list(document, "tables")
        rows = tuple(row for table in tables for row in self._table(table, steps))
        if not rows:
            raise self._error("it has no rows")
        return Recipe(
            name=self._name,
            title=self._text("title", document),
            source=self._text("source", document),
            about=self._text("about", document).strip(),
            time=self._text("time", document),
            digits=int(document.get("digits", 3)),
            settings=settings,
            quick=self._variables("quick", quick, steps),
            quick_only=tuple(only),
            steps=steps,
            rows=rows,
        )

    def _step(self, name: str, found: Mapping[str, Any]) -> StepRecipe:
        where = f"step {name}"
        self._known(where, found, {"command", "makes", "reads"})
        if set(found) == {"reads"}:
            return StepRecipe(name=name, command=None, makes=self._text("reads", found))
        if set(found) != {"command", "makes"}:
            raise self._error(f"{where} needs `command` and `makes`, or `reads` alone")
        return StepRecipe(name=name, command=self._text("command", found), makes=self._text("makes", found))

    def _list(self, found: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        """Tables of TOML under a name; none where it is missing."""
        items = found.get(key, [])
        if not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
            raise self._error(f"`{key}` must be a list of tables, [[{key}]], not {items!r}")
        return items

    def _table(self, table: Mapping[str, Any], steps: Mapping[str, StepRecipe]) -> list[RowRecipe]:
        shared = {key: value for key, value in table.items() if key not in _TABLE_KEYS}
        return [self._row({**shared, **row}, table.get("title", ""), steps) for row in self._list(table, "rows")]

    def _row(self, row: Mapping[str, Any], table: str, steps: Mapping[str, StepRecipe]) -> RowRecipe:
        of, against = row.get("of", "result"), row.get("against")
        for step in (of, against):
            if step is not None and not (isinstance(step, str) and step in steps):
                raise self._error(f"a row is about the step {step!r}; there are {', '.join(steps)}")
        published = [number for key in row if key in MEASURES for number in self._numbers(key, row)]
        if not published:
            raise self._error(f"the row {row} has no published number: give one, or nan; known: {', '.join(MEASURES)}")
        if against is None and any(MEASURES[number.measure].needs_other for number in published):
            raise self._error(f"the row {row} measures something against another run: say which in `against`")
        own = {key: value for key, value in row.items() if key not in _RESERVED and key not in MEASURES}
        variables = self._variables("a row", own, steps)
        return RowRecipe(
            table=table, name=self._text("name", row), of=of, against=against, certificate=row.get("certificate"),
            variables=variables, published=tuple(published),
        )  # fmt: skip

    def _numbers(self, measure: str, row: Mapping[str, Any]) -> list[PublishedNumber]:
        given = row[measure]
        if not MEASURES[measure].by_radius:
            return [PublishedNumber(measure=measure, radius=None, printed=self._number(measure, given))]
        radii = row.get("radii", [])
        if not isinstance(given, list) or len(given) != len(radii):
            raise self._error(f"{measure} needs a number for each of the radii {radii}, not {given}")
        return [
            PublishedNumber(measure=measure, radius=float(radius), printed=self._number(measure, value))
            for radius, value in zip(radii, given, strict=True)
        ]

    def _number(self, measure: str, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise self._error(f"{measure} must be a number or nan, not {value!r}")
        return None if value != value else str(value)

    def _variables(self, where: str, found: Mapping[str, Any], steps: Mapping[str, StepRecipe]) -> dict[str, Value]:
        for key, value in found.items():
            if key in steps or key in _SHARED_VARIABLES:
                raise self._error(f"{where} may not set {key}: that name is taken")
            if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
                raise self._error(f"{where} sets {key} to {value!r}: expected a text or a number")
        return dict(found)

    def _mapping(self, key: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        found = document.get(key, {})
        if not isinstance(found, dict):
            raise self._error(f"{key} must be a table")
        return found

    def _text(self, key: str, found: Mapping[str, Any]) -> str:
        if not isinstance(found.get(key), str):
            raise self._error(f"{key} is missing, or is not a text, in {dict(found)}")
        return str(found[key])

    def _known(self, where: str, found: Mapping[str, Any], allowed: set[str]) -> None:
        if unknown := set(found) - allowed:
            raise self._error(f"{where} has {', '.join(sorted(unknown))}; expected {', '.join(sorted(allowed))}")

    def _error(self, text: str) -> RecipeError:
        return RecipeError(f"the recipe {self._name} cannot be used: {text}")
