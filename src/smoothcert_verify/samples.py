"""The tallies of a certificate document: read, checked for sums that do not add up, and merged by stage."""

from __future__ import annotations

import base64
import binascii
import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.arithmetic import MOST_TRIALS
from smoothcert_verify.findings import refuse
from smoothcert_verify.json_values import OBJECT, TEXT, ListOf, Number, OneOf, Optional, Record, Shape, TableOf, Whole

IntArray = NDArray[np.int64]

SCORE_CELLS = 2**14 + 2
"""Exactly 0; 2^14 intervals; exactly 1."""
STAGES = ("SELECTION", "ESTIMATION", "PREDICTION")

_COUNT = Whole(most=2 * MOST_TRIALS)
_SIGNED = Whole(1 - 2**63, 2**63 - 1)
_VOTES: Mapping[str, Shape] = {"votes": TableOf(_COUNT), "invalid": _COUNT}
_COUNTS = {
    "votes": Record(**_VOTES),
    "pairs": Record(both=TableOf(_COUNT), first=TableOf(_COUNT), second=TableOf(_COUNT)),
    "gradients": Record(**_VOTES, group=ListOf(_SIGNED), products=ListOf(_SIGNED)),
    "scores": Record(**_VOTES, label=Whole()),
}
TALLY = Record(
    stage=OneOf(STAGES),
    kind=OneOf(tuple(_COUNTS)),
    start=Whole(most=2**63),
    stop=Whole(most=2**63),
    sigma=Number(),
    num_classes=Whole(2, 10**6),
    counts=OBJECT,
    sums=Optional(TEXT),
)
"""The shape of an entry of "tallies"; its counts are checked by `read_samples`."""

_MOST_SUMS = 2**31
"""Bytes that compressed sums may unpack to."""


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Draws by where the votes at x+ε and x-ε fell: by class, the last place for answers that are not finite."""

    both: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NoiseSums:
    """Sums of the noise by half and group of classes, (2, groups, dimension), and of products of pairs, by group."""

    group: tuple[int, ...]
    sums: IntArray
    products: tuple[int, ...]

    def own_group(self, label: int) -> int | None:
        """The group of this class alone; None if it shares one."""
        group = self.group[label]
        return group if self.group.count(group) == 1 else None


@dataclass(frozen=True, slots=True)
class ScoreCells:
    """Histograms of the score of the label and of the largest other score: the number in each cell."""

    label: int
    own: IntArray
    other: IntArray


@dataclass(frozen=True, slots=True)
class Samples:
    """What was counted over one or several ranges of one stage.

    draws: of noise; a pair of votes is one draw. votes: those of independent samples, by class; of a pair only that at
    x+ε. invalid: samples without a finite answer among them. votes and invalid add up to draws.
    """

    stage: str
    kind: str
    sigma: float
    spans: tuple[tuple[int, int], ...]
    votes: tuple[int, ...]
    invalid: int
    pairs: PairCounts | None = None
    gradients: NoiseSums | None = None
    scores: ScoreCells | None = None

    @property
    def draws(self) -> int:
        return sum(stop - start for start, stop in self.spans)

    @property
    def samples(self) -> int:
        """How often the base classifier was asked."""
        return self.draws * (2 if self.kind == "pairs" else 1)

    @property
    def num_classes(self) -> int:
        return len(self.votes)

    def largest_other(self, label: int) -> int:
        """The most votes for anything but the label; answers that are not finite count as a class of their own."""
        return max([count for c, count in enumerate(self.votes) if c != label] + [self.invalid])

    def count_safe_steps(self, label: int) -> int:
        """Changes of single votes after which this class still leads, where votes are all that there are.

        A change takes one vote from the class, at worst, and gives it to another class B: so the lead over B falls by
        2. In a tie the lower class wins; answers that are not finite are a class after all others.
        """
        mine, all_votes = self.votes[label], (*self.votes, self.invalid)
        return min((mine - other - (c < label)) // 2 for c, other in enumerate(all_votes) if c != label)

    def plurality(self) -> int | None:
        """The class with most votes, the lowest in a tie; None if there is no vote, or fewer than invalid answers."""
        most = max(self.votes)
        return self.votes.index(most) if most > 0 and most >= self.invalid else None


def read_samples(entry: Mapping[str, Any], *, dimension: int) -> Samples:
    """An entry of "tallies" that has the shape TALLY. dimension: of an input, which sums of noise must have."""
    kind, classes, counts, packed = entry["kind"], entry["num_classes"], entry["counts"], entry["sums"]
    start, stop, sigma = entry["start"], entry["stop"], entry["sigma"]
    _COUNTS[kind](counts, "tallies.counts")
    if not 0 < stop - start <= MOST_TRIALS or not sigma > 0:
        raise refuse("impossible-tally", start=start, stop=stop, sigma=sigma)
    if (packed is not None) != (kind in ("gradients", "scores")):
        raise refuse("sums-of-kind", kind=kind)
    draws = stop - start
    if kind == "pairs":
        pairs = _read_pairs(counts, classes, draws=draws)
        votes = tuple(a + b for a, b in zip(pairs.both, pairs.first, strict=True))
        return Samples(entry["stage"], kind, sigma, ((start, stop),), votes[:-1], votes[-1], pairs=pairs)
    votes, invalid = _read_counts(counts["votes"], classes), counts["invalid"]
    if sum(votes) + invalid != draws:
        raise refuse("votes-do-not-add-up", draws=draws, votes=sum(votes), invalid=invalid)
    samples = Samples(entry["stage"], kind, sigma, ((start, stop),), votes, invalid)
    if kind == "scores":
        return replace(samples, scores=_read_scores(counts, packed, classes, valid=sum(votes)))
    if kind == "gradients":
        if start % 2 or stop % 2:
            raise refuse("odd-gradient-draws", start=start, stop=stop)
        return replace(samples, gradients=_read_gradients(counts, packed, classes, dimension))
    return samples


def merge_samples(parts: Sequence[Samples]) -> Samples:
    """All samples of one stage, which must be alike and of disjoint ranges."""
    first = parts[0]
    for part in parts:
        if (part.kind, part.sigma, part.num_classes) != (first.kind, first.sigma, first.num_classes):
            raise refuse("tallies-differ", stage=first.stage, what="kind, noise level or number of classes")
    spans = tuple(sorted(span for part in parts for span in part.spans))
    for (_, stop), (start, _) in itertools.pairwise(spans):
        if start < stop:
            raise refuse("gap-in-samples", stage=first.stage, at=start)
    if len(parts) == 1:
        return first
    total = replace(
        first,
        spans=spans,
        votes=_add_places([part.votes for part in parts]),
        invalid=sum(part.invalid for part in parts),
    )
    pairs = [part.pairs for part in parts if part.pairs is not None]
    gradients = [part.gradients for part in parts if part.gradients is not None]
    scores = [part.scores for part in parts if part.scores is not None]
    if pairs:
        added = (_add_places([getattr(part, name) for part in pairs]) for name in ("both", "first", "second"))
        return replace(total, pairs=PairCounts(*added))
    if gradients:
        if any(part.group != gradients[0].group for part in gradients):
            raise refuse("tallies-differ", stage=first.stage, what="the groups of classes")
        sums: IntArray = np.stack([part.sums for part in gradients]).sum(axis=0)
        products = _add_places([part.products for part in gradients])
        return replace(total, gradients=NoiseSums(gradients[0].group, sums, products))
    if scores:
        if any(part.label != scores[0].label for part in scores):
            raise refuse("tallies-differ", stage=first.stage, what="the class of the scores")
        own, other = (np.sum([getattr(part, name) for part in scores], axis=0) for name in ("own", "other"))
        return replace(total, scores=ScoreCells(scores[0].label, own, other))
    return total


def _add_places(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


def _read_pairs(counts: Mapping[str, Any], classes: int, *, draws: int) -> PairCounts:
    both, first, second = (_read_counts(counts[name], classes + 1) for name in ("both", "first", "second"))
    if sum(both) + sum(first) != draws or sum(both) + sum(second) != draws:
        raise refuse("pairs-do-not-add-up", draws=draws)
    if any(a + b > draws - sum(both) for a, b in zip(first, second, strict=True)):
        raise refuse("too-many-differing-pairs", draws=draws)
    return PairCounts(both, first, second)


def _read_gradients(counts: Mapping[str, Any], packed: str, classes: int, dimension: int) -> NoiseSums:
    group, products = tuple(counts["group"]), tuple(counts["products"])
    if len(group) != classes + 1 or set(group) != set(range(len(products))):
        raise refuse("invalid-groups", classes=classes, groups=group)
    sums = unpack_sums(packed, most=2 * len(products) * dimension)
    if sums.size != 2 * len(products) * dimension:
        raise refuse("length-of-sums", size=sums.size, expected=2 * len(products) * dimension)
    return NoiseSums(group, sums.reshape(2, len(products), dimension), products)


def _read_scores(counts: Mapping[str, Any], packed: str, classes: int, *, valid: int) -> ScoreCells:
    Whole(most=classes - 1)(counts["label"], "tallies.counts.label")
    flat = unpack_sums(packed, most=4 * SCORE_CELLS)
    if flat.size % 2:
        raise refuse("length-of-sums", size=flat.size, expected="an even number")
    cells, hits = flat.reshape(2, -1)
    sound = (np.diff(cells) > 0).all() and ((cells >= 0) & (cells < 2 * SCORE_CELLS) & (hits >= 1)).all()
    dense: IntArray = np.zeros(2 * SCORE_CELLS, dtype=np.int64)
    if sound and (hits <= valid).all():
        dense[cells] = hits
    own, other = dense[:SCORE_CELLS], dense[SCORE_CELLS:]
    if not (sound and int(own.sum()) == valid == int(other.sum())):
        raise refuse("invalid-histogram", valid=valid)
    return ScoreCells(counts["label"], own, other)


def unpack_sums(packed: str, *, most: int) -> IntArray:
    """Base64 of zlib of little-endian 64-bit whole numbers, at most so many of them."""
    try:
        if 8 * most > _MOST_SUMS:
            raise ValueError("they are too long")
        stream = zlib.decompressobj()
        content = stream.decompress(base64.b64decode(packed, validate=True), 8 * most + 1)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise refuse("unreadable-sums", error=str(error)) from error
    if len(content) > 8 * most or len(content) % 8 or not stream.eof or stream.unused_data:
        raise refuse("length-of-sums", size=len(content) // 8, expected=f"at most {most}")
    return np.frombuffer(content, dtype="<i8").astype(np.int64)


def _read_counts(counts: Mapping[str, int], size: int) -> tuple[int, ...]:
    dense = [0] * size
    for name, count in counts.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and name == str(int(name)) and int(name) < size):
            raise refuse("unknown-class", label=name, classes=size)
        dense[int(name)] = count
    return tuple(dense)
