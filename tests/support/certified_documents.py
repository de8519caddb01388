"""Honest certificate documents of every kind, made by certifying small models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sample_models import logistic_digits
from smoothcert import SmoothedClassifier
from smoothcert.certificates import CERTIFICATES, get_portfolio
from smoothcert.data import load_dataset
from smoothcert.noise import evaluations_of, level_of
from smoothcert.questions import Votes, describe_smoothing, split_alpha_of
from smoothcert.questions.every_evaluation import EveryEvaluationInquiry
from smoothcert.questions.fixed_n import FixedNInquiry
from smoothcert.questions.prediction import predict_votes
from smoothcert.records import CertifiedPoint, Noise, PairTally, Stage, StreamId, Tally
from smoothcert.records.envelopes import ConstantSigma, Envelope, LipschitzSigma, SemiElastic
from smoothcert.runs.certificate_documents import document_of
from smoothcert.sigma.callable_rule import CallableRule
from smoothcert.spec import (
    ConstantLevel,
    DataFacts,
    DataSpec,
    Digests,
    EveryEvaluation,
    FixedN,
    Measured,
    ModelFacts,
    ModelSpec,
    NoiseSpec,
    QuestionSpec,
    RuleLevel,
    RunManifest,
    RunSpec,
    SigmaFacts,
    make_question,
)

ALPHA, N0, N, SEED = 0.001, 50, 2000, 11
SHAPE, CLASSES = (1, 8, 8), 10
LEVELS = 17
"""Of the digits."""

Document = dict[str, Any]


def manifest(
    *,
    certificate: str | None,
    task: str = "certify",
    alpha: float = ALPHA,
    n: int = N,
    noise: str = "gaussian",
    sigma: float | None = 0.25,
    envelope: Envelope | None = None,
    shape: Sequence[int] = SHAPE,
    classes: int = CLASSES,
    grid: int | None = None,
    memory: str | None = None,
    **question: Any,
) -> RunManifest:
    """The manifest of a run with these settings, as `smoothcert certify` would write it."""
    portfolio = None if certificate is None else get_portfolio(certificate)
    asked: QuestionSpec = FixedN(n=n) if portfolio is None else make_question(n=n, n0=N0, **question)
    if not Noise(noise).sampled:
        assert sigma is not None
        assert grid is not None
        asked, alpha = EveryEvaluation(n=evaluations_of(sigma, levels=grid)), 0.0
    described = None if envelope is None else dict(envelope.to_json())
    spec = RunSpec(
        task=task,  # type: ignore[arg-type]
        model=ModelSpec(place="m:f"),
        data=DataSpec(place="digits"),
        noise=NoiseSpec(kind=Noise(noise)).settle(grid),
        sigma=RuleLevel(place="m:s") if sigma is None else ConstantLevel(level=sigma),
        question=asked,
        alpha=alpha,
        certificates=() if portfolio is None else tuple(one.name for one in portfolio.certificates),
        best_of=portfolio is not None and portfolio.best_of,
        memory=None if memory is None else "memory.sqlite",
    )
    rule = {"kind": "callable", "name": "s", "envelope": described}
    return RunManifest(
        spec=spec,
        sampling_version=1,
        seed=SEED,
        digests=Digests(
            model="0" * 64, data="1" * 64, code="2" * 64, sigma="4" * 64 if sigma is None else None, memory=memory
        ),
        measured=Measured(batch=512, backend="numpy"),
        model=ModelFacts(num_classes=classes),
        data=DataFacts(name="digits", input_shape=tuple(shape), size=1000, inputs=1000),
        sigma=SigmaFacts(rule=rule, envelope=described) if sigma is None else None,
        alpha_split={} if portfolio is None else split_alpha_of(asked, portfolio, alpha=alpha),
    )


@functools.cache
def _digits() -> np.ndarray:
    inputs: np.ndarray = load_dataset("digits", split="test").inputs(slice(0, 5))
    return inputs[[0, 1, 4]]  # far from the others, nearer, hardly to be told


_logistic = functools.cache(logistic_digits)


def _level(x: np.ndarray) -> float:
    return 0.2 + 0.05 * float(x.astype(np.float64).mean())


SLOW = LipschitzSigma(constant=0.00625, floor=0.2)
"""The mean of 64 pixels changes by at most ‖x-x'‖/8."""
SLOW_RATE = SemiElastic(rate=0.05)


def sampled_points(certificate: str, **settings: Any) -> tuple[list[CertifiedPoint], RunManifest]:
    """Three digits certified by that certificate. envelope: of a noise level that varies; grid: levels of the inputs,
    of which digits have 17; everything else is asked of `certify`."""
    theorem = CERTIFICATES[get_portfolio(certificate).certificates[0].name]
    envelope: Envelope | None = settings.pop("envelope", None)
    sigma: Any = 0.25 if envelope is None else CallableRule(_level, envelope=envelope)
    if not theorem.noise.sampled:
        settings.setdefault("grid", LEVELS)
    grid: int | None = settings.get("grid")
    smoothed = SmoothedClassifier(
        _logistic(),
        sigma=sigma,
        noise=theorem.noise,
        grid=grid,
        input_shape=SHAPE,
        num_classes=CLASSES,
        seed=SEED,
        batch=512,
    )
    asked = {name: value for name, value in settings.items() if name != "grid"}
    asked |= {"n0": N0, "n": N, "alpha": ALPHA} if theorem.noise.sampled else {}
    points = smoothed.certify(_digits(), certificate=certificate, **asked)
    described = manifest(
        certificate=str(get_portfolio(certificate)),
        noise=theorem.noise.value,
        sigma=0.25 if envelope is None else None,
        envelope=envelope,
        **settings,
    )
    return points, described


@functools.cache
def sampled_documents(certificate: str, envelope: Envelope | None = None) -> tuple[Document, ...]:
    """Documents of three digits by one certificate, or by several."""
    points, described = sampled_points(certificate, **({} if envelope is None else {"envelope": envelope}))
    return tuple(document_of(point, described) for point in points)


def predicted_documents() -> list[Document]:
    smoothed = SmoothedClassifier(_logistic(), sigma=0.25, input_shape=SHAPE, num_classes=CLASSES, seed=SEED, batch=512)
    points = smoothed.predict(_digits(), n=200, alpha=ALPHA)
    return [document_of(point, manifest(certificate=None, task="predict", n=200)) for point in points]


def asked_documents(**question: Any) -> list[Document]:
    """Documents of inputs that were sampled until a question was answered."""
    points, described = sampled_points("gaussian", **question)
    return [document_of(point, described) for point in points]


def remembered_documents(place: Path) -> list[Document]:
    """Documents of inputs whose regions a memory promised; two of them are asked twice."""
    smoothed = SmoothedClassifier(
        _logistic(), sigma=_level, memory=place, input_shape=SHAPE, num_classes=CLASSES, seed=SEED, batch=512
    )
    inputs = np.concatenate([_digits(), _digits()[:2]])
    points = smoothed.certify(inputs, n0=N0, n=N, alpha=ALPHA, certificate="gaussian")
    described = manifest(certificate="gaussian", sigma=None, memory="3" * 64)
    return [document_of(point, described) for point in points]


def counted_document(
    certificate: str,
    votes: Sequence[int],
    *,
    invalid: int = 0,
    alpha: float = ALPHA,
    sigma: float = 0.25,
    dimension: int = 64,
    envelope: Envelope | None = None,
    noise: str = "gaussian",
) -> Document:
    """A document of votes that were made up, for class 0."""
    n = sum(votes) + invalid
    counts = np.array(votes)
    selection = Tally(
        StreamId(SEED, 0, Stage.SELECTION), sigma, np.eye(1, counts.size, dtype=int)[0] * N0, 0, ((0, N0),)
    )
    estimation = Tally(StreamId(SEED, 0, Stage.ESTIMATION), sigma, counts, invalid, ((0, n),))
    return _document(certificate, selection, estimation, alpha, sigma, dimension, envelope, noise, n)


def split_document(votes: Sequence[int], *, invalid: int = 0, levels: int = LEVELS, task: str = "certify") -> Document:
    """A document of the votes of all evaluations of an input, which were made up."""
    evaluations = sum(votes) + invalid
    sigma = level_of(evaluations, levels=levels)
    certificate = "splitting-l1" if task == "certify" else None
    described = manifest(
        certificate=certificate, task=task, noise="splitting", sigma=sigma, grid=levels, shape=(64,), classes=len(votes)
    )
    stage = Stage.ESTIMATION if task == "certify" else Stage.PREDICTION
    tally = Tally(StreamId(SEED, 0, stage), sigma, np.array(votes), invalid, ((0, evaluations),))
    if certificate is None:
        facts: dict[str, Any] = {"norm": Noise.SPLITTING.norm, "grid": levels, "alpha": 0.0, "certain": True}
        return document_of(predict_votes(index=0, label=None, tally=tally, seconds=0.0, **facts), described)
    smoothing = describe_smoothing(
        ConstantSigma(), dimension=64, num_classes=len(votes), noise=Noise.SPLITTING, grid=levels
    )
    inquiry = EveryEvaluationInquiry(get_portfolio(certificate), smoothing, evaluations, 0, 0.0)
    (point,) = inquiry.answer([Votes(index=0, label=None, selection=None, estimation=(tally,), seconds=0.0)])
    return document_of(point, described)


def paired_document(
    certificate: str,
    both: Sequence[int],
    first: Sequence[int],
    second: Sequence[int],
    *,
    alpha: float = ALPHA,
    sigma: float = 0.25,
) -> Document:
    """A document of pairs of votes that were made up, for class 0; the last place is for invalid answers."""
    pairs = sum(both) + sum(first)
    classes = len(both) - 1
    selection = Tally(StreamId(SEED, 0, Stage.SELECTION), sigma, np.eye(1, classes, dtype=int)[0] * N0, 0, ((0, N0),))
    estimation = PairTally(
        StreamId(SEED, 0, Stage.ESTIMATION), sigma, np.array(both), np.array(first), np.array(second), ((0, pairs),)
    )
    return _document(certificate, selection, estimation, alpha, sigma, 64, None, "gaussian", 2 * pairs)


def _document(
    certificate: str,
    selection: Tally,
    estimation: Tally | PairTally,
    alpha: float,
    sigma: float,
    dimension: int,
    envelope: Envelope | None,
    noise: str,
    n: int,
) -> Document:
    described = manifest(
        certificate=certificate,
        alpha=alpha,
        n=n,
        noise=noise,
        sigma=sigma if envelope is None else None,
        envelope=envelope,
        shape=(dimension,),
        classes=selection.num_classes,
    )
    votes = Votes(index=0, label=None, selection=selection, estimation=(estimation,), seconds=0.0)
    smoothing = describe_smoothing(
        envelope or ConstantSigma(), dimension=dimension, num_classes=selection.num_classes, noise=Noise(noise)
    )
    inquiry = FixedNInquiry(get_portfolio(certificate), smoothing, n, N0, alpha)
    (point,) = inquiry.answer([votes])
    return document_of(point, described)
