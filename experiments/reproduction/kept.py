"""Kept results of a recipe: `experiments/results/NAME`, from which tables are made without any run.

`record.json` holds what is known of every step: its command, its seconds, the machine, and the header of the model or
rule that it made, with its training. `NAME/PRODUCT` is the archive of a run, `NAME/PRODUCT.curves.csv` the curves of a
training. `README.md` shows the tables; it is made from the other files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.reproduction.plan import Plan, PlannedRow, Step
from smoothcert.errors import CorruptRunError, ManifestMismatchError
from smoothcert.strict_json import strict_loads

RESULTS = Path(__file__).resolve().parent.parent / "results"
RECORD, PAGE = "record.json", "README.md"
CURVES = ".curves.csv"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class KeptStep:
    """What is kept of a step.

    seconds: of all attempts that ended, None for a product that was found and not made there. lost_attempt: another
    attempt was killed, so it took at least so long. machine: what it ran on. used: digests of the products that it was
    made from. product: digest of what it made. header: of a model or rule.
    """

    command: str
    seconds: float | None
    lost_attempt: bool
    machine: Mapping[str, str | int]
    product: str
    used: Mapping[str, str] = field(default_factory=dict)
    header: Mapping[str, Any] | None = None


class KeptResults:
    """The kept results of one recipe. It is measured like a `Reproduction`.

    steps: by product. stale: those that the recipe would not make now, or would make by other commands; no table shows
    them.
    """

    def __init__(self, plan: Plan, directory: Path | None = None) -> None:
        self.plan = plan
        self.directory = find_folder(plan) if directory is None else directory
        planned = {step.product: step.command_line for row in plan.rows for step in row.steps}
        recorded = read_record(self.directory, plan)
        self.steps = {product: step for product, step in recorded.items() if step.command == planned.get(product)}
        self.stale = {product: step for product, step in recorded.items() if product not in self.steps}

    def list_kept_rows(self) -> tuple[PlannedRow, ...]:
        return tuple(row for row in self.plan.rows if self.is_finished(row))

    def is_finished(self, row: PlannedRow) -> bool:
        """Whether everything that the row is computed from is kept."""
        return can_be_kept(row) and all(step.product in self.steps for step in list_results(row))

    def result_path(self, step: Step, certificate: str | None = None) -> Path:
        """Path of the archive, as RUN@CERTIFICATE if a certificate is given."""
        path = self.directory / step.product
        return path if certificate is None else path.with_name(f"{path.name}@{certificate}")

    def seconds(self, row: PlannedRow) -> str | None:
        """Seconds of all steps of a row, trainings included; "≥" where those of a part are not known."""
        steps = [self.steps.get(step.product) for step in row.steps if step.command is not None]
        known = [step.seconds for step in steps if step is not None and step.seconds is not None]
        if not known:
            return None
        exact = len(known) == len(steps) and not any(step is not None and step.lost_attempt for step in steps)
        return f"{'' if exact else '≥ '}{sum(known):.0f}"


def find_folder(plan: Plan) -> Path:
    """Where the results of a recipe are kept."""
    return RESULTS / plan.recipe.name


def list_results(row: PlannedRow) -> list[Step]:
    """The steps whose results the numbers of a row are computed from."""
    return [row.result] if row.against is None else [row.result, row.against]


def can_be_kept(row: PlannedRow) -> bool:
    """Whether the results of a row are ours: logs that others released are not kept here."""
    return all(step.command is not None for step in list_results(row))


def read_record(directory: Path, plan: Plan) -> dict[str, KeptStep]:
    """What is kept in this folder, by product; empty if there is nothing."""
    file = directory / RECORD
    if not file.exists():
        return {}
    try:
        document = strict_loads(file.read_bytes())
        stated = (document["format"], document["recipe"], document["quick"])
        steps = {product: KeptStep(**step) for product, step in document["steps"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptRunError(f"{file} is damaged ({error}): restore it, or keep the results again") from error
    expected = (_FORMAT, plan.recipe.name, plan.quick)
    if stated != expected:
        raise ManifestMismatchError(
            f"{file} is about format, recipe and quick {stated}, expected {expected}: give the folder of this recipe"
        )
    return steps


def dump_record(plan: Plan, steps: Mapping[str, KeptStep]) -> bytes:
    document = {
        "format": _FORMAT,
        "recipe": plan.recipe.name,
        "quick": plan.quick,
        "steps": {product: asdict(step) for product, step in steps.items()},
    }
    return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()
