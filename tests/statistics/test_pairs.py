"""Bounds from pairs of votes: published values, edge cases, and the monotonicity the joint region rests on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dipole_bound import dipole_lower_bound
from smoothcert.certificates import dipole_radius
from smoothcert.errors import InputError
from smoothcert.records import PairTally, Stage, StreamId
from smoothcert.statistics import clopper_pearson_lower
from smoothcert.statistics.pairs import CORNERS, both_lower, one_sided_lower, pair_region, pairs_of_every_class

STREAM = StreamId(1, 0, Stage.ESTIMATION)


def tally(pairs: int, both: int, first: int, second: int) -> PairTally:
    """Two classes; class 0 has both votes, only the first, or only the second of so many pairs."""
    return PairTally(
        STREAM,
        0.25,
        both=np.array([both, pairs - both - first - second, 0]),
        first_only=np.array([first, second, 0]),
        second_only=np.array([second, first, 0]),
        ranges=((0, pairs),),
    )


def corners(pairs: int, both: int, one_sided: int, *, alpha: float = 0.001) -> tuple[np.ndarray, np.ndarray]:
    first = one_sided - one_sided // 2
    return pair_region([tally(pairs, both, first, one_sided - first)], [0], alpha)


def radius(pairs: int, both: int, one_sided: int, *, alpha: float = 0.001) -> float:
    return float(dipole_radius(*corners(pairs, both, one_sided, alpha=alpha), sigma=1.0).min())


def test_separate_bounds_as_published() -> None:
    """σ = 0.25, n = 100000, α = 0.001: the check values of the dipole certificate."""
    tallies = [tally(50_000, 44_963, 2521, 2500), tally(50_000, 27_290, 10_165, 10_165)]
    both, one_sided = (bound(tallies, [0, 0], 0.0005) for bound in (both_lower, one_sided_lower))
    assert both[0] == pytest.approx(0.89476036, abs=1e-8)
    assert one_sided[0] == pytest.approx(0.04725806, abs=1e-8)
    assert dipole_radius(both, one_sided, sigma=0.25) == pytest.approx([0.40492846, 0.17465924], abs=1e-8)


def test_separate_bounds_look_at_the_first_vote_only() -> None:
    assert one_sided_lower([tally(1000, 500, 0, 400)], [0], 0.001) == 0.0
    assert one_sided_lower([tally(1000, 500, 400, 0)], [0], 0.001) > 0.3


def test_the_region_counts_either_vote() -> None:
    one, other = (pair_region([tally(1000, 500, *split)], [0], 0.001) for split in ((400, 0), (150, 250)))
    np.testing.assert_array_equal(one, other)


def test_corners_are_conditional_bounds() -> None:
    """At the first corner C_S is bounded most cautiously, at the last the share of one-sided pairs is."""
    both, one_sided = corners(1000, 700, 200)
    assert both.shape == one_sided.shape == (CORNERS, 1)
    assert (np.diff(both[:, 0]) > 0).all()
    share = 2 * one_sided / (1 - both)
    assert (np.diff(share[:, 0]) < 0).all()
    assert both.max() < 0.7
    assert share.max() < 200 / 300
    assert both.min() > clopper_pearson_lower(700, 1000, alpha=1e-5)
    assert share.min() > clopper_pearson_lower(200, 300, alpha=1e-6)


@pytest.mark.parametrize("alpha", [1e-90, 0.001, 0.499])
@pytest.mark.parametrize(
    ("pairs", "both", "one_sided"),
    [(1, 0, 0), (1, 1, 0), (1, 0, 1), (2, 1, 1), (10**12, 10**12, 0), (10**12, 0, 10**12), (10**12, 1, 1)],
)
def test_edges(pairs: int, both: int, one_sided: int, alpha: float) -> None:
    lower_both, lower_one = corners(pairs, both, one_sided, alpha=alpha)
    assert np.isfinite(lower_both).all()
    assert np.isfinite(lower_one).all()
    assert (lower_both >= 0).all()
    assert (lower_one >= 0).all()
    assert (lower_both + 2 * lower_one <= 1).all()
    assert (lower_both <= both / pairs).all()
    if both == 0:
        assert (lower_both == 0).all()
    if one_sided == 0:
        assert (lower_one == 0).all()


def test_all_pairs_unanimous_is_close_to_what_plain_votes_prove() -> None:
    """Then only C_S counts; the region gives away some of α for what it could have said of the rest."""
    both, _ = corners(50_000, 50_000, 0)
    assert both.min() >= clopper_pearson_lower(50_000, 50_000, alpha=0.0002)
    assert both.min() < clopper_pearson_lower(50_000, 50_000, alpha=0.001)


@pytest.mark.parametrize("alpha", [0.0, 1e-120])
def test_an_alpha_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        corners(10, 5, 1, alpha=alpha)
    with pytest.raises(InputError, match="alpha"):
        pairs_of_every_class([tally(10, 5, 1, 0)], [0], alpha)


@given(st.data())
def test_more_votes_for_the_class_never_make_the_radius_smaller(data: st.DataObject) -> None:
    """A pair that moves from neither to one-sided, or from one-sided to both."""
    pairs = data.draw(st.integers(20, 2000))
    both = data.draw(st.integers(pairs // 2, pairs - 1))
    one_sided = data.draw(st.integers(0, pairs - both - 1))
    here = radius(pairs, both, one_sided)
    assert radius(pairs, both, one_sided + 1) >= here * (1 - 1e-9)
    if one_sided:
        assert radius(pairs, both + 1, one_sided - 1) >= here * (1 - 1e-9)


@given(st.floats(0, 0.999), st.floats(0, 0.999), st.floats(0, 1), st.floats(0, 1), st.floats(0, 6))
def test_theorem_3_grows_with_both_at_a_fixed_share_of_one_sided(
    one: float, other: float, share: float, larger: float, distance: float
) -> None:
    """What makes a corner below the truth safe: at every distance, not only where the bound is one half."""
    low, high = sorted((one, other))
    w, w_high = sorted((share, larger))
    at_low = dipole_lower_bound(low, 0.5 * w * (1 - low), distance=distance)
    at_high = dipole_lower_bound(high, 0.5 * w_high * (1 - high), distance=distance)
    assert at_high >= at_low - 1e-13


def three_classes() -> PairTally:
    """Counted on fingers: 20 pairs (first vote, second vote): 10 x (0,0), 3 x (0,1), 2 x (1,0), 2 x (1,1), 1 x (0,2),
    1 x (2,2), 1 x (invalid, 0).
    """
    return PairTally(
        STREAM,
        0.25,
        both=np.array([10, 2, 1, 0]),
        first_only=np.array([4, 2, 0, 1]),
        second_only=np.array([3, 3, 1, 0]),
        ranges=((0, 20),),
    )


def test_every_class_by_hand() -> None:
    """α = 0.08 over four classes (invalid is one) and two bounds each: 0.01."""
    both, one_sided, neither, other = pairs_of_every_class([three_classes()], [0], 0.08)

    def chained(hits: int, split: int) -> tuple[float, float]:
        first = float(clopper_pearson_lower(hits, 20, alpha=0.01))
        return first, 0.5 * (1 - first) * float(clopper_pearson_lower(split, 20 - hits, alpha=0.01))

    assert (both[0], one_sided[0]) == pytest.approx(chained(10, 7), rel=1e-9)
    # Class 1: 2 both, 5 one-sided, 13 neither; class 2: 1, 1, 18; invalid: 0, 1, 19.
    expected = [chained(13, 5), chained(18, 1), chained(19, 1)]
    assert list(zip(neither[:, 0], other[:, 0], strict=True)) == [pytest.approx(pair, rel=1e-9) for pair in expected]


def test_every_class_leaves_out_the_label_whichever_it_is() -> None:
    tallies = [three_classes()] * 3
    both, _, neither, _ = pairs_of_every_class(tallies, [0, 1, 2], 0.08)
    assert both[0] > both[1] > both[2]
    # Rows: the other classes in order, then invalid.
    assert neither[0, 1] == neither[0, 2] < neither[0, 0]
    assert neither[2, 0] == neither[2, 1] == neither[2, 2]


def test_bounds_are_rounded_down() -> None:
    """The conditional bound in more digits than float64 holds."""
    import mpmath

    for pairs, hits, split in [(1000, 700, 200), (50_000, 49_990, 3), (7, 3, 4)]:
        alpha = 0.01 * 6
        both, one_sided, *_ = pairs_of_every_class([tally(pairs, hits, split, 0)], [0], alpha)
        with mpmath.workdps(40):
            for k, n, bound in [(hits, pairs, mpmath.mpf(both[0])), (split, pairs - hits, None)]:
                lower = bound if bound is not None else 2 * mpmath.mpf(one_sided[0]) / (1 - mpmath.mpf(both[0]))
                level = mpmath.betainc(k, n - k + 1, 0, lower, regularized=True)
                assert level <= mpmath.mpf(alpha) / 6
                assert level > 0.999999 * alpha / 6
