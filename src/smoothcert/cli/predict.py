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
    """Predict the classes of a dataset, or abstain; each voted answer is wrong with probability at most alpha.

    With --memory an input inside a promised region is answered with the class of that region, without a vote.
    """
    from smoothcert.cli.running import run_verb

    # The options above are the settings of a job, under the same names.
    run_verb(context, task="predict")
