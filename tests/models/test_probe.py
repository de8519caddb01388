"""Fixed noisy inputs whose answers identify a function within rounding."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.errors import ModelError
from smoothcert.models import as_classifier
from smoothcert.models.probe import check_probe, probe, probe_differences, probe_inputs

SHAPE = (1, 4, 4)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def classifier(module=None, **arguments):
    return as_classifier(network() if module is None else module, input_shape=SHAPE, **arguments)


def test_inputs_are_the_same_in_every_process():
    code = f"from smoothcert.models.probe import probe_inputs; print(probe_inputs({SHAPE}).tobytes().hex())"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert there == probe_inputs(SHAPE).tobytes().hex()


def test_inputs_cover_little_and_much_noise():
    spread = (probe_inputs((1000,)) - 0.5).std(axis=1)
    assert spread.min() == pytest.approx(2**-4, rel=0.1)
    assert spread.max() == pytest.approx(2**3, rel=0.1)


@pytest.mark.parametrize("backend", ["torch", "onnxruntime"])
def test_the_same_function_passes_by_any_back_end(backend):
    stored = json.loads(json.dumps(probe(classifier(), SHAPE)))
    assert probe_differences(stored, classifier(backend=backend), SHAPE) == []


def test_a_changed_weight_is_noticed():
    stored = probe(classifier(), SHAPE)
    other = network()
    with torch.no_grad():
        other[3].bias[0] += 0.5
    with pytest.raises(ModelError, match="fixed noisy inputs"):
        check_probe(stored, classifier(other), SHAPE, of="runs/x")


def test_a_threshold_in_a_global_variable_is_noticed():
    level = [0.2]

    def model(batch):
        return (batch.reshape(len(batch), -1).mean(axis=1) > level[0]).astype(np.int64)

    asked = as_classifier(model, num_classes=2, input_shape=SHAPE)
    stored = probe(asked, SHAPE)
    assert stored["logits"] is None
    assert probe_differences(stored, asked, SHAPE) == []
    level[0] = 0.8
    assert probe_differences(stored, asked, SHAPE)


def test_answers_that_are_not_finite_are_kept_and_compared():
    class Broken(nn.Module):
        def __init__(self, low):
            super().__init__()
            self.low = low

        def forward(self, x):
            flat = x.flatten(1)
            return torch.where(flat[:, :3] > self.low, flat[:, :3], torch.nan)

    stored = json.loads(json.dumps(probe(classifier(Broken(-0.5)), SHAPE), allow_nan=False))
    assert probe_differences(stored, classifier(Broken(-0.5)), SHAPE) == []
    assert probe_differences(stored, classifier(Broken(0.5)), SHAPE)


def test_many_classes_take_little_room():
    wide = nn.Sequential(nn.Flatten(), nn.Linear(16, 1000))
    assert len(json.dumps(probe(classifier(wide), SHAPE))) < 20_000


def test_damaged_answers_are_a_difference_and_unknown_versions_are_skipped():
    stored = probe(classifier(), SHAPE)
    for damage in ({"votes": stored["votes"][:-1]}, {"logits": [[None]]}, {"logits": "x"}, {"votes": None}):
        assert probe_differences({**stored, **damage}, classifier(), SHAPE)
    assert probe_differences({**stored, "version": 0}, classifier(), SHAPE) == []
    assert probe_differences(None, classifier(), SHAPE) == []


def test_a_copy_is_the_same_function():
    module = network()
    assert probe(classifier(module), SHAPE) == probe(classifier(copy.deepcopy(module)), SHAPE)
