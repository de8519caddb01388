"""Small convolutions as matrix products: the same function, the same bits anywhere in a batch, and only where small."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from smoothcert.models.row_products import RowwiseLinear, use_row_products

SMALL = {
    "image": (nn.Conv2d(1, 4, 2), (1, 7, 7)),
    "padded": (nn.Conv2d(1, 4, 3, padding=1), (1, 8, 8)),
    "strided and dilated": (nn.Conv2d(2, 6, 2, stride=2, dilation=2), (2, 8, 8)),
    "in groups, without a bias": (nn.Conv2d(4, 8, 3, groups=2, bias=False), (4, 5, 5)),
    "around the border": (nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular"), (1, 6, 6)),
    "float64": (nn.Conv2d(1, 4, 2).double(), (1, 7, 7)),
    "signal": (nn.Conv1d(2, 4, 3), (2, 20)),
    "volume": (nn.Conv3d(1, 2, 2), (1, 4, 4, 4)),
}


def replaced(network: nn.Module, shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32) -> nn.Module:
    twin = copy.deepcopy(network)
    with torch.no_grad():
        use_row_products(twin, torch.rand((16, *shape), dtype=dtype), may_replace=lambda _: True)
    return twin


def is_product(layer: nn.Module) -> bool:
    return "matrix" in dict(layer.named_buffers())


@pytest.mark.parametrize("name", SMALL)
def test_a_small_convolution_is_the_same_function(name: str) -> None:
    layer, shape = SMALL[name]
    dtype = layer.weight.dtype
    product = replaced(layer, shape, dtype=dtype)
    assert is_product(product)
    inputs = torch.randn((64, *shape), dtype=dtype, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = layer(inputs), product(inputs)
    assert found.shape == expected.shape
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=20 * torch.finfo(dtype).eps, atol=20 * torch.finfo(dtype).eps)


def test_the_matrix_holds_the_weights_and_zeros() -> None:
    layer, shape = SMALL["image"]
    matrix = dict(replaced(layer, shape).named_buffers())["matrix"]
    assert set(matrix.unique().tolist()) == {0.0, *layer.weight.flatten().tolist()}
    assert (matrix != 0).sum(dim=0).unique().tolist() == [4]  # each output sees the four pixels of its window


def test_a_row_has_the_same_bits_anywhere_in_any_batch() -> None:
    layer, shape = SMALL["image"]
    product = replaced(layer, shape)
    row = torch.randn((1, *shape), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = product(row.repeat(16, 1, 1, 1))[0]
        for size in (16, 64, 400, 2048):
            batch = torch.randn((size, *shape), generator=torch.Generator().manual_seed(size))
            for place in (0, 1, size // 2, size - 1):
                batch[place] = row[0]
                assert torch.equal(product(batch)[place], expected)


def test_a_large_convolution_stays() -> None:
    assert not is_product(replaced(nn.Conv2d(1, 6, 5), (1, 28, 28)))


def test_linear_layers_are_replaced_too() -> None:
    assert type(replaced(nn.Linear(4, 3), (4,))) is RowwiseLinear
    assert type(replaced(nn.Linear(4, 3, bias=False), (4,))) is nn.Linear


def test_what_may_not_be_replaced_stays() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(144, 10))
    with torch.no_grad():
        use_row_products(network, torch.rand(16, 1, 7, 7), may_replace=lambda layer: layer is not network[0])
    assert type(network[0]) is nn.Conv2d
    assert type(network[2]) is RowwiseLinear


class Subclass(nn.Conv2d):
    """A convolution that does something else."""

    def forward(self, inputs: Tensor) -> Tensor:
        return -super().forward(inputs)


def test_subclasses_stay() -> None:
    assert not is_product(replaced(Subclass(1, 4, 2), (1, 7, 7)))


class Twice(nn.Module):
    """One convolution for inputs of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(self.layer(inputs)).flatten(1)


def test_a_layer_that_gets_two_shapes_stays() -> None:
    assert not is_product(replaced(Twice(), (1, 7, 7)).layer)
