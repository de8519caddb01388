"""The network for MNIST averaged to 7×7 (Levine et al. 2021)."""

from __future__ import annotations

from torch import Tensor, nn


class SmallNet(nn.Module):
    """conv 4@2×2 – ReLU – 100 – ReLU – num_classes; the parameter names are those of the released checkpoint.

    Input (B, channels, 7, 7), output (B, num_classes).
    """

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 4, kernel_size=2)
        self.lin1 = nn.Linear(4 * 6 * 6, 100)
        self.lin2 = nn.Linear(100, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.conv1(inputs).relu()
        logits: Tensor = self.lin2(self.lin1(hidden.flatten(1)).relu())
        return logits
