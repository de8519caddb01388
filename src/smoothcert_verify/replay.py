"""Drawing the samples of some inputs again: the noise by `noise_again`, the answers by the model, the counts here.

The one file of this room that asks a model and reads data: it imports the adapters of `models` and `data`, and nothing
of what draws, counts and bounds in a run.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.data import load_dataset, parse_input_range, parse_shape
from smoothcert.errors import InputError, SmoothcertError
from smoothcert.models import load_classifier, parse_standardisation
from smoothcert.models.original import is_tie, original_of
from smoothcert.models.probe import probe_differences
from smoothcert_verify.noise_again import FloatNoise, GridNoise, NoisyCopies, Stream
from smoothcert_verify.reading import MalformedError
from smoothcert_verify.run_checks import Examined, Report
from smoothcert_verify.sentences import MALFORMED, as_object, shown, told
from smoothcert_verify.sigma_rules import StoredRule, read_rule

_STAGES = {"SELECTION": 0, "ESTIMATION": 1, "PREDICTION": 2}
_SHARED_INDEX = 2**32 - 1
_SCORE_INTERVALS = 2**14
_GRADIENT_UNIT = 2.0**-20
_MOST_SUMS = 1 << 28
"""Bytes of unpacked sums: more than any tally has."""
_VALUES_AT_ONCE = 1 << 17
"""Numbers of noise made at once, so that they stay in the cache of a core."""
_SIGMA_ERROR = 1e-9
"""Relative, of σ by a rule: both are right to 1e-11."""
_THINNING = (1 << 8) | 3
"""Where in the counter of the generator `recertify` draws which votes of a segment are kept."""
_LAST_DIGITS = 4
"""By so many units the products of grid noise may differ: its means are known to thirteen digits, and here in all."""

Counts = dict[str, Any]
Progress = Callable[[int, int], None]
Votes = NDArray[np.int64]
Segment = tuple[int, int, tuple[int, ...]]
"""First sample, one past the last, and votes by class, the last place for answers that are not finite."""

NOTHING_DRAWN = (
    "nothing was drawn again: none of these inputs was sampled. What a memory answered is checked by --memory"
)
NO_RULE = "the rule for sigma is not there as a file of the run, so its level was taken from the tallies"
NOTHING_PROVED = "nothing was drawn again that proves what is stated about the inputs chosen for the replay"


def chosen_inputs(inputs: Sequence[Examined], *, count: int, indices: Sequence[int] | None) -> list[Examined]:
    """Those with these indices, or `count` of them, drawn by the operating system's randomness."""
    sampled = [one for one in inputs if as_object(one.document.get("smoothing")).get("sigma") is not None]
    if indices is None:
        if count < 1:
            raise InputError(f"--replay MODEL {count}: the number of inputs to draw again must be at least 1")
        return secrets.SystemRandom().sample(sampled, min(count, len(sampled)))
    by_index = {_index(one): one for one in sampled}
    unknown = [index for index in indices if index not in by_index]
    if unknown:
        raise InputError(f"input {unknown[0]} cannot be drawn again: it is not there, or nothing was sampled for it")
    return [by_index[index] for index in indices]


def _index(one: Examined) -> Any:
    index = as_object(one.document.get("input")).get("index")
    return index if isinstance(index, int) else None


def opened_data(run: Mapping[str, Any], *, data: str | None, data_root: Path | None) -> Any:
    """The data of a run, loaded as its manifest says. data, data_root: where it lies now."""
    job = _job(run)
    try:
        return load_dataset(
            job.get("data", "") if data is None else data,
            split=str(run["parameters"].get("split", "test")),
            root=data_root if data_root is not None or job.get("data_root") is None else Path(job["data_root"]),
            input_range=parse_input_range(job.get("input_range")),
            input_shape=parse_shape(job.get("input_shape")),
        )
    except SmoothcertError:
        raise
    except MALFORMED as error:
        raise InputError(f"the manifest does not say how its data was loaded: {told(error)}") from error


def data_problems(run: Mapping[str, Any], dataset: Any) -> list[str]:
    """How data that was given differs from what a manifest says of it. Older manifests do not name the range."""
    ends = dataset.input_range
    facts = {
        "digest": dataset.digest,
        "input_shape": list(dataset.input_shape),
        "levels": dataset.levels,
        "size": len(dataset),
        "input_range": None if ends is None else [float(end) for end in ends],
    }
    stated = as_object(run.get("data"))
    return [
        f"the data given is not that of the run: its {name} is {shown(found)}"
        for name, found in facts.items()
        if stated.get(name) != found and not (name == "input_range" and name not in stated)
    ]


def input_of(dataset: Any, index: int) -> NDArray[np.float32]:
    """An input of the data, flat."""
    return np.ascontiguousarray(dataset.inputs([index]), dtype=np.float32).reshape(-1)


@dataclass(slots=True)
class Replay:
    """A model and data, loaded as a manifest says they were. discrepancies: that they are not the ones it names.

    Where rows are asked one by one, the object that the model was made from is asked about each of them as well.
    """

    run_of: Mapping[str, Any]
    classifier: Any
    dataset: Any
    rule: StoredRule | None = None
    batch: int | None = None
    discrepancies: list[str] = field(default_factory=list)
    _lift: Callable[[NDArray[np.float32]], NDArray[np.float32]] | None = None
    _other_answers: list[str] = field(default_factory=list)

    @classmethod
    def of_run(
        cls,
        run: Mapping[str, Any],
        *,
        model: str,
        data: str | None,
        data_root: Path | None,
        rule: Path | None = None,
        batch: int | None = None,
    ) -> Replay:
        """data, data_root: where the data lies now; by default where the run found it. rule: the file of the rule for
        σ, which `verify_run` has found to be the one of the run. batch: about how many rows the model is asked at once,
        in place of the recorded number.
        """
        job = _job(run)
        dataset = opened_data(run, data=data, data_root=data_root)
        try:
            classifier = load_classifier(
                model,
                num_classes=job.get("num_classes"),
                input_shape=dataset.input_shape,
                device=str(job.get("device", "auto")),
                arch=job.get("arch"),
                standardise=parse_standardisation(job.get("standardise")),
                noise_at=str(job.get("noise_at", "input")),
                backend=run["model"].get("backend_name"),
            )
        except SmoothcertError:
            raise
        except MALFORMED as error:
            raise InputError(f"the manifest does not say how model and data were loaded: {told(error)}") from error
        replay = cls(run, classifier, dataset, None if rule is None else read_rule(rule), batch)
        for what, name, found in (
            ("model", "digest", classifier.digest),
            ("model", "num_classes", classifier.num_classes),
        ):
            if run[what].get(name) != found:
                replay.discrepancies.append(
                    f"the {what} given for the replay is not the one of the run: its {name} is {shown(found)}"
                )
        replay.discrepancies += data_problems(run, dataset)
        if not replay.discrepancies:
            answers = probe_differences(_first_extra(run).get("probe"), classifier, dataset.input_shape)
            replay.discrepancies += [
                f"the model given for the replay is not the one of the run: of the fixed inputs, {line}"
                for line in answers
            ]
        return replay

    def run(self, inputs: Sequence[Examined], report: Report, *, progress: Progress | None = None) -> None:
        """Draw and count again for each of these inputs; what differs goes into the report."""
        if self.discrepancies:
            return
        try:
            documents = [one.again() for one in inputs]
        except MalformedError as error:
            report.discrepancies.append(f"an input cannot be read again: {error}")
            return
        total = sum(self._samples(document) for document in documents)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, total)

        if self.rule is None and "sigma_rule" in self.run_of["parameters"]:
            report.remark(NO_RULE, inputs=len(documents))
        self.classifier.prepare_thread()
        try:
            for document in documents:
                name = f"input {shown(document['input']['index'])}"
                try:
                    for sentence in self._differences(document, advance):
                        report.discrepancies.append(f"{name}: drawn again, {sentence}")
                except (MalformedError, *MALFORMED) as error:
                    report.discrepancies.append(f"{name}: its samples cannot be drawn again: {told(error)}")
        finally:
            self.classifier.release_threads()
        stated = [verdict["outcome"] for document in documents for verdict in document["verdicts"]]
        stages = {tally["stage"] for document in documents for tally in document["tallies"]}
        if stages <= {"SELECTION"} and not {"certified", "predicted"}.isdisjoint(stated):
            report.discrepancies.append(NOTHING_PROVED)

    def _samples(self, document: Mapping[str, Any]) -> int:
        """How often the model is asked about one input."""
        stages = _by_stage(document["tallies"])
        return sum(
            (tally["stop"] - tally["start"]) * (2 if tally["kind"] == "pairs" else 1)
            for stage, tallies in stages.items()
            for tally in self._to_draw(stage, tallies)
        )

    def _to_draw(self, stage: str, tallies: list[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """What was drawn for these tallies: themselves, or the segments of the run whose votes were recertified."""
        sizes = _sizes(self.run_of)
        if stage != "ESTIMATION" or len(sizes) == 1 or any(tally["kind"] != "votes" for tally in tallies):
            return tallies
        return [
            {"stage": stage, "kind": "votes", "start": start, "stop": stop, "counts": {}}
            for start, stop in _segments(sizes[0])
            if start < sizes[1]
        ]

    def _differences(self, document: Mapping[str, Any], advance: Callable[[int], None]) -> Iterator[str]:
        index, label = document["input"]["index"], document["input"]["label"]
        known = int(self.dataset.labels[index])
        if (label if label is not None else -1) != max(known, -1):
            yield f"its label is {shown(label)}; the data has {known}"
        yield from self._another_sigma(document)
        noisy = self._noisy(document)
        for stage, tallies in _by_stage(document["tallies"]).items():
            drawn = self._to_draw(stage, tallies)
            shared = not self.run_of["parameters"].get("independent_noise", True)
            stream = Stream(self.run_of["seed"], _SHARED_INDEX if shared else index, _STAGES[stage])
            counted = self._counted(drawn, noisy, stream, advance)
            if drawn is not tallies:
                yield from self._not_thinned_so(tallies, counted, index)
                continue
            for tally, found in zip(tallies, counted, strict=True):
                yield from _compared(tally, found, exact=not isinstance(noisy, GridNoise))
        if self._other_answers:
            yield f"the model itself gives {len(self._other_answers)} rows {self._other_answers[0]}, asked alone"
            self._other_answers = []

    def _not_thinned_so(
        self, tallies: Sequence[Mapping[str, Any]], counted: Sequence[_Count], index: int
    ) -> Iterator[str]:
        """Whether the votes of a recertified run are those counted, cut and thinned as often as it was recertified."""
        first = tuple((one.start, one.stop, tuple(one.votes.tolist())) for one in counted)
        possible = {first}
        for size in _sizes(self.run_of)[1:]:
            cut = {_cut(segments, size, seed=self.run_of["seed"], index=index) for segments in possible}
            # Where all samples were kept, they were joined or left in their segments, by how it was asked for.
            whole = {segments for segments in possible if segments[-1][1] == size}
            possible = cut | whole
        stored = tuple(_stored_segment(tally, self.run_of["model"]["num_classes"]) for tally in tallies)
        if stored not in possible:
            votes = _sparse(np.array(next(iter(cut))[0][2][:-1]))
            yield f"the votes that recertify kept of ESTIMATION count {shown(votes)}, and other ones are stored"

    def _another_sigma(self, document: Mapping[str, Any]) -> Iterator[str]:
        """σ of the input by the rule of the run, where its file is there."""
        if self.rule is None:
            return
        stored = document["smoothing"]["sigma"]
        found = self.rule.sigma(self.input_of(document["input"]["index"]))
        if not abs(found - stored) <= _SIGMA_ERROR * stored:
            yield f"its sigma is {found!r} by the rule, and {stored!r} is stored"

    def input_of(self, index: int) -> NDArray[np.float32]:
        """An input of the data, flat."""
        return input_of(self.dataset, index)

    def _noisy(self, document: Mapping[str, Any]) -> NoisyCopies:
        smoothing = document["smoothing"]
        x = np.ascontiguousarray(self.dataset.inputs([document["input"]["index"]]), dtype=np.float32)
        noise, sigma = smoothing["noise"], float(smoothing["sigma"])
        if smoothing["grid"] is not None:
            return GridNoise(noise, x.reshape(-1), sigma=sigma, levels=smoothing["grid"])
        if hasattr(self.classifier, "colour"):
            hidden = self.classifier.hidden(x).reshape(-1)
            self._lift = functools.partial(self.classifier.lifted, x[0], sigma=sigma)
            return FloatNoise(noise, hidden, sigma=sigma, colour=self.classifier.colour)
        return FloatNoise(noise, x.reshape(-1), sigma=sigma)

    def _counted(
        self, tallies: Sequence[Mapping[str, Any]], noisy: NoisyCopies, stream: Stream, advance: Callable[[int], None]
    ) -> list[_Count]:
        """Each tally counted again. Batches run on from one tally to the next, as they did when they were drawn."""
        classes = self.run_of["model"]["num_classes"]
        counts = [_Count(tally, classes) for tally in tallies]
        kind = tallies[0]["kind"]
        batch = max(self.run_of["parameters"]["batch"], self.batch or 0)
        draws = {"pairs": max(1, batch // 2), "gradients": max(2, batch // 2 * 2)}.get(kind, batch)
        at, last = tallies[0]["start"], tallies[-1]["stop"]
        while at < last:
            count = min(draws, last - at)
            self._count_batch(counts, kind, noisy, stream, at, count)
            at += count
            advance(count * (2 if kind == "pairs" else 1))
        return counts

    def _count_batch(
        self, counts: Sequence[_Count], kind: str, noisy: NoisyCopies, stream: Stream, at: int, count: int
    ) -> None:
        answers = self._answers(kind, noisy, stream, at, count)
        for one in counts:
            first, stop = max(one.start, at), min(one.stop, at + count)
            if first < stop:
                rows = slice(first - at, stop - at)
                normals = noisy.normals(stream, first, stop - first) if kind == "gradients" else None
                one.add([answer[rows] for answer in answers], normals)

    def _answers(self, kind: str, noisy: NoisyCopies, stream: Stream, at: int, count: int) -> list[NDArray[Any]]:
        """VOTES and GRADIENTS: votes. PAIRS: votes at x+ε and at x-ε. SCORES: votes and scores."""
        if kind == "pairs":
            made = [self._chunks(noisy.pairs, stream, at, count, side) for side in range(2)]
            votes = self._asked(self._shaped(np.concatenate(made)))[0]
            return [votes[:count], votes[count:]]
        return self._asked(self._shaped(self._chunks(noisy.copies, stream, at, count, None)), scores=kind == "scores")

    def _asked(self, rows: NDArray[np.float32], *, scores: bool = False) -> list[NDArray[Any]]:
        """The votes of these rows, and their scores where they are wanted; all at once, or as many as was asked for."""
        # Copied first: a model may change what it is given.
        given = rows.copy() if self.batch == 1 else rows
        step = len(rows) if self.batch is None else self.batch
        ask = self._tail.votes_and_scores if scores else lambda some: (self._tail.classify(some),)
        answers = [ask(np.ascontiguousarray(rows[at : at + step])) for at in range(0, len(rows), step)]
        together = [np.concatenate(part) for part in zip(*answers, strict=True)]
        if self.batch == 1:
            self._ask_original(given, together[0])
        return together

    def _ask_original(self, rows: NDArray[np.float32], votes: NDArray[Any]) -> None:
        """Note where the object that the user gave answers otherwise than what was counted, by more than rounding."""
        original = original_of(self.classifier)
        for row, vote in zip(rows, votes.tolist(), strict=True):
            noisy = row if self._lift is None else self._lift(row)
            answer = original.answer(noisy)
            if answer.vote != vote and not is_tie(original, noisy, answer, vote):
                self._other_answers.append(f"class {answer.vote} where {vote} was counted")

    @property
    def _tail(self) -> Any:
        """What sees the noisy inputs: the model, or what comes after its first layer."""
        return self.classifier.tail if hasattr(self.classifier, "colour") else self.classifier

    def _shaped(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        if hasattr(self.classifier, "colour"):
            return np.ascontiguousarray(rows)
        return np.ascontiguousarray(rows.reshape(len(rows), *self.dataset.input_shape))

    @staticmethod
    def _chunks(
        make: Callable[[Stream, int, int], Any], stream: Stream, at: int, count: int, side: int | None
    ) -> NDArray[np.float32]:
        """Rows at … at+count-1, some at a time. side: of a pair."""
        first = make(stream, at, 1)
        size = (first if side is None else first[side]).shape[1]
        step = max(1, _VALUES_AT_ONCE // size)
        made = [make(stream, start, min(step, at + count - start)) for start in range(at, at + count, step)]
        return np.concatenate(made if side is None else [part[side] for part in made])


class _Count:
    """What is counted for one stored tally."""

    def __init__(self, tally: Mapping[str, Any], classes: int) -> None:
        self.start, self.stop, self._kind = tally["start"], tally["stop"], tally["kind"]
        self._classes = classes
        self.votes: Votes = np.zeros(classes + 1, dtype=np.int64)
        self.pairs: Votes = np.zeros((3, classes + 1), dtype=np.int64)
        self.label = tally["counts"].get("label", 0)
        self.cells: Votes = np.zeros(2 * (_SCORE_INTERVALS + 2) if self._kind == "scores" else 0, dtype=np.int64)
        self.group: Votes = np.array(tally["counts"].get("group", []), dtype=np.int64)
        groups = len(tally["counts"].get("products", []))
        self.products: Votes = np.zeros(groups, dtype=np.int64)
        self.sums: Votes | None = None

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

    def _add_scores(self, votes: Votes, scores: NDArray[np.float64]) -> None:
        scores = scores[votes < self._classes]
        others = np.delete(scores, self.label, axis=1).max(axis=1, initial=0.0)
        cells = np.concatenate([_cell(scores[:, self.label]), _SCORE_INTERVALS + 2 + _cell(others)])
        self.cells += np.bincount(cells, minlength=self.cells.size)

    def _add_normals(self, votes: Votes, normals: NDArray[np.float64]) -> None:
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


def _cell(scores: NDArray[np.float64]) -> Votes:
    """0 for a score of 0, 2^14+1 for 1, else 1 + the number of the interval, equal in θ for a score sin²θ."""
    return np.where(scores > 0.0, np.searchsorted(_score_edges(), scores, side="right"), 0)


@functools.cache
def _score_edges() -> NDArray[np.float64]:
    edges = np.sin(0.5 * np.pi * np.arange(_SCORE_INTERVALS + 1) / _SCORE_INTERVALS) ** 2
    edges[0], edges[-1] = 0.0, 1.0
    return edges


def _compared(tally: Mapping[str, Any], found: _Count, *, exact: bool) -> Iterator[str]:
    """How a stored tally differs from what was counted."""
    counts, where = tally["counts"], f"samples {tally['start']} … {tally['stop'] - 1} of {tally['stage']}"
    counted: Counts
    if tally["kind"] == "pairs":
        counted = dict(zip(("both", "first", "second"), map(_sparse, found.pairs), strict=True))
    else:
        counted = {"votes": _sparse(found.votes[:-1]), "invalid": int(found.votes[-1])}
    stored = {name: counts.get(name) for name in counted}
    if stored != counted:
        yield f"{where} count {shown(counted)}, and {shown(stored)} is stored"
        return
    if tally["kind"] == "scores":
        filled = np.flatnonzero(found.cells)
        if not np.array_equal(_unpacked(tally["sums"]).reshape(2, -1), np.stack([filled, found.cells[filled]])):
            yield f"the scores of {where} are others than those stored"
    if tally["kind"] == "gradients" and found.sums is not None:
        off = np.abs(np.array(counts["products"], dtype=np.int64) - found.products)
        if not np.array_equal(_unpacked(tally["sums"]), found.sums.reshape(-1)):
            yield f"the sums of the noise of {where} are others than those stored"
        if (off > (0 if exact else _LAST_DIGITS)).any():
            yield f"the products of the noise of {where} are others than those stored"


def _sparse(counts: Votes) -> dict[str, int]:
    return {str(label): int(count) for label, count in enumerate(counts) if count}


def _unpacked(sums: Any) -> Votes:
    """The whole numbers in base64 of zlib of little-endian int64; no more of them than a tally can have."""
    if not isinstance(sums, str):
        raise MalformedError("the sums of a tally are no text")
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(sums, validate=True), _MOST_SUMS)
    except (zlib.error, binascii.Error) as error:
        raise MalformedError(f"the sums of a tally cannot be read: {error}") from error
    return np.frombuffer(content, dtype="<i8").astype(np.int64)


def _by_stage(tallies: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Those of each stage, in the order of their samples."""
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for tally in sorted(tallies, key=lambda tally: tally["start"]):
        stages.setdefault(tally["stage"], []).append(tally)
    return stages


def _job(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings a run was made with; of one that was recertified, those of the first run."""
    return as_object(_first_extra(run).get("job"))


def _first_extra(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the manifest of the run that was sampled says besides its parameters."""
    extra = as_object(run.get("extra"))
    source = extra.get("recertified_from")
    return _first_extra(source) if isinstance(source, dict) else extra


def _sizes(run: Mapping[str, Any]) -> list[int]:
    """How many samples were used of votes drawn in advance: by the first run, then each time it was recertified.

    One number alone where nothing can have been thinned: samples that answered a question end at a look.
    """
    parameters = run["parameters"]
    source = as_object(run.get("extra")).get("recertified_from")
    asked = parameters.get("decide") is not None or parameters.get("precision") is not None
    if asked or not isinstance(source, dict):
        return [parameters["n"]]
    return [*_sizes(source), parameters["n"]]


def _segments(n: int) -> list[tuple[int, int]]:
    """Votes are stored apart at 1, 2 and 5 times the powers of ten."""
    steps = (digit * 10**power for power in range(1, len(str(n)) + 1) for digit in (1, 2, 5))
    return list(itertools.pairwise([0, *(step for step in steps if step < n), n]))


def _cut(segments: Sequence[Segment], n: int, *, seed: int, index: int) -> tuple[Segment]:
    """The first n samples in one segment: the last one used is thinned, as if n of its votes were drawn from an urn."""
    kept = [segment for segment in segments if segment[0] < n]
    if not kept or kept[-1][1] < n:
        raise MalformedError(f"{n} samples cannot be had of {segments[-1][1]}")
    start, stop, votes = kept.pop()
    if stop > n:
        generator = np.random.Generator(np.random.Philox(key=seed, counter=[n - start, start, index, _THINNING]))
        urn = np.array(votes, dtype=np.int64)
        votes = tuple(generator.multivariate_hypergeometric(urn, n - start, method="marginals").tolist())
    return ((0, n, tuple(map(sum, zip(votes, *(segment[2] for segment in kept), strict=True)))),)


def _stored_segment(tally: Mapping[str, Any], classes: int) -> Segment:
    counts = tally["counts"]
    votes = tuple(counts["votes"].get(str(label), 0) for label in range(classes))
    return tally["start"], tally["stop"], (*votes, counts["invalid"])
