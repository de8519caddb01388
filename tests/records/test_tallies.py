"""Tallies: merging in any order, refusing what cannot be, and the tally of fewer samples."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.records import (
    AnyTally,
    GradientTally,
    PairTally,
    ScoreTally,
    Stage,
    StreamId,
    Tally,
    TallyKind,
    merge,
)
from smoothcert.records.score_cells import SCORE_CEILING, SCORE_CELLS, SCORE_FLOOR, score_cell
from smoothcert.records.tallies import GRADIENT_UNIT
from smoothcert.statistics import first_samples

STREAM = StreamId(7, 3, Stage.ESTIMATION)
CLASSES = 3


def votes(start: int, stop: int, *, seed: int = 0, stream: StreamId = STREAM, sigma: float = 0.5) -> Tally:
    drawn = np.random.default_rng([seed, start]).integers(0, CLASSES + 1, size=stop - start)
    counts = np.bincount(drawn, minlength=CLASSES + 1)
    return Tally(stream, sigma, counts[:-1], int(counts[-1]), ((start, stop),))


def pairs(start: int, stop: int, *, seed: int = 0, stream: StreamId = STREAM, sigma: float = 0.5) -> PairTally:
    first, second = np.random.default_rng([seed, start]).integers(0, CLASSES + 1, size=(2, stop - start))
    same = first == second
    counted = [np.bincount(v, minlength=CLASSES + 1) for v in (first[same], first[~same], second[~same])]
    return PairTally(stream, sigma, *counted, ranges=((start, stop),))


def gradients(
    start: int,
    stop: int,
    *,
    seed: int = 0,
    stream: StreamId = STREAM,
    sigma: float = 0.5,
    group: tuple[int, ...] = (0, 1, 1, 1),
    dimension: int = 5,
) -> GradientTally:
    plain = votes(start, stop, seed=seed, stream=stream, sigma=sigma)
    generator = np.random.default_rng([seed, start, 1])
    groups = max(group) + 1
    return GradientTally(
        stream,
        sigma,
        plain.counts,
        plain.invalid,
        np.array(group),
        generator.integers(-(2**40), 2**40, size=(2, groups, dimension)),
        generator.integers(-(2**40), 2**40, size=groups),
        ((start, stop),),
    )


def scores(
    start: int,
    stop: int,
    *,
    seed: int = 0,
    stream: StreamId = STREAM,
    sigma: float = 0.5,
    label: int = 1,
) -> ScoreTally:
    plain = votes(start, stop, seed=seed, stream=stream, sigma=sigma)
    drawn = np.random.default_rng([seed, start, 2]).beta(0.5, 0.5, size=(2, stop - start - plain.invalid))
    cells, hits = np.unique(score_cell(drawn) + np.array([[0], [SCORE_CELLS]]), return_counts=True)
    return ScoreTally(stream, sigma, plain.counts, plain.invalid, label, cells, hits, ((start, stop),))


MAKERS: list[Callable[..., AnyTally]] = [votes, pairs, gradients, scores]
every_kind = pytest.mark.parametrize("make", MAKERS, ids=[str(kind) for kind in TallyKind])


@every_kind
def test_kinds(make: Callable[..., AnyTally]) -> None:
    tally = make(0, 10)
    assert tally.kind is list(TallyKind)[MAKERS.index(make)]
    assert tally.num_classes == CLASSES
    assert tally.n == (20 if make is pairs else 10)


@every_kind
@given(st.lists(st.integers(1, 20), min_size=3, max_size=6), st.randoms(use_true_random=False))
def test_merging_does_not_depend_on_order_or_brackets(
    make: Callable[..., AnyTally], lengths: list[int], random: object
) -> None:
    ends = list(itertools.accumulate((2 * length for length in lengths), initial=0))
    parts = [make(start, stop) for start, stop in itertools.pairwise(ends)]
    a, b, c, *rest = parts
    assert (a + b) + c == a + (b + c)
    assert a + c == c + a
    whole = merge(parts)
    random.shuffle(parts)  # type: ignore[attr-defined]
    assert merge(parts) == whole
    assert whole.ranges == ((0, ends[-1]),)
    assert whole.n == sum(part.n for part in (a, b, c, *rest))


@every_kind
def test_gaps_are_remembered(make: Callable[..., AnyTally]) -> None:
    apart = make(0, 10) + make(20, 24)
    assert apart.ranges == ((0, 10), (20, 24))
    assert (apart + make(10, 20)).ranges == ((0, 24),)


@every_kind
def test_what_does_not_merge(make: Callable[..., AnyTally]) -> None:
    tally = make(0, 10)
    with pytest.raises(InputError, match="counted twice"):
        tally + tally
    with pytest.raises(InputError, match="counted twice"):
        tally + make(8, 12)
    for stream in (
        StreamId(8, 3, Stage.ESTIMATION),
        StreamId(7, 4, Stage.ESTIMATION),
        StreamId(7, 3, Stage.SELECTION),
    ):
        with pytest.raises(InputError, match="different streams"):
            tally + make(10, 20, stream=stream)
    with pytest.raises(InputError, match="sigma"):
        tally + make(10, 20, sigma=0.25)


@pytest.mark.parametrize("one", MAKERS)
@pytest.mark.parametrize("other", MAKERS)
def test_other_kinds_do_not_merge(one: Callable[..., AnyTally], other: Callable[..., AnyTally]) -> None:
    if one is other:
        assert merge([one(0, 10), other(10, 20)]).kind is one(0, 2).kind
        return
    with pytest.raises(InputError, match="do not merge"):
        merge([one(0, 10), other(10, 20)])
    with pytest.raises(TypeError):
        one(0, 10) + other(10, 20)


def test_nothing_to_merge() -> None:
    with pytest.raises(InputError, match="nothing to merge"):
        merge([])


def test_gradients_of_other_groups_or_dimension_do_not_merge() -> None:
    tally = gradients(0, 10)
    with pytest.raises(InputError, match="other groups"):
        tally + gradients(10, 20, group=(1, 0, 1, 1))
    with pytest.raises(InputError, match="other groups"):
        tally + gradients(10, 20, group=(0, 1, 2, 3))
    with pytest.raises(InputError, match="another dimension"):
        tally + gradients(10, 20, dimension=6)


@every_kind
def test_equality(make: Callable[..., AnyTally]) -> None:
    tally = make(0, 30)
    assert tally == make(0, 30)
    assert tally != make(0, 30, seed=1)
    assert tally != make(0, 30, sigma=0.25)
    assert tally != make(0, 30, stream=StreamId(7, 4, Stage.ESTIMATION))
    assert tally != dataclasses.replace(tally, ranges=((30, 60),))
    assert tally not in [other(0, 30) for other in MAKERS if other is not make]
    assert tally != "a tally"
    with pytest.raises(TypeError, match="unhashable"):
        hash(tally)


def array_fields(tally: AnyTally) -> list[str]:
    return [f.name for f in dataclasses.fields(tally) if isinstance(getattr(tally, f.name), np.ndarray)]


@every_kind
def test_nobody_can_write_into_a_tally(make: Callable[..., AnyTally]) -> None:
    tally = make(0, 10) + make(10, 20)
    fields = array_fields(tally)
    assert len(fields) == {votes: 1, pairs: 3, gradients: 4, scores: 3}[make]
    for name in fields:
        array = getattr(tally, name)
        assert array.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        tally.sigma = 1.0  # type: ignore[misc]


def test_a_tally_does_not_keep_the_array_it_was_given() -> None:
    counts = np.array([3, 7])
    tally = Tally(STREAM, 0.5, counts, 0, ((0, 10),))
    counts[0] = 9
    assert tally.counts.tolist() == [3, 7]


@every_kind
def test_each_field_is_checked(make: Callable[..., AnyTally]) -> None:
    tally = make(0, 20)
    for sigma in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="sigma"):
            dataclasses.replace(tally, sigma=sigma)
    with pytest.raises(InputError, match="samples cannot hold"):
        dataclasses.replace(tally, ranges=((0, 22),))
    for ranges in (((5, 5),), ((-2, 18),), ((20, 0),)):
        with pytest.raises(InputError, match="empty or negative"):
            dataclasses.replace(tally, ranges=ranges)
    with pytest.raises(InputError, match="counted twice"):
        dataclasses.replace(tally, ranges=((0, 12), (8, 16)))


def test_counts_that_cannot_be() -> None:
    with pytest.raises(InputError, match="negative"):
        Tally(STREAM, 0.5, np.array([11, -1]), 0, ((0, 10),))
    with pytest.raises(InputError, match="negative"):
        Tally(STREAM, 0.5, np.array([6, 5]), -1, ((0, 10),))
    with pytest.raises(InputError, match="two classes"):
        Tally(STREAM, 0.5, np.array([10]), 0, ((0, 10),))
    with pytest.raises(InputError, match="two classes"):
        Tally(STREAM, 0.5, np.array([[5, 5]]), 0, ((0, 10),))


def pair_tally(both: object, first: object, second: object, n: int = 10) -> PairTally:
    return PairTally(STREAM, 0.5, np.array(both), np.array(first), np.array(second), ((0, n),))


@pytest.mark.parametrize(
    ("both", "first", "second", "message"),
    [
        ([5, 0, 0], [5, 0, 0], [0, 4, 0], "cannot hold 9 votes"),
        ([5, 0, 0], [4, 0, 0], [0, 5, 0], "cannot hold 9 votes"),
        ([11, -1, 0], [0, 0, 0], [0, 0, 0], "negative"),
        ([6, -1, 0], [4, 1, 0], [4, 1, 0], "negative"),
        ([5, 0, 0], [6, -1, 0], [0, 5, 0], "negative"),
        ([5, 0, 0], [5, 0], [0, 5, 0], "shapes"),
        ([10, 0], [0, 0], [0, 0], "two classes"),
    ],
)
def test_pair_counts_that_cannot_be(both: object, first: object, second: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pair_tally(both, first, second)


@pytest.mark.parametrize(
    ("both", "first", "second"),
    [
        ([5, 0, 0], [5, 0, 0], [5, 0, 0]),  # a pair with both votes on class 0 is not a pair with the first only
        ([0, 0, 0], [8, 2, 0], [8, 2, 0]),  # sixteen one-sided pairs of ten
    ],
)
def test_pairs_that_no_votes_can_give(both: list[int], first: list[int], second: list[int]) -> None:
    with pytest.raises(InputError):
        pair_tally(both, first, second)


@pytest.mark.parametrize("wrong", [[], 3, [[5, 0, 0], [5, 0, 0]]])
def test_pair_counts_of_another_shape_are_a_sentence(wrong: object) -> None:
    with pytest.raises(InputError):
        pair_tally(wrong, np.zeros_like(np.array(wrong)), np.zeros_like(np.array(wrong)))


def test_counts_are_whole_numbers() -> None:
    """3.7 votes are no votes; cutting them to 3 would hide a mistake."""
    with pytest.raises(InputError):
        Tally(STREAM, 0.5, np.array([3.7, 7.2]), 0, ((0, 10),))  # type: ignore[arg-type]


def test_counts_too_large_to_add_are_refused() -> None:
    """Four times 2^62 is 0 in 64 bits."""
    with pytest.raises(InputError):
        Tally(STREAM, 0.5, np.array([2**62, 2**62, 2**62, 2**62, 10]), 0, ((0, 10),))


def test_pair_counts_by_class() -> None:
    tally = pair_tally([4, 1, 0], [3, 1, 1], [2, 3, 0])
    assert [tally.one_sided(c) for c in range(3)] == [5, 4, 1]
    assert [tally.neither(c) for c in range(3)] == [1, 5, 9]
    assert tally.pairs == 10
    assert tally.n == 20


def test_independent_votes() -> None:
    plain = votes(0, 10)
    assert plain.independent_votes() is plain
    tally = pair_tally([4, 1, 0], [3, 1, 1], [2, 3, 0])
    assert tally.independent_votes() == Tally(STREAM, 0.5, np.array([7, 2]), 1, ((0, 10),))
    sums = gradients(0, 10)
    assert sums.independent_votes() == plain
    assert sums.independent_votes().stream == STREAM


@pytest.mark.parametrize("ranges", [((1, 11),), ((0, 5), (6, 11)), ((0, 4), (5, 11))])
def test_gradients_count_whole_pairs(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InputError, match="even counters"):
        dataclasses.replace(gradients(0, 10), ranges=ranges)


@pytest.mark.parametrize(
    "change",
    [
        {"group": np.array([0, 1, 1])},
        {"group": np.array([0, 1, 1, 2])},
        {"group": np.array([0, 0, 0, 0])},
        {"group": np.array([-1, 0, 1, 1])},
        {"sums": np.zeros((2, 3, 5), dtype=int)},
        {"sums": np.zeros((1, 2, 5), dtype=int)},
        {"sums": np.zeros((2, 5), dtype=int)},
        {"products": np.zeros(3, dtype=int)},
        {"products": np.zeros((1, 2), dtype=int)},
        {"sums": np.zeros((2, 2, 0), dtype=int)},
    ],
    ids=lambda change: ", ".join(f"{name} {value.shape}" for name, value in change.items()),
)
def test_gradient_sums_that_do_not_fit(change: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError, match="gradient tally"):
        dataclasses.replace(gradients(0, 10), **change)


def test_own_group() -> None:
    tally = gradients(0, 10, group=(1, 0, 2, 2))
    assert (tally.own_group(0), tally.own_group(1)) == (1, 0)
    for together in (2, 3):
        with pytest.raises(InputError, match=f"class {together} is not available"):
            tally.own_group(together)


def test_scores_of_another_class_do_not_merge() -> None:
    with pytest.raises(InputError, match="class 1 and of class 0 do not merge"):
        scores(0, 10) + scores(10, 20, label=0)


def test_votes_of_scores() -> None:
    assert scores(0, 100).independent_votes() == votes(0, 100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 3}, "class 3"),
        ({"label": -1}, "class -1"),
        ({"label": 0.0}, "class 0.0"),
        ({"cells": np.array([[1, SCORE_CELLS]]), "hits": np.array([[9, 9]])}, "shape"),
        ({"cells": np.array([1, 2, SCORE_CELLS])}, "shape"),
        ({"cells": np.array([SCORE_CELLS, 1]), "hits": np.array([9, 9])}, "increase"),
        ({"cells": np.array([1, 1, SCORE_CELLS]), "hits": np.array([4, 5, 9])}, "increase"),
        ({"cells": np.array([-1, SCORE_CELLS]), "hits": np.array([9, 9])}, "within 0"),
        ({"cells": np.array([1, 2 * SCORE_CELLS]), "hits": np.array([9, 9])}, "within 0"),
        ({"hits": np.array([9, 0, 9]), "cells": np.array([1, 2, SCORE_CELLS])}, r"1 … 9"),
        ({"hits": np.array([2**62, 9]), "cells": np.array([1, SCORE_CELLS])}, r"1 … 9"),
        ({"hits": np.array([9, 8]), "cells": np.array([1, SCORE_CELLS])}, "cannot hold 8 scores"),
        ({"hits": np.array([9]), "cells": np.array([SCORE_CELLS])}, "cannot hold 0 scores"),
        ({"hits": np.array([9.5, 9]), "cells": np.array([1, SCORE_CELLS])}, "needs integers"),
    ],
)
def test_scores_that_cannot_be(change: dict[str, object], message: str) -> None:
    tally = ScoreTally(
        STREAM,
        0.5,
        counts=np.array([4, 5, 0]),
        invalid=1,
        label=1,
        cells=np.array([7, SCORE_CELLS + 7]),
        hits=np.array([9, 9]),
        ranges=((0, 10),),
    )
    with pytest.raises(InputError, match=message):
        dataclasses.replace(tally, **change)


# --- cells of scores ---


@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 5e-324, 0.5, 1 - 2**-53, 1.0])), min_size=1))
def test_a_score_lies_in_its_cell(given: list[float]) -> None:
    values = np.array(given)
    cells = score_cell(values)
    assert (SCORE_FLOOR[cells] <= values).all()
    assert (values <= SCORE_CEILING[cells]).all()
    order = np.argsort(values)
    assert (np.diff(cells[order]) >= 0).all()


def test_the_ends_and_the_edges_of_cells() -> None:
    """A classifier that is certain loses nothing: 0 and 1 have cells of their own."""
    assert score_cell(np.array([0.0, 1.0])).tolist() == [0, SCORE_CELLS - 1]
    assert (SCORE_FLOOR[-1], SCORE_CEILING[-1], SCORE_FLOOR[0], SCORE_CEILING[0]) == (1.0, 1.0, 0.0, 0.0)
    edges = SCORE_FLOOR[1:-1]
    assert (np.diff(edges) > 0).all()
    np.testing.assert_array_equal(score_cell(edges[1:]), np.arange(2, SCORE_CELLS - 1))
    np.testing.assert_array_equal(score_cell(np.nextafter(edges[1:], 0.0)), np.arange(1, SCORE_CELLS - 2))
    width = SCORE_CEILING - SCORE_FLOOR
    assert width.max() < 1e-4
    # Near 1 the width follows the distance from it, down to 1e-8.
    assert width[-2] < 1e-8
    with pytest.raises(ValueError, match="read-only"):
        SCORE_FLOOR[3] = 0.0


def test_the_unit_leaves_room_for_the_largest_number_of_samples() -> None:
    from smoothcert.records import MOST_SAMPLES

    largest_normal = 6.7
    assert MOST_SAMPLES * largest_normal / GRADIENT_UNIT < 2**63


# --- the tally of fewer samples ---


@pytest.mark.parametrize("make", [pairs, gradients, scores])
def test_fewer_samples_at_the_ends_of_segments(make: Callable[..., AnyTally]) -> None:
    parts = [make(0, 10), make(10, 20), make(20, 50)]
    per_draw = parts[0].n // 10
    assert first_samples(parts, 10 * per_draw) == parts[0]
    assert first_samples(parts[::-1], 20 * per_draw) == parts[0] + parts[1]
    assert first_samples(parts, 50 * per_draw) == merge(parts)


@pytest.mark.parametrize(("make", "ends"), [(pairs, "20, 40, 100"), (gradients, "10, 20, 50"), (scores, "10, 20, 50")])
@pytest.mark.parametrize("n", [1, 9, 12, 45])
def test_fewer_samples_elsewhere_are_refused_with_what_is_possible(
    make: Callable[..., AnyTally], ends: str, n: int
) -> None:
    parts = [make(0, 10), make(10, 20), make(20, 50)]
    with pytest.raises(InputError, match=f"n={n} is not possible with {parts[0].kind}: use one of {ends}"):
        first_samples(parts, n)


@every_kind
@pytest.mark.parametrize("n", [0, -2, 101])
def test_more_samples_than_there_are(make: Callable[..., AnyTally], n: int) -> None:
    parts = [make(0, 10), make(10, 50)]
    with pytest.raises(InputError, match=f"1 … {100 if make is pairs else 50}"):
        first_samples(parts, n)
