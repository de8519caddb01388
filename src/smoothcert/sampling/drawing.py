"""Drawing samples around inputs: from rows, stages and ranges to requests, and back to tallies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from smoothcert.records import AnyTally, InputArray, Noise, Stage, StreamId, Tally, TallyKind
from smoothcert.sampling import ModelChecks, PickedVote, Request, Tallier
from smoothcert.sampling.sampler import Progress

Range = tuple[int, int]
"""Draws start … stop-1 of a stream."""


@dataclass(frozen=True, slots=True)
class Draws:
    """What to draw around some rows of the inputs: for each row, ranges of the draws of one stage.

    kind: what is counted. groups, winners: `Request.group` and `Request.label` by row, for gradients and scores.
    """

    stage: Stage
    ranges: Mapping[int, Sequence[Range]]
    kind: TallyKind = TallyKind.VOTES
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    winners: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def alike(cls, stage: Stage, rows: Sequence[int], ranges: Sequence[Range]) -> Draws:
        """The same ranges for all rows."""
        return cls(stage=stage, ranges=dict.fromkeys(rows, ranges))


@dataclass(frozen=True, slots=True)
class Drawing:
    """Inputs with their stream indices and noise levels, and the tallier that draws.

    inputs: (m, *input_shape) float32; indices: (m,); sigmas: by row, for the rows that will be drawn. shared_noise: all
    inputs get the noise of one stream. grid: number of levels of inputs and noise; None for noise in float32. checks:
    compares some of the votes with the user's model.
    """

    tallier: Tallier
    inputs: InputArray
    indices: Sequence[int]
    sigmas: Mapping[int, float]
    seed: int
    noise: Noise
    checks: ModelChecks
    shared_noise: bool = False
    grid: int | None = None
    progress: Progress | None = None

    def each(self, jobs: Iterable[Draws]) -> Iterator[dict[int, list[AnyTally]]]:
        """For each job, in order, the tallies of every row, one per range."""
        started: list[Draws] = []

        def requests() -> Iterator[list[Request]]:
            # A cluster takes several jobs before it returns the first.
            for draws in jobs:
                started.append(draws)
                yield self.checks.pick(self._requests(draws))

        results = self.tallier.tally_each(
            self.inputs, requests(), progress=self.progress, on_picked=self._compare_with_model
        )
        for number, tallies in enumerate(results):
            found = iter(tallies)
            yield {row: [next(found) for _ in ranges] for row, ranges in started[number].ranges.items()}

    def _compare_with_model(self, requests: Sequence[Request], picked: Sequence[PickedVote]) -> None:
        self.checks.compare(self.inputs, requests, picked)

    def votes(self, stage: Stage, rows: Sequence[int], *, n: int) -> dict[int, Tally]:
        """The votes of the first n samples of every row."""
        (found,) = self.each([Draws.alike(stage, rows, [(0, n)])])
        return {row: tallies[0].independent_votes() for row, tallies in found.items()}

    def _requests(self, draws: Draws) -> list[Request]:
        return [
            Request(
                row=row,
                stream=StreamId(self.seed, self.indices[row], draws.stage),
                sigma=self.sigmas[row],
                start=start,
                stop=stop,
                kind=draws.kind,
                group=draws.groups.get(row, ()),
                label=draws.winners.get(row, 0),
                noise=self.noise,
                shared=self.shared_noise,
                grid=self.grid,
            )
            for row, ranges in draws.ranges.items()
            for start, stop in ranges
        ]
