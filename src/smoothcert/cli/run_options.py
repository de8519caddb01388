"""The options that `certify` and `predict` share, as one value, and the flat signature that typer needs."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

import typer

from smoothcert.cli import options as o
from smoothcert.cli import selector_options as s
from smoothcert.cli import splitting_options as e

OwnOptions = ParamSpec("OwnOptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What both verbs can be given. Each field is an option; `spec_options.build_specs` uses them."""

    context: typer.Context
    model: o.Model = None
    data: o.Data = None
    max_inputs: o.Max = None
    skip: o.Skip = 1
    sigma: o.Sigma = None
    sigma_rule: o.SigmaRule = None
    sigma_scale: o.SigmaScale = None
    noise: o.Noise = "gaussian"
    alpha: o.Alpha = 0.001
    seed: o.Seed = None
    device: o.Device = "auto"
    workers: o.Workers = None
    out: o.Out = None
    resume: o.Resume = None
    as_json: o.JsonOutput = False
    split: o.Split = "test"
    input_range: o.InputRange = None
    input_shape: o.InputShape = None
    resize: o.Resize = None
    label_column: o.LabelColumn = None
    data_root: o.DataRoot = None
    weights: o.Weights = None
    arch: o.Arch = None
    standardise: o.Standardise = None
    num_classes: o.NumClasses = None
    backend: o.Backend = None
    dtype: o.Dtype = None
    memory: o.Memory = None
    search: o.Search = None
    sigma_range: o.SigmaRange = None
    grid: o.Grid = "detect"
    evaluations: e.Evaluations = None
    noise_at: o.NoiseAt = "input"
    shared_noise: o.SharedNoise = False
    batch: o.Batch = None
    engine: o.Engine = None
    address: o.Address = None
    actors: o.Actors = None
    cpus_per_actor: o.CpusPerActor = None
    gpus_per_actor: o.GpusPerActor = None
    selector: s.Selector = None
    levels: s.Levels = None
    selector_sigma: s.SelectorSigma = None
    selector_n: s.SelectorN = None
    selector_alpha: s.SelectorAlpha = None
    sampled_levels: s.SampledLevels = None
    selector_bounds: s.SelectorBoundsOption = None


def with_run_options(verb: Callable[Concatenate[RunOptions, OwnOptions], None]) -> Callable[..., None]:
    """The verb with every field of RunOptions as an option of its own, because typer reads flat signatures only."""
    hints = typing.get_type_hints(RunOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(RunOptions)
    ]
    _, *own = inspect.signature(verb, eval_str=True).parameters.values()
    call_verb: Callable[..., None] = verb

    @functools.wraps(verb)
    def flat_verb(**values: Any) -> None:
        options = RunOptions(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        call_verb(options, **values)

    flat = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    flat_verb.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return flat_verb
