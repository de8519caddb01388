"""A small writer of PNG files for thumbnails: eight bits, grey or RGB."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREY, _RGB = 0, 2


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """pixels: (height, width) grey or (height, width, 3) RGB. The same pixels give the same bytes."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        raise InputError(f"pixels of shape {pixels.shape} and type {pixels.dtype} are not a grey or RGB image")
    height, width = pixels.shape[:2]
    rows = np.ascontiguousarray(pixels).reshape(height, -1)
    # Every row starts with its filter; 0 is none.
    filtered = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if pixels.ndim == 2 else _RGB, 0, 0, 0)
    body = zlib.compress(filtered.tobytes(), 9)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
