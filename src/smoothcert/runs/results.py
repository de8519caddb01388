"""A run as columns: what tables and figures read, wherever the run came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

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
    Remark,
    RemarkCode,
    Verdict,
)

BoolArray = NDArray[np.bool_]
OutcomeArray = NDArray[np.int8]

OUTCOMES: tuple[Outcome, ...] = tuple(Outcome)
"""Column `outcome` of Results holds positions in this tuple."""

NO_CLASS = int(np.iinfo(np.int64).min)
"""Stands in integer columns where there is no class. It equals no label and indexes nothing by accident."""

_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
_DECIDED_CODES = (_CODES[Outcome.CERTIFIED], _CODES[Outcome.PREDICTED])


def outcome_code(outcome: Outcome) -> int:
    """Position of an outcome in OUTCOMES."""
    return _CODES[outcome]


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """The results of one run over m inputs; every column has shape (m,), in the order of the run.

    index        int64, distinct: position of the input in its dataset.
    label        int64, NO_CLASS where the input has no label (see `labelled`).
    prediction   int64, NO_CLASS where no class was given (see `decided`).
    outcome      int8, position in OUTCOMES.
    radius       float64, finite, >= 0, and 0 where nothing was certified; all 0 when `has_radius` is False, which is
                 how a log of PREDICT differs from a log of CERTIFY.
    sigma        float64, noise level at each input; nan where unknown.
    seconds      float64, nan where unknown.
    p_a          float64 in [0, 1], lower bound on the top class's probability; nan where unknown.
    expected     how many inputs the run is for, where the source says it; fewer means it is unfinished.
    alpha        probability that the statement about one input is wrong; None where the source does not say.
    independent_noise   False when inputs shared noise: their errors are dependent, and test-set bounds do not hold.
    certificate  text, the theorem that gave each verdict; empty where the source does not say.
    extra        further columns of the source, by name; for a run of ours the bounds other than p_a, and with a memory
                 the position of each region in its log.
    settings     what the run was made with, where the source says it: n, and digests of model and data.
    asked        the radii that were asked about, ascending, where each input has the largest of them that is proved;
                 empty where radii are computed from all votes.
    most_samples how many samples an input would have taken at most, where sampling stopped when it had an answer; the
                 extra column `samples` then says how many it took. None for a fixed number of samples.
    remarks      what a reader of these results should know.
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
    independent_noise: bool = True
    expected: int | None = None
    certificate: NDArray[np.str_] = field(default_factory=lambda: np.array([], dtype=np.str_))
    extra: Mapping[str, FloatArray] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[float, ...] = ()
    most_samples: int | None = None
    remarks: tuple[Remark, ...] = ()

    def __post_init__(self) -> None:
        if not self.certificate.size:
            object.__setattr__(self, "certificate", np.full(np.shape(self.index), ""))
        for column, dtype in _COLUMNS.items():
            object.__setattr__(self, column, _read_only(getattr(self, column), dtype))
        object.__setattr__(self, "extra", {key: _read_only(v, np.float64) for key, v in self.extra.items()})
        self._check_shapes()
        self._check_values()

    def _check_shapes(self) -> None:
        if self.index.ndim != 1 or self.index.size == 0:
            raise RunError(f"{self.name} holds no results: at least one input is needed")
        columns = {key: getattr(self, key) for key in _COLUMNS} | dict(self.extra)
        for key, column in columns.items():
            if column.shape != self.index.shape:
                raise InputError(f"column {key} has shape {column.shape}, but there are {self.index.size} inputs")

    def _check_values(self) -> None:
        if np.unique(self.index).size != self.index.size:
            raise InputError(f"{self.name} holds the same input index more than once")
        if not (np.isfinite(self.radius).all() and (self.radius >= 0).all()):
            raise InputError(f"{self.name} holds a radius that is not a finite non-negative number")
        if ((self.outcome < 0) | (self.outcome >= len(OUTCOMES))).any():
            raise InputError(f"{self.name} holds an outcome code outside 0 … {len(OUTCOMES) - 1}")
        if ((self.radius > 0) != self.is_outcome(Outcome.CERTIFIED)).any():
            raise InputError(f"{self.name}: an input must have a positive radius exactly when it is certified")
        if ((self.prediction >= 0) != self.decided).any():
            raise InputError(f"{self.name}: an input must have a class exactly when it was certified or predicted")
        if ((self.label < 0) & (self.label != NO_CLASS)).any():
            raise InputError(f"{self.name} holds a negative label")
        if not self.has_radius and (self.radius > 0).any():
            raise InputError(f"{self.name} holds radii although it says it has none")
        if ((self.p_a < 0) | (self.p_a > 1)).any():
            raise InputError(f"{self.name} holds a p_A outside [0, 1]")

    def __len__(self) -> int:
        return int(self.index.size)

    def is_outcome(self, outcome: Outcome) -> BoolArray:
        return np.asarray(self.outcome == _CODES[outcome])

    @property
    def decided(self) -> BoolArray:
        """True where a class was given."""
        return np.isin(self.outcome, _DECIDED_CODES)

    @property
    def labelled(self) -> BoolArray:
        """True where the right answer is known."""
        return np.asarray(self.label != NO_CLASS)

    @property
    def correct(self) -> BoolArray:
        """True where a class was given and it is the label."""
        return np.asarray(self.decided & self.labelled & (self.prediction == self.label))

    def subset(self, chosen: BoolArray | IntArray) -> Self:
        """The same run over some of its inputs, given as a mask of shape (m,) or as positions."""
        columns = {key: getattr(self, key)[chosen] for key in _COLUMNS}
        return replace(
            self, **columns, expected=None, extra={key: column[chosen] for key, column in self.extra.items()}
        )

    def says_nothing_of(self, radius: float) -> bool:
        """True where only smaller radii were asked about."""
        return bool(self.asked) and radius > self.asked[-1]

    @property
    def notes(self) -> list[str]:
        """All sentences that belong under a table of these results."""
        return [str(remark) for remark in (*self._own_remarks(), *self.remarks)]

    @property
    def unfinished(self) -> str | None:
        """A sentence about a run that is not complete; None for a complete run, or if the source does not say."""
        return None if self._remark_unfinished() is None else str(self._remark_unfinished())

    def _own_remarks(self) -> Iterator[Remark]:
        if (unfinished := self._remark_unfinished()) is not None:
            yield unfinished
        names, counts = np.unique(self.certificate[self.is_outcome(Outcome.CERTIFIED)], return_counts=True)
        if len(names) > 1:
            counted = [f"{name} {count}" for name, count in zip(names, counts, strict=True)]
            yield Remark(RemarkCode.SEVERAL_CERTIFICATES, self.name, {"certificates": counted})
        if self.norm is not Norm.L2 and self.has_radius:
            yield Remark(RemarkCode.OTHER_NORM, self.name, {"norm": self.norm.value})

    def _remark_unfinished(self) -> Remark | None:
        if self.expected is None or len(self) >= self.expected:
            return None
        return Remark(RemarkCode.UNFINISHED, self.name, {"done": len(self), "expected": self.expected})

    @classmethod
    def from_points(
        cls,
        points: Sequence[CertifiedPoint],
        *,
        name: str,
        alpha: float | None = None,
        num_classes: int | None = None,
        has_radius: bool | None = None,
        independent_noise: bool = True,
        expected: int | None = None,
        certificate: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Columns of certified points. What is not given is read from the points where they say it.

        certificate: whose verdicts, where the points carry several; default, the first.
        alpha: default, the largest α any point's bounds spent. num_classes: default, that of the tallies.
        has_radius: default, True unless the points are predictions only.
        """
        if not points:
            raise RunError(f"{name} holds no results yet")
        verdicts = [verdict_by(point, certificate, name) for point in points]
        norms = {verdict.norm for verdict in verdicts}
        if len(norms) > 1:
            raise RunError(f"{name} mixes radii in {' and '.join(sorted(norms))}: they cannot be compared in one run")
        if has_radius is None:
            outcomes = {verdict.outcome for verdict in verdicts}
            has_radius = Outcome.CERTIFIED in outcomes or Outcome.PREDICTED not in outcomes
        if alpha is None:
            alpha = max((verdict.bounds.alpha for verdict in verdicts if verdict.bounds is not None), default=None)
        if num_classes is None:
            num_classes = next((tally.num_classes for point in points for tally in point.tallies), None)
        return cls(
            name=name,
            index=np.array([point.index for point in points], dtype=np.int64),
            label=_classes(point.label for point in points),
            prediction=_classes(verdict.prediction for verdict in verdicts),
            outcome=np.array([_CODES[verdict.outcome] for verdict in verdicts], dtype=np.int8),
            radius=np.array([verdict.radius for verdict in verdicts], dtype=np.float64),
            has_radius=has_radius,
            sigma=np.array([point.sigma for point in points], dtype=np.float64),
            seconds=np.array([point.seconds for point in points], dtype=np.float64),
            p_a=np.array([_top_lower(verdict) for verdict in verdicts], dtype=np.float64),
            alpha=alpha,
            num_classes=num_classes,
            norm=norms.pop(),
            independent_noise=independent_noise,
            expected=expected,
            certificate=np.array([verdict.certificate for verdict in verdicts]),
            extra=_other_bounds(verdicts) | _positions(points),
            settings=settings or {},
        )


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
}


def _read_only(values: NDArray[np.generic], dtype: type[np.generic]) -> NDArray[np.generic]:
    column = np.array(values, dtype=dtype)
    column.setflags(write=False)
    return column


def _classes(labels: Iterable[int | None]) -> IntArray:
    return np.array([NO_CLASS if label is None else label for label in labels], dtype=np.int64)


def verdict_by(point: CertifiedPoint, certificate: str | None, name: str) -> Verdict:
    """What that certificate says of a point of the run `name`; None takes the first, or the best of them."""
    carried = {verdict.certificate: verdict for verdict in (point.verdict, *point.further)}
    if certificate is None:
        return point.verdict
    if certificate not in carried:
        run = name.removesuffix(f"@{certificate}")
        raise RunError(
            f"{run} does not carry the certificate {certificate}; it carries {', '.join(carried)}. For another one "
            f"over the same samples: smoothcert recertify {run} --certificate {certificate} --out NEW"
        )
    return carried[certificate]


def _other_bounds(verdicts: Sequence[Verdict]) -> dict[str, FloatArray]:
    """The bounded quantities other than p_A, one column each; nan where a verdict does not have one."""
    held = [verdict.bounds.quantities if verdict.bounds is not None else {} for verdict in verdicts]
    names = [quantity for quantity in Quantity if any(quantity in bounds for bounds in held)]
    return {
        name.value.replace("-", "_"): np.array([b[name].value if name in b else math.nan for b in held])
        for name in names
        if name is not Quantity.TOP_LOWER
    }


def _positions(points: Sequence[CertifiedPoint]) -> dict[str, FloatArray]:
    """Where the memory keeps the region of each input; nan for an input without one."""
    if all(point.promise is None for point in points):
        return {}
    return {"position": np.array([math.nan if p.promise is None else float(p.promise.position) for p in points])}


def _top_lower(verdict: Verdict) -> float:
    bound = None if verdict.bounds is None else verdict.bounds.quantities.get(Quantity.TOP_LOWER)
    return math.nan if bound is None else bound.value
