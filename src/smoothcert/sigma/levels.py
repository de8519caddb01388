"""The noise levels that a rule gives, checked before they are used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smoothcert.errors import InputError
from smoothcert.noise import check_sigma, check_suits_grid
from smoothcert.records import ConstantSigma, InputArray, Noise
from smoothcert.sigma.constant import ConstantRule
from smoothcert.sigma.envelope_check import EnvelopeCheck
from smoothcert.sigma.optimised import OptimisedSigma
from smoothcert.sigma.rule import SigmaRule


class LevelCheck:
    """Asks a rule for noise levels and refuses those that the noise cannot carry.

    A rule that claims to be constant must give the same level for all inputs it is ever asked about, and levels that
    vary must not contradict the envelope of their rule.
    """

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._seen: set[float] = set()
        self._envelope = EnvelopeCheck()

    def levels(
        self, rule: SigmaRule, inputs: InputArray, indices: Sequence[int], *, grid: int | None
    ) -> dict[int, float]:
        """The level of each row of `inputs`. indices: of the inputs, for messages."""
        found = np.asarray(rule.sigmas(inputs), dtype=np.float64)
        if found.shape != (len(inputs),):
            raise InputError(
                f"{rule.description} gave levels of shape {found.shape} for {len(inputs)} inputs; one sigma each was "
                "expected"
            )
        levels = {row: float(level) for row, level in enumerate(found)}
        for row, level in levels.items():
            try:
                check_sigma(level)
                if grid is not None:
                    check_suits_grid(self._noise, sigma=level, levels=grid)
            except InputError as error:
                raise InputError(f"input {indices[row]} cannot be smoothed: {error}") from error
        if isinstance(rule.envelope, ConstantSigma):
            self._check_constant(rule, set(levels.values()))
        self._envelope.check(rule, inputs, found, indices)
        return levels

    def _check_constant(self, rule: SigmaRule, levels: set[float]) -> None:
        self._seen |= levels
        if len(self._seen) > 1:
            raise InputError(
                f"{rule.description} states that sigma is constant, but gave {min(self._seen):g} and "
                f"{max(self._seen):g}: state the envelope by which it varies"
            )


def list_likely_levels(sigma: SigmaRule | OptimisedSigma, inputs: InputArray) -> Sequence[float]:
    """The noise levels that these inputs get; for a search, the ends of its range."""
    if isinstance(sigma, OptimisedSigma):
        return sigma.bounds
    if isinstance(sigma, ConstantRule):
        return (sigma.sigma,)
    return [float(level) for level in np.ravel(sigma.sigmas(inputs))]
