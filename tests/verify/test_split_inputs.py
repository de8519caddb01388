"""What the checker makes of an input that is split: by definition, by known numbers, and as a run makes it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flint")

from certified_documents import split_document
from smoothcert.noise import draw_offsets, split_inputs
from smoothcert_verify.noise_forms import NOISES
from smoothcert_verify.noise_kinds import round_to_grid
from smoothcert_verify.noise_streams import Stream
from smoothcert_verify.replay_model import ReplayModel
from smoothcert_verify.run_facts import read_run
from smoothcert_verify.split_inputs import SplitInput, find_offsets

FORM = NOISES["splitting"]
BIG_SEED = 2**127 + 5


def on_grid(places: list[int], *, q: int) -> np.ndarray:
    return np.array(places, dtype=np.float32) / np.float32(q)


def middle_of_piece(k: int, *, offset: int, s: int, evaluations: int, q: int) -> Fraction:
    """By trying all cuts that could be next to k."""
    places = range(-2 * evaluations - 2, q + 2 * evaluations + 2)
    cuts = [Fraction(2 * c + 1, 2) for c in places if (c - s - offset) % evaluations == 0]
    left, right = max(cut for cut in cuts if cut < k), min(cut for cut in cuts if cut > k)
    return (max(left, Fraction(0)) + min(right, Fraction(q))) / (2 * q)


@given(st.integers(1, 9), st.integers(2, 13), st.integers(0, 2**128 - 1), st.data())
def test_pieces_by_definition(q: int, evaluations: int, seed: int, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, q), min_size=1, max_size=4))
    offsets = find_offsets(seed, evaluations=evaluations, size=len(places))
    seen = SplitInput(on_grid(places, q=q), evaluations=evaluations, levels=q + 1)
    rows = seen.copies(Stream(seed, 7, 1), 0, evaluations)
    for s, row in enumerate(rows):
        for k, offset, value in zip(places, offsets.tolist(), row, strict=True):
            exact = middle_of_piece(k, offset=offset, s=s, evaluations=evaluations, q=q)
            assert value == np.float32(exact.numerator) / np.float32(exact.denominator)


@pytest.mark.parametrize(
    ("k", "offset", "s", "evaluations", "q", "expected"),
    [(3, 0, 1, 4, 5, 0.65), (0, 7, 100, 441, 255, 0.2107843137), (255, 300, 100, 441, 255, 0.5)],
)
def test_known_pieces(
    k: int, offset: int, s: int, evaluations: int, q: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smoothcert_verify.split_inputs.find_offsets", lambda *_, **__: np.array([offset]))
    ((value,),) = SplitInput(on_grid([k], q=q), evaluations=evaluations, levels=q + 1).copies(Stream(0, 0, 1), s, 1)
    assert value == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("levels", "evaluations"), [(256, 441), (256, 3091), (17, 2), (2, 5), (10, 40), (65536, 999)])
@pytest.mark.parametrize("seed", [0, 2**63 + 12345, BIG_SEED])
def test_bit_for_bit_as_in_a_run(levels: int, evaluations: int, seed: int) -> None:
    k = np.random.default_rng(evaluations).integers(0, levels, 129, dtype=np.int32)
    offsets = draw_offsets(seed, evaluations=evaluations, size=k.size)
    assert np.array_equal(offsets, find_offsets(seed, evaluations=evaluations, size=k.size))
    count = min(evaluations, 70)
    made = np.empty((count, k.size), dtype=np.float32)
    split_inputs(made, k, offsets, evaluations=evaluations, levels=levels, start=evaluations - count)
    again = SplitInput(on_grid(k.tolist(), q=levels - 1), evaluations=evaluations, levels=levels)
    assert again.copies(Stream(seed, 3, 1), evaluations - count, count).tobytes() == made.tobytes()


def test_offsets_are_spread_and_belong_to_the_seed() -> None:
    offsets = find_offsets(BIG_SEED, evaluations=7, size=7000)
    counts = np.bincount(offsets, minlength=7)
    assert counts.size == 7
    assert (abs(counts - 1000) < 200).all()
    assert not np.array_equal(offsets, find_offsets(BIG_SEED + 1, evaluations=7, size=7000))
    assert np.array_equal(offsets[:33], find_offsets(BIG_SEED, evaluations=7, size=33))


def test_the_same_offsets_for_all_inputs_and_stages() -> None:
    seen = SplitInput(on_grid([3, 9], q=16), evaluations=5, levels=17)
    assert np.array_equal(seen.copies(Stream(1, 2, 1), 0, 5), seen.copies(Stream(1, 9, 2), 0, 5))


@pytest.mark.parametrize("value", [0.51, 1.0625, -0.0625])
def test_inputs_that_cannot_be_split(value: float) -> None:
    with pytest.raises(ValueError, match=r"not on a grid|not lie in \[0, 1\]"):
        FORM.copies_on_grid(np.array([value], dtype=np.float32), sigma=0.25, levels=17)


def test_nothing_is_added() -> None:
    seen = SplitInput(on_grid([3], q=16), evaluations=5, levels=17)
    with pytest.raises(ValueError, match="pairs"):
        seen.pairs(Stream(1, 2, 1), 0, 5)
    with pytest.raises(ValueError, match="no noise"):
        seen.normals(Stream(1, 2, 1), 0, 5)


def test_rounding() -> None:
    x = np.array([0.0, 0.03, 0.0313, 0.5, 0.97, 1.0], dtype=np.float32)
    assert np.array_equal(round_to_grid(x, 17), on_grid([0, 0, 1, 8, 16, 16], q=16))


def test_only_a_run_that_rounds_is_rounded() -> None:
    manifest = split_document((20, 5, 0))["run"]
    x, model = np.full(64, 0.51, dtype=np.float32), ReplayModel(classifier=None, input_shape=(64,))
    with pytest.raises(ValueError, match="not on a grid"):
        model.make_copies(read_run(manifest), x, 0.8)
    manifest["spec"]["noise"]["rounds"] = True
    rounded = SplitInput(on_grid([8] * 64, q=16), evaluations=25, levels=17)
    seen = model.make_copies(read_run(manifest), x, 0.8)
    assert np.array_equal(seen.copies(Stream(3, 0, 1), 0, 25), rounded.copies(Stream(3, 0, 1), 0, 25))


def test_the_number_of_evaluations_is_exact() -> None:
    """Half-widths of 441/510 just below and above the float64 that is nearest to it."""
    assert Fraction(0.8647058823529412) * 510 > 441 > Fraction(0.8647058823529411) * 510
    assert FORM.count_evaluations(sigma=0.8647058823529412, levels=256) == 441
    assert FORM.count_evaluations(sigma=0.8647058823529411, levels=256) == 440
    possible = {n: FORM.has_room(sigma=n / 2, levels=2) for n in (1, 2, 2**21, 2**21 + 1)}
    assert possible == {1: False, 2: True, 2**21: True, 2**21 + 1: False}
