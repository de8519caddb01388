"""Runs with made-up votes, stored like real ones: quick to make, of any size and with any names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri

from smoothcert.data import Dataset, load_dataset
from smoothcert.records import (
    Bound,
    Bounds,
    CertifiedPoint,
    Noise,
    Norm,
    Outcome,
    Proof,
    Quantity,
    Reason,
    ReasonCode,
    Side,
    Stage,
    StreamId,
    Tally,
    Verdict,
)
from smoothcert.runs.store import RunStore
from smoothcert.spec import (
    ConstantLevel,
    DataFacts,
    DataSpec,
    Digests,
    FixedN,
    Measured,
    ModelFacts,
    ModelSpec,
    NoiseSpec,
    RuleLevel,
    RunManifest,
    RunSpec,
    SigmaFacts,
)

ALPHA = 0.001


def make_manifest(
    dataset: Dataset,
    *,
    source: str,
    inputs: int,
    seed: int = 0,
    sigma: float = 0.25,
    n: int = 1000,
    grid: int | None = 17,
    noise: Noise = Noise.GAUSSIAN,
    rule: dict[str, Any] | None = None,
    memory: str | None = None,
) -> RunManifest:
    """source: name or path of the dataset. rule: of a sigma without an envelope. memory: digest of its key."""
    return RunManifest(
        spec=RunSpec(
            task="certify",
            model=ModelSpec(place="made-up:model"),
            data=DataSpec(place=source),
            noise=NoiseSpec(kind=noise).settle(grid),
            sigma=ConstantLevel(level=sigma) if rule is None else RuleLevel(place="made-up:rule"),
            question=FixedN(n=n, n0=100),
            alpha=ALPHA,
            certificates=("gaussian",),
            memory=None if memory is None else "memory.sqlite",
        ),
        sampling_version=1,
        seed=seed,
        digests=Digests(
            model="0" * 64,
            data=dataset.digest,
            sigma=None if rule is None else "0" * 64,
            memory=memory,
            code="0" * 64,
        ),
        measured=Measured(batch=64, backend="made up"),
        model=ModelFacts(num_classes=dataset.num_classes, description="made up"),
        data=DataFacts(
            name=dataset.name,
            input_shape=tuple(dataset.input_shape),
            size=len(dataset),
            inputs=inputs,
            levels=dataset.levels,
        ),
        sigma=None if rule is None else SigmaFacts(rule=rule),
        environment={"python": "3"},
    )


def made_run(out: Path, dataset: Dataset, *, source: str, inputs: int, **settings: Any) -> Path:
    """A finished run over the first inputs of a dataset. settings: those of `make_manifest`."""
    manifest = make_manifest(dataset, source=source, inputs=inputs, **settings)
    n, seed, sigma = manifest.spec.question.n, manifest.seed, settings.get("sigma", 0.25)
    draw = np.random.default_rng(seed)
    votes = np.minimum(n, np.round(n * draw.beta(6.0, 1.0, size=inputs) + 3)).astype(np.int64)
    wrong = draw.random(inputs) < 0.1
    points = [
        _point(k, int(dataset.labels[k]), int(votes[k]), bool(wrong[k]), dataset.num_classes, seed, sigma, n)
        for k in range(inputs)
    ]
    with RunStore.create(out, manifest) as store:
        store.add(points)
    return out


def _point(
    index: int, label: int, votes: int, wrong: bool, classes: int, seed: int, sigma: float, n: int
) -> CertifiedPoint:
    answer = (label + 1) % classes if wrong else label
    p_a = ALPHA ** (1 / n) if votes == n else float(betaincinv(votes, n - votes + 1, ALPHA))
    certified = p_a > 0.5
    counts = np.zeros(classes, dtype=np.int64)
    counts[answer], counts[(answer + 1) % classes] = votes, n - votes
    reason = Reason(ReasonCode.TOO_FEW_VOTES, {"votes": votes, "n": n, "label": answer})
    verdict = Verdict(
        certificate="gaussian",
        prediction=answer if certified else None,
        radius=float(sigma * ndtri(p_a)) if certified else 0.0,
        norm=Norm.L2,
        outcome=Outcome.CERTIFIED if certified else Outcome.ABSTAINED,
        reason=None if certified else reason,
        bounds=Bounds(
            label=answer,
            quantities={Quantity.TOP_LOWER: Bound(p_a, Side.LOWER, ALPHA, Proof.TOP.value)},
            spent={Proof.TOP: ALPHA},
        ),
    )
    tally = Tally(
        stream=StreamId(seed, index, Stage.ESTIMATION), sigma=sigma, counts=counts, invalid=0, ranges=((0, n),)
    )
    return CertifiedPoint(index, label, verdict, sigma, (tally,), 0.01)


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "</style><img src=x onerror=alert(3)>",
    "\"' onmouseover=alert(4) x='",
    "${alert(5)} {{ 7*7 }} {% raise %}",
    "\u202egnp.exe\u2066",
    "😀 עברית",
    "<!-- <svg onload=alert(6)>",
    "&lt;b&gt; datum['run'].x[0] signal('hidden')",
    "a\x00b",
)


def hostile_run(folder: Path, *, name: str = "<img src=x onerror=alert(7)> \"'${}") -> Path:
    """A run over data whose class names and name contain markup and code."""
    file = folder / "data.npz"
    digits = load_dataset("digits")
    pixels = (digits.inputs(slice(0, 40)) * 255).astype(np.uint8)
    np.savez(file, x=pixels, y=digits.labels[:40], class_names=np.array(HOSTILE))
    dataset = load_dataset(str(file))
    assert len(dataset.class_names) == 10
    return made_run(folder / name, dataset, source=str(file), inputs=40, grid=256)
