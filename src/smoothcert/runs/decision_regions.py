"""The decision regions of a run's smoothed classifier in the plane, estimated at the points of a grid.

Answers come from PREDICT, or, for a run about mean scores, from a proof that one of them is the largest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.attacks.attack_verdicts import compare_scores, samples_of_selection
from smoothcert.certificates import get_portfolio
from smoothcert.certificates.portfolio import is_soft
from smoothcert.data import Dataset, ProgressCallback
from smoothcert.errors import InputError, InterruptedRunError
from smoothcert.noise import from_grid
from smoothcert.questions import check_predict_is_possible, check_question
from smoothcert.records import FloatArray, InputArray, IntArray
from smoothcert.records.decision_map import NOT_ASKED, UNDECIDED, DecisionMap, Rectangle
from smoothcert.runs.reopening import reopen_run, spec_to_reopen
from smoothcert.runs.resumption import NOT_MOVED, Moved
from smoothcert.runs.store import read_manifest
from smoothcert.sampling.sampler import Progress
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import FixedN, LocalEngineSpec

_POINTS_AT_ONCE = 512
_MOST_POINTS = 256
"""The most points along the longer side, to keep pages small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """points: number along the longer side of the rectangle. n: samples per point."""

    points: int = 64
    n: int = 1000

    def check(self) -> None:
        if not 2 <= self.points <= _MOST_POINTS:
            raise InputError(f"{self.points} points along the longer side are not supported: give 2 … {_MOST_POINTS}")


@dataclass(frozen=True, slots=True)
class Survey:
    """A prepared map. soft: the run is about mean scores, not votes.

    points: (rows, columns, 2), the input of each cell. askable: (rows, columns), whether the classifier accepts it.
    inputs: (m, 2), the distinct askable points. number: (rows, columns), the row of each cell in `inputs`, or -1.
    """

    run: Path
    rectangle: Rectangle
    smoothed: SmoothedClassifier
    n: int
    alpha: float
    soft: bool
    points: FloatArray
    askable: NDArray[np.bool_]
    inputs: InputArray
    number: IntArray

    @property
    def samples(self) -> int:
        return (self.n + (samples_of_selection(self.n) if self.soft else 0)) * len(self.inputs)


def has_soft_certificate(certificates: frozenset[str]) -> bool:
    """Whether one of these certificates is about mean scores, so that votes are not the answers of its classifier."""
    return any(is_soft(one) for name in certificates for one in get_portfolio(name).certificates)


@contextmanager
def prepare_survey(
    run: Path,
    rectangle: Rectangle,
    settings: MapSettings,
    *,
    soft: bool = False,
    fetching: ProgressCallback | None = None,
    moved: Moved = NOT_MOVED,
) -> Iterator[Survey]:
    """Open the classifier of the run, check that it is the same, and divide the rectangle into cells.

    The seed is derived from that of the run: the same run gives the same map, and shares no draw with it. A memory of
    the run is read, not written. soft: compare mean scores. moved: see `Moved`.
    """
    settings.check()
    manifest = read_manifest(run)
    alpha = manifest.spec.alpha
    if not soft:
        check_predict_is_possible(n=settings.n, alpha=alpha)
    # Threads of this process are enough, also for a run that was made on a cluster.
    moved = dataclasses.replace(moved, engine=moved.engine or LocalEngineSpec())
    spec = spec_to_reopen(run, purpose="draw the regions of", moved=moved)
    with reopen_run(run, spec, fetching=fetching) as (smoothed, dataset):
        if dataset.input_shape != (2,):
            raise InputError(f"{run} has inputs of shape {dataset.input_shape}: a map needs inputs of shape (2,)")
        seed = int.from_bytes(hashlib.sha256(f"decision regions {manifest.seed}".encode()).digest()[:8])
        # Without a memory the classifier answers everywhere, and certified balls can leave the range of the data.
        smoothed = smoothed.derive(seed=seed, any_inputs=spec.memory is None)
        if soft:
            usual = get_portfolio(smoothed.noise.soft_certificate)
            question = FixedN(n=settings.n, n0=samples_of_selection(settings.n))
            check_question(question, usual, alpha=alpha, num_classes=smoothed.classifier.num_classes)
        cells = rectangle.cells(longer=settings.points)
        yield _build_survey(run, rectangle, smoothed, dataset, n=settings.n, alpha=alpha, soft=soft, cells=cells)


def _build_survey(
    run: Path,
    rectangle: Rectangle,
    smoothed: SmoothedClassifier,
    dataset: Dataset,
    *,
    n: int,
    alpha: float,
    soft: bool,
    cells: tuple[int, int],
) -> Survey:
    points = _nearest_inputs(rectangle.centres(*cells), smoothed.grid)
    askable: NDArray[np.bool_] = np.asarray(np.isfinite(points).all(axis=-1))
    if smoothed.input_range is not None:
        least, most = smoothed.input_range
        askable &= ((points >= least) & (points <= most)).all(axis=-1)
    if not askable.any():
        raise InputError(f"no point of the rectangle for {run} lies in the range of {dataset.name}")
    inputs, which = np.unique(points[askable], axis=0, return_inverse=True)
    number = np.full(askable.shape, -1, dtype=np.int64)
    number[askable] = which.reshape(-1)
    smoothed.tune((2,), samples=n * len(inputs))
    return Survey(run, rectangle, smoothed, n, alpha, soft, points.astype(np.float64), askable, inputs, number)


def _nearest_inputs(centres: FloatArray, levels: int | None) -> InputArray:
    """The float32 inputs closest to these points; on the grid, if the noise has one."""
    if levels is None:
        with np.errstate(over="ignore"):
            return centres.astype(np.float32)
    return from_grid(np.rint(centres * (levels - 1)).astype(np.int32), levels)


def answer(survey: Survey, *, stop: threading.Event | None = None, progress: Progress | None = None) -> DecisionMap:
    """Answer all points. stop: when set, the current points are finished, then InterruptedRunError is raised."""
    labels = np.full(len(survey.inputs), UNDECIDED, dtype=np.int64)
    remembered = np.zeros(len(survey.inputs), dtype=np.bool_)
    for at in range(0, len(survey.inputs), _POINTS_AT_ONCE):
        if stop is not None and stop.is_set():
            raise InterruptedRunError("stopped on request, before all points of the plane were answered")
        rows = range(at, min(at + _POINTS_AT_ONCE, len(survey.inputs)))
        try:
            answers = _answer_rows(survey, rows, progress)
        except InputError as error:
            raise InputError(f"the points of the plane of {survey.run} cannot be answered: {error}") from error
        for row, one in zip(rows, answers, strict=True):
            labels[row] = UNDECIDED if one.label is None else one.label
            remembered[row] = one.is_from_memory
    classes = np.where(survey.askable, labels[survey.number], NOT_ASKED)
    from_memory = int((survey.askable & remembered[survey.number]).sum())
    return DecisionMap(survey.rectangle, survey.points, classes, survey.n, survey.alpha, from_memory)


@dataclass(frozen=True, slots=True)
class _PointAnswer:
    """label: None for an abstention."""

    label: int | None
    is_from_memory: bool


def _answer_rows(survey: Survey, rows: range, progress: Progress | None) -> list[_PointAnswer]:
    inputs, n, alpha = survey.inputs[rows.start : rows.stop], survey.n, survey.alpha
    if not survey.soft:
        answers = survey.smoothed.predict(inputs, n=n, alpha=alpha, indices=rows, progress=progress)
        return [_PointAnswer(point.prediction, point.promise is not None) for point in answers]
    memory = survey.smoothed.memory
    promises = [None if memory is None else memory.lookup(x) for x in survey.smoothed.check_inputs(inputs)]
    points = compare_scores(survey.smoothed, inputs, rows, n=n, level=alpha, progress=progress)
    return [
        _PointAnswer(point.prediction, False) if promise is None else _PointAnswer(promise.label, True)
        for point, promise in zip(points, promises, strict=True)
    ]
