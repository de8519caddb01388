"""A run as columns: the input of tables and figures, for runs and logs alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InputError, RunError
from smoothcert.records import (
    CertifiedPoint,
    FloatArray,
    IntArray,
    Norm,
    Outcome,
    Quantity,
    Reason,
    Remark,
    RemarkCode,
    Verdict,
)
from smoothcert.records.feature_scale import FeatureScale, name_norm

BoolArray = NDArray[np.bool_]
OutcomeArray = NDArray[np.int8]

OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)
"""Column `outcome` of ResultColumns contains positions in this tuple."""
_NORM_SYMBOLS = {Norm.L2: "ℓ₂", Norm.L1: "ℓ₁"}

NO_CLASS = int(np.iinfo(np.int64).min)
"""Marks a missing class in integer columns. It equals no label and is not a valid position."""

_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
_DECIDED_CODES = (_CODES[Outcome.CERTIFIED], _CODES[Outcome.PREDICTED])
_COLUMNS: dict[str, type[np.generic]] = {
    "index": np.int64,
    "label": np.int64,
    "prediction": np.int64,
    "outcome": np.int8,
    "radius": np.float64,
    "sigma": np.float64,
    "seconds": np.float64,
    "p_a": np.float64,
    "certificate": np.str_,
    "reason": np.object_,
}


def outcome_code(outcome: Outcome) -> int:
    """Position of an outcome in OUTCOMES."""
    return _CODES[outcome]


@dataclass(frozen=True, slots=True, eq=False)
class ResultColumns:
    """The results of one run over m inputs. Every column has shape (m,), in the order of the run.

    index         int64, distinct: position of the input in its dataset.
    label         int64, NO_CLASS if the input has no label (see `labelled`).
    prediction    int64, NO_CLASS if there is no answer (see `decided`).
    outcome       int8, position in OUTCOMES.
    radius        float64, finite, >= 0, and 0 if nothing was certified.
    has_radius    False for predictions without radii; `radius` is 0 then.
    sigma         float64, noise level at each input; nan if unknown.
    seconds       float64, nan if unknown.
    p_a           float64 in [0, 1], lower bound on the top class's probability; nan if unknown.
    certificate   text, the theorem of each verdict; empty if unknown.
    reason        Reason or None: why a verdict is not a plain certificate.
    alpha         probability that the statement about one input is wrong; None if unknown.
    independent_noise   False if inputs shared noise: their errors are dependent, and test-set bounds do not hold.
    expected      number of inputs the run is for, if known; a run with fewer is unfinished.
    extra         further columns by name: those of a log; of a run the bounds other than p_a, and with a memory the
                  position of each region in its log.
    settings      n, and the digests of model and data, if known.
    decided_radii the radii a run decided on, ascending: each input has the largest of them that is proved. Empty if
                  radii are computed from all votes.
    most_samples  limit of the samples per input, if sampling stopped early; the extra column `samples` then has the
                  number of samples. None for a fixed number.
    scale         by which features are divided before distances are measured; None without one, or if unknown.
    class_names   the name of each class, by its number; empty if the classes have no names.
    remarks       what a reader of these results should know; `list_remarks` adds those that follow from the columns.
    """

    name: str
    index: IntArray
    label: IntArray
    prediction: IntArray
    outcome: OutcomeArray
    radius: FloatArray
    has_radius: bool
    sigma: FloatArray
    seconds: FloatArray
    p_a: FloatArray
    alpha: float | None = None
    num_classes: int | None = None
    norm: Norm = Norm.L2
    scale: FeatureScale | None = None
    independent_noise: bool = True
    expected: int | None = None
    certificate: NDArray[np.str_] = field(default_factory=lambda: np.array([], dtype=np.str_))
    reason: NDArray[np.object_] = field(default_factory=lambda: np.array([], dtype=np.object_))
    extra: Mapping[str, FloatArray] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    decided_radii: tuple[float, ...] = ()
    most_samples: int | None = None
    class_names: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()

    def __post_init__(self) -> None:
        if not self.certificate.size:
            object.__setattr__(self, "certificate", np.full(np.shape(self.index), ""))
        if not self.reason.size:
            object.__setattr__(self, "reason", np.full(np.shape(self.index), None))
        for column, dtype in _COLUMNS.items():
            object.__setattr__(self, column, _read_only(getattr(self, column), dtype))
        object.__setattr__(self, "extra", {key: _read_only(v, np.float64) for key, v in self.extra.items()})
        self._check_shapes()
        self._check_values()

    def _check_shapes(self) -> None:
        if self.index.ndim != 1 or self.index.size == 0:
            raise RunError(f"{self.name} has no results; at least one input is required")
        columns = {key: getattr(self, key) for key in _COLUMNS} | dict(self.extra)
        for key, column in columns.items():
            if column.shape != self.index.shape:
                raise InputError(f"column {key} has shape {column.shape}, but there are {self.index.size} inputs")

    def _check_values(self) -> None:
        if np.unique(self.index).size != self.index.size:
            raise InputError(f"{self.name} has the same input index more than once")
        if not (np.isfinite(self.radius).all() and (self.radius >= 0).all()):
            raise InputError(f"{self.name} has a radius that is not a finite non-negative number")
        if ((self.outcome < 0) | (self.outcome >= len(OUTCOMES))).any():
            raise InputError(f"{self.name} has an outcome code outside 0 … {len(OUTCOMES) - 1}")
        if ((self.radius > 0) != self.is_outcome(Outcome.CERTIFIED)).any():
            raise InputError(f"{self.name}: an input must have a positive radius exactly when it is certified")
        if ((self.prediction >= 0) != self.decided).any():
            raise InputError(f"{self.name}: an input must have a class exactly when it was certified or predicted")
        if ((self.label < 0) & (self.label != NO_CLASS)).any():
            raise InputError(f"{self.name} has a negative label")
        if not self.has_radius and (self.radius > 0).any():
            raise InputError(f"{self.name} has radii, but has_radius is False")
        if ((self.p_a < 0) | (self.p_a > 1)).any():
            raise InputError(f"{self.name} has a p_A outside [0, 1]")

    def __len__(self) -> int:
        return int(self.index.size)

    def is_outcome(self, outcome: Outcome) -> BoolArray:
        return np.asarray(self.outcome == _CODES[outcome])

    @property
    def decided(self) -> BoolArray:
        """True where there is an answer."""
        return np.isin(self.outcome, _DECIDED_CODES)

    @property
    def labelled(self) -> BoolArray:
        """True where the label is known."""
        return np.asarray(self.label != NO_CLASS)

    @property
    def correct(self) -> BoolArray:
        """True where there is an answer and it is the label."""
        return np.asarray(self.decided & self.labelled & (self.prediction == self.label))

    def subset(self, chosen: BoolArray | IntArray) -> Self:
        """The same run over some of its inputs. chosen: a mask of shape (m,), or positions."""
        columns = {key: getattr(self, key)[chosen] for key in _COLUMNS}
        return replace(
            self, **columns, expected=None, extra={key: column[chosen] for key, column in self.extra.items()}
        )

    def joined(self, others: Sequence[Self]) -> Self:
        """The same run over the inputs of all of these, in order. The facts beside the columns are those of this one.

        A column that only some have is nan for the inputs of the others.
        """
        parts = (self, *others)
        for other in others:
            if other.norm is not self.norm:
                raise RunError(f"{self.name} mixes radii in {' and '.join(sorted((self.norm, other.norm)))}")
        names = dict.fromkeys(name for part in parts for name in part.extra)
        columns: dict[str, Any] = {key: np.concatenate([getattr(part, key) for part in parts]) for key in _COLUMNS}
        extra = {
            name: np.concatenate([part.extra.get(name, np.full(len(part), math.nan)) for part in parts])
            for name in names
        }
        return replace(self, **columns, extra=extra, has_radius=any(part.has_radius for part in parts))

    @property
    def norm_symbol(self) -> str:
        """The norm of the radii, for people."""
        return name_norm(_NORM_SYMBOLS[self.norm], self.scale)

    def has_norm_of(self, other: ResultColumns) -> bool:
        """Whether the radii of both can be compared: they are in the same norm, with the same scale."""
        return self.norm is other.norm and self.scale == other.scale

    def is_unknown_at(self, radius: float) -> bool:
        """True if only smaller radii were decided."""
        return bool(self.decided_radii) and radius > self.decided_radii[-1]

    @property
    def unfinished(self) -> Remark | None:
        """The remark on a run that is not complete; None for a complete run, or if the source does not state it."""
        if self.expected is None or len(self) >= self.expected:
            return None
        return Remark(RemarkCode.UNFINISHED, self.name, {"done": len(self), "expected": self.expected})

    def list_remarks(self) -> Iterator[Remark]:
        """Everything that a reader of these results should know."""
        if self.unfinished is not None:
            yield self.unfinished
        names, counts = np.unique(self.certificate[self.is_outcome(Outcome.CERTIFIED)], return_counts=True)
        if len(names) > 1:
            wins = dict(zip(names.tolist(), counts.tolist(), strict=True))
            yield Remark(RemarkCode.SEVERAL_CERTIFICATES, self.name, {"certificates": wins})
        if self.norm is not Norm.L2 and self.has_radius:
            yield Remark(RemarkCode.OTHER_NORM, self.name, {"norm": self.norm.value})
        yield from self.remarks

    @property
    def notes(self) -> list[str]:
        """All remarks as sentences, to be printed below a table."""
        return [str(remark) for remark in self.list_remarks()]

    @classmethod
    def from_points(
        cls,
        points: Sequence[CertifiedPoint],
        *,
        name: str,
        certificate: str | None = None,
    ) -> Self:
        """Columns of certified points. certificate: whose verdicts, if the points have several; default, the first.

        `alpha` is the largest α that the bounds of a point spent, `num_classes` that of the tallies, and `has_radius`
        is False if the points are predictions only.
        """
        if not points:
            raise RunError(f"{name} has no results yet")
        verdicts = [find_verdict(point, certificate, name) for point in points]
        norms = {verdict.norm for verdict in verdicts}
        if len(norms) > 1:
            raise RunError(f"{name} mixes radii in {' and '.join(sorted(norms))}: they cannot be compared in one run")
        outcomes = {verdict.outcome for verdict in verdicts}
        bounds = _list_bounds(verdicts)
        return cls(
            name=name,
            index=np.array([point.index for point in points], dtype=np.int64),
            label=_class_column(point.label for point in points),
            prediction=_class_column(verdict.prediction for verdict in verdicts),
            outcome=np.array([_CODES[verdict.outcome] for verdict in verdicts], dtype=np.int8),
            radius=np.array([verdict.radius for verdict in verdicts], dtype=np.float64),
            has_radius=Outcome.CERTIFIED in outcomes or Outcome.PREDICTED not in outcomes,
            sigma=np.array([point.sigma for point in points], dtype=np.float64),
            seconds=np.array([point.seconds for point in points], dtype=np.float64),
            p_a=bounds.pop(Quantity.TOP_LOWER, np.full(len(points), math.nan)),
            alpha=max((verdict.bounds.alpha for verdict in verdicts if verdict.bounds is not None), default=None),
            num_classes=next((tally.num_classes for point in points for tally in point.tallies), None),
            norm=norms.pop(),
            certificate=np.array([verdict.certificate for verdict in verdicts]),
            reason=_object_column([verdict.reason for verdict in verdicts]),
            extra={quantity.value.replace("-", "_"): column for quantity, column in bounds.items()}
            | _list_positions(points),
        )


def _read_only(values: NDArray[np.generic], dtype: type[np.generic]) -> NDArray[np.generic]:
    column = np.array(values, dtype=dtype)
    column.setflags(write=False)
    return column


def _class_column(labels: Iterable[int | None]) -> IntArray:
    return np.array([NO_CLASS if label is None else label for label in labels], dtype=np.int64)


def _object_column(reasons: Sequence[Reason | None]) -> NDArray[np.object_]:
    column = np.full(len(reasons), None, dtype=np.object_)
    column[:] = reasons
    return column


def find_verdict(point: CertifiedPoint, certificate: str | None, name: str) -> Verdict:
    """The verdict of a certificate on a point of the run `name`; None selects the first, or the best of several."""
    verdicts = {verdict.certificate: verdict for verdict in (point.verdict, *point.further)}
    if certificate is None:
        return point.verdict
    if certificate not in verdicts:
        run = name.removesuffix(f"@{certificate}")
        raise RunError(
            f"{run} does not have the certificate {certificate}; it has {', '.join(verdicts)}. To compute another one "
            f"from the same samples: smoothcert recertify {run} --certificate {certificate} --out NEW"
        )
    return verdicts[certificate]


def select_verdict(point: CertifiedPoint, certificate: str, name: str) -> CertifiedPoint:
    """The same point, whose own verdict is that of this certificate."""
    chosen = find_verdict(point, certificate, name)
    others = (verdict for verdict in (point.verdict, *point.further) if verdict is not chosen)
    return replace(point, verdict=chosen, further=tuple(others))


def _list_bounds(verdicts: Sequence[Verdict]) -> dict[Quantity, FloatArray]:
    """One column for each bounded quantity; nan where a verdict does not have it."""
    bounds = [verdict.bounds.quantities if verdict.bounds is not None else {} for verdict in verdicts]
    return {
        quantity: np.array([one[quantity].value if quantity in one else math.nan for one in bounds])
        for quantity in Quantity
        if any(quantity in one for one in bounds)
    }


def _list_positions(points: Sequence[CertifiedPoint]) -> dict[str, FloatArray]:
    """The position of each input's region in the log of a memory; nan if it has none."""
    if all(point.promise is None for point in points):
        return {}
    return {"position": np.array([math.nan if p.promise is None else float(p.promise.position) for p in points])}
