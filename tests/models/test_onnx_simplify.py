"""Rewrites of an exported network: which graphs change, and that the function stays the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from smoothcert.models.exported_classifier import INPUT, OUTPUT, export_onnx
from smoothcert.models.onnx_session import open_session
from smoothcert.models.standardise import Standardise

PER_CHANNEL = ([0.5, 0.4, 0.3], [0.2, 0.25, 0.5])


def graph_of(module, shape):
    return onnx.load_model_from_string(export_onnx(module.eval(), shape)).graph


def operations(module, shape):
    return [node.op_type for node in graph_of(module, shape).node]


def weights(module, shape):
    return {entry.name: list(entry.dims) for entry in graph_of(module, shape).initializer}


def agrees(module, shape):
    batch = torch.rand((5, *shape), generator=torch.Generator().manual_seed(1))
    session = open_session(export_onnx(module, shape), name="it", device="cpu")
    found = session.run([OUTPUT], {INPUT: batch.numpy()})[0]
    with torch.inference_mode():
        expected = module(batch).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


class Twice(nn.Module):
    """The standardised input is read by two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
        self.standardise = Standardise(*PER_CHANNEL)

    def forward(self, inputs):
        x = self.standardise(inputs)
        return (self.first(x) + self.second(x)).flatten(1)


IMAGES = {
    "convolution": (nn.Sequential(Standardise(*PER_CHANNEL), nn.Conv2d(3, 4, 3), nn.Flatten()), set()),
    "one constant": (nn.Sequential(Standardise([0.5], [0.2]), nn.Conv2d(3, 4, 3), nn.Flatten()), set()),
    "padded": (nn.Sequential(Standardise(*PER_CHANNEL), nn.Conv2d(3, 4, 3, padding=1), nn.Flatten()), {"Sub"}),
    "linear": (nn.Sequential(Standardise(*PER_CHANNEL), nn.Flatten(), nn.Linear(192, 5)), set()),
    "groups": (nn.Sequential(Standardise(*PER_CHANNEL), nn.Conv2d(3, 6, 3, groups=3), nn.Flatten()), {"Sub", "Div"}),
    "no bias": (
        nn.Sequential(Standardise(*PER_CHANNEL), nn.Conv2d(3, 4, 3, bias=False), nn.Flatten()),
        {"Sub", "Div"},
    ),
    "two readers": (Twice(), {"Sub", "Div"}),
    "pooled first": (nn.Sequential(Standardise(*PER_CHANNEL), nn.MaxPool2d(2), nn.Flatten()), {"Sub", "Div"}),
}


@pytest.mark.parametrize("name", IMAGES)
def test_standardisation_goes_into_the_first_layer_where_that_is_exact(name):
    module, left = IMAGES[name]
    assert set(operations(module, (3, 8, 8))) & {"Sub", "Div"} == left
    agrees(module, (3, 8, 8))


def test_standardisation_of_flat_inputs():
    module = nn.Sequential(Standardise([0.5, 0.4, 0.3], [0.2, 0.25, 0.5]), nn.Linear(3, 4))
    assert operations(module, (3,)) == ["Gemm"]
    agrees(module, (3,))


def test_padding_with_zeros_stays_exact_at_the_borders():
    """With a mean far from zero, a mean folded into a padded convolution would be off by a multiple of it there."""
    module = nn.Sequential(Standardise([100.0], [1.0]), nn.Conv2d(1, 2, 3, padding=1), nn.Flatten())
    agrees(module, (1, 4, 4))


def pooled(*layers, channels=20):
    return nn.Sequential(nn.Conv2d(1, channels, 3), *layers)


def test_channels_before_pooling_come_in_whole_blocks():
    module = pooled(
        nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(20, 50, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 7)
    )
    found = weights(module, (1, 14, 14))
    assert found["0.weight"] == [24, 1, 3, 3]
    assert found["0.bias"] == [24]
    assert found["3.weight"] == [56, 24, 3, 3]
    assert found["7.weight"] == [7, 224]
    agrees(module, (1, 14, 14))


@pytest.mark.parametrize(
    "module",
    [
        pooled(nn.ReLU(), nn.Conv2d(20, 16, 3), nn.Flatten()),
        pooled(nn.MaxPool2d(2), nn.Flatten(), nn.ReLU()),
        pooled(nn.MaxPool2d(2), nn.Conv2d(20, 20, 3, groups=5), nn.Flatten()),
        pooled(nn.MaxPool2d(2), nn.Sigmoid(), nn.Conv2d(20, 16, 3), nn.Flatten()),
        pooled(nn.MaxPool2d(2), nn.Conv2d(4, 16, 3), nn.Flatten(), channels=4),
        pooled(nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.Flatten(), channels=16),
    ],
    ids=["not pooled", "the answer", "groups", "not zero at zero", "less than a block", "whole blocks"],
)
def test_other_channels_are_left_as_they_are(module):
    assert weights(module, (1, 14, 14))["0.weight"][0] == module[0].out_channels
    agrees(module, (1, 14, 14))
