"""Recompute bounds and radii of the logs of Levine et al. from their raw counts, without the model.

A log contains neither σ, n, α nor the dimension of an input; the user gives them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smoothcert.certificates import dipole_radius, gaussian_radius, second_order_radius
from smoothcert.errors import InputError, RunError
from smoothcert.noise import check_sigma
from smoothcert.questions.feasibility import check_samples
from smoothcert.records import FloatArray, Outcome
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns, outcome_code
from smoothcert.runs.tsv import read_log
from smoothcert.statistics import check_alpha, clopper_pearson_lower, equal_share, pair_product_margin

USUAL_ALPHA = 0.001
_ENOUGH = 0.98
"""Share of the radii of a log that must be reproduced."""


@dataclass(frozen=True, slots=True)
class RecertifiedLog:
    """The log with recomputed radii (rounded down), the certificate they come from, and notes for the user."""

    results: ResultColumns
    certificate: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _LogSettings:
    """How a log was made. dimension: None if it is not known."""

    sigma: float
    n: int
    alpha: float
    dimension: int | None


@dataclass(frozen=True, slots=True)
class _Recomputed:
    """The radius of each row, and the bounds it comes from, with the names used in `ResultColumns`."""

    radius: FloatArray
    bounds: dict[str, FloatArray]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Dialect:
    """A kind of log. counts: columns of counts. besides: other required columns. recompute: gives radii and bounds.

    paired: the counts are of pairs. even: the samples were drawn in pairs.
    """

    certificate: str
    counts: tuple[str, ...]
    recompute: Callable[[ResultColumns, _LogSettings], _Recomputed]
    besides: tuple[str, ...] = ()
    paired: bool = False
    even: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.counts + self.besides


def recertify_log(
    path: Path, *, sigma: float, n: int, alpha: float = USUAL_ALPHA, dimension: int | None = None
) -> RecertifiedLog:
    """Recompute a first-order, dipole or second-order log by the bounds of Levine et al.

    n: samples per input; both votes of a pair count. dimension: of an input, for a second-order log; by default it is
    derived from the bounds in the log, if possible. Raises a RunError if the radii of the log are reproduced neither at
    this α nor at the usual one, because then it was made with another sigma or n.
    """
    check_sigma(sigma)
    check_alpha(alpha)
    check_samples("n", n, least=2)
    if dimension is not None and dimension < 1:
        raise InputError(f"--dimension {dimension} must be at least 1")
    log = read_log(path)
    dialect = _find_dialect(log, path)
    _check_counts(log, dialect, n=n, path=path)
    settings = _LogSettings(sigma=sigma, n=n, alpha=alpha, dimension=dimension)
    recomputed = dialect.recompute(log, settings)
    certified = int((log.decided & (log.radius > 0)).sum())
    agreeing = _count_agreeing(log, recomputed.radius)
    share = agreeing / max(certified, 1)
    if share < _ENOUGH and alpha != USUAL_ALPHA:
        at_usual = dialect.recompute(log, dataclasses.replace(settings, alpha=USUAL_ALPHA))
        share = _count_agreeing(log, at_usual.radius) / max(certified, 1)
    if certified and share < _ENOUGH:
        # With another sigma or n all recomputed radii would be wrong.
        raise RunError(
            f"{path} was not made with sigma {sigma:g} and n {n}: only {share:.0%} of its radii are reproduced; check "
            "--sigma, --n, --alpha and --dimension"
        )
    notes = [*recomputed.notes, f"{agreeing} of {certified} certified radii agree with the log to its three digits"]
    gained = int((~log.decided & (recomputed.radius > 0)).sum())
    if gained:
        notes.append(f"{gained} abstentions of the log could be certified, but it does not contain their class")
    return RecertifiedLog(
        results=_replace_radii(log, recomputed, settings), certificate=dialect.certificate, notes=tuple(notes)
    )


def _replace_radii(log: ResultColumns, recomputed: _Recomputed, settings: _LogSettings) -> ResultColumns:
    certified = log.decided & (recomputed.radius > 0)
    bounds = dict(recomputed.bounds)
    return dataclasses.replace(
        log,
        prediction=np.where(certified, log.prediction, NO_CLASS),
        outcome=np.where(certified, outcome_code(Outcome.CERTIFIED), outcome_code(Outcome.ABSTAINED)).astype(np.int8),
        radius=np.where(certified, recomputed.radius, 0.0),
        sigma=np.full(len(log), settings.sigma),
        p_a=bounds.pop("p_a", np.full(len(log), math.nan)),
        alpha=settings.alpha,
        extra=bounds,
        settings={"n": str(settings.n)},
    )


def _find_dialect(log: ResultColumns, path: Path) -> _Dialect:
    for dialect in _DIALECTS:
        if all(column in log.extra for column in dialect.columns):
            return dialect
    wanted = "; or ".join(" and ".join(dialect.columns) for dialect in _DIALECTS)
    raise RunError(f"{path} has no raw counts to recompute radii from: expected the columns {wanted}")


def _check_counts(log: ResultColumns, dialect: _Dialect, *, n: int, path: Path) -> None:
    if dialect.even and n % 2:
        raise InputError(f"--n {n} is odd, but {path} is a log of {dialect.certificate}, which draws samples in pairs")
    trials = n // 2 if dialect.paired else n
    total = np.sum([log.extra[column] for column in dialect.counts], axis=0)
    for column in dialect.counts:
        values = log.extra[column]
        wrong = ~((values >= 0) & (total <= trials) & (values == np.floor(values)))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise RunError(
                f"{path}: input {log.index[first]} has {column} {values[first]:g}, expected a count out of {trials}; "
                "check that --n is the number of samples of this log"
            )


def _count_agreeing(log: ResultColumns, radius: FloatArray) -> int:
    """The number of certified radii in the log that equal these to the three digits a log has."""
    certified = np.flatnonzero(log.decided & (log.radius > 0))
    return sum(f"{radius[row]:.3g}" == f"{log.radius[row]:.3g}" for row in certified)


def _recompute_first_order(log: ResultColumns, settings: _LogSettings) -> _Recomputed:
    p_a = _bound_below(log, "raw_count", settings.n, settings.alpha)
    return _Recomputed(gaussian_radius(p_a, sigma=settings.sigma), {"p_a": p_a})


def _recompute_dipole(log: ResultColumns, settings: _LogSettings) -> _Recomputed:
    share = equal_share(settings.alpha, 2)
    both, one_sided = (_bound_below(log, column, settings.n // 2, share) for column in _DIPOLE_COUNTS)
    radius = dipole_radius(both, one_sided, sigma=settings.sigma)
    return _Recomputed(radius, {"both": both, "one_sided": one_sided})


def _recompute_second_order(log: ResultColumns, settings: _LogSettings) -> _Recomputed:
    share = equal_share(settings.alpha, 2)
    p_a = _bound_below(log, "raw_count", settings.n, share)
    dimension, notes = _derive_dimension(log, settings) if settings.dimension is None else (settings.dimension, ())
    gradient = np.full(len(log), math.inf)
    if dimension is not None:
        margin = pair_product_margin(dimension, settings.n // 2, alpha=share) / settings.sigma**2
        gradient = np.sqrt(np.maximum(_squared_gradient(log) + margin, 0.0))
    radius = second_order_radius(p_a, gradient, sigma=settings.sigma)
    return _Recomputed(radius, {"p_a": p_a, "gradient_norm": gradient}, notes)


def _derive_dimension(log: ResultColumns, settings: _LogSettings) -> tuple[int | None, tuple[str, ...]]:
    """The dimension that the gradient bounds of the log were computed with, None if none depends on it; and notes.

    A bound b that is not vacuous has b² = estimate + 4 sqrt(d L/k)/σ², L = ln(2/α), k pairs. Logs have few digits, so d
    is known up to the printing error, and used if only one integer is that close.
    """
    if not {"grad_norm_bound", "grad_norm_bound_nonvacuous"} <= log.extra.keys():
        raise InputError("the dimension of an input cannot be derived from this log: give --dimension")
    usable = log.extra["grad_norm_bound_nonvacuous"] == 1
    if not usable.any():
        return None, (
            "no gradient bound of this log depends on the dimension: radii are first-order without --dimension",
        )
    margins = (np.square(log.extra["grad_norm_bound"]) - _squared_gradient(log))[usable] * settings.sigma**2
    log_term = math.log(2.0 / USUAL_ALPHA)
    dimensions = np.square(margins / 4.0) * (settings.n // 2) / log_term
    best = float(np.median(dimensions))
    if abs(best - round(best)) > 0.05 * max(1.0, math.sqrt(best)) or round(best) < 1:
        raise InputError(
            f"with sigma {settings.sigma:g} and n {settings.n}, the bounds in this log give the invalid dimension "
            f"{best:.3g}: check --sigma and --n, or give --dimension"
        )
    return round(best), (f"dimension {round(best)}, derived from the bounds in the log",)


def _squared_gradient(log: ResultColumns) -> FloatArray:
    """The estimate of ‖∇p‖², which can be negative. The column holds its root, with its sign."""
    raw = log.extra["raw_grad_norm"]
    return raw * np.abs(raw)


def _bound_below(log: ResultColumns, column: str, trials: int, alpha: float) -> FloatArray:
    return clopper_pearson_lower(log.extra[column].astype(np.int64), trials, alpha=alpha)


_DIPOLE_COUNTS = ("raw_count_symmetric", "raw_count_asymmetric")
_DIALECTS = (
    _Dialect("dipole-separate", _DIPOLE_COUNTS, _recompute_dipole, paired=True, even=True),
    _Dialect("second-order-pairs", ("raw_count",), _recompute_second_order, besides=("raw_grad_norm",), even=True),
    _Dialect("gaussian", ("raw_count",), _recompute_first_order),
)
