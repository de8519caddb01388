"""Whether the noise levels of the inputs at hand contradict the envelope that their rule states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from smoothcert.errors import InputError
from smoothcert.records import ConstantSigma, Envelope, FloatArray, InputArray
from smoothcert.sigma.rule import SigmaRule

_ROWS_TOGETHER = 256
_MOST_INPUTS, _MOST_BYTES = 1024, 2**27
"""How many inputs are compared with each other, and how much memory they may take."""
_TOLERANCE = 1e-6
"""Relative. Levels have an error of 1e-11, which an envelope may enlarge; a wrong one is off by more than this."""


class EnvelopeCheck:
    """Compares every input with up to 1024 inputs that were seen before.

    Distances are rounded up and levels have a tolerance, so a true envelope is never refused. It proves nothing: an
    envelope that no pair contradicts may still be wrong.
    """

    def __init__(self) -> None:
        self._inputs: InputArray | None = None
        self._levels: FloatArray = np.zeros(0)
        self._indices: list[int] = []

    def check(self, rule: SigmaRule, inputs: InputArray, levels: FloatArray, indices: Sequence[int]) -> None:
        """InputError, with the pair, if two inputs contradict the envelope. inputs: (m, …); levels: (m,)."""
        envelope = rule.envelope
        if envelope is None or isinstance(envelope, ConstantSigma):
            return
        rows = inputs.reshape(len(inputs), -1)
        for start in range(0, len(rows), _ROWS_TOGETHER):
            part = slice(start, start + _ROWS_TOGETHER)
            self._compare(rule, envelope, rows[part], levels[part], indices[part])

    def _compare(
        self, rule: SigmaRule, envelope: Envelope, rows: InputArray, levels: FloatArray, indices: Sequence[int]
    ) -> None:
        others = rows if self._inputs is None else np.concatenate([self._inputs, rows])
        other_levels = np.concatenate([self._levels, levels])
        other_indices = [*self._indices, *indices]
        distances = _round_distances_up(rows, others)
        own, other = (np.ascontiguousarray(side) for side in np.broadcast_arrays(levels[:, None], other_levels))
        for here, there, mirrored in ((own, other, False), (other, own, True)):
            low, high = envelope.low(here, distances), envelope.high(here, distances)
            wrong = (there < low * (1.0 - _TOLERANCE)) | (there > high * (1.0 + _TOLERANCE))
            if wrong.any():
                row, place = (int(at) for at in np.argwhere(wrong)[0])
                pair = [(indices[row], levels[row]), (other_indices[place], other_levels[place])]
                (first, first_level), (second, second_level) = reversed(pair) if mirrored else pair
                raise InputError(
                    f"{rule.description} contradicts its envelope {dict(envelope.to_json())}: inputs {first} and "
                    f"{second} are {float(distances[row, place]):.6g} apart and have sigma {float(first_level):.6g} "
                    f"and {float(second_level):.6g}, but within that distance of input {first} the envelope allows "
                    f"only {float(low[row, place]):.6g} … {float(high[row, place]):.6g}. Nothing can be certified with "
                    "it: state an envelope that is proved for the function"
                )
        room = max(2, min(_MOST_INPUTS, _MOST_BYTES // max(1, rows.shape[1] * rows.itemsize)))
        self._inputs, self._levels = others[:room].copy(), other_levels[:room]
        self._indices = other_indices[:room]


def check_spread_inputs(rule: SigmaRule, count: int, ask: Callable[[Sequence[int]], object]) -> None:
    """Ask for the levels of inputs spread evenly over all, before anything is sampled.

    ask: computes the levels at some positions and compares them. Rules without an envelope to contradict are not asked.
    """
    if rule.envelope is None or isinstance(rule.envelope, ConstantSigma):
        return
    positions = np.unique(np.linspace(0, count - 1, min(count, _MOST_INPUTS)).astype(np.int64)).tolist()
    for start in range(0, len(positions), _ROWS_TOGETHER):
        ask(positions[start : start + _ROWS_TOGETHER])


def _round_distances_up(rows: InputArray, others: InputArray) -> FloatArray:
    """(m, k) upper bounds on ‖rows[i] - others[j]‖₂.

    Products of float32 numbers are exact in float64; a sum of d terms is off by at most d roundings of its size.
    """
    a, b = rows.astype(np.float64), others.astype(np.float64)
    sizes = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)
    error = 4.0 * (a.shape[1] + 4) * np.finfo(np.float64).eps * sizes
    squares = np.maximum(sizes - 2.0 * (a @ b.T), 0.0) + error
    return np.asarray(np.sqrt(squares) * (1.0 + 1e-12), dtype=np.float64)
