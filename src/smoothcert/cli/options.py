"""Options that several verbs share, in the panels in which --help shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from smoothcert.errors import InputError
from smoothcert.settings_text import whole_number

WHAT, NOISE, TRAINING, ATTACK, CERTIFICATE = "What", "Noise", "Training", "Attack", "Certificate"
SAMPLING, ENGINE, OUTPUT, RARE, SELECTOR = "Sampling", "Engine", "Output", "Rarely needed", "Selector"
PANELS = (None, WHAT, NOISE, TRAINING, ATTACK, CERTIFICATE, SAMPLING, ENGINE, OUTPUT, RARE, SELECTOR)
"""The panels of --help, in order. Options of small commands are in no panel."""


def parse_count(text: object) -> int:
    """A whole number, also as 1e5 or 100_000."""
    try:
        return int(text) if isinstance(text, str) and text.isdecimal() else whole_number(text, name="the value")
    except InputError as error:
        raise typer.BadParameter(str(error)) from error


def count(name: str, help: str, *, panel: str | None = None) -> Any:
    """An option that takes a whole number."""
    return typer.Option(name, parser=parse_count, metavar="N", rich_help_panel=panel, help=help)


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """Shell completion of an option by these words. Shells complete file names where no word fits."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def complete_data(incomplete: str) -> list[str]:
    """Shell completion by the names of datasets; this imports no numpy."""
    from smoothcert.data import list_datasets

    return complete_words(*(info.entry.name for info in list_datasets()))(incomplete)


def complete_noises(incomplete: str) -> list[str]:
    """Shell completion by the names of noises; this imports numpy."""
    from smoothcert.records import Noise

    return complete_words(*Noise, "float")(incomplete)


def complete_certificates(incomplete: str) -> list[str]:
    """Shell completion by the names of certificates; this imports numpy and scipy, but not torch."""
    from smoothcert.certificates import CERTIFICATES

    return complete_words(*CERTIFICATES)(incomplete)


Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        rich_help_panel=WHAT,
        help="A .safetensors, .onnx or .pth file, zoo:NAME, or package.module:attribute.",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        rich_help_panel=RARE,
        help="The state_dict of a network in your own code, as in --model mynet:Net --weights net.pt.",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        rich_help_panel=WHAT,
        autocompletion=complete_data,
        help="A dataset (see `data list`) or a file.",
    ),
]
Max = Annotated[
    int | None,
    count("--max", "At most this many inputs, after --skip (Cohen's code: an index).", panel=WHAT),
]
Skip = Annotated[int, typer.Option("--skip", rich_help_panel=WHAT, help="Use every SKIP-th input.")]
Sigma = Annotated[
    str | None,
    typer.Option(
        "--sigma",
        metavar="S[,S...]",
        rich_help_panel=NOISE,
        help="Noise level, in units of the input; several: one run each.",
    ),
]
SigmaRule = Annotated[
    str | None,
    typer.Option(
        "--sigma-rule",
        rich_help_panel=NOISE,
        autocompletion=complete_words("optimised", "optimised-two-class"),
        help="A level for each input: a file by sigma fit/train or selector train, code, or optimised (see --search).",
    ),
]
SigmaScale = Annotated[
    str | None,
    typer.Option(
        "--sigma-scale",
        metavar="std|S,S,...",
        rich_help_panel=RARE,
        help="For tables: feature j gets the level sigma*S_j, and radii are in the scaled norm, of x/S. std: the "
        "standard deviations of the training part; or a number for each feature.",
    ),
]
NOISES = "gaussian; uniform, splitting (l1 norm)"
"""Written out: --help loads neither numpy nor the noise laws. `tests/noise/test_every_noise.py` compares them."""
Noise = Annotated[
    str,
    typer.Option(
        "--noise",
        rich_help_panel=NOISE,
        autocompletion=complete_noises,
        help=f"{NOISES}.",
    ),
]
Grid = Annotated[
    str,
    typer.Option(
        "--grid",
        rich_help_panel=RARE,
        autocompletion=complete_words("detect", "float", "256"),
        help="Inputs on a grid (8-bit images) get noise in exact steps. detect: steps of the levels of the data, or of "
        "the 256 or 65536 levels that all its values lie on. A number sets the levels. float adds noise in float32, "
        "which is not sound in floating point; so do --noise float and --noise uniform-float.",
    ),
]
Search = Annotated[
    str | None,
    typer.Option(
        "--search",
        rich_help_panel=RARE,
        autocompletion=complete_words("ascent", "grid", "signs"),
        help="How --sigma-rule optimised searches for the best level, starting at --sigma: ascent, grid or signs, with "
        "settings as in ascent:steps=100,noises=8. The rule optimised-two-class is for a two-class certificate.",
    ),
]
SigmaRange = Annotated[
    str | None,
    typer.Option(
        "--sigma-range",
        metavar="LEAST,MOST",
        rich_help_panel=RARE,
        help="The range of this search (default: sigma/4,4*sigma).",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        rich_help_panel=RARE,
        help="Where promised regions are kept, which makes any sigma sound: an SQLite file or a postgresql:// URL. "
        "Each radius is a region claimed in the order of the inputs, and holds for as long as the memory is kept.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", rich_help_panel=OUTPUT, help="The run directory (default: runs/…)."),
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", rich_help_panel=OUTPUT, help="Resume this run; all settings come from it."),
]
Alpha = Annotated[
    float,
    typer.Option("--alpha", rich_help_panel=SAMPLING, help="Probability of a wrong statement, per input."),
]
Certificates = Annotated[
    list[str] | None,
    typer.Option(
        "--certificate",
        metavar="NAME",
        show_default=False,
        rich_help_panel=CERTIFICATE,
        autocompletion=complete_certificates,
        help="gaussian, dipole, second-order, envelope, lipschitz, uniform-l1, splitting-l1, lecuyer, li, renyi; "
        "forms: see below. Can be repeated.",
    ),
]
CERTIFICATE_FORMS = (
    "Certificates: gaussian[-two-class], gaussian-soft[-two-class][-bernstein], dipole[-separate|-multi-class], "
    "second-order[-pairs|-multi-class], envelope[-two-class], envelope-soft[-two-class][-bernstein], "
    "lipschitz[-two-class], uniform-l1[-two-class], uniform-l1-soft[-two-class][-bernstein], splitting-l1, "
    "lecuyer[-two-class], li[-two-class], renyi[-two-class]. soft is for mean scores instead of votes; envelope and "
    "lipschitz are for a sigma rule, uniform-l1 and splitting-l1 for the noise of that name; lecuyer, li and renyi are "
    "baselines. Several certificates of the same samples are stored side by side, each valid alone at alpha; --best-of "
    "shares alpha among them, so that the largest radius of each input may be used."
)
"""The end of the help of `certify` and `recertify`."""
BestOf = Annotated[
    bool,
    typer.Option(
        "--best-of",
        rich_help_panel=CERTIFICATE,
        help="Take the best of several --certificate, which share alpha.",
    ),
]
Decide = Annotated[
    str | None,
    typer.Option(
        "--decide",
        metavar="R[,R...]",
        rich_help_panel=SAMPLING,
        help="Sample, at most --n times, until it is known whether radius ≥ R.",
    ),
]
Precision = Annotated[
    float | None,
    typer.Option(
        "--precision",
        metavar="E",
        rich_help_panel=SAMPLING,
        help="Sample, at most --n times, until the radius is known to within E.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", rich_help_panel=SAMPLING, help="Seed of all noise (default: random, recorded)."),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", rich_help_panel=RARE, help="Samples classified at once (default: chosen by a short measurement)."
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split", rich_help_panel=RARE, autocompletion=complete_words("train", "test"), help="train or test."
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        "--arch",
        rich_help_panel=RARE,
        help="Architecture, if the model file does not state it; package.module:attribute (imported and run) for "
        "weights of your own network.",
    ),
]
Standardise = Annotated[
    str | None,
    typer.Option(
        "--standardise",
        metavar="MEAN/STD",
        rich_help_panel=RARE,
        help="MEAN/STD of the first layer, or none, if the model file does not state it.",
    ),
]
InputShape = Annotated[
    str | None,
    typer.Option(
        "--input-shape",
        rich_help_panel=RARE,
        help="Shape of one input in your file, such as 1,8,8 for a csv of images. Images of a folder are resized to "
        "it; 1 channel is grey, 3 are RGB.",
    ),
]
Resize = Annotated[
    str | None,
    typer.Option(
        "--resize",
        rich_help_panel=RARE,
        help="HEIGHT,WIDTH that the images of a folder are resized to (default: their own size), or SHORTER:SIDE: "
        "256:224 resizes the shorter side to 256 and takes the centre of 224x224.",
    ),
]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        rich_help_panel=RARE,
        help="Column of the labels in your csv file, if not label, target, class or y.",
    ),
]
NumClasses = Annotated[
    int | None,
    typer.Option("--num-classes", rich_help_panel=RARE, help="Number of classes, if the model does not state it."),
]
InputRange = Annotated[
    str | None,
    typer.Option(
        "--input-range",
        metavar="LOW,HIGH",
        rich_help_panel=RARE,
        help="LOW,HIGH that the inputs must lie in, or 'any' (default: 0,1).",
    ),
]
DataRoot = Annotated[
    Path | None, typer.Option("--data-root", rich_help_panel=RARE, help="The folder of downloaded datasets.")
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        rich_help_panel=ENGINE,
        autocompletion=complete_words("auto", "cpu", "cuda", "mps"),
        help="auto, cpu, cuda, cuda:1, mps.",
    ),
]
NoiseAt = Annotated[
    str,
    typer.Option(
        "--noise-at",
        rich_help_panel=RARE,
        autocompletion=complete_words("input", "first-layer"),
        help="first-layer draws the noise in the output of a linear first layer, by its exact law: faster if that "
        "layer is narrower than the input.",
    ),
]
SharedNoise = Annotated[
    bool,
    typer.Option(
        "--shared-noise",
        rich_help_panel=RARE,
        help="Use the same noise for all inputs: faster for small networks, but no bounds for a whole test set.",
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        rich_help_panel=RARE,
        autocompletion=complete_words("torch", "onnxruntime", "fastest"),
        help="What computes a torch model: torch (default), onnxruntime, or fastest, by a short measurement. It is "
        "part of what is certified.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        rich_help_panel=RARE,
        autocompletion=complete_words("bfloat16", "float16"),
        help="Compute a float32 torch model in bfloat16 or float16, by torch.autocast (default: the precision of the "
        "model). It is part of what is certified.",
    ),
]
Rigorous = Annotated[
    bool,
    typer.Option(
        "--rigorous",
        rich_help_panel=RARE,
        help="Confirm every bound and radius in ball arithmetic, by the checker of `smoothcert verify`, before it is "
        "stored.",
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", rich_help_panel=ENGINE, help="Threads (default: one per core).")
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        rich_help_panel=RARE,
        autocompletion=complete_words("local", "ray"),
        help="Where samples are drawn: local (default), in this process, or ray, on a cluster.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        rich_help_panel=RARE,
        help="Address of the Ray cluster: HOST:PORT, or auto for the cluster of this machine (default: start Ray).",
    ),
]
Actors = Annotated[
    int | None,
    typer.Option(
        "--actors", rich_help_panel=RARE, help="Number of Ray actors (default: as many as the cluster has room for)."
    ),
]
CpusPerActor = Annotated[
    float | None, typer.Option("--cpus-per-actor", rich_help_panel=RARE, help="CPUs per Ray actor (default: 1).")
]
GpusPerActor = Annotated[
    float | None,
    typer.Option("--gpus-per-actor", rich_help_panel=RARE, help="GPUs per Ray actor, can be a fraction (default: 0)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
JsonOutput = Annotated[bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Print the result as JSON.")]


_PLACES = ("model", "selector", "weights", "data", "data_root", "memory")
_ENGINE = ("workers", "engine", "address", "actors", "cpus_per_actor", "gpus_per_actor")
_MAY_CHANGE_ON_RESUME = {"resume", "device", "as_json", *_PLACES, *_ENGINE}
"""Settings that do not change a result, and may be given again with --resume."""


def is_given(context: typer.Context, name: str) -> bool:
    return str(context.get_parameter_source(name)).endswith("COMMANDLINE")


def check_only_moved(context: typer.Context) -> None:
    """With --resume the settings come from the run; only places, devices and engines may be given."""
    for name in context.params:
        if is_given(context, name) and name not in _MAY_CHANGE_ON_RESUME:
            option = {"max_inputs": "max"}.get(name, name.replace("_", "-"))
            raise InputError(f"--resume takes all settings from the run: leave --{option} out")


def require(*, model: str | None, data: str | None, sigma: str | None, sigma_rule: str | None) -> tuple[str, str]:
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
