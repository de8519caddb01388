"""What was requested of a run whose noise level is chosen by a smoothed selector: `SelectedSpec`.

Such a run is a directory of ordinary runs, its parts: one of the selector, and one of each level. Each part has a
`RunSpec` of its own, with noise of its own, so that it is sampled, resumed, verified and replayed like any run.
"""

from __future__ import annotations

import hashlib
import math
from typing import Annotated, Any, get_args

import msgspec

from smoothcert.errors import InputError
from smoothcert.records import Noise, Smoothing
from smoothcert.records.selection import (
    FORMS,
    SELECTED,
    Selection,
    SelectorBounds,
    check_levels,
    check_model_count,
    check_sampled,
)
from smoothcert.spec import (
    ConstantLevel,
    Count,
    DataSpec,
    EngineSpec,
    FixedN,
    Level,
    LocalEngineSpec,
    ModelSpec,
    NoiseSpec,
    Probability,
    QuestionSpec,
    RunSpec,
    Seed,
    SpecPart,
    Task,
)
from smoothcert.statistics.binomial import check_alpha

Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]

SELECTOR = "selector"
"""The name of the selector's part; that of a level is `SelectedSpec.name_level`."""


class SelectedSpec(SpecPart, frozen=True, kw_only=True):
    """Everything that was requested. A "recertify" run was computed from the votes of another run.

    selector: a classifier with one output for each level, smoothed with noise of the level `selector_sigma`. levels: in
    ascending order. models: one base classifier for each level, or one for all. question, selector_question: what is
    sampled at each level, and of the selector. alpha: of everything; selector_alpha: the selector's part of it;
    upper_alpha: see `Selection`, None in runs of earlier versions; the rest is for the levels. sampled: how many levels
    are sampled for an input, those with most of the selector's selection votes. selector_bounds: see `Selection`.
    certificates: forms of the combination, the first is the point's own. seed: all parts derive theirs from it.
    """

    task: Task
    selector: ModelSpec
    selector_sigma: Level
    levels: tuple[Level, ...]
    models: tuple[ModelSpec, ...]
    data: DataSpec
    noise: NoiseSpec
    question: QuestionSpec
    selector_question: QuestionSpec
    alpha: Probability
    selector_alpha: Probability
    upper_alpha: Share | None = None
    sampled: Count
    selector_bounds: SelectorBounds
    certificates: tuple[str, ...] = ()
    seed: Seed
    batch: Count | None = None
    rigorous: bool = False
    engine: EngineSpec = LocalEngineSpec()

    def check(self) -> None:
        """Raise an InputError for what cannot work."""
        check_levels(self.levels)
        check_alpha(self.alpha)
        check_model_count(len(self.models), levels=len(self.levels))
        if self.noise.kind is not Noise.GAUSSIAN or self.noise.scale is not None or self.noise.place != "input":
            raise InputError("a selector needs Gaussian noise on the inputs themselves, without a scale")
        if any(model.backend == "fastest" for model in (self.selector, *self.models)):
            raise InputError(
                "a selector and its levels need a back end that is known before they are sampled: give --backend torch "
                "or onnxruntime, instead of fastest"
            )
        if len({model.precision for model in (self.selector, *self.models)}) > 1:
            raise InputError(
                "a selector and its levels are computed in one precision: give the same dtype to all models"
            )
        if self.selector_bounds not in get_args(SelectorBounds):
            raise InputError(f"selector bounds {self.selector_bounds!r} are unknown: use two-class or multi-class")
        check_sampled(self.sampled, levels=len(self.levels))  # `selection` ignores it in a prediction
        if self.task != "predict" and not self.certificates:
            raise InputError(f"no certificate is named: use {' or '.join(FORMS)}")
        if len(set(self.certificates)) < len(self.certificates):
            raise InputError("each certificate can be named once")
        if unknown := [form for form in self.certificates if form not in FORMS]:
            raise InputError(f"there is no certificate {unknown[0]} for a selected sigma: use {' or '.join(FORMS)}")
        if self.selector_bounds == "multi-class" and not isinstance(self.selector_question, FixedN):
            raise InputError("multi-class bounds need a fixed number of the selector's votes: use two-class bounds")
        self.selection()

    def selection(self, *, input_shape: tuple[int, ...] | None = None) -> Selection:
        """How the parts are combined. input_shape: needed to bound votes of noise on a grid."""
        smoothing = Smoothing(
            dimension=None if input_shape is None else math.prod(input_shape),
            num_classes=len(self.levels),
            grid=None if input_shape is None else self.noise.levels,
        )
        sampled = len(self.levels) if self.task == "predict" else self.sampled
        return Selection(
            levels=self.levels,
            sigma=self.selector_sigma,
            alpha=self.alpha,
            selector_alpha=self.selector_alpha,
            sampled=sampled,
            bounds=self.selector_bounds,
            smoothing=smoothing,
            upper_alpha=self.upper_alpha,
        )

    @property
    def rule(self) -> dict[str, Any]:
        """The description of the rule, as manifests have it."""
        return {
            "kind": SELECTED,
            "levels": list(self.levels),
            "selector_sigma": self.selector_sigma,
            "selector_n": self.selector_question.n + self.selector_question.n0,
            "sampled": self.selection().sampled,
        }

    def name_level(self, level: int) -> str:
        """The name of the part of a level."""
        return name_level(self.levels[level])

    def model_of(self, level: int) -> ModelSpec:
        """The base classifier of a level."""
        return self.models[level if len(self.models) > 1 else 0]

    def spec_of_selector(self) -> RunSpec:
        """The ordinary run of the selector."""
        return self._part(SELECTOR, self.selector, self.selector_sigma, self.selector_question, self.selector_alpha)

    def spec_of_level(self, level: int, indices: tuple[int, ...] | None) -> RunSpec:
        """The ordinary run of a level. indices: of the inputs that are sampled at it; None for all."""
        spec = self._part(
            self.name_level(level),
            self.model_of(level),
            self.levels[level],
            self.question,
            self.selection().level_alpha,
        )
        if indices is None:
            return spec
        data = msgspec.structs.replace(spec.data, skip=1, max_inputs=None, indices=indices)
        return msgspec.structs.replace(spec, data=data)

    def list_parts(self) -> list[RunSpec]:
        """The ordinary runs of the selector and of all levels."""
        return [self.spec_of_selector(), *(self.spec_of_level(level, None) for level in range(len(self.levels)))]

    def _part(self, name: str, model: ModelSpec, sigma: float, question: QuestionSpec, alpha: float) -> RunSpec:
        certifies = self.task != "predict"
        return RunSpec(
            task=self.task,
            model=model,
            data=self.data,
            noise=self.noise,
            sigma=ConstantLevel(level=sigma),
            question=question if certifies else FixedN(n=question.n),
            alpha=alpha,
            certificates=("gaussian",) if certifies else (),
            seed=derive_seed(self.seed, name),
            batch=self.batch,
            rigorous=self.rigorous and certifies,
            engine=self.engine,
        )


def name_level(sigma: float) -> str:
    """The name of the part of a level, in directories and in seeds."""
    return f"level-{sigma!r}"


def choose_bounds(question: QuestionSpec, *, levels: int) -> SelectorBounds:
    """The bounds on the selector if none are named: of each level by itself, where that can differ and is possible."""
    return "multi-class" if isinstance(question, FixedN) and levels > 2 else "two-class"


def derive_seed(seed: int, part: str) -> int:
    """The seed of a part: no two parts share a stream of noise."""
    return int.from_bytes(hashlib.sha256(f"smoothcert {seed} {part}".encode()).digest()[:16], "big")
