"""A run whose noise level is chosen by a smoothed selector: what was requested of it, and what its parts must be.

Its directory has `selection.json`, which says what was requested; an ordinary run of the selector, and one of each
level that is sampled; and `claims.json`, what they give together.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from smoothcert_verify.findings import Finding, note, refuse
from smoothcert_verify.json_values import (
    BOOLEAN,
    TEXT,
    Later,
    ListOf,
    Number,
    OneOf,
    Optional,
    Record,
    is_same,
    parse_json,
)
from smoothcert_verify.manifest_shapes import (
    COUNT,
    DATA_SPEC,
    ENGINE_SPEC,
    LEVEL,
    MAYBE_COUNT,
    MODEL_SPEC,
    NOISE,
    QUESTION_SPEC,
    SEED,
    TASKS,
)
from smoothcert_verify.run_facts import NEARLY_ALL, SMALLEST_ALPHA, RunFacts

SELECTION, CLAIMS, SELECTOR = "selection.json", "claims.json", "selector"
SHARPER, PUBLISHED = "selected", "selected-published"
"""The forms: every level that may be selected answers the class; or the leading level is selected and answers it."""

_SCHEMA = 1
_MOST_LEVELS = 1000
_SPEC = Record(
    task=OneOf(TASKS),
    selector=MODEL_SPEC,
    selector_sigma=LEVEL,
    levels=ListOf(LEVEL, 2, _MOST_LEVELS),
    models=ListOf(MODEL_SPEC, 1, _MOST_LEVELS),
    data=DATA_SPEC,
    noise=NOISE,
    question=QUESTION_SPEC,
    selector_question=QUESTION_SPEC,
    alpha=Number(0, 1),
    selector_alpha=Number(0, 1),
    upper_alpha=Later(Optional(Number(0, 1))),
    sampled=COUNT,
    selector_bounds=OneOf(("two-class", "multi-class")),
    certificates=ListOf(TEXT, 0, 2),
    seed=SEED,
    batch=MAYBE_COUNT,
    rigorous=BOOLEAN,
    engine=ENGINE_SPEC,
)
_DOCUMENT = Record(schema=OneOf((_SCHEMA,)), spec=_SPEC)

_PLACES = {
    *(f"spec.model.{name}" for name in ("place", "code_folder", "weights", "device")),
    *(f"spec.data.{name}" for name in ("place", "root")),
}
"""Where model and data were found. A resumed run may find them elsewhere; digests say whether they are equal."""
_FREE = ("spec.engine", "spec.alpha")
"""What says nothing about the samples of a part, and what `check_shares` is about."""


def is_selected(path: Path) -> bool:
    """Whether this directory is meant to be such a run: it contains one of its files."""
    return path.is_dir() and any((path / name).exists() for name in (SELECTION, CLAIMS))


@dataclass(frozen=True, slots=True)
class SelectionFacts:
    """What was requested. levels: ascending. alpha: of everything; selector_alpha: of the selector.

    upper_alpha: of the upper bound on another level; None in a run of an earlier version, in which α is for all levels
    together. sampled: how many levels are sampled at each input.
    """

    spec: Mapping[str, Any]
    task: str
    levels: tuple[float, ...]
    sigma: float
    alpha: Fraction
    selector_alpha: Fraction
    upper_alpha: Fraction | None
    sampled: int
    certificates: tuple[str, ...]

    @property
    def each_level(self) -> bool:
        """Whether the selector's votes bound each level by itself, and not only all others together."""
        return bool(self.spec["selector_bounds"] == "multi-class")

    @property
    def shared_by(self) -> int:
        """How many levels share what the selector leaves of α."""
        return self.sampled if self.upper_alpha is None else 1

    def find_share(self, certificate: str) -> Fraction:
        """What a certificate spends on bounds of the selector."""
        return self.selector_alpha + ((self.upper_alpha or 0) if certificate == SHARPER else 0)

    @property
    def voting_stage(self) -> str:
        """The selector's votes that say which levels are sampled."""
        return "PREDICTION" if self.task == "predict" else "SELECTION"

    def name_level(self, level: int) -> str:
        """The name of the part of a level."""
        return f"level-{self.levels[level]!r}"

    def list_names(self) -> list[str]:
        """The names of the parts of all levels."""
        return [self.name_level(level) for level in range(len(self.levels))]


def read_selection(document: Any) -> SelectionFacts:
    """What this `selection.json` states; MalformedError if it is not one of this format."""
    document = parse_json(json.dumps(document))  # in memory, lists may be tuples
    if isinstance(document, Mapping) and type(document.get("schema")) is int and document["schema"] != _SCHEMA:
        raise refuse("unknown-schema", value=document["schema"], expected=_SCHEMA)
    _DOCUMENT(document, "selection")
    spec = document["spec"]
    levels = tuple(map(float, spec["levels"]))
    alpha, share = Fraction(spec["alpha"]), Fraction(spec["selector_alpha"])
    if not SMALLEST_ALPHA <= alpha < Fraction(1, 2):
        raise refuse("invalid-value", field="selection.spec.alpha", value=alpha, expected="a probability below 1/2")
    if not SMALLEST_ALPHA <= share < alpha:
        raise refuse("invalid-value", field="selection.spec.selector_alpha", value=share, expected="less than alpha")
    above = spec.get("upper_alpha")
    if above is not None and share + Fraction(above) >= alpha:
        raise refuse(
            "invalid-value", field="selection.spec.upper_alpha", value=above, expected="less than what is left"
        )
    if any(a >= b for a, b in itertools.pairwise(levels)):
        raise refuse("invalid-value", field="selection.spec.levels", value=levels, expected="ascending levels")
    if len(spec["models"]) not in (1, len(levels)):
        expected = f"1 or {len(levels)} models"
        raise refuse("invalid-value", field="selection.spec.models", value=len(spec["models"]), expected=expected)
    if spec["sampled"] > len(levels):
        raise refuse(
            "invalid-value", field="selection.spec.sampled", value=spec["sampled"], expected=f"at most {len(levels)}"
        )
    return SelectionFacts(
        spec=spec,
        task=spec["task"],
        levels=levels,
        sigma=float(spec["selector_sigma"]),
        alpha=alpha,
        selector_alpha=share,
        upper_alpha=None if above is None else Fraction(above),
        sampled=len(levels) if spec["task"] == "predict" else spec["sampled"],
        certificates=tuple(spec["certificates"]),
    )


def check_selection(facts: SelectionFacts) -> Iterator[Finding]:
    """Whether the requests go together."""
    spec, forms = facts.spec, facts.certificates
    if facts.task == "predict" and forms:
        yield note("certificates-of-a-prediction")
    if facts.task != "predict" and (not forms or len(set(forms)) < len(forms) or set(forms) - {SHARPER, PUBLISHED}):
        yield _differ("selection.spec.certificates", forms, (SHARPER, PUBLISHED))
    for name, expected in (("kind", "gaussian"), ("place", "input"), ("scale", None)):
        if spec["noise"].get(name) != expected:
            yield _differ(f"selection.spec.noise.{name}", spec["noise"].get(name), expected)
    for model in spec["models"]:
        if model.get("dtype") != spec["selector"].get("dtype"):
            yield _differ("selection.spec.models.dtype", model.get("dtype"), spec["selector"].get("dtype"))
    if facts.each_level and spec["selector_question"]["kind"] != "fixed-n":
        yield _differ("selection.spec.selector_bounds", spec["selector_bounds"], "two-class")


def check_part(facts: SelectionFacts, run: RunFacts, *, level: int | None) -> tuple[list[Finding], list[Finding]]:
    """How the manifest of a part differs from what was requested, and where model and data were found elsewhere.

    level: None for the selector. Which inputs a level is sampled at follows from votes, and is not checked here.
    """
    wanted = _list_values(_imply_spec(facts, level=level, indices=sorted(run.indices)))
    stated = _list_values(
        {"spec": {"best_of": False, "memory": None, **run.manifest["spec"], "noise": {"rounds": False, **run.noise}}}
    )
    differing, elsewhere = [], []
    for name in sorted(wanted.keys() | stated.keys()):
        value, expected = stated.get(name), wanted.get(name)
        if name.startswith(_FREE) or value == expected:
            continue
        if name in _PLACES:
            elsewhere.append(note("found-elsewhere", field=name, value=value, expected=expected))
        else:
            differing.append(_differ(name, value, expected))
    if level is None and run.num_classes != len(facts.levels):
        differing.append(_differ("run.model.num_classes", run.num_classes, len(facts.levels)))
    return differing, elsewhere


def _imply_spec(facts: SelectionFacts, *, level: int | None, indices: list[int]) -> dict[str, Any]:
    """The requests of a part, but for its share of α."""
    spec, certifies = facts.spec, facts.task != "predict"
    models = spec["models"]
    question = spec["selector_question" if level is None else "question"]
    data = {"indices": None, **spec["data"]}
    if level is not None:
        data |= {"skip": 1, "max_inputs": None, "indices": indices}
    name = SELECTOR if level is None else facts.name_level(level)
    return {
        "spec": {
            "task": facts.task,
            "model": spec["selector"] if level is None else models[level if len(models) > 1 else 0],
            "data": data,
            "noise": {"rounds": False, **spec["noise"]},
            "sigma": {"kind": "constant", "level": facts.sigma if level is None else facts.levels[level]},
            "question": question if certifies else {"kind": "fixed-n", "n": question["n"], "n0": 0},
            "certificates": ["gaussian"] if certifies else [],
            "best_of": False,
            "memory": None,
            "seed": derive_seed(spec["seed"], name),
            "batch": spec["batch"],
            "rigorous": spec["rigorous"] and certifies,
        }
    }


def derive_seed(seed: int, name: str) -> int:
    """The seed of a part: the first 16 bytes of a SHA-256, so that no two parts share a stream of noise."""
    digest = hashlib.sha256(f"smoothcert {seed} {name}".encode()).digest()
    return int.from_bytes(digest[:16], "big")


def _list_values(document: Any, at: str = "") -> dict[str, Any]:
    """The values that are not objects, by the names that lead to them."""
    if not isinstance(document, Mapping):
        return {at: document}
    found: dict[str, Any] = {}
    for name, value in document.items():
        found |= _list_values(value, f"{at}.{name}" if at else name)
    return found


def check_shares(facts: SelectionFacts, selector: RunFacts, levels: Mapping[int, RunFacts]) -> Iterator[Finding]:
    """What selector and levels spend adds up to at most α, whichever levels are sampled, and to nearly all of it.

    The share of a level counts once if the answer can be wrong because of one level only (`selection_claims`).
    """
    if selector.alpha != facts.selector_alpha:
        yield _differ("spec.alpha", float(selector.alpha), float(facts.selector_alpha)).at(SELECTOR)
    shares = {run.alpha for run in levels.values()}
    if len(shares) > 1:
        yield note("uneven-shares", shares={facts.name_level(k): float(run.alpha) for k, run in levels.items()})
    for share in [max(shares)] if shares else []:
        total = facts.selector_alpha + (facts.upper_alpha or 0) + facts.shared_by * share
        if total > facts.alpha:
            yield note("alpha-overspent", total=total, alpha=facts.alpha)
        elif total < facts.alpha * NEARLY_ALL:
            yield note("alpha-not-spent", total=total, alpha=facts.alpha)


def check_alike(facts: SelectionFacts, selector: RunFacts, levels: Mapping[int, RunFacts]) -> Iterator[Finding]:
    """All parts are about the same data, and all levels about the same classes."""
    first: RunFacts | None = None
    for level, run in levels.items():
        own: list[tuple[str, Any, Any]] = [("data", _describe_data(run), _describe_data(selector))]
        if first is not None:
            own += [
                ("model.num_classes", run.num_classes, first.num_classes),
                ("model.class_names", run.class_names, first.class_names),
            ]
            if len(facts.spec["models"]) == 1:
                own.append(("digests.model", run.manifest["digests"]["model"], first.manifest["digests"]["model"]))
        first = first or run
        for field, value, expected in own:
            if not is_same(value, expected):
                yield _differ(f"run.{field}", value, expected).at(facts.name_level(level))


def _describe_data(run: RunFacts) -> dict[str, Any]:
    """What a manifest states of the data, without the number of requested inputs."""
    data = {name: value for name, value in run.manifest["data"].items() if name != "inputs"}
    return {**data, "digest": run.manifest["digests"]["data"]}


def _differ(field: str, value: Any, expected: Any) -> Finding:
    return note("differs", field=field, value=value, expected=expected)
