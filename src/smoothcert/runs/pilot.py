"""What `smoothcert advise` measures in about two seconds: the speed of sampling, and some votes at several levels."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence

import msgspec
import numpy as np

from smoothcert.data import Dataset
from smoothcert.errors import DataError, InputError, ModelError
from smoothcert.models.backends import get_backend_name
from smoothcert.models.original import asking, original_of
from smoothcert.models.scores import gives_scores
from smoothcert.noise import check_sigma
from smoothcert.records import AnyTally, InputArray, Noise, Stage, StreamId, TallyKind
from smoothcert.runs.advice import LevelVotes, Situation, Speed
from smoothcert.runs.building import NamedParts, build_smoothed, match_to_model, name_own_code, portfolio_of
from smoothcert.sampling import Request, Sampler
from smoothcert.sampling.requests import samples_per_draw
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import FIRST_LAYER, ConstantLevel, RunSpec

_TUNED_SAMPLES = 20_000
"""The batch size is measured as for this many samples, which takes a quarter of a second for most models."""
_VOTING_SECONDS, _OTHER_SECONDS = 1.2, 0.12
_MOST_INPUTS, _LEAST_INPUTS = 64, 4
_MOST_VOTES, _LEAST_VOTES, _USUAL_VOTES = 1000, 16, 100
_CHECKS_TIMED = 8
_UNIT_LEVELS = {Noise.GAUSSIAN: (0.12, 0.25, 0.5, 1.0), Noise.UNIFORM: (0.25, 0.5, 1.0, 2.0)}
"""Levels that are tried if none is given, in units of the range of the data."""
_SEED = 0


def measure_situation(spec: RunSpec, levels: Sequence[float], parts: NamedParts) -> Situation:
    """Load the data and the model of the spec, and measure. levels: of the noise; empty tries the usual ones."""
    began = time.perf_counter()
    spec = name_own_code(spec)
    for level in levels:
        check_sigma(level)
    dataset = parts.load_data(spec)
    spec, _ = parts.settle_scale(spec, dataset)
    tried = tuple(levels) or choose_levels(dataset, spec)
    spec = msgspec.structs.replace(spec, sigma=ConstantLevel(level=tried[0]))
    spec, why_float = parts.settle(spec, dataset)
    with build_smoothed(spec, dataset) as smoothed:
        dataset = match_to_model(dataset, smoothed.classifier)
        _check_fits(spec, smoothed, dataset)
        loading = time.perf_counter() - began
        pilot = _Pilot(smoothed, dataset)
        votes = pilot.vote(tried, known=bool(levels))
        classifier = smoothed.classifier
        return Situation(
            model=classifier.description,
            backend=classifier.backend,
            num_classes=classifier.num_classes,
            input_shape=tuple(dataset.input_shape),
            data=dataset.name,
            size=len(dataset),
            is_labelled=pilot.is_labelled,
            grid=smoothed.grid,
            why_float=why_float,
            noise=smoothed.noise,
            smoothing=smoothed.smoothing(portfolio_of(spec)),
            clean_accuracy=pilot.clean_accuracy,
            votes=votes,
            speed=Speed(
                samples_per_second=pilot.rate,
                check_seconds=pilot.time_check(),
                loading_seconds=loading,
                batch=smoothed.known_batch(),
                workers=pilot.sampler.workers,
            ),
            cost_of_pairs=pilot.compare_kind(TallyKind.PAIRS),
            cost_of_gradients=pilot.compare_kind(TallyKind.GRADIENTS),
            cost_of_first_layer=_compare_first_layer(spec, dataset, pilot.rate),
            has_other_backend=get_backend_name(classifier) == "torch" and _is_installed("onnxruntime"),
            gives_scores=gives_scores(classifier),
        )


def choose_levels(dataset: Dataset, spec: RunSpec) -> tuple[float, ...]:
    """Levels to try: shares of the range of the data, or of its standard deviation if it has no range."""
    if spec.noise.scale is not None:
        unit = 1.0
    elif dataset.input_range is not None:
        unit = float(dataset.input_range[1] - dataset.input_range[0])
    else:
        unit = float(np.std(dataset.inputs(_spread(len(dataset), 1000)))) or 1.0
    return tuple(float(f"{unit * level:.2g}") for level in _UNIT_LEVELS[spec.noise.kind])


def _check_fits(spec: RunSpec, smoothed: SmoothedClassifier, dataset: Dataset) -> None:
    try:
        smoothed.check_inputs(dataset.inputs([0]))
    except InputError as error:
        raise DataError(f"{spec.data.place} does not fit {spec.model.place}: {error}") from error
    largest, known = int(dataset.labels.max()), smoothed.classifier.num_classes
    if largest >= known:
        raise DataError(
            f"{spec.data.place} has labels up to {largest}, but {spec.model.place} knows only {known} classes"
        )


class _Pilot:
    """Draws votes around some inputs of the data by the sampler that a run would use.

    rate: samples per second; known after `vote`.
    """

    def __init__(self, smoothed: SmoothedClassifier, dataset: Dataset) -> None:
        self._smoothed = smoothed
        batch = smoothed.tune(tuple(dataset.input_shape), samples=_TUNED_SAMPLES)
        self.sampler = Sampler(smoothed.classifier, batch=batch, workers=smoothed.workers)
        places = _spread(len(dataset), _MOST_INPUTS)
        inputs = smoothed.check_inputs(dataset.inputs(places))
        self._inputs: InputArray = inputs if smoothed.scale is None else smoothed.scale.divide(inputs)
        clean = np.asarray(smoothed.classifier.classify(np.ascontiguousarray(self._inputs)))
        labels = np.asarray(dataset.labels)[places]
        self.is_labelled = bool((labels >= 0).all())
        # Without labels the answer to the input itself is what should survive the noise.
        self._expected = labels if self.is_labelled else clean
        self.clean_accuracy = float((clean == labels).mean()) if self.is_labelled else None
        self.rate = 0.0
        self._sigma = 0.0

    def vote(self, levels: Sequence[float], *, known: bool) -> tuple[LevelVotes, ...]:
        """Votes at every level. known: the levels were requested, so one that the noise cannot carry is an error."""
        usable = [level for level in levels if known or self._is_possible(level)] or list(levels[:1])
        for level in usable:
            self._draw(level, rows=1, draws=1)  # makes the tables of the noise, which are not part of the speed
        self._sigma = usable[0]
        rate = self._measure(TallyKind.VOTES, seconds=_OTHER_SECONDS)
        each = rate * _VOTING_SECONDS / len(usable)
        rows = min(len(self._inputs), max(_LEAST_INPUTS, int(each / _USUAL_VOTES)))
        draws = min(_MOST_VOTES, max(_LEAST_VOTES, int(each / rows)))
        began = time.perf_counter()
        found = tuple(self._count(level, rows, draws) for level in usable)
        self.rate = max(rate, len(usable) * rows * draws / (time.perf_counter() - began))
        return found

    def _is_possible(self, level: float) -> bool:
        try:
            self._draw(level, rows=1, draws=1)
        except InputError:
            return False
        return True

    def _count(self, level: float, rows: int, draws: int) -> LevelVotes:
        counts = [tally.independent_votes() for tally in self._draw(level, rows=rows, draws=draws)]
        winners = [int(np.argmax(votes.counts)) for votes in counts]
        return LevelVotes(
            sigma=level,
            votes=draws,
            hits=tuple(int(votes.counts[winner]) for votes, winner in zip(counts, winners, strict=True)),
            right=tuple(winner == int(self._expected[row]) for row, winner in enumerate(winners)),
        )

    def compare_kind(self, kind: TallyKind) -> float | None:
        """The time of a sample that is counted in this way, in units of a vote; None if the noise does not allow it."""
        try:
            other = self._measure(kind, seconds=_OTHER_SECONDS)
            return self._measure(TallyKind.VOTES, seconds=_OTHER_SECONDS) / other
        except InputError:
            return None

    def time_check(self) -> float:
        """Seconds that the user's own model takes for one input, alone."""
        original = original_of(self._smoothed.classifier)
        rows = [self._inputs[k % len(self._inputs)] for k in range(_CHECKS_TIMED + 1)]
        with asking(original, scores=False) as ask:
            ask(rows[0])
            began = time.perf_counter()
            for row in rows[1:]:
                ask(row)
        return (time.perf_counter() - began) / _CHECKS_TIMED

    def _measure(self, kind: TallyKind, *, seconds: float) -> float:
        """Samples per second, drawn around one input for about this long."""
        draws = 2 * self.sampler.batch * self.sampler.workers
        self._draw(self._sigma, rows=1, draws=draws, kind=kind)
        best, spent = 0.0, 0.0
        while spent < seconds:
            began = time.perf_counter()
            self._draw(self._sigma, rows=1, draws=draws, kind=kind)
            elapsed = time.perf_counter() - began
            spent += elapsed
            # The best turn counts: other programs can only make a turn slower.
            best = max(best, draws * samples_per_draw(kind) / elapsed)
            if elapsed < seconds / 8:
                draws *= 2
        return best

    def _draw(self, sigma: float, *, rows: int, draws: int, kind: TallyKind = TallyKind.VOTES) -> list[AnyTally]:
        classes = self._smoothed.classifier.num_classes
        requests = [
            Request(
                row=row,
                stream=StreamId(_SEED, row, Stage.SELECTION),
                sigma=sigma,
                start=0,
                stop=draws,
                kind=kind,
                group=(0, *(1 for _ in range(classes))) if kind is TallyKind.GRADIENTS else (),
                noise=self._smoothed.noise,
                grid=self._smoothed.grid,
            )
            for row in range(rows)
        ]
        return self.sampler.tally(self._inputs, requests)


def _compare_first_layer(spec: RunSpec, dataset: Dataset, rate: float) -> float | None:
    """The time of a sample with noise drawn in the first layer, relative to the input; None if it is impossible."""
    if spec.noise.kind is not Noise.GAUSSIAN or spec.noise.scale is not None:
        return None
    noise = msgspec.structs.replace(spec.noise.settle(None), place=FIRST_LAYER)
    try:
        with build_smoothed(msgspec.structs.replace(spec, noise=noise), dataset) as smoothed:
            pilot = _Pilot(smoothed, dataset)
            pilot.vote(list_levels(spec), known=True)
            return rate / pilot.rate
    except (InputError, ModelError):
        return None


def list_levels(spec: RunSpec) -> list[float]:
    """The constant level of the spec."""
    return [spec.sigma.level] if isinstance(spec.sigma, ConstantLevel) else []


def _spread(size: int, count: int) -> list[int]:
    """At most `count` places, evenly spread."""
    return sorted({int(place) for place in np.linspace(0, size - 1, min(size, count))})


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
