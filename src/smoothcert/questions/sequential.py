"""Questions that stop sampling an input when its votes have answered.

Votes that were looked at before more were drawn are not a fixed number of votes: a Clopper–Pearson bound on them is
wrong more often than it says. Everything here uses anytime-valid tests, on the looks that are stored.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from smoothcert.certificates import Certificate
from smoothcert.errors import InputError
from smoothcert.questions.deciding import DecideMonitor, least_probabilities
from smoothcert.questions.feasibility import check_votes_suffice, only_certificate
from smoothcert.questions.inquiry import Estimation, Inquiry, Rows, Votes
from smoothcert.questions.monitor import Monitor
from smoothcert.questions.narrowing import PrecisionMonitor
from smoothcert.questions.verdicts import explain_other_leader, make_bounds, make_verdict
from smoothcert.records import AnyTally, FloatArray, Proof, Quantity, Stage, Tally, Verdict, merge
from smoothcert.statistics import alpha_after_noise, noise_price, plurality

if TYPE_CHECKING:  # recertifying imports neither sampling nor models
    from smoothcert.sampling.drawing import Drawing

INPUTS_TOGETHER = 64
"""Inputs that share their rounds: a round is a few samples of each, and must fill some batches."""
_FIRST_LOOK = 64
_GROWTH = (3, 20)
"""Each look comes after 3/20 more samples than the one before: at most that share is drawn in vain."""


def list_looks(n: int) -> tuple[int, ...]:
    """After how many samples the votes are looked at: from 64 on, each time 15 % more, and at the end, n.

    A pure function of n, so a run that is resumed, or made by other workers, looks at the same times.
    """
    found, at = [], _FIRST_LOOK
    while at < n:
        found.append(at)
        at += at * _GROWTH[0] // _GROWTH[1]
    return (*found, n)


@dataclass(frozen=True, slots=True)
class SequentialInquiry(Inquiry):
    """n: the most samples of one input."""

    @property
    @abstractmethod
    def proof(self) -> Proof:
        """The test that answers the question, at all of α that the noise leaves."""

    @abstractmethod
    def monitor(self, sigmas: FloatArray) -> Monitor:
        """A monitor of inputs with these noise levels, (m,)."""

    @property
    def certificate(self) -> Certificate:
        return only_certificate(self.portfolio)

    @property
    def inputs_together(self) -> int:
        return INPUTS_TOGETHER

    @property
    def least_samples(self) -> int:
        return list_looks(self.n)[0]

    def spent(self, sigma: float) -> dict[Proof, float]:
        """How α is spent on an input with this noise level. The noise is paid for as if all n samples were drawn."""
        price = noise_price(self.smoothing, draws=self.n, sigma=sigma)
        spent = {self.proof: alpha_after_noise(self.alpha, price)}
        return spent | {Proof.NOISE_TABLES: price} if price else spent

    def _alphas(self, sigmas: FloatArray) -> FloatArray:
        return np.array([self.spent(float(sigma))[self.proof] for sigma in sigmas])

    def check_level(self, sigma: float) -> None:
        self.spent(sigma)

    def estimate(
        self, drawing: Drawing, shards: Sequence[Rows], selection: Mapping[int, Tally]
    ) -> Iterator[tuple[Rows, Estimation]]:
        for rows in shards:
            yield rows, self._draw_until_answered(drawing, {row: plurality(selection[row]) for row in rows})

    def _draw_until_answered(self, drawing: Drawing, labels: Mapping[int, int | None]) -> Estimation:
        """For each row its estimation votes, one tally for each look; none for a row without a selected class.

        What is drawn depends on the votes alone, so neither the number of workers nor an interruption changes it.
        """
        rows = [row for row, label in labels.items() if label is not None]
        drawn: dict[int, list[Tally]] = {row: [] for row in labels}
        if not rows:
            return dict.fromkeys(labels, ())
        monitor = self.monitor(np.array([drawing.sigmas[row] for row in rows]))
        hits = np.zeros(len(rows), dtype=np.int64)
        for start, stop in itertools.pairwise((0, *list_looks(self.n))):
            places = np.flatnonzero(monitor.open)
            if not places.size:
                break
            found = _draw_round(drawing, [rows[place] for place in places], start, stop)
            for place in places:
                row = rows[place]
                label = labels[row]
                assert label is not None
                drawn[row].append(found[row])
                hits[place] += int(found[row].counts[label])
            monitor.look(places, hits[places], np.full(places.size, stop))
        return {row: tuple(tallies) for row, tallies in drawn.items()}

    def cut(self, estimation: tuple[AnyTally, ...], *, n: int) -> tuple[AnyTally, ...]:
        """The looks up to n samples."""
        early = tuple(tally for tally in estimation if tally.ranges[-1][1] <= n)
        if estimation and not early:
            first = estimation[0].ranges[-1][1]
            raise InputError(f"n={n} is too small: the votes were first looked at after {first} samples")
        return early

    def _judge(self, votes: Sequence[Votes], labels: Sequence[int]) -> list[list[Verdict]]:
        """Judge the stored looks again, whatever made the sampling stop: the tests hold at all times at once."""
        looks = [_list_hits(item, label) for item, label in zip(votes, labels, strict=True)]
        monitor = self.monitor(np.array([self.deciding_votes(item).sigma for item in votes]))
        for number in range(max(map(len, looks))):
            rows = np.array([row for row, steps in enumerate(looks) if len(steps) > number], dtype=np.int64)
            hits, trials = np.array([looks[row][number] for row in rows], dtype=np.int64).T
            monitor.look(rows, hits, trials)
        radii, probabilities = monitor.radius, monitor.probability
        verdicts = []
        for row, (steps, label) in enumerate(zip(looks, labels, strict=True)):
            radius, p = float(radii[row]), float(probabilities[row])
            last_hits, last_trials = steps[-1] if steps else (0, 0)
            reason = None
            if radius <= 0:
                other = explain_other_leader(merge(votes[row].estimation).independent_votes(), label) if steps else None
                reason = other or monitor.explain_abstention(row, hits=last_hits, trials=last_trials, label=label)
            values = {Quantity.TOP_LOWER: p} if p > 0 else {}
            spent = self.spent(self.deciding_votes(votes[row]).sigma)
            bounds = make_bounds(label, values, {Quantity.TOP_LOWER: self.proof}, spent=spent)
            verdicts.append([make_verdict(self.certificate, label, radius=radius, bounds=bounds, reason=reason)])
        return verdicts


@dataclass(frozen=True, slots=True)
class DecideInquiry(SequentialInquiry):
    """Is the radius at least R, for each R of `radii`, in increasing order?"""

    radii: tuple[float, ...]

    @property
    def proof(self) -> Proof:
        return Proof.TOP_DECIDED

    def monitor(self, sigmas: FloatArray) -> Monitor:
        p0 = least_probabilities(self.certificate, self.radii, sigmas=sigmas, smoothing=self.smoothing)
        return DecideMonitor(p0, self.radii, n=self.n, alpha=self._alphas(sigmas))

    def check_level(self, sigma: float) -> None:
        """Refuse a radius that no input with this noise level can be proved to have within n samples."""
        # Not super(): a dataclass with slots is created twice, and super() would refer to the first class.
        self.spent(sigma)
        levels = np.array([sigma])
        (least,) = least_probabilities(self.certificate, self.radii, sigmas=levels, smoothing=self.smoothing)
        for radius, p0 in zip(self.radii, least, strict=True):
            if not np.isfinite(p0):
                raise InputError(
                    f"a radius of {radius:g} cannot be decided at sigma {sigma:g}: no probability below 1 gives it by "
                    f"{self.certificate.name}; use smaller radii or a larger sigma"
                )
            check_votes_suffice(float(p0), f"a radius of {radius:g}", n=self.n, alpha=self.alpha)


@dataclass(frozen=True, slots=True)
class PrecisionInquiry(SequentialInquiry):
    """What is the radius, within `width`?"""

    width: float

    @property
    def proof(self) -> Proof:
        return Proof.TOP_SEQUENCE

    def monitor(self, sigmas: FloatArray) -> Monitor:
        return PrecisionMonitor(
            self.certificate,
            self.width,
            sigmas=sigmas,
            smoothing=self.smoothing,
            n=self.n,
            alpha=self._alphas(sigmas),
        )


def _draw_round(drawing: Drawing, rows: Rows, start: int, stop: int) -> dict[int, Tally]:
    from smoothcert.sampling.drawing import Draws

    # One job at a time: what the next one asks for is not known before this one is counted.
    (found,) = drawing.each([Draws.alike(Stage.ESTIMATION, rows, [(start, stop)])])
    return {row: tallies[0].independent_votes() for row, tallies in found.items()}


def _list_hits(item: Votes, label: int) -> list[tuple[int, int]]:
    """Hits and trials at each look; empty if nothing was drawn."""
    steps: list[tuple[int, int]] = []
    hits = trials = 0
    for tally in sorted(item.estimation, key=lambda tally: tally.ranges[0]):
        if not isinstance(tally, Tally) or tally.stream.stage is not Stage.ESTIMATION:
            raise InputError(f"input {item.index} has tallies other than plain estimation votes at its looks")
        if tally.ranges != ((trials, trials + tally.n),):
            raise InputError(f"the votes of input {item.index} have a gap after {trials} samples")
        hits, trials = hits + int(tally.counts[label]), trials + tally.n
        steps.append((hits, trials))
    return steps
