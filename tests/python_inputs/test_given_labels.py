"""Labels that people give: one class each, or none; everything else is refused with what was expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from smoothcert.errors import InputError
from smoothcert.sampling.given_labels import merge_labels, read_labels


@pytest.mark.parametrize(
    "labels",
    [
        [0, 3, 9],
        (0, 3, 9),
        np.array([0, 3, 9]),
        np.array([[0], [3], [9]]),
        np.array([0.0, 3.0, 9.0]),
        torch.tensor([0, 3, 9]),
        [torch.tensor(0), torch.tensor(3), torch.tensor(9)],
        [np.int64(0), np.uint8(3), 9.0],
        range(0, 12, 3),
    ],
)
def test_numbers_of_classes(labels: Any) -> None:
    found = read_labels(labels, count=len(labels), num_classes=10)
    assert found == ([0, 3, 6, 9] if isinstance(labels, range) else [0, 3, 9])
    assert {type(label) for label in found} == {int}


def test_inputs_without_a_label() -> None:
    assert read_labels(None, count=2, num_classes=3) == [None, None]
    assert read_labels([None, 2], count=2, num_classes=3) == [None, 2]
    assert read_labels(np.array([-1, 2]), count=2, num_classes=3) == [None, 2]


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ([0, 10, 1], r"label of input 1 is 10; the classes of the model are 0 … 9"),
        ([0, 1, -2], r"label of input 2 is -2; .* 0 … 9, or None"),
        ([0, 0.5, 1], r"label of input 1 is 0\.5; expected a whole number"),
        (np.array([0, np.nan, 1]), "label of input 1 is nan; expected a whole number"),
        (np.array([0, np.inf, 1]), "label of input 1 is inf; expected a whole number"),
        (["cat", "dog", "cat"], "label of input 0 is 'cat'; expected the number of its class"),
        (np.array(["cat", "dog", "cat"]), "label of input 0 is 'cat'"),
        (np.eye(10)[:3], r"shape \(3, 10\).*argmax"),
        (torch.eye(10)[:3], r"shape \(3, 10\).*argmax"),
        ([[0, 1], [1, 0], [0, 1]], "argmax"),
        ([np.eye(10)[0]] * 3, "argmax"),
        ([torch.eye(10)[0]] * 3, "argmax"),
        ([1, 2], "3 inputs came with 2 labels"),
        (1, "3 inputs came with 1 labels"),
        ("cat", "3 inputs came with 1 labels"),
    ],
)
def test_what_is_no_label_is_refused(labels: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_labels(labels, count=3, num_classes=10)


def test_two_sources_complete_each_other() -> None:
    assert merge_labels([None, 1, 2], [0, None, 2]) == [0, 1, 2]
    with pytest.raises(InputError, match="input 1 has label 1, and labels= says 2"):
        merge_labels([0, 1], [0, 2])
