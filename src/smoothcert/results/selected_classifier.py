"""SelectedClassifier: a smoothed selector chooses the noise level of every input, from a short list."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from smoothcert.data.unlabelled import UnlabelledDataset
from smoothcert.errors import InputError
from smoothcert.models.half_precision import read_dtype
from smoothcert.noise import DETECT, FLOAT
from smoothcert.pipeline import Pipeline
from smoothcert.progress_display import ProgressOption
from smoothcert.records.selection import SELECTED, SelectorBounds, check_model_count, choose_upper_alpha
from smoothcert.results.calls import answer_call
from smoothcert.results.contents import MemoryContent
from smoothcert.results.opened_runs import open_run
from smoothcert.results.results import Results
from smoothcert.runs.building import portfolio_of
from smoothcert.runs.execution import check_spec
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.kept_form import InputDigest
from smoothcert.runs.live_specs import spec_of_classifier
from smoothcert.runs.python_runs import LiveParts, execute_live, keep_dataset
from smoothcert.runs.run_files import INPUTS, is_selected
from smoothcert.runs.selected_combining import choose_inputs, hold_parts
from smoothcert.runs.selected_execution import Models, check_models, load_with_outputs, make_selected_run
from smoothcert.runs.selected_parts import SelectedParts
from smoothcert.runs.selected_run import SelectedRun
from smoothcert.runs.selected_spec import SELECTOR, SelectedSpec, choose_bounds, derive_seed, name_level
from smoothcert.settings_text import as_counts, real_number, whole_number
from smoothcert.sigma.selected import settle_facts
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import FixedN, QuestionSpec, RunSpec, Task, make_question

if TYPE_CHECKING:
    from smoothcert.data import Dataset
    from smoothcert.data.arrays import ArrayDataset
    from smoothcert.files import Content
    from smoothcert.runs.building import RunParts
    from smoothcert.sampling.inputs import InputSource


class SelectedClassifier:
    """The classifier G(x) = the class that f_k(x + σ_k ε) takes most often, where level k is chosen by a selector.

    The selector is a classifier h with one output for each noise level σ_1 < … < σ_K. It is smoothed with a level of
    its own: k is the level that h(x + σ_s ε) takes most often. σ is constant where this choice is certified, so radii
    hold without a memory and without an envelope (docs/explanation/certificates/selected-sigma.md).

    selector: anything that `SmoothedClassifier` takes as a model, or a file by `smoothcert selector train`.
    models: the base classifiers f_1 … f_K in the order of the levels, or one for all levels.
    levels, selector_sigma: σ_1 … σ_K in ascending order, and σ_s; by default what the file of the selector states.
    seed: of all noise; selector and levels derive theirs from it, so that none share a stream.
    num_classes, class_names: of the base classifiers. All other options are those of `SmoothedClassifier`.
    """

    def __init__(
        self,
        selector: Any,
        models: Any,
        *,
        levels: Sequence[float] | None = None,
        selector_sigma: float | None = None,
        grid: int | str | None = DETECT,
        num_classes: int | None = None,
        class_names: Sequence[str] = (),
        input_shape: tuple[int, ...] | None = None,
        seed: int | None = None,
        batch: int | None = None,
        workers: int | None = None,
        device: str = "auto",
        input_range: tuple[float, float] | None = (0.0, 1.0),
        backend: str | None = None,
        dtype: object = None,
        shared_noise: bool = False,
    ) -> None:
        facts = settle_facts(selector, levels, selector_sigma)
        self.levels, self.selector_sigma = facts.levels, facts.sigma
        (given_seed,) = as_counts(seed=seed)
        self.seed = secrets.randbits(128) if given_seed is None else given_seed
        self._seed_is_given = given_seed is not None
        self._selector_model = selector
        self._models = list(models) if isinstance(models, list | tuple) else [models]
        check_model_count(len(self._models), levels=len(self.levels))
        self._shared: dict[str, Any] = {
            "batch": batch, "workers": workers, "device": device, "input_range": input_range, "backend": backend,
            "dtype": read_dtype(dtype), "shared_noise": shared_noise,
        }  # fmt: skip
        self._classes: dict[str, Any] = {"num_classes": num_classes, "class_names": class_names}
        self._first = self._smooth_level(0, grid=grid, input_shape=input_shape)
        self._parts: tuple[SmoothedClassifier, list[SmoothedClassifier]] | None = None

    def __repr__(self) -> str:
        levels = ", ".join(f"{level:g}" for level in self.levels)
        return f"SelectedClassifier(levels=({levels}), selector_sigma={self.selector_sigma:g}, seed={self.seed})"

    def certify(
        self,
        x: Any,
        *,
        n0: float = 100,
        n: float = 100_000,
        alpha: float = 0.001,
        selector_n: float | None = None,
        selector_alpha: float | None = None,
        sampled_levels: int | None = None,
        selector_bounds: SelectorBounds | None = None,
        certificate: str | Sequence[str] = SELECTED,
        decide: float | Sequence[float] | None = None,
        precision: float | None = None,
        labels: Sequence[int | str | None] | None = None,
        indices: Sequence[int] | None = None,
        out: str | Path | None = None,
        progress: ProgressOption = None,
    ) -> Results:
        """CERTIFY: for every input a class and a radius within which it cannot change, or an abstention.

        The promise is wrong with probability at most alpha, per input: selector_alpha (by default half of it) is for
        the selector, and the rest for the levels that are sampled. sampled_levels: how many, those with most of the
        selector's n0 votes; by default all. selector_n: samples of the selector, by default n.

        certificate: "selected": every level that may be chosen within the radius answers the class.
        "selected-published": one level is certainly chosen, and answers the class (Sun, Mao and Vechev 2026). Or both.
        selector_bounds: "two-class" bounds the leading level against all others together; "multi-class" bounds each
        level by itself, and needs a fixed n.

        x, n0, n, decide, precision, labels, indices, out, progress: as in `SmoothedClassifier.certify`, of selector and
        levels alike.
        """
        question = make_question(n=n, n0=n0, decide=decide, precision=precision)
        forms = (certificate,) if isinstance(certificate, str) else tuple(map(str, certificate))
        bounds = selector_bounds or choose_bounds(question, levels=len(self.levels))
        return self._answer(
            x, labels, indices, out, progress, task="certify", question=question, alpha=alpha, selector_n=selector_n,
            selector_alpha=selector_alpha, sampled=sampled_levels, bounds=bounds, forms=forms,
        )  # fmt: skip

    def predict(
        self,
        x: Any,
        *,
        n: float = 100_000,
        alpha: float = 0.001,
        selector_n: float | None = None,
        selector_alpha: float | None = None,
        labels: Sequence[int | str | None] | None = None,
        indices: Sequence[int] | None = None,
        out: str | Path | None = None,
        progress: ProgressOption = None,
    ) -> Results:
        """PREDICT: the class of every input, wrong with probability at most alpha, or an abstention.

        Sampled are the levels that may be the selector's choice; the answer is what all of them answer.
        """
        question = FixedN(n=whole_number(n, name="n"))
        return self._answer(
            x, labels, indices, out, progress, task="predict", question=question, alpha=alpha, selector_n=selector_n,
            selector_alpha=selector_alpha, sampled=None, bounds="two-class", forms=(),
        )  # fmt: skip

    def _answer(
        self,
        x: Any,
        labels: Any,
        indices: Any,
        out: str | Path | None,
        progress: ProgressOption,
        **asked: Any,
    ) -> Results:
        if out is not None and indices is not None:
            raise InputError("a run numbers its inputs from 0, so that it can be resumed: leave indices or out away")
        source = self._first.read_source(x, labels, indices, keep_all=True)
        parts = self._adapt()
        place = None if out is None else Path(out).expanduser()
        spec = self._make_spec(place, **asked)
        check_models(spec, _list_models(parts[0], parts[1][: len(spec.models)]))
        if place is not None:
            dataset = keep_dataset(source, self._first, place / SELECTOR)
            objects = LiveObjects(*parts, dataset)

            def make_part(part: RunSpec, at: Path, /, *, parts: RunParts) -> None:
                execute_live(part, at, parts=parts, progress=progress)

            make_selected_run(spec, place, objects=objects, make_part=make_part)
            return open_run(place)
        held = self._sample(spec, source, progress)
        name = "σ by selector"
        return Results(MemoryContent(held.points, held.manifest, parts=held.parts), name=name)

    # Selector and levels.

    def _smooth_level(self, level: int, *, grid: int | str | None, input_shape: Any) -> SmoothedClassifier:
        return SmoothedClassifier(
            self._models[level if len(self._models) > 1 else 0],
            sigma=self.levels[level],
            grid=grid,
            input_shape=input_shape,
            seed=derive_seed(self.seed, name_level(self.levels[level])),
            **self._classes,
            **self._shared,
        )

    def _adapt(self) -> tuple[SmoothedClassifier, list[SmoothedClassifier]]:
        """Selector and levels, once inputs have shown their shape and their grid."""
        if self._parts is None:
            shape = self._first.known_shape
            grid = FLOAT if self._first.grid is None else self._first.grid

            def smooth_selector(outputs: int | None) -> SmoothedClassifier:
                return SmoothedClassifier(
                    self._selector_model,
                    sigma=self.selector_sigma,
                    grid=grid,
                    input_shape=shape,
                    num_classes=outputs,
                    seed=derive_seed(self.seed, SELECTOR),
                    **self._shared,
                )

            stated = isinstance(self._selector_model, str | Path)
            selector = load_with_outputs(smooth_selector, outputs=None if stated else len(self.levels))
            others = [self._smooth_level(k, grid=grid, input_shape=shape) for k in range(1, len(self.levels))]
            self._parts = selector, [self._first, *others]
        return self._parts

    # One call.

    def _make_spec(
        self,
        out: Path | None,
        *,
        task: Task,
        question: QuestionSpec,
        alpha: float,
        selector_n: float | None,
        selector_alpha: float | None,
        sampled: float | None,
        bounds: SelectorBounds,
        forms: tuple[str, ...],
    ) -> SelectedSpec:
        """What the command line would request."""
        selector, levels = self._adapt()
        alpha = real_number(alpha, name="alpha")
        share = alpha / 2 if selector_alpha is None else real_number(selector_alpha, name="selector_alpha")
        n, most = as_counts(selector_n=selector_n, sampled_levels=sampled)
        of_selector, *of_levels = [
            spec_of_classifier(one, question, alpha=alpha, portfolio=None) for one in (selector, *levels)
        ]
        place = of_selector.data.place if out is None else str((out / SELECTOR / INPUTS).resolve())
        resumed = out is not None and not self._seed_is_given and is_selected(out)
        spec = SelectedSpec(
            task=task,
            selector=of_selector.model,
            selector_sigma=self.selector_sigma,
            levels=self.levels,
            models=tuple(one.model for one in of_levels[: len(self._models)]),
            data=msgspec.structs.replace(of_selector.data, place=place),
            noise=of_selector.noise,
            question=question,
            selector_question=question if n is None else msgspec.structs.replace(question, n=n),
            alpha=alpha,
            selector_alpha=share,
            upper_alpha=choose_upper_alpha(alpha, share, bounds=bounds, forms=forms),
            sampled=len(self.levels) if most is None else most,
            selector_bounds=bounds,
            certificates=forms,
            seed=SelectedRun.open(out).spec.seed if out is not None and resumed else self.seed,
            batch=of_selector.batch,
            engine=of_selector.engine,
        )
        spec.check()
        for part in spec.list_parts():
            check_spec(part)
        return spec

    def _sample(self, spec: SelectedSpec, source: InputSource, progress: ProgressOption) -> HeldRun:
        """The parts, sampled in memory, as one run. Each says which inputs of the whole it is about."""
        selector, levels = self._adapt()
        digest = InputDigest(source, self._first).finish()
        size = max(source.indices) + 1
        rows = {index: row for row, index in enumerate(source.indices)}

        def sample(smoothed: SmoothedClassifier, part: RunSpec, chosen: InputSource, inputs: int) -> HeldRun:
            manifest = (results := _ask(smoothed, part, chosen, progress)).manifest
            assert manifest is not None
            # The data are those of the whole call, of which the part has some inputs.
            data = msgspec.structs.replace(manifest.spec.data, indices=part.data.indices)
            about = msgspec.structs.replace(
                manifest,
                spec=msgspec.structs.replace(manifest.spec, data=data),
                data=msgspec.structs.replace(manifest.data, size=size, inputs=inputs),
                digests=msgspec.structs.replace(manifest.digests, data=digest),
            )
            return HeldRun(results.points, about)

        unlabelled = dataclasses.replace(source, labels=[None] * len(source))
        of_selector = sample(selector, spec.spec_of_selector(), unlabelled, size)
        of_levels = {}
        for level, indices in enumerate(choose_inputs(spec, of_selector)):
            if indices:
                part = spec.spec_of_level(level, tuple(sorted(indices)))
                chosen = _take_rows(source, [rows[index] for index in indices])
                of_levels[level] = sample(levels[level], part, chosen, len(indices))
        labels = dict(zip(source.indices, source.labels, strict=True))
        return hold_parts(SelectedParts(spec, of_selector, of_levels, labels), selected=True)


def _take_rows(source: InputSource, rows: Sequence[int]) -> InputSource:
    return dataclasses.replace(
        source,
        indices=[source.indices[row] for row in rows],
        labels=[source.labels[row] for row in rows],
        load=lambda positions: source.load([rows[position] for position in positions]),
    )


def _ask(smoothed: SmoothedClassifier, part: RunSpec, source: InputSource, progress: ProgressOption) -> Results:
    """What an ordinary call answers about these inputs."""
    question, alpha, n = part.question, part.alpha, part.question.n
    smoothed.tune(smoothed.known_shape or (), samples=(question.n0 + n) * len(source))
    if part.task == "predict":
        ask = partial(Pipeline.predict, n=n, alpha=alpha, smoothing=smoothed.prediction(n=n, alpha=alpha))
        copies = n * len(source)
        return answer_call(smoothed, source, ask, copies, progress, question=question, portfolio=None, alpha=alpha)
    portfolio = portfolio_of(part)
    inquiry = smoothed.inquiry(question, portfolio, alpha=alpha)
    return answer_call(
        smoothed,
        source,
        lambda loop, inputs: loop.certify(inquiry, inputs),
        (inquiry.n0 + inquiry.least_samples) * len(source),
        progress,
        question=question,
        portfolio=portfolio,
        alpha=alpha,
    )


def _list_models(selector: SmoothedClassifier, levels: Sequence[SmoothedClassifier]) -> Models:
    return selector.classifier, [level.classifier for level in levels]


@dataclass(frozen=True, slots=True)
class LiveObjects:
    """Selector, levels and dataset of a selected run that is made in Python."""

    selector: SmoothedClassifier
    levels: Sequence[SmoothedClassifier]
    dataset: ArrayDataset

    def load_data(self, spec: SelectedSpec) -> Dataset:
        return self.dataset

    def load_models(self, spec: SelectedSpec, dataset: Dataset) -> Models:
        return _list_models(self.selector, self.levels[: len(spec.models)])

    def of_selector(self, dataset: UnlabelledDataset) -> RunParts:
        return _LiveSelector(self.selector, self.dataset, keeper=self.levels[0])

    def of_level(self, level: int) -> RunParts:
        return LiveParts(self.levels[level], self.dataset)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LiveSelector(LiveParts):
    """Those of the selector. keeper: writes the inputs with the labels and names that the levels have."""

    keeper: SmoothedClassifier

    def load_data(self, spec: RunSpec) -> Dataset:
        return UnlabelledDataset(self.dataset)

    def list_files(self, spec: RunSpec) -> Mapping[str, Content]:
        return LiveParts(self.keeper, self.dataset).list_files(spec)
