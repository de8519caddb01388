"""Engine that reproduces published tables from recipes.

A recipe is a TOML file in `experiments/recipes`: the commands to run and the numbers the paper prints. The steps are
`smoothcert` commands and run as child processes. The engine itself reads runs; it does not import anything that trains
or samples.
"""

from experiments.reproduction.directory import Reproduction
from experiments.reproduction.measuring import Measurement, measure
from experiments.reproduction.plan import Plan, PlannedRow, Step, make_plan
from experiments.reproduction.recipe import Recipe, list_recipes, load_recipe, parse_recipe
from experiments.reproduction.running import run_rows

__all__ = [
    "Measurement",
    "Plan",
    "PlannedRow",
    "Recipe",
    "Reproduction",
    "Step",
    "list_recipes",
    "load_recipe",
    "make_plan",
    "measure",
    "parse_recipe",
    "run_rows",
]
