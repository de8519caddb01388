"""Splitting by its definition, in exact fractions, and small worlds in which formulas for it are tried on all inputs.

Nothing here uses the code under test. A world is a grid of all inputs k/q with few coordinates, and a base classifier
given by a table over everything that it can be shown. `find_violations` compares formulas with the definition on all
inputs, all pairs of inputs and all possible votes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]


@functools.cache
def cell_middle(k: int, offset: int, s: int, *, evaluations: int, steps: int) -> Fraction:
    """The middle of the cell of k/q: cut at (c+½)/q for all whole c ≡ s+v (mod N), and clipped to [0, 1]."""
    x, reach = Fraction(k, steps), range(-evaluations - 1, steps + evaluations + 2)
    cuts = [Fraction(2 * c + 1, 2 * steps) for c in reach if (c - s - offset) % evaluations == 0]
    lower = max(cut for cut in cuts if cut < x)
    upper = min(cut for cut in cuts if cut > x)
    return (max(lower, Fraction(0)) + min(upper, Fraction(1))) / 2


def offset_by_hand(number: int, *, seed: int, evaluations: int) -> int:
    """⌊u·N/2⁶⁴⌋ for the 64-bit number u with this number in the key stream of ChaCha20 (RFC 8439), in whole numbers."""
    key = hashlib.sha256(b"smoothcert splitting offsets" + seed.to_bytes(16, "little")).digest()
    words = _chacha_block(key, number // 8)
    low, high = words[2 * (number % 8) : 2 * (number % 8) + 2]
    return ((high << 32 | low) * evaluations) >> 64


@functools.cache
def _chacha_block(key: bytes, counter: int) -> tuple[int, ...]:
    parts = [b"expand 32-byte k", key, counter.to_bytes(4, "little"), bytes(12)]
    octets = b"".join(parts)
    start = [int.from_bytes(octets[at : at + 4], "little") for at in range(0, 64, 4)]
    state = list(start)
    columns = [(i, 4 + i, 8 + i, 12 + i) for i in range(4)]
    diagonals = [(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4) for i in range(4)]
    for a, b, c, d in (columns + diagonals) * 10:
        for left, right, changed, places in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[left] = (state[left] + state[right]) % 2**32
            mixed = state[changed] ^ state[left]
            state[changed] = (mixed << places | mixed >> (32 - places)) % 2**32
    return tuple((mixed + first) % 2**32 for mixed, first in zip(state, start, strict=True))


@dataclass(frozen=True)
class Formulas:
    """What is tried. `missing` votes are those without a valid answer.

    split(k, offsets, evaluations, levels): (evaluations, d) float32. answer(counts, missing): a class, or None.
    safe_steps(counts, missing, label): changes of single votes that the class survives. radius(steps, levels): float64.
    """

    split: Callable[[NDArray[np.int32], NDArray[np.int32], int, int], NDArray[np.float32]]
    answer: Callable[[Sequence[int], int], int | None]
    safe_steps: Callable[[Sequence[int], int, int], int]
    radius: Callable[[int, int], float]


def look_up(shown: NDArray[np.float32], table: Whole, steps: int) -> Whole:
    """The entries of a table for rows of (n, size)."""
    numerators = np.rint(shown.astype(np.float64) * 4 * steps).astype(np.int64).clip(0, 4 * steps)
    place = np.zeros(len(shown), dtype=np.int64)
    for column in numerators.T:
        place = place * (4 * steps + 1) + column
    found: Whole = table[place]
    return found


@dataclass(frozen=True, eq=False)
class TableWorld:
    """All inputs of `size` coordinates k/steps, and a classifier that answers table[what it is shown].

    table: a class for every array of numerators of what may be shown, in units of 1/(4·steps), the last coordinate
    running fastest; `classes` stands for no valid answer.
    """

    size: int
    steps: int
    evaluations: int
    offsets: tuple[int, ...]
    classes: int
    table: Whole

    @functools.cached_property
    def inputs(self) -> Whole:
        """(m, size): all k."""
        return np.array(list(itertools.product(range(self.steps + 1), repeat=self.size)), dtype=np.int64)

    @functools.cached_property
    def distances(self) -> Whole:
        """(m, m): ℓ1, in steps."""
        found: Whole = np.abs(self.inputs[:, None] - self.inputs[None]).sum(axis=2)
        return found

    def shown(self, k: Sequence[int]) -> list[list[Fraction]]:
        """What the classifier is shown of one input, by definition."""
        return [
            [
                cell_middle(int(one), v, s, evaluations=self.evaluations, steps=self.steps)
                for one, v in zip(k, self.offsets, strict=True)
            ]
            for s in range(self.evaluations)
        ]

    def classify(self, shown: NDArray[np.float32]) -> Whole:
        """The classes of rows of (n, size)."""
        return look_up(shown, self.table, self.steps)


def make_world(
    seed: int, *, size: int, steps: int, evaluations: int, classes: int = 3, lead: float = 0.6, missing: float = 0.0
) -> TableWorld:
    """Random offsets and a random table. lead, missing: how often the table has its usual class, or no valid answer.

    The usual class depends on the sum of the coordinates, so that all classes win somewhere.
    """
    generator = np.random.default_rng(seed)
    offsets = tuple(int(v) for v in generator.integers(0, evaluations, size))
    width = 4 * steps + 1
    sums = np.indices((width,) * size).sum(axis=0).ravel()
    usual = generator.permutation(classes)[(sums * classes) // (sums.max() + 1)]
    table = np.where(generator.random(width**size) < lead, usual, generator.integers(0, classes, width**size))
    table = np.where(generator.random(width**size) < missing, classes, table)
    return TableWorld(size, steps, evaluations, offsets, classes, table)


@functools.cache
def _all_votes(evaluations: int, columns: int) -> Whole:
    """(m, columns): all ways to cast the votes."""
    dividers = itertools.combinations(range(evaluations + columns - 1), columns - 1)
    return np.array(
        [np.diff((-1, *places, evaluations + columns - 1)) - 1 for places in dividers], dtype=np.int64
    ).reshape(-1, columns)


def winner_by_definition(counts: Sequence[int], missing: int) -> int | None:
    """The first class with the most votes; None if more have no valid answer."""
    votes = [*counts, missing]
    best = votes.index(max(votes))
    return None if best == len(counts) else best


@functools.cache
def survived_changes(votes: tuple[int, ...], label: int) -> int:
    """How many votes may change, each to anything, before another class wins: by trying all votes. -1: it has lost."""
    every = _all_votes(sum(votes), len(votes))
    others = every[every.argmax(axis=1) != label]
    return int(np.maximum(np.array(votes) - others, 0).sum(axis=1).min()) - 1


@dataclass(frozen=True)
class Findings:
    """violations: the names of the statements that do not hold. beyond: for every input with an answer, its safe steps,
    and whether one step beyond them some input has another answer; inputs without any input so far away are left out.
    """

    violations: frozenset[str]
    beyond: tuple[tuple[int, bool], ...]


def find_violations(formulas: Formulas, world: TableWorld) -> Findings:
    """Try all statements of MATH.md, section 8, on all inputs of a world.

    "cells": what the classifier is shown is the middle of the cell, rounded once. "votes": no more evaluations change,
    and no count of votes changes by more, than two inputs are steps apart. "answers": no input within the radius has
    another answer. "winner": the answer is the first class with the most votes. "steps": exactly so many votes may
    change. "radius": it is the largest float64 that is not above steps/q.
    """
    offsets = np.array(world.offsets, dtype=np.int32)
    shown = np.stack(
        [formulas.split(k.astype(np.int32), offsets, world.evaluations, world.steps + 1) for k in world.inputs]
    )
    violations: set[str] = set()
    expected = np.array([[[float(x) for x in row] for row in world.shown(k)] for k in world.inputs], dtype=np.float32)
    if shown.tobytes() != expected.tobytes():
        violations.add("cells")
    votes = np.stack([np.bincount(world.classify(rows), minlength=world.classes + 1) for rows in shown])
    changed = (shown[:, None] != shown[None]).any(axis=3).sum(axis=2)
    moved = np.abs(votes[:, None] - votes[None]).max(axis=2)
    if (np.maximum(changed, moved) > world.distances).any():
        violations.add("votes")
    answers = [formulas.answer(row[:-1].tolist(), int(row[-1])) for row in votes]
    if answers != [winner_by_definition(row[:-1].tolist(), int(row[-1])) for row in votes]:
        violations.add("winner")
    beyond = []
    for row, label in enumerate(answers):
        if label is None:
            continue
        counts, missing = votes[row, :-1].tolist(), int(votes[row, -1])
        steps = formulas.safe_steps(counts, missing, label)
        if steps != survived_changes((*counts, missing), label):
            violations.add("steps")
        radius = formulas.radius(steps, world.steps + 1)
        least = Fraction(max(steps, 0), world.steps)
        if not Fraction(radius) <= least < Fraction(math.nextafter(radius, math.inf)):
            violations.add("radius")
        reach = math.floor((Fraction(radius) + Fraction(1, 10**9)) * world.steps)
        others = np.array([answer != label for answer in answers])
        if others[world.distances[row] <= reach].any():
            violations.add("answers")
        if (ring := world.distances[row] == reach + 1).any():
            beyond.append((reach, bool(others[ring].any())))
    return Findings(frozenset(violations), tuple(beyond))
