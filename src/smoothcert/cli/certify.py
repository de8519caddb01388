"""`smoothcert certify`: certified radii for a dataset, in a run directory that can be resumed."""

from __future__ import annotations

from typing import Annotated

import typer

from smoothcert.cli import options as o


def certify(
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
    certificate: o.Certificates = None,
    best_of: o.BestOf = False,
    n0: Annotated[int, typer.Option("--n0", help="Samples that select the class.")] = 100,
    n: Annotated[int, typer.Option("--n", help="Fresh samples that certify it.")] = 100_000,
    decide: o.Decide = None,
    precision: o.Precision = None,
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
    rigorous: o.Rigorous = False,
    workers: o.Workers = None,
    engine: o.Engine = None,
    address: o.Address = None,
    actors: o.Actors = None,
    cpus_per_actor: o.CpusPerActor = None,
    gpus_per_actor: o.GpusPerActor = None,
    as_json: o.Json = False,
) -> None:
    """Certify a model on a dataset.

    The same command resumes an interrupted run; so does `smoothcert certify --resume RUN`.

    The default certificate is the usual one of the noise, such as gaussian; envelope with --sigma-rule and no memory.
    Several --certificate over the same samples are stored side by side, each valid alone at alpha. --best-of shares
    alpha among them, so that the largest radius of each input may be used.

    With --decide or --precision an input is sampled only until its votes have answered; --n is then the maximum.

    With --memory any sigma is allowed: each radius is a region claimed from the memory, in the order of the inputs, and
    holds for as long as the memory is kept.
    """
    from smoothcert.cli import spec_options as build
    from smoothcert.cli.running import run_spec
    from smoothcert.runs.resumption import spec_of_run
    from smoothcert.runs.store import read_manifest
    from smoothcert.spec import RunSpec

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
        run_spec(spec_of_run(resume, task="certify", moved=moved), resume, as_json=as_json)
        return
    model, data = o.require(model=model, data=data, sigma=sigma, sigma_rule=sigma_rule)
    certificates, best_of = build.build_certificates(certificate, best_of=best_of)
    spec = RunSpec(
        task="certify",
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
        question=build.build_question(n=n, n0=n0, decide=decide, precision=precision),
        alpha=alpha,
        certificates=certificates,
        best_of=best_of,
        memory=memory,
        seed=seed,
        batch=batch,
        rigorous=rigorous,
        engine=build.build_engine(where),
    )
    run_spec(spec, out or o.default_out("certify", weights or model, data, sigma, sigma_rule), as_json=as_json)
