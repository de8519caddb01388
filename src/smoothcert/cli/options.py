"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smoothcert.errors import InputError

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="The model, required for a new run: a .safetensors, .onnx or .pth file, or package.module:attribute.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="The weights of a network in your own code: a .pt, .pth or .safetensors file with its state_dict, as in "
        "--model mynet:Net --weights net.pt.",
    ),
]
Data = Annotated[
    str | None, typer.Option("--data", help="The data, required for a new run: a dataset (see `data list`) or a file.")
]
Sigma = Annotated[
    float | None,
    typer.Option(
        "--sigma",
        help="Noise level in the units of the input. A new run needs --sigma or --sigma-rule; 'optimised' needs both.",
    ),
]
SigmaRule = Annotated[
    str | None,
    typer.Option(
        "--sigma-rule",
        help="A noise level for each input: a file made by `sigma fit` or `sigma train`, package.module:attribute, or "
        "'optimised', which searches for the best level of each input, starting at --sigma ('optimised-two-class': "
        "for a two-class certificate).",
    ),
]
NOISES = "gaussian, or uniform: --sigma is then the half-width, and radii are in the l1 norm"
"""Written out: --help loads neither numpy nor the noise laws. `tests/noise/test_every_noise.py` compares them."""
Noise = Annotated[
    str,
    typer.Option(
        "--noise",
        help=f"{NOISES}. Inputs on a grid (8-bit images) get noise in exact steps. float and NAME-float, such as "
        "uniform-float, add it in float32, which is not sound in floating point.",
    ),
]
Grid = Annotated[
    str,
    typer.Option(
        "--grid",
        help="detect: add noise in steps of the levels of the data, or of the 256 or 65536 levels that all its values "
        "lie on. A number sets the levels; float adds noise in float32.",
    ),
]
Search = Annotated[
    str | None,
    typer.Option(
        "--search",
        help="How 'optimised' searches: ascent, grid or signs, with settings as in ascent:steps=100,noises=8.",
    ),
]
SigmaRange = Annotated[
    str | None,
    typer.Option("--sigma-range", help="LEAST,MOST: the range of 'optimised' (default: sigma/4,4*sigma)."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        help="Where promised regions are kept, which makes any sigma sound: an SQLite file or a postgresql:// URL.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run directory (default: runs/…).")]
Resume = Annotated[Path | None, typer.Option("--resume", help="Resume this run; all settings come from it.")]
Alpha = Annotated[float, typer.Option("--alpha", help="Probability that the statement about one input is wrong.")]
Certificates = Annotated[
    list[str] | None,
    typer.Option(
        "--certificate",
        show_default=False,
        help="gaussian[-two-class], dipole[-separate|-multi-class], second-order[-pairs|-multi-class]; with "
        "--sigma-rule envelope[-two-class], lipschitz[-two-class]; for mean scores instead of votes "
        "{gaussian,envelope}-soft[-two-class]; with uniform noise uniform-l1[-soft][-two-class]; or a baseline: "
        "lecuyer, li, renyi [-two-class]. Can be repeated.",
    ),
]
BestOf = Annotated[
    bool, typer.Option("--best-of", help="Take the best of several --certificate; alpha is shared among them.")
]
Decide = Annotated[
    str | None,
    typer.Option(
        "--decide",
        metavar="R[,R...]",
        help="Decide only whether the radius is at least R, and stop sampling an input when that is known.",
    ),
]
Precision = Annotated[
    float | None,
    typer.Option(
        "--precision", metavar="E", help="Stop sampling an input when less than E could be added to its radius."
    ),
]
Batch = Annotated[
    int | None, typer.Option("--batch", help="Samples classified at once (default: chosen by a short measurement).")
]
Skip = Annotated[int, typer.Option("--skip", help="Use every SKIP-th input.")]
Max = Annotated[
    int | None,
    typer.Option(
        "--max",
        help="Use at most MAX inputs, counted after --skip. (In the code of Cohen et al. --max is a position in the "
        "dataset: --skip 20 --max 500 there is --skip 20 --max 25 here.)",
    ),
]
Split = Annotated[str, typer.Option("--split", help="train or test.")]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Seed of all noise (default: from the operating system, recorded).")
]
Arch = Annotated[
    str | None,
    typer.Option(
        "--arch",
        help="Architecture, if the model file does not state it, or package.module:attribute for weights of your own "
        "network (imported and run).",
    ),
]
Standardise = Annotated[
    str | None,
    typer.Option("--standardise", help="MEAN/STD of the first layer, or none, if the model file does not state it."),
]
InputShape = Annotated[
    str | None,
    typer.Option(
        "--input-shape",
        help="Shape of one input in your file, such as 1,8,8 for a csv of images. Images of a folder are resized to "
        "it; 1 channel is grey, 3 are RGB.",
    ),
]
Resize = Annotated[
    str | None,
    typer.Option(
        "--resize",
        help="HEIGHT,WIDTH that the images of a folder are resized to (default: their own size), or SHORTER:SIDE: "
        "256:224 resizes the shorter side to 256 and takes the centre of 224x224.",
    ),
]
NumClasses = Annotated[
    int | None, typer.Option("--num-classes", help="Number of classes, if the model does not state it.")
]
InputRange = Annotated[
    str | None, typer.Option("--input-range", help="LOW,HIGH that the inputs must lie in, or 'any' (default: 0,1).")
]
DataRoot = Annotated[Path | None, typer.Option("--data-root", help="The folder of downloaded datasets.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps.")]
NoiseAt = Annotated[
    str,
    typer.Option(
        "--noise-at",
        help="first-layer draws the noise in the output of a linear first layer, by its exact law: faster if that "
        "layer is narrower than the input.",
    ),
]
SharedNoise = Annotated[
    bool,
    typer.Option(
        "--shared-noise",
        help="Use the same noise for all inputs: faster for small networks, but no bounds for a whole test set.",
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help="What computes a torch model: torch (default), onnxruntime, or fastest, by a short measurement. It is "
        "part of what is certified.",
    ),
]
Rigorous = Annotated[
    bool,
    typer.Option(
        "--rigorous",
        help="Confirm every bound and radius in ball arithmetic, by the checker of `smoothcert verify`, before it is "
        "stored.",
    ),
]
Workers = Annotated[int | None, typer.Option("--workers", help="Threads (default: one per core).")]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="Where samples are drawn: local (default), in this process, or ray, on a cluster."),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Address of the Ray cluster: HOST:PORT, or auto for the cluster of this machine (default: start Ray).",
    ),
]
Actors = Annotated[
    int | None,
    typer.Option("--actors", help="Number of Ray actors (default: as many as the cluster has room for)."),
]
CpusPerActor = Annotated[float | None, typer.Option("--cpus-per-actor", help="CPUs per Ray actor (default: 1).")]
GpusPerActor = Annotated[
    float | None, typer.Option("--gpus-per-actor", help="GPUs per Ray actor, can be a fraction (default: 0).")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


_ENGINE = ("workers", "engine", "address", "actors", "cpus_per_actor", "gpus_per_actor")
_MAY_CHANGE_ON_RESUME = {"resume", "device", "as_json", "model", "weights", "data", "data_root", "memory", *_ENGINE}
"""Settings that do not change a result, and may be given again with --resume."""


def _is_given(context: typer.Context, name: str) -> bool:
    return str(context.get_parameter_source(name)).endswith("COMMANDLINE")


def check_only_moved(context: typer.Context) -> None:
    """With --resume the settings come from the run; only places, devices and engines may be given."""
    for name in context.params:
        if _is_given(context, name) and name not in _MAY_CHANGE_ON_RESUME:
            option = {"max_inputs": "max"}.get(name, name.replace("_", "-"))
            raise InputError(f"--resume takes all settings from the run: leave --{option} out")


def require(*, model: str | None, data: str | None, sigma: float | None, sigma_rule: str | None) -> tuple[str, str]:
    """Model and data, which a new run needs, as it needs a noise level."""
    noise = sigma_rule if sigma is None else sigma
    if model is None or data is None or noise is None:
        given = (("--model", model), ("--data", data), ("--sigma (or --sigma-rule)", noise))
        missing = [name for name, value in given if value is None]
        raise InputError(f"a new run needs {', '.join(missing)}; to resume an existing one give --resume RUN")
    return model, data


def default_out(task: str, model: str, data: str, sigma: float | None, sigma_rule: str | None) -> Path:
    """A run directory named after what is in it; for a search for sigma also after where it begins."""
    level = "" if sigma is None else f"{sigma:g}"
    rule = "" if sigma_rule is None else _stem(f"{sigma_rule}-{level}" if level else sigma_rule)
    return Path("runs") / f"{task}-{Path(data).stem}-{_stem(model)}-sigma-{rule or level}"


def _stem(place: str) -> str:
    """The name without file endings; digits after a point, as in lenet-0.12, are not an ending."""
    name = Path(place.replace(":", "-")).name
    while (suffix := Path(name).suffix) and not suffix[1:].isdigit():
        name = name.removesuffix(suffix)
    return name or "model"
