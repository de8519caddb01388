"""LeNet as used for the MNIST results in the smoothing literature."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class LeNet(nn.Module):
    """conv 20@5×5 – pool – conv 50@5×5 – pool – 500 – num_classes, ReLU between.

    Input (B, channels, 28, 28), output (B, num_classes).
    """

    def __init__(self, *, channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.fc1 = nn.Linear(50 * 4 * 4, 500)
        self.fc2 = nn.Linear(500, num_classes)

    def forward(self, inputs: Tensor) -> Tensor:
        # ReLU and max-pooling commute; pooling first leaves four times fewer values to rectify.
        hidden = functional.max_pool2d(self.conv1(inputs), 2).relu()
        hidden = functional.max_pool2d(self.conv2(hidden), 2).relu()
        logits: Tensor = self.fc2(self.fc1(hidden.flatten(1)).relu())
        return logits
