"""Typos fail when a SmoothedClassifier is made, not at its first call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.errors import InputError, ModelError, RegionMemoryError
from smoothcert.smoothed import SmoothedClassifier

NET = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def make(model: Any = NET, **settings: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model, sigma=0.25, **settings)


@pytest.mark.parametrize("name", ["net.safetensors", "net.onnx", "net.pt", "net.pth", "folder/net.pt"])
def test_a_file_that_does_not_exist(name: str, tmp_path: Path) -> None:
    for path in (tmp_path / name, str(tmp_path / name)):
        with pytest.raises(ModelError, match="there is no file"):
            make(path)


def test_what_is_no_model() -> None:
    with pytest.raises(ModelError, match="not a model smoothcert can load"):
        make("resnet50")
    with pytest.raises(ModelError, match="no_such_module cannot be imported"):
        make("no_such_module:net")
    with pytest.raises(InputError, match="is not a model"):
        make(3)


@pytest.mark.parametrize("device", ["cdua", "gpu", "cpu:1", ""])
def test_a_device_that_does_not_exist(device: str) -> None:
    with pytest.raises(InputError, match=r"device .* is unknown"):
        make(device=device)


@pytest.mark.skipif(torch.cuda.device_count() > 7, reason="this machine has eight cards")
def test_a_device_that_this_machine_does_not_have() -> None:
    with pytest.raises(InputError, match="is not available"):
        make(device="cuda:7")


def test_options_that_do_not_exist() -> None:
    with pytest.raises(InputError, match="no back end 'onxruntime'"):
        make(backend="onxruntime")
    with pytest.raises(InputError, match="no place 'first'"):
        make(noise_at="first")


def test_a_memory_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(RegionMemoryError, match=r"directory .* does not exist"):
        make(memory=tmp_path / "missing" / "memory.sqlite")
    with pytest.raises(RegionMemoryError, match="is a directory"):
        make(memory=tmp_path)
    with pytest.raises(InputError, match="not supported for a memory"):
        make(memory="mysql://host/memory")
    make(memory=tmp_path / "memory.sqlite")
    assert list(tmp_path.iterdir()) == []


COUNTS = {"seed": 1, "batch": 64, "workers": 1, "num_classes": 3}


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    x = np.full((2, 4), 0.5, dtype=np.float32)
    expected = make(**COUNTS).certify(x, n0=20, n=100, alpha=0.05)
    smoothed = make(**{name: np.int64(value) for name, value in COUNTS.items()})
    results = smoothed.certify(x, n0=20, n=100, alpha=0.05)
    assert [point.radius for point in results] == [point.radius for point in expected]
    assert results.verify().consistent
    stored = smoothed.certify(x, n0=20, n=100, alpha=0.05, out=tmp_path / "run")
    assert stored.manifest is not None
    assert (stored.manifest.seed, stored.manifest.measured.batch) == (1, 64)
    smoothed.batch = np.int64(32)  # type: ignore[assignment]
    assert type(smoothed.batch) is int


def test_a_seed_may_have_128_bits() -> None:
    assert make(seed=2**128 - 1).seed == 2**128 - 1


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_not_a_whole_number(name: str) -> None:
    for value in (1.5, "many", True, np.nan):
        with pytest.raises(InputError, match=f"{name} is .*expected a whole number"):
            make(**{name: value})
