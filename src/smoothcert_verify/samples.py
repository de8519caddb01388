"""The tallies of a certificate document, read with distrust: what does not add up is not counted with."""

from __future__ import annotations

import base64
import binascii
import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.arithmetic import MOST_TRIALS

IntArray = NDArray[np.int64]

SCORE_CELLS = 2**14 + 2
"""Exactly 0; 2^14 intervals; exactly 1."""

STAGES = ("SELECTION", "ESTIMATION", "PREDICTION")
KINDS = ("votes", "pairs", "gradients", "scores")

_LARGEST_NUMBER = 1e300
_MOST_CLASSES = 10**6
_MOST_SUMS = 2**31
"""Bytes that compressed sums may unpack to."""


class UnreadableError(Exception):
    """A sentence about what in a document is not what it must be."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Draws by where the votes at x+ε and x-ε fell: by class, the last place for answers that are not finite."""

    both: tuple[int, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Gradients:
    """Sums of the noise by half and group of classes, (2, groups, dimension), and of products of pairs, by group."""

    group: tuple[int, ...]
    sums: IntArray
    products: tuple[int, ...]

    def own_group(self, label: int) -> int | None:
        """The group of this class alone; None where it shares one."""
        group = self.group[label]
        return group if self.group.count(group) == 1 else None


@dataclass(frozen=True, slots=True)
class Scores:
    """Histograms of the score of the label and of the largest other score: how many fell into each cell."""

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
    pairs: Pairs | None = None
    gradients: Gradients | None = None
    scores: Scores | None = None

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
        """The most votes for anything but the label; answers that are not finite are a class of their own."""
        return max([count for c, count in enumerate(self.votes) if c != label] + [self.invalid])

    def plurality(self) -> int | None:
        """The class with most votes, the lowest in a tie; None where none has any, or fewer than gave no answer."""
        most = max(self.votes)
        return self.votes.index(most) if most > 0 and most >= self.invalid else None


def read_samples(document: Any, *, dimension: int | None) -> Samples:
    """One entry of "tallies". dimension: of an input, which sums of noise must have."""
    entry = mapping(document, "a tally")
    stage, kind = text(entry, "stage"), text(entry, "kind")
    if stage not in STAGES or kind not in KINDS:
        raise UnreadableError(f"a tally of {kind!r} in the stage {stage!r} is of no known kind")
    span = (whole(entry, "start", most=2**63), whole(entry, "stop", most=2**63))
    if not 0 < span[1] - span[0] <= MOST_TRIALS:
        raise UnreadableError(f"a tally cannot span the draws {span[0]} to {span[1]}")
    classes = whole(entry, "num_classes", least=2, most=_MOST_CLASSES)
    sigma = number(entry, "sigma")
    if not sigma > 0:
        raise UnreadableError(f"a tally cannot have the noise level {sigma}")
    counts = mapping(entry.get("counts"), "the counts of a tally")
    if kind != "gradients" and kind != "scores" and entry.get("sums") is not None:
        raise UnreadableError(f"a tally of {kind} has no sums")
    if kind == "pairs":
        return _read_pairs(stage, sigma, span, counts, classes)
    votes, invalid = _dense(counts.get("votes"), classes), whole(counts, "invalid")
    if sum(votes) + invalid != span[1] - span[0]:
        raise UnreadableError(f"{span[1] - span[0]} draws cannot give {sum(votes)} votes and {invalid} invalid answers")
    samples = Samples(stage, kind, sigma, (span,), votes, invalid)
    if kind == "votes":
        return samples
    if kind == "scores":
        return _with(samples, scores=_read_scores(counts, entry.get("sums"), classes, valid=sum(votes)))
    if span[0] % 2 or span[1] % 2:
        raise UnreadableError("gradients are counted over whole pairs of draws")
    return _with(samples, gradients=_read_gradients(counts, entry.get("sums"), classes, dimension))


def merged(parts: Sequence[Samples]) -> Samples:
    """All samples of one stage, which must be alike and of disjoint ranges."""
    first = parts[0]
    for part in parts:
        if (part.kind, part.sigma, part.num_classes) != (first.kind, first.sigma, first.num_classes):
            raise UnreadableError("tallies of one stage differ in kind, noise level or number of classes")
    spans = tuple(sorted(span for part in parts for span in part.spans))
    for (_, stop), (start, _) in itertools.pairwise(spans):
        if start < stop:
            raise UnreadableError(f"the draws from {start} on are counted twice")
    if len(parts) == 1:
        return first
    votes = tuple(map(sum, zip(*(part.votes for part in parts), strict=True)))
    total = Samples(first.stage, first.kind, first.sigma, spans, votes, sum(part.invalid for part in parts))
    pairs = [part.pairs for part in parts if part.pairs is not None]
    gradients = [part.gradients for part in parts if part.gradients is not None]
    scores = [part.scores for part in parts if part.scores is not None]
    if pairs:
        added = (tuple(map(sum, zip(*(getattr(p, name) for p in pairs), strict=True))) for name in Pairs.__slots__)
        return _with(total, pairs=Pairs(*added))
    if gradients:
        if any(part.group != gradients[0].group for part in gradients):
            raise UnreadableError("tallies of one stage put the classes into different groups")
        products = tuple(map(sum, zip(*(part.products for part in gradients), strict=True)))
        sums: IntArray = np.stack([part.sums for part in gradients]).sum(axis=0)
        return _with(total, gradients=Gradients(gradients[0].group, sums, products))
    if scores:
        if any(part.label != scores[0].label for part in scores):
            raise UnreadableError("tallies of one stage hold the scores of different classes")
        own, other = (np.sum([getattr(p, name) for p in scores], axis=0) for name in ("own", "other"))
        return _with(total, scores=Scores(scores[0].label, own, other))
    return total


def _with(
    samples: Samples,
    *,
    pairs: Pairs | None = None,
    gradients: Gradients | None = None,
    scores: Scores | None = None,
) -> Samples:
    plain = (samples.stage, samples.kind, samples.sigma, samples.spans, samples.votes, samples.invalid)
    return Samples(*plain, pairs=pairs, gradients=gradients, scores=scores)


def _read_pairs(stage: str, sigma: float, span: tuple[int, int], counts: Mapping[str, Any], classes: int) -> Samples:
    draws = span[1] - span[0]
    both, first, second = (_dense(counts.get(name), classes + 1) for name in ("both", "first", "second"))
    if sum(both) + sum(first) != draws or sum(both) + sum(second) != draws:
        raise UnreadableError(f"{draws} pairs must have as many first votes and as many second votes")
    if any(a + b > draws - sum(both) for a, b in zip(first, second, strict=True)):
        raise UnreadableError("a class has more pairs with one of two different votes than there are such pairs")
    votes = tuple(a + b for a, b in zip(both, first, strict=True))
    return Samples(stage, "pairs", sigma, (span,), votes[:-1], votes[-1], pairs=Pairs(both, first, second))


def _read_gradients(counts: Mapping[str, Any], packed: Any, classes: int, dimension: int | None) -> Gradients:
    group, products = _whole_list(counts.get("group"), "groups"), _whole_list(counts.get("products"), "products")
    if len(group) != classes + 1 or set(group) != set(range(len(products))):
        raise UnreadableError(f"{classes} classes and invalid answers cannot be put into the groups {group[:20]}")
    if dimension is None:
        raise UnreadableError("sums of noise cannot be read without the dimension of an input")
    sums = _unpacked(packed, numbers=2 * len(products) * dimension)
    if sums.size != 2 * len(products) * dimension:
        raise UnreadableError(f"the sums of noise are {sums.size} numbers, not two halves of every group")
    return Gradients(group, sums.reshape(2, len(products), dimension), products)


def _read_scores(counts: Mapping[str, Any], packed: Any, classes: int, *, valid: int) -> Scores:
    label = whole(counts, "label", most=classes - 1)
    flat = _unpacked(packed, numbers=4 * SCORE_CELLS)
    if flat.size % 2:
        raise UnreadableError("a histogram needs as many counts as cells")
    cells, hits = flat.reshape(2, -1)
    if (np.diff(cells) <= 0).any() or ((cells < 0) | (cells >= 2 * SCORE_CELLS)).any():
        raise UnreadableError("the cells of a histogram must increase, and be cells")
    if ((hits < 1) | (hits > valid)).any():
        raise UnreadableError("a histogram holds a count that cannot be")
    dense: IntArray = np.zeros(2 * SCORE_CELLS, dtype=np.int64)
    dense[cells] = hits
    own, other = dense[:SCORE_CELLS], dense[SCORE_CELLS:]
    if int(own.sum()) != valid or int(other.sum()) != valid:
        raise UnreadableError(f"{valid} valid answers must have as many scores of either kind")
    return Scores(label, own, other)


def _unpacked(packed: Any, *, numbers: int) -> IntArray:
    """Compressed 64-bit whole numbers, at most so many of them."""
    most = 8 * numbers
    if not isinstance(packed, str) or most > _MOST_SUMS:
        raise UnreadableError("the sums of a tally are missing, or too long to be read")
    try:
        stream = zlib.decompressobj()
        content = stream.decompress(base64.b64decode(packed, validate=True), most + 1)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise UnreadableError(f"the sums of a tally cannot be unpacked: {error}") from error
    if len(content) > most or len(content) % 8 or not stream.eof or stream.unused_data:
        raise UnreadableError("the sums of a tally do not have the length they must have")
    return np.frombuffer(content, dtype="<i8").astype(np.int64)


def _dense(counts: Any, size: int) -> tuple[int, ...]:
    dense = [0] * size
    for name, count in mapping(counts, "votes by class").items():
        if not (isinstance(name, str) and name.isascii() and name.isdigit() and len(name) < 10 and int(name) < size):
            raise UnreadableError(f"there are {size} places for votes, and votes for {name!r:.40}")
        if type(count) is not int or not 0 <= count <= 2 * MOST_TRIALS or name != str(int(name)):
            raise UnreadableError(f"class {name} cannot have {count!r:.40} votes")
        dense[int(name)] = count
    return tuple(dense)


def _whole_list(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int and abs(value) < 2**63 for value in values):
        raise UnreadableError(f"the {what} of a tally are not whole numbers")
    return tuple(values)


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise UnreadableError(f"{what} must be an object with named values, not {type(value).__name__}")
    return value


def text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise UnreadableError(f"{name} must be a text, not {value!r:.40}")
    return value


def whole(entry: Mapping[str, Any], name: str, *, least: int = 0, most: int = 10**15) -> int:
    """A whole number in that range."""
    value = entry.get(name)
    if type(value) is not int or not least <= value <= most:
        raise UnreadableError(f"{name} must be a whole number from {least} to {most}, not {value!r:.40}")
    return value


def number(entry: Mapping[str, Any], name: str) -> float:
    """A finite number."""
    value = entry.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _LARGEST_NUMBER:
        raise UnreadableError(f"{name} must be a finite number, not {value!r:.40}")
    return float(value)
