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
from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.feature_scales import divide_by_scale
from smoothcert_verify.findings import Finding, MalformedError, note, refuse
from smoothcert_verify.json_values import (
    BOOLEAN,
    OBJECT,
    TEXT,
    Document,
    ListOf,
    Number,
    OneOf,
    Optional,
    Record,
    Shape,
    Whole,
    accept_anything,
    is_same,
    parse_json,
)
from smoothcert_verify.noise_kinds import read_places, round_to_grid
from smoothcert_verify.proof_checks import PROOFS, sign_test_holds
from smoothcert_verify.run_facts import RunFacts
from smoothcert_verify.run_reading import read_bytes
from smoothcert_verify.theorems import CERTIFICATE_FORMS
from smoothcert_verify.verdict_checks import price_noise

FORMAT = "smoothcert attack 3"
PATTERN = "attack*.jsonl"
"""Names that records have in the directory of their run."""

_CERTIFIED = "certified"
_HEADER = Record(format=OneOf((FORMAT,)), run=OBJECT, settings=OBJECT)
_SETTINGS: Mapping[str, Shape] = {
    "n": Whole(1),
    "looks": Whole(1, 19),
    "alpha": Number(0, 0.5),
    "skip": Whole(1),
    "max_inputs": Optional(Whole(1)),
    "radii": ListOf(TEXT, 1),
}
_RESULT = Record(
    prediction=accept_anything,
    fate=OneOf(("unchanged", "abstained", "changed")),
    answer=Optional(Whole()),
    leads=BOOLEAN,
    samples=Whole(),
    sigma=Optional(Number()),
    counts=Optional(ListOf(Whole())),
    invalid=Whole(),
    p_value=Optional(Number(0, 1)),
    radius=TEXT,
    index=Whole(),
    label=accept_anything,
    certified_radius=accept_anything,
    distance=Number(0),
    moved=BOOLEAN,
    point=Optional(TEXT),
)
_CLOSED_RESULT = Record(**_RESULT.fields, closed=OneOf((True,)))
_JUST_INSIDE = 1.0 - 1e-9
_CLOSE = 1e-6
"""Relative: p-values are rounded up by much less. Distances are those of float32 numbers, each 2^-25 from its level."""
_SLIGHTLY = 1e-9
_FLOAT_STEP = 2.0**-24

Inputs = Callable[[int], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class _Target:
    """What the run says of an input that was attacked."""

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
    """What the results of a record are compared with. tests: the number of points checked by fresh samples."""

    run: RunFacts
    targets: Mapping[int, _Target]
    settings: Mapping[str, Any]
    tests: int
    soft: bool

    @property
    def closed(self) -> bool:
        """Whether a certificate is used up to its radius: distances are then whole steps of a grid."""
        return not self.run.is_sampled and self.run.memory is None

    def covers(self, target: _Target, distance: float) -> bool:
        """Whether the certificate of an input speaks of a point at this distance."""
        return distance < target.radius or (self.closed and distance == target.radius)

    @property
    def norm(self) -> str:
        return self.run.form.norm

    def level(self, look: int) -> Fraction:
        looks = self.settings["looks"]
        share = Fraction(1) if looks == 1 else Fraction(1, 2 if look == 0 else 2 * (looks - 1))
        return Fraction(self.settings["alpha"]) / max(self.tests, 1) * share


def check_attack_record(file: Path, entries: Sequence[CheckedInput], *, inputs: Inputs | None = None) -> list[Finding]:
    """What is wrong with the record of an attack on the run of these inputs. inputs: where the data is at hand."""
    try:
        header, results = _read_record(file)
        attack = _read_attack(header, entries)
        problems = list(_check_header(header, attack))
        seen: set[str] = set()
        for result in results:
            name = (result.get("radius"), result.get("index"))
            found = list(_check_result(result, attack, inputs))
            found += [note("repeated-result")] if repr(name) in seen else []
            seen.add(repr(name))
            problems += [finding.at(f"input {name[1]!r:.40} within {name[0]!r:.40}") for finding in found]
        return problems
    except MalformedError as error:
        return [error.finding]


def _read_record(file: Path) -> tuple[Document, list[Document]]:
    """Header and results; a last line that a killed process left unfinished is ignored."""
    content = read_bytes(file)
    documents, seal = [], ""
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        document = parse_json(line)
        if not isinstance(document, dict):
            raise refuse("invalid-value", field=f"line {number}", value=document, expected="an object")
        stored_seal = document.pop("seal", None)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        seal = hashlib.sha256(f"{seal}\n{text}".encode()).hexdigest()
        if stored_seal != seal:
            raise refuse("line-seal-broken", line=number)
        documents.append(document)
    if not documents:
        raise refuse("unknown-format", expected=FORMAT)
    return documents[0], documents[1:]


def _read_attack(header: Mapping[str, Any], entries: Sequence[CheckedInput]) -> _Attack:
    _HEADER(header, "header")
    settings, run = header["settings"], entries[0].run
    for name, shape in _SETTINGS.items():
        shape(settings.get(name), f"settings.{name}")
    if any(_read_limit(radius, 0.0) < 0 for radius in settings["radii"]):
        raise refuse("invalid-value", field="settings.radii", value=settings["radii"], expected="radii")
    taken = sorted(entries, key=lambda one: one.index)[:: settings["skip"]][: settings["max_inputs"]]
    targets, certificate = _find_targets(taken, header["run"].get("answers"))
    form = CERTIFICATE_FORMS.get(certificate)
    return _Attack(
        run=run,
        targets={target.index: target for target in targets},
        settings=settings,
        tests=sum(target.is_attacked(radius) for radius in settings["radii"] for target in targets),
        soft=form is not None and any(PROOFS[proof].sampled == "scores" for proof in form.proofs),
    )


def _find_targets(entries: Sequence[CheckedInput], answers: Any) -> tuple[list[_Target], str]:
    """The inputs with the verdicts of the certificate that was attacked, which the digest of its answers tells."""
    names = [answer.certificate for answer in entries[0].answers] if entries else []
    for name in names:
        targets = [_make_target(one, name) for one in entries]
        hasher = hashlib.sha256()
        for target in targets:
            hasher.update(f"{target.index} {target.label} {target.prediction} {target.radius!r}\n".encode())
        if hasher.hexdigest() == answers:
            return targets, name
    raise refuse("attack-on-other-answers")


def _make_target(one: CheckedInput, certificate: str) -> _Target:
    answer = next((answer for answer in one.answers if answer.certificate == certificate), None)
    if answer is None:
        raise refuse("attack-on-other-answers")
    return _Target(one.index, one.label, answer.prediction, answer.radius, answer.outcome == _CERTIFIED)


def _check_header(header: Mapping[str, Any], attack: _Attack) -> Iterator[Finding]:
    manifest = attack.run.manifest
    stated = {
        "seed": attack.run.seed,
        "model": manifest["digests"]["model"],
        "data": manifest["digests"]["data"],
        "alpha": manifest["spec"]["alpha"],
        "inputs": len(attack.targets),
        "answers": header["run"]["answers"],
    }
    if (attack.settings["alpha"] == 0) == attack.run.is_sampled:
        yield note("differs", field="settings.alpha", value=attack.settings["alpha"], expected="0 without samples only")
    for name in sorted(stated.keys() | header["run"].keys()):
        if not is_same(header["run"].get(name), stated.get(name)):
            yield note("differs", field=f"run.{name}", value=header["run"].get(name), expected=stated.get(name))


def _read_limit(radius: str, certified: float) -> float:
    """How far away the point may be that an attack found; -1 if that is not a radius."""
    if radius == _CERTIFIED:
        return certified * _JUST_INSIDE
    try:
        value = float(radius)
    except ValueError:
        return -1.0
    return value if 0 <= value < math.inf else -1.0


def _check_result(result: Mapping[str, Any], attack: _Attack, inputs: Inputs | None) -> Iterator[Finding]:
    try:
        (_CLOSED_RESULT if attack.closed else _RESULT)(result, "")
    except MalformedError as error:
        yield error.finding
        return
    target = attack.targets.get(result["index"])
    if target is None or result["radius"] not in attack.settings["radii"] or not target.is_attacked(result["radius"]):
        yield note("nothing-to-attack")
        return
    facts = {"label": target.label, "prediction": target.prediction, "certified_radius": target.radius}
    for name, fact in facts.items():
        if not is_same(result[name], fact):
            yield note("differs", field=name, value=result[name], expected=fact)
    limit, dimension = _read_limit(result["radius"], target.radius), attack.run.dimension
    diagonal = float(dimension) if attack.norm == "l1" else math.sqrt(dimension)
    if attack.closed and result["radius"] == _CERTIFIED:
        limit, diagonal = target.radius, 0.0
    if not result["distance"] <= limit * (1 + _SLIGHTLY) + _FLOAT_STEP * diagonal:
        yield note("too-far-away", distance=result["distance"], limit=limit)
    yield from _check_votes(result, attack)
    yield from _check_evidence(result, target, attack, inputs)


def _check_votes(result: Mapping[str, Any], attack: _Attack) -> Iterator[Finding]:
    """The fate follows from the votes, and there are as many votes as were requested."""
    counts, invalid, samples, prediction = (result[name] for name in ("counts", "invalid", "samples", "prediction"))
    if samples == 0 and attack.run.memory is not None:
        if (counts, invalid, result["sigma"], result["p_value"]) != (None, 0, None, None):
            yield note("votes-beside-memory")
        changed = result["answer"] != prediction
        expected = ("changed" if changed else "unchanged", result["answer"], not changed)
        yield from _compare_fate(result, expected)
        return
    looks = [look for look in range(attack.settings["looks"]) if samples == attack.settings["n"] * 10**look]
    if not attack.run.is_sampled:
        looks = [0] if samples == _count_evaluations(result, attack) else []
    if not looks:
        yield note("samples-of-no-look", samples=samples)
        return
    level, sigma = attack.run.level, result["sigma"]
    if type(sigma) is not float or not sigma > 0 or (level is not None and sigma != level):
        yield note("differs", field="sigma", value=sigma, expected=level)
        return
    if counts is None:
        if not attack.soft:
            yield note("invalid-value", field="counts", value=counts, expected="votes by class")
        return
    if len(counts) != attack.run.num_classes or sum(counts) + invalid != samples:
        yield note("votes-do-not-add-up", draws=samples, votes=sum(counts), invalid=invalid)
        return
    if not attack.soft:
        yield from _check_test(result, attack, level=attack.level(looks[0]))


def _count_evaluations(result: Mapping[str, Any], attack: _Attack) -> int | None:
    """All evaluations that there are at the level of a result; None if it has no level."""
    sigma, levels = result["sigma"], attack.run.grid
    if type(sigma) is not float or not sigma > 0 or levels is None:
        return None
    return attack.run.form.count_evaluations(sigma=sigma, levels=levels)


def _compare_fate(result: Mapping[str, Any], expected: tuple[str, int | None, bool]) -> Iterator[Finding]:
    stated = (result["fate"], result["answer"], result["leads"])
    if stated != expected:
        yield note("fate-differs", value=stated, expected=expected)


def _check_test(result: Mapping[str, Any], attack: _Attack, *, level: Fraction) -> Iterator[Finding]:
    """The two-sided sign test of the leading class against the next, at what noise tables leave of the level.

    Where nothing is sampled, the leading class is the answer.
    """
    counts, invalid = result["counts"], result["invalid"]
    most = max(counts)
    leader = counts.index(most) if most > 0 and most >= invalid else None
    first = invalid if leader is None else most
    others = [count for label, count in enumerate(counts) if label != leader]
    second = max(others) if leader is None else max(*others, invalid)
    if not attack.run.is_sampled:
        fate = "unchanged" if leader == result["prediction"] else "changed"
        yield from _compare_fate(result, (fate, leader, leader == result["prediction"]))
        if result["p_value"] is not None:
            yield note("differs", field="p_value", value=result["p_value"], expected=None)
        return
    level -= price_noise(attack.run, result["sigma"], sum(counts) + invalid)
    settled = sign_test_holds(first, second, level)
    fate = "abstained" if not settled else "unchanged" if leader == result["prediction"] else "changed"
    yield from _compare_fate(result, (fate, leader if settled else None, leader == result["prediction"]))
    expected = _p_value(first, second)
    if result["p_value"] is None or not abs(result["p_value"] - expected) <= _CLOSE * expected:
        yield note("differs", field="p_value", value=result["p_value"], expected=expected)


def _p_value(first: int, second: int) -> float:
    if first <= second:
        return 1.0
    tail = binomial_tail(first, first + second, Fraction(1, 2))
    return min(1.0, float((2 * tail * ball(1)).mid()))


def _check_evidence(
    result: Mapping[str, Any], target: _Target, attack: _Attack, inputs: Inputs | None
) -> Iterator[Finding]:
    """The point is stored exactly if it says something of a certificate; with the data its distance is measured."""
    speaks = result["fate"] in ("changed", "abstained") and attack.covers(target, result["distance"])
    if (result["point"] is not None) != speaks:
        yield note("point-without-evidence")
        return
    if not speaks:
        return
    try:
        content = base64.b64decode(result["point"], validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) != 4 * attack.run.dimension:
        yield note("invalid-value", field="point", value=result["point"], expected="the numbers of an input")
    elif inputs is not None:
        yield from _check_distance(result, np.frombuffer(content, dtype="<f4"), inputs(target.index), attack)


def _check_distance(
    result: Mapping[str, Any], point: NDArray[np.float32], x: NDArray[np.float32], attack: _Attack
) -> Iterator[Finding]:
    if not attack.run.is_sampled and attack.run.grid is not None:
        measured = _measure_steps(point, x, attack.run)
    else:
        x = divide_by_scale(x, attack.run.scale)  # points are stored in the units of the noise
        deltas = point.astype(np.float64) - x.astype(np.float64)
        measured = float(np.abs(deltas).sum()) if attack.norm == "l1" else math.sqrt(float(deltas @ deltas))
    if not (measured < math.inf and abs(measured - result["distance"]) <= _SLIGHTLY * max(measured, _SLIGHTLY)):
        yield note("differs", field="distance", value=result["distance"], expected=measured)


def _measure_steps(point: NDArray[np.float32], x: NDArray[np.float32], run: RunFacts) -> float:
    """The l1 distance of two inputs on the grid, by whole steps; infinite if one is off it or outside [0, 1]."""
    assert run.grid is not None
    try:
        places = read_places(point, run.grid)
        steps = places - read_places(round_to_grid(x, run.grid) if run.rounds else x, run.grid)
    except ValueError:
        return math.inf
    inside = 0 <= int(places.min()) <= int(places.max()) < run.grid
    return int(np.abs(steps).sum()) / (run.grid - 1) if inside else math.inf
