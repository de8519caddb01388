"""Votes: one class wins; ties and non-finite logits are defined, equally for numpy and for tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from smoothcert.errors import InputError, ModelError
from smoothcert.models import votes as votes_module
from smoothcert.models.torch_classifier import tensor_votes
from smoothcert.models.votes import check_batch, resolve_num_classes, votes_from_answer, votes_from_logits

INF, NAN = float("inf"), float("nan")

DEFINED = [
    ([1.0, 2.0, 3.0], 2),
    ([3.0, 3.0, 3.0], 0),
    ([1.0, 3.0, 3.0], 1),
    ([0.0, -0.0, -1.0], 0),
    ([-0.0, 0.0, -1.0], 0),
    ([NAN, 1.0, 2.0], 3),
    ([1.0, 2.0, NAN], 3),
    ([NAN, NAN, NAN], 3),
    ([INF, 1.0, 2.0], 3),
    ([INF, INF, NAN], 3),
    ([-INF, 1.0, 2.0], 2),
    ([-INF, -INF, -5.0], 2),
    ([-INF, -INF, -INF], 3),
]


@pytest.mark.parametrize(("row", "vote"), DEFINED)
def test_defined_votes(row, vote):
    logits = np.array([row], dtype=np.float32)
    assert votes_from_logits(logits).tolist() == [vote]
    assert tensor_votes(torch.from_numpy(logits)).tolist() == [vote]


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 20), st.integers(2, 6)),
        elements=st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, INF, -INF, NAN]),
    )
)
def test_tensor_and_numpy_votes_agree_with_a_plain_loop(logits):
    expected = []
    for row in logits.tolist():
        best, winner = -INF, len(row)
        for label, value in enumerate(row):
            if value > best:
                best, winner = value, label
        invalid = any(value != value for value in row) or best == INF
        expected.append(len(row) if invalid else winner)
    assert votes_from_logits(logits).tolist() == expected
    assert tensor_votes(torch.from_numpy(logits)).tolist() == expected
    assert votes_from_logits(logits).dtype == np.int64


def test_many_equal_logits_on_a_wide_row_go_to_the_lowest_class():
    logits = torch.zeros(64, 1000)
    assert tensor_votes(logits).max() == 0
    assert votes_from_logits(logits.numpy()).max() == 0


def test_labels_and_integer_scores_are_accepted():
    assert votes_from_answer(np.array([0, 2]), batch_size=2, num_classes=3).tolist() == [0, 2]
    assert votes_from_answer([True, False], batch_size=2, num_classes=2).tolist() == [1, 0]
    assert votes_from_answer(np.array([[1, 5], [4, 4]]), batch_size=2, num_classes=2).tolist() == [1, 0]


@pytest.mark.parametrize(
    "answer",
    [np.zeros((2, 4)), np.zeros(2), np.zeros((3, 3)), np.array([0, 3]), np.array([-1, 0]), np.array(["a", "b"]), 7],
)
def test_answers_of_the_wrong_kind_are_explained(answer):
    with pytest.raises(ModelError, match="the model answered"):
        votes_from_answer(answer, batch_size=2, num_classes=3)


def test_number_of_classes():
    assert resolve_num_classes(3, None) == resolve_num_classes(None, 3) == resolve_num_classes(3, 3) == 3
    with pytest.raises(ModelError, match="answers with 4 classes, but num_classes=3"):
        resolve_num_classes(4, 3)
    with pytest.raises(ModelError, match="at least 2"):
        resolve_num_classes(1, None)
    with pytest.raises(InputError, match="give num_classes"):
        resolve_num_classes(None, None)


def test_batch_of_the_wrong_shape_is_refused():
    check_batch(np.zeros((2, 5), np.float32), None)
    with pytest.raises(InputError, match=r"\(5,\) were given, but the model takes \(4,\)"):
        check_batch(np.zeros((2, 5), np.float32), (4,))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 10, 33])
def test_compiled_votes_are_those_of_numpy(dtype: type, classes: int) -> None:
    """Many ties, and rows with NaN, infinities and zeros of both signs, in batches of every kind."""
    pytest.importorskip("numba")
    random = np.random.default_rng(3)
    logits = random.integers(-3, 4, (2000, classes)).astype(dtype)
    for special in (np.nan, np.inf, -np.inf, -0.0):
        logits[random.random(logits.shape) < 0.3 / classes] = special
    logits[7], logits[8] = -np.inf, np.nan
    expected = votes_module._votes_with_numpy(logits)
    assert (expected == classes).any()
    assert (expected < classes).any()
    assert votes_module._find_compiled() is not None
    for batch in (logits, logits[::-1].copy()[::-1], logits[:64], logits[:63]):
        assert votes_from_logits(batch).tolist() == expected[: len(batch)].tolist()


def test_votes_without_numba_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.random.default_rng(4).standard_normal((200, 5)).astype(np.float32)
    found = votes_from_logits(logits)
    monkeypatch.setattr(votes_module, "_find_compiled", lambda: None)
    assert votes_from_logits(logits).tolist() == found.tolist()


def test_compiled_votes_that_are_wrong_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled function that ignores NaN is found out when it is loaded."""
    compiled = pytest.importorskip("smoothcert.models.votes_with_numba")

    def careless(logits: np.ndarray, votes: np.ndarray) -> None:
        votes[:] = np.nan_to_num(logits).argmax(axis=1)

    monkeypatch.setattr(compiled, "WRITE_VOTES", careless)
    with pytest.warns(UserWarning, match="compiled votes are not exact"):
        assert votes_module._find_compiled.__wrapped__() is None
