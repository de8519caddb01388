from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.data import ArrayDataset
from smoothcert.errors import DataError, InputError


def _dataset(**changes: object) -> ArrayDataset:
    rng = np.random.default_rng(0)
    fields: dict[str, object] = {
        "name": "mine",
        "split": "test",
        "stored": rng.integers(0, 256, (6, 1, 2, 2)).astype(np.uint8),
        "labels": np.array([0, 1, 2, 0, 1, 2]),
        "num_classes": 3,
        "levels": 256,
    }
    return ArrayDataset(**(fields | changes))  # type: ignore[arg-type]


@given(st.integers(0, 255))
def test_eight_bit_values_are_the_float32_nearest_to_the_fraction(level: int) -> None:
    data = _dataset(stored=np.full((6, 1), level, dtype=np.uint8))
    value = data.inputs([0])[0, 0]
    exact = Fraction(level, 255)
    error = abs(Fraction(float(value)) - exact)
    for neighbour in (np.nextafter(value, np.float32(2)), np.nextafter(value, np.float32(-1))):
        assert error <= abs(Fraction(float(neighbour)) - exact)


def test_indices_select_in_the_order_given() -> None:
    data = _dataset()
    everything = data.inputs(slice(None))
    assert np.array_equal(data.inputs([4, 1, 1]), everything[[4, 1, 1]])
    assert np.array_equal(data.inputs(np.array([5])), everything[5:])
    assert np.array_equal(data.inputs(range(2, 4)), everything[2:4])
    assert data.inputs([]).shape == (0, 1, 2, 2)


@pytest.mark.parametrize("indices", [[6], [-1], [0.5], [[0]], [True]])
def test_indices_that_do_not_exist_are_refused(indices: list[object]) -> None:
    with pytest.raises(InputError, match="mine"):
        _dataset().inputs(indices)  # type: ignore[arg-type]


def test_what_comes_out_cannot_change_what_is_inside() -> None:
    data = _dataset(stored=np.zeros((6, 2), dtype=np.float32), levels=None)
    data.inputs(slice(None))[:] = 7
    assert data.inputs(slice(None)).max() == 0
    with pytest.raises(ValueError, match="read-only"):
        data.stored[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 1


def test_digest_names_content_only() -> None:
    data = _dataset()
    assert data.digest == _dataset(name="other", split="train").digest
    changed = np.array(data.stored)
    changed[5, 0, 1, 1] ^= 1
    others = [
        _dataset(stored=changed),
        _dataset(labels=np.array([1, 1, 2, 0, 1, 2])),
        _dataset(stored=data.stored.reshape(6, 4)),
        _dataset(stored=data.stored.astype(np.uint16), levels=4081),
    ]
    assert len({data.digest, *(other.digest for other in others)}) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros(5)}, "6 inputs but labels"),
        ({"labels": np.array([0, 1, 2, 3, 0, 0])}, "labels lie in 0 … 3"),
        ({"labels": np.full(6, -2)}, "labels lie in -2"),
        ({"class_names": ("a", "b")}, "2 class names, expected 3"),
        ({"stored": np.zeros(6, np.uint8)}, "shape"),
        ({"stored": np.zeros((0, 2), np.uint8), "labels": np.zeros(0)}, "at least one"),
        ({"stored": np.zeros((6, 2), np.float64), "levels": None}, "expected float32"),
        ({"levels": 17, "stored": np.full((6, 2), 17, np.uint8)}, "17 grid levels"),
    ],
)
def test_ill_formed_datasets_do_not_exist(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        _dataset(**changes)


def test_unlabelled_inputs_are_minus_one() -> None:
    data = _dataset(labels=np.full(6, -1), num_classes=0)
    assert data.num_classes == 0
    assert data.class_names == ()
