"""Fresh samples at the points an attack found: does the smoothed classifier really answer differently there?

With many points and noisy losses, some estimates of an attack are wrong by chance. So none of them counts: new samples
judge each point, at a level that all judgements share.
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
"""One sample in ten selects the class with the largest mean score. Near a boundary, 100 would select it by chance."""


def judge_points(
    smoothed: SmoothedClassifier,
    points: InputArray,
    group: Sequence[CertifiedPoint],
    *,
    n: int,
    level: float,
    soft: bool,
    progress: Progress | None = None,
) -> list[FreshVerdict]:
    """One verdict per point (B, *shape), each wrong about a change with probability at most `level`.

    The smoothed classifier uses sigma at the point itself, and its memory. group: the attacked inputs. soft: compare
    mean scores instead of votes.
    """
    indices = [point.index for point in group]
    if not soft:
        answers = smoothed.predict(points, n=n, alpha=level, indices=indices, progress=progress)
        smoothing = smoothed.prediction(n=n, alpha=level)
        prices = [price_of(fresh.tallies[0], smoothing) if fresh.tallies else 0.0 for fresh in answers]
        return [
            judge_votes(prediction_of(point), fresh, level=alpha_after_noise(level, price))
            for point, fresh, price in zip(group, answers, prices, strict=True)
        ]
    promises = {} if smoothed.memory is None else {row: smoothed.memory.lookup(x) for row, x in enumerate(points)}
    verdicts = []
    for row, point in enumerate(group):
        promise = promises.get(row)
        if promise is not None:
            verdicts.append(_judge_promise(prediction_of(point), promise.label))
            continue
        (fresh,) = compare_scores(smoothed, points[row : row + 1], [point.index], n=n, level=level, progress=progress)
        verdicts.append(_judge_scores(prediction_of(point), fresh, n=n))
    return verdicts


def count_points(
    smoothed: SmoothedClassifier,
    points: InputArray,
    group: Sequence[CertifiedPoint],
    *,
    progress: Progress | None = None,
) -> list[FreshVerdict]:
    """One verdict per point (B, *shape), by all evaluations that there are, or by the memory: it is certain."""
    answers = smoothed.predict(points, indices=[point.index for point in group], progress=progress)
    return [_judge_count(prediction_of(point), fresh) for point, fresh in zip(group, answers, strict=True)]


def _judge_count(prediction: int, fresh: CertifiedPoint) -> FreshVerdict:
    if fresh.promise is not None:
        return _judge_promise(prediction, fresh.promise.label)
    tally = fresh.tallies[0].independent_votes()
    leader = plurality(tally)
    return FreshVerdict(
        prediction=prediction,
        fate=_choose_fate(leader, prediction, proved=True),
        answer=leader,
        leads=leader == prediction,
        samples=tally.n,
        sigma=tally.sigma,
        counts=tuple(int(count) for count in tally.counts),
        invalid=tally.invalid,
        p_value=None,
    )


def prediction_of(point: CertifiedPoint) -> int:
    """The answer that was attacked."""
    assert point.prediction is not None  # only inputs with an answer are attacked
    return point.prediction


def _judge_promise(prediction: int, label: int) -> FreshVerdict:
    """The answer of a memory is certain and needs no votes."""
    return FreshVerdict(
        prediction=prediction,
        fate=_choose_fate(label, prediction, proved=True),
        answer=label,
        leads=label == prediction,
        samples=0,
        sigma=None,
        counts=None,
        invalid=0,
        p_value=None,
    )


def judge_votes(prediction: int, fresh: CertifiedPoint, *, level: float) -> FreshVerdict:
    """What the votes of a prediction prove at this level."""
    if fresh.promise is not None:
        return _judge_promise(prediction, fresh.promise.label)
    tally = fresh.tallies[0].independent_votes()
    leader = plurality(tally)
    p_value = _lead_p_value(tally, leader)
    return FreshVerdict(
        prediction=prediction,
        fate=_choose_fate(leader, prediction, proved=p_value <= level),
        answer=leader if p_value <= level else None,
        leads=leader == prediction,
        samples=tally.n,
        sigma=tally.sigma,
        counts=tuple(int(count) for count in tally.counts),
        invalid=tally.invalid,
        p_value=p_value,
    )


def _lead_p_value(tally: Tally, leader: int | None) -> float:
    """The p-value of the lead over the second. A leader of None stands for the invalid samples."""
    first = tally.invalid if leader is None else int(tally.counts[leader])
    second = int(tally.counts.max()) if leader is None else tally.largest_other(leader)
    return float(sign_test_p_value(first, second))


def _choose_fate(leader: int | None, prediction: int, *, proved: bool) -> Fate:
    if not proved:
        return Fate.ABSTAINED
    return Fate.UNCHANGED if leader == prediction else Fate.CHANGED


def samples_of_selection(n: int) -> int:
    """Number of samples that select the class whose mean score n others prove to be the largest."""
    return max(_LEAST_SELECTION, n // _SHARE_OF_SELECTION)


def compare_scores(
    smoothed: SmoothedClassifier,
    inputs: InputArray,
    indices: Sequence[int],
    *,
    n: int,
    level: float,
    progress: Progress | None,
) -> list[CertifiedPoint]:
    """Test at each input (B, *shape) whether one mean score is the largest.

    The points returned are certificates for the classifier with the σ of that input everywhere. At the input itself it
    is the same classifier. No memory is read or written.
    """
    rows_by_sigma: dict[float, list[int]] = {}
    for row, sigma in smoothed.sigmas(inputs, indices).items():
        rows_by_sigma.setdefault(sigma, []).append(row)
    compared: dict[int, CertifiedPoint] = {}
    for sigma, rows in rows_by_sigma.items():
        constant = SmoothedClassifier(
            smoothed.classifier,
            sigma=sigma,
            noise=smoothed.noise,
            grid=FLOAT if smoothed.grid is None else smoothed.grid,
            input_shape=inputs.shape[1:],
            seed=smoothed.seed,
            batch=smoothed.batch,
            workers=smoothed.workers,
            input_range=smoothed.input_range,
        )
        points = constant.certify(
            inputs[rows],
            n0=samples_of_selection(n),
            n=n,
            alpha=level,
            certificate=smoothed.noise.soft_certificate,
            indices=[indices[row] for row in rows],
            progress=progress,
        )
        compared |= dict(zip(rows, points, strict=True))
    return [compared[row] for row in range(len(inputs))]


def _judge_scores(prediction: int, fresh: CertifiedPoint, *, n: int) -> FreshVerdict:
    selection = fresh.tally(Stage.SELECTION)
    votes = fresh.tally(Stage.ESTIMATION)
    tally = None if votes is None else votes.independent_votes()
    return FreshVerdict(
        prediction=prediction,
        fate=_choose_fate(fresh.prediction, prediction, proved=fresh.outcome is Outcome.CERTIFIED),
        answer=fresh.prediction,
        leads=selection is not None and plurality(selection.independent_votes()) == prediction,
        samples=n,
        sigma=fresh.sigma if math.isfinite(fresh.sigma) else None,
        counts=None if tally is None else tuple(int(count) for count in tally.counts),
        invalid=0 if tally is None else tally.invalid,
        p_value=None,
    )
