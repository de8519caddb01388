"""The manifest of a run, and of a call in Python that is described as a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smoothcert.questions import split_alpha_of
from smoothcert.sampling import SAMPLING_VERSION
from smoothcert.sigma import SigmaRule
from smoothcert.spec import ConstantLevel, DataFacts, Digests, Measured, ModelFacts, RunManifest, RunSpec, SigmaFacts

if TYPE_CHECKING:
    from smoothcert.certificates import Portfolio
    from smoothcert.smoothed import SmoothedClassifier


def make_manifest(
    spec: RunSpec,
    smoothed: SmoothedClassifier,
    data: DataFacts,
    *,
    data_digest: str,
    class_names: tuple[str, ...],
    portfolio: Portfolio | None,
    probe: Any = None,
) -> RunManifest:
    """The manifest without its environment, which `state_environment` adds. portfolio: None for a prediction.

    probe: answers of the model to fixed inputs; they are for resuming.
    """
    classifier, rule, memory = smoothed.classifier, smoothed.rule, smoothed.memory
    varies = not isinstance(spec.sigma, ConstantLevel)  # a rule that was requested is described, whatever it is
    return RunManifest(
        spec=spec,
        sampling_version=SAMPLING_VERSION,
        seed=smoothed.seed,
        digests=Digests(
            model=classifier.digest,
            data=data_digest,
            sigma=rule.digest if varies else None,
            # Not the identity of the memory: whether it is the same is seen from the promises it keeps.
            memory=None if memory is None else memory.key.digest,
        ),
        measured=Measured(batch=smoothed.known_batch(), backend=classifier.backend),
        model=ModelFacts(
            num_classes=classifier.num_classes,
            description=classifier.description,
            probe=probe,
            has_random_weights=getattr(classifier, "has_random_weights", False),
            class_names=class_names,
        ),
        data=data,
        sigma=_list_sigma_facts(rule) if varies else None,
        alpha_split={} if portfolio is None else split_alpha_of(spec.question, portfolio, alpha=spec.alpha),
    )


def _list_sigma_facts(rule: SigmaRule) -> SigmaFacts:
    envelope = None if rule.envelope is None else dict(rule.envelope.to_json())
    return SigmaFacts(rule=dict(rule.to_json()), envelope=envelope)
