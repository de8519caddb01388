"""SmoothedClassifier: predict and certify, the whole pipeline on one page."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from smoothcert.certificates import Certificate, Portfolio, get_portfolio
from smoothcert.errors import InputError
from smoothcert.memory import MemoryKey, RegionMemory
from smoothcert.memory.claims import memory_key
from smoothcert.memory.link import MemoryLink
from smoothcert.models import NOISE_AT, as_classifier, name_settled, settle_model
from smoothcert.models.base import BaseClassifier
from smoothcert.models.half_precision import dtype_of, read_dtype
from smoothcert.models.tabular_names import get_feature_names, settle_class_names
from smoothcert.noise import DETECT, as_noise, new_seed
from smoothcert.noise.splitting import required_levels
from smoothcert.pipeline import Pipeline, open_link
from smoothcert.progress_display import ProgressOption
from smoothcert.questions import Inquiry, check_predict_is_possible, check_question, make_inquiry
from smoothcert.questions.every_evaluation import every_evaluation, read_question
from smoothcert.questions.smoothing_setup import check_one_region, describe_smoothing
from smoothcert.records import CheckCounts, InputArray, Noise, Smoothing, TallyKind
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.sampling import ModelChecks, Sampler
from smoothcert.sampling.evaluations import most_evaluations, read_level
from smoothcert.sampling.factories import BatchChoice, TallierFactory
from smoothcert.sampling.given_arrays import read_array
from smoothcert.sampling.given_inputs import check_envelope, read_source
from smoothcert.sampling.grid_choice import begin_grid, check_can_be_sampled, choose_grid, is_constant
from smoothcert.sampling.inputs import InputSource, check_shape, to_float32
from smoothcert.sampling.pandas_inputs import is_frame, read_frame
from smoothcert.sampling.sampler import Progress, check_can_sample
from smoothcert.settings_text import as_counts
from smoothcert.sigma import ConstantRule, OptimisedSigma, SigmaRule, as_rule
from smoothcert.sigma.feature_sigmas import split_sigma
from smoothcert.sigma.levels import LevelCheck
from smoothcert.smoothed_calls import Given, answer_in_memory, draw_around, make_or_resume
from smoothcert.spec import QuestionSpec
from smoothcert.statistics import alpha_after_noise, noise_price

if TYPE_CHECKING:
    from smoothcert.results.results import Results


class SmoothedClassifier:
    """The classifier g(x) = the class f(x + ε) takes most often, ε ~ N(0, σ²I) or uniform, with certificates.

    model: a torch module, the path of a checkpoint or .onnx file, a scikit-learn estimator, any callable on a batch, or
        a `BaseClassifier`. It is adapted when the first inputs show their shape, unless `input_shape` is given.
    sigma: noise level in the units of the input; the model standardises afterwards, as its first layer. A number, or a
        rule that gives every input its own level (`smoothcert.sigma`). A plain function of one input, or
        `OptimisedSigma`, can predict, but has no envelope: it needs a memory to certify. For tables, a level for each
        feature, in order or by name: this is sigma 1 with that `sigma_scale`.
    sigma_scale: for tables, a number s_j for each feature, whose noise has the level sigma·s_j. Radii are then in the
        scaled norm, that of x/s, and noise is added in float32.
    noise: gaussian, or uniform on [-sigma, sigma] in every coordinate, whose certificates are in the ℓ1 norm; or
        splitting, for inputs on a grid, whose ℓ1 certificates are certain: nothing is sampled.
    evaluations: for splitting, instead of sigma: how many evaluations are made, which are all that there are. With a
        rule for sigma: the most that an input may take.
    grid: how many levels inputs have, k/(grid-1) for k = 0 … grid-1: 256 for 8-bit images. The noise is then added in
        exact steps, and certificates hold in floating point too (docs/explanation/floating-point.md). "detect", the
        default, takes 256 levels if the first inputs are uint8 or lie on them, else 65536 if they lie on those; later
        inputs must lie on the grid. Without one ("float", or a memory without a number of levels) noise is added in
        float32: `.grid` is None, and `point.guarantee` says "not sound in floating point".
    memory: a `RegionMemory`, the path of an SQLite file or the URL of a PostgreSQL database. `certify` claims a region
        for every input, and may be granted a smaller one, or another class; `predict` answers with the class of the
        region an input lies in. Use `close` or a `with` block.
    seed: of all noise; None takes one from the operating system (see `.seed`). Of splitting: of its offsets, which are
        a part of the classifier; None takes 0.
    batch: samples classified at once; None measures the best size at the first call, and again when a call asks for ten
        times more samples (see `.batch`).
    input_range: values every input must lie in; None allows any finite value. uint8 inputs are divided by 255 if it is
        (0, 1); other integers are taken as they are.
    backend: of a torch model: torch (default), onnxruntime, or fastest, by a measurement. Each rounds differently.
    dtype: "bfloat16" or "float16" computes a float32 torch module in that precision, by torch.autocast. It is another
        base classifier, and the certificates say so. None keeps the precision of the model.
    noise_at: "first-layer" draws Gaussian noise in the output of a linear first layer: much faster if it is narrow.
    class_names: one for each class, if the model does not know them; labels may be given by name.
    shared_noise: the same noise for all inputs. Each certificate holds, but there are no bounds for a whole test set.
    tallier: who draws and counts: threads of this process, or a cluster (`smoothcert.cluster.ray_engine.RayEngine`).
    """

    def __init__(
        self,
        model: Any,
        *,
        sigma: float
        | Sequence[float]
        | Mapping[str, float]
        | SigmaRule
        | OptimisedSigma
        | Callable[[Any], float]
        | None = None,
        evaluations: int | None = None,
        sigma_scale: Sequence[float] | Mapping[str, float] | None = None,
        noise: Noise | str = Noise.GAUSSIAN,
        grid: int | str | None = DETECT,
        memory: RegionMemory | str | Path | None = None,
        num_classes: int | None = None,
        class_names: Sequence[str] = (),
        input_shape: tuple[int, ...] | None = None,
        seed: int | None = None,
        batch: int | None = None,
        workers: int | None = None,
        device: str = "auto",
        input_range: tuple[float, float] | None = (0.0, 1.0),
        noise_at: str = NOISE_AT[0],
        backend: str | None = None,
        dtype: object = None,
        shared_noise: bool = False,
        tallier: TallierFactory = Sampler,
    ) -> None:
        seed, batch, workers, num_classes, evaluations = as_counts(
            seed=seed, batch=batch, workers=workers, num_classes=num_classes, evaluations=evaluations
        )
        self.noise = as_noise(noise)
        self._evaluations = evaluations
        sigma = read_level(sigma, evaluations, noise=self.noise, grid=grid)
        if shared_noise and not self.noise.sampled:
            raise InputError("splitting has the same offsets for all inputs already: leave shared_noise out")
        self.shared_noise = shared_noise
        self.seed = new_seed(self.noise) if seed is None else seed
        self._batch = BatchChoice(batch, tallier, workers=workers, noise=self.noise, shared=shared_noise)
        self.workers, self.tallier = workers, tallier
        self.input_range = input_range
        level, self._given_scale = split_sigma(sigma, sigma_scale)
        self.scale: FeatureScale | None = None
        self._grid = begin_grid(
            grid, noise=self.noise, with_memory=memory is not None, scaled=self._given_scale is not None
        )
        self._sigma = level if isinstance(level, OptimisedSigma) else as_rule(level)
        if isinstance(sigma, OptimisedSigma) and sigma.noise is not self.noise:
            raise InputError(f"sigma is optimised for {sigma.noise} noise, but the noise here is {self.noise}")
        self._rule: SigmaRule | None = None
        self._levels = LevelCheck(self.noise)
        self._memory = None if memory is None else MemoryLink(memory)
        options = dict[str, Any](device=device, noise_at=noise_at, backend=backend, dtype=read_dtype(dtype))
        self._model = settle_model(model, **options)
        self._adapting = {"num_classes": num_classes, **options}
        self._class_names = tuple(class_names)
        self.given = Given(model, memory, seed, batch, self._adapting)
        self._classifier: BaseClassifier | None = None
        self._checks: ModelChecks | None = None
        self._shape: tuple[int, ...] = ()
        self._next_index = 0
        if input_shape is not None:
            self._adapt(input_shape)

    def __repr__(self) -> str:
        model = self._classifier.description if self._classifier is not None else name_settled(self._model)
        sigma = self._sigma if isinstance(self._sigma, OptimisedSigma) else self._sigma.description
        memory = "" if self._memory is None else f", memory={self._memory}"
        noise = f"{self.noise} noise {self._grid}"
        return f"SmoothedClassifier({model}, {noise}, sigma={sigma}, seed={self.seed}, batch={self.batch}{memory})"

    def close(self) -> None:
        """Close the memory, if it was opened here."""
        if self._memory is not None:
            self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What is known once the shape of an input is known.

    def _adapt(self, input_shape: tuple[int, ...]) -> BaseClassifier:
        if self._classifier is None:
            self._classifier = as_classifier(self._model, input_shape=input_shape, **self._adapting)
            if self._given_scale is not None:
                self._classifier, self.scale = self._given_scale.apply(self._classifier, input_shape)
            check_can_sample(self._classifier, kind=TallyKind.VOTES, noise=self.noise, grid=self._grid.levels_so_far)
            self._shape = input_shape
            self._class_names = settle_class_names(self._classifier, self._class_names)
            self._checks = ModelChecks(self._classifier)
        return self._classifier

    @property
    def classifier(self) -> BaseClassifier:
        """The base classifier f."""
        if self._classifier is None:
            raise InputError("the shape of an input is not known yet: give input_shape, or certify something first")
        return self._classifier

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes; empty if they are only numbered, or not known yet."""
        return self._class_names

    @property
    def known_shape(self) -> tuple[int, ...] | None:
        """The shape of one input; None until inputs show it."""
        return self._shape or None

    @property
    def checks(self) -> ModelChecks:
        """Copies drawn so far, and how many of them the user's model classified again: `drawn`, `asked`, `ties`."""
        if self._checks is None:
            raise InputError("the shape of an input is not known yet: give input_shape, or certify something first")
        return self._checks

    @property
    def grid(self) -> int | None:
        """Levels of the grid in whose steps noise is added; None for float32. Known once inputs were seen."""
        return self._grid.levels

    @property
    def batch(self) -> int | None:
        """Samples classified at once: what was given, else the size measured last; None before the first call."""
        return self._batch.size

    @batch.setter
    def batch(self, size: int | None) -> None:
        self._batch = self._batch.replace(*as_counts(batch=size))

    @property
    def rule(self) -> SigmaRule:
        """The rule for the noise level; an optimised one is made for the model."""
        if not isinstance(self._sigma, OptimisedSigma):
            return self._sigma
        if self._rule is None:
            self._rule = self._sigma.for_model(self.classifier)
        return self._rule

    @property
    def memory_key(self) -> MemoryKey:
        """The key under which a memory keeps the regions of this classifier."""
        return memory_key(
            model_digest=self.classifier.digest,
            sigma_digest=self.rule.digest,
            noise=self.noise,
            grid=self.grid,
            input_shape=self._shape,
            input_range=self.input_range,
            scaled=self._given_scale is not None,
            offsets=None if self.noise.sampled else self.seed,
        )

    @property
    def memory(self) -> RegionMemory | None:
        """The open memory; None without one, or before `open_memory`."""
        return None if self._memory is None else self._memory.opened

    def open_memory(self) -> None:
        """Open the memory, if one was given. Predicting and certifying do it before they sample."""
        if self._memory is not None:
            open_link(self._memory, self.memory_key, self.classifier, self._shape)

    def tune(self, input_shape: tuple[int, ...], *, samples: int) -> int:
        """The batch size for that many samples: measured, unless it is known (see `.batch`)."""
        return self._batch.tune(self.classifier, input_shape, samples=samples, grid=self._grid.levels_so_far)

    def known_batch(self) -> int:
        """The batch size, once it was given or measured."""
        if self.batch is None:
            raise InputError("the batch size is not known yet: call tune() first")
        return self.batch

    def check_inputs(self, x: Any) -> InputArray:
        """x as (m, *input_shape) float32, on the grid of this classifier; an InputError if it is not."""
        array = read_frame(x, get_feature_names(self._model)) if is_frame(x) else read_array(x, self.known_shape)
        check_shape(array, self._adapt(array.shape[1:]).input_shape if array.ndim > 1 else None)
        inputs = to_float32(array, self.input_range)
        if self.scale is not None:
            self.scale.divide(inputs)  # refuses what the pipeline could not divide
        choose_grid(self._grid, inputs, self._sigma, self.classifier, noise=self.noise, input_range=self.input_range)
        return self._grid.place(inputs)

    def sigmas(self, inputs: InputArray, indices: Sequence[int]) -> dict[int, float]:
        """The noise level of each row; levels that the noise cannot carry are refused."""
        return self._levels.levels(self.rule, inputs, indices, grid=self._grid.levels_so_far)

    # Questions.

    @property
    def usual_certificate(self) -> str:
        """The certificate for this noise and this sigma if none is named."""
        return self.noise.usual_certificate(constant_sigma=self._memory is not None or is_constant(self._sigma))

    def smoothing(self, portfolio: Portfolio) -> Smoothing:
        """What the theorems must know; an InputError if they cannot hold for this classifier."""
        found = describe_smoothing(
            self.rule.envelope,
            dimension=int(np.prod(self._shape)),
            num_classes=self.classifier.num_classes,
            noise=self.noise,
            remembered=self._memory is not None,
            grid=self.grid,
            scale=self.scale,
            dtype=dtype_of(self.classifier),
        )
        portfolio.check_suits(found)
        check_can_be_sampled(self.classifier, portfolio.tally, found, input_range=self.input_range)
        if found.remembered:
            check_one_region(portfolio, found)
        return found

    def inquiry(self, question: QuestionSpec, portfolio: Portfolio, *, alpha: float) -> Inquiry:
        """The question about this classifier; an InputError if no input could get an answer."""
        level = self.rule.sigma if isinstance(self.rule, ConstantRule) else None
        smoothing = self.smoothing(portfolio)
        inquiry = make_inquiry(question, portfolio, alpha=alpha, smoothing=smoothing, sigma=level)
        inquiry.most_inputs()  # refuses tallies that are too large for memory
        return inquiry

    def certify(
        self,
        x: Any,
        *,
        n0: float = 100,
        n: float = 100_000,
        alpha: float = 0.001,
        certificate: str | Certificate | Sequence[str | Certificate] | None = None,
        best_of: bool = False,
        decide: float | Sequence[float] | None = None,
        precision: float | None = None,
        labels: Sequence[int | str | None] | None = None,
        indices: Sequence[int] | None = None,
        out: str | Path | None = None,
        progress: ProgressOption = None,
    ) -> Results:
        """CERTIFY: for every input a class and a radius within which it cannot change, or an abstention.

        x, labels, indices: as in `predict`. n0 samples select the class, n fresh ones prove it; the promise is wrong
        with probability at most alpha, per input.

        certificate: the theorem, or several over the same samples; the first is the point's own, the others are in
        `point.further`, each at the whole alpha. The default is gaussian, or envelope where sigma varies. best_of:
        share alpha among them instead, and take the largest radius.

        decide: radii; sample each input only until it is known which of them its radius reaches, and give the largest.
        precision: sample until less than this could be added to the radius. In both cases n is the most that is drawn,
        and the promise is wrong with probability at most alpha, by tests that are valid at any time.

        out: the directory of a run, which the same call resumes (docs/how-to/python-runs.md). progress: True, False, a
        function of the number of new samples, or None, which shows a bar on terminals and in notebooks.
        """
        portfolio = get_portfolio(self.usual_certificate if certificate is None else certificate, best_of=best_of)
        question, alpha = self._read_question(n=n, n0=n0, alpha=alpha, decide=decide, precision=precision)
        check_question(question, portfolio, alpha=alpha)
        asked: dict[str, Any] = {"question": question, "portfolio": portfolio, "alpha": alpha}
        if out is not None:
            return make_or_resume(self, x, labels=labels, indices=indices, out=out, progress=progress, **asked)
        source = self.read_source(x, labels, indices, samples=question.n0 + question.n)
        inquiry = self.inquiry(question, portfolio, alpha=alpha)
        copies = (inquiry.n0 + inquiry.least_samples) * len(source)
        return answer_in_memory(
            self, source, lambda loop, inputs: loop.certify(inquiry, inputs), copies, progress, **asked
        )

    def predict(
        self,
        x: Any,
        *,
        n: float = 100_000,
        alpha: float = 0.001,
        labels: Sequence[int | str | None] | None = None,
        indices: Sequence[int] | None = None,
        out: str | Path | None = None,
        progress: ProgressOption = None,
    ) -> Results:
        """PREDICT: the class of every input, or an abstention; a voted answer is wrong with probability at most alpha.

        x: (m, *input_shape), PIL images, a pandas frame, or a torch Dataset or DataLoader with its labels
        (docs/how-to/your-own-data.md). indices number the noise streams; by default each call draws fresh noise. out,
        progress: as in `certify`.
        """
        question, alpha = self._read_question(n=n, n0=0, alpha=alpha)
        n = question.n
        if self.noise.sampled:
            check_predict_is_possible(n=n, alpha=alpha)
        asked: dict[str, Any] = {"question": question, "portfolio": None, "alpha": alpha}
        if out is not None:
            return make_or_resume(self, x, labels=labels, indices=indices, out=out, progress=progress, **asked)
        source = self.read_source(x, labels, indices, samples=n)
        smoothing = self.prediction(n=n, alpha=alpha)
        copies = n if self._memory is not None else n * len(source)  # a memory may answer for all inputs but one
        predict = partial(Pipeline.predict, n=n, alpha=alpha, smoothing=smoothing)
        return answer_in_memory(self, source, predict, copies, progress, **asked)

    def _read_question(self, **settings: Any) -> tuple[QuestionSpec, float]:
        if self.noise.sampled:
            return read_question(**settings)
        levels = required_levels(self._grid.levels)
        return every_evaluation(most_evaluations(self._sigma, self._evaluations, levels=levels), **settings)

    def prediction(self, *, n: int, alpha: float) -> Smoothing:
        """What a prediction must know; an InputError if the noise alone would use up alpha."""
        size = int(np.prod(self._shape))
        dtype = dtype_of(self.classifier)
        smoothing = Smoothing(dimension=size, noise=self.noise, grid=self.grid, scale=self.scale, dtype=dtype)
        if isinstance(self.rule, ConstantRule):
            alpha_after_noise(alpha, noise_price(smoothing, draws=n, sigma=self.rule.sigma))
        return smoothing

    def derive(self, *, seed: int | None, any_inputs: bool = False, in_noise_units: bool = False) -> Self:
        """The same classifier with this seed, or a new one, for inputs of any range, or already scaled, if wanted."""
        twin = copy.copy(self)
        twin.seed = new_seed(self.noise) if seed is None else seed
        twin.input_range = None if any_inputs else self.input_range
        twin.scale = None if in_noise_units else self.scale
        return twin

    def pipeline(self, progress: Progress | None = None) -> Pipeline:
        """The loop over inputs, for this classifier. Opens the memory."""
        self.open_memory()
        draw = partial(draw_around, self, progress)
        return Pipeline(draw, self.memory, self.known_batch(), self.shared_noise, progress, self.scale)

    def plan_checks(self, copies: int, *, earlier: CheckCounts) -> ModelChecks:
        """For a run: at least so many copies will be drawn until it ends, after those that were drawn earlier."""
        self._checks = ModelChecks(self.classifier, earlier=earlier)
        self._checks.expect_run(copies)
        return self._checks

    def read_source(
        self, x: Any, labels: Any, indices: Any = None, *, samples: int = 0, keep_all: bool = False
    ) -> InputSource:
        """The inputs of a call. samples: of each input; the batch size is measured for them. keep_all: in memory."""
        first = self._next_index
        source = read_source(x, self, labels=labels, indices=indices, first_index=first, keep_all=keep_all)
        check_envelope(self, source)
        if samples:
            self.tune(self._shape, samples=samples * len(source))
        self._next_index = max(self._next_index, max(source.indices) + 1)
        return source
