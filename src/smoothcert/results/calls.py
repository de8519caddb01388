"""A call of `certify` or `predict` in Python, described as the run that it would have been."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.models.base import FirstLayerNoise
from smoothcert.models.tabular_names import get_feature_names
from smoothcert.questions import split_alpha_of
from smoothcert.records import CertifiedPoint
from smoothcert.results.contents import MemoryContent
from smoothcert.results.results import Results
from smoothcert.sampling import SAMPLING_VERSION
from smoothcert.settings_text import collect_settings
from smoothcert.sigma import ConstantRule, OptimisedRule, SigmaRule
from smoothcert.spec import (
    ConstantLevel,
    DataFacts,
    DataSpec,
    Digests,
    Measured,
    ModelFacts,
    ModelSpec,
    NoiseSpec,
    OptimisedLevel,
    QuestionSpec,
    RuleLevel,
    RunManifest,
    RunSpec,
    SigmaFacts,
    SigmaSpec,
)

if TYPE_CHECKING:
    from smoothcert.certificates import Portfolio
    from smoothcert.sampling.inputs import InputSource
    from smoothcert.smoothed import SmoothedClassifier

NAME = "inputs given in Python"
_INPUTS_TOGETHER = 256
_OBJECT = "<object in Python>"
"""The place, in a spec, of a model, of data or of a rule that is not in a file."""


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
    spec = _make_spec(smoothed, question, portfolio, alpha=alpha)
    classifier, rule, memory = smoothed.classifier, smoothed.rule, smoothed.memory
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
            data=_digest_inputs(source),
            sigma=rule.digest if varies else None,
            memory=None if memory is None else memory.key.digest,
        ),
        measured=Measured(batch=smoothed.known_batch(), backend=classifier.backend),
        model=ModelFacts(
            num_classes=classifier.num_classes,
            description=classifier.description,
            class_names=smoothed.class_names,
        ),
        data=DataFacts(
            name=NAME,
            input_shape=tuple(map(int, source.load([0]).shape[1:])),
            size=size,
            inputs=size,
            input_range=None if isinstance(ends, str) else ends,
            feature_names=get_feature_names(classifier),
        ),
        sigma=_list_sigma_facts(rule) if varies else None,
        alpha_split={} if portfolio is None else split_alpha_of(question, portfolio, alpha=alpha),
    )


def _digest_inputs(source: InputSource) -> str:
    """SHA-256 of the inputs, which are read some at a time."""
    digest = hashlib.sha256()
    for at in range(0, len(source), _INPUTS_TOGETHER):
        part = source.load(range(at, min(at + _INPUTS_TOGETHER, len(source))))
        digest.update(np.ascontiguousarray(part).data.cast("B"))
    return digest.hexdigest()


def _make_spec(
    smoothed: SmoothedClassifier, question: QuestionSpec, portfolio: Portfolio | None, *, alpha: float
) -> RunSpec:
    in_first_layer = isinstance(smoothed.classifier, FirstLayerNoise)
    noise = NoiseSpec(
        kind=smoothed.noise, place="first-layer" if in_first_layer else "input", shared=smoothed.shared_noise
    )
    ends = smoothed.input_range
    return RunSpec(
        task="predict" if portfolio is None else "certify",
        model=ModelSpec(place=_OBJECT),
        data=DataSpec(place=_OBJECT, input_range=None if ends is None else (float(ends[0]), float(ends[1]))),
        noise=noise.settle(smoothed.grid),
        sigma=_describe_sigma(smoothed.rule),
        question=question,
        alpha=alpha,
        certificates=() if portfolio is None else tuple(one.name for one in portfolio.certificates),
        best_of=portfolio is not None and portfolio.best_of,
        memory=None if smoothed.memory is None else smoothed.memory.location,
        seed=smoothed.seed if smoothed.seed_was_given else None,
    )


def _describe_sigma(rule: SigmaRule) -> SigmaSpec:
    if isinstance(rule, ConstantRule):
        return ConstantLevel(level=rule.sigma)
    if not isinstance(rule, OptimisedRule):
        return RuleLevel(place=_OBJECT)
    settings = rule.settings
    return OptimisedLevel(
        start=settings.start,
        search=settings.search.name,
        settings=collect_settings(settings.search),
        least=settings.least,
        most=settings.most,
        two_class=settings.two_class,
    )


def _list_sigma_facts(rule: SigmaRule) -> SigmaFacts:
    envelope = None if rule.envelope is None else dict(rule.envelope.to_json())
    return SigmaFacts(rule=dict(rule.to_json()), envelope=envelope)
