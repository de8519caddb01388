"""The end of a network as packed products: the same function and votes, the same bits anywhere, and NaN stays NaN."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothcert.models import as_classifier
from smoothcert.models.architectures import build
from smoothcert.models.freezing import freeze
from smoothcert.models.product_chain import ProductChain, find_products
from smoothcert.models.torch_classifier import TorchClassifier

SHAPES = {"small_net": (1, 7, 7), "mlp": (1, 28, 28), "mlp-64-32": (20,), "lenet": (1, 28, 28)}

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"),
    reason="torch was built without oneDNN",
)


def make_network(arch: str) -> nn.Module:
    torch.manual_seed(3)
    mean_and_deviation = None if arch == "mlp-64-32" else ((0.5,), (0.25,))
    network = build(arch, num_classes=10, input_shape=SHAPES[arch], standardise=mean_and_deviation)
    return network.eval().requires_grad_(False)


def make_chain(network: nn.Module, shape: tuple[int, ...]) -> ProductChain:
    begin, products = find_products(network, torch.rand(16, *shape))
    assert products
    return ProductChain(begin, products)


def count_products(network: nn.Module, shape: tuple[int, ...]) -> int:
    return len(find_products(network.eval().requires_grad_(False), torch.rand(16, *shape))[1])


@pytest.mark.parametrize("arch", SHAPES)
def test_a_chain_is_the_network(arch: str) -> None:
    network = make_network(arch)
    inputs = torch.randn(64, *SHAPES[arch], generator=torch.Generator().manual_seed(1))
    expected = network.double()(inputs.double())
    found = make_chain(network.float(), SHAPES[arch])(inputs)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", SHAPES)
def test_stock_networks_are_sampled_by_chains(arch: str) -> None:
    network = make_network(arch)
    forward = freeze(network, SHAPES[arch], input_dtype=torch.float32).forward
    assert isinstance(forward, ProductChain)
    assert (forward.begin is None) == (arch != "lenet")
    classifier = as_classifier(network, input_shape=SHAPES[arch])
    assert isinstance(classifier, TorchClassifier)
    inputs = np.random.default_rng(0).normal(size=(200, *SHAPES[arch])).astype(np.float32)
    np.testing.assert_array_equal(classifier.classify(inputs), network(torch.from_numpy(inputs)).argmax(1).numpy())


@pytest.mark.parametrize("arch", SHAPES)
def test_a_row_has_the_same_bits_anywhere_in_any_batch(arch: str) -> None:
    chain = make_chain(make_network(arch), SHAPES[arch])
    inputs = torch.randn(1024, *SHAPES[arch], generator=torch.Generator().manual_seed(2))
    expected = torch.cat([chain(inputs[start : start + 16]) for start in range(0, 1024, 16)])
    for size in (32, 48, 64, 128, 400, 512, 1024):
        assert torch.equal(chain(inputs[:size]), expected[:size])
    for places in (1, 7, 100):
        assert torch.equal(chain(inputs.roll(places, 0)), expected.roll(places, 0))


def test_numbers_that_are_not_finite_stay() -> None:
    """The ReLU of oneDNN turns NaN into 0. A network that overflows would then answer."""
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)).eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter.fill_(0.5)
    chain = make_chain(network, (2,))
    rows = torch.zeros(16, 2)
    rows[0, 0] = torch.nan
    rows[1] = torch.tensor([torch.inf, -torch.inf])
    found = chain(rows)
    assert found[:2].isnan().all()
    assert found[2:].isfinite().all()


class Reused(nn.Module):
    """A network with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.relu(self.first(inputs))
        return hidden + cast(Tensor, self.second(hidden))


@pytest.mark.parametrize(
    ("network", "shape", "products"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)), (3, 4), 2),
        (nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)), (12,), 2),
        (nn.Sequential(nn.Linear(12, 3)), (12,), 1),
        (nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)), (12,), 0),  # the end is small: nothing gained
        (nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 5000), nn.ReLU(), nn.Linear(5000, 9)), (12,), 1),
        (nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(dim=1)), (12,), 0),
        (nn.Sequential(nn.ReLU(), nn.Linear(12, 3)), (12,), 0),  # nothing before the first ReLU
        (nn.Sequential(nn.Linear(2000, 4), nn.Linear(4, 2000)), (2000,), 0),  # their product is much larger than both
        (nn.Sequential(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.Flatten(), nn.Linear(3456, 10)), (1, 28, 28), 1),
        (nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)).double(), (12,), 0),
        (Reused(), (6,), 0),
    ],
)
def test_what_becomes_a_product(network: nn.Module, shape: tuple[int, ...], products: int) -> None:
    if next(network.parameters()).dtype is torch.float64:
        assert find_products(network.eval(), torch.rand(16, *shape).double()) == (network, ())
    else:
        assert count_products(network, shape) == products


def test_a_chain_with_other_logits_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_wrong(network: nn.Module, example: Tensor) -> object:
        begin, products = find_products(network, example)
        for product in products:
            product.offset.add_(0.01)
        return begin, products

    monkeypatch.setattr("smoothcert.models.freezing.find_products", find_wrong)
    frozen = freeze(make_network("mlp"), SHAPES["mlp"], input_dtype=torch.float32)
    assert frozen.forward is None
    assert frozen.reason == "the fused graph gives other logits"
