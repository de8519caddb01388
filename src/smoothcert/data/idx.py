"""The idx format of MNIST, in which fetched datasets are checked and stored.

Layout: two zero bytes, a type byte (8: unsigned bytes, the only type supported), the number of dimensions, the
dimensions as big-endian 32-bit numbers, then the bytes in C order.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from smoothcert.errors import DataError

# numpy is imported where it is used: listing the datasets needs only sizes and must be fast.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_UNSIGNED_BYTE = 8


def idx_size(shape: tuple[int, ...]) -> int:
    """Size in bytes of the idx file of an array of this shape."""
    return 4 + 4 * len(shape) + math.prod(shape)


def encode_idx(array: NDArray[np.uint8]) -> bytes:
    """Encode an array of unsigned bytes as an idx file."""
    import numpy as np

    header = struct.pack(f">HBB{array.ndim}I", 0, _UNSIGNED_BYTE, array.ndim, *array.shape)
    return header + np.ascontiguousarray(array).tobytes()


def decode_idx(content: bytes | bytearray, *, name: str) -> NDArray[np.uint8]:
    """Decode an idx file to an array, a view of `content`. A malformed file is a DataError that names it."""
    import numpy as np

    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise DataError(
            f"{name} is not an idx file of unsigned bytes: it starts with {bytes(content[:4]).hex() or 'nothing'}"
        )
    dimensions = content[3]
    if len(content) < 4 + 4 * dimensions:
        raise DataError(f"{name} ends within its header, after {len(content)} bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if len(content) != idx_size(shape):
        raise DataError(f"{name} has {len(content)} bytes, but shape {shape} needs {idx_size(shape)}")
    try:
        return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except ValueError as error:  # an empty array with more or longer sides than numpy supports
        raise DataError(f"{name} has the unsupported shape {shape}: {error}") from error
