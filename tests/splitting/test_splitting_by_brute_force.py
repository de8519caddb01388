"""Splitting on small grids, for all inputs and pairs of inputs; and mutated formulas, which are all caught there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from smoothcert.certificates import splitting_l1_radius
from smoothcert.noise import split_inputs
from smoothcert.noise.splitting import split_with_numpy
from smoothcert.records import Stage, StreamId, Tally
from smoothcert.statistics import plurality
from smoothcert.statistics.vote_bounds import safe_steps
from splitting_worlds import Formulas, TableWorld, find_violations, make_world, survived_changes


def split(k: Any, offsets: Any, evaluations: int, levels: int) -> Any:
    out = np.empty((evaluations, len(k)), dtype=np.float32)
    split_inputs(out, k, offsets, evaluations=evaluations, levels=levels, start=0)
    return out


def split_plainly(k: Any, offsets: Any, evaluations: int, levels: int) -> Any:
    numbers = np.arange(evaluations, dtype=np.int64)
    return split_with_numpy(k, offsets, numbers, evaluations=evaluations, levels=levels)


def tally(counts: Sequence[int], missing: int) -> Tally:
    n = sum(counts) + missing
    return Tally(StreamId(0, 0, Stage.ESTIMATION), 0.5, np.array(counts), missing, ((0, n),))


def steps(counts: Sequence[int], missing: int, label: int) -> int:
    return int(safe_steps([tally(counts, missing)], [label], 0.0)[0])


LIBRARY = Formulas(
    split=split,
    answer=lambda counts, missing: plurality(tally(counts, missing)),
    safe_steps=steps,
    radius=lambda steps, levels: float(splitting_l1_radius(steps, levels=levels)),
)

SMALL = [
    {"size": 1, "steps": 6, "evaluations": 2},
    {"size": 1, "steps": 6, "evaluations": 5, "classes": 2},
    {"size": 1, "steps": 5, "evaluations": 11, "missing": 0.2},
    {"size": 2, "steps": 1, "evaluations": 3},
    {"size": 2, "steps": 2, "evaluations": 9, "classes": 2, "missing": 0.3},
    {"size": 2, "steps": 5, "evaluations": 4},
    {"size": 2, "steps": 6, "evaluations": 13, "classes": 2},
    {"size": 2, "steps": 6, "evaluations": 8, "classes": 4, "missing": 0.1},
    {"size": 3, "steps": 2, "evaluations": 6, "missing": 0.2},
    {"size": 3, "steps": 3, "evaluations": 7, "classes": 2},
    {"size": 3, "steps": 6, "evaluations": 10},
]
NAMED = [",".join(f"{name}={value}" for name, value in world.items()) for world in SMALL]


@pytest.mark.parametrize("settings", SMALL, ids=NAMED)
@pytest.mark.parametrize(
    "formulas", [LIBRARY, dataclasses.replace(LIBRARY, split=split_plainly)], ids=["used", "plain"]
)
def test_all_inputs_of_small_grids(settings: dict[str, Any], formulas: Formulas) -> None:
    for seed in range(1 if settings["size"] == 3 else 4):
        assert find_violations(formulas, make_world(seed, **settings)).violations == frozenset()


def test_one_step_beyond_the_radius_the_answer_does_change() -> None:
    """In at least a fifth of the cases: so the radius is not small for nothing."""
    worlds = [make_world(seed, lead=0.3, **settings) for seed, settings in enumerate(SMALL)]
    beyond = [case for world in worlds for case in find_violations(LIBRARY, world).beyond]
    certified = [changed for steps, changed in beyond if steps >= 1]
    assert len(beyond) > 500
    assert len(certified) > 100
    assert np.mean([changed for _, changed in beyond]) > 0.2
    assert np.mean(certified) > 0.2


@pytest.mark.parametrize("votes", [(300, 100, 41, 0), (100, 300, 41, 0), (5, 5, 1, 0), (7, 0, 2, 6), (3, 9, 4, 8)])
def test_for_all_votes_there_is_a_classifier_whose_answer_changes_one_step_beyond(votes: tuple[int, ...]) -> None:
    """In one dimension step m to m+1 changes evaluation m: the table makes it a vote for the strongest other."""
    *counts, missing = votes
    label, n = int(np.argmax(votes)), sum(votes)
    safe = steps(counts, missing, label)
    other = min(set(range(len(votes))) - {label}, key=lambda c: (votes[label] - votes[c] - (c < label), c))
    usual = np.repeat(range(len(votes)), [votes[(label + i) % len(votes)] for i in range(len(votes))])
    usual = (usual + label) % len(votes)  # the first evaluations vote for the answer
    table = np.full(4 * n + 1, other)
    no_offset = np.zeros(1, dtype=np.int32)
    table[np.rint(4 * n * split(no_offset, no_offset, n, n + 1)[:, 0]).astype(int)] = usual
    world = TableWorld(1, n, n, (0,), len(counts), table)
    winners = []
    for k in range(safe + 2):
        shown = split(np.array([k], dtype=np.int32), no_offset, n, n + 1)
        cast = np.bincount(world.classify(shown), minlength=len(votes))
        assert k > 0 or tuple(cast) == votes
        winners.append(int(cast.argmax()))
    assert winners == [label] * (safe + 1) + [winners[-1]]
    assert winners[-1] == other


def mutated_steps(counts: Sequence[int], missing: int, label: int, *, tie: Any, rounding: int = 0) -> int:
    votes = [*counts, missing]
    return min((votes[label] - votes[c] - int(tie(c, label)) + rounding) // 2 for c in range(len(votes)) if c != label)


def mutated_split(
    k: Any,
    offsets: Any,
    evaluations: int,
    levels: int,
    *,
    lower: int = 0,
    upper: int = 0,
    before: int = 1,
    period: int = 0,
) -> Any:
    """`split_with_numpy` with a clip moved far away, the cut on the other side of k, or another period."""
    numbers, at = np.arange(evaluations)[:, None], k.astype(np.int64)
    width = evaluations + period
    below = at - before - (at - before - offsets - numbers) % width
    first = np.maximum(2 * below + 1, lower)
    last = np.minimum(2 * (below + width) + 1, 2 * (levels - 1) + upper)
    return (first + last).astype(np.float32) / np.float32(4 * (levels - 1))


def only_first_offset(k: Any, offsets: Any, evaluations: int, levels: int) -> Any:
    return split(k, np.full_like(offsets, offsets[0]), evaluations, levels)


STEPS = {
    "no tie": lambda counts, missing, label: mutated_steps(counts, missing, label, tie=lambda c, a: False),
    "every tie": lambda counts, missing, label: mutated_steps(counts, missing, label, tie=lambda c, a: True),
    "tie reversed": lambda counts, missing, label: mutated_steps(counts, missing, label, tie=lambda c, a: c > a),
    "rounded up": lambda counts, missing, label: mutated_steps(
        counts, missing, label, tie=lambda c, a: c < a, rounding=1
    ),
    "off by one": lambda counts, missing, label: steps(counts, missing, label) + 1,
    "open": lambda counts, missing, label: max(steps(counts, missing, label) - 1, 0),
    "missing answers forgotten": lambda counts, missing, label: steps([*counts, 0], 0, label),
}
SPLITS = {
    "no lower clip": lambda *at: mutated_split(*at, lower=-(10**6)),
    "no upper clip": lambda *at: mutated_split(*at, upper=10**6),
    "cut on the other side": lambda *at: mutated_split(*at, before=0),
    "period too short": lambda *at: mutated_split(*at, period=-1),
    "period too long": lambda *at: mutated_split(*at, period=1),
    "offset not added": lambda k, offsets, *at: split(k, 0 * offsets, *at),
    "offset subtracted": lambda k, offsets, *at: split(k, -offsets, *at),
    "one offset for all": only_first_offset,
    "two cuts per step": lambda k, offsets, *at: split(k, offsets, *at)[::2].repeat(2, axis=0)[: at[0]],
    "no cells": lambda k, offsets, evaluations, levels: np.tile(k / np.float32(levels - 1), (evaluations, 1)),
}
OTHERS = {
    "radius rounded to nearest": dataclasses.replace(
        LIBRARY, radius=lambda steps, levels: max(steps, 0) / (levels - 1)
    ),
    "radius by levels": dataclasses.replace(LIBRARY, radius=lambda steps, levels: max(steps, 0) / levels),
    "radius open": dataclasses.replace(LIBRARY, radius=lambda steps, levels: LIBRARY.radius(steps + 1, levels)),
    "largest index wins": dataclasses.replace(
        LIBRARY, answer=lambda counts, missing: len(counts) - 1 - int(np.argmax(counts[::-1]))
    ),
}
MUTANTS = (
    {name: dataclasses.replace(LIBRARY, safe_steps=formula) for name, formula in STEPS.items()}
    | {name: dataclasses.replace(LIBRARY, split=formula) for name, formula in SPLITS.items()}
    | OTHERS
)
UNSOUND = {"no tie", "tie reversed", "rounded up", "off by one", "missing answers forgotten", "radius open"}
"""Mutants by which some radius is too large: a pair of inputs must show it, not only another formula."""
CHANGES_TOO_MUCH = {"period too short", "two cuts per step", "no cells"}
"""Mutants by which a step changes more than one evaluation: a pair of inputs must show it."""


def everything_found(formulas: Formulas) -> set[str]:
    found: set[str] = set()
    for settings in SMALL:
        for seed in range(1 if settings["size"] == 3 else 3):
            found |= find_violations(formulas, make_world(seed, lead=0.3, **settings)).violations
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutated_formula_is_caught(name: str) -> None:
    found = everything_found(MUTANTS[name])
    assert found
    assert name not in UNSOUND or "answers" in found
    assert name not in CHANGES_TOO_MUCH or "votes" in found


def test_the_mutated_formulas_without_a_mutation_are_right() -> None:
    same = Formulas(
        split=mutated_split,
        answer=LIBRARY.answer,
        safe_steps=lambda counts, missing, label: mutated_steps(counts, missing, label, tie=lambda c, a: c < a),
        radius=LIBRARY.radius,
    )
    assert everything_found(same) == set()


@pytest.mark.parametrize(
    ("votes", "label", "survived"), [((3, 1), 0, 1), ((1, 3), 1, 0), ((2, 2), 0, 0), ((0, 2), 0, -1)]
)
def test_the_oracle_of_votes(votes: tuple[int, ...], label: int, survived: int) -> None:
    assert survived_changes(votes, label) == survived
