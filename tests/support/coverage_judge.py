"""The one judge of the coverage suite: how often was a statement wrong, and does that contradict what it promises?

A statement that may be wrong with probability `rate` is tried in many independent repetitions. Its failures are then at
most binomial, so that P(Bin(trials, rate) ≥ failures) is an exact p-value. Below FALSE_ALARM the promise is refuted.
The same judge must refute every control, which is a procedure with a known mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from smoothcert.records import Proof

FALSE_ALARM = 1e-6
"""Upper bound on the probability that one true statement is refuted; the whole suite: docs/explanation/coverage.md."""

ROUNDING = 1e-12
"""Relative: bounds are compared with truths that float64 holds no better than this."""

BoolArray = NDArray[np.bool_]


def p_value(failures: int, trials: int, rate: float) -> float:
    """P(Bin(trials, rate) ≥ failures), exactly: the regularised incomplete beta function."""
    return float(special.betainc(failures, trials - failures + 1, rate)) if failures > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """In how many of the repetitions a statement was wrong."""

    failures: int
    trials: int

    @classmethod
    def of(cls, failed: ArrayLike, times: ArrayLike | None = None) -> Seen:
        """failed: whether each repetition failed. times: how often each was drawn, where equal ones are kept once."""
        wrong = np.asarray(failed, dtype=np.bool_)
        drawn = np.ones(wrong.shape, dtype=np.int64) if times is None else np.asarray(times, dtype=np.int64)
        return cls(int(drawn[wrong].sum()), int(drawn.sum()))

    def refutes(self, rate: float) -> bool:
        return p_value(self.failures, self.trials, rate) < FALSE_ALARM

    def __str__(self) -> str:
        return f"{self.failures} of {self.trials}"


Statements = Mapping[str, Seen]


@dataclass(frozen=True, slots=True)
class Case:
    """An experiment on one bound or certificate of ours, or, as a control, on a procedure with a known mistake.

    rate: how often each of its statements may be wrong. run: makes the experiment, and returns for every statement how
    often it was. certificates, proofs: what it covers.
    """

    name: str
    rate: float
    run: Callable[[], Statements | Seen]
    certificates: tuple[str, ...] = ()
    proofs: tuple[Proof, ...] = ()

    def __str__(self) -> str:
        return self.name

    def check_holds(self) -> None:
        """No statement was wrong more often than it may be."""
        for statement, seen in self._judged("holds"):
            assert not seen.refutes(self.rate), f"{self.name}, {statement}: wrong in {seen}, promised {self.rate}"

    def check_is_caught(self) -> None:
        """Every statement was wrong so often that the judge refutes it."""
        for statement, seen in self._judged("control"):
            assert seen.refutes(self.rate), f"{self.name}, {statement}: wrong in {seen} only, promised {self.rate}"

    def _judged(self, kind: str) -> list[tuple[str, Seen]]:
        """Every statement, printed so that `pytest -s` shows the whole suite as a table."""
        found = self.run()
        statements = list(({"": found} if isinstance(found, Seen) else found).items())
        assert statements, f"{self.name} says nothing"
        for statement, seen in statements:
            what = ": ".join(filter(None, (self.name, statement)))
            print(f"\njudged | {kind} | {what} | {self.rate:g} | {seen.failures / seen.trials:.5f} | {seen.trials}")
        return statements
