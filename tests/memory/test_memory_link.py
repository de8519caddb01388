"""A memory is used only by the classifier whose regions it keeps, however often it is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.errors import InputError, ModelMismatchError
from smoothcert.memory import MemoryKey
from smoothcert.memory.link import MemoryLink
from smoothcert.records import Norm


def key(model: str = "0" * 64) -> MemoryKey:
    return MemoryKey(
        model=model,
        sigma_rule="1" * 64,
        noise="gaussian",
        norm=Norm.L2,
        preprocessing="2" * 64,
        dimension=2,
    )


def refuse(stored: str, name: str) -> None:
    raise ModelMismatchError(f"{name} was made with another model ({stored})")


def accept(stored: str, name: str) -> None:
    assert stored == "probe"
    assert name


def test_a_refused_model_is_refused_again(tmp_path: Path) -> None:
    first = MemoryLink(tmp_path / "memory.sqlite")
    first.open(key(), make_probe=lambda: "probe", check_probe=refuse)  # a new memory keeps the probe
    first.close()
    second = MemoryLink(tmp_path / "memory.sqlite")
    for _ in range(2):
        with pytest.raises(ModelMismatchError):
            second.open(key(), make_probe=lambda: "probe", check_probe=refuse)
        assert second.opened is None
    second.open(key(), make_probe=lambda: "probe", check_probe=accept)
    assert second.opened is not None
    second.close()


def test_an_open_memory_refuses_another_key(tmp_path: Path) -> None:
    link = MemoryLink(tmp_path / "memory.sqlite")
    link.open(key(), make_probe=lambda: "probe", check_probe=accept)
    link.open(key(), make_probe=lambda: "probe", check_probe=refuse)  # the same key: nothing is checked again
    with pytest.raises(InputError, match="another classifier"):
        link.open(key("f" * 64), make_probe=lambda: "probe", check_probe=accept)
    link.close()


def test_a_prediction_that_cannot_work_creates_no_memory(tmp_path: Path) -> None:
    place = tmp_path / "memory.sqlite"
    classifier = SmoothedClassifier(
        lambda batch: (batch[:, 0] > 0.5).astype(np.int64), sigma=0.25, num_classes=2, grid=256, memory=place, batch=64
    )
    with pytest.raises(InputError):
        classifier.predict(np.zeros((1, 2), dtype=np.uint8), n=1000, alpha=1e-30)
    assert not place.exists()
