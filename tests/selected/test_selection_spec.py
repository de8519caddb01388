"""What can be requested of a selected run, how α is shared, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selected_runs import LEVELS, selected_spec
from smoothcert.errors import InputError
from smoothcert.records.selection import FORMS, Selection, choose_upper_alpha
from smoothcert.runs.selected_spec import SelectedSpec, derive_seed
from smoothcert.spec import Decide, ModelSpec, NoiseSpec, decode_part, to_json


@given(
    alpha=st.floats(1e-9, 0.4), share=st.floats(0.001, 0.999), sampled=st.integers(1, 9), upper=st.booleans(),
)  # fmt: skip
def test_shares_never_exceed_alpha_and_lose_almost_nothing(
    alpha: float, share: float, sampled: int, upper: bool
) -> None:
    levels = tuple(float(level) for level in range(1, 10))
    uppers = choose_upper_alpha(alpha, alpha * share, bounds="multi-class" if upper else "two-class", forms=FORMS)
    selection = Selection(levels, 1.0, alpha, alpha * share, sampled, "two-class", upper_alpha=uppers)
    assert (uppers > 0) == upper
    spent = Fraction(selection.selector_alpha) + Fraction(uppers) + Fraction(selection.level_alpha)
    assert Fraction(alpha) * (1 - Fraction(1, 10**12)) < spent <= Fraction(alpha)
    selection = Selection(levels, 1.0, alpha, alpha * share, sampled, "two-class", upper_alpha=None)
    spent = Fraction(selection.selector_alpha) + sampled * Fraction(selection.level_alpha)
    assert Fraction(alpha) * (1 - Fraction(1, 10**12)) < spent <= Fraction(alpha)


def test_parts_request_their_shares_and_streams_of_their_own() -> None:
    spec = selected_spec(sampled=2)
    selector, *levels = spec.list_parts()
    assert selector.alpha == 0.025
    assert spec.upper_alpha == 0.025 / 8
    assert levels[0].alpha == pytest.approx(0.025 * 7 / 8, rel=1e-12)
    assert Fraction(selector.alpha) + Fraction(spec.upper_alpha) + Fraction(levels[0].alpha) <= Fraction(spec.alpha)
    before = selected_spec(sampled=2, upper_alpha=None)
    assert [part.alpha for part in before.list_parts()] == pytest.approx([0.025, *[0.0125] * 3], rel=1e-12)
    seeds = {part.seed for part in (selector, *levels)}
    assert len(seeds) == 4
    assert [part.sigma.level for part in (selector, *levels)] == [0.1, *LEVELS]  # type: ignore[union-attr]
    assert all(part.certificates == ("gaussian",) for part in (selector, *levels))


def test_other_seeds_and_parts_have_other_streams() -> None:
    seeds = {derive_seed(seed, part) for seed in (0, 1, 11) for part in ("selector", "level-0.1", "level-1.0")}
    assert len(seeds) == 9
    assert all(0 <= seed < 2**128 for seed in seeds)


def test_a_prediction_may_sample_every_level_and_pays_for_one() -> None:
    spec = selected_spec(task="predict", sampled=1, certificates=())
    assert spec.selection().sampled == 3
    assert spec.selection().level_alpha == 0.025
    before = msgspec.structs.replace(spec, upper_alpha=None)
    assert before.selection().level_alpha == pytest.approx(0.025 / 3, rel=1e-12)
    assert spec.spec_of_level(0, None).question.n0 == 0


def test_spec_survives_json() -> None:
    spec = selected_spec()
    assert decode_part(to_json(spec), SelectedSpec) == spec


def test_a_spec_of_an_earlier_version_says_nothing_of_upper_bounds() -> None:
    document = to_json(selected_spec())
    del document["upper_alpha"]
    assert decode_part(document, SelectedSpec) == selected_spec(upper_alpha=None)


def test_upper_bounds_get_a_share_only_where_they_are_used() -> None:
    assert selected_spec(selector_bounds="two-class").upper_alpha == 0
    assert selected_spec(certificates=("selected-published",)).upper_alpha == 0
    assert selected_spec(certificates=("selected",)).upper_alpha == 0.025 / 8


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"levels": (0.1,)}, "at least two noise levels"),
        ({"levels": (0.1, -0.2, 0.4)}, "-0.2 is not a noise level"),
        ({"levels": (0.1, float("inf"), 0.4)}, "inf is not a noise level"),
        ({"levels": (0.1, 0.4, 0.2)}, "ascending order"),
        ({"levels": (0.1, 0.1, 0.2)}, "ascending order"),
        ({"models": (ModelSpec(place="a:b"), ModelSpec(place="a:c"))}, "2 models were given for 3 noise levels"),
        ({"selector_sigma": 0.0}, "must be a positive finite number"),
        ({"alpha": 0.6}, "outside"),
        ({"selector_alpha": 0.05}, "must be positive and smaller than alpha"),
        ({"selector_alpha": 0.0}, "must be positive and smaller than alpha"),
        ({"upper_alpha": 0.025}, "leave something of alpha"),
        ({"sampled": 4}, "4 levels cannot be sampled"),
        ({"task": "predict", "certificates": (), "sampled": 4}, "4 levels cannot be sampled"),
        ({"selector_bounds": "three-class"}, "selector bounds 'three-class' are unknown"),
        ({"certificates": ()}, "no certificate is named"),
        ({"certificates": ("gaussian",)}, "there is no certificate gaussian for a selected sigma"),
        ({"certificates": ("selected", "selected")}, "named once"),
        ({"noise": NoiseSpec(place="first-layer")}, "needs Gaussian noise on the inputs"),
        ({"selector_question": Decide(radii=(0.1,), n=200, n0=20)}, "use two-class bounds"),
        ({"selector": ModelSpec(place="a:b", backend="fastest")}, "give --backend torch"),
    ],
)
def test_what_cannot_work_is_refused(changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        selected_spec(**changed).check()
