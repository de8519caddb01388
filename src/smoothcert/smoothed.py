"""SmoothedClassifier: predict and certify, the whole pipeline as one readable page."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from smoothcert.certificates import Certificate, Portfolio, get_portfolio
from smoothcert.errors import InputError
from smoothcert.memory import MemoryKey, RegionMemory, lasting_name, open_memory
from smoothcert.memory.claims import key_for, promised, remembered
from smoothcert.models import NOISE_AT, as_classifier
from smoothcert.models.base import BaseClassifier, FirstLayerNoise
from smoothcert.models.probe import check_probe, probe
from smoothcert.models.scores import scoring
from smoothcert.noise import (
    DETECT,
    FLOAT,
    DetectedGrid,
    as_noise,
    asked_grid,
    check_sigma,
    check_suits_grid,
    detect_grid,
    to_grid,
)
from smoothcert.questions.answers import Inquiry, answer_votes, check_can_ask, check_can_decide, only_certificate
from smoothcert.questions.certification import (
    Votes,
    certify_votes,
    check_can_certify,
    check_can_predict,
    predict_votes,
    smoothing_of,
)
from smoothcert.questions.questions import Question, asked_question, looks
from smoothcert.questions.rounds import INPUTS_AT_ONCE, draw_until_answered
from smoothcert.records import (
    AnyTally,
    CertifiedPoint,
    CheckCounts,
    ConstantSigma,
    InputArray,
    Noise,
    Smoothing,
    Stage,
    Tally,
    TallyKind,
    noise_in_words,
)
from smoothcert.records.tallies import SCORE_CELLS
from smoothcert.sampling import ModelChecks, Sampler, Tallier, inputs_per_shard, measure_batch, segments
from smoothcert.sampling.drawing import Drawing, Draws
from smoothcert.sampling.sampler import Progress, check_can_sample
from smoothcert.sigma import ConstantRule, OptimisedSigma, SigmaRule, as_rule
from smoothcert.statistics import alpha_after_noise, noise_price, plurality, price_of
from smoothcert.strict_json import strict_loads


class TallierFactory(Protocol):
    """Makes who draws and counts, when classifier and batch size are known."""

    def __call__(self, classifier: BaseClassifier, /, *, batch: int, workers: int | None) -> Tallier: ...


@runtime_checkable
class MeasuringFactory(Protocol):
    """One that measures the best batch size where it will be used, because that is not in this process."""

    def measure_batch(
        self,
        classifier: BaseClassifier,
        input_shape: tuple[int, ...],
        *,
        samples: int,
        noise: Noise,
        shared: bool,
        grid: int | None,
    ) -> int: ...


Check = Callable[[Sequence[CertifiedPoint]], None]
"""Raises for points that must not be used."""

MEMORY_NEEDS_A_GRID = "a memory keeps the regions of one grid, which must be given by its number of levels"
"""Why no grid is looked for: two who answer for one classifier may see other inputs first, and what one of them has
promised the other would not find. Memories made before grids were looked for are found, too."""

_LARGEST_BYTE = 255
_MOST_PAIRS_OF_SUMS = 8_000_000
"""Pairs of sums, or of counts of scores, that a worker holds at once: 128 MB."""


class SmoothedClassifier:
    """The classifier g(x) = the class f(x + ε) takes most often, ε ~ N(0, σ²I) or uniform, with certificates.

    model: a torch module, the path of a checkpoint or .onnx file, a scikit-learn estimator, any callable on a batch, or
        a `BaseClassifier`. It is adapted when the first inputs show their shape, unless `input_shape` is given.
    sigma: noise level in the units of the input; the model standardises afterwards, as its first layer. A number, or a
        rule that gives every input its own (`smoothcert.sigma`). A plain function of one input, or `OptimisedSigma`,
        can predict, but has no envelope: to certify with it, give it a memory.
    noise: gaussian, or uniform on [-sigma, sigma] in every coordinate, whose certificates are in the ℓ1 norm.
    grid: how many levels inputs have, k/(grid-1) for k = 0 … grid-1: 256 for 8-bit images. The noise then goes in whole
        steps, rounded exactly, and certificates hold in floating point too (docs/security.md). "detect", the default
        (or None), takes 256 levels if the first inputs are uint8 or lie on them, else 65536 if they lie on those; what
        was found is part of the classifier and stays, and inputs beside it are refused. Where there is no grid, or the
        noise cannot go in its steps, noise is added in float32, which a base classifier that looks at the last bits
        can abuse: `.grid` is None then, and `point.guarantee` says "not sound in floating point". "float" asks for
        that, and so does a memory without a number: what is promised must not depend on which input came first.
    memory: where the regions promised so far are kept: a `RegionMemory`, the path of an SQLite file or the URL of a
        PostgreSQL database, shared by everybody who answers for this classifier. `certify` claims a region for every
        input, and may be granted a smaller one, or another class; `predict` answers with the class of the region an
        input lies in. One region is promised, so one certificate is used at a time. `close` it, or use this as
        a context manager.
    seed: of all noise; None takes one from the operating system (see `.seed`).
    batch: samples classified at once; None measures the best one at the first call.
    input_range: values every input must lie in; None allows any finite value. uint8 inputs are divided by 255 where it
        is (0, 1), whatever values they hold; other integers are taken as they are.
    backend: what computes a torch model: torch, which is the default, onnxruntime, or fastest, by a short measurement.
        Another back end rounds differently: it is another base classifier.
    noise_at: "first-layer" draws Gaussian noise in the output of a linear first layer, by its exact law: much faster
        where that layer is narrow.
    shared_noise: the same noise for all inputs, made once for many. Each certificate holds as it stands, but the errors
        of different inputs are not independent, so there are no bounds for a whole test set.
    tallier: who draws and counts; the threads of this process, unless it is a cluster
        (`smoothcert.cluster.ray_engine.RayEngine`).
    """

    def __init__(
        self,
        model: Any,
        *,
        sigma: float | SigmaRule | OptimisedSigma | Callable[[Any], float],
        noise: Noise | str = Noise.GAUSSIAN,
        grid: int | str | None = DETECT,
        memory: RegionMemory | str | Path | None = None,
        num_classes: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        seed: int | None = None,
        batch: int | None = None,
        workers: int | None = None,
        device: str = "auto",
        input_range: tuple[float, float] | None = (0.0, 1.0),
        noise_at: str = NOISE_AT[0],
        backend: str | None = None,
        shared_noise: bool = False,
        tallier: TallierFactory = Sampler,
    ) -> None:
        self.noise = as_noise(noise)
        self._asked_grid = asked_grid(grid)
        self._known_grid = self._given_grid(remembered=memory is not None)
        self._sigma = sigma if isinstance(sigma, OptimisedSigma) else as_rule(sigma)
        if isinstance(sigma, OptimisedSigma) and sigma.noise is not self.noise:
            raise InputError(f"sigma is optimised for {sigma.noise} noise, but the noise here is {self.noise}")
        self._rule: SigmaRule | None = None
        self._memory = memory
        self._opened_memory = False
        self._memory_is_checked = False
        self._levels: set[float] = set()
        self._model = model
        self._num_classes = num_classes
        self._device = device
        self._noise_at = noise_at
        self._backend = backend
        self.shared_noise = shared_noise
        self._classifier: BaseClassifier | None = None
        self._checks: ModelChecks | None = None
        self._checks_are_planned = False
        self._shape: tuple[int, ...] = ()
        if input_shape is not None:
            self._adapt(input_shape)
        self.seed = secrets.randbits(128) if seed is None else seed
        self.batch = batch
        self.workers = workers
        self.input_range = input_range
        self._tallier = tallier
        self._next_index = 0

    def __repr__(self) -> str:
        model = self._classifier.description if self._classifier is not None else type(self._model).__name__
        sigma = self._sigma if isinstance(self._sigma, OptimisedSigma) else self._sigma.description
        kept = "" if self._memory is None else f", memory={self._memory_name(self._memory)}"
        noise = f"{self.noise} noise {self._noise_in_words()}"
        return f"SmoothedClassifier({model}, {noise}, sigma={sigma}, seed={self.seed}, batch={self.batch}{kept})"

    def _noise_in_words(self) -> str:
        if self._known_grid is None:
            return "on the grid of the first inputs"
        why = f": {self._known_grid.reason}" if self._known_grid.reason else ""
        return noise_in_words(self._known_grid.levels) + why

    @property
    def grid(self) -> int | None:
        """The levels of the grid that noise goes in steps of; None where it is added in float32.

        It is known once it was given, or once the first inputs were seen: an InputError before that.
        """
        if self._known_grid is None:
            raise InputError(
                "the grid of the inputs is not known yet: give grid=256 for 8-bit images (or another number of levels) "
                f"or grid={FLOAT!r}, or certify something first"
            )
        return self._known_grid.levels

    @property
    def _levels_or_none(self) -> int | None:
        """The grid as far as it is known."""
        return None if self._known_grid is None else self._known_grid.levels

    def _given_grid(self, *, remembered: bool) -> DetectedGrid | None:
        """What is known before there are inputs; None where they will tell."""
        if self._asked_grid == DETECT:
            return DetectedGrid(None, MEMORY_NEEDS_A_GRID) if remembered else None
        return DetectedGrid(None if isinstance(self._asked_grid, str) else self._asked_grid)

    @staticmethod
    def _memory_name(memory: RegionMemory | str | Path) -> str:
        """Without a password that an address may hold."""
        return memory.location if isinstance(memory, RegionMemory) else lasting_name(memory)

    def close(self) -> None:
        """Close the memory, if it was opened here."""
        if isinstance(self._memory, RegionMemory) and self._opened_memory:
            self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def predict(
        self,
        x: Any,
        *,
        n: int = 100_000,
        alpha: float = 0.001,
        labels: Sequence[int | None] | None = None,
        indices: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[CertifiedPoint]:
        """PREDICT: the class of every input, or an abstention; a voted answer is wrong with probability at most alpha.

        x: (m, *input_shape). indices number the noise streams; by default every input ever given gets a new one.
        """
        shards = self.predict_shards(x, n=n, alpha=alpha, labels=labels, indices=indices, progress=progress)
        points = [point for shard in shards for point in shard]
        self.checks.ask_again()
        return points

    def predict_shards(
        self,
        x: Any,
        *,
        n: int,
        alpha: float,
        labels: Sequence[int | None] | None = None,
        indices: Sequence[int] | None = None,
        done: Set[int] = frozenset(),
        progress: Progress | None = None,
    ) -> Iterator[list[CertifiedPoint]]:
        """`predict`, handing over the results shard by shard; a shard whose inputs are all in `done` is passed over.

        With a memory it is asked first, and again after sampling: no answer contradicts a region promised before it.
        """
        check_can_predict(n=n, alpha=alpha)
        inputs, indices, known = self._prepare(x, labels, indices, samples_per_input=n)
        # A memory may answer for all inputs but one.
        self._expect(n if self._memory is not None else n * len(inputs))
        self._check_price(self._bare_smoothing(inputs), n=n, alpha=alpha)
        every = self._shards(range(len(inputs)), n)
        shards = [rows for rows in every if not all(indices[row] in done for row in rows)]
        if shards and self.memory is None:
            for answers in self._predicted(inputs, shards, indices, known, n=n, alpha=alpha, progress=progress):
                yield list(answers.values())
            return
        for rows in shards:
            answers = self._promised(inputs, rows, indices, known)
            open_rows = [row for row in rows if row not in answers]
            if progress is not None and answers:
                progress(n * len(answers))
            if open_rows:
                (voted,) = self._predicted(inputs, [open_rows], indices, known, n=n, alpha=alpha, progress=progress)
                answers |= voted | self._promised(inputs, open_rows, indices, known)
            yield [answers[row] for row in rows]

    def _predicted(
        self,
        inputs: InputArray,
        shards: Sequence[Sequence[int]],
        indices: Sequence[int],
        known: Sequence[int | None],
        *,
        n: int,
        alpha: float,
        progress: Progress | None,
    ) -> Iterator[dict[int, CertifiedPoint]]:
        """The answers of the votes, for one shard of rows after the other."""
        began = time.perf_counter()
        drawing = self._drawing(inputs, indices, [row for rows in shards for row in rows], progress)
        for votes in drawing.each(Draws.alike(Stage.PREDICTION, rows, [(0, n)]) for rows in shards):
            seconds = (time.perf_counter() - began) / len(votes)
            yield {
                row: predict_votes(
                    index=indices[row],
                    label=known[row],
                    tally=tallies[0].independent_votes(),
                    alpha=alpha,
                    seconds=seconds,
                    norm=self.noise.norm,
                    grid=self.grid,
                    price=self.noise_price(inputs, tallies[0]),
                )
                for row, tallies in votes.items()
            }
            began = time.perf_counter()

    def noise_price(self, inputs: InputArray, tally: AnyTally) -> float:
        """What a tally of these inputs takes off alpha, because the tables of the noise are finite."""
        return price_of(tally, self._bare_smoothing(inputs))

    def _bare_smoothing(self, inputs: InputArray) -> Smoothing:
        return Smoothing(dimension=int(np.prod(inputs.shape[1:])), noise=self.noise, grid=self.grid)

    def _check_price(self, smoothing: Smoothing, *, n: int, alpha: float) -> None:
        """Refuse an alpha that the noise would eat, before anything is sampled."""
        if isinstance(self.rule, ConstantRule):
            alpha_after_noise(alpha, noise_price(smoothing, draws=n, sigma=self.rule.sigma))

    def _promised(
        self, inputs: InputArray, rows: Sequence[int], indices: Sequence[int], known: Sequence[int | None]
    ) -> dict[int, CertifiedPoint]:
        """The answers the memory gives, for the inputs that lie in a promised region."""
        memory = self.memory
        found = {} if memory is None else {row: memory.lookup(inputs[row]) for row in rows}
        return {
            row: promised(promise, index=indices[row], label=known[row], norm=self.noise.norm, grid=self.grid)
            for row, promise in found.items()
            if promise is not None
        }

    def certify(
        self,
        x: Any,
        *,
        n0: int = 100,
        n: int = 100_000,
        alpha: float = 0.001,
        certificate: str | Certificate | Sequence[str | Certificate] | None = None,
        best_of: bool = False,
        decide: float | Sequence[float] | None = None,
        precision: float | None = None,
        labels: Sequence[int | None] | None = None,
        indices: Sequence[int] | None = None,
        progress: Progress | None = None,
    ) -> list[CertifiedPoint]:
        """CERTIFY: for every input a class and a radius within which it cannot change, or an abstention.

        x: (m, *input_shape). n0 samples choose the class, n fresh ones prove it; the promise is wrong with
        probability at most alpha, per input. indices as in `predict`.

        certificate: the theorem, or several over the same samples; the first one is the point's own, the others are in
        `point.further`, each at the whole alpha. By default gaussian, or envelope where sigma varies. best_of: share
        alpha among them instead, and take the largest radius.

        decide: radii; sample each input only until it is known which of them its radius reaches, and give the largest.
        precision: sample until less than this could be added to the radius. Either way n is the most that is drawn, and
        the promise is wrong with probability at most alpha all the same, by tests that hold at any time.
        """
        shards = self.certify_shards(
            x,
            n0=n0,
            n=n,
            alpha=alpha,
            certificate=get_portfolio(self.usual_certificate if certificate is None else certificate, best_of=best_of),
            question=asked_question(decide=decide, precision=precision),
            labels=labels,
            indices=indices,
            progress=progress,
        )
        points = [point for shard in shards for point in shard]
        self.checks.ask_again()
        return points

    def certify_shards(
        self,
        x: Any,
        *,
        n0: int,
        n: int,
        alpha: float,
        certificate: str | Portfolio,
        question: Question | None = None,
        labels: Sequence[int | None] | None = None,
        indices: Sequence[int] | None = None,
        done: Set[int] = frozenset(),
        check: Check | None = None,
        progress: Progress | None = None,
    ) -> Iterator[list[CertifiedPoint]]:
        """`certify`, handing over the results shard by shard; a shard whose inputs are all in `done` is passed over.

        check: raises for points that must not be used, before anything is claimed for them from a memory.

        Selection is cheap and done for a larger group at once. It is repeated when a group is resumed, so that every
        batch holds the same samples as in an uninterrupted run.
        """
        portfolio = get_portfolio(certificate)
        if question is not None:
            check_can_ask(question, portfolio, n=n, alpha=alpha, n0=n0)
            inputs, indices, known = self._prepare(x, labels, indices, samples_per_input=n0 + n)
            self._expect((n0 + looks(n)[0]) * len(inputs))
            inquiry = self.inquiry(question, portfolio, n=n, alpha=alpha, size=int(np.prod(inputs.shape[1:])))
            for rows, points in self._answers(inputs, indices, known, inquiry, n0=n0, done=done, progress=progress):
                yield from self._kept(points, inputs, rows, done, check)
            return
        check_can_certify(portfolio, n=n, alpha=alpha, n0=n0)
        inputs, indices, known = self._prepare(x, labels, indices, samples_per_input=n0 + n)
        self._expect((n0 + n) * len(inputs))
        check_can_certify(portfolio, n=n, alpha=alpha, num_classes=self.classifier.num_classes)
        size = int(np.prod(inputs.shape[1:]))
        smoothing = self.smoothing(portfolio, size=size)
        self._check_price(smoothing, n=n, alpha=alpha)
        _ = self.memory  # a place that cannot be used says so before anything is sampled
        most = self.inputs_at_once(portfolio, n=n, size=size)
        for group in self._shards(range(len(inputs)), n0):
            began = time.perf_counter()
            drawing = self._drawing(inputs, indices, group, progress)
            selection = drawing.votes(Stage.SELECTION, group, n=n0)
            selecting = (time.perf_counter() - began) / len(group)
            shards = [
                rows for rows in self._shards(group, n, most=most) if not all(indices[row] in done for row in rows)
            ]
            estimations = drawing.each(self._estimation(rows, portfolio, selection, n) for rows in shards)
            for rows in shards:
                began = time.perf_counter()
                estimation = next(estimations)
                estimating = (time.perf_counter() - began) / len(rows)
                votes = [
                    Votes(
                        index=indices[row],
                        label=known[row],
                        selection=selection[row],
                        estimation=tuple(estimation[row]),
                        seconds=selecting + estimating,
                    )
                    for row in rows
                ]
                points = certify_votes(votes, portfolio, alpha=alpha, smoothing=smoothing)
                yield from self._kept(points, inputs, rows, done, check)

    def inquiry(self, question: Question, portfolio: Portfolio, *, n: int, alpha: float, size: int) -> Inquiry:
        """A question with all that its answers depend on; an InputError where nobody could get one but no."""
        inquiry = Inquiry(
            question=question,
            certificate=only_certificate(portfolio),
            smoothing=self.smoothing(portfolio, size=size),
            n=n,
            alpha=alpha,
        )
        if isinstance(self.rule, ConstantRule):
            inquiry.spent(self.rule.sigma)  # an alpha that the noise would eat is refused here
            check_can_decide(inquiry, sigma=self.rule.sigma)
        return inquiry

    def _answers(
        self,
        inputs: InputArray,
        indices: Sequence[int],
        known: Sequence[int | None],
        inquiry: Inquiry,
        *,
        n0: int,
        done: Set[int],
        progress: Progress | None,
    ) -> Iterator[tuple[Sequence[int], list[CertifiedPoint]]]:
        """Shards of inputs that were sampled until their question was answered: rows, and what was found."""
        _ = self.memory  # a place that cannot be used says so before anything is sampled
        for at in range(0, len(inputs), INPUTS_AT_ONCE):
            rows = range(at, min(at + INPUTS_AT_ONCE, len(inputs)))
            if all(indices[row] in done for row in rows):
                continue
            began = time.perf_counter()
            drawing = self._drawing(inputs, indices, rows, progress)
            selection = drawing.votes(Stage.SELECTION, rows, n=n0)
            estimation = draw_until_answered(drawing, {row: plurality(selection[row]) for row in rows}, inquiry)
            taken = {row: n0 + sum(tally.n for tally in estimation[row]) for row in rows}
            each = (time.perf_counter() - began) / sum(taken.values())
            votes = [
                Votes(
                    index=indices[row],
                    label=known[row],
                    selection=selection[row],
                    estimation=estimation[row],
                    seconds=each * taken[row],
                )
                for row in rows
            ]
            yield rows, answer_votes(votes, inquiry)

    def _kept(
        self,
        points: list[CertifiedPoint],
        inputs: InputArray,
        rows: Sequence[int],
        done: Set[int],
        check: Check | None,
    ) -> Iterator[list[CertifiedPoint]]:
        """The points of a shard; with a memory, after their regions were claimed, in the order of the inputs, whatever
        the number of workers.

        Claims are made one by one, so that each is stored before the next one: what a point found in the memory is then
        never asked again. What is done already is left alone.
        """
        if check is not None:
            check(points)
        memory = self.memory
        if memory is None:
            yield points
            return
        for row, point in zip(rows, points, strict=True):
            if point.index not in done:
                yield [remembered(point, inputs[row], memory)]

    @property
    def usual_certificate(self) -> str:
        """The theorem for this noise and this sigma where none is named."""
        return self.noise.usual_certificate(constant_sigma=self._memory is not None or self._has_constant_sigma)

    @property
    def _has_constant_sigma(self) -> bool:
        return isinstance(self._sigma, SigmaRule) and isinstance(self._sigma.envelope, ConstantSigma)

    def smoothing(self, portfolio: Portfolio, *, size: int) -> Smoothing:
        """What the theorems must know; an InputError where they cannot hold: no envelope, or for constant σ only."""
        found = smoothing_of(
            self.rule.envelope,
            dimension=size,
            num_classes=self.classifier.num_classes,
            noise=self.noise,
            remembered=self._memory is not None,
            grid=self.grid,
        )
        portfolio.check_suits(found)
        check_can_sample(self.classifier, kind=portfolio.tally, noise=self.noise, grid=self.grid)
        if found.varying and found.grid is not None and not self._stays_near_zero:
            raise InputError(
                "for inputs on a grid a sigma that varies is certified within [-1, 1], where it is known how far "
                f"float32 numbers are from the grid: give an input_range inside it, or grid={FLOAT!r}"
            )
        if found.remembered:
            self._check_one_region(portfolio)
        return found

    @property
    def _stays_near_zero(self) -> bool:
        """Whether no input has a value beyond ±1."""
        return self.input_range is not None and max(abs(bound) for bound in self.input_range) <= 1

    def _check_one_region(self, portfolio: Portfolio) -> None:
        norm, certificate = self.noise.norm, portfolio.certificates[0]
        if len(portfolio.certificates) > 1:
            raise InputError(
                f"a memory promises one region for an input, and {portfolio} would give several radii: name one "
                "certificate"
            )
        if certificate.varying_sigma:
            raise InputError(
                f"{certificate.name} is about a sigma whose change is bounded; with a memory each region is that of "
                "one constant sigma: use the certificate gaussian"
            )
        if certificate.norm is not norm:
            raise InputError(
                f"{portfolio} gives radii in the {certificate.norm} norm, and with {self.noise} noise a "
                f"memory keeps regions in the {norm} norm"
            )

    @property
    def rule(self) -> SigmaRule:
        """The noise level of an input; where it is optimised, once the model is known."""
        if not isinstance(self._sigma, OptimisedSigma):
            return self._sigma
        if self._rule is None:
            self._rule = self._sigma.for_model(self.classifier)
        return self._rule

    @property
    def memory_key(self) -> MemoryKey:
        """What a memory keeps the regions of this classifier under, once the shape of an input is known."""
        return key_for(
            self.classifier,
            self.rule,
            noise=self.noise,
            input_shape=self._shape,
            input_range=self.input_range,
            grid=self.grid,
        )

    @property
    def memory(self) -> RegionMemory | None:
        """The regions promised so far, once the shape of an input is known; None without a memory."""
        if self._memory is None:
            return None
        key = self.memory_key
        if not isinstance(self._memory, RegionMemory):
            self._memory = open_memory(self._memory, key)
            self._opened_memory = True
        elif self._memory.key != key:
            raise InputError(
                f"the memory {self._memory.location} keeps the regions of another classifier: its model, sigma, noise "
                "or inputs differ from those here. Open it with the key of this one: `open_memory`, or give its place"
            )
        self._check_memory_answers(self._memory)
        return self._memory

    def _check_memory_answers(self, memory: RegionMemory) -> None:
        """Once: refuse a model that answers otherwise than the one whose regions these are."""
        if self._memory_is_checked:
            return
        kept = memory.probe()
        if kept is None:
            memory.keep_probe(json.dumps(probe(self.classifier, self._shape)))
        else:
            check_probe(strict_loads(kept), self.classifier, self._shape, of=f"the memory {memory.location}")
        self._memory_is_checked = True

    def sigmas(
        self, inputs: InputArray, indices: Sequence[int], *, rows: Sequence[int] | None = None
    ) -> dict[int, float]:
        """The noise level of each row; what float32 noise cannot carry is refused."""
        chosen = range(len(inputs)) if rows is None else rows
        levels = np.asarray(self.rule.sigmas(inputs[np.asarray(chosen)]), dtype=np.float64)
        if levels.shape != (len(chosen),):
            raise InputError(
                f"{self.rule.description} gave levels of shape {levels.shape} for {len(chosen)} inputs; one sigma each "
                "was expected"
            )
        found = {row: float(level) for row, level in zip(chosen, levels, strict=True)}
        for row, level in found.items():
            try:
                check_sigma(level)
                if self._levels_or_none is not None:
                    check_suits_grid(self.noise, sigma=level, levels=self._levels_or_none)
            except InputError as error:
                raise InputError(f"input {indices[row]} cannot be smoothed: {error}") from error
        self._check_constant(set(found.values()))
        return found

    def _check_constant(self, levels: Set[float]) -> None:
        """Refuse a rule that claims to be constant and is not, over all inputs it was ever asked for."""
        self._levels |= levels if isinstance(self.rule.envelope, ConstantSigma) else set()
        if len(self._levels) > 1:
            raise InputError(
                f"{self.rule.description} states that sigma is constant, but gave {min(self._levels):g} and "
                f"{max(self._levels):g}: state the envelope by which it varies"
            )

    def _drawing(
        self, inputs: InputArray, indices: Sequence[int], rows: Sequence[int], progress: Progress | None
    ) -> Drawing:
        """The rows of the inputs that are drawn together, each with its noise level."""
        return Drawing(
            tallier=self._tallier(self.classifier, batch=self.known_batch(), workers=self.workers),
            inputs=inputs,
            indices=indices,
            sigmas=self.sigmas(inputs, indices, rows=rows),
            seed=self.seed,
            noise=self.noise,
            checks=self.checks,
            shared_noise=self.shared_noise,
            grid=self.grid,
            progress=progress,
        )

    def _estimation(self, rows: Sequence[int], portfolio: Portfolio, selection: Mapping[int, Tally], n: int) -> Draws:
        """What the certificates of each row are proved from, one tally per segment."""
        kind = portfolio.tally
        groups: dict[int, tuple[int, ...]] = {}
        winners: dict[int, int] = {}
        if kind is TallyKind.GRADIENTS:
            groups = {row: self._gradient_groups(portfolio, selection[row]) for row in rows}
        if kind is TallyKind.SCORES:
            winners = {row: plurality(selection[row]) or 0 for row in rows}
        return Draws(
            stage=Stage.ESTIMATION,
            ranges=dict.fromkeys(rows, segments(n, kind)),
            kind=kind,
            groups=groups,
            winners=winners,
        )

    def _gradient_groups(self, portfolio: Portfolio, selection: Tally) -> tuple[int, ...]:
        """Each class alone where the gradients of all are asked for; else the winner against all the rest."""
        places = range(selection.num_classes + 1)
        if portfolio.every_class:
            return tuple(places)
        winner = plurality(selection) or 0
        return tuple(0 if place == winner else 1 for place in places)

    def inputs_at_once(self, portfolio: Portfolio, *, n: int, size: int) -> int | None:
        """How many inputs of that size the sums of gradients or the cells of scores leave room for; None where none
        are kept.

        Sums take 16 bytes per group of classes, coordinate and segment. Where not even one fits, an InputError. Cells
        take 16 bytes each per segment. A model that has no scores is refused here, before anything is sampled.
        """
        kind = portfolio.tally
        if kind is TallyKind.SCORES:
            scoring(self.classifier)
            return max(1, _MOST_PAIRS_OF_SUMS // (SCORE_CELLS * len(segments(n, kind))))
        if kind is not TallyKind.GRADIENTS:
            return None
        groups = self.classifier.num_classes + 1 if portfolio.every_class else 2
        room = _MOST_PAIRS_OF_SUMS // (groups * size * len(segments(n, kind)))
        if room < 1:
            smaller = "second-order, which needs that of one class only, or " if portfolio.every_class else ""
            raise InputError(
                f"{portfolio} needs the gradients of {groups} groups of classes in {size} dimensions, which takes too "
                f"much memory; use {smaller}dipole, which needs none"
            )
        return room

    def group_size(self, samples: int) -> int:
        """How many inputs are sampled together when each takes this many samples (the batch size must be known)."""
        return inputs_per_shard(samples_per_input=samples, batch=self.known_batch(), shared=self.shared_noise)

    def known_batch(self) -> int:
        """The batch size, once it was given or measured."""
        if self.batch is None:
            raise InputError("the batch size is not known yet: call tune() first")
        return self.batch

    @property
    def classifier(self) -> BaseClassifier:
        """The base classifier f, once the shape of an input is known."""
        if self._classifier is None:
            raise InputError("the shape of an input is not known yet: give input_shape, or certify something first")
        return self._classifier

    def _adapt(self, input_shape: tuple[int, ...]) -> BaseClassifier:
        if self._classifier is None:
            self._classifier = as_classifier(
                self._model,
                num_classes=self._num_classes,
                input_shape=input_shape,
                device=self._device,
                noise_at=self._noise_at,
                backend=self._backend,
            )
            check_can_sample(self._classifier, kind=TallyKind.VOTES, noise=self.noise, grid=self._levels_or_none)
            self._shape = input_shape
            self._checks = ModelChecks(self._classifier)
        return self._classifier

    @property
    def checks(self) -> ModelChecks:
        """How many noisy copies were drawn so far, and how many of them the model itself was asked about again, alone:
        `checks.drawn`, `checks.asked` and `checks.ties`.
        """
        if self._checks is None:
            raise InputError("the shape of an input is not known yet: give input_shape, or certify something first")
        return self._checks

    def plan_checks(self, copies: int, *, earlier: CheckCounts) -> ModelChecks:
        """For a run: so many copies, at least, will be drawn until it ends, after those that were drawn earlier."""
        self._checks = ModelChecks(self.classifier, earlier=earlier)
        self._checks.expect(copies)
        self._checks_are_planned = True
        return self._checks

    def _expect(self, copies: int) -> None:
        """Without a plan, each call stands for itself."""
        if not self._checks_are_planned:
            self.checks.expect(copies)

    def tune(self, input_shape: tuple[int, ...], *, samples: int) -> int:
        """The batch size in use; if none was given, it is measured now, for that many samples to come."""
        if self.batch is None and isinstance(self._tallier, MeasuringFactory):
            self.batch = self._tallier.measure_batch(
                self.classifier,
                input_shape,
                samples=samples,
                noise=self.noise,
                shared=self.shared_noise,
                grid=self._levels_or_none,
            )
        if self.batch is None:
            self.batch = measure_batch(
                self.classifier,
                input_shape,
                samples=samples,
                workers=self.workers,
                noise=self.noise,
                shared=self.shared_noise,
                grid=self._levels_or_none,
            )
        return self.batch

    def _shards(self, rows: Sequence[int], samples: int, *, most: int | None = None) -> list[Sequence[int]]:
        size = min(self.group_size(samples), most or len(rows))
        return [rows[at : at + size] for at in range(0, len(rows), size)]

    def _prepare(
        self,
        x: Any,
        labels: Sequence[int | None] | None,
        indices: Sequence[int] | None,
        *,
        samples_per_input: int,
    ) -> tuple[InputArray, list[int], list[int | None]]:
        inputs = self.check_inputs(x)
        self.tune(inputs.shape[1:], samples=samples_per_input * len(inputs))
        if indices is None:
            indices = range(self._next_index, self._next_index + len(inputs))
        if len(indices) != len(inputs) or (labels is not None and len(labels) != len(inputs)):
            raise InputError(
                f"{len(inputs)} inputs came with {len(indices)} indices and "
                f"{'no' if labels is None else len(labels)} labels; one each is needed"
            )
        if len(set(indices)) != len(indices):
            raise InputError("an index was given twice: two inputs would share their noise")
        self._next_index = max(self._next_index, max(indices) + 1)
        given = [None] * len(inputs) if labels is None else labels
        known = [None if label is None else int(label) for label in given]
        return inputs, [int(index) for index in indices], known

    def check_inputs(self, x: Any) -> InputArray:
        """x as (m, *input_shape) float32, or the reason why not."""
        try:
            array = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"inputs given as {type(x).__name__} cannot be read as one array: {error}") from error
        if array.dtype.kind not in "fiu":
            raise InputError(f"inputs of type {array.dtype} cannot be smoothed; numbers were expected")
        eight_bits = array.dtype == np.uint8 and self.input_range is not None and tuple(self.input_range) == (0, 1)
        shape = self._adapt(array.shape[1:]).input_shape if array.ndim > 1 else None
        if array.ndim < 2 or (shape is not None and array.shape[1:] != shape):
            wanted = "(m, features…)" if shape is None else str(("m", *shape)).replace("'", "")
            raise InputError(f"inputs have shape {array.shape}; a batch of shape {wanted} was expected")
        if len(array) == 0:
            raise InputError("there are no inputs to work on: the batch is empty")
        # Cast first: what is finite in float64 may be infinite in the float32 the model sees.
        with np.errstate(over="ignore"):
            inputs = np.ascontiguousarray(array, dtype=np.float32)
        if eight_bits:
            inputs = inputs / np.float32(_LARGEST_BYTE)
        if not np.isfinite(inputs).all():
            raise InputError("inputs contain NaN or infinite values (in float32); remove or repair them first")
        if self.input_range is not None:
            low, high = float(inputs.min()), float(inputs.max())
            least, most = self.input_range
            if low < least or high > most:
                raise InputError(
                    f"inputs lie in [{low:.4g}, {high:.4g}], outside [{least:g}, {most:g}]: "
                    "sigma is in pixel units; put Standardise inside the model, or say input_range=None "
                    "(--input-range any) if this is meant"
                )
        if self._known_grid is None:
            self._known_grid = self._detected_grid(inputs)
        self._check_on_grid(inputs)
        return inputs

    def _detected_grid(self, inputs: InputArray) -> DetectedGrid:
        """The grid of the first inputs, where noise can go in its steps."""
        if isinstance(self.classifier, FirstLayerNoise):
            return DetectedGrid(None, "it is drawn in the first layer")
        if not (self._has_constant_sigma or self._stays_near_zero):
            return DetectedGrid(None, "sigma varies, and inputs may lie outside [-1, 1]")
        ranged = self.input_range is not None and self.input_range[0] >= 0 and self.input_range[1] <= 1
        return detect_grid(
            [inputs], noise=self.noise, sigmas=lambda: likely_sigmas(self._sigma, inputs), in_unit_range=ranged
        )

    def _check_on_grid(self, inputs: InputArray) -> None:
        """Refuse what lies beside the grid."""
        if self.grid is None:
            return
        try:
            to_grid(inputs, self.grid)
        except InputError as error:
            if self._asked_grid != DETECT:
                raise
            raise InputError(
                f"the first inputs lay on a grid of {self.grid} levels, so the noise of this classifier goes in its "
                f"steps, and these inputs lie beside it. Use another SmoothedClassifier for them, or grid={FLOAT!r} "
                f"for all, with noise in floating point. ({error})"
            ) from error


def likely_sigmas(sigma: SigmaRule | OptimisedSigma, inputs: InputArray) -> Sequence[float]:
    """The noise levels that these inputs get; of a search, those between which it ends."""
    if isinstance(sigma, OptimisedSigma):
        return sigma.bounds
    if isinstance(sigma, ConstantRule):
        return (sigma.sigma,)
    return [float(level) for level in np.ravel(sigma.sigmas(inputs))]
