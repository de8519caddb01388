"""Options of `certify` and `predict` as the parts of a RunSpec."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from smoothcert.cli import options as o
from smoothcert.cli.splitting_options import read_evaluations, settle_question
from smoothcert.data import parse_input_range, parse_resize, parse_shape
from smoothcert.errors import InputError
from smoothcert.models import NOISE_AT, parse_standardisation
from smoothcert.models.backends import check_backend
from smoothcert.models.half_precision import read_dtype
from smoothcert.noise import DETECT, FLOAT, as_noise, parse_grid
from smoothcert.records import Noise
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.sigma import parse_search
from smoothcert.sigma.searches import search_settings
from smoothcert.spec import (
    STD,
    ConstantLevel,
    DataSpec,
    EngineSpec,
    LocalEngineSpec,
    ModelSpec,
    NoiseSpec,
    OptimisedLevel,
    QuestionSpec,
    RayEngineSpec,
    RuleLevel,
    RunSpec,
    SigmaSpec,
    Task,
    make_question,
    spec_dtype,
)

if TYPE_CHECKING:
    from smoothcert.cli.run_options import RunOptions

Scale = tuple[float, ...] | Literal["std"] | None
OPTIMISED, OPTIMISED_TWO_CLASS = "optimised", "optimised-two-class"
"""The names of --sigma-rule that search for the best sigma of every input."""
_FLOAT_SUFFIX = "-float"
"""After the name of a noise, requests that noise in float32; "float" alone is Gaussian noise in float32."""


def build_specs(
    run: RunOptions,
    *,
    task: Task,
    question: QuestionSpec,
    certificates: tuple[str, ...] = (),
    best_of: bool = False,
    rigorous: bool = False,
) -> dict[Path, RunSpec]:
    """The specs of new runs by run directory: one for each level in --sigma, or one for a rule."""
    sigma = run.sigma if run.evaluations is None else run.evaluations
    model, data = o.require(model=run.model, data=run.data, sigma=sigma, sigma_rule=run.sigma_rule)
    levels = read_evaluations(run) or parse_sigmas(run.sigma)
    requested = {"certificates": certificates, "best_of": best_of, "rigorous": rigorous}

    def build(level: float | None) -> RunSpec:
        sigma = _build_level(run, level)
        own, alpha = settle_question(run, question, sigma)
        part = build_part(run, task=task, model=model, question=own, alpha=alpha, sigma=sigma)
        return msgspec.structs.replace(part, **requested)

    specs = {
        _choose_out(run, task, run.weights or model, data, level, several=len(levels) > 1): build(level)
        for level in levels
    }
    if len(specs) < len(levels):
        raise InputError(f"--sigma {run.sigma} has the same level twice, to six digits: give each level once")
    return specs


def build_part(
    run: RunOptions,
    *,
    task: str,
    model: str,
    question: QuestionSpec,
    alpha: float | None = None,
    sigma: SigmaSpec | None = None,
) -> RunSpec:
    """What one run of these options requests, without certificates. sigma: None where that is not known yet.

    alpha: None for that of the options.
    """
    assert run.data is not None
    return RunSpec(
        task=cast(Task, task),
        model=build_model_of(run, model, weights=run.weights),
        data=build_data(
            run.data,
            split=run.split,
            root=run.data_root,
            input_range=run.input_range,
            input_shape=run.input_shape,
            label_column=run.label_column,
            skip=run.skip,
            max_inputs=run.max_inputs,
            resize=run.resize,
        ),
        noise=build_noise(
            run.noise,
            grid=run.grid,
            noise_at=run.noise_at,
            shared=run.shared_noise,
            scale=parse_scale(run.sigma_scale),
        ),
        sigma=ConstantLevel(level=1.0) if sigma is None else sigma,
        question=question,
        alpha=run.alpha if alpha is None else alpha,
        memory=run.memory,
        seed=run.seed,
        batch=run.batch,
        engine=build_engine(list_engine_options(run)),
    )


def build_model_of(run: RunOptions, place: str, *, weights: str | None) -> ModelSpec:
    """The model at this place, with the other options about models."""
    return build_model(
        place,
        arch=run.arch,
        standardise=run.standardise,
        num_classes=run.num_classes,
        backend=run.backend,
        device=run.device,
        weights=weights,
        dtype=run.dtype,
    )


def parse_sigmas(text: str | None) -> list[float | None]:
    """The levels of --sigma, which are one or several; [None] if it was not given."""
    if text is None:
        return [None]
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--sigma {text!r} is invalid: expected a number, or several such as 0.12,0.25,0.5") from error


def _build_level(run: RunOptions, level: float | None) -> SigmaSpec:
    return build_sigma(level, rule=run.sigma_rule, search=run.search, sigma_range=run.sigma_range)


def _choose_out(run: RunOptions, task: Task, model: str, data: str, level: float | None, *, several: bool) -> Path:
    if run.out is None:
        out = o.default_out(task, model, data, level, run.sigma_rule)
        return out if run.sigma_scale is None else out.with_name(f"{out.name}-scaled")
    return run.out / f"sigma-{level:g}" if several else run.out


def build_resumed_spec(path: Path, run: RunOptions, *, task: Task) -> RunSpec:
    """The spec of an existing run, with what may be given again: places, devices and engines."""
    from smoothcert.runs.resumption import Moved, spec_of_run
    from smoothcert.runs.store import read_manifest

    o.check_only_moved(run.context)
    moved = Moved(
        model=run.model,
        selector=run.selector,
        weights=run.weights,
        data=run.data,
        data_root=None if run.data_root is None else str(run.data_root),
        memory=run.memory,
        device=None if run.device == "auto" else run.device,
        engine=build_moved_engine(list_engine_options(run), read_manifest(path).spec.engine),
    )
    return spec_of_run(path, task=task, moved=moved)


def build_model(
    place: str,
    *,
    arch: str | None,
    standardise: str | None,
    num_classes: int | None,
    backend: str | None,
    device: str,
    weights: str | None,
    dtype: str | None = None,
) -> ModelSpec:
    check_backend(backend)
    statistics = parse_standardisation(standardise)
    return ModelSpec(
        place=place,
        arch=arch,
        standardise=None if statistics is None else (tuple(statistics[0]), tuple(statistics[1])),
        num_classes=num_classes,
        backend=cast(Literal["torch", "onnxruntime", "fastest"] | None, backend),
        device=device,
        weights=weights,
        dtype=spec_dtype(read_dtype(dtype)),
    )


def build_data(
    place: str,
    *,
    split: str,
    root: Path | None,
    input_range: str | None,
    input_shape: str | None,
    skip: int,
    max_inputs: int | None,
    label_column: str | None = None,
    resize: str | None = None,
) -> DataSpec:
    size, shorter_side = parse_resize(resize)
    return DataSpec(
        place=place,
        split=split,
        root=None if root is None else str(root),
        input_range=parse_input_range(input_range),
        input_shape=parse_shape(input_shape),
        skip=skip,
        max_inputs=max_inputs,
        resize=size,
        shorter_side=shorter_side,
        label_column=label_column,
    )


def build_noise(noise: str, *, grid: str, noise_at: str, shared: bool, scale: Scale = None) -> NoiseSpec:
    """noise: a kind, or one in float32. grid: detect, float or a number of levels."""
    in_float = noise == FLOAT or noise.endswith(_FLOAT_SUFFIX)
    levels = _parse_grid(grid)
    if in_float and levels not in (DETECT, FLOAT):
        raise InputError(f"--noise {noise} is noise in float32, and --grid {grid} requests exact steps")
    if noise_at not in NOISE_AT:
        raise InputError(f"--noise-at {noise_at} is unknown: use {' or '.join(NOISE_AT)}")
    return NoiseSpec(
        kind=_parse_noise(noise),
        grid=None if in_float or levels == FLOAT else cast(int | Literal["detect"], levels),
        place=cast(Literal["input", "first-layer"], noise_at),
        rounds=noise == Noise.SPLITTING and levels != DETECT,
        shared=shared,
        scale=scale,
    )


def _parse_noise(text: str) -> Noise:
    if text == FLOAT:
        return Noise.GAUSSIAN
    try:
        return as_noise(text.removesuffix(_FLOAT_SUFFIX))
    except InputError as error:
        in_float = [f"{kind}{_FLOAT_SUFFIX}" for kind in Noise if kind.sampled and kind is not Noise.GAUSSIAN]
        raise InputError(f"there is no noise {text!r}: use {', '.join((*Noise, FLOAT, *in_float))}") from error


def parse_scale(text: str | None) -> Scale:
    """The numbers of --sigma-scale, or "std"."""
    if text is None or text == STD:
        return cast(Literal["std"] | None, text)
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--sigma-scale {text!r} is invalid: expected {STD}, or a number for each feature such as 0.1,2,30"
        ) from error
    return FeatureScale(numbers).numbers


def _parse_grid(text: str) -> int | str:
    try:
        return parse_grid(int(text) if text.isdecimal() else text)
    except InputError as error:
        raise InputError(f"--grid {text} is invalid: give {DETECT}, {FLOAT} or a number of levels") from error


def build_sigma(sigma: float | None, *, rule: str | None, search: str | None, sigma_range: str | None) -> SigmaSpec:
    """One level for all inputs, a rule, or a search for the best level of each input."""
    if rule in (OPTIMISED, OPTIMISED_TWO_CLASS):
        return _build_optimised(sigma, rule=rule, search=search, sigma_range=sigma_range)
    for option, given in (("--search", search), ("--sigma-range", sigma_range)):
        if given is not None:
            raise InputError(f"{option} is about the search for the best sigma: it needs --sigma-rule {OPTIMISED}")
    if rule is not None and rule.startswith("optimi"):
        raise InputError(f"there is no rule {rule!r}: use {OPTIMISED} or {OPTIMISED_TWO_CLASS}")
    if sigma is not None and rule is None:
        return ConstantLevel(level=sigma)
    if rule is not None and sigma is None:
        return RuleLevel(place=rule)
    raise InputError("give either --sigma, one level for all inputs, or --sigma-rule, a level for each input")


def _build_optimised(sigma: float | None, *, rule: str, search: str | None, sigma_range: str | None) -> OptimisedLevel:
    if sigma is None:
        raise InputError(
            f"--sigma-rule {rule} also needs --sigma, where the search begins: the level the model was trained with"
        )
    least, most = _parse_sigma_range(sigma_range)
    chosen = parse_search("ascent" if search is None else search)
    return OptimisedLevel(
        start=sigma,
        search=chosen.name,
        settings=search_settings(chosen),
        least=least,
        most=most,
        two_class=rule == OPTIMISED_TWO_CLASS,
    )


def _parse_sigma_range(text: str | None) -> tuple[float | None, float | None]:
    if text is None:
        return None, None
    try:
        least, most = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--sigma-range {text!r} is invalid: expected LEAST,MOST, as in 0.1,1.0") from error
    return least, most


def build_question(*, n: int, n0: int, decide: str | None, precision: float | None) -> QuestionSpec:
    if decide is None:
        return make_question(n=n, n0=n0, precision=precision)
    try:
        radii = [float(part) for part in decide.split(",")]
    except ValueError as error:
        raise InputError(f"--decide {decide!r} is invalid: expected radii such as 0.25,0.5,0.75") from error
    return make_question(n=n, n0=n0, decide=radii, precision=precision)


def build_certificates(names: list[str] | None, *, best_of: bool) -> tuple[tuple[str, ...], bool]:
    """The names of the certificates, and whether the best of them is taken; no names for the usual certificate."""
    from smoothcert.certificates import get_portfolio

    if best_of and not names:
        raise InputError("--best-of chooses among several certificates: name them by --certificate")
    if not names:
        return (), False
    portfolio = get_portfolio(names, best_of=best_of)
    return tuple(one.name for one in portfolio.certificates), portfolio.best_of


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options about where samples are drawn; None for those that were not given."""

    engine: str | None
    workers: int | None
    address: str | None
    actors: int | None
    cpus_per_actor: float | None
    gpus_per_actor: float | None

    @property
    def of_cluster(self) -> dict[str, str | int | float]:
        """Those that were given and are about a cluster."""
        named = {
            "address": self.address, "actors": self.actors, "cpus_per_actor": self.cpus_per_actor,
            "gpus_per_actor": self.gpus_per_actor,
        }  # fmt: skip
        return {name: value for name, value in named.items() if value is not None}


def list_engine_options(run: RunOptions) -> EngineOptions:
    return EngineOptions(
        engine=run.engine,
        workers=run.workers,
        address=run.address,
        actors=run.actors,
        cpus_per_actor=run.cpus_per_actor,
        gpus_per_actor=run.gpus_per_actor,
    )


def build_engine(options: EngineOptions) -> EngineSpec:
    match options.engine:
        case None | "local":
            if options.of_cluster:
                name = next(iter(options.of_cluster)).replace("_", "-")
                raise InputError(f"--{name} is about a cluster: it needs --engine ray")
            return LocalEngineSpec(workers=options.workers)
        case "ray":
            if options.workers is not None:
                raise InputError("--workers are threads of this process; with --engine ray give --actors")
            return msgspec.structs.replace(RayEngineSpec(), **options.of_cluster)
        case _:
            raise InputError(f"--engine {options.engine} is unknown: use local or ray")


def build_moved_engine(options: EngineOptions, recorded: EngineSpec) -> EngineSpec:
    """The engine that resumes a run. Options that are not given keep their value, unless it is another engine."""
    kind = options.engine or ("ray" if isinstance(recorded, RayEngineSpec) else "local")
    engine = build_engine(replace(options, engine=kind))
    if type(engine) is not type(recorded):
        return engine
    given = options.of_cluster if options.workers is None else {"workers": options.workers}
    return msgspec.structs.replace(recorded, **given)
