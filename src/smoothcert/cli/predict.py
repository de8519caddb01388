"""`smoothcert predict`: the smoothed classifier's answers for a dataset, without radii."""

from __future__ import annotations

from typing import Annotated

import typer

from smoothcert.cli import options as o


def predict(
    context: typer.Context,
    model: o.Model = None,
    data: o.Data = None,
    sigma: o.Sigma = None,
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
    data_root: o.DataRoot = None,
    device: o.Device = "auto",
    workers: o.Workers = None,
    as_json: o.Json = False,
) -> None:
    """Predict the classes of a dataset, or abstain; each answer is wrong with probability at most alpha."""
    from smoothcert.cli.running import run_job
    from smoothcert.engines.jobs import Job

    if resume is not None:
        o.check_only_moved(context)
        place = None if data_root is None else str(data_root)
        moved = {"model": model, "data": data, "data_root": place, "workers": workers}
        job = Job.of_run(resume, task="predict", **moved, device=None if device == "auto" else device)
        run_job(job, resume, as_json=as_json)
        return
    model, data, sigma = o.required(model=model, data=data, sigma=sigma)
    job = Job(
        task="predict", model=model, data=data, sigma=sigma, n=n, alpha=alpha,
        batch=batch, skip=skip, max_inputs=max_inputs, split=split, seed=seed, arch=arch, standardise=standardise,
        num_classes=num_classes, input_shape=input_shape,
        input_range=input_range, data_root=None if data_root is None else str(data_root), device=device,
        workers=workers,
    )  # fmt: skip
    run_job(job, out or o.default_out("predict", model, data, sigma), as_json=as_json)
