"""From tallies to bounded quantities: what is refused, what is spent, and which votes are read."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import InputError
from smoothcert.records import (
    AnyTally,
    GradientTally,
    PairTally,
    Proof,
    Quantity,
    ScoreTally,
    Stage,
    StreamId,
    Tally,
    TallyKind,
)
from smoothcert.statistics import clopper_pearson_lower, clopper_pearson_upper, equal_share, prove, split_alpha
from smoothcert.statistics.pairs import CORNERS, pair_region


def votes(stage: Stage = Stage.ESTIMATION) -> Tally:
    return Tally(StreamId(1, 0, stage), 0.5, np.array([90, 10]), 0, ((0, 100),))


def pairs(stage: Stage = Stage.ESTIMATION) -> PairTally:
    """100 pairs: the first votes are 80 to 20, the second ones 85 to 15."""
    return PairTally(
        StreamId(1, 0, stage), 0.5, np.array([70, 5, 0]), np.array([10, 15, 0]), np.array([15, 10, 0]), ((0, 100),)
    )


def gradients(stage: Stage = Stage.ESTIMATION) -> GradientTally:
    return GradientTally(
        StreamId(1, 0, stage),
        0.5,
        counts=np.array([90, 10]),
        invalid=0,
        group=np.array([0, 1, 2]),
        sums=np.ones((2, 3, 4), dtype=np.int64),
        products=np.array([5, 6, 0]),
        ranges=((0, 100),),
    )


def scores(stage: Stage = Stage.ESTIMATION, *, label: int = 0) -> ScoreTally:
    return ScoreTally(
        StreamId(1, 0, stage),
        0.5,
        counts=np.array([90, 10]),
        invalid=0,
        label=label,
        cells=np.array([100, 15_000, 20_000, 32_000]),
        hits=np.array([10, 90, 90, 10]),
        ranges=((0, 100),),
    )


OF_KIND = {TallyKind.VOTES: votes, TallyKind.PAIRS: pairs, TallyKind.GRADIENTS: gradients, TallyKind.SCORES: scores}


@pytest.mark.parametrize("make", OF_KIND.values())
@pytest.mark.parametrize("stage", [Stage.SELECTION, Stage.PREDICTION])
def test_samples_that_chose_cannot_prove(make: object, stage: Stage) -> None:
    tally: AnyTally = make(stage)  # type: ignore[operator]
    with pytest.raises(InputError, match=f"not {stage.name}"):
        prove([make(), tally], [0, 0], [Proof.TOP], alpha=0.001)  # type: ignore[operator]


NOT_OF_A_TALLY = {Proof.NOISE_TABLES, Proof.SELECTOR, Proof.LEVELS}


@pytest.mark.parametrize("proof", [proof for proof in Proof if not proof.anytime and proof not in NOT_OF_A_TALLY])
@pytest.mark.parametrize("kind", list(TallyKind))
def test_a_proof_needs_its_own_kind_and_votes_can_be_had_from_any(proof: Proof, kind: TallyKind) -> None:
    if proof.tally in (TallyKind.VOTES, kind):
        second = scores(label=1) if kind is TallyKind.SCORES else OF_KIND[kind]()
        proven = prove([OF_KIND[kind](), second], [0, 1], [proof], alpha=0.01)
        for values in proven.values[proof].values():
            assert values.shape[-1] == 2
            assert np.isfinite(values).all()
    else:
        with pytest.raises(InputError, match=f"expected tallies of {proof.tally}, got tallies of {kind}"):
            prove([OF_KIND[kind]()], [0], [proof], alpha=0.01)


def test_one_tally_of_another_kind_among_many_is_refused() -> None:
    with pytest.raises(InputError, match="expected tallies of pairs"):
        prove([pairs(), gradients()], [0, 0], [Proof.PAIR_REGION], alpha=0.01)


@pytest.mark.parametrize(
    ("proof", "quantities"),
    [
        (Proof.TOP, {Quantity.TOP_LOWER: (1,)}),
        (Proof.RUNNER_UP, {Quantity.RUNNER_UP_UPPER: (1,)}),
        (Proof.PAIR_BOTH, {Quantity.PAIR_BOTH_LOWER: (1,)}),
        (Proof.PAIR_ONE_SIDED, {Quantity.PAIR_ONE_SIDED_LOWER: (1,)}),
        (
            Proof.PAIR_REGION,
            {Quantity.PAIR_BOTH_LOWER: (CORNERS, 1), Quantity.PAIR_ONE_SIDED_LOWER: (CORNERS, 1)},
        ),
        (
            Proof.PAIRS_OF_EVERY_CLASS,
            {
                Quantity.PAIR_BOTH_LOWER: (1,),
                Quantity.PAIR_ONE_SIDED_LOWER: (1,),
                Quantity.OTHER_NEITHER_LOWER: (2, 1),
                Quantity.OTHER_ONE_SIDED_LOWER: (2, 1),
            },
        ),
        (Proof.GRADIENT_HALVES, {Quantity.GRADIENT_NORM_UPPER: (1,)}),
        (Proof.GRADIENT_PAIRS, {Quantity.GRADIENT_NORM_UPPER: (1,)}),
        (
            Proof.GRADIENTS_OF_EVERY_CLASS,
            {
                Quantity.TOP_LOWER: (1,),
                Quantity.GRADIENT_NORM_UPPER: (1,),
                Quantity.OTHER_UPPER: (2, 1),
                Quantity.OTHER_GRADIENT_NORM_UPPER: (2, 1),
            },
        ),
        (Proof.SCORE_TOP, {Quantity.TOP_LOWER: (1,)}),
        (Proof.SCORE_OTHER, {Quantity.RUNNER_UP_UPPER: (1,)}),
        (Proof.SCORE_TOP_BERNSTEIN, {Quantity.TOP_LOWER: (1,)}),
        (Proof.SCORE_OTHER_BERNSTEIN, {Quantity.RUNNER_UP_UPPER: (1,)}),
    ],
)
def test_what_each_proof_bounds(proof: Proof, quantities: dict[Quantity, tuple[int, ...]]) -> None:
    proven = prove([OF_KIND[proof.tally]()], [0], [proof], alpha=0.01)
    assert proven.spent == {proof: 0.01}
    assert {quantity: values.shape for quantity, values in proven.values[proof].items()} == quantities


def test_top_from_pairs_uses_the_votes_at_x_plus_noise_only() -> None:
    proven = prove([pairs()], [0], [Proof.TOP, Proof.RUNNER_UP], alpha=0.02)
    assert proven.values[Proof.TOP][Quantity.TOP_LOWER] == clopper_pearson_lower([80], 100, alpha=0.01)
    assert proven.values[Proof.RUNNER_UP][Quantity.RUNNER_UP_UPPER] == clopper_pearson_upper([20], 100, alpha=0.01)


def test_top_from_gradients_uses_all_votes() -> None:
    proven = prove([gradients()], [0], [Proof.TOP], alpha=0.01)
    assert proven.values[Proof.TOP][Quantity.TOP_LOWER] == clopper_pearson_lower([90], 100, alpha=0.01)


@pytest.mark.parametrize("proof", [proof for proof in Proof if proof.tally is TallyKind.SCORES])
def test_scores_of_one_class_say_nothing_about_another(proof: Proof) -> None:
    with pytest.raises(InputError, match="scores of class 0: the score of class 1 was not sampled"):
        prove([scores(label=1), scores()], [1, 1], [proof], alpha=0.01)


def test_several_proofs_share_alpha() -> None:
    together = prove([pairs()], [0], [Proof.TOP, Proof.PAIR_REGION, Proof.PAIR_BOTH], alpha=0.03)
    assert list(together.spent.values()) == pytest.approx([0.01] * 3)
    np.testing.assert_array_equal(
        together.values[Proof.PAIR_REGION][Quantity.PAIR_BOTH_LOWER],
        pair_region([pairs()], [0], together.spent[Proof.PAIR_REGION])[0],
    )


def test_nothing_to_prove_is_refused() -> None:
    with pytest.raises(InputError, match="alpha cannot be split: at least one bound is required"):
        prove([votes()], [0], [], alpha=0.01)


@pytest.mark.parametrize("proof", [proof for proof in Proof if not proof.certain])
@pytest.mark.parametrize("alpha", [0.0, -1.0, 1.0, 7.0, float("nan")])
def test_an_alpha_that_is_none_is_refused_by_every_proof(proof: Proof, alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        prove([OF_KIND[proof.tally]()], [0], [proof], alpha=alpha)


def test_certain_proofs_leave_their_share_to_the_others() -> None:
    assert split_alpha(0.01, [Proof.TOP, Proof.EVERY_EVALUATION]) == {Proof.TOP: 0.01, Proof.EVERY_EVALUATION: 0.0}
    with pytest.raises(InputError, match="alpha"):
        prove([votes()], [0], [Proof.TOP, Proof.EVERY_EVALUATION], alpha=0.0)


@given(st.floats(1e-90, 0.5, exclude_max=True), st.integers(1, 3000))
def test_shares_added_up_exactly_never_exceed_alpha(alpha: float, count: int) -> None:
    share = equal_share(alpha, count)
    assert Fraction(share) * count <= Fraction(alpha)
    assert share == pytest.approx(alpha / count, rel=1e-12)


@given(st.floats(1e-90, 0.5, exclude_max=True), st.sets(st.sampled_from(list(Proof)), min_size=1))
def test_the_split_never_exceeds_alpha(alpha: float, proofs: set[Proof]) -> None:
    shares = split_alpha(alpha, sorted(proofs))
    assert shares.keys() == proofs
    assert sum(map(Fraction, shares.values())) <= Fraction(alpha)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("alpha", [0.0, -0.1, float("nan")])
def test_an_alpha_that_is_none_cannot_be_shared(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        equal_share(alpha, 7)
