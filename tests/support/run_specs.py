"""Run specs from flat settings, as the options of the command line give them, and runs made from them."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

from smoothcert.cli import spec_options as build
from smoothcert.records import CertifiedPoint, Promise
from smoothcert.runs.execution import execute_run, prepare_run
from smoothcert.runs.resumption import Moved, spec_of_run
from smoothcert.spec import FixedN, LocalEngineSpec, RunSpec, Task


def make_spec(
    *,
    task: str = "certify",
    model: str,
    data: str,
    n: int,
    alpha: float,
    n0: int | None = None,
    sigma: float | None = None,
    sigma_rule: str | None = None,
    noise: str = "gaussian",
    grid: str = "detect",
    search: str | None = None,
    sigma_range: str | None = None,
    memory: str | None = None,
    certificate: str | None = None,
    decide: str | None = None,
    precision: float | None = None,
    split: str = "test",
    skip: int = 1,
    max_inputs: int | None = None,
    seed: int | None = None,
    batch: int | None = None,
    arch: str | None = None,
    standardise: str | None = None,
    num_classes: int | None = None,
    input_range: str | None = None,
    input_shape: str | None = None,
    resize: str | None = None,
    weights: str | None = None,
    data_root: str | None = None,
    device: str = "auto",
    backend: str | None = None,
    dtype: str | None = None,
    noise_at: str = "input",
    shared_noise: bool = False,
    rigorous: bool = False,
    workers: int | None = None,
    engine: str | None = None,
    address: str | None = None,
    actors: int | None = None,
    cpus_per_actor: float | None = None,
    gpus_per_actor: float | None = None,
) -> RunSpec:
    """The spec that the command line builds from these options."""
    names, best_of = build.build_certificates(None if certificate is None else [certificate], best_of=False)
    if task == "predict":
        question: Any = FixedN(n=n)
    else:
        question = build.build_question(n=n, n0=100 if n0 is None else n0, decide=decide, precision=precision)
    return RunSpec(
        task=task,  # type: ignore[arg-type]
        model=build.build_model(
            model,
            arch=arch,
            standardise=standardise,
            num_classes=num_classes,
            backend=backend,
            device=device,
            weights=weights,
            dtype=dtype,
        ),
        data=build.build_data(
            data,
            split=split,
            root=None if data_root is None else Path(data_root),
            input_range=input_range,
            input_shape=input_shape,
            skip=skip,
            max_inputs=max_inputs,
            resize=resize,
        ),
        noise=build.build_noise(noise, grid=grid, noise_at=noise_at, shared=shared_noise),
        sigma=build.build_sigma(sigma, rule=sigma_rule, search=search, sigma_range=sigma_range),
        question=question,
        alpha=alpha,
        certificates=names,
        best_of=best_of,
        memory=memory,
        seed=seed,
        batch=batch,
        rigorous=rigorous,
        engine=build.build_engine(
            build.EngineOptions(
                engine=engine,
                workers=workers,
                address=address,
                actors=actors,
                cpus_per_actor=cpus_per_actor,
                gpus_per_actor=gpus_per_actor,
            )
        ),
    )


def resumed_spec(run: Path, *, task: Task = "certify", workers: int | None = None, **moved: Any) -> RunSpec:
    """The spec of an existing run, as --resume takes it, with what was moved."""
    if workers is not None:
        moved["engine"] = LocalEngineSpec(workers=workers)
    return spec_of_run(run, task=task, moved=Moved(**moved))


def without_times(points: list[CertifiedPoint]) -> list[CertifiedPoint]:
    """The points without what differs between two equal runs: seconds, and which log keeps promises."""
    return [dataclasses.replace(point, seconds=0.0, promise=_without_log(point.promise)) for point in points]


def _without_log(promise: Promise | None) -> Promise | None:
    return None if promise is None else dataclasses.replace(promise, memory="", entry="")


def finish_run(spec: RunSpec, out: Path, *, stop_after: int | None = None) -> list[CertifiedPoint]:
    """Execute the run to its end, or until this many shards are stored."""
    stop = threading.Event()
    shards = 0

    def on_shard(_: list[CertifiedPoint]) -> None:
        nonlocal shards
        shards += 1
        if shards == stop_after:
            stop.set()

    with prepare_run(spec, out) as run:
        execute_run(run, stop=stop, on_shard=on_shard)
        return without_times(run.store.points())
