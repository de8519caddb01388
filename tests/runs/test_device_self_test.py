"""Runs compare the noise of their device with that of the host before they sample."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from smoothcert.models.torch_classifier import TorchClassifier, TorchDeviceClassifier
from smoothcert.noise import device_test
from smoothcert.records import Noise
from smoothcert.runs import execution
from smoothcert.spec import ConstantLevel


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_noise_of_the_device_is_compared(dtype, monkeypatch):
    asked = []
    monkeypatch.setattr(device_test, "check_on_device", lambda *where, **what: asked.append((*where, what)))
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3)).to(dtype)
    dataset = SimpleNamespace(inputs=lambda rows: np.zeros((len(rows), 2, 3), dtype=np.float32))
    on_device = TorchDeviceClassifier(module, device=torch.device("cpu"), input_shape=(2, 3))
    for classifier in (TorchClassifier(module, input_shape=(2, 3)), on_device):
        smoothed = SimpleNamespace(noise=Noise.UNIFORM, grid=256, classifier=classifier)
        execution._check_noise(SimpleNamespace(sigma=ConstantLevel(level=0.5)), smoothed, dataset)
    expected = {"noise": Noise.UNIFORM, "sigma": 0.5, "levels": 256, "size": 6}
    assert asked == [(torch.device("cpu"), dtype, expected)]
