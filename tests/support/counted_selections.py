"""Selected runs whose votes were made up: honest in everything else, and stored without any sampling."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from smoothcert.certificates import get_portfolio
from smoothcert.questions import Votes, predict_votes, split_alpha_of
from smoothcert.questions.fixed_n import FixedNInquiry
from smoothcert.records import CertifiedPoint, Smoothing, Stage, StreamId, Tally
from smoothcert.records.selection import FORMS, choose_upper_alpha
from smoothcert.runs.held_run import HeldRun
from smoothcert.runs.selected_combining import choose_inputs, hold_parts
from smoothcert.runs.selected_parts import SelectedParts
from smoothcert.runs.selected_spec import SelectedSpec
from smoothcert.spec import (
    DataFacts,
    DataSpec,
    Digests,
    FixedN,
    Measured,
    ModelFacts,
    ModelSpec,
    NoiseSpec,
    RunManifest,
    RunSpec,
)
from smoothcert.statistics import price_of

LEVELS, SELECTOR_SIGMA, ALPHA = (0.25, 0.5, 1.0), 1.0, 0.01
N0, N, CLASSES, SHAPE = 40, 1000, 4, (1, 8, 8)
Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountedInput:
    """choosing, proving: the selector's votes in the two stages. levels: for each level its votes that prove, by class;
    the selection votes of a level are all for its leading class."""

    choosing: Counts
    proving: Counts
    levels: Sequence[Counts]

    def votes_of_level(self, level: int) -> tuple[Counts, Counts]:
        counts = self.levels[level]
        leading = int(np.argmax(counts))
        return tuple(N0 if label == leading else 0 for label in range(CLASSES)), counts


SURE, UNSURE = (980, 15, 3, 2), (420, 380, 150, 50)
INPUTS = (
    # One level is sure to be selected.
    CountedInput((1, 2, 37), (4, 6, 990), (SURE, SURE, SURE)),
    # On the border of two levels, which agree.
    CountedInput((2, 21, 17), (20, 500, 480), (UNSURE, SURE, SURE)),
    # On the border of two levels, which do not.
    CountedInput((20, 19, 1), (520, 470, 10), (SURE, (10, 980, 5, 5), SURE)),
    # The leading level proves nothing.
    CountedInput((0, 40, 0), (0, 1000, 0), (SURE, UNSURE, SURE)),
    # No level has a finite answer.
    CountedInput((4, 4, 4), (90, 90, 90), (SURE, SURE, SURE)),
    # Each level is excluded at a distance of its own.
    CountedInput((3, 30, 7), (100, 700, 200), ((700, 200, 50, 50), (960, 20, 10, 10), (900, 60, 20, 20))),
)


def make_spec_of_selection(**changes: Any) -> SelectedSpec:
    """changes: of the fields of a spec that certifies by both forms, multi-class, at two sampled levels.

    upper_alpha is chosen as usual if it is not named.
    """
    spec = SelectedSpec(
        task="certify",
        selector=ModelSpec(place="s:h"),
        selector_sigma=SELECTOR_SIGMA,
        levels=LEVELS,
        models=tuple(ModelSpec(place=f"m:f{level}") for level in range(len(LEVELS))),
        data=DataSpec(place="digits"),
        noise=NoiseSpec().settle(17),
        question=FixedN(n=N, n0=N0),
        selector_question=FixedN(n=N, n0=N0),
        alpha=ALPHA,
        selector_alpha=ALPHA / 4,
        sampled=2,
        selector_bounds="multi-class",
        certificates=FORMS,
        seed=7,
        batch=64,
    )
    spec = msgspec.structs.replace(spec, **changes)
    if "upper_alpha" in changes:
        return spec
    share = choose_upper_alpha(spec.alpha, spec.selector_alpha, bounds=spec.selector_bounds, forms=spec.certificates)
    return msgspec.structs.replace(spec, upper_alpha=share)


def make_counted_parts(spec: SelectedSpec | None = None, inputs: Sequence[CountedInput] = INPUTS) -> SelectedParts:
    """The parts of a run of this spec in which these votes were counted."""
    spec = make_spec_of_selection() if spec is None else spec
    spec = msgspec.structs.replace(spec, data=msgspec.structs.replace(spec.data, max_inputs=len(inputs)))
    asked = spec.spec_of_selector()
    described = _describe(asked, len(LEVELS))
    made = [_make_point(described, index, one.choosing, one.proving, label=None) for index, one in enumerate(inputs)]
    selector = HeldRun(made, described)
    levels = {}
    for level, indices in enumerate(choose_inputs(spec, selector)):
        if indices:
            described = _describe(spec.spec_of_level(level, indices), CLASSES)
            points = [_make_point(described, k, *inputs[k].votes_of_level(level), label=0) for k in indices]
            levels[level] = HeldRun(points, described)
    return SelectedParts(spec, selector, levels, dict.fromkeys(range(len(inputs)), 0))


def store_counted(out: Path, spec: SelectedSpec | None = None, inputs: Sequence[CountedInput] = INPUTS) -> Path:
    """`make_counted_parts`, as a run in this new directory."""
    hold_parts(make_counted_parts(spec, inputs)).save(out)
    return out


def _describe(spec: RunSpec, classes: int) -> RunManifest:
    """As `smoothcert certify` would describe this part."""
    split = {}
    if spec.task == "certify":
        split = split_alpha_of(spec.question, get_portfolio(spec.certificate_text), alpha=spec.alpha)
    assert spec.seed is not None
    requested = spec.data.max_inputs or len(spec.data.indices or ())
    return RunManifest(
        spec=spec,
        sampling_version=1,
        seed=spec.seed,
        digests=Digests(model=hashlib.sha256(spec.model.place.encode()).hexdigest(), data="d" * 64, code="c" * 64),
        measured=Measured(batch=64, backend="numpy"),
        model=ModelFacts(num_classes=classes),
        data=DataFacts(name="digits", input_shape=SHAPE, size=400, inputs=requested, levels=17),
        alpha_split=split,
    )


def _make_point(
    manifest: RunManifest, index: int, choosing: Counts, proving: Counts, *, label: int | None
) -> CertifiedPoint:
    """What the ordinary run gives for these votes. Votes that are missing from n0 or n are for no class."""
    spec, classes = manifest.spec, manifest.model.num_classes
    smoothing = Smoothing(dimension=math.prod(SHAPE), num_classes=classes, grid=spec.noise.levels)

    def count(stage: Stage, counts: Counts, n: int) -> Tally:
        sigma = spec.sigma.level  # type: ignore[union-attr]
        stream = StreamId(manifest.seed, index, stage)
        return Tally(stream, sigma, np.array(counts), n - sum(counts), ((0, n),))

    seconds = 0.25 + index
    if spec.task == "predict":
        tally = count(Stage.PREDICTION, proving, spec.question.n)
        price = price_of(tally, smoothing)
        return predict_votes(
            index=index, label=label, tally=tally, alpha=spec.alpha, seconds=seconds, grid=smoothing.grid, price=price
        )
    selection, estimation = count(Stage.SELECTION, choosing, N0), count(Stage.ESTIMATION, proving, spec.question.n)
    inquiry = FixedNInquiry(get_portfolio("gaussian"), smoothing, spec.question.n, N0, spec.alpha)
    (point,) = inquiry.answer([Votes(index, label, selection, (estimation,), seconds)])
    return point
