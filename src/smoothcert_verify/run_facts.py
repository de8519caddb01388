"""A manifest: whether it is well formed and agrees with itself, and what it says of inputs and smoothing.

Functions that check return sentences, one for each discrepancy.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from smoothcert_verify import catalogue
from smoothcert_verify.reading import Document
from smoothcert_verify.sentences import MALFORMED, is_hexadecimal, shown, told

SCHEMA = 2
TASKS = ("certify", "predict", "recertify")

_MOST_SEED = 2**128
_MOST_INPUTS = 2**32
_NEARLY_ALL = 1 - 1e-9
"""Of α that a split must add up to."""

_OF_THE_SAMPLES = (
    "sigma", "sigma_rule", "envelope", "noise", "grid", "generator", "independent_noise", "n0", "skip", "max", "inputs",
    "split", "batch", "decide", "precision", "memory",
)  # fmt: skip
"""What recertify cannot change, because it draws nothing: also the question that ended the sampling. Bounds for a fixed
number of samples do not hold for votes that somebody looked at before he stopped."""

_GRID_GENERATOR, _FLOAT_GENERATOR = "chacha20", "philox4x32-10"
_AT_THE_INPUT = "input"
_FLOAT_WORDS = (
    "float32",
    "float32, not sound in floating point",
    "float32, in the first layer, not sound in floating point",
)
"""How noise on no grid is called; before there was exact noise, all of it was called just float32."""
_DETECT = "detect"
"""The levels of the data, in a manifest: what was detected is written down as a number, or as float."""


def wanted_indices(run: Mapping[str, Any]) -> range:
    """The inputs a manifest asks for: every skip-th of the data, the first `max` of them."""
    parameters = run["parameters"]
    every = range(0, run["data"]["size"], parameters["skip"])
    return every if parameters["max"] is None else every[: parameters["max"]]


def smoothing_of(run: Mapping[str, Any]) -> Document:
    """What a manifest says of the smoothed classifier, but for the σ of an input."""
    parameters = run["parameters"]
    shape = run["data"]["input_shape"]
    return {
        "noise": str(parameters.get("noise", "gaussian")).partition(" ")[0].removesuffix(","),
        "dimension": math.prod(shape),
        "num_classes": run["model"]["num_classes"],
        "grid": parameters.get("grid"),
        "envelope": supposed_envelope(parameters),
        "remembered": "memory" in parameters,
    }


def supposed_envelope(parameters: Mapping[str, Any]) -> Any:
    """What the theorems of a run suppose of σ: one level everywhere, or how far it may move; None where nothing is."""
    rule = parameters.get("sigma_rule")
    if "sigma" in parameters:
        return {"kind": "constant", "sigma": parameters["sigma"]}
    if isinstance(rule, dict) and rule.get("kind") == "constant":
        return {"kind": "constant", "sigma": rule.get("sigma")}
    return parameters.get("envelope")


def check_manifest(manifest: Mapping[str, Any]) -> list[str]:
    """Whether a manifest is well formed and agrees with itself. Never raises on malformed content."""
    try:
        return list(_manifest_problems(manifest))
    except MALFORMED as error:
        return [f"the manifest is not well formed: {told(error)}"]


def _manifest_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    names = {"schema", "task", "parameters", "model", "data", "seed", "environment", "code", "extra"}
    if set(manifest) != names:
        odd = sorted(set(manifest) ^ names)
        yield f"the manifest has other fields than a manifest: {shown(odd)}"
    if manifest["schema"] != SCHEMA or type(manifest["schema"]) is not int:
        yield f"the manifest is of schema {shown(manifest['schema'])}; known is {SCHEMA}"
    if manifest["task"] not in TASKS:
        yield f"the task of the manifest is {shown(manifest['task'])}; expected one of {', '.join(TASKS)}"
    if type(manifest["seed"]) is not int or not 0 <= manifest["seed"] < _MOST_SEED:
        yield f"the seed of the manifest is {shown(manifest['seed'])}, which is none"
    for name in ("parameters", "model", "data", "environment", "extra"):
        if not isinstance(manifest[name], dict):
            yield f"{name} of the manifest is no object"
            return
    if not is_hexadecimal(manifest["code"], 64):
        yield "the code of the manifest is no digest"
    if not all(isinstance(version, str) for version in manifest["environment"].values()):
        yield "the environment of the manifest holds something that is no version"
    yield from _parameter_problems(manifest)
    yield from _job_problems(manifest)


def _parameter_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    parameters, data, model = manifest["parameters"], manifest["data"], manifest["model"]
    counts = {"n": parameters["n"], "inputs": parameters["inputs"], "skip": parameters["skip"], "size": data["size"]}
    counts |= {"batch": parameters["batch"], "num_classes": model["num_classes"]}
    counts |= {name: parameters[name] for name in ("n0",) if manifest["task"] != "predict"}
    counts |= {"max": parameters["max"]} if parameters["max"] is not None else {}
    counts |= {f"input_shape {place}": size for place, size in enumerate(data["input_shape"])}
    for name, count in counts.items():
        if type(count) is not int or count < (2 if name == "num_classes" else 1):
            yield f"{name} of the manifest is {shown(count)}, which cannot be"
            return
    if not data["input_shape"] or data["size"] > _MOST_INPUTS:
        yield f"inputs of shape {shown(data['input_shape'])}, {shown(data['size'])} of them, are no data"
        return
    alpha = parameters["alpha"]
    if type(alpha) not in (int, float) or not 0 < alpha < 1:
        yield f"alpha of the manifest is {shown(alpha)}, which is no error probability"
    if parameters["inputs"] != len(wanted_indices(manifest)):
        wanted = len(wanted_indices(manifest))
        yield f"the manifest says {parameters['inputs']} inputs; skip and max of {data['size']} make {wanted}"
    if ("sigma" in parameters) == ("sigma_rule" in parameters):
        yield "the manifest must state one sigma, or one rule for it"
    for name in ("decide", "precision", "memory"):
        if name in parameters and parameters[name] is None:
            yield f"{name} of the manifest is named, and nothing is said of it"
    yield from _noise_problems(parameters, data)
    yield from _rule_problems(parameters, data, model=model)
    yield from _split_problems(manifest)


def _noise_problems(parameters: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    """Grid, generator and the words for the noise say the same: exact steps of a grid that the data lies on, as far as
    the manifest knows, or float32."""
    grid, noise = parameters.get("grid"), parameters.get("noise", "gaussian float32")
    generator = parameters.get("generator")
    kind = str(noise).partition(" ")[0].removesuffix(",")
    if grid is None:
        if noise not in {f"{kind} {words}" for words in _FLOAT_WORDS}:
            yield f"the noise is on no grid, and it is called {shown(noise)}"
        if generator not in (None, _FLOAT_GENERATOR):
            yield f"the noise is on no grid, and its generator is {shown(generator)}"
        return
    if type(grid) is not int or not _lies_on(data.get("levels"), grid):
        yield f"the noise is on a grid of {shown(grid)} levels; the data has {shown(data.get('levels'))}"
        return
    if noise != f"{kind} in exact steps of 1/{grid - 1}":
        yield f"the noise is on a grid of {grid} levels, and it is called {shown(noise)}"
    if generator != _GRID_GENERATOR:
        yield f"the noise is on a grid, and its generator is {shown(generator)}"


def _lies_on(levels: Any, grid: int) -> bool:
    """Whether data of so many levels lies on the grid; of floats nothing is known, and a replay looks at them."""
    if levels is None:
        return grid >= 2
    return type(levels) is int and levels >= 2 and grid >= 2 and (grid - 1) % (levels - 1) == 0


def _rule_problems(
    parameters: Mapping[str, Any], data: Mapping[str, Any], *, model: Mapping[str, Any]
) -> Iterator[str]:
    """The envelope is the one that is proved for the rule for sigma, and the rule is one for inputs of this shape."""
    if "sigma_rule" not in parameters:
        if parameters.get("envelope") is not None:
            yield "the manifest has one sigma for all inputs, and an envelope for how it varies"
        return
    rule, shape = parameters["sigma_rule"], data["input_shape"]
    kind = rule["kind"]
    if kind == "knn":
        proved: Any = {"kind": "semi-elastic", "rate": rule["rate"]}
    elif kind == "network":
        proved = {"kind": "lipschitz", "constant": rule["lipschitz"], "floor": rule["floor"]}
    elif kind == "callable":
        proved = rule["envelope"]
    elif kind in ("constant", "optimised"):
        proved = {"kind": "constant"} if kind == "constant" else None
    else:
        yield f"the rule for sigma is of the kind {shown(kind)}, which is not known: nothing about it is proved"
        return
    if kind == "constant" and not (type(rule["sigma"]) is float and 0 < rule["sigma"] < math.inf):
        yield f"the rule for sigma is constant, and its sigma is {shown(rule['sigma'])}"
    if parameters.get("envelope") != proved:
        yield f"the envelope of the manifest is {shown(parameters.get('envelope'))}; its rule has {shown(proved)}"
    digest = rule_digest(rule, model=model)
    if digest is not None and rule.get("digest") != digest:
        yield f"the digest of the rule for sigma is {shown(rule.get('digest'))}, which is not that of its parameters"
    made_for = {"knn": rule.get("input_shape"), "network": (rule.get("widths") or [None])[0]}.get(kind)
    if made_for is not None and made_for != (shape if kind == "knn" else math.prod(shape)):
        yield f"the rule for sigma is one for inputs of {shown(made_for)} numbers, and these have {shown(shape)}"


def rule_digest(rule: Mapping[str, Any], *, model: Mapping[str, Any]) -> str | None:
    """The digest of a rule that its parameters tell; None where it covers more: a file, or code."""
    if rule["kind"] == "constant":
        return constant_digest(rule["sigma"])
    if rule["kind"] == "optimised":
        told_of = {name: value for name, value in rule.items() if name != "digest"} | {"model": model["digest"]}
        return hashlib.sha256(json.dumps(told_of, sort_keys=True).encode()).hexdigest()
    return None


def constant_digest(sigma: float) -> str:
    """What a rule is called that gives every input this level."""
    return hashlib.sha256(f"constant {float(sigma)!r}".encode()).hexdigest()


def _split_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    """What the proofs may cost adds up to alpha, in equal shares; on a grid the price of the noise comes off first."""
    parameters, split = manifest["parameters"], manifest["extra"].get("alpha_split")
    if split is None:
        return
    if manifest["task"] == "predict":
        if split:
            yield "a prediction spends alpha on one test, and the manifest splits it"
        return
    names, best_of = catalogue.names_in(parameters["certificate"])
    if set(split) != ({f"best-of({','.join(names)})"} if best_of else set(names)):
        yield f"alpha is split for {shown(sorted(split))}; the certificates are {shown(parameters['certificate'])}"
    for name, shares in split.items():
        total = math.fsum(shares.values())
        if not parameters["alpha"] * _NEARLY_ALL <= total <= parameters["alpha"] or len(set(shares.values())) != 1:
            yield f"the split of alpha for {shown(name)} is not alpha in equal shares"


def _job_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The job that made a run, or the run it was recertified from, must say the same as the parameters."""
    parameters, extra = manifest["parameters"], manifest["extra"]
    source = extra.get("recertified_from")
    if (source is not None) != (manifest["task"] == "recertify"):
        yield "a manifest names the run it was recertified from exactly if its task is recertify"
    if source is not None:
        yield from _source_problems(manifest, source)
    job = extra.get("job")
    if not isinstance(job, dict):
        return
    stated = {name: parameters.get(name) for name in ("n", "n0", "alpha", "certificate", "skip", "split", "precision")}
    stated |= {"max_inputs": parameters.get("max"), "task": manifest["task"]}
    stated |= {"shared_noise": not parameters.get("independent_noise", True)}
    if "sigma_rule" not in parameters:
        stated |= {"sigma": parameters.get("sigma")}
    for name in ("seed", "batch"):
        if job.get(name) is not None:
            stated[name] = manifest["seed"] if name == "seed" else parameters.get("batch")
    for name, value in stated.items():
        if name in job and job[name] != value and not (name == "n0" and manifest["task"] == "predict"):
            yield f"the job of the manifest has {name} {shown(job[name])}; the manifest has {shown(value)}"
    for name in ("memory", "sigma_rule"):
        if name in job and (job[name] is not None) != (name in parameters):
            yield f"job and parameters of the manifest do not agree on whether there is a {name}"
    decided = None if job.get("decide") is None else sorted(float(part) for part in job["decide"].split(","))
    if "decide" in job and decided != parameters.get("decide"):
        yield f"the job of the manifest decides {shown(decided)}; the manifest {shown(parameters.get('decide'))}"
    yield from _job_noise_problems(job, manifest)


def _source_problems(manifest: Mapping[str, Any], source: Mapping[str, Any]) -> Iterator[str]:
    """What recertify took over from the run it names, which is looked at as any other."""
    for sentence in _manifest_problems(source):
        yield f"of the run it was recertified from: {sentence}"
    if source["task"] == "predict":
        yield "a run was recertified from predictions"
    for name in ("model", "data", "seed"):
        if source[name] != manifest[name]:
            yield f"{name} of the manifest is not that of the run it was recertified from"
    parameters, before = manifest["parameters"], source["parameters"]
    for name in _OF_THE_SAMPLES:
        if (name in before) != (name in parameters) or before.get(name) != parameters.get(name):
            yield f"{name} of the manifest is not that of the run it was recertified from"
    if parameters["n"] > before["n"]:
        yield f"n of the manifest is {shown(parameters['n'])}; the run it was recertified from has {shown(before['n'])}"


def _job_noise_problems(job: Mapping[str, Any], manifest: Mapping[str, Any]) -> Iterator[str]:
    """The noise that was asked for is the noise that the parameters describe."""
    if "noise" not in job:
        return
    parameters, levels = manifest["parameters"], manifest["data"].get("levels")
    asked, place = job["noise"], job.get("noise_at", _AT_THE_INPUT)
    kind = "gaussian" if asked == "float" else asked.removesuffix("-float")
    noise, grid = str(parameters.get("noise", "gaussian float32")), parameters.get("grid")
    if noise.partition(" ")[0].removesuffix(",") != kind:
        yield f"the job of the manifest asks for {shown(asked)} noise; the manifest has {shown(noise)}"
    steps = job.get("grid", _DETECT)
    in_float = "float" in (asked, steps) or asked.endswith("-float") or place != _AT_THE_INPUT
    if in_float and grid is not None:
        yield f"the job of the manifest asks for noise in float32; the manifest has a grid of {shown(grid)} levels"
    # Before there was exact noise, all noise was float32, and was called just that.
    if not in_float and steps == _DETECT and grid != levels and not (grid is None and noise == f"{kind} float32"):
        yield f"the job of the manifest asks for noise on the {shown(levels)} levels of the data, not {shown(grid)}"
    if not in_float and steps != _DETECT and steps != str(grid):
        yield f"the job of the manifest asks for noise on {shown(steps)} levels; the manifest has {shown(grid)}"
    if ("in the first layer" in noise) != (place != _AT_THE_INPUT):
        yield f"the job of the manifest draws noise at {shown(place)}; the manifest calls it {shown(noise)}"
