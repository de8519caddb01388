"""A small vision transformer for 32x32 images: patches of 4x4, 192 wide, 12 blocks, 3 heads, as in ViT-tiny.

Written with torch's own layers, as a user would, so that benchmarks also time a network without an architecture here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_PATCH, _WIDTH, _DEPTH, _HEADS = 4, 192, 12, 3


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(_WIDTH)
        self.attention = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=True)
        self.before_mixing = nn.LayerNorm(_WIDTH)
        self.mixing = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        normal = self.before_attention(tokens)
        tokens = tokens + self.attention(normal, normal, normal, need_weights=False)[0]
        mixed: Tensor = tokens + self.mixing(self.before_mixing(tokens))
        return mixed


class ViTTiny(nn.Module):
    """Input (B, 3, 32, 32), output (B, 10); 5.4 million weights."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, _WIDTH, _PATCH, _PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, (32 // _PATCH) ** 2 + 1, _WIDTH))
        self.blocks = nn.Sequential(*(_Block() for _ in range(_DEPTH)))
        self.end = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.patches((inputs - 0.5) / 0.25).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(inputs.shape[0], -1, -1), tokens], dim=1) + self.places
        logits: Tensor = self.head(self.end(self.blocks(tokens))[:, 0])
        return logits
