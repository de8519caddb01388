"""Networks that a user of `--arch own_networks:NAME` and `smoothcert.train` might have, good and bad."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """With what the networks of smoothcert do not have: dropout, batch statistics of vectors, view()."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm1d(4 * 36)
        self.drop = nn.Dropout(0.3)
        self.hidden = nn.Linear(4 * 36, width)
        self.last = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x - 0.5))
        x = self.drop(self.norm(x.view(len(x), -1)))
        logits: Tensor = self.last(torch.relu(self.hidden(x)))
        return logits


def make_net() -> Net:
    return Net()


class WideNet(Net):
    """Fits no checkpoint of Net."""

    def __init__(self) -> None:
        super().__init__(width=20)


class LazyNet(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.LazyLinear(16), nn.ReLU(), nn.Linear(16, 10))


class TiedNet(nn.Module):
    """Two layers share their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.relu(self.second(torch.relu(self.first(x.flatten(1))))))
        return logits


class Volume(nn.Module):
    """Has a weight of five dimensions, for which there is no channels-last layout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 2, 3)
        self.last = nn.Linear(72, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.relu(self.conv(x[:, :, None].expand(-1, -1, 3, -1, -1))).flatten(1))
        return logits


class FewLogits(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 3))


class ManyLogits(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 12))


class NoLogits(nn.Module):
    """Answers with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.last(x.flatten(1))}


class Flat(nn.Linear):
    """Takes vectors, not images."""

    def __init__(self) -> None:
        super().__init__(64, 10)


class Frozen(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 10))
        self.requires_grad_(False)


class NeedsWidth(Net):
    def __init__(self, width: int) -> None:
        super().__init__(width)


def not_a_network() -> Any:
    return {"weights": 1}


def leave() -> None:
    sys.exit(0)
