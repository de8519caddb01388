"""Splitting compiled with numba: the same bits as `splitting.split_with_numpy`.

From one evaluation to the next every cut moves by one step. So the distance of the nearest cut is counted down, and no
remainder is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smoothcert.noise.with_numba import compile_cached

_F = np.float32
_I4 = np.int32


def _split_inputs(out: Any, k: Any, phases: Any, evaluations: Any, most: Any) -> None:
    """phases: of the first row; it is overwritten. most: q."""
    scale = _F(_I4(4) * most)
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            phase = phases[i]
            cut = _I4(_I4(2) * (k[i] - phase) - _I4(1))  # twice the last cut before k, in steps
            lower = max(cut, _I4(0))
            upper = min(_I4(cut + _I4(2) * evaluations), _I4(2) * most)
            out[row, i] = _F(_I4(lower + upper)) / scale
            phases[i] = phase - _I4(1) if phase > _I4(0) else evaluations - _I4(1)


SPLIT_INPUTS = compile_cached(_split_inputs)
