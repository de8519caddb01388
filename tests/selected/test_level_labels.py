"""From votes to labels, soft targets and what is reported of a selector: against numbers computed by hand."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from smoothcert.data import load_dataset
from smoothcert.records import ScoreTally, Stage, StreamId
from smoothcert.records.score_cells import SCORE_CELLS, score_cell
from smoothcert.training.batches import Batches
from smoothcert.training.level_labels import label_by_level
from smoothcert.training.level_votes import MOST_PROVED, LevelVotes, choose_spread, estimate_depth, fit_curve
from smoothcert.training.noisy_inputs import cross_entropy_of_copies
from smoothcert.training.objective import Batch
from smoothcert.training.objectives import OBJECTIVES, parse_objective
from smoothcert.training.selector_report import estimate_exclusions, report_choices

QUANTILE = NormalDist().inv_cdf


def votes_alone(votes, levels=(0.25, 1.0)):
    """Of a model without scores."""
    votes = np.asarray(votes)
    return LevelVotes(votes, np.full(votes.shape, np.nan), levels, 100)


def radius(votes, sigma):
    return max(0.0, sigma * QUANTILE((votes + 0.5) / 101))


VOTES = votes_alone([[100, 60], [100, 97], [40, 30], [0, 0], [30, 51]])


def test_radii_and_best_levels():
    by_hand = [[radius(a, 0.25), radius(b, 1.0)] for a, b in VOTES.votes.tolist()]
    assert np.allclose(VOTES.radii, by_hand, rtol=1e-12, atol=0)
    # .25·2.578 against .243; .645 against 1.82; no radius: most votes; nothing: the first.
    assert VOTES.best.tolist() == [0, 1, 0, 0, 1]


def test_soft_targets():
    soft = VOTES.soften(0.3)
    assert soft.dtype == np.float32
    assert np.allclose(soft.sum(axis=1), 1.0)
    assert np.array_equal(soft[:3].argmax(axis=1), VOTES.best[:3])
    gap = radius(97, 1.0) - radius(100, 0.25)
    assert soft[1, 1] == pytest.approx(1 / (1 + math.exp(-gap / 0.3)), rel=1e-5)
    assert soft[3].tolist() == [0.5, 0.5]
    assert VOTES.soften(1e-3)[1].tolist() == [0.0, 1.0]


def test_batches_give_the_targets_of_their_inputs():
    digits = load_dataset("digits", split="train")
    indices = np.array([7, 2, 4, 9, 0, 5, 3])
    votes = votes_alone(np.arange(20).reshape(10, 2) * 5)
    data = label_by_level(digits, indices, votes, softness=0.1, split="train")
    assert data.labels.tolist() == votes.best[indices].tolist()
    assert np.array_equal(data.inputs([1]), digits.inputs([2]))
    batches = Batches(data, batch=2, seed=1, device=torch.device("cpu"))
    for rows in batches.epoch(0):
        assert np.array_equal(rows.targets.numpy(), votes.soften(0.1)[indices[rows.indices.numpy()]])
        assert np.array_equal(rows.labels.numpy(), votes.best[indices[rows.indices.numpy()]])
    hard = label_by_level(digits, indices, votes, softness=0.0, split="train")
    assert hard.targets is None
    assert next(iter(Batches(hard, batch=2, seed=1, device=torch.device("cpu")).epoch(0))).targets is None


def test_the_digest_depends_on_everything_that_is_learned():
    digits = load_dataset("digits", split="train")
    indices = np.arange(10)
    other = votes_alone(np.arange(20).reshape(10, 2)[::-1].copy())
    votes = votes_alone(np.arange(20).reshape(10, 2) * 5)
    digests = {
        label_by_level(digits, chosen, given, softness=softness, split="train").digest
        for chosen, given, softness in (
            (indices, votes, 0.0), (indices, votes, 0.1), (indices, votes, 0.2), (indices, other, 0.1),
            (indices[1:], votes, 0.1), (indices, votes_alone(votes.votes, (0.25, 0.9)), 0.1),
        )
    }  # fmt: skip
    assert len(digests) == 6


def test_cross_entropy_with_soft_targets():
    logits = torch.tensor([[[1.0, -1.0, 0.5]], [[0.0, 2.0, 0.0]]], dtype=torch.float64)  # 2 copies of 1 input
    wanted = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    by_hand = -(logits.log_softmax(dim=2) * wanted).sum(dim=2).mean()
    assert cross_entropy_of_copies(logits, wanted).item() == pytest.approx(by_hand.item(), rel=1e-12)
    sure = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    assert cross_entropy_of_copies(logits, sure).item() == pytest.approx(
        cross_entropy_of_copies(logits, torch.tensor([2])).item(), rel=1e-12
    )


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_objectives_that_say_so_use_the_targets(name):
    """With targets that are all at one class, the labels make no difference; without them they do."""
    objective = parse_objective(name)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    inputs, targets = torch.rand(5, 4), torch.eye(3)[torch.tensor([0, 1, 2, 0, 1])]

    def loss(labels, targets):
        batch = Batch(inputs, torch.tensor(labels), 0.5, progress=0.5, targets=targets)
        terms = objective.terms(network, batch, torch.Generator().manual_seed(1))
        return sum(term.item() for term in terms.values())

    assert loss([0, 1, 2, 0, 1], None) != loss([1, 2, 0, 1, 2], None)
    if getattr(objective, "uses_targets", False):
        assert loss([1, 2, 0, 1, 2], targets) == pytest.approx(loss([0, 1, 2, 0, 1], None), rel=1e-5)
    else:
        assert loss([1, 2, 0, 1, 2], targets) != pytest.approx(loss([0, 1, 2, 0, 1], None), rel=1e-5)


def test_exclusions_and_the_report():
    choices = np.array([[10, 90], [50, 50]])
    votes = votes_alone([[100, 90], [70, 20]], (0.5, 1.0))
    far = 0.5 * 0.8 * (QUANTILE(90.5 / 101) - QUANTILE(10.5 / 101)) * 2 / 2
    assert estimate_exclusions(choices, sigma=0.8).tolist() == [[pytest.approx(far), 0.0], [0.0, 0.0]]
    report = report_choices(choices, votes, sigma=0.8)
    first = (
        radius(100, 0.5),
        radius(90, 1.0),
    )  # 1.289 and 1.258: level .5 is excluded within 1.01, and reaches further
    assert report.selected == pytest.approx(min(max(far, first[0]), first[1]) / 2)
    assert report.published == pytest.approx(min(far, first[1]) / 2)
    assert report.oracle == pytest.approx((first[0] + radius(70, 0.5)) / 2)
    assert report.radii == pytest.approx(((first[0] + radius(70, 0.5)) / 2, first[1] / 2))
    assert (report.right, report.certainty, report.certain) == (0.5, pytest.approx(0.7), 0.0)
    assert (report.chosen, report.best) == ((0.5, 0.5), (1.0, 0.0))


def test_depths_tell_apart_what_votes_cannot():
    """A margin of the logits that is normal with mean m and deviation s is positive with probability Φ(m/s)."""
    drawn = np.random.default_rng(0).normal(3.0, 1.0, size=400)
    score = 1 / (1 + np.exp(-drawn))
    parts = [np.unique(score_cell(one), return_counts=True) for one in (score, 1 - score)]  # of two classes
    tally = ScoreTally(
        stream=StreamId(0, 0, Stage.SELECTION), sigma=0.5, counts=np.array([400, 0]), invalid=0, label=0,
        cells=np.concatenate([parts[0][0], SCORE_CELLS + parts[1][0]]),
        hits=np.concatenate([parts[0][1], parts[1][1]]), ranges=((0, 400),),
    )  # fmt: skip
    exact = drawn.mean() / drawn.std(ddof=1)
    assert 0.95 * exact < estimate_depth(tally) < 1.001 * exact
    votes = LevelVotes(np.array([[100, 100]]), np.array([[3.0, 1.0]]), (0.5, 1.0), 100)
    assert votes.radii.tolist() == [[1.5, 1.0]]
    assert votes.best.tolist() == [0]
    most = LevelVotes(np.array([[100, 100]]), np.array([[99.0, 99.0]]), (0.5, 1.0), 100)
    assert most.radii.tolist() == [[0.5 * MOST_PROVED, MOST_PROVED]]


def test_a_curve_is_ascending_and_close_to_the_votes():
    """The true quantiles are half the depths: what a law of margins with heavy tails does."""
    depths = np.linspace(-2, 6, 200)[::-1].copy()
    votes = np.random.default_rng(1).binomial(1000, ndtr(depths / 2))
    curve = fit_curve(depths, votes, n=1000)
    assert (np.diff(curve.depths) > 0).all()
    assert (np.diff(curve.quantiles) >= 0).all()
    assert np.abs(curve.read(depths) - depths / 2)[depths < 5].max() < 0.2
    assert curve.read(np.array([-9.0, 99.0])).tolist() == [curve.quantiles[0], curve.quantiles[-1]]
    given = LevelVotes(np.array([[16, 16]]), np.array([[2.0, 2.0]]), (0.5, 1.0), 16, (None, curve))
    assert given.radii[0, 0] == 1.0
    assert given.radii[0, 1] == pytest.approx(1.0, abs=0.1)


def test_inputs_for_a_curve_are_spread_over_the_depths():
    depths = np.concatenate([np.full(900, 3.0), np.linspace(-1, 3, 100)])
    chosen = choose_spread(depths, most=50)
    assert len(set(chosen.tolist())) == len(chosen)
    assert 40 <= len(chosen) <= 50
    assert (depths[chosen] < 2.9).sum() > 35
