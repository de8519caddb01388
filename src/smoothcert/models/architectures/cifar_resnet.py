"""Residual networks for 32×32 images (He et al. 2016, section 4.2), with the parameter names of Cohen's checkpoints."""

from __future__ import annotations

import math

from torch import Tensor, nn

from smoothcert.errors import InputError


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut: the identity, or a 1×1 convolution where the shape changes."""

    def __init__(self, *, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        shortcut: Tensor = inputs if self.downsample is None else self.downsample(inputs)
        hidden = self.bn1(self.conv1(inputs)).relu()
        residual: Tensor = self.bn2(self.conv2(hidden))
        return (residual + shortcut).relu()


class CifarResNet(nn.Module):
    """Three stages of (depth-2)/6 basic blocks with 16, 32 and 64 channels, then the mean over positions.

    Input (B, channels, 32, 32), output (B, num_classes). depth must be 6k+2: 20, 32, 44, 56, 110, …
    """

    def __init__(self, *, depth: int, channels: int, num_classes: int) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6 != 0:
            raise InputError(f"a CIFAR ResNet of depth {depth} does not exist; depth is 6k+2, as in 20 or 110")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(blocks=blocks, channels_in=16, channels=16, stride=1)
        self.layer2 = _stage(blocks=blocks, channels_in=16, channels=32, stride=2)
        self.layer3 = _stage(blocks=blocks, channels_in=32, channels=64, stride=2)
        self.fc = nn.Linear(64, num_classes)
        _initialise_convolutions(self)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.bn1(self.conv1(inputs)).relu()
        hidden = self.layer3(self.layer2(self.layer1(hidden)))
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits


def _stage(*, blocks: int, channels_in: int, channels: int, stride: int) -> nn.Sequential:
    first = BasicBlock(channels_in=channels_in, channels=channels, stride=stride)
    rest = (BasicBlock(channels_in=channels, channels=channels, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)


def _initialise_convolutions(module: nn.Module) -> None:
    """He initialisation by fan-out. Without it the deep variants do not start to learn."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            fan_out = math.prod(layer.kernel_size) * layer.out_channels
            nn.init.normal_(layer.weight, mean=0.0, std=math.sqrt(2.0 / fan_out))
