"""A manifest: whether it is well formed and agrees with itself, and what it says of inputs and smoothing.

Functions that check return sentences, one for each discrepancy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from smoothcert.verify.reading import Document
from smoothcert.verify.sentences import MALFORMED, is_hexadecimal, shown, told

SCHEMA = 2
TASKS = ("certify", "predict", "recertify")

_MOST_SEED = 2**128
_MOST_INPUTS = 2**32


def wanted_indices(run: Mapping[str, Any]) -> range:
    """The inputs a manifest asks for: every skip-th of the data, the first `max` of them."""
    parameters = run["parameters"]
    every = range(0, run["data"]["size"], parameters["skip"])
    return every if parameters["max"] is None else every[: parameters["max"]]


def smoothing_of(run: Mapping[str, Any]) -> Document:
    """What a manifest says of the smoothed classifier, but for σ."""
    parameters = run["parameters"]
    shape = run["data"]["input_shape"]
    return {
        "noise": str(parameters.get("noise", "gaussian")).partition(" ")[0].removesuffix(","),
        "dimension": math.prod(shape),
        "num_classes": run["model"]["num_classes"],
        "grid": parameters.get("grid"),
        "envelope": parameters.get("envelope"),
        "remembered": "memory" in parameters,
    }


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
    grid = parameters.get("grid")
    if grid is not None and (type(grid) is not int or grid != data.get("levels")):
        yield f"the noise is on a grid of {shown(grid)} levels; the data has {shown(data.get('levels'))}"
    if ("sigma" in parameters) == ("sigma_rule" in parameters):
        yield "the manifest must state one sigma, or one rule for it"


def _job_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    """The job that made a run, or the run it was recertified from, must say the same as the parameters."""
    parameters, extra = manifest["parameters"], manifest["extra"]
    source = extra.get("recertified_from")
    if (source is not None) != (manifest["task"] == "recertify"):
        yield "a manifest names the run it was recertified from exactly if its task is recertify"
    if source is not None:
        for name in ("model", "data", "seed"):
            if source[name] != manifest[name]:
                yield f"{name} of the manifest is not that of the run it was recertified from"
        for name in ("sigma", "sigma_rule", "envelope", "noise", "grid", "n0", "skip", "max", "inputs"):
            if source["parameters"].get(name) != parameters.get(name):
                yield f"{name} of the manifest is not that of the run it was recertified from"
    job = extra.get("job")
    if not isinstance(job, dict):
        return
    stated = {name: parameters.get(name) for name in ("n", "n0", "alpha", "certificate", "skip", "split")}
    stated |= {"max_inputs": parameters.get("max"), "task": manifest["task"]}
    if "sigma_rule" not in parameters:
        stated |= {"sigma": parameters.get("sigma")}
    for name in ("seed", "batch"):
        if job.get(name) is not None:
            stated[name] = manifest["seed"] if name == "seed" else parameters.get("batch")
    for name, value in stated.items():
        if name in job and job[name] != value and not (name == "n0" and manifest["task"] == "predict"):
            yield f"the job of the manifest has {name} {shown(job[name])}; the manifest has {shown(value)}"
