"""A call of `certify` or `predict` in Python, described as the run that it would have been."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from smoothcert.pipeline import Pipeline
from smoothcert.progress_display import ProgressOption, count_inputs, show_progress
from smoothcert.records import CertifiedPoint
from smoothcert.results.contents import MemoryContent
from smoothcert.results.opened_runs import open_run
from smoothcert.results.results import Results
from smoothcert.runs.kept_form import InputDigest
from smoothcert.runs.live_specs import spec_of_classifier
from smoothcert.runs.run_description import make_manifest
from smoothcert.spec import ConstantLevel, DataFacts, QuestionSpec, RunManifest

if TYPE_CHECKING:
    from smoothcert.certificates import Portfolio
    from smoothcert.sampling.inputs import InputSource
    from smoothcert.smoothed import SmoothedClassifier

NAME = "inputs given in Python"


def make_run(smoothed: SmoothedClassifier, x: Any, *, out: str | Path, **asked: Any) -> Results:
    """Make or resume the run in `out`, and open it. asked: as in `python_runs.make_run`."""
    from smoothcert.runs import python_runs  # a call without a run does not need it

    place = Path(out).expanduser()
    python_runs.make_run(smoothed, x, out=place, **asked)
    return open_run(place)


def answer_call(
    smoothed: SmoothedClassifier,
    source: InputSource,
    ask: Callable[[Pipeline, InputSource], Iterable[list[CertifiedPoint]]],
    copies: int,
    progress: ProgressOption,
    **asked: Any,
) -> Results:
    """The answers of a call, with its progress. copies: the least number that will be drawn."""
    smoothed.checks.expect_call(copies)
    count = count_inputs(len(source), asked["question"], certify=asked["portfolio"] is not None)
    digest = InputDigest(source, smoothed)
    with show_progress(progress, count) as on_samples:
        loop = smoothed.pipeline(on_samples)
        points = count.collect(ask(loop, source if source.is_kept else digest.watch()))
    smoothed.checks.ask_again()
    return gather_results(points, smoothed, source=source, data_digest=digest.finish(), **asked)


def gather_results(
    points: Sequence[CertifiedPoint],
    smoothed: SmoothedClassifier,
    *,
    source: InputSource,
    question: QuestionSpec,
    portfolio: Portfolio | None,
    alpha: float,
    data_digest: str,
) -> Results:
    """The points of a call as Results, named by the noise level. portfolio: None for a prediction."""
    manifest = describe_call(smoothed, source, question, portfolio, alpha=alpha, data_digest=data_digest)
    symbol = smoothed.noise.facts.level_symbol
    level = manifest.spec.sigma
    name = f"{symbol}={level.level:g}" if isinstance(level, ConstantLevel) else f"{symbol} by input"
    return Results(MemoryContent(points, manifest), name=name)


def describe_call(
    smoothed: SmoothedClassifier,
    source: InputSource,
    question: QuestionSpec,
    portfolio: Portfolio | None,
    *,
    alpha: float,
    data_digest: str,
) -> RunManifest:
    """The manifest of a call. portfolio: None for a prediction. data_digest: of its inputs.

    It is made at once, because the caller may change the inputs later, and so that results hold no model. What takes
    longer than a sample is left out: versions and the code digest, which `state_environment` adds, and a probe of the
    model, which is for resuming.
    """
    spec = spec_of_classifier(smoothed, question, alpha=alpha, portfolio=portfolio)
    # The address of a memory may contain a password.
    spec = msgspec.structs.replace(spec, memory=None if smoothed.memory is None else smoothed.memory.location)
    # Indices count all inputs of the classifier, so an earlier call has those that are missing here.
    size = max(source.indices) + 1
    ends = spec.data.input_range
    data = DataFacts(
        name=NAME,
        input_shape=smoothed.known_shape or (),
        size=size,
        inputs=size,
        input_range=None if isinstance(ends, str) else ends,
        feature_names=source.feature_names,
    )
    names = smoothed.class_names
    return make_manifest(spec, smoothed, data, data_digest=data_digest, class_names=names, portfolio=portfolio)
