"""Reads recipes: TOML in, validated records out.

A recipe states which steps make a result and which numbers the paper prints:

    title, source, about    what is reproduced, where the numbers are published, what may be compared
    time                    approximate run time on two cores
    settings                variables, used as {name} in steps
    quick                   variables that --quick overrides; `only` selects the rows that --quick makes
    steps.NAME              command: arguments of `smoothcert`; makes: the file or run it writes. {NAME} in another
                            step is this step's product, so this step runs first. {out} is the step's own product.
                            A step with only `reads` is a released log; {logs} is the folder of released logs.
    tables                  title and rows. A row sets its variables and its published numbers, by the name of the
                            measure. Keys of a table apply to all of its rows.

Keys of a row: `of` is the step whose result is measured (default: result), `against` a step to compare with,
`certificate` (also a variable) the certificate to read from a run with several, `name` the name of the row (with
{variables}). A published number of nan means that the paper prints none: only our number is shown.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from experiments.reproduction.measures import MEASURES
from smoothcert.errors import InputError

Value = str | int | Decimal
"""Value of a variable. Numbers keep their digits: 0.50 stays 0.50 in commands, names and tables."""

_RECIPES = Path(__file__).resolve().parent.parent / "recipes"
_RECIPE_KEYS = {"title", "source", "about", "time", "digits", "settings", "quick", "steps", "tables"}
_TABLE_KEYS = {"title", "rows"}
_RESERVED = {"of", "against", "name", "radii"}
_SHARED_VARIABLES = {"logs", "out"}


class RecipeError(InputError):
    """A recipe is invalid."""


@dataclass(frozen=True, slots=True)
class StepRecipe:
    """A step before its {variables} are filled in. command: None for a released log, which `makes` names."""

    name: str
    command: str | None
    makes: str


@dataclass(frozen=True, slots=True)
class PublishedNumber:
    """A number of the paper. measure: a key of MEASURES. radius: for certified accuracy. printed: None if absent."""

    measure: str
    radius: float | None
    printed: str | None

    @property
    def value(self) -> float | None:
        return None if self.printed is None else float(self.printed)


@dataclass(frozen=True, slots=True)
class RowRecipe:
    """A row of a published table: what is measured, with which variables, and the published numbers."""

    table: str
    name: str
    of: str
    against: str | None
    certificate: str | None
    variables: Mapping[str, Value]
    published: tuple[PublishedNumber, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A complete recipe. quick_only: patterns of the rows that --quick makes; all rows if empty."""

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


def list_recipes() -> list[str]:
    """Names of all recipes, sorted."""
    return sorted(file.stem for file in _RECIPES.glob("*.toml"))


def load_recipe(name: str) -> Recipe:
    """Read a recipe by name. An unknown name is an InputError that lists the known ones."""
    names = list_recipes()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"there is no recipe {name!r}. {hint}Known recipes: {', '.join(names)}")
    return parse_recipe(name, (_RECIPES / f"{name}.toml").read_text(encoding="utf-8"))


def parse_recipe(name: str, text: str) -> Recipe:
    """Read a recipe from TOML text. An invalid recipe is a RecipeError that names the invalid part."""
    try:
        document = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RecipeError(f"the recipe {name} is not TOML: {error}") from error
    return _Reader(name).read_recipe(document)


class _Reader:
    """Reads one recipe. Knows the name of the recipe for error messages, and its steps once they are read."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps: dict[str, StepRecipe] = {}

    def read_recipe(self, document: Mapping[str, Any]) -> Recipe:
        self._check_keys("the recipe", document, _RECIPE_KEYS)
        quick = dict(self._read_mapping("quick", document))
        only = quick.pop("only", [])
        if not (isinstance(only, list) and all(isinstance(pattern, str) for pattern in only)):
            raise self._error(f"`only` of quick must be a list of patterns, not {only!r}")
        self._steps = {key: self._read_step(key, step) for key, step in self._read_mapping("steps", document).items()}
        settings = self._read_variables("settings", self._read_mapping("settings", document))
        rows = tuple(row for table in self._read_list("tables", document) for row in self._read_table(table))
        if not rows:
            raise self._error("it has no rows")
        return Recipe(
            name=self._name,
            title=self._read_text("title", document),
            source=self._read_text("source", document),
            about=self._read_text("about", document).strip(),
            time=self._read_text("time", document),
            digits=int(document.get("digits", 3)),
            settings=settings,
            quick=self._read_variables("quick", quick),
            quick_only=tuple(only),
            steps=self._steps,
            rows=rows,
        )

    def _read_step(self, name: str, step: Mapping[str, Any]) -> StepRecipe:
        where = f"step {name}"
        self._check_keys(where, step, {"command", "makes", "reads"})
        if set(step) == {"reads"}:
            return StepRecipe(name=name, command=None, makes=self._read_text("reads", step))
        if set(step) != {"command", "makes"}:
            raise self._error(f"{where} needs `command` and `makes`, or only `reads`")
        return StepRecipe(name=name, command=self._read_text("command", step), makes=self._read_text("makes", step))

    def _read_table(self, table: Mapping[str, Any]) -> list[RowRecipe]:
        shared = {key: value for key, value in table.items() if key not in _TABLE_KEYS}
        return [self._read_row({**shared, **row}, table.get("title", "")) for row in self._read_list("rows", table)]

    def _read_row(self, row: Mapping[str, Any], table: str) -> RowRecipe:
        of, against = row.get("of", "result"), row.get("against")
        for step in (of, against):
            if step is not None and not (isinstance(step, str) and step in self._steps):
                raise self._error(f"a row names the unknown step {step!r}; the steps are {', '.join(self._steps)}")
        published = [number for key in row if key in MEASURES for number in self._read_numbers(key, row)]
        if not published:
            raise self._error(f"the row {row} has no published number: set one, or nan, of {', '.join(MEASURES)}")
        if against is None and any(MEASURES[number.measure].needs_other for number in published):
            raise self._error(f"the row {row} compares two results: name the second step in `against`")
        own = {key: value for key, value in row.items() if key not in _RESERVED and key not in MEASURES}
        return RowRecipe(
            table=table,
            name=self._read_text("name", row),
            of=of,
            against=against,
            certificate=row.get("certificate"),
            variables=self._read_variables("a row", own),
            published=tuple(published),
        )

    def _read_numbers(self, measure: str, row: Mapping[str, Any]) -> list[PublishedNumber]:
        given = row[measure]
        if not MEASURES[measure].by_radius:
            return [PublishedNumber(measure=measure, radius=None, printed=self._read_number(measure, given))]
        radii = row.get("radii", [])
        if not isinstance(given, list) or len(given) != len(radii):
            raise self._error(f"{measure} needs one number for each of the radii {radii}, not {given}")
        return [
            PublishedNumber(measure=measure, radius=float(radius), printed=self._read_number(measure, value))
            for radius, value in zip(radii, given, strict=True)
        ]

    def _read_number(self, measure: str, value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise self._error(f"{measure} must be a number or nan, not {value!r}")
        return None if value != value else str(value)

    def _read_variables(self, where: str, variables: Mapping[str, Any]) -> dict[str, Value]:
        for key, value in variables.items():
            if key in self._steps or key in _SHARED_VARIABLES:
                raise self._error(f"{where} may not set {key}: the name is taken")
            if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
                raise self._error(f"{where} sets {key} to {value!r}: expected a text or a number")
        return dict(variables)

    def _read_list(self, key: str, document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        items = document.get(key, [])
        if not (isinstance(items, list) and all(isinstance(item, dict) for item in items)):
            raise self._error(f"`{key}` must be a list of tables, [[{key}]], not {items!r}")
        return items

    def _read_mapping(self, key: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        mapping = document.get(key, {})
        if not isinstance(mapping, dict):
            raise self._error(f"{key} must be a table")
        return mapping

    def _read_text(self, key: str, document: Mapping[str, Any]) -> str:
        if not isinstance(document.get(key), str):
            raise self._error(f"{key} is missing, or is not a text, in {dict(document)}")
        return str(document[key])

    def _check_keys(self, where: str, document: Mapping[str, Any], allowed: set[str]) -> None:
        if unknown := set(document) - allowed:
            raise self._error(f"{where} has {', '.join(sorted(unknown))}; expected {', '.join(sorted(allowed))}")

    def _error(self, text: str) -> RecipeError:
        return RecipeError(f"the recipe {self._name} is invalid: {text}")
