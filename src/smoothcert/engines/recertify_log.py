"""The logs of Levine et al. hold raw counts: their bounds and radii computed again, without the model.

A log says neither σ, n, α nor the dimension; they come from whoever has it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smoothcert.certificates import dipole_radius, gaussian_radius, second_order_radius
from smoothcert.certification import check_samples
from smoothcert.errors import InputError, RunError
from smoothcert.noise import check_sigma
from smoothcert.records import FloatArray, Outcome
from smoothcert.runs.results import NO_CLASS, Results, outcome_code
from smoothcert.runs.tsv import read_log
from smoothcert.statistics import check_alpha, clopper_pearson_lower, equal_share, pair_product_margin

USUAL_ALPHA = 0.001
_DIPOLE_COLUMNS = ("raw_count_symmetric", "raw_count_asymmetric")
_SECOND_ORDER_COLUMNS = ("raw_count", "raw_grad_norm")
_FIRST_ORDER_COLUMNS = ("raw_count",)


@dataclass(frozen=True, slots=True)
class RecertifiedLog:
    """The log with its radii computed again (rounded down), how, and what is to be said about it."""

    results: Results
    certificate: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Settings:
    sigma: float
    n: int
    alpha: float
    dimension: int | None


def recertify_log(
    path: Path, *, sigma: float, n: int, alpha: float = USUAL_ALPHA, dimension: int | None = None
) -> RecertifiedLog:
    """Every row of a first-order, dipole or second-order log, by the bounds of Levine et al.

    n: samples per input, both votes of a pair counted. dimension: of an input, for a second-order log; where it is not
    given it is worked out from the bounds in the log, if they tell it.
    """
    check_sigma(sigma)
    check_alpha(alpha)
    check_samples("n", n, least=2)
    log = read_log(path)
    settings = _Settings(sigma=sigma, n=n, alpha=alpha, dimension=dimension)
    certificate, columns, recompute = _dialect(log, path)
    _check_counts(log, columns, trials=n if certificate == "gaussian" or "grad" in columns[-1] else n // 2, path=path)
    radius, p_a, notes = recompute(log, settings)
    certified = log.decided & (radius > 0)
    results = dataclasses.replace(
        log,
        prediction=np.where(certified, log.prediction, NO_CLASS),
        outcome=np.where(certified, outcome_code(Outcome.CERTIFIED), outcome_code(Outcome.ABSTAINED)).astype(np.int8),
        radius=np.where(certified, radius, 0.0),
        sigma=np.full(len(log), sigma),
        p_a=p_a,
        alpha=alpha,
        extra={},
    )
    return RecertifiedLog(results=results, certificate=certificate, notes=(*notes, *_agreement(log, radius)))


_Recomputed = tuple[FloatArray, FloatArray, list[str]]


def _dialect(log: Results, path: Path) -> tuple[str, tuple[str, ...], Callable[[Results, _Settings], _Recomputed]]:
    """The certificate a log was made by, the columns that hold its counts, and how they are computed again."""
    dialects: list[tuple[str, tuple[str, ...], Callable[[Results, _Settings], _Recomputed]]] = [
        ("dipole-separate", _DIPOLE_COLUMNS, _dipole),
        ("second-order-pairs", _SECOND_ORDER_COLUMNS, _second_order),
        ("gaussian", _FIRST_ORDER_COLUMNS, _first_order),
    ]
    for certificate, columns, recompute in dialects:
        if all(column in log.extra for column in columns):
            return certificate, columns, recompute
    raise RunError(
        f"{path} holds no raw counts, from which alone radii can be computed again; expected a column raw_count, or "
        f"{' and '.join(_DIPOLE_COLUMNS)}, or {' and '.join(_SECOND_ORDER_COLUMNS)}"
    )


def _check_counts(log: Results, columns: tuple[str, ...], *, trials: int, path: Path) -> None:
    for column in columns:
        values = log.extra[column]
        if "grad" in column:
            continue
        wrong = ~((values >= 0) & (values <= trials) & (values == np.floor(values)))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise RunError(
                f"{path}: input {log.index[first]} has {column} {values[first]:g}, which is no count out of {trials}; "
                "is --n the number of samples this log was made with?"
            )


def _first_order(log: Results, settings: _Settings) -> _Recomputed:
    p_a = _lower(log, "raw_count", settings.n, settings.alpha)
    return gaussian_radius(p_a, sigma=settings.sigma), p_a, []


def _dipole(log: Results, settings: _Settings) -> _Recomputed:
    share = equal_share(settings.alpha, 2)
    both, one_sided = (_lower(log, column, settings.n // 2, share) for column in _DIPOLE_COLUMNS)
    return dipole_radius(both, one_sided, sigma=settings.sigma), np.full(len(log), math.nan), []


def _second_order(log: Results, settings: _Settings) -> _Recomputed:
    share = equal_share(settings.alpha, 2)
    p_a = _lower(log, "raw_count", settings.n, share)
    dimension, notes = settings.dimension, []
    if dimension is None:
        dimension = _dimension_of(log, settings)
        notes.append(
            "no gradient bound in this log says anything: first-order radii"
            if dimension is None
            else f"dimension {dimension}, worked out from the bounds in the log"
        )
    elif dimension < 1:
        raise InputError(f"--dimension {dimension} must be at least 1")
    if dimension is None:
        gradient = np.full(len(log), math.inf)
    else:
        margin = pair_product_margin(dimension, settings.n // 2, alpha=share) / settings.sigma**2
        gradient = np.sqrt(np.maximum(_squared_gradient(log) + margin, 0.0))
    return second_order_radius(p_a, gradient, sigma=settings.sigma), p_a, notes


def _dimension_of(log: Results, settings: _Settings) -> int | None:
    """The dimension the gradient bounds of the log were computed with; None where no bound depends on it.

    A bound b that is not vacuous has b² = estimate + 4 sqrt(d L/k)/σ², L = ln(2/α), k pairs. Only some digits are
    printed, so d is known within the printing error, and taken if that leaves one whole number.
    """
    if not {"grad_norm_bound", "grad_norm_bound_nonvacuous"} <= log.extra.keys():
        raise InputError("this log does not tell the dimension of an input: give --dimension")
    telling = log.extra["grad_norm_bound_nonvacuous"] == 1
    if not telling.any():
        return None
    margins = (np.square(log.extra["grad_norm_bound"]) - _squared_gradient(log))[telling] * settings.sigma**2
    log_term = math.log(2.0 / USUAL_ALPHA)
    dimensions = np.square(margins / 4.0) * (settings.n // 2) / log_term
    best = float(np.median(dimensions))
    if abs(best - round(best)) > 0.05 * max(1.0, math.sqrt(best)) or round(best) < 1:
        raise InputError(
            f"the bounds in this log, read with sigma {settings.sigma:g} and n {settings.n}, give a dimension of "
            f"{best:.3g}, which is none: check --sigma and --n, or give --dimension"
        )
    return round(best)


def _squared_gradient(log: Results) -> FloatArray:
    """The estimate of ‖∇p‖², which may be negative; the column holds its root with the sign kept."""
    raw = log.extra["raw_grad_norm"]
    return raw * np.abs(raw)


def _lower(log: Results, column: str, trials: int, alpha: float) -> FloatArray:
    return clopper_pearson_lower(log.extra[column].astype(np.int64), trials, alpha=alpha)


def _agreement(log: Results, radius: FloatArray) -> list[str]:
    """How the radii compare with those printed in the log, which are usually rounded to nearest."""
    expected = np.where(log.decided, log.radius, 0.0)
    same = np.array([f"{mine:.3g}" == f"{theirs:.3g}" for mine, theirs in zip(radius, expected, strict=True)])
    notes = [f"{int(same.sum())} of {len(log)} radii agree with the log to its three digits, rounded to nearest"]
    gained = int((~log.decided & (radius > 0)).sum())
    if gained:
        notes.append(f"{gained} abstentions of the log would now certify, but it does not say which class")
    return notes
