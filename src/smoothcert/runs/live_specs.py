"""The spec of a live classifier: what has a place, a file or named code, keeps it; other objects get a marker."""

from __future__ import annotations

from pathlib import Path

from smoothcert.certificates import Portfolio
from smoothcert.cluster.ray_engine import RayEngine
from smoothcert.memory import RegionMemory
from smoothcert.models.half_precision import dtype_of
from smoothcert.runs.run_files import INPUTS, SIGMA_RULE, place_of_object
from smoothcert.sigma import ConstantRule, OptimisedRule, OptimisedSigma, SigmaRule
from smoothcert.sigma.rule_files import StorableRule
from smoothcert.sigma.searches import search_settings
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.spec import (
    ConstantLevel,
    DataSpec,
    EngineSpec,
    LocalEngineSpec,
    ModelSpec,
    NoiseSpec,
    OptimisedLevel,
    QuestionSpec,
    RuleLevel,
    RunSpec,
    SigmaSpec,
    spec_dtype,
)


def spec_of_classifier(
    smoothed: SmoothedClassifier,
    question: QuestionSpec,
    *,
    alpha: float,
    portfolio: Portfolio | None,
    out: Path | None = None,
) -> RunSpec:
    """The spec of a run of this classifier, which has seen the inputs. portfolio: None for a prediction.

    out: the directory of the run, which keeps what has no place of its own; None if there is no run.
    """
    given, ends = smoothed.given, smoothed.input_range
    noise = NoiseSpec(
        kind=smoothed.noise,
        place=given.adapting["noise_at"],
        shared=smoothed.shared_noise,
        scale=None if smoothed.scale is None else smoothed.scale.numbers,
    )
    return RunSpec(
        task="predict" if portfolio is None else "certify",
        model=ModelSpec(
            place=_place_of_model(given.model),
            num_classes=given.adapting["num_classes"],
            backend=given.adapting["backend"],
            device=given.adapting["device"],
            dtype=spec_dtype(dtype_of(smoothed.classifier)),
        ),
        data=DataSpec(
            place=_place_in(out, INPUTS, instead="inputs given in Python"),
            input_range=None if ends is None else (float(ends[0]), float(ends[1])),
        ),
        noise=noise.settle(smoothed.grid),
        sigma=_spec_of_sigma(smoothed.rule, out),
        question=question,
        alpha=alpha,
        certificates=() if portfolio is None else tuple(one.name for one in portfolio.certificates),
        best_of=portfolio is not None and portfolio.best_of,
        memory=_place_of_memory(given.memory),
        seed=given.seed,
        batch=given.batch,
        engine=_spec_of_engine(smoothed),
    )


def _place_of_model(model: object) -> str:
    return str(model) if isinstance(model, str | Path) else place_of_object(f"{type(model).__name__} object")


def _place_of_memory(memory: RegionMemory | str | Path | None) -> str | None:
    if memory is None:
        return None
    return memory.location if isinstance(memory, RegionMemory) else str(memory)


def _place_in(out: Path | None, name: str, *, instead: str) -> str:
    return place_of_object(instead) if out is None else str((out / name).resolve())


def _spec_of_sigma(rule: SigmaRule, out: Path | None) -> SigmaSpec:
    if isinstance(rule, ConstantRule):
        return ConstantLevel(level=rule.sigma)
    if isinstance(rule, OptimisedRule):
        return _spec_of_search(rule.settings)
    if isinstance(rule, StorableRule):
        return RuleLevel(place=_place_in(out, SIGMA_RULE, instead=rule.description))
    return RuleLevel(place=place_of_object(rule.description))


def _spec_of_search(sigma: OptimisedSigma) -> OptimisedLevel:
    return OptimisedLevel(
        start=sigma.start,
        search=sigma.search.name,
        settings=search_settings(sigma.search),
        least=sigma.least,
        most=sigma.most,
        two_class=sigma.two_class,
    )


def _spec_of_engine(smoothed: SmoothedClassifier) -> EngineSpec:
    if isinstance(smoothed.tallier, RayEngine):
        return smoothed.tallier.settings
    return LocalEngineSpec(workers=smoothed.workers)
