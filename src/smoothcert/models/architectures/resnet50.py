"""ResNet-50 (He et al. 2016) with torchvision's parameter names, so that its checkpoints load."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

EXPANSION = 4


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions and a shortcut; the stride is in the 3×3, as in torchvision ("v1.5")."""

    def __init__(self, *, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = width * EXPANSION
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or channels_in != channels_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        shortcut: Tensor = inputs if self.downsample is None else self.downsample(inputs)
        hidden = self.bn1(self.conv1(inputs)).relu()
        hidden = self.bn2(self.conv2(hidden)).relu()
        residual: Tensor = self.bn3(self.conv3(hidden))
        return (residual + shortcut).relu()


class ResNet50(nn.Module):
    """Stages of 3, 4, 6 and 3 bottlenecks. Input (B, channels, H, W), usually 224×224; output (B, num_classes)."""

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(blocks=3, channels_in=64, width=64, stride=1)
        self.layer2 = _stage(blocks=4, channels_in=256, width=128, stride=2)
        self.layer3 = _stage(blocks=6, channels_in=512, width=256, stride=2)
        self.layer4 = _stage(blocks=3, channels_in=1024, width=512, stride=2)
        self.fc = nn.Linear(512 * EXPANSION, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = functional.max_pool2d(self.bn1(self.conv1(inputs)).relu(), 3, stride=2, padding=1)
        hidden = self.layer4(self.layer3(self.layer2(self.layer1(hidden))))
        logits: Tensor = self.fc(hidden.mean(dim=(2, 3)))
        return logits


def _stage(*, blocks: int, channels_in: int, width: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels_in=channels_in, width=width, stride=stride)
    rest = (Bottleneck(channels_in=width * EXPANSION, width=width, stride=1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)
