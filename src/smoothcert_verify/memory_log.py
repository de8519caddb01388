"""The log of a memory of promised regions, and the promises of a run in it.

The chain of entries is computed again. That regions of different classes are apart, and that an overruled claim lies
inside an earlier region, is decided in whole numbers: a float32 is a multiple of 2^-149, so squares of distances are
whole multiples of 2^-298. Pairs that float64 shows to be apart, with a bound on its error, need no more.
"""

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

from smoothcert_verify.manifests import constant_digest
from smoothcert_verify.memory_places import Place, StoredClaim, StoredMemory, opened_place
from smoothcert_verify.reading import Document, MalformedError, parse_json
from smoothcert_verify.sentences import MALFORMED, same, shown, told

_SETTLED = ("WHOLE", "CUT", "OVERRULED")
_INHERITED = "INHERITED"
_UNIT = 2.0**-53
_FINEST = 149
"""Every float32 is a whole multiple of 2^-149."""
_BLOCK = 512
_NORMS = {"gaussian": "l2", "uniform": "l1"}
"""In which the regions of a noise are balls."""
_KEY_FIELDS = {"model", "sigma_rule", "noise", "norm", "preprocessing", "dimension"}

Progress = Callable[[int, int], None]
Inputs = Callable[[int], NDArray[np.float32]]
"""From the index of an input to its numbers."""


@dataclass(slots=True)
class MemoryReport:
    """What was found in one memory. pairs: of regions of different classes; exact: decided in whole numbers.
    unmeasured: promises by an earlier claim, for which it was not measured where in its region the input lies."""

    digest: str
    claims: int = 0
    pairs: int = 0
    exact: int = 0
    promises: int = 0
    unmeasured: int = 0
    discrepancies: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class _Regions:
    """The well-formed claims. centres: (n, d) float32; the others (n,)."""

    positions: NDArray[np.int64]
    labels: NDArray[np.int64]
    radii: NDArray[np.float64]
    overruled: NDArray[np.bool_]
    centres: NDArray[np.float32]
    norm: str


def verify_memory(
    place: str, documents: Sequence[Document], *, inputs: Inputs | None = None, progress: Progress | None = None
) -> list[MemoryReport]:
    """The memories that these documents have promises in: each log by itself, and the promises against it.

    inputs: where the data is at hand, it is measured too where each input lies in the region it is promised by.
    """
    wanted: dict[str, list[Document]] = {}
    for document in documents:
        digest = _memory_of(document)
        if digest is not None:
            wanted.setdefault(digest, []).append(document)
    with opened_place(place) as found:
        stored = {str(memory.digest): memory for memory in found.memories()}
        reports = []
        for digest, promised in wanted.items():
            report = MemoryReport(digest)
            reports.append(report)
            if digest in stored:
                _verify_one(found, stored[digest], promised, report, inputs, progress)
            else:
                report.discrepancies.append(
                    f"there is no memory {digest[:12]} at the place given, but a run claims from it"
                )
        return reports


def _memory_of(document: Mapping[str, Any]) -> str | None:
    try:
        digest = document["run"]["parameters"].get("memory")
    except MALFORMED:
        return None
    return digest if isinstance(digest, str) else None


def _verify_one(
    place: Place,
    memory: StoredMemory,
    documents: Sequence[Document],
    report: MemoryReport,
    inputs: Inputs | None,
    progress: Progress | None,
) -> None:
    try:
        key = _key(memory)
    except MalformedError as error:
        report.discrepancies.append(str(error))
        return
    for run in _distinct_runs(documents):
        report.discrepancies += _key_problems(key, run)
    outline, regions = _load(place, memory, key, report)
    report.claims = len(outline)
    _check_overruled(regions, report)
    _check_apart(regions, report, progress)
    if inputs is None:
        report.discrepancies += _shared_claims(documents)
    for document in documents:
        report.discrepancies += _promise_problems(document, outline, str(memory.identity), report)
        report.discrepancies += _place_problems(document, regions, inputs, report)


def _key(memory: StoredMemory) -> Document:
    """The key of a memory, if it has the digest it is stored under."""
    if not isinstance(memory.key, str) or hashlib.sha256(memory.key.encode()).hexdigest() != memory.digest:
        raise MalformedError(f"the key of the memory {shown(memory.digest)[:14]} does not have this digest")
    key = parse_json(memory.key)
    sound = isinstance(key, dict) and set(key) == _KEY_FIELDS and key["norm"] in ("l1", "l2")
    if not (sound and type(key["dimension"]) is int and key["dimension"] > 0):
        raise MalformedError("the key of the memory is none")
    return dict(key)


def _distinct_runs(documents: Sequence[Document]) -> list[Mapping[str, Any]]:
    runs: list[Mapping[str, Any]] = []
    for document in documents:
        if all(document["run"] is not run and document["run"] != run for run in runs):
            runs.append(document["run"])
    return runs


def _key_problems(key: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """The memory is that of the classifier the run speaks of."""
    try:
        noise = str(run["parameters"]["noise"]).partition(" ")[0].removesuffix(",")
        grid = run["parameters"].get("grid")
        stated = {
            "model": run["model"]["digest"],
            "noise": noise if grid is None else f"{noise} on {grid} levels",
            "norm": _NORMS[noise],
            "preprocessing": _preprocessing(run["data"]),
            "dimension": math.prod(run["data"]["input_shape"]),
        }
        rule = run["parameters"].get("sigma_rule")
        stated["sigma_rule"] = constant_digest(run["parameters"]["sigma"]) if rule is None else rule["digest"]
    except MALFORMED as error:
        return [f"the run does not say whose regions it claims: {told(error)}"]
    return [
        f"the memory is that of another classifier: {name} is {shown(key[name])}, the run has {shown(value)}"
        for name, value in stated.items()
        if not same(key[name], value)
    ]


def _preprocessing(data: Mapping[str, Any]) -> str:
    """The digest of shape and range of the inputs, as a key has it."""
    ends = data["input_range"]
    told_of = {"input_shape": data["input_shape"], "input_range": None if ends is None else [float(e) for e in ends]}
    return hashlib.sha256(json.dumps(told_of).encode()).hexdigest()


def entry_after(previous: str, claim: StoredClaim) -> str:
    """SHA-256 of a claim and the entry before it; before the first comes the identity of the memory."""
    told_of = [
        claim.position,
        claim.label,
        claim.radius,
        claim.asked_label,
        claim.asked_radius,
        claim.settlement,
        claim.claimed_at,
        previous,
    ]
    return hashlib.sha256(json.dumps(told_of).encode() + claim.centre).hexdigest()


def _load(
    place: Place, memory: StoredMemory, key: Mapping[str, Any], report: MemoryReport
) -> tuple[dict[int, StoredClaim], _Regions]:
    """All claims by position, without their centres, and those that are well formed as regions."""
    outline: dict[int, StoredClaim] = {}
    centres: list[NDArray[np.float32]] = []
    sound: list[StoredClaim] = []
    last, entry = 0, str(memory.identity)
    for claim in place.claims(memory.number):
        if type(claim.position) is not int:
            report.discrepancies.append(f"a claim stands at position {shown(claim.position)}, which is none")
            continue
        if claim.position != last + 1:
            report.discrepancies.append(f"after claim {last} comes claim {shown(claim.position)}: some are missing")
        problems = _claim_problems(claim, entry, dimension=key["dimension"])
        report.discrepancies += [f"claim {shown(claim.position)}: {problem}" for problem in problems.all]
        last, entry = claim.position, str(claim.entry)
        outline[claim.position] = claim._replace(centre=b"")
        if not problems.malformed:
            centres.append(np.frombuffer(claim.centre, dtype="<f4"))
            sound.append(claim._replace(centre=b""))
    kept = memory.head
    if kept is not None and kept != (memory.digest, memory.key, memory.identity, last, entry):
        report.discrepancies.append(
            f"the log does not end as it should: what is kept apart from the claims counts {shown(kept.claims)} of "
            f"them, and {last} are there, or their keys or last entries differ"
        )
    regions = _Regions(
        positions=np.array([claim.position for claim in sound], dtype=np.int64),
        labels=np.array([claim.label for claim in sound], dtype=np.int64),
        radii=np.array([claim.radius for claim in sound], dtype=np.float64),
        overruled=np.array([claim.settlement == "OVERRULED" for claim in sound], dtype=np.bool_),
        centres=np.array(centres, dtype=np.float32).reshape(len(sound), key["dimension"]),
        norm=key["norm"],
    )
    return outline, regions


@dataclass(frozen=True, slots=True)
class _Problems:
    malformed: list[str]
    wrong: list[str]

    @property
    def all(self) -> list[str]:
        return self.malformed + self.wrong


def _claim_problems(claim: StoredClaim, previous: str, *, dimension: int) -> _Problems:
    """malformed: it is no region. wrong: what it says of itself cannot be, or is not what was written."""
    malformed = []
    radii, labels = (claim.radius, claim.asked_radius), (claim.label, claim.asked_label)
    if not all(type(radius) is float and 0 <= radius < math.inf for radius in radii):
        malformed.append(f"its radii are {shown(radii)}, which cannot be")
    if not all(type(label) is int and 0 <= label < 2**63 for label in labels):
        malformed.append(f"its classes are {shown(labels)}, which cannot be")
    if not isinstance(claim.centre, bytes) or len(claim.centre) != 4 * dimension:
        malformed.append(f"its centre has not {dimension} numbers")
    elif not np.isfinite(np.frombuffer(claim.centre, dtype="<f4")).all():
        malformed.append("its centre is not finite")
    if not all(isinstance(text, str) for text in (claim.settlement, claim.claimed_at, claim.entry)):
        malformed.append("what should be text in it is none")
    if malformed:
        return _Problems(malformed, [])
    wrong = []
    if claim.entry != entry_after(previous, claim):
        wrong.append("it is not what was written, or does not follow the claim before it: its entry is another digest")
    if claim.settlement not in _SETTLED:
        wrong.append(f"it was settled as {shown(claim.settlement)}, which a log never holds")
    if claim.radius > claim.asked_radius:
        wrong.append(f"it was granted radius {claim.radius!r}, and only {claim.asked_radius!r} was asked")
    if (claim.label != claim.asked_label) != (claim.settlement == "OVERRULED"):
        wrong.append(f"it answers class {claim.label} where {claim.asked_label} was asked, as {claim.settlement}")
    if (claim.settlement == "WHOLE" and claim.radius != claim.asked_radius) or (
        claim.settlement == "CUT" and claim.radius == claim.asked_radius
    ):
        wrong.append(f"it was granted {claim.radius!r} of {claim.asked_radius!r}, as {claim.settlement}")
    return _Problems([], wrong)


def _promise_problems(
    document: Mapping[str, Any], outline: Mapping[int, StoredClaim], identity: str, report: MemoryReport
) -> Iterator[str]:
    """The promise of a document is the one in the log."""
    promise = document["promise"]
    if promise is None:
        return
    report.promises += 1
    try:
        name = f"input {shown(document['input']['index'])}"
        if promise["memory"] != identity:
            yield f"{name}: it was promised by another memory, {shown(promise['memory'])}"
        claim = outline.get(promise["position"])
        if claim is None:
            yield f"{name}: the log has no claim at position {shown(promise['position'])}"
            return
        if promise["entry"] != claim.entry:
            yield f"{name}: the log up to position {claim.position} is not the one its promise was made in"
        if promise["settlement"] == _INHERITED:
            if not same(promise["label"], claim.label) or not promise["radius"] <= claim.radius:
                yield f"{name}: it does not lie in the region at position {claim.position} as it says"
            return
        for field_name in ("label", "radius", "settlement", "asked_label", "asked_radius"):
            stored, stated = getattr(claim, field_name), promise[field_name]
            if not same(stored, stated):
                yield f"{name}: {field_name} of its promise is {shown(stated)}; the log has {shown(stored)}"
    except MALFORMED as error:
        yield f"an input has a promise that is not well formed: {told(error)}"


def _shared_claims(documents: Sequence[Document]) -> Iterator[str]:
    """Claims that several inputs say are their own.

    A claim that repeats an earlier one is not stored again, so the same input of the same data may have one claim in
    several runs. Different inputs may too if they are equal, number by number; only the data shows that they are.
    """
    owners: dict[Any, tuple[Any, Any]] = {}
    for document in documents:
        try:
            promise, run = document["promise"], document["run"]
            if promise is None or promise["settlement"] == _INHERITED:
                continue
            owner = (run["data"]["digest"], document["input"]["index"])
            first = owners.setdefault(promise["position"], owner)
            if first != owner:
                yield (
                    f"inputs {shown(first[1])} and {shown(owner[1])} both say that claim {shown(promise['position'])} "
                    "is their own, which only equal inputs may: if they are, the data shows it (--data)"
                )
        except MALFORMED:
            continue  # said where the promise is looked at


def _place_problems(
    document: Mapping[str, Any], regions: _Regions, inputs: Inputs | None, report: MemoryReport
) -> Iterator[str]:
    """The input is the centre of its own claim; where it claimed nothing, d + radius ≤ the radius of the claim.

    Of an overruled claim it was checked that its region lies inside an earlier one.
    """
    promise = document["promise"]
    if promise is None:
        return
    try:
        if inputs is None:
            report.unmeasured += promise["settlement"] in (_INHERITED, "OVERRULED")
            return
        index = document["input"]["index"]
        (rows,) = np.nonzero(regions.positions == promise["position"])
        if not rows.size:
            return  # that it is missing, or malformed, was said
        at, x = int(rows[0]), inputs(index)
        if promise["settlement"] != _INHERITED:
            if not np.array_equal(regions.centres[at], x):
                yield f"input {shown(index)}: claim {promise['position']} is around another input"
            return
        room = Fraction(float(regions.radii[at])) - Fraction(promise["radius"])
        report.exact += 1
        if room < 0 or _farther(_whole_numbers(x), _whole_numbers(regions.centres[at]), regions.norm, room):
            yield (
                f"input {shown(index)}: a ball of radius {promise['radius']!r} around it is not inside the region of "
                f"claim {promise['position']}"
            )
    except MALFORMED as error:
        yield f"an input has a promise that cannot be measured: {told(error)}"


# --- geometry -------------------------------------------------------------------------------------------------------


class _Exact:
    """Distances of regions in whole numbers; each centre is turned into them once."""

    def __init__(self, regions: _Regions) -> None:
        self._regions = regions
        self._whole: dict[int, list[int]] = {}

    def exceeds(self, one: int, other: int, length: Fraction) -> bool:
        """Whether the centres are farther apart than `length` ≥ 0."""
        return _farther(self._numbers(one), self._numbers(other), self._regions.norm, length)

    def _numbers(self, at: int) -> list[int]:
        found = self._whole.get(at)
        if found is None:
            found = self._whole[at] = _whole_numbers(self._regions.centres[at])
        return found


def _whole_numbers(x: NDArray[np.float32]) -> list[int]:
    """In multiples of 2^-149. 24 bits, below 2^(128+149): float64 holds the products exactly."""
    return [int(value) for value in np.ldexp(x.astype(np.float64), _FINEST).tolist()]


def _farther(one: Sequence[int], other: Sequence[int], norm: str, length: Fraction) -> bool:
    """Whether two points, in multiples of 2^-149, are farther apart than `length` ≥ 0."""
    differences = [a - b for a, b in zip(one, other, strict=True)]
    if norm == "l1":
        return Fraction(sum(map(abs, differences)), 1 << _FINEST) > length
    return Fraction(sum(step * step for step in differences), 1 << 2 * _FINEST) > length * length


def _check_apart(regions: _Regions, report: MemoryReport, progress: Progress | None) -> None:
    """Closed regions of different classes must not meet: d > r + s.

    float64 first. With u = 2^-53 a product of two rows of d terms errs by at most γ_d ‖x‖‖y‖ ≤ γ_d (‖x‖²+‖y‖²)/2,
    γ_d < 1.01 d u, and so do the squares; so ‖x‖²+‖y‖²-2xy errs by less than 4(d+8)u(‖x‖²+‖y‖²). The ℓ1 distance is at
    least the ℓ2 distance. What is not excluded is measured from the differences, and then in whole numbers.
    """
    count, dimension = regions.centres.shape
    wide = regions.centres.astype(np.float64)
    squares = np.einsum("ij,ij->i", wide, wide)
    room = 4.0 * (dimension + 8) * _UNIT
    exact = _Exact(regions)
    for start in range(0, count, _BLOCK):
        rows = slice(start, min(start + _BLOCK, count))
        sums = squares[rows, None] + squares[None, start:]
        apart = sums * (1.0 - room) - 2.0 * (wide[rows] @ wide[start:].T)
        reach = regions.radii[rows, None] + regions.radii[None, start:]
        different = np.triu(regions.labels[rows, None] != regions.labels[None, start:], k=1)
        report.pairs += int(np.count_nonzero(different))
        # Written so that an overflow to NaN or infinity excludes nothing.
        close = different & ~(apart > reach * reach * (1.0 + 16.0 * _UNIT))
        for one, other in np.argwhere(close).tolist():
            _check_pair(regions, wide, start + one, start + other, exact, report)
        if progress is not None:
            progress(rows.stop, count)


def _check_pair(
    regions: _Regions, wide: NDArray[np.float64], one: int, other: int, exact: _Exact, report: MemoryReport
) -> None:
    distance = _measured(wide[one] - wide[other], regions.norm)
    reach = float(regions.radii[one] + regions.radii[other])
    if distance * (1.0 - 4.0 * (wide.shape[1] + 8) * _UNIT) > reach * (1.0 + 4.0 * _UNIT):
        return
    report.exact += 1
    if not exact.exceeds(one, other, Fraction(float(regions.radii[one])) + Fraction(float(regions.radii[other]))):
        report.discrepancies.append(
            f"the regions of claims {regions.positions[one]} and {regions.positions[other]} meet, but their classes "
            f"are {regions.labels[one]} and {regions.labels[other]}"
        )


def _measured(difference: NDArray[np.float64], norm: str) -> float:
    return float(np.abs(difference).sum() if norm == "l1" else math.sqrt(float(difference @ difference)))


def _check_overruled(regions: _Regions, report: MemoryReport) -> None:
    """Every overruled claim lies, with its whole region, inside one earlier region of its class: d ≤ r - s."""
    exact = _Exact(regions)
    for at in np.flatnonzero(regions.overruled).tolist():
        earlier = np.flatnonzero(
            (regions.labels[:at] == regions.labels[at]) & (regions.radii[:at] >= regions.radii[at])
        )
        differences = regions.centres[earlier].astype(np.float64) - regions.centres[at].astype(np.float64)
        if regions.norm == "l1":
            distances = np.abs(differences).sum(axis=1)
        else:
            distances = np.sqrt(np.einsum("ij,ij->i", differences, differences))
        slack = regions.radii[earlier] - regions.radii[at] - distances
        # The roomiest first: one is enough, and far from the edge the first one is it.
        for place in np.argsort(-slack, kind="stable").tolist():
            outer = int(earlier[place])
            if slack[place] < -1e-9 * float(regions.radii[outer]):
                report.discrepancies.append(_not_inside(regions, at))
                break
            report.exact += 1
            length = Fraction(float(regions.radii[outer])) - Fraction(float(regions.radii[at]))
            if not exact.exceeds(at, outer, length):
                break
        else:
            report.discrepancies.append(_not_inside(regions, at))


def _not_inside(regions: _Regions, at: int) -> str:
    return (
        f"claim {regions.positions[at]} was overruled, but its region lies in no earlier region of class "
        f"{regions.labels[at]}"
    )
