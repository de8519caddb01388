"""Statistics of a run: fractions of its inputs and facts about the log. `intervals` has bounds on the true values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import InputError, RunError
from smoothcert.records import FloatArray, IntArray, Outcome
from smoothcert.runs.result_columns import BoolArray, ResultColumns


def certified_counts(results: ResultColumns, radii: ArrayLike) -> IntArray:
    """Number of correct inputs with a certified radius of at least r, for every r in `radii`.

    Such an input keeps its correct answer under every perturbation with ‖δ‖ < r. Abstentions and failures are not
    certified. At r = 0 this is the number of correct answers. radii: finite, ≥ 0, any shape; the result has that shape.

    The comparison is ≥, as in the tables of the literature: with > the logs of Cohen et al. do not give their table.
    """
    values = np.asarray(radii, dtype=np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise InputError("the radii for certified accuracy must be finite numbers of at least 0")
    _require_labels(results)
    if (values > 0).any():
        _require_radii(results)
    certified = np.sort(results.radius[results.correct])
    return np.asarray(certified.size - np.searchsorted(certified, values, side="left"), dtype=np.int64)


def certified_accuracy(results: ResultColumns, radii: ArrayLike) -> FloatArray:
    """`certified_counts` as a fraction of all inputs, in [0, 1]; non-increasing in r."""
    return np.asarray(certified_counts(results, radii) / len(results), dtype=np.float64)


def average_certified_radius(results: ResultColumns) -> float:
    """ACR, the mean over all inputs of radius · 1[correct]: the area under the certified accuracy curve."""
    _require_labels(results)
    _require_radii(results)
    return math.fsum(results.radius[results.correct]) / len(results)


def mean_radius(results: ResultColumns) -> float:
    """Mean radius over all inputs, whether correct or not. It needs no labels."""
    _require_radii(results)
    return float(results.radius.mean())


def accuracy(results: ResultColumns) -> float:
    """Fraction of correct inputs. Accuracy, misclassification, abstention and failure rates sum to 1."""
    _require_labels(results)
    return _fraction(results.correct)


def misclassification_rate(results: ResultColumns) -> float:
    """Fraction of inputs with a wrong answer."""
    _require_labels(results)
    return _fraction(results.decided & ~results.correct)


def abstention_rate(results: ResultColumns) -> float:
    """Fraction of inputs without an answer because the votes did not decide on one class."""
    return _fraction(results.is_outcome(Outcome.ABSTAINED))


def failure_rate(results: ResultColumns) -> float:
    """Fraction of inputs about which no valid statement could be made."""
    return _fraction(results.is_outcome(Outcome.FAILED))


@dataclass(frozen=True, slots=True, eq=False)
class ClassAccuracy:
    """Certified accuracy by class at one radius. Columns of shape (k,), classes ascending.

    classes: those with at least one input. points: number of inputs of each.
    """

    classes: IntArray
    points: IntArray
    accuracy: FloatArray

    @property
    def spread(self) -> float:
        """Population standard deviation over the classes (divided by k, not k − 1); every class has the same weight.

        Súkeník et al. report "the standard deviation of class-wise accuracies" as a measure of fairness without naming
        the divisor. The classes are not a sample, so it is k here.
        """
        return float(np.std(self.accuracy))


def class_accuracy(results: ResultColumns, *, radius: float = 0.0) -> ClassAccuracy:
    """Certified accuracy at `radius` over the inputs of each class; at 0, its plain accuracy."""
    _require_labels(results)
    if radius > 0:
        _require_radii(results)
    classes, membership = np.unique(results.label, return_inverse=True)
    points = np.bincount(membership, minlength=classes.size)
    robust = results.correct & (results.radius >= radius)
    correct = np.bincount(membership[robust], minlength=classes.size)
    return ClassAccuracy(classes=classes, points=points.astype(np.int64), accuracy=correct / points)


def p_a_distribution(results: ResultColumns, *, edges: ArrayLike) -> FloatArray:
    """Fraction of the inputs with a known p_A whose p_A is in each bin; the fractions sum to 1.

    edges: (b+1,) ascending from 0 to 1. Returns (b,). A bin includes its left edge, the last one also its right edge.
    """
    bins = np.asarray(edges, dtype=np.float64)
    if bins.ndim != 1 or bins.size < 2 or bins[0] != 0 or bins[-1] != 1 or (np.diff(bins) <= 0).any():
        raise InputError("the bins of p_A must have ascending edges from 0 to 1")
    known = results.p_a[np.isfinite(results.p_a)]
    if known.size == 0:
        raise RunError(
            f"{results.name} has no p_A: runs have it if their certificate bounds it (dipole bounds pairs of votes "
            "instead; `recertify --certificate gaussian` computes it), and logs if they have a column p_A_bar"
        )
    counts, _ = np.histogram(known, bins=bins)
    return np.asarray(counts / known.size, dtype=np.float64)


def envelope(runs: Sequence[ResultColumns], radii: ArrayLike) -> FloatArray:
    """Best certified accuracy over the runs at each radius: what choosing the run for each radius would give.

    It is at least the curve of every run. No single classifier attains it, because the choice is made after looking.
    """
    _require_runs(runs)
    if not all(run.has_norm_of(runs[0]) for run in runs):
        raise RunError("the radii of the runs are in different norms, so the best run at a radius is not defined")
    return np.asarray(np.max([certified_accuracy(run, radii) for run in runs], axis=0), dtype=np.float64)


def common_inputs(runs: Sequence[ResultColumns]) -> list[ResultColumns]:
    """Each run restricted to the inputs that all of them contain, in ascending order of index."""
    _require_runs(runs)
    shared = runs[0].index
    for run in runs[1:]:
        shared = np.intersect1d(shared, run.index)
    if shared.size == 0:
        raise RunError(f"no input is in all of {', '.join(run.name for run in runs)}")
    shared = np.sort(shared)
    return [run.subset(_positions(run, shared)) for run in runs]


def same_inputs(runs: Sequence[ResultColumns]) -> bool:
    """True if the runs contain the same inputs, so that their fractions can be compared directly."""
    return all(np.array_equal(np.sort(run.index), np.sort(runs[0].index)) for run in runs[1:])


@dataclass(frozen=True, slots=True)
class GoldComparison:
    """Fractions of the inputs, summing to 1 (Cohen et al. 2019, table 4).

    correct: the answer is the label. accurate: the answer is that of the gold standard.
    """

    correct_accurate: float
    correct_inaccurate: float
    incorrect_accurate: float
    incorrect_inaccurate: float
    abstain: float
    failed: float


def compare_with_gold(results: ResultColumns, gold: ResultColumns) -> GoldComparison:
    """Compare the answers of a run with those of a gold standard, such as PREDICT with many more samples.

    Inputs are matched by index; the gold standard must contain all of them, with the same labels. Where the gold
    standard has no answer, an answer counts as inaccurate.
    """
    _require_labels(results)
    missing = np.setdiff1d(results.index, gold.index)
    if missing.size:
        raise RunError(
            f"{gold.name} lacks {missing.size} of the {len(results)} inputs of {results.name}, the first of "
            f"index {missing[0]}: a gold standard must contain them all"
        )
    matched = gold.subset(_positions(gold, results.index))
    if (matched.label != results.label).any():
        raise RunError(f"{gold.name} and {results.name} disagree on labels: they are not about the same dataset")
    decided, correct = results.decided, results.correct
    accurate = decided & matched.decided & (results.prediction == matched.prediction)
    return GoldComparison(
        correct_accurate=_fraction(correct & accurate),
        correct_inaccurate=_fraction(correct & ~accurate),
        incorrect_accurate=_fraction(decided & ~correct & accurate),
        incorrect_inaccurate=_fraction(decided & ~correct & ~accurate),
        abstain=abstention_rate(results),
        failed=failure_rate(results),
    )


def _positions(results: ResultColumns, index: IntArray) -> IntArray:
    """Positions of the inputs with these indices in a run that contains them all."""
    order = np.argsort(results.index)
    return np.asarray(order[np.searchsorted(results.index, index, sorter=order)], dtype=np.int64)


def _fraction(mask: BoolArray) -> float:
    return int(mask.sum()) / mask.size


def _require_radii(results: ResultColumns) -> None:
    if not results.has_radius:
        raise RunError(f"{results.name} has predictions without radii: only radius 0 can be evaluated")


def _require_labels(results: ResultColumns) -> None:
    unlabelled = int((~results.labelled).sum())
    if unlabelled:
        raise RunError(
            f"{unlabelled} of the {len(results)} inputs of {results.name} have no label, so it has no accuracy"
        )


def _require_runs(runs: Sequence[ResultColumns]) -> None:
    if not runs:
        raise InputError("no run was given; at least one is required")
