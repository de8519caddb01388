"""Records of attacks beside a run: their seals, and whether what they say of the run and of their samples can be.

A record is evidence, no certificate: what the fresh samples were can only be seen by repeating the attack. What follows
from the run, from the settings and from the counted votes is computed again here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.arithmetic import ball, binomial_tail
from smoothcert_verify.bounds import noise_price, sign_test_holds
from smoothcert_verify.manifests import smoothing_of
from smoothcert_verify.reading import Document, MalformedError, parse_json, read_bytes
from smoothcert_verify.sentences import MALFORMED, as_object, same, shown, told

FORMAT = "smoothcert attack 3"
PATTERN = "attack*.jsonl"
"""Names that records have in the directory of their run."""

_HEADER = {"format", "run", "settings"}
_FIELDS = {
    "prediction", "fate", "answer", "leads", "samples", "sigma", "counts", "invalid", "p_value", "radius", "index",
    "label", "certified_radius", "distance", "moved", "point",
}  # fmt: skip
_FATES = ("unchanged", "abstained", "changed")
_CERTIFIED = "certified"
_JUST_INSIDE = 1.0 - 1e-9
_NORMS = {"gaussian": "l2", "uniform": "l1"}
_CLOSE = 1e-6
"""Relative: p-values are rounded up by much less. Distances are those of float32 numbers, each 2^-25 from its level."""
_SLIGHTLY = 1e-9
_FLOAT_STEP = 2.0**-24

Inputs = Callable[[int], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class _Point:
    """What the run says of an input."""

    index: int
    label: int | None
    prediction: int | None
    radius: float
    certified: bool

    def is_attacked(self, radius: str) -> bool:
        rightly = self.prediction is not None and self.prediction == self.label
        return self.certified or (radius != _CERTIFIED and rightly)


@dataclass(frozen=True, slots=True)
class _Attack:
    """What the results of a record are compared with. tests: points that are checked by fresh samples in all."""

    points: Mapping[int, _Point]
    radii: tuple[str, ...]
    n: int
    looks: int
    alpha: float
    tests: int
    classes: int
    smoothing: Mapping[str, Any]
    soft: bool

    def level(self, look: int) -> Fraction:
        share = Fraction(1) if self.looks == 1 else Fraction(1, 2 if look == 0 else 2 * (self.looks - 1))
        return Fraction(self.alpha) / max(self.tests, 1) * share


def attack_problems(
    file: Path, manifest: Mapping[str, Any], documents: Sequence[Document], *, inputs: Inputs | None = None
) -> list[str]:
    """What is wrong with the record of an attack on this run. inputs: where the data is at hand."""
    try:
        header, results = _read(file)
        attack = _attack(header, manifest, documents)
        problems = list(_header_problems(header, manifest, attack))
        seen: set[tuple[Any, Any]] = set()
        for result in results:
            name = (result.get("radius"), result.get("index"))
            told_of = list(_result_problems(result, attack, inputs))
            told_of += ["it stands there twice"] if name in seen else []
            seen.add(name)
            problems += [f"input {shown(name[1])} within {shown(name[0])}: {problem}" for problem in told_of]
        return problems
    except MalformedError as error:
        return [str(error)]
    except MALFORMED as error:
        return [f"it is not a well-formed record of an attack: {told(error)}"]


def _read(file: Path) -> tuple[Document, list[Document]]:
    """Header and results; the line that a killed process left unfinished is not one."""
    content = read_bytes(file)
    documents, seal = [], ""
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        document = parse_json(line)
        if not isinstance(document, dict):
            raise MalformedError(f"line {number} is no object")
        claimed = document.pop("seal", None)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        seal = hashlib.sha256(f"{seal}\n{text}".encode()).hexdigest()
        if claimed != seal:
            raise MalformedError(f"the seal of line {number} is broken: a line was changed, taken out or put in")
        documents.append(document)
    if not documents or documents[0].get("format") != FORMAT:
        raise MalformedError(f"it does not say that its format is {FORMAT!r}")
    return documents[0], documents[1:]


def _attack(header: Mapping[str, Any], manifest: Mapping[str, Any], documents: Sequence[Document]) -> _Attack:
    settings = header["settings"]
    taken = sorted(documents, key=lambda document: document["input"]["index"])[:: settings["skip"]]
    taken = taken[: settings["max_inputs"]]
    points, certificate = _attacked_verdicts(taken, header["run"]["answers"])
    radii = tuple(settings["radii"])
    if not radii or not all(isinstance(radius, str) and _limit(radius, 0.0) >= 0 for radius in radii):
        raise MalformedError(f"its radii are {shown(radii)}, which cannot be")
    if not (type(settings["n"]) is int and settings["n"] > 0 and type(settings["looks"]) is int):
        raise MalformedError("its settings do not say how many samples checked a point")
    if not (0 < settings["alpha"] < 0.5 and 1 <= settings["looks"] < 20):
        raise MalformedError(f"alpha of its settings is {shown(settings['alpha'])}, with {settings['looks']} looks")
    return _Attack(
        points={point.index: point for point in points},
        radii=radii,
        n=settings["n"],
        looks=settings["looks"],
        alpha=settings["alpha"],
        tests=sum(point.is_attacked(radius) for radius in radii for point in points),
        classes=manifest["model"]["num_classes"],
        smoothing=smoothing_of(manifest),
        soft="soft" in certificate,
    )


def _attacked_verdicts(documents: Sequence[Document], answers: Any) -> tuple[list[_Point], str]:
    """The inputs with the verdicts of the certificate that was attacked, which their digest tells."""
    names = [verdict["certificate"] for verdict in documents[0]["verdicts"]] if documents else []
    for name in names:
        points = [_point(document, name) for document in documents]
        hasher = hashlib.sha256()
        for point in points:
            hasher.update(f"{point.index} {point.label} {point.prediction} {point.radius!r}\n".encode())
        if hasher.hexdigest() == answers:
            return points, name
    raise MalformedError("it is a record of an attack on other answers or radii than those of this run")


def _point(document: Mapping[str, Any], certificate: str) -> _Point:
    verdict = next(one for one in document["verdicts"] if one["certificate"] == certificate)
    return _Point(
        index=document["input"]["index"],
        label=document["input"]["label"],
        prediction=verdict["prediction"],
        radius=verdict["radius"],
        certified=verdict["outcome"] == _CERTIFIED,
    )


def _header_problems(header: Mapping[str, Any], manifest: Mapping[str, Any], attack: _Attack) -> Iterator[str]:
    if set(header) != _HEADER:
        yield f"its first line has other fields than it should: {shown(sorted(set(header) ^ _HEADER))}"
    stated = {
        "seed": manifest["seed"],
        "model": as_object(manifest["model"]).get("digest"),
        "data": as_object(manifest["data"]).get("digest"),
        "alpha": manifest["parameters"]["alpha"],
        "inputs": len(attack.points),
        "answers": header["run"]["answers"],
    }
    for name in sorted(stated.keys() | header["run"].keys()):
        there, here = header["run"].get(name), stated.get(name)
        if not same(there, here):
            yield f"{name} of the attacked run is {shown(there)}; this one has {shown(here)}"


def _limit(radius: str, certified: float) -> float:
    """How far the point may be that an attack found; -1 where that is no radius."""
    if radius == _CERTIFIED:
        return certified * _JUST_INSIDE
    try:
        value = float(radius)
    except ValueError:
        return -1.0
    return value if 0 <= value < math.inf else -1.0


def _result_problems(result: Mapping[str, Any], attack: _Attack, inputs: Inputs | None) -> Iterator[str]:
    if set(result) != _FIELDS:
        yield f"it has other fields than a result: {shown(sorted(set(result) ^ _FIELDS))}"
        return
    point = attack.points.get(result["index"])
    if point is None or result["radius"] not in attack.radii or not point.is_attacked(result["radius"]):
        yield "there was nothing to attack"
        return
    for name, known in (("label", point.label), ("prediction", point.prediction), ("certified_radius", point.radius)):
        if not same(result[name], known):
            yield f"its {name} is {shown(result[name])}; the run has {shown(known)}"
    distance, limit = result["distance"], _limit(result["radius"], point.radius)
    rounding = _FLOAT_STEP * _diagonal(attack)
    if type(distance) is not float or not 0 <= distance <= limit * (1 + _SLIGHTLY) + rounding:
        yield f"its distance is {shown(distance)}, and no point farther than {limit!r} was looked for"
    if result["fate"] not in _FATES or type(result["leads"]) is not bool or type(result["moved"]) is not bool:
        yield f"its fate is {shown(result['fate'])}, which cannot be"
    yield from _vote_problems(result, attack)
    yield from _evidence_problems(result, point, attack, inputs)


def _diagonal(attack: _Attack) -> float:
    """How long a vector of ones is, in the norm of the radii."""
    dimension: int = attack.smoothing["dimension"]
    return float(dimension) if _NORMS[attack.smoothing["noise"]] == "l1" else math.sqrt(dimension)


def _vote_problems(result: Mapping[str, Any], attack: _Attack) -> Iterator[str]:
    """The fate follows from the votes, and the votes are as many as were asked for."""
    counts, invalid, samples, prediction = (result[name] for name in ("counts", "invalid", "samples", "prediction"))
    if samples == 0 and attack.smoothing["remembered"]:
        if (counts, invalid, result["sigma"], result["p_value"]) != (None, 0, None, None):
            yield "a memory answered, and yet there are votes"
        changed = result["answer"] != prediction
        if (result["fate"], result["leads"]) != ("changed" if changed else "unchanged", not changed):
            yield f"a memory answered class {shown(result['answer'])}, and its fate is {shown(result['fate'])}"
        return
    looks = [look for look in range(attack.looks) if samples == attack.n * 10**look]
    if not looks or type(samples) is not int:
        yield f"it has {shown(samples)} samples, which no look has"
        return
    known = as_object(attack.smoothing["envelope"]).get("sigma")
    sigma = result["sigma"]
    if type(sigma) is not float or not 0 < sigma < math.inf or (known is not None and sigma != known):
        yield f"its sigma is {shown(sigma)}; the run has {shown(known)}"
        return
    if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in (*counts, invalid)):
        if not (attack.soft and counts is None):
            yield f"its counts are {shown(counts)}, which cannot be"
        return
    if len(counts) != attack.classes or sum(counts) + invalid != samples:
        yield f"its counts add up to {sum(counts) + invalid} votes for {len(counts)} classes; {samples} were drawn"
        return
    if not attack.soft:
        yield from _test_problems(result, attack, level=attack.level(looks[0]))


def _test_problems(result: Mapping[str, Any], attack: _Attack, *, level: Fraction) -> Iterator[str]:
    """The two-sided sign test of the class in the lead against the next, at what noise tables leave of the level."""
    counts, invalid, grid = result["counts"], result["invalid"], attack.smoothing["grid"]
    most = max(counts)
    leader = counts.index(most) if most > 0 and most >= invalid else None
    first = invalid if leader is None else most
    others = [count for label, count in enumerate(counts) if label != leader]
    second = max(others) if leader is None else max(*others, invalid)
    if grid is not None:
        dimension, draws = attack.smoothing["dimension"], sum(counts) + invalid
        level -= noise_price(levels=grid, sigma=Fraction(result["sigma"]), dimension=dimension, draws=draws)
    settled = sign_test_holds(first, second, level)
    fate = "abstained" if not settled else "unchanged" if leader == result["prediction"] else "changed"
    stated = (result["fate"], result["answer"], result["leads"])
    follows = (fate, leader if settled else None, leader == result["prediction"])
    if stated != follows:
        yield f"fate, answer and lead are {shown(stated)}; its counts say {shown(follows)}"
    expected = _p_value(first, second)
    if type(result["p_value"]) is not float or not abs(result["p_value"] - expected) <= _CLOSE * expected:
        yield f"its p_value is {shown(result['p_value'])}; its counts have {expected:.6g}"


def _p_value(first: int, second: int) -> float:
    if first <= second:
        return 1.0
    tail = binomial_tail(first, first + second, Fraction(1, 2))
    return min(1.0, float((2 * tail * ball(1)).mid()))


def _evidence_problems(
    result: Mapping[str, Any], point: _Point, attack: _Attack, inputs: Inputs | None
) -> Iterator[str]:
    """The point stands there exactly if it says something of a certificate; with the data its distance is measured."""
    speaks = result["fate"] in ("changed", "abstained") and result["distance"] < point.radius
    if (result["point"] is not None) != speaks:
        yield "the point that was found stands there exactly if it contradicts a certificate or leaves one unsettled"
        return
    if not speaks:
        return
    try:
        content = base64.b64decode(result["point"], validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        yield f"its point cannot be read: {told(error)}"
        return
    if len(content) != 4 * attack.smoothing["dimension"]:
        yield "its point has another dimension than the inputs"
        return
    if inputs is None:
        return
    deltas = np.frombuffer(content, dtype="<f4").astype(np.float64) - inputs(point.index).astype(np.float64)
    l1 = _NORMS[attack.smoothing["noise"]] == "l1"
    measured = float(np.abs(deltas).sum()) if l1 else math.sqrt(float(deltas @ deltas))
    if not abs(measured - result["distance"]) <= _SLIGHTLY * max(measured, _SLIGHTLY):
        yield f"its distance is {shown(result['distance'])}; its point is {measured!r} away"
