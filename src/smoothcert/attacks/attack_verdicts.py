"""Fresh samples at the points an attack found: does the smoothed classifier really give another answer there?

With many points and a noisy attack some estimates are wrong by chance. So nothing the attack saw counts: each point is
judged by new samples, at a level that all judgements share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from smoothcert.attacks.attack_record import Fate, FreshVerdict
from smoothcert.noise import FLOAT
from smoothcert.records import CertifiedPoint, InputArray, Outcome, Stage, Tally
from smoothcert.sampling.sampler import Progress
from smoothcert.smoothed import SmoothedClassifier
from smoothcert.statistics import alpha_after_noise, plurality, price_of, sign_test_p_value

_LEAST_SELECTION = 100
_SHARE_OF_SELECTION = 10
"""Mean scores: one sample in ten chooses the class to prove. Close to a boundary a hundred would choose by chance."""


def checked(
    smoothed: SmoothedClassifier,
    points: InputArray,
    group: Sequence[CertifiedPoint],
    *,
    n: int,
    level: float,
    soft: bool,
    progress: Progress | None = None,
) -> list[FreshVerdict]:
    """One verdict for every point (B, *shape), each wrong about a change with probability at most `level`.

    The smoothed classifier is asked as it stands: with the sigma of the point itself, and with its memory. soft: the
    run is about mean scores, not votes.
    """
    indices = [point.index for point in group]
    if not soft:
        found = smoothed.predict(points, n=n, alpha=level, indices=indices, progress=progress)
        smoothing = smoothed.prediction(n=n, alpha=level)
        prices = [price_of(fresh.tallies[0], smoothing) if fresh.tallies else 0.0 for fresh in found]
        return [
            _by_votes(point, fresh, level=alpha_after_noise(level, price))
            for point, fresh, price in zip(group, found, prices, strict=True)
        ]
    promises = {} if smoothed.memory is None else {row: smoothed.memory.lookup(x) for row, x in enumerate(points)}
    verdicts = []
    for row, point in enumerate(group):
        promise = promises.get(row)
        if promise is not None:
            verdicts.append(_promised(point, promise.label))
            continue
        (fresh,) = scored(smoothed, points[row : row + 1], [point.index], n=n, level=level, progress=progress)
        verdicts.append(_by_scores(point, fresh, n=n))
    return verdicts


def _expected(point: CertifiedPoint) -> int:
    assert point.prediction is not None  # only inputs with an answer are attacked
    return point.prediction


def _promised(point: CertifiedPoint, label: int) -> FreshVerdict:
    """The answer of a memory: certain, and without votes."""
    prediction = _expected(point)
    fate = Fate.UNCHANGED if label == prediction else Fate.CHANGED
    return FreshVerdict(
        prediction=prediction,
        fate=fate,
        answer=label,
        leads=label == prediction,
        samples=0,
        sigma=None,
        counts=None,
        invalid=0,
        p_value=None,
    )


def _by_votes(point: CertifiedPoint, fresh: CertifiedPoint, *, level: float) -> FreshVerdict:
    if fresh.promise is not None:
        return _promised(point, fresh.promise.label)
    tally = fresh.tallies[0].independent_votes()
    prediction, leader = _expected(point), plurality(tally)
    p_value = _p_value(tally, leader)
    return FreshVerdict(
        prediction=prediction,
        fate=_fate(leader, prediction, settled=p_value <= level),
        answer=leader if p_value <= level else None,
        leads=leader == prediction,
        samples=tally.n,
        sigma=tally.sigma,
        counts=tuple(int(count) for count in tally.counts),
        invalid=tally.invalid,
        p_value=p_value,
    )


def _p_value(tally: Tally, leader: int | None) -> float:
    """Of the lead over everything else; None as a leader stands for the samples without a valid answer."""
    first = tally.invalid if leader is None else int(tally.counts[leader])
    second = int(tally.counts.max()) if leader is None else tally.largest_other(leader)
    return float(sign_test_p_value(first, second))


def _fate(leader: int | None, prediction: int, *, settled: bool) -> Fate:
    if not settled:
        return Fate.ABSTAINED
    return Fate.UNCHANGED if leader == prediction else Fate.CHANGED


def samples_of_selection(n: int) -> int:
    """How many samples choose the class whose mean score n others prove to be the largest."""
    return max(_LEAST_SELECTION, n // _SHARE_OF_SELECTION)


def scored(
    smoothed: SmoothedClassifier,
    inputs: InputArray,
    indices: Sequence[int],
    *,
    n: int,
    level: float,
    progress: Progress | None,
) -> list[CertifiedPoint]:
    """Whether one mean score at each input is the largest: a certificate for the classifier smoothed with the σ of that
    input throughout.

    At the input itself it is the same classifier, and nothing is claimed from a memory, nor is it asked.
    """
    rows_by_sigma: dict[float, list[int]] = {}
    for row, sigma in smoothed.sigmas(inputs, indices).items():
        rows_by_sigma.setdefault(sigma, []).append(row)
    found: dict[int, CertifiedPoint] = {}
    for sigma, rows in rows_by_sigma.items():
        named = [indices[row] for row in rows]
        fresh = _scored_with(smoothed, inputs[rows], named, sigma=sigma, n=n, level=level, progress=progress)
        found |= dict(zip(rows, fresh, strict=True))
    return [found[row] for row in range(len(inputs))]


def _scored_with(
    smoothed: SmoothedClassifier,
    x: InputArray,
    indices: Sequence[int],
    *,
    sigma: float,
    n: int,
    level: float,
    progress: Progress | None,
) -> list[CertifiedPoint]:
    here = SmoothedClassifier(
        smoothed.classifier,
        sigma=sigma,
        noise=smoothed.noise,
        grid=FLOAT if smoothed.grid is None else smoothed.grid,
        input_shape=x.shape[1:],
        seed=smoothed.seed,
        batch=smoothed.batch,
        workers=smoothed.workers,
        input_range=smoothed.input_range,
    )
    return here.certify(
        x,
        n0=samples_of_selection(n),
        n=n,
        alpha=level,
        certificate=smoothed.noise.facts.soft_two_class_certificate,
        indices=indices,
        progress=progress,
    )


def _by_scores(point: CertifiedPoint, fresh: CertifiedPoint, *, n: int) -> FreshVerdict:
    prediction = _expected(point)
    selection = fresh.tally(Stage.SELECTION)
    votes = fresh.tally(Stage.ESTIMATION)
    tally = None if votes is None else votes.independent_votes()
    return FreshVerdict(
        prediction=prediction,
        fate=_fate(fresh.prediction, prediction, settled=fresh.outcome is Outcome.CERTIFIED),
        answer=fresh.prediction,
        leads=selection is not None and plurality(selection.independent_votes()) == prediction,
        samples=n,
        sigma=fresh.sigma if math.isfinite(fresh.sigma) else None,
        counts=None if tally is None else tuple(int(count) for count in tally.counts),
        invalid=0 if tally is None else tally.invalid,
        p_value=None,
    )
