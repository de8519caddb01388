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
from smoothcert.errors import InputError, RunError
from smoothcert.noise import check_sigma
from smoothcert.questions.feasibility import check_samples
from smoothcert.records import FloatArray, Outcome
from smoothcert.runs.results import NO_CLASS, Results, outcome_code
from smoothcert.runs.tsv import read_log
from smoothcert.statistics import check_alpha, clopper_pearson_lower, equal_share, pair_product_margin

USUAL_ALPHA = 0.001
_ENOUGH = 0.98
"""Share of a log's radii that must come out again."""


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


@dataclass(frozen=True, slots=True)
class _Recomputed:
    """Radii of every row, and the bounds they come from by the names other results have for them."""

    radius: FloatArray
    bounds: dict[str, FloatArray]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Dialect:
    """A kind of log: the certificate it was made by, the columns that hold counts, those needed besides, and how it is
    computed again. paired: whether the counts are of pairs; even: whether the samples were drawn in pairs.
    """

    certificate: str
    counts: tuple[str, ...]
    recompute: Callable[[Results, _Settings], _Recomputed]
    besides: tuple[str, ...] = ()
    paired: bool = False
    even: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.counts + self.besides


def recertify_log(
    path: Path, *, sigma: float, n: int, alpha: float = USUAL_ALPHA, dimension: int | None = None
) -> RecertifiedLog:
    """Every row of a first-order, dipole or second-order log, by the bounds of Levine et al.

    n: samples per input, both votes of a pair counted. dimension: of an input, for a second-order log; where it is not
    given it is worked out from the bounds in the log, if they tell it. A log whose own radii come out neither at this
    α nor at the usual one was made with another sigma or n, and is refused.
    """
    check_sigma(sigma)
    check_alpha(alpha)
    check_samples("n", n, least=2)
    if dimension is not None and dimension < 1:
        raise InputError(f"--dimension {dimension} must be at least 1")
    log = read_log(path)
    dialect = _dialect(log, path)
    _check_counts(log, dialect, n=n, path=path)
    settings = _Settings(sigma=sigma, n=n, alpha=alpha, dimension=dimension)
    found = dialect.recompute(log, settings)
    agreeing, certified = _agreement(log, found.radius)
    share = agreeing / max(certified, 1)
    if share < _ENOUGH and alpha != USUAL_ALPHA:
        as_made = dialect.recompute(log, dataclasses.replace(settings, alpha=USUAL_ALPHA))
        share = _agreement(log, as_made.radius)[0] / max(certified, 1)
    if certified and share < _ENOUGH:
        # Hardly any radius of the log comes out: another sigma or n would give wrong ones silently.
        raise RunError(
            f"{path} was not made with sigma {sigma:g} and n {n}: only {share:.0%} of its radii come out; check "
            "--sigma, --n, --alpha and --dimension"
        )
    notes = [*found.notes, f"{agreeing} of {certified} certified radii agree with the log to its three digits"]
    gained = int((~log.decided & (found.radius > 0)).sum())
    if gained:
        notes.append(f"{gained} abstentions of the log would now certify, but it does not say which class")
    return RecertifiedLog(
        results=_with_radii(log, found, settings), certificate=dialect.certificate, notes=tuple(notes)
    )


def _with_radii(log: Results, found: _Recomputed, settings: _Settings) -> Results:
    certified = log.decided & (found.radius > 0)
    bounds = dict(found.bounds)
    return dataclasses.replace(
        log,
        prediction=np.where(certified, log.prediction, NO_CLASS),
        outcome=np.where(certified, outcome_code(Outcome.CERTIFIED), outcome_code(Outcome.ABSTAINED)).astype(np.int8),
        radius=np.where(certified, found.radius, 0.0),
        sigma=np.full(len(log), settings.sigma),
        p_a=bounds.pop("p_a", np.full(len(log), math.nan)),
        alpha=settings.alpha,
        extra=bounds,
        settings={"n": str(settings.n)},
    )


def _dialect(log: Results, path: Path) -> _Dialect:
    for dialect in _DIALECTS:
        if all(column in log.extra for column in dialect.columns):
            return dialect
    wanted = "; or ".join(" and ".join(dialect.columns) for dialect in _DIALECTS)
    raise RunError(
        f"{path} holds no raw counts, from which alone radii can be computed again; expected columns {wanted}"
    )


def _check_counts(log: Results, dialect: _Dialect, *, n: int, path: Path) -> None:
    if dialect.even and n % 2:
        raise InputError(f"--n {n} is odd, but {path} was made by {dialect.certificate}, from pairs of samples")
    trials = n // 2 if dialect.paired else n
    total = np.sum([log.extra[column] for column in dialect.counts], axis=0)
    for column in dialect.counts:
        values = log.extra[column]
        wrong = ~((values >= 0) & (total <= trials) & (values == np.floor(values)))
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise RunError(
                f"{path}: input {log.index[first]} has {column} {values[first]:g}, which is no count out of {trials}; "
                "is --n the number of samples this log was made with?"
            )


def _agreement(log: Results, radius: FloatArray) -> tuple[int, int]:
    """How many of the log's certified radii are these, to the three digits that are printed, and how many there are."""
    certified = np.flatnonzero(log.decided & (log.radius > 0))
    same = sum(f"{radius[row]:.3g}" == f"{log.radius[row]:.3g}" for row in certified)
    return same, len(certified)


def _first_order(log: Results, settings: _Settings) -> _Recomputed:
    p_a = _lower(log, "raw_count", settings.n, settings.alpha)
    return _Recomputed(gaussian_radius(p_a, sigma=settings.sigma), {"p_a": p_a})


def _dipole(log: Results, settings: _Settings) -> _Recomputed:
    share = equal_share(settings.alpha, 2)
    both, one_sided = (_lower(log, column, settings.n // 2, share) for column in _DIPOLE_COUNTS)
    radius = dipole_radius(both, one_sided, sigma=settings.sigma)
    return _Recomputed(radius, {"both": both, "one_sided": one_sided})


def _second_order(log: Results, settings: _Settings) -> _Recomputed:
    share = equal_share(settings.alpha, 2)
    p_a = _lower(log, "raw_count", settings.n, share)
    dimension, notes = _dimension_of(log, settings) if settings.dimension is None else (settings.dimension, ())
    gradient = np.full(len(log), math.inf)
    if dimension is not None:
        margin = pair_product_margin(dimension, settings.n // 2, alpha=share) / settings.sigma**2
        gradient = np.sqrt(np.maximum(_squared_gradient(log) + margin, 0.0))
    radius = second_order_radius(p_a, gradient, sigma=settings.sigma)
    return _Recomputed(radius, {"p_a": p_a, "gradient_norm": gradient}, notes)


def _dimension_of(log: Results, settings: _Settings) -> tuple[int | None, tuple[str, ...]]:
    """The dimension the gradient bounds of the log were computed with, None where none depends on it, and a note.

    A bound b that is not vacuous has b² = estimate + 4 sqrt(d L/k)/σ², L = ln(2/α), k pairs. Only some digits are
    printed, so d is known within the printing error, and taken if that leaves one whole number.
    """
    if not {"grad_norm_bound", "grad_norm_bound_nonvacuous"} <= log.extra.keys():
        raise InputError("this log does not tell the dimension of an input: give --dimension")
    telling = log.extra["grad_norm_bound_nonvacuous"] == 1
    if not telling.any():
        return None, ("no gradient bound of this log tells the dimension: first-order radii; give --dimension",)
    margins = (np.square(log.extra["grad_norm_bound"]) - _squared_gradient(log))[telling] * settings.sigma**2
    log_term = math.log(2.0 / USUAL_ALPHA)
    dimensions = np.square(margins / 4.0) * (settings.n // 2) / log_term
    best = float(np.median(dimensions))
    if abs(best - round(best)) > 0.05 * max(1.0, math.sqrt(best)) or round(best) < 1:
        raise InputError(
            f"the bounds in this log, read with sigma {settings.sigma:g} and n {settings.n}, give a dimension of "
            f"{best:.3g}, which is none: check --sigma and --n, or give --dimension"
        )
    return round(best), (f"dimension {round(best)}, worked out from the bounds in the log",)


def _squared_gradient(log: Results) -> FloatArray:
    """The estimate of ‖∇p‖², which may be negative; the column holds its root with the sign kept."""
    raw = log.extra["raw_grad_norm"]
    return raw * np.abs(raw)


def _lower(log: Results, column: str, trials: int, alpha: float) -> FloatArray:
    return clopper_pearson_lower(log.extra[column].astype(np.int64), trials, alpha=alpha)


_DIPOLE_COUNTS = ("raw_count_symmetric", "raw_count_asymmetric")
_DIALECTS = (
    _Dialect("dipole-separate", _DIPOLE_COUNTS, _dipole, paired=True, even=True),
    _Dialect("second-order-pairs", ("raw_count",), _second_order, besides=("raw_grad_norm",), even=True),
    _Dialect("gaussian", ("raw_count",), _first_order),
)
