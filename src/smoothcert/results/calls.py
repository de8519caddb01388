"""A call of `certify` or `predict` in Python, described as the run that it would have been."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from smoothcert.models.tabular_names import get_feature_names
from smoothcert.pipeline import Pipeline
from smoothcert.progress_display import ProgressOption, count_inputs, show_progress
from smoothcert.questions import split_alpha_of
from smoothcert.records import CertifiedPoint
from smoothcert.results.contents import MemoryContent
from smoothcert.results.opening import open_run
from smoothcert.results.results import Results
from smoothcert.runs.kept_form import digest_inputs
from smoothcert.runs.live_specs import spec_of_classifier
from smoothcert.sampling import SAMPLING_VERSION
from smoothcert.sigma import ConstantRule, SigmaRule
from smoothcert.spec import (
    ConstantLevel,
    DataFacts,
    Digests,
    Measured,
    ModelFacts,
    QuestionSpec,
    RunManifest,
    SigmaFacts,
)

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
    ask: Callable[[Pipeline], Iterable[list[CertifiedPoint]]],
    copies: int,
    progress: ProgressOption,
    **asked: Any,
) -> Results:
    """The answers of a call, with its progress. copies: the least number that will be drawn."""
    smoothed.checks.expect_call(copies)
    count = count_inputs(len(source), asked["question"], certify=asked["portfolio"] is not None)
    with show_progress(progress, count) as on_samples:
        points = count.collect(ask(smoothed.pipeline(on_samples)))
    smoothed.checks.ask_again()
    return gather_results(points, smoothed, source=source, **asked)


def gather_results(
    points: Sequence[CertifiedPoint],
    smoothed: SmoothedClassifier,
    *,
    source: InputSource,
    question: QuestionSpec,
    portfolio: Portfolio | None,
    alpha: float,
) -> Results:
    """The points of a call as Results, named by the noise level. portfolio: None for a prediction."""
    manifest = describe_call(smoothed, source, question, portfolio, alpha=alpha)
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
) -> RunManifest:
    """The manifest of a call. portfolio: None for a prediction.

    It is made at once, because the caller may change the inputs later, and so that results hold no model. What takes
    longer than a sample is left out: versions and the code digest, which `state_environment` adds, and a probe of the
    model, which is for resuming.
    """
    classifier, rule, memory = smoothed.classifier, smoothed.rule, smoothed.memory
    spec = spec_of_classifier(smoothed, question, alpha=alpha, portfolio=portfolio)
    # The address of a memory may contain a password.
    spec = msgspec.structs.replace(spec, memory=None if memory is None else memory.location)
    varies = not isinstance(rule, ConstantRule)
    # Indices count all inputs of the classifier, so an earlier call has those that are missing here.
    size = max(source.indices) + 1
    ends = spec.data.input_range
    return RunManifest(
        spec=spec,
        sampling_version=SAMPLING_VERSION,
        seed=smoothed.seed,
        digests=Digests(
            model=classifier.digest,
            data=digest_inputs(source, smoothed),
            sigma=rule.digest if varies else None,
            memory=None if memory is None else memory.key.digest,
        ),
        measured=Measured(batch=smoothed.known_batch(), backend=classifier.backend),
        model=ModelFacts(
            num_classes=classifier.num_classes,
            description=classifier.description,
            has_random_weights=getattr(classifier, "has_random_weights", False),
            class_names=smoothed.class_names,
        ),
        data=DataFacts(
            name=NAME,
            input_shape=smoothed.known_shape or (),
            size=size,
            inputs=size,
            input_range=None if isinstance(ends, str) else ends,
            feature_names=get_feature_names(classifier),
        ),
        sigma=_list_sigma_facts(rule) if varies else None,
        alpha_split={} if portfolio is None else split_alpha_of(question, portfolio, alpha=alpha),
    )


def _list_sigma_facts(rule: SigmaRule) -> SigmaFacts:
    envelope = None if rule.envelope is None else dict(rule.envelope.to_json())
    return SigmaFacts(rule=dict(rule.to_json()), envelope=envelope)
