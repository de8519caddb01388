"""Properties of the selected radius, and of how the error probability is shared, over all arguments."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpmath import erfinv, mp, mpf, sqrt

from selected_points import radius_by_definition, selection_of_levels
from smoothcert.certificates.selected_sigma import exclusion_radii, published_radius, selected_radius
from smoothcert.errors import InputError
from smoothcert.records import Proof

RADII = st.one_of(st.just(0.0), st.floats(1e-6, 10.0))
CHANCES = st.floats(1e-9, 1 - 1e-9)


@st.composite
def levels(draw: st.DrawFn) -> tuple[list[float], list[float], int]:
    """Exclusions, radii, and the leading level, whose exclusion is 0."""
    count = draw(st.integers(2, 5))
    excluded = draw(st.lists(RADII, min_size=count, max_size=count))
    radii = draw(st.lists(RADII, min_size=count, max_size=count))
    leading = draw(st.integers(0, count - 1))
    excluded[leading] = 0.0
    return excluded, radii, leading


@given(levels())
def test_it_is_the_largest_radius_of_the_definition(case: tuple[list[float], list[float], int]) -> None:
    excluded, radii, _ = case
    assert selected_radius(excluded, radii) == radius_by_definition(excluded, radii)


@given(levels())
def test_never_below_the_published_form_for_the_same_bounds(case: tuple[list[float], list[float], int]) -> None:
    """R_s is the distance below which no other level is selected: the smallest of the exclusions."""
    excluded, radii, leading = case
    reach = min(e for level, e in enumerate(excluded) if level != leading)
    assert selected_radius(excluded, radii) >= published_radius(reach, radii[leading])


@given(levels())
def test_with_one_level_sampled_it_is_the_published_form(case: tuple[list[float], list[float], int]) -> None:
    excluded, radii, leading = case
    alone = [radius if level == leading else 0.0 for level, radius in enumerate(radii)]
    reach = min(e for level, e in enumerate(excluded) if level != leading)
    assert selected_radius(excluded, alone) == published_radius(reach, radii[leading])


@given(levels(), st.integers(0, 4), st.floats(0, 5), st.booleans())
def test_monotone_in_every_argument(
    case: tuple[list[float], list[float], int], at: int, more: float, of_exclusion: bool
) -> None:
    excluded, radii, _ = case
    larger = (list(excluded), list(radii))
    part = larger[0] if of_exclusion else larger[1]
    part[at % len(part)] += more
    before, after = selected_radius(excluded, radii), selected_radius(*larger)
    assert before <= after <= before + more
    reach, own = excluded[0], radii[0]
    assert published_radius(reach, own) <= published_radius(reach + more, own) <= published_radius(reach, own) + more


@given(levels(), st.randoms())
def test_the_order_of_levels_is_irrelevant(case: tuple[list[float], list[float], int], random: object) -> None:
    excluded, radii, _ = case
    pairs = list(zip(excluded, radii, strict=True))
    random.shuffle(pairs)  # type: ignore[attr-defined]
    assert selected_radius([e for e, _ in pairs], [r for _, r in pairs]) == selected_radius(excluded, radii)


@given(levels())
def test_no_more_than_the_leading_level_proves_and_no_less_than_the_worst_pair(
    case: tuple[list[float], list[float], int],
) -> None:
    excluded, radii, leading = case
    radius = selected_radius(excluded, radii)
    assert radius <= radii[leading]
    assert all(radius <= max(e, r) for e, r in zip(excluded, radii, strict=True))
    assert radius >= min(radii)


@pytest.mark.slow
@given(CHANCES, st.lists(CHANCES, min_size=1, max_size=4), st.floats(0.01, 8.0))
def test_exclusions_are_those_of_the_theorem_rounded_down(p: float, others: list[float], sigma: float) -> None:
    """Against 40 digits: σ_s/2 (Φ⁻¹(p_j) - Φ⁻¹(p̄_k)), with p̄_k at most 1 - p_j, and 0 below 0."""
    found = exclusion_radii(p, [math.nan, *others], sigma=sigma)
    assert found[0] == 0.0
    with mp.workdps(40):

        def quantile(q: mpf) -> mpf:
            return sqrt(2) * erfinv(2 * q - 1)

        for reach, other in zip(found[1:], others, strict=True):
            exact = max(mpf(sigma) / 2 * (quantile(mpf(p)) - quantile(min(mpf(other), 1 - mpf(p)))), 0)
            assert reach <= exact
            assert reach >= exact - mpf(1e-9) * (sigma + exact)


@given(CHANCES, CHANCES, CHANCES, CHANCES, st.floats(0.01, 8.0))
def test_exclusions_grow_with_the_leader_and_shrink_with_the_other(
    one: float, two: float, three: float, four: float, sigma: float
) -> None:
    def reach(p: float, other: float) -> float:
        return float(exclusion_radii(p, [math.nan, other], sigma=sigma)[1])

    low, high = sorted((one, two))
    less, more = sorted((three, four))
    slack = 1e-9 * sigma  # each is rounded down by itself
    assert reach(low, less) <= reach(high, less) + slack
    assert reach(high, more) <= reach(high, less) + slack
    # A bound on one level that says less than the bound on the leading one adds nothing.
    assert reach(high, max(more, 1 - high)) == pytest.approx(reach(high, 1 - high), abs=slack)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_what_is_no_probability_excludes_nothing(p: float) -> None:
    assert exclusion_radii(p, [math.nan, 0.1], sigma=1.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
def test_what_is_no_radius_is_refused(bad: float) -> None:
    for call in (
        lambda: published_radius(bad, 1.0),
        lambda: published_radius(1.0, bad),
        lambda: selected_radius([0.0, bad], [1.0, 1.0]),
        lambda: selected_radius([0.0, 1.0], [1.0, bad]),
    ):
        with pytest.raises(InputError, match="is not a radius"):
            call()
    for excluded, radii in (([0.0], [1.0, 1.0]), ([], [])):
        with pytest.raises(InputError, match="one of each is needed"):
            selected_radius(excluded, radii)


@given(st.floats(1e-6, 0.4), st.floats(1e-6, 1 - 1e-6), st.integers(1, 7), st.sampled_from([None, 0.0, 0.125, 0.9]))
def test_the_shares_add_up_to_no_more_than_alpha(alpha: float, part: float, sampled: int, upper: float | None) -> None:
    """Exactly, in fractions: α_s, α_u and the share of a level; before, one share for every sampled level.

    upper: the part of what the selector leaves. Hardly anything is lost, and what is recorded adds up as well.
    """
    selector_alpha = alpha * part
    assume(0 < selector_alpha < alpha)
    selection = selection_of_levels(
        *(float(level) for level in range(1, 8)), alpha=alpha, selector_alpha=selector_alpha, sampled=sampled,
        upper_alpha=None if upper is None else upper * (alpha - selector_alpha),
    )  # fmt: skip
    levels = (sampled if upper is None else 1) * Fraction(selection.level_alpha)
    spent = Fraction(selector_alpha) + Fraction(selection.upper_alpha or 0) + levels
    assert Fraction(alpha) * (1 - Fraction(1, 10**12)) <= spent <= Fraction(alpha)
    if upper is not None:
        recorded = selection.list_shares("selected")
        assert sum(map(Fraction, recorded.values())) <= Fraction(alpha)
        published = selection.list_shares("selected-published")
        assert list(published.values()) == [selector_alpha, selection.level_alpha]
        assert recorded[Proof.SELECTOR] == selector_alpha + (selection.upper_alpha or 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"levels": (1.0,)}, "at least two noise levels"),
        ({"levels": (1.0, 1.0)}, "ascending order"),
        ({"levels": (2.0, 1.0)}, "ascending order"),
        ({"levels": (0.0, 1.0)}, "positive finite"),
        ({"levels": (-1.0, 1.0)}, "positive finite"),
        ({"levels": (1.0, math.inf)}, "positive finite"),
        ({"levels": (1.0, math.nan)}, "positive finite"),
        ({"sigma": 0.0}, "noise level of the selector"),
        ({"sigma": math.nan}, "noise level of the selector"),
        ({"selector_alpha": 0.05}, "smaller than alpha"),
        ({"selector_alpha": 0.0}, "must be positive"),
        ({"upper_alpha": -1e-9}, "for upper bounds"),
        ({"upper_alpha": 0.025}, "leave something of alpha"),
        ({"sampled": 0}, "cannot be sampled"),
        ({"sampled": 3}, "cannot be sampled"),
    ],
)
def test_what_cannot_be_a_selection_is_refused(wrong: dict[str, object], message: str) -> None:
    given_levels = wrong.pop("levels", (1.0, 2.0))
    with pytest.raises(InputError, match=message):
        selection_of_levels(*given_levels, **wrong)  # type: ignore[misc,arg-type]
