"""The one loop over inputs: groups and shards, selection, estimation, answers, claims; what is done is skipped.

`SmoothedClassifier.certify` and runs use the same loop. Selection is cheap and done for a larger group at once. It is
repeated when a group is resumed, so that every batch holds the same samples as in an uninterrupted run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from smoothcert.memory import MemoryKey, RegionMemory
from smoothcert.memory.claims import claim_region, point_from_promise
from smoothcert.memory.link import MemoryLink
from smoothcert.models.base import BaseClassifier
from smoothcert.models.probe import check_probe, probe
from smoothcert.questions import Inquiry, Votes, predict_votes
from smoothcert.questions.every_evaluation import count_evaluations
from smoothcert.records import CertifiedPoint, InputArray, Smoothing, Stage
from smoothcert.records.feature_scale import FeatureScale
from smoothcert.sampling import inputs_per_shard
from smoothcert.sampling.drawing import Drawing, Draws
from smoothcert.sampling.inputs import InputSource
from smoothcert.sampling.sampler import Progress
from smoothcert.statistics import price_of
from smoothcert.strict_json import strict_loads

Check = Callable[[Sequence[CertifiedPoint]], None]
"""Raises for points that must not be used."""

_PREDICTED_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class Pipeline:
    """draw: makes the `Drawing` of some inputs with their indices. memory: keeps promised regions, if there is one.

    batch, shared_noise: decide how many inputs are sampled together. scale: by which inputs are divided, if any.
    """

    draw: Callable[[InputArray, Sequence[int]], Drawing]
    memory: RegionMemory | None
    batch: int
    shared_noise: bool
    progress: Progress | None = None
    scale: FeatureScale | None = None

    def certify(
        self, inquiry: Inquiry, source: InputSource, *, done: Set[int] = frozenset(), check: Check | None = None
    ) -> Iterator[list[CertifiedPoint]]:
        """The points of the source, shard by shard. Shards whose inputs are all in `done` are skipped.

        check: raises for points that must not be used, before anything is claimed for them from a memory.
        """
        group_size = inquiry.inputs_together or self._inputs_together(inquiry.n0 or inquiry.n)
        shard_size = inquiry.inputs_together or self._inputs_together(inquiry.n, most=inquiry.most_inputs())
        began = time.perf_counter()
        groups = _groups(source, group_size=group_size, shard_size=shard_size, done=done)
        for group, inputs in self._load_each(source, groups):
            drawing = self.draw(inputs, group.indices)
            selection = inquiry.select(drawing, range(len(inputs)))
            selecting, began = (time.perf_counter() - began) / len(inputs), time.perf_counter()
            for rows, estimation in inquiry.estimate(drawing, group.shards, selection):
                samples = {row: sum(tally.n for tally in estimation[row]) for row in rows}
                per_sample = (time.perf_counter() - began) / max(1, sum(samples.values()))
                votes = [
                    Votes(
                        index=group.indices[row],
                        label=group.labels[row],
                        selection=selection.get(row),
                        estimation=estimation[row],
                        seconds=selecting + per_sample * samples[row],
                    )
                    for row in rows
                ]
                points = inquiry.answer(votes)
                if check is not None:
                    check(points)
                yield from self._claim(points, inputs[np.asarray(rows)], done)
                began = time.perf_counter()

    def _claim(
        self, points: list[CertifiedPoint], inputs: InputArray, done: Set[int]
    ) -> Iterator[list[CertifiedPoint]]:
        """The points of a shard; with a memory, after their regions were claimed, in the order of the inputs.

        Each claim is handed over before the next one is made, so that it can be stored: what a point found in the
        memory is then never asked again.
        """
        if self.memory is None:
            yield points
            return
        for x, point in zip(inputs, points, strict=True):
            if point.index not in done:
                yield [claim_region(point, x, self.memory)]

    def predict(
        self, source: InputSource, *, n: int, alpha: float, smoothing: Smoothing, done: Set[int] = frozenset()
    ) -> Iterator[list[CertifiedPoint]]:
        """The predictions of the source, shard by shard. Shards whose inputs are all in `done` are skipped.

        A memory is asked before and after sampling: no answer contradicts a region promised before it.
        """
        shard_size = self._inputs_together(n)
        # Whole shards, and so many that a cluster can begin the next ones before one is done.
        group_size = shard_size * max(1, _PREDICTED_TOGETHER // shard_size)
        groups = _groups(source, group_size=group_size, shard_size=shard_size, done=done)
        for group, inputs in self._load_each(source, groups):
            promised = self._look_up(inputs, group, [row for rows in group.shards for row in rows], smoothing)
            if self.progress is not None and promised:
                self.progress(n * len(promised))
            open_shards = [[row for row in rows if row not in promised] for rows in group.shards]
            voted = self._vote(inputs, group, [rows for rows in open_shards if rows], n, alpha, smoothing)
            for rows, open_rows in zip(group.shards, open_shards, strict=True):
                answers = promised | (next(voted) if open_rows else {})
                answers |= self._look_up(inputs, group, open_rows, smoothing)
                yield [answers[row] for row in rows]

    def _vote(
        self,
        inputs: InputArray,
        group: _Group,
        shards: Sequence[Sequence[int]],
        n: int,
        alpha: float,
        smoothing: Smoothing,
    ) -> Iterator[dict[int, CertifiedPoint]]:
        """The answers of the votes, for one shard of rows after the other."""
        drawn = [row for rows in shards for row in rows]
        if not drawn:
            return
        began = time.perf_counter()
        place = {row: position for position, row in enumerate(drawn)}
        drawing = self.draw(inputs[np.asarray(drawn)], [group.indices[row] for row in drawn])
        counts = {
            row: n if smoothing.noise.sampled else count_evaluations(drawing.sigmas[place[row]], smoothing)
            for row in drawn
        }
        jobs = (
            Draws(stage=Stage.PREDICTION, ranges={place[row]: [(0, counts[row])] for row in rows}) for rows in shards
        )
        for rows, votes in zip(shards, drawing.each(jobs), strict=True):
            seconds = (time.perf_counter() - began) / len(rows)
            tallies = {row: votes[place[row]][0] for row in rows}
            yield {
                row: predict_votes(
                    index=group.indices[row],
                    label=group.labels[row],
                    tally=tally.independent_votes(),
                    alpha=alpha,
                    seconds=seconds,
                    norm=smoothing.norm,
                    grid=smoothing.grid,
                    scale=smoothing.scale,
                    dtype=smoothing.dtype,
                    price=price_of(tally, smoothing),
                    certain=not smoothing.noise.sampled,
                )
                for row, tally in tallies.items()
            }
            began = time.perf_counter()

    def _look_up(
        self, inputs: InputArray, group: _Group, rows: Sequence[int], smoothing: Smoothing
    ) -> dict[int, CertifiedPoint]:
        """The answers of the memory, for rows that lie in a promised region."""
        found = {} if self.memory is None else {row: self.memory.lookup(inputs[row]) for row in rows}
        return {
            row: point_from_promise(promise, index=group.indices[row], label=group.labels[row], smoothing=smoothing)
            for row, promise in found.items()
            if promise is not None
        }

    def _load_each(self, source: InputSource, groups: Iterator[_Group]) -> Iterator[tuple[_Group, InputArray]]:
        """The groups with their inputs. While one is sampled, the source may read the next one."""
        following = next(groups, None)
        while following is not None:
            group, inputs = following, self._load(source, following.positions)
            following = next(groups, None)
            source.announce(() if following is None else following.positions)
            yield group, inputs

    def _load(self, source: InputSource, positions: Sequence[int]) -> InputArray:
        """The inputs in the units of the noise."""
        inputs = source.load(positions)
        return inputs if self.scale is None else self.scale.divide(inputs)

    def _inputs_together(self, samples: int, *, most: int | None = None) -> int:
        """How many inputs share a shard when each takes this many samples: a pure function of the settings."""
        size = inputs_per_shard(samples_per_input=samples, batch=self.batch, shared=self.shared_noise)
        return size if most is None else min(size, most)


def open_link(link: MemoryLink, key: MemoryKey, classifier: BaseClassifier, input_shape: tuple[int, ...]) -> None:
    """Open a memory for this classifier. Its answers to fixed inputs must be those that the memory has stored."""
    link.open(
        key,
        make_probe=lambda: json.dumps(probe(classifier, input_shape)),
        check_probe=lambda stored, name: check_probe(strict_loads(stored), classifier, input_shape, of=name),
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Inputs whose selection is drawn together. shards: rows of the group that are estimated and stored together."""

    positions: Sequence[int]
    indices: Sequence[int]
    labels: Sequence[int | None]
    shards: list[Sequence[int]]


def _groups(source: InputSource, *, group_size: int, shard_size: int, done: Set[int]) -> Iterator[_Group]:
    """The groups of the source that have shards to do."""
    for positions in _cut(range(len(source)), group_size):
        indices = [source.indices[position] for position in positions]
        shards = [
            rows for rows in _cut(range(len(indices)), shard_size) if not all(indices[row] in done for row in rows)
        ]
        if shards:
            yield _Group(positions, indices, [source.labels[position] for position in positions], shards)


def _cut(rows: Sequence[int], size: int) -> list[Sequence[int]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]
