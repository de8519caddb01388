"""Certified accuracy of a test set that holds with high probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.analysis.metrics import certified_counts
from smoothcert.analysis.table_choices import BoundChoice, BoundMethod
from smoothcert.errors import InputError, RunError
from smoothcert.records import FloatArray
from smoothcert.runs.result_columns import ResultColumns
from smoothcert.statistics.testset import bernstein_lower_bound, exact_lower_bound


def certified_accuracy_lower_bound(results: ResultColumns, radii: ArrayLike, *, choice: BoundChoice) -> FloatArray:
    """Lower bound on the true certified accuracy of these inputs at each radius, wrong with probability ≤ rho.

    Pointwise: valid at each radius fixed in advance, not for the whole curve at once. The probability is over the
    sampling of the run; the inputs are fixed. Shape of `radii`; in [0, 1], never above `certified_accuracy`.
    """
    alpha = _alpha(results, choice)
    counts = certified_counts(results, radii)
    if choice.method is BoundMethod.BERNSTEIN:
        return bernstein_lower_bound(counts, trials=len(results), alpha=alpha, rho=choice.rho)
    good = exact_lower_bound(counts, trials=len(results), alpha=alpha, rho=choice.rho)
    return np.asarray(good / len(results), dtype=np.float64)


def envelope_lower_bound(runs: Sequence[ResultColumns], radii: ArrayLike, *, choice: BoundChoice) -> FloatArray:
    """Lower bound on the best run's true certified accuracy at each radius.

    The run is chosen after looking, so each of the k runs is bounded at rho/k; their maximum is then wrong with
    probability at most rho.
    """
    shared = replace(choice, rho=choice.rho / len(runs))
    bounds = [certified_accuracy_lower_bound(run, radii, choice=shared) for run in runs]
    return np.asarray(np.max(bounds, axis=0), dtype=np.float64)


def _alpha(results: ResultColumns, choice: BoundChoice) -> float:
    if not results.independent_noise:
        raise RunError(
            f"the inputs of {results.name} shared their noise, so their errors are dependent and no test-set bound "
            "holds; certify again with independent noise for every input"
        )
    if results.alpha is None:
        if choice.alpha is None:
            raise InputError(
                f"{results.name} does not state its error probability per input, which the bound needs: give the alpha "
                "that the log was made with (0.001 in most papers)"
            )
        return choice.alpha
    if choice.alpha is not None and choice.alpha < results.alpha:
        raise InputError(
            f"alpha {choice.alpha:g} was given, but {results.name} was certified at {results.alpha:g}: a smaller one "
            "would claim more than was proved; recertify the run to change it"
        )
    return results.alpha if choice.alpha is None else choice.alpha
