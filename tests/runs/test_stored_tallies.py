"""Tallies as rows: what goes in comes out, and a damaged row becomes a sentence."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sample_manifests import sample_manifest
from sample_points import POINT
from smoothcert.errors import CorruptRunError
from smoothcert.records import AnyTally, GradientTally, PairTally, ScoreTally, Stage, StreamId, Tally
from smoothcert.records.score_cells import SCORE_CELLS
from smoothcert.runs.store import RunStore
from smoothcert.runs.stored_tallies import tally_from_row, tally_row
from smoothcert.spec import RunManifest

SEED = 12
STREAM = StreamId(SEED, 0, Stage.ESTIMATION)
KIND, CLASSES, COUNTS, SUMS = 5, 6, 7, 8


def votes() -> Tally:
    return Tally(STREAM, 0.25, np.array([3, 7, 0]), 2, ((0, 12),))


def pairs() -> PairTally:
    return PairTally(
        STREAM, 0.25, np.array([3, 1, 0, 0]), np.array([1, 1, 0, 1]), np.array([2, 1, 0, 0]), ((100, 107),)
    )


def gradients() -> GradientTally:
    return GradientTally(
        STREAM,
        0.25,
        counts=np.array([3, 7, 0]),
        invalid=2,
        group=np.array([1, 0, 0, 0]),
        sums=np.arange(-6, 6).reshape(2, 2, 3) * 10**15,
        products=np.array([-(2**62), 2**62]),
        ranges=((20, 32),),
    )


def scores() -> ScoreTally:
    return ScoreTally(
        STREAM,
        0.25,
        counts=np.array([3, 7, 0]),
        invalid=2,
        label=1,
        cells=np.array([0, 9, SCORE_CELLS - 1, SCORE_CELLS, 2 * SCORE_CELLS - 1]),
        hits=np.array([1, 2, 7, 8, 2]),
        ranges=((20, 32),),
    )


def packed(*numbers: int) -> bytes:
    return zlib.compress(np.array(numbers, dtype="<i8").tobytes())


every_kind = pytest.mark.parametrize("make", [votes, pairs, gradients, scores])


def through_sqlite(tally: AnyTally) -> AnyTally:
    """The row as the database gives it back, not as it was handed over."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a, b, c, d, e, f, g, h, i)")
    connection.execute("INSERT INTO t VALUES (?,?,?,?,?,?,?,?,?)", tally_row(tally))
    (row,) = connection.execute("SELECT * FROM t").fetchall()
    connection.close()
    return tally_from_row(row, seed=tally.stream.seed)


@every_kind
def test_round_trip(make: Callable[[], AnyTally]) -> None:
    assert through_sqlite(make()) == make()


LARGE = st.integers(0, 10**11)


@given(st.lists(LARGE, min_size=2, max_size=1000), LARGE, st.sampled_from(list(Stage)), st.floats(1e-3, 1e3))
def test_any_votes(counts: list[int], invalid: int, stage: Stage, sigma: float) -> None:
    n = sum(counts) + invalid
    if n == 0:
        return
    tally = Tally(StreamId(2**64 - 1, 2**32 - 1, stage), sigma, np.array(counts), invalid, ((5, 5 + n),))
    assert through_sqlite(tally) == tally


@pytest.mark.parametrize("num_classes", [2, 10, 1000])
def test_any_number_of_classes(num_classes: int) -> None:
    generator = np.random.default_rng(num_classes)
    first, second = generator.integers(0, num_classes + 1, size=(2, 5000))
    same = first == second
    counted = [np.bincount(v, minlength=num_classes + 1) for v in (first[same], first[~same], second[~same])]
    pair = PairTally(STREAM, 0.5, *counted, ranges=((0, 5000),))
    assert through_sqlite(pair) == pair
    counts = np.bincount(first, minlength=num_classes + 1)
    limit = 2**63 - 1
    every = GradientTally(
        STREAM,
        0.5,
        counts=counts[:-1],
        invalid=int(counts[-1]),
        group=generator.permutation(num_classes + 1),
        sums=generator.integers(-limit, limit, size=(2, num_classes + 1, 7)),
        products=generator.integers(-limit, limit, size=num_classes + 1),
        ranges=((0, 5000),),
    )
    assert through_sqlite(every) == every


@given(st.integers(0, 2**32), st.integers(1, 5000), st.integers(0, 1))
@settings(max_examples=25)
def test_any_scores(seed: int, n: int, label: int) -> None:
    drawn = np.random.default_rng(seed).beta(0.3, 0.3, size=(2, n))
    both = (drawn * (SCORE_CELLS - 1)).astype(np.int64) + np.array([[0], [SCORE_CELLS]])
    cells, hits = np.unique(both, return_counts=True)
    tally = ScoreTally(STREAM, 0.5, np.array([n, 0]), 0, label, cells, hits, ((0, n),))
    assert through_sqlite(tally) == tally


def test_scores_are_stored_small() -> None:
    """Ten thousand scores of a usual spread take less than their votes would one by one."""
    scores = np.random.default_rng(0).beta(9, 1, size=(2, 10_000))
    both = (scores * (SCORE_CELLS - 1)).astype(np.int64) + np.array([[0], [SCORE_CELLS]])
    cells, hits = np.unique(both, return_counts=True)
    tally = ScoreTally(STREAM, 0.5, np.array([10_000, 0]), 0, 0, cells, hits, ((0, 10_000),))
    assert len(tally_row(tally)[SUMS]) < 40_000


def test_only_one_contiguous_range_is_a_row() -> None:
    apart = votes() + Tally(STREAM, 0.25, np.array([1, 0, 0]), 0, ((50, 51),))
    with pytest.raises(ValueError, match="unpack"):
        tally_row(apart)


def test_counts_can_be_read_by_a_person() -> None:
    assert json.loads(tally_row(votes())[COUNTS]) == {"votes": {"0": 3, "1": 7}, "invalid": 2}
    assert json.loads(tally_row(pairs())[COUNTS]) == {
        "both": {"0": 3, "1": 1},
        "first": {"0": 1, "1": 1, "3": 1},
        "second": {"0": 2, "1": 1},
    }


def changed(tally: AnyTally, **fields: object) -> str:
    return json.dumps(json.loads(tally_row(tally)[COUNTS]) | fields)


DAMAGES = {
    "no JSON": (votes, COUNTS, "{"),
    "no object": (votes, COUNTS, "[]"),
    "votes in a list": (votes, COUNTS, changed(votes(), votes=[3, 7])),
    "no votes": (votes, COUNTS, changed(votes(), votes=None)),
    "votes for a class that is not there": (votes, COUNTS, changed(votes(), votes={"0": 3, "9": 7})),
    "votes for a class before the first": (votes, COUNTS, changed(votes(), votes={"0": 3, "1": 7, "-3": 3})),
    "half a vote": (votes, COUNTS, changed(votes(), votes={"0": 3.5, "1": 7})),
    "no number": (votes, COUNTS, changed(votes(), votes={"0": "x", "1": 7})),
    "votes too many": (votes, COUNTS, changed(votes(), votes={"0": 3, "1": 8})),
    "negative votes": (votes, COUNTS, changed(votes(), votes={"0": 11, "1": -1})),
    "votes beyond 64 bits": (votes, COUNTS, changed(votes(), votes={"0": 2**70, "1": 7})),
    "invalid missing": (votes, COUNTS, '{"votes": {"0": 3, "1": 9}}'),
    "an unknown kind": (votes, KIND, "sums"),
    "a kind it is not": (votes, KIND, "pairs"),
    "an unknown stage": (votes, 1, "REST"),
    "a negative index": (votes, 0, -1),
    "an empty range": (votes, 3, 0),
    "no sigma": (votes, 4, 0.0),
    "no classes": (votes, CLASSES, 0),
    "pairs without seconds": (pairs, COUNTS, '{"both": {"0": 5}, "first": {"0": 2}}'),
    "pairs that no votes can give": (pairs, COUNTS, changed(pairs(), both={"1": 4}, first={"0": 3}, second={"0": 3})),
    "pairs of fewer than no classes": (pairs, CLASSES, -1),
    "no sums": (gradients, SUMS, None),
    "sums that are text": (gradients, SUMS, "abc"),
    "sums that are not packed": (gradients, SUMS, b"abc"),
    "sums cut off": (gradients, SUMS, tally_row(gradients())[SUMS][:-3]),
    "sums of broken numbers": (gradients, SUMS, zlib.compress(bytes(90))),
    "sums of the wrong number": (gradients, SUMS, zlib.compress(bytes(88))),
    "sums of nothing": (gradients, SUMS, zlib.compress(b"")),
    "a group too many": (gradients, COUNTS, changed(gradients(), group=[1, 0, 2, 0])),
    "half a group": (gradients, COUNTS, changed(gradients(), group=[1, 0.5, 0, 0])),
    "products missing": (gradients, COUNTS, changed(gradients(), products=[])),
    "products that are one number": (gradients, COUNTS, changed(gradients(), products=3)),
    "scores without a label": (scores, COUNTS, '{"votes": {"0": 3, "1": 7}, "invalid": 2}'),
    "scores of a class that is not there": (scores, COUNTS, changed(scores(), label=3)),
    "scores of half a class": (scores, COUNTS, changed(scores(), label=0.5)),
    "no cells": (scores, SUMS, None),
    "cells that are not packed": (scores, SUMS, b"abc"),
    "cells cut off": (scores, SUMS, tally_row(scores())[SUMS][:-3]),
    "an odd number of cells": (scores, SUMS, packed(0, SCORE_CELLS, 10)),
    "cells that do not exist": (scores, SUMS, packed(0, 2 * SCORE_CELLS, 10, 10)),
    "cells out of order": (scores, SUMS, packed(SCORE_CELLS, 0, 10, 10)),
    "a score too few": (scores, SUMS, packed(0, SCORE_CELLS, 9, 10)),
    "a kind without scores": (scores, KIND, "gradients"),
    "products too large": (gradients, COUNTS, changed(gradients(), products=[2**70, 0])),
}


def manifest() -> RunManifest:
    return sample_manifest(seed=SEED)


COLUMNS = ("idx", "stage", "start", "stop", "sigma", "kind", "num_classes", "counts", "sums")


@every_kind
def test_a_store_gives_back_what_it_was_given(make: Callable[[], AnyTally], tmp_path: Path) -> None:
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add([replace(POINT, tallies=(make(),))])
        (point,) = store.points()
    assert point.tallies == (make(),)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_is_named(damage: str, tmp_path: Path) -> None:
    make, column, value = DAMAGES[damage]
    with RunStore.create(tmp_path / "run", manifest()) as store:
        store.add([replace(POINT, tallies=(make(),))])
    connection = sqlite3.connect(tmp_path / "run" / "results.sqlite")
    if isinstance(value, str) and COLUMNS[column] == "sums":
        value = value.encode()  # The table is strict: text cannot get there.
    connection.execute(f"UPDATE tallies SET {COLUMNS[column]} = ?", (value,))
    connection.commit()
    connection.close()
    with RunStore.open(tmp_path / "run") as store, pytest.raises(CorruptRunError, match=r"results\.sqlite"):
        store.points()


@every_kind
@settings(max_examples=50)
@given(st.data())
def test_any_json_in_place_of_the_counts_raises_what_the_store_expects(
    make: Callable[[], AnyTally], data: st.DataObject
) -> None:
    leaf = st.one_of(st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(), st.text(max_size=3))
    value = st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("01-x", max_size=2), inner, max_size=4),
    )
    names = ["votes", "invalid", "both", "first", "second", "group", "products", "label"]
    fields = data.draw(st.dictionaries(st.sampled_from(names), value, min_size=1, max_size=3))
    row = list(tally_row(make()))
    row[COUNTS] = json.dumps(json.loads(row[COUNTS]) | fields)
    try:
        found = tally_from_row(row, seed=SEED)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        return
    assert found.n == make().n
