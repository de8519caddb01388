"""Published tables made again: recipes (what to run, and what the paper says) and the engine that works through them.

A recipe is a TOML file in `recipes/`. Its steps are commands of `smoothcert` itself, run as child processes: this room
knows how to read runs, and nothing of training, sampling or the command line.
"""

from smoothcert.reproduction.directory import Reproduction
from smoothcert.reproduction.measuring import Measured, measure
from smoothcert.reproduction.plan import Plan, PlannedRow, Step, make_plan
from smoothcert.reproduction.recipe import Recipe, load_recipe, parse_recipe, recipe_names
from smoothcert.reproduction.running import run_rows

__all__ = [
    "Measured",
    "Plan",
    "PlannedRow",
    "Recipe",
    "Reproduction",
    "Step",
    "load_recipe",
    "make_plan",
    "measure",
    "parse_recipe",
    "recipe_names",
    "run_rows",
]
