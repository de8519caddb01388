"""`smoothcert predict`: the answers of the smoothed classifier for a dataset, without radii."""

from __future__ import annotations

from typing import Annotated

import typer

from smoothcert.cli import options as o


def predict(
    context: typer.Context,
    model: o.Model = None,
    weights: o.Weights = None,
    data: o.Data = None,
    sigma: o.Sigma = None,
    sigma_rule: o.SigmaRule = None,
    noise: o.Noise = "gaussian",
    grid: o.Grid = "detect",
    search: o.Search = None,
    sigma_range: o.SigmaRange = None,
    memory: o.Memory = None,
    out: o.Out = None,
    resume: o.Resume = None,
    n: Annotated[int, typer.Option("--n", help="Samples per input.")] = 100_000,
    alpha: o.Alpha = 0.001,
    batch: o.Batch = None,
    skip: o.Skip = 1,
    max_inputs: o.Max = None,
    split: o.Split = "test",
    seed: o.Seed = None,
    arch: o.Arch = None,
    standardise: o.Standardise = None,
    num_classes: o.NumClasses = None,
    input_range: o.InputRange = None,
    input_shape: o.InputShape = None,
    resize: o.Resize = None,
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    backend: o.Backend = None,
    noise_at: o.NoiseAt = "input",
    shared_noise: o.SharedNoise = False,
    workers: o.Workers = None,
    engine: o.Engine = None,
    address: o.Address = None,
    actors: o.Actors = None,
    cpus_per_actor: o.CpusPerActor = None,
    gpus_per_actor: o.GpusPerActor = None,
    as_json: o.Json = False,
) -> None:
    """Predict the classes of a dataset, or abstain. Each voted answer is wrong with probability at most alpha.

    With --memory, an input inside a promised region gets the class of that region, without a vote.
    """
    from smoothcert.cli import spec_options as build
    from smoothcert.cli.running import run_spec
    from smoothcert.runs.resumption import spec_of_run
    from smoothcert.runs.store import read_manifest
    from smoothcert.spec import FixedN, RunSpec

    where = build.EngineOptions(
        engine=engine,
        workers=workers,
        address=address,
        actors=actors,
        cpus_per_actor=cpus_per_actor,
        gpus_per_actor=gpus_per_actor,
    )
    if resume is not None:
        o.check_only_moved(context)
        moved = build.build_moved(
            model=model,
            weights=weights,
            data=data,
            data_root=data_root,
            memory=memory,
            device=device,
            engine=build.build_moved_engine(where, read_manifest(resume).spec.engine),
        )
        run_spec(spec_of_run(resume, task="predict", moved=moved), resume, as_json=as_json)
        return
    model, data = o.require(model=model, data=data, sigma=sigma, sigma_rule=sigma_rule)
    spec = RunSpec(
        task="predict",
        model=build.build_model(
            model,
            arch=arch,
            standardise=standardise,
            num_classes=num_classes,
            backend=backend,
            device=device,
            weights=weights,
        ),
        data=build.build_data(
            data,
            split=split,
            root=data_root,
            input_range=input_range,
            input_shape=input_shape,
            skip=skip,
            max_inputs=max_inputs,
            resize=resize,
        ),
        noise=build.build_noise(noise, grid=grid, noise_at=noise_at, shared=shared_noise),
        sigma=build.build_sigma(sigma, rule=sigma_rule, search=search, sigma_range=sigma_range),
        question=FixedN(n=n),
        alpha=alpha,
        memory=memory,
        seed=seed,
        batch=batch,
        engine=build.build_engine(where),
    )
    run_spec(spec, out or o.default_out("predict", weights or model, data, sigma, sigma_rule), as_json=as_json)
