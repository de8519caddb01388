"""Drawing the samples of some inputs again: the noise by `noise_forms`, the answers by the model, the counts here."""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert_verify.document_checks import CheckedInput
from smoothcert_verify.feature_scales import divide_by_scale
from smoothcert_verify.findings import Finding, MalformedError, OptionError, note, refuse
from smoothcert_verify.noise_forms import GridNoise
from smoothcert_verify.noise_kinds import NoisyInput
from smoothcert_verify.noise_streams import Stream
from smoothcert_verify.replay_model import ReplayData, ReplayModel, Rows, open_data, open_model
from smoothcert_verify.reports import Report
from smoothcert_verify.run_facts import RunFacts
from smoothcert_verify.samples import SCORE_CELLS, IntArray, unpack_sums
from smoothcert_verify.sigma_rules import SigmaRuleFile, read_rule

SAMPLING_VERSION = 1
"""The version of the sampling that `noise_forms` repeats."""

_STAGES = {"SELECTION": 0, "ESTIMATION": 1, "PREDICTION": 2}
_SHARED_INDEX = 2**32 - 1
_SCORE_INTERVALS = SCORE_CELLS - 2
_GRADIENT_UNIT = 2.0**-20
_MOST_SUMS = 1 << 25
"""Numbers in unpacked sums: more than any tally has."""
_VALUES_AT_ONCE = 1 << 17
"""Numbers of noise made at once, so that they stay in the cache of a core."""
_SIGMA_ERROR = 1e-9
"""Relative, of σ by a rule: both are right to 1e-11."""
_THINNING = (1 << 8) | 3
"""Where in the counter of the generator `recertify` draws which votes of a segment are kept."""
_LAST_DIGITS = 4
"""Units by which products of grid noise may differ: the run knows its means to thirteen digits."""

Progress = Callable[[int, int], None]
Tally = Mapping[str, Any]
Segment = tuple[int, int, tuple[int, ...]]
"""First sample, one past the last, and votes by class, the last place for answers that are not finite."""


def choose_inputs(entries: Sequence[CheckedInput], *, count: int, indices: Sequence[int] | None) -> list[CheckedInput]:
    """Those with these indices, or `count` of them, drawn by the operating system's randomness."""
    sampled = [one for one in entries if one.sigma is not None]
    if indices is None:
        if count < 1:
            raise OptionError(f"--replay MODEL {count}: the number of inputs to draw again must be at least 1")
        return secrets.SystemRandom().sample(sampled, min(count, len(sampled)))
    by_index = {one.index: one for one in sampled}
    unknown = [index for index in indices if index not in by_index]
    if unknown:
        raise OptionError(f"input {unknown[0]} cannot be drawn again: it is missing, or nothing was sampled for it")
    return [by_index[index] for index in indices]


@dataclass(slots=True)
class Replay:
    """Model and data, loaded as a manifest says. discrepancies: that they are not the ones it names.

    rule: the rule for σ, if its file is there. batch: rows the model is asked at once, in place of the recorded number.
    With a batch of 1, the object that the model was made from is asked about each row as well. labelled: whether the
    labels of the data are those of the inputs; a run of a selector has none.
    """

    facts: RunFacts
    model: ReplayModel
    data: ReplayData
    rule: SigmaRuleFile | None = None
    batch: int | None = None
    labelled: bool = True
    discrepancies: list[Finding] = field(default_factory=list)
    _other_votes: list[tuple[int, int]] = field(default_factory=list)
    _compare: Callable[[Rows, int], int | None] | None = None

    @classmethod
    def open(
        cls,
        facts: RunFacts,
        *,
        model: str,
        weights: str | None = None,
        data: str | None,
        data_root: Path | None,
        rule: Path | None = None,
        batch: int | None = None,
        labelled: bool = True,
    ) -> Replay:
        """weights, data, data_root: where they are now; by default where the run had them. rule: a checked file."""
        dataset = open_data(facts, place=data, root=data_root)
        base = open_model(facts, dataset, place=model, weights=weights)
        replay = cls(facts, base, dataset, None if rule is None else read_rule(rule), batch, labelled)
        if facts.manifest["sampling_version"] != SAMPLING_VERSION:
            version = facts.manifest["sampling_version"]
            replay.discrepancies.append(note("other-sampling", value=version, expected=SAMPLING_VERSION))
        replay.discrepancies += [*dataset.compare(facts), *base.compare(facts)]
        return replay

    def run(self, inputs: Sequence[CheckedInput], report: Report, *, progress: Progress | None = None) -> None:
        """Draw and count again for each of these inputs; differences go into the report."""
        if self.discrepancies:
            return
        try:
            documents = [one.read_again() for one in inputs]
        except MalformedError as error:
            report.discrepancies.append(error.finding)
            return
        total = sum(self._count_samples(document) for document in documents)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, total)

        if self.rule is None and self.facts.manifest["sigma"] is not None:
            report.remark(note("sigma-from-tallies"), inputs=len(documents))
        self.model.classifier.prepare_thread()
        try:
            for document in documents:
                name = f"input {document['input']['index']}: drawn again"
                try:
                    report.discrepancies += [finding.at(name) for finding in self._check(document, advance)]
                except MalformedError as error:
                    report.discrepancies.append(error.finding.at(name))
                except ValueError as error:
                    report.discrepancies.append(note("cannot-be-checked", error=str(error)).at(name))
        finally:
            self.model.classifier.release_threads()
        stated = [verdict["outcome"] for document in documents for verdict in document["verdicts"]]
        stages = {tally["stage"] for document in documents for tally in document["tallies"]}
        if stages <= {"SELECTION"} and not {"certified", "predicted"}.isdisjoint(stated):
            report.discrepancies.append(note("nothing-proved-again"))

    def _count_samples(self, document: Mapping[str, Any]) -> int:
        """How often the model is asked about one input."""
        stages = _group_by_stage(document["tallies"])
        return sum(
            (tally["stop"] - tally["start"]) * (2 if tally["kind"] == "pairs" else 1)
            for stage, tallies in stages.items()
            for tally in self._list_to_draw(stage, tallies)
        )

    def _list_to_draw(self, stage: str, tallies: list[Tally]) -> Sequence[Tally]:
        """What was drawn for these tallies: themselves, or the segments of the run whose votes were recertified."""
        sizes = _list_sizes(self.facts)
        if stage != "ESTIMATION" or len(sizes) == 1 or any(tally["kind"] != "votes" for tally in tallies):
            return tallies
        return [
            {"stage": stage, "kind": "votes", "start": start, "stop": stop, "counts": {}}
            for start, stop in _list_segments(sizes[0])
            if start < sizes[1]
        ]

    def _check(self, document: Mapping[str, Any], advance: Callable[[int], None]) -> Iterator[Finding]:
        index, label, sigma = document["input"]["index"], document["input"]["label"], document["smoothing"]["sigma"]
        known = self.data.read_label(index) if self.labelled else None
        x = divide_by_scale(self.data.read_input(index), self.facts.scale)
        if label != known:
            yield note("differs", field="input.label", value=label, expected=known)
        found = None if self.rule is None else self.rule.sigma(x)
        if found is not None and not abs(found - sigma) <= _SIGMA_ERROR * sigma:
            yield note("other-sigma-by-rule", value=sigma, expected=found)
        noisy = self.model.make_copies(self.facts, x, float(sigma))
        self._compare = self.model.compare_original(x, float(sigma)) if self.batch == 1 else None
        for stage, tallies in _group_by_stage(document["tallies"]).items():
            drawn = self._list_to_draw(stage, tallies)
            stream = Stream(self.facts.seed, _SHARED_INDEX if self.facts.noise["shared"] else index, _STAGES[stage])
            counted = self._count_again(drawn, noisy, stream, advance)
            if drawn is not tallies:
                yield from self._check_thinned(tallies, counted, index)
                continue
            for tally, count in zip(tallies, counted, strict=True):
                yield from _compare_tally(tally, count, exact=not isinstance(noisy, GridNoise))
        if self._other_votes:
            vote, counted_vote = self._other_votes[0]
            yield note("original-differs", rows=len(self._other_votes), vote=vote, counted=counted_vote)
            self._other_votes = []

    def _check_thinned(self, tallies: Sequence[Tally], counted: Sequence[_Count], index: int) -> Iterator[Finding]:
        """Whether the votes of a recertified run are those counted, cut and thinned as often as it was recertified."""
        possible = {tuple((one.start, one.stop, tuple(one.votes.tolist())) for one in counted)}
        cut: set[tuple[Segment, ...]] = set()
        for size in _list_sizes(self.facts)[1:]:
            cut = {_cut_segments(segments, size, seed=self.facts.seed, index=index) for segments in possible}
            # If all samples were kept, they were either joined or left in their segments.
            whole = {segments for segments in possible if segments[-1][1] == size}
            possible = cut | whole
        stored = tuple(_read_segment(tally, self.facts.num_classes) for tally in tallies)
        if stored not in possible:
            votes = _list_counts(np.array(next(iter(cut))[0][2][:-1]))
            yield note("other-votes-kept", counted=votes)

    def _count_again(
        self, tallies: Sequence[Tally], noisy: NoisyInput, stream: Stream, advance: Callable[[int], None]
    ) -> list[_Count]:
        """Each tally counted again. Batches continue from one tally to the next, as they did in the run."""
        counts = [_Count(tally, self.facts.num_classes) for tally in tallies]
        kind = tallies[0]["kind"]
        batch = max(self.facts.manifest["measured"]["batch"], self.batch or 0)
        draws = {"pairs": max(1, batch // 2), "gradients": max(2, batch // 2 * 2)}.get(kind, batch)
        at, last = tallies[0]["start"], tallies[-1]["stop"]
        while at < last:
            count = min(draws, last - at)
            answers = self._ask_batch(kind, noisy, stream, at, count)
            for one in counts:
                first, stop = max(one.start, at), min(one.stop, at + count)
                if first < stop:
                    rows = slice(first - at, stop - at)
                    normals = noisy.normals(stream, first, stop - first) if kind == "gradients" else None
                    one.add([answer[rows] for answer in answers], normals)
            at += count
            advance(count * (2 if kind == "pairs" else 1))
        return counts

    def _ask_batch(self, kind: str, noisy: NoisyInput, stream: Stream, at: int, count: int) -> list[NDArray[Any]]:
        """Votes; of pairs those at x+ε and at x-ε; of scores the votes and the scores."""
        if kind != "pairs":
            return self._ask(_make_rows(noisy.copies, stream, at, count), scores=kind == "scores")
        sides = [_make_rows(noisy.pairs, stream, at, count, side=side) for side in range(2)]
        votes = self._ask(np.concatenate(sides))[0]
        return [votes[:count], votes[count:]]

    def _ask(self, flat: Rows, *, scores: bool = False) -> list[NDArray[Any]]:
        """The votes of these rows, and their scores if they are wanted, in batches of the given size, if any."""
        rows = self.model.shape_rows(flat)
        given = rows.copy() if self._compare is not None else rows  # a model may change its input
        step = len(rows) if self.batch is None else self.batch
        parts = [np.ascontiguousarray(rows[at : at + step]) for at in range(0, len(rows), step)]
        answers = [self.model.answer(part, scores=scores) for part in parts]
        together = [np.concatenate(part) for part in zip(*answers, strict=True)]
        if self._compare is not None:
            for row, vote in zip(given, together[0].tolist(), strict=True):
                other = self._compare(row, vote)
                if other is not None:
                    self._other_votes.append((other, vote))
        return together


def _make_rows(
    make: Callable[[Stream, int, int], Any], stream: Stream, at: int, count: int, *, side: int | None = None
) -> Rows:
    """Rows at … at+count-1, some at a time. side: of a pair."""
    first = make(stream, at, 1)
    size = (first if side is None else first[side]).shape[1]
    step = max(1, _VALUES_AT_ONCE // size)
    made = [make(stream, start, min(step, at + count - start)) for start in range(at, at + count, step)]
    return np.concatenate(made if side is None else [part[side] for part in made])


class _Count:
    """The counts of one tally, made again."""

    def __init__(self, tally: Mapping[str, Any], classes: int) -> None:
        self.start, self.stop, self._kind = tally["start"], tally["stop"], tally["kind"]
        self._classes = classes
        self.votes: IntArray = np.zeros(classes + 1, dtype=np.int64)
        self.pairs: IntArray = np.zeros((3, classes + 1), dtype=np.int64)
        self.label = tally["counts"].get("label", 0)
        self.cells: IntArray = np.zeros(2 * (_SCORE_INTERVALS + 2) if self._kind == "scores" else 0, dtype=np.int64)
        self.group: IntArray = np.array(tally["counts"].get("group", []), dtype=np.int64)
        groups = len(tally["counts"].get("products", []))
        self.products: IntArray = np.zeros(groups, dtype=np.int64)
        self.sums: IntArray | None = None

    def add(self, answers: Sequence[NDArray[Any]], normals: NDArray[np.float64] | None) -> None:
        if self._kind == "pairs":
            first, second = answers
            equal = first == second
            for place, some in enumerate((first[equal], first[~equal], second[~equal])):
                self.pairs[place] += np.bincount(some, minlength=self._classes + 1)
            return
        self.votes += np.bincount(answers[0], minlength=self._classes + 1)
        if self._kind == "scores":
            self._add_scores(*answers)
        if normals is not None:
            self._add_normals(answers[0], normals)

    def _add_scores(self, votes: IntArray, scores: NDArray[np.float64]) -> None:
        scores = scores[votes < self._classes]
        others = np.delete(scores, self.label, axis=1).max(axis=1, initial=0.0)
        cells = np.concatenate([_find_cells(scores[:, self.label]), _SCORE_INTERVALS + 2 + _find_cells(others)])
        self.cells += np.bincount(cells, minlength=self.cells.size)

    def _add_normals(self, votes: IntArray, normals: NDArray[np.float64]) -> None:
        """Sums of the noise by group, of even and odd samples apart, and of the products of neighbours that agree."""
        group, groups = self.group[votes], self.products.size
        if self.sums is None:
            self.sums = np.zeros((2, groups, normals.shape[1]), dtype=np.int64)
        products = np.rint((normals[0::2] * normals[1::2]).sum(axis=1) / _GRADIENT_UNIT).astype(np.int64)
        agree = group[0::2] == group[1::2]
        np.add.at(self.products, group[0::2][agree], products[agree])
        units = np.rint(normals / _GRADIENT_UNIT).astype(np.int64)
        for half in range(2):
            for number in range(groups):
                self.sums[half, number] += units[half::2][group[half::2] == number].sum(axis=0)


def _find_cells(scores: NDArray[np.float64]) -> IntArray:
    """0 for a score of 0, 2^14+1 for 1, else 1 + the number of the interval, equal in θ for a score sin²θ."""
    return np.where(scores > 0.0, np.searchsorted(_list_edges(), scores, side="right"), 0)


@functools.cache
def _list_edges() -> NDArray[np.float64]:
    edges = np.sin(0.5 * np.pi * np.arange(_SCORE_INTERVALS + 1) / _SCORE_INTERVALS) ** 2
    edges[0], edges[-1] = 0.0, 1.0
    return edges


def _compare_tally(tally: Tally, found: _Count, *, exact: bool) -> Iterator[Finding]:
    """How a stored tally differs from what was counted."""
    counts, kind = tally["counts"], tally["kind"]
    where = {"stage": tally["stage"], "start": tally["start"], "stop": tally["stop"]}
    counted: dict[str, Any]
    if kind == "pairs":
        counted = dict(zip(("both", "first", "second"), map(_list_counts, found.pairs), strict=True))
    else:
        counted = {"votes": _list_counts(found.votes[:-1]), "invalid": int(found.votes[-1])}
    stored = {name: counts.get(name) for name in counted}
    if stored != counted:
        yield note("other-votes", **where, counted=counted, stored=stored)
        return
    if kind == "scores":
        filled = np.flatnonzero(found.cells)
        cells = unpack_sums(tally["sums"], most=_MOST_SUMS).reshape(2, -1)
        if not np.array_equal(cells, np.stack([filled, found.cells[filled]])):
            yield note("other-sums", **where, what="scores")
    if kind == "gradients" and found.sums is not None:
        off = np.abs(np.array(counts["products"], dtype=np.int64) - found.products)
        if not np.array_equal(unpack_sums(tally["sums"], most=_MOST_SUMS), found.sums.reshape(-1)):
            yield note("other-sums", **where, what="sums of the noise")
        if (off > (0 if exact else _LAST_DIGITS)).any():
            yield note("other-sums", **where, what="products of the noise")


def _list_counts(counts: IntArray) -> dict[str, int]:
    """By class, without zeros, as tallies store them."""
    return {str(label): int(count) for label, count in enumerate(counts) if count}


def _group_by_stage(tallies: Sequence[Tally]) -> dict[str, list[Tally]]:
    """Those of each stage, in the order of their samples."""
    stages: dict[str, list[Tally]] = {}
    for tally in sorted(tallies, key=lambda tally: int(tally["start"])):
        stages.setdefault(tally["stage"], []).append(tally)
    return stages


def _list_sizes(run: RunFacts) -> list[int]:
    """How many samples were used of votes drawn in advance: by the first run, then each time it was recertified.

    One number alone if nothing can have been thinned: samples that answered a question end at a look.
    """
    if run.is_sequential or run.source is None:
        return [run.n]
    return [*_list_sizes(run.source), run.n]


def _list_segments(n: int) -> list[tuple[int, int]]:
    """Votes are stored in segments that end at 1, 2 and 5 times the powers of ten."""
    steps = (digit * 10**power for power in range(1, len(str(n)) + 1) for digit in (1, 2, 5))
    return list(itertools.pairwise([0, *(step for step in steps if step < n), n]))


def _cut_segments(segments: Sequence[Segment], n: int, *, seed: int, index: int) -> tuple[Segment, ...]:
    """The first n samples in one segment: the last one used is thinned, as if n of its votes were drawn from an urn."""
    kept = [segment for segment in segments if segment[0] < n]
    if not kept or kept[-1][1] < n:
        raise refuse("sample-count", stage="ESTIMATION", drawn=segments[-1][1], least=n, most=n)
    start, stop, votes = kept.pop()
    if stop > n:
        generator = np.random.Generator(np.random.Philox(key=seed, counter=[n - start, start, index, _THINNING]))
        urn = np.array(votes, dtype=np.int64)
        votes = tuple(generator.multivariate_hypergeometric(urn, n - start, method="marginals").tolist())
    return ((0, n, tuple(map(sum, zip(votes, *(segment[2] for segment in kept), strict=True)))),)


def _read_segment(tally: Tally, classes: int) -> Segment:
    counts = tally["counts"]
    votes = tuple(counts["votes"].get(str(label), 0) for label in range(classes))
    return tally["start"], tally["stop"], (*votes, counts["invalid"])
