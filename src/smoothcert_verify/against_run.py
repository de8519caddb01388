"""A certificate document against the run it names: input, smoothing, samples, certificates, promise.

What the tallies prove is checked elsewhere (`point`). Here it is checked that these are the inputs, the tallies and the
settings that the run says it is made of. Every function returns sentences, one for each discrepancy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from smoothcert_verify.manifests import smoothing_of, supposed_envelope, wanted_indices
from smoothcert_verify.sentences import MALFORMED, as_object, is_hexadecimal, same, shown, told

_MOST_INDEX = 2**32


def check_against_run(document: Mapping[str, Any]) -> list[str]:
    """A document, of whatever origin, against the manifest it carries. Never raises on malformed content."""
    try:
        return list(_against_run(document))
    except MALFORMED as error:
        return [f"it is not a well-formed certificate: {told(error)}"]


def _against_run(document: Mapping[str, Any]) -> Iterator[str]:
    run = document["run"]
    parameters = run["parameters"]
    yield from _check_input(document["input"], run)
    smoothing = document["smoothing"]
    for name, stated in smoothing_of(run).items():
        if not same(smoothing.get(name, "nothing"), stated):
            yield f"its smoothing has {name} {shown(smoothing.get(name))}; the run has {shown(stated)}"
    promise, tallies = document["promise"], document["tallies"]
    constant = as_object(supposed_envelope(parameters)).get("sigma")
    if constant is not None and smoothing["sigma"] != constant and tallies:
        yield f"its sigma is {shown(smoothing['sigma'])}; the run has {shown(constant)}"
    if (smoothing["sigma"] is None) != (not tallies):
        yield "an input has a sigma exactly if something was sampled around it"
    for tally in tallies:
        if tally["sigma"] != smoothing["sigma"]:
            yield f"a tally has sigma {shown(tally['sigma'])}; the input has {shown(smoothing['sigma'])}"
        if not same(tally["num_classes"], run["model"]["num_classes"]):
            yield f"a tally has {shown(tally['num_classes'])} classes; the model has {run['model']['num_classes']}"
    certified = any(verdict["outcome"] == "certified" for verdict in document["verdicts"])
    if promise is not None and "memory" not in parameters:
        yield "it has a promise of a memory, but the run has none"
    if promise is None and "memory" in parameters and certified:
        yield "it is certified in a run with a memory, but no memory promised it"
    yield from _check_samples(document)
    yield from _check_names(document)
    if promise is not None:
        yield from _check_promise(document)


def _check_input(described: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[str]:
    index, label = described["index"], described["label"]
    classes = run["model"]["num_classes"]
    if type(index) is not int or not 0 <= index < _MOST_INDEX:
        yield f"its index is {shown(index)}, which is no index of an input"
    elif index not in wanted_indices(run):
        yield f"its index {index} is not one of those the run asks for"
    if label is not None and not (type(label) is int and 0 <= label < classes):
        yield f"its label is {shown(label)}; there are {classes} classes"


def _check_samples(document: Mapping[str, Any]) -> Iterator[str]:
    """The tallies are of the samples that the manifest says were drawn."""
    run, tallies = document["run"], document["tallies"]
    parameters = run["parameters"]
    if not tallies and document["promise"] is not None and run["task"] == "predict":
        return  # a memory answered
    adaptive = "decide" in parameters or "precision" in parameters
    n = parameters["n"]
    if run["task"] == "predict":
        wanted = {"PREDICTION": (n, n)}
    else:
        wanted = {"SELECTION": (parameters["n0"],) * 2, "ESTIMATION": (0 if adaptive else n, n)}
    for stage in sorted({tally["stage"] for tally in tallies} - wanted.keys()):
        yield f"it has samples of the stage {shown(stage)}, for which the run drew none"
    for stage, (least, most) in wanted.items():
        parts = sorted((tally for tally in tallies if tally["stage"] == stage), key=lambda tally: tally["start"])
        drawn = at = 0
        for tally in parts:
            if tally["start"] != at:
                yield f"its samples for {stage} have a gap or an overlap at {at}"
            at = tally["stop"]
            drawn += (tally["stop"] - tally["start"]) * (2 if tally["kind"] == "pairs" else 1)
        if not least <= drawn <= most:
            yield f"it has {drawn} samples for {stage}; the run draws {_range(least, most)}"
        if stage != "ESTIMATION" and any(tally["kind"] != "votes" for tally in parts):
            yield f"its samples for {stage} are not plain votes"


def _range(least: int, most: int) -> str:
    return str(most) if least == most else f"{least} to {most}"


def _check_names(document: Mapping[str, Any]) -> Iterator[str]:
    """The verdicts are those of the certificates asked for."""
    run, verdicts = document["run"], document["verdicts"]
    found = [verdict["certificate"] for verdict in verdicts]
    if run["task"] == "predict":
        wanted, in_order = [""], True
    else:
        stated = run["parameters"]["certificate"]
        in_order = not stated.startswith("best-of(")
        wanted = [name.strip() for name in stated.removeprefix("best-of(").removesuffix(")").split(",")]
    if found != wanted if in_order else sorted(found) != sorted(wanted):
        yield f"it has verdicts by {shown(found)}; the run asks for {shown(wanted)}"
    if not in_order and [v["radius"] for v in verdicts] != sorted((v["radius"] for v in verdicts), reverse=True):
        yield "the best of its verdicts does not come first"
    split = run["extra"].get("alpha_split")
    if isinstance(split, dict) and run["task"] != "predict" and document["smoothing"]["grid"] is None:
        yield from _check_split(verdicts, split, best_of=not in_order)


def _check_split(verdicts: Sequence[Mapping[str, Any]], split: Mapping[str, Any], *, best_of: bool) -> Iterator[str]:
    for verdict in verdicts:
        stated = next(iter(split.values()), None) if best_of else split.get(verdict["certificate"])
        if verdict["bounds"] is not None and verdict["bounds"]["spent"] != stated:
            yield f"the alpha spent on {shown(verdict['certificate'])} is not shared out as the manifest states"


def _check_promise(document: Mapping[str, Any]) -> Iterator[str]:
    """The verdict says what the memory granted."""
    promise, verdict = document["promise"], document["verdicts"][0]
    if not same(verdict["prediction"], promise["label"]):
        yield f"it answers class {shown(verdict['prediction'])}; the memory promised class {shown(promise['label'])}"
    radius = 0.0 if document["run"]["task"] == "predict" else promise["radius"]
    if verdict["radius"] != radius:
        yield f"its radius is {shown(verdict['radius'])}; the memory promised {shown(radius)}"
    if not (type(promise["position"]) is int and promise["position"] >= 1):
        yield f"its promise stands at position {shown(promise['position'])}, which is none"
    for name, length in (("memory", 32), ("entry", 64)):
        if not is_hexadecimal(promise[name], length):
            yield f"the {name} of its promise is no digest"
