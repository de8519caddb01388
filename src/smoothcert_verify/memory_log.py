"""The log of a memory of promised regions, and the promises of a run in it: the chain of entries is computed again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.feature_scales import divide_by_scale
from smoothcert_verify.findings import Finding, MalformedError, note, refuse
from smoothcert_verify.json_values import TEXT, Document, OneOf, Record, Whole, is_same, parse_json
from smoothcert_verify.memory_geometry import (
    PairCounter,
    Progress,
    Regions,
    are_farther,
    check_apart,
    check_overruled,
    to_whole_numbers,
)
from smoothcert_verify.memory_places import MemoryPlace, StoredClaim, StoredMemory, open_place
from smoothcert_verify.run_facts import RunFacts, digest_constant

_SETTLED = ("WHOLE", "CUT", "OVERRULED")
_INHERITED = "INHERITED"
_KEY = Record(model=TEXT, sigma_rule=TEXT, noise=TEXT, norm=OneOf(("l1", "l2")), preprocessing=TEXT, dimension=Whole(1))

Inputs = Callable[[int], NDArray[np.float32]]
"""From the index of an input to its numbers."""


@dataclass(slots=True)
class MemoryReport:
    """What was found in one memory. counter: comparisons of regions. unmeasured: promises by an earlier claim for which
    it was not measured where in its region the input lies."""

    digest: str
    claims: int = 0
    counter: PairCounter = field(default_factory=PairCounter)
    promises: int = 0
    unmeasured: int = 0
    discrepancies: list[Finding] = field(default_factory=list)


def verify_memory(
    place: str, entries: Sequence[CheckedInput], *, inputs: Inputs | None = None, progress: Progress | None = None
) -> list[MemoryReport]:
    """The memories that these inputs have promises in: each log by itself, and the promises against it.

    inputs: where the data is at hand, it is also measured where each input lies in the region it is promised by.
    """
    wanted: dict[str, list[CheckedInput]] = {}
    for one in entries:
        if one.run.memory is not None:
            wanted.setdefault(one.run.memory, []).append(one)
    reports = []
    with open_place(place) as found:
        stored = {str(memory.digest): memory for memory in found.memories()}
        for digest, own_entries in wanted.items():
            report = MemoryReport(digest)
            reports.append(report)
            if digest in stored:
                _verify_one(found, stored[digest], own_entries, report, inputs, progress)
            else:
                report.discrepancies.append(note("no-such-memory", digest=digest[:12]))
    return reports


def _verify_one(
    place: MemoryPlace,
    memory: StoredMemory,
    entries: Sequence[CheckedInput],
    report: MemoryReport,
    inputs: Inputs | None,
    progress: Progress | None,
) -> None:
    try:
        key = _read_key(memory)
    except MalformedError as error:
        report.discrepancies.append(error.finding)
        return
    for run in {id(one.run.manifest): one.run for one in entries}.values():
        for finding in _check_key(key, run):
            report.discrepancies += [finding] if finding not in report.discrepancies else []
    claims, regions = _load_claims(place, memory, key, report)
    report.claims = len(claims)
    report.discrepancies += check_overruled(regions, report.counter)
    report.discrepancies += check_apart(regions, report.counter, progress)
    if inputs is None:
        report.discrepancies += _check_shared_claims(entries)
    for one in entries:
        if one.promise is not None:
            report.promises += 1
            found = [*_check_promise(one.promise, claims, str(memory.identity))]
            found += _check_place(one, one.promise, regions, inputs, report)
            report.discrepancies += [finding.at(f"input {one.index}") for finding in found]


def _read_key(memory: StoredMemory) -> Document:
    """The key of a memory, if it has the digest it is stored under."""
    if not isinstance(memory.key, str) or hashlib.sha256(memory.key.encode()).hexdigest() != memory.digest:
        raise refuse("digest-differs", field="key")
    key: Document = parse_json(memory.key)
    _KEY(key, "key")
    return key


def _check_key(key: Mapping[str, Any], run: RunFacts) -> Iterator[Finding]:
    """The memory is that of the classifier of the run."""
    data = run.manifest["data"]
    ends = data["input_range"]
    inputs = {"input_shape": data["input_shape"], "input_range": None if ends is None else [float(e) for e in ends]}
    sigma = run.manifest["digests"]["sigma"]
    stated = {
        "model": run.manifest["digests"]["model"],
        "noise": _name_noise(run),
        "norm": run.form.norm,
        "preprocessing": hashlib.sha256(json.dumps(inputs).encode()).hexdigest(),
        "dimension": run.dimension,
        "sigma_rule": sigma if run.level is None or sigma is not None else digest_constant(run.level),
    }
    for name, value in stated.items():
        if not is_same(key[name], value):
            yield note("another-classifier", field=name, value=key[name], expected=value)


def _name_noise(run: RunFacts) -> str:
    if run.scale is not None:
        return f"{run.kind} on scaled features"
    if run.kind == "splitting":
        return f"{run.kind} with offsets {run.seed} on {run.grid} levels"
    return run.kind if run.grid is None else f"{run.kind} on {run.grid} levels"


def compute_entry(previous: str, claim: StoredClaim) -> str:
    """SHA-256 of a claim and the entry before it; before the first comes the identity of the memory."""
    content = [
        claim.position,
        claim.label,
        claim.radius,
        claim.asked_label,
        claim.asked_radius,
        claim.settlement,
        claim.claimed_at,
        previous,
    ]
    return hashlib.sha256(json.dumps(content).encode() + claim.centre).hexdigest()


def _load_claims(
    place: MemoryPlace, memory: StoredMemory, key: Mapping[str, Any], report: MemoryReport
) -> tuple[dict[int, StoredClaim], Regions]:
    """All claims by position, without their centres, and those that are well formed as regions."""
    claims: dict[int, StoredClaim] = {}
    centres: list[NDArray[np.float32]] = []
    sound: list[StoredClaim] = []
    last, entry = 0, str(memory.identity)
    for claim in place.claims(memory.number):
        if type(claim.position) is not int:
            report.discrepancies.append(
                note("invalid-value", field="position", value=claim.position, expected="a position")
            )
            continue
        if claim.position != last + 1:
            report.discrepancies.append(note("missing-claims", before=last, position=claim.position))
        problems = list(_check_shape(claim, dimension=key["dimension"]))
        if not problems:
            centres.append(np.frombuffer(claim.centre, dtype="<f4"))
            sound.append(claim._replace(centre=b""))
            problems = list(_check_claim(claim, entry))
        report.discrepancies += [problem.at(f"claim {claim.position}") for problem in problems]
        last, entry = claim.position, str(claim.entry)
        claims[claim.position] = claim._replace(centre=b"")
    if memory.head != (memory.digest, memory.key, memory.identity, last, entry):
        report.discrepancies.append(note("other-head", claims=memory.head.claims, last=last))
    regions = Regions(
        positions=np.array([claim.position for claim in sound], dtype=np.int64),
        labels=np.array([claim.label for claim in sound], dtype=np.int64),
        radii=np.array([claim.radius for claim in sound], dtype=np.float64),
        overruled=np.array([claim.settlement == "OVERRULED" for claim in sound], dtype=np.bool_),
        centres=np.array(centres, dtype=np.float32).reshape(len(sound), key["dimension"]),
        norm=key["norm"],
        whole={},
    )
    return claims, regions


def _check_shape(claim: StoredClaim, *, dimension: int) -> Iterator[Finding]:
    """What keeps a claim from being a region."""
    radii, labels = (claim.radius, claim.asked_radius), (claim.label, claim.asked_label)
    if not all(type(radius) is float and 0 <= radius < math.inf for radius in radii):
        yield note("invalid-value", field="radii", value=radii, expected="finite radii")
    if not all(type(label) is int and 0 <= label < 2**63 for label in labels):
        yield note("invalid-value", field="labels", value=labels, expected="classes")
    if not isinstance(claim.centre, bytes) or len(claim.centre) != 4 * dimension:
        yield note("invalid-value", field="centre", value=claim.centre, expected=f"{dimension} numbers")
    elif not np.isfinite(np.frombuffer(claim.centre, dtype="<f4")).all():
        yield note("invalid-value", field="centre", value="not finite", expected="finite numbers")
    if not all(isinstance(text, str) for text in (claim.settlement, claim.claimed_at, claim.entry)):
        yield note("invalid-value", field="settlement", value=claim.settlement, expected="a text")


def _check_claim(claim: StoredClaim, previous: str) -> Iterator[Finding]:
    """What a well-formed claim says of itself is possible, and is what was written."""
    values = {"radius": claim.radius, "asked": claim.asked_radius, "settlement": claim.settlement}
    if claim.entry != compute_entry(previous, claim):
        yield note("chain-broken")
    if claim.settlement not in _SETTLED:
        yield note(
            "invalid-value", field="settlement", value=claim.settlement, expected="one of " + ", ".join(_SETTLED)
        )
    whole, cut = claim.settlement == "WHOLE", claim.settlement == "CUT"
    equal = claim.radius == claim.asked_radius
    if claim.radius > claim.asked_radius or (whole and not equal) or (cut and equal):
        yield Finding("promise-of-more", values)
    if (claim.label != claim.asked_label) != (claim.settlement == "OVERRULED"):
        yield note("promise-of-class", settlement=claim.settlement, label=claim.label, asked=claim.asked_label)


def _check_promise(promise: Mapping[str, Any], claims: Mapping[int, StoredClaim], identity: str) -> Iterator[Finding]:
    """The promise of a document is the one in the log."""
    if promise["memory"] != identity:
        yield note("differs", field="promise.memory", value=promise["memory"], expected=identity)
    claim = claims.get(promise["position"])
    if claim is None:
        yield note("no-such-claim", position=promise["position"])
        return
    if promise["entry"] != claim.entry:
        yield note("another-log", position=claim.position)
    if promise["settlement"] == _INHERITED:
        if not is_same(promise["label"], claim.label) or not promise["radius"] <= claim.radius:
            yield note("not-in-region", position=claim.position, radius=promise["radius"])
        return
    for name in ("label", "radius", "settlement", "asked_label", "asked_radius"):
        if not is_same(getattr(claim, name), promise[name]):
            yield note("differs", field=f"promise.{name}", value=promise[name], expected=getattr(claim, name))


def _check_shared_claims(entries: Sequence[CheckedInput]) -> Iterator[Finding]:
    """Claims that several inputs state as their own.

    A claim that repeats an earlier one is not stored again, so the same input of the same data may have one claim in
    several runs. Different inputs may too if they are equal, number by number, which only the data shows.
    """
    owners: dict[int, tuple[str, int]] = {}
    for one in entries:
        if one.promise is None or one.promise["settlement"] == _INHERITED:
            continue
        owner = (one.run.manifest["digests"]["data"], one.index)
        first = owners.setdefault(one.promise["position"], owner)
        if first != owner:
            yield note("shared-claim", first=first[1], second=owner[1], position=one.promise["position"])


def _check_place(
    one: CheckedInput, promise: Mapping[str, Any], regions: Regions, inputs: Inputs | None, report: MemoryReport
) -> Iterator[Finding]:
    """The input is the centre of its own claim; if it claimed nothing, d + radius ≤ the radius of the claim.

    For an overruled claim it was checked that its region lies inside an earlier one.
    """
    if inputs is None:
        report.unmeasured += promise["settlement"] in (_INHERITED, "OVERRULED")
        return
    (rows,) = np.nonzero(regions.positions == promise["position"])
    if not rows.size:
        return  # reported before
    at, x = int(rows[0]), divide_by_scale(inputs(one.index), one.run.scale)
    if promise["settlement"] != _INHERITED:
        if not np.array_equal(regions.centres[at], x):
            yield note("claim-of-another-input", position=promise["position"])
        return
    room = Fraction(float(regions.radii[at])) - Fraction(promise["radius"])
    report.counter.exact += 1
    if room < 0 or are_farther(to_whole_numbers(x), to_whole_numbers(regions.centres[at]), regions.norm, room):
        yield note("not-in-region", position=promise["position"], radius=promise["radius"])
