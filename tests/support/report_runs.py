"""Runs with made-up votes, stored as real ones are: quick to make, of any size and with any names."""

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
    Norm,
    Outcome,
    Proof,
    Quantity,
    RunManifest,
    Side,
    Stage,
    StreamId,
    Tally,
    Verdict,
)
from smoothcert.runs.store import RunStore

ALPHA = 0.001


def made_run(
    out: Path,
    dataset: Dataset,
    *,
    source: str,
    inputs: int,
    seed: int = 0,
    sigma: float = 0.25,
    n: int = 1000,
    **changed: Any,
) -> Path:
    """A finished run over the first inputs of a dataset. source: its name or path. changed: parameters to set or, by
    None, to leave out."""
    parameters: dict[str, Any] = {
        "n": n,
        "n0": 100,
        "alpha": ALPHA,
        "inputs": inputs,
        "split": "test",
        "sigma": sigma,
        "noise": "gaussian in exact steps of 1/16",
        "grid": 17,
        "certificate": "gaussian",
        "independent_noise": True,
        **changed,
    }
    manifest = RunManifest(
        task="certify",
        parameters={key: value for key, value in parameters.items() if value is not None},
        model={"digest": "0" * 64, "backend": "made up", "num_classes": dataset.num_classes},
        data={"digest": dataset.digest, "input_shape": list(dataset.input_shape), "levels": dataset.levels},
        seed=seed,
        environment={"python": "3"},
        code="0" * 64,
        extra={"data": dataset.name, "model": "made up", "job": {"data": source, "split": "test"}},
    )
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
    verdict = Verdict(
        certificate="gaussian",
        prediction=answer if certified else None,
        radius=float(sigma * ndtri(p_a)) if certified else 0.0,
        norm=Norm.L2,
        outcome=Outcome.CERTIFIED if certified else Outcome.ABSTAINED,
        reason="" if certified else f"{votes} of {n} votes prove nothing",
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
    """A run over data whose class names, and whose own name, try to be more than text."""
    file = folder / "data.npz"
    digits = load_dataset("digits")
    pixels = (digits.inputs(slice(0, 40)) * 255).astype(np.uint8)
    np.savez(file, x=pixels, y=digits.labels[:40], class_names=np.array(HOSTILE))
    dataset = load_dataset(str(file))
    assert len(dataset.class_names) == 10
    return made_run(folder / name, dataset, source=str(file), inputs=40, grid=256)
