"""Every objective against a second implementation: its loss in numpy, its gradient by finite differences.

The networks are linear, in double precision, so attacks and votes can be followed on paper. The draws are those of a
generator with the same seed. What an objective holds fixed (the points of an attack, a soft vote that is a target) is
computed once, at the weights given, and stays while the weights are varied.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax, logsumexp, ndtri, softmax

from smoothcert.errors import InputError
from smoothcert.records import Noise
from smoothcert.training import OBJECTIVES, Batch, TrainingConfig, objectives, parse_objective
from smoothcert.training.objectives import collect_facts
from smoothcert.training.objectives.adversarial import Adversarial
from smoothcert.training.objectives.augmentation import NoiseAugmentation
from smoothcert.training.objectives.cat_rs import ConfidenceAware
from smoothcert.training.objectives.consistency import Consistency
from smoothcert.training.objectives.exclusion import Exclusion
from smoothcert.training.objectives.macer import Macer
from smoothcert.training.objectives.smoothadv import SmoothAdv
from smoothcert.training.objectives.smoothmix import SmoothMix
from smoothcert.training.objectives.stability import Stability

WEIGHTS = np.array([[1.0, -0.5, 0.3], [-0.4, 0.8, 0.1], [0.2, 0.1, -0.9]])
BIAS = np.array([0.1, -0.2, 0.05])
INPUTS = np.array([[0.9, 0.1, 0.4], [0.2, 0.7, 0.3], [0.1, 0.2, 0.9], [0.5, 0.5, 0.2], [0.8, 0.1, 0.1]])
LABELS = np.array([0, 1, 0, 2, 0])
SIGMAS = np.array([0.3, 0.2, 0.5, 0.4, 0.25])
SEED = 17


def linear(weights=WEIGHTS, bias=BIAS):
    module = torch.nn.Linear(weights.shape[1], len(weights)).double()
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(weights))
        module.bias.copy_(torch.from_numpy(bias))
    return module


def batch_of(inputs=INPUTS, labels=LABELS, sigma=SIGMAS, **more):
    level = torch.from_numpy(sigma) if isinstance(sigma, np.ndarray) else sigma
    return Batch(torch.from_numpy(inputs), torch.from_numpy(labels), level, **more)


def seeded():
    return torch.Generator().manual_seed(SEED)


def drawn(count, sigma=SIGMAS, shape=INPUTS.shape, generator=None):
    """The noises (count, B, d) an objective draws first."""
    unit = torch.randn(count, *shape, generator=generator or seeded(), dtype=torch.float64).numpy()
    return unit * np.reshape(sigma, (-1, 1))


def central_differences(loss, weights, bias, step=1e-6):
    """The gradient of loss(weights, bias) in both."""
    at = np.concatenate([weights.ravel(), bias])

    def value(flat):
        return loss(flat[: weights.size].reshape(weights.shape), flat[weights.size :])

    moves = step * np.eye(at.size)
    slopes = np.array([(value(at + move) - value(at - move)) / (2 * step) for move in moves])
    return slopes[: weights.size].reshape(weights.shape), slopes[weights.size :]


def assert_is(objective, batch, by_hand, *, weights=WEIGHTS, bias=BIAS):
    """by_hand(weights, bias) gives {name: term}; every term, and the gradient of every term and of the sum."""
    expected = by_hand(weights, bias)
    for name in [*expected, None]:
        module = linear(weights, bias)
        terms = objective.terms(module, batch, seeded())
        assert set(terms) == set(expected)
        for each, value in expected.items():
            assert terms[each].item() == pytest.approx(value, rel=1e-9, abs=1e-12), each
        (sum(terms.values()) if name is None else terms[name]).backward()

        def loss(w, b, name=name):
            values = by_hand(w, b)
            return sum(values.values()) if name is None else values[name]

        for gradient, slope in zip(
            (module.weight.grad, module.bias.grad), central_differences(loss, weights, bias), strict=True
        ):
            np.testing.assert_allclose(gradient.numpy(), slope, rtol=1e-5, atol=1e-8, err_msg=str(name))


def gradient_of(term, module):
    return torch.cat([each.flatten() for each in torch.autograd.grad(term, module.parameters(), retain_graph=True)])


def cross_entropy(logits, labels=LABELS):
    """Mean of -log softmax at the label; logits: (…, B, classes)."""
    own = log_softmax(logits, axis=-1)[..., np.arange(len(labels)), labels]
    return -own.mean()


def climb(weights, bias, start, noise, labels, *, step, steps, radius=np.inf):
    """Projected ascent on -log of the mean softmax at the label, written for a linear network.

    ∇ₓ(-log mean_i p_i) = Σ_i (p_i/Σp)·(Σ_c softmax_c W_c - W_y).
    """
    rows, points = np.arange(len(labels)), start.copy()
    for _ in range(steps):
        scores = softmax((points + noise) @ weights.T + bias, axis=-1)
        share = scores[:, rows, labels]
        share = share / share.sum(axis=0)
        gradient = (share[..., None] * (scores @ weights - weights[labels])).sum(axis=0)
        moved = points - start + step * gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        points = start + moved * np.minimum(1.0, radius / length)
    return points


class Watched(torch.nn.Module):
    """Remembers what it was shown, and in which mode."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.shown, self.modes = [], []

    def forward(self, inputs):
        self.shown.append(inputs.detach().clone())
        self.modes.append(self.training)
        return self.inner(inputs)

    def last(self, copies, rows):
        """The last copies shown, (copies, rows, d)."""
        return self.shown[-1].reshape(-1, copies, rows, self.shown[-1].shape[1]).numpy()


# --- augmentation -----------------------------------------------------------------------------------------------------


def test_augmentation_is_cross_entropy_at_one_noisy_copy():
    noise = drawn(1)[0]
    assert_is(
        NoiseAugmentation(),
        batch_of(),
        lambda w, b: {"cross_entropy": cross_entropy((INPUTS + noise) @ w.T + b)},
    )


def test_augmentation_with_uniform_noise():
    unit = torch.rand(*INPUTS.shape, generator=seeded(), dtype=torch.float64).numpy()
    noisy = INPUTS + SIGMAS[:, None] * (2.0 * unit - 1.0)
    assert_is(
        NoiseAugmentation(),
        batch_of(noise=Noise.UNIFORM),
        lambda w, b: {"cross_entropy": cross_entropy(noisy @ w.T + b)},
    )


def test_augmentation_without_noise_in_closed_form():
    """The gradient of cross-entropy in the weights is (softmax - one hot)ᵀ x / B."""
    module = linear()
    (loss,) = NoiseAugmentation().terms(module, batch_of(sigma=0.0), seeded()).values()
    loss.backward()
    residual = softmax(INPUTS @ WEIGHTS.T + BIAS, axis=1) - np.eye(3)[LABELS]
    np.testing.assert_allclose(module.weight.grad, residual.T @ INPUTS / len(INPUTS), rtol=1e-12)


# --- stability --------------------------------------------------------------------------------------------------------


def test_stability_by_hand_with_the_gradient_through_both_passes():
    noisy = INPUTS + drawn(1)[0]

    def by_hand(w, b, target=None):
        clean = INPUTS @ w.T + b
        scores = softmax(clean, axis=1) if target is None else target
        crossed = -(scores * log_softmax(noisy @ w.T + b, axis=1)).sum(axis=1).mean()
        return {"cross_entropy": cross_entropy(clean), "stability": 3.0 * crossed}

    assert_is(Stability(weight=3.0), batch_of(), by_hand)
    held = softmax(INPUTS @ WEIGHTS.T + BIAS, axis=1)
    both, _ = central_differences(lambda w, b: by_hand(w, b)["stability"], WEIGHTS, BIAS)
    one, _ = central_differences(lambda w, b: by_hand(w, b, held)["stability"], WEIGHTS, BIAS)
    assert np.abs(both - one).max() > 1e-2  # the check above can tell


def test_stability_without_noise_is_the_entropy():
    scores = softmax(INPUTS @ WEIGHTS.T + BIAS, axis=1)
    terms = Stability(weight=2.0).terms(linear(), batch_of(sigma=0.0), seeded())
    assert terms["stability"].item() == pytest.approx(2.0 * stats.entropy(scores, axis=1).mean(), rel=1e-12)


# --- consistency ------------------------------------------------------------------------------------------------------


def disagreement_by_hand(logits):
    """(mean KL(F̄ ‖ F_i), mean H(F̄)); logits: (m, B, classes)."""
    scores = softmax(logits, axis=-1)
    mean = scores.mean(axis=0)
    spread = np.mean([stats.entropy(mean, each, axis=1).mean() for each in scores])
    return spread, stats.entropy(mean, axis=1).mean()


@pytest.mark.parametrize("copies", [2, 5])
def test_consistency_by_hand(copies):
    noisy = INPUTS + drawn(copies)

    def by_hand(w, b):
        logits = noisy @ w.T + b
        spread, entropy = disagreement_by_hand(logits)
        return {"cross_entropy": cross_entropy(logits), "consistency": 7.0 * spread, "entropy": 0.25 * entropy}

    assert by_hand(WEIGHTS, BIAS)["consistency"] > 0.05
    assert_is(Consistency(weight=7.0, entropy=0.25, noises=copies), batch_of(), by_hand)


def test_consistency_vanishes_where_copies_agree():
    module = linear()
    terms = Consistency(weight=100.0).terms(module, batch_of(sigma=0.0), seeded())
    assert abs(terms["consistency"].item()) < 1e-12
    assert gradient_of(terms["consistency"], module).abs().max() < 1e-12
    scores = softmax(INPUTS @ WEIGHTS.T + BIAS, axis=1)
    assert terms["entropy"].item() == pytest.approx(0.5 * stats.entropy(scores, axis=1).mean())
    assert gradient_of(terms["entropy"], module).abs().max() > 1e-2


def test_the_entropy_of_a_network_that_knows_nothing():
    terms = Consistency(entropy=0.5).terms(linear(np.zeros((3, 3)), np.zeros(3)), batch_of(), seeded())
    assert terms["entropy"].item() == pytest.approx(0.5 * np.log(3))
    assert terms["cross_entropy"].item() == pytest.approx(np.log(3))


# --- macer ------------------------------------------------------------------------------------------------------------


def macer_by_hand(objective, sigma=SIGMAS, inputs=INPUTS, labels=LABELS):
    noisy = inputs + drawn(objective.noises, sigma, inputs.shape)
    rows = np.arange(len(labels))

    def by_hand(w, b):
        logits = noisy @ w.T + b
        sharp = softmax(objective.beta * logits, axis=-1).mean(axis=0)
        own = sharp[rows, labels]
        others = np.where(np.eye(w.shape[0])[labels] == 1, -1.0, sharp).max(axis=1)
        missing = np.maximum(objective.margin - (ndtri(own) - ndtri(others)), 0.0) * (own > others)
        return {
            "cross_entropy": -np.log(own).mean(),
            "radius": (objective.weight * sigma / 2 * missing).mean(),
        }

    return by_hand


@pytest.mark.parametrize("sigma", [SIGMAS, 0.3], ids=["each its own", "one"])
def test_macer_by_hand(sigma):
    """One input is misclassified (3), two exceed the margin (0 and 4), and two lack a part of it."""
    objective = Macer(weight=6.0, margin=1.5, beta=2.0, noises=8)
    levels = np.broadcast_to(sigma, 5)
    logits = (INPUTS + drawn(8, levels)) @ WEIGHTS.T + BIAS
    sharp = softmax(2.0 * logits, axis=-1).mean(axis=0)
    best, own = np.sort(sharp, axis=1), sharp[np.arange(5), LABELS]
    assert list(own == best[:, -1]) == [True, True, True, False, True]
    gaps = ndtri(best[:, -1]) - ndtri(best[:, -2])
    assert list(gaps > 1.5) == [True, False, False, False, True]
    assert_is(objective, batch_of(sigma=sigma), macer_by_hand(objective, levels))


def test_macer_with_the_usual_settings():
    objective = Macer(noises=16)
    assert (objective.weight, objective.margin, objective.beta) == (16.0, 8.0, 16.0)
    weak = 0.2 * WEIGHTS  # mean scores that stay clear of where quantiles are cut off
    assert_is(objective, batch_of(), macer_by_hand(objective), weights=weak, bias=0.2 * BIAS)


@pytest.mark.parametrize(
    ("inputs", "labels", "margin"),
    [([[0.9, 0.1, 0.4]], [1], 8.0), ([[3.0, -2.0, 0.4]], [0], 2.0)],
    ids=["wrong", "beyond the margin"],
)
def test_macer_leaves_wrong_and_safe_inputs_alone(inputs, labels, margin):
    module = linear()
    one = batch_of(np.array(inputs), np.array(labels), 0.1)
    terms = Macer(margin=margin, beta=2.0).terms(module, one, seeded())
    assert terms["radius"].item() == 0.0
    assert torch.equal(gradient_of(terms["radius"], module), torch.zeros(12, dtype=torch.float64))
    assert gradient_of(terms["cross_entropy"], module).abs().max() > 1e-3


def test_macer_wrong_inputs_count_in_the_mean():
    """The mean is over the whole batch: a wrong input beside a right one halves its term."""
    tiny = np.full(2, 1e-9)  # a factor of the term, but no noise to speak of
    alone = Macer(beta=2.0).terms(linear(), batch_of(INPUTS[:1], LABELS[:1], tiny[:1]), seeded())["radius"]
    beside = Macer(beta=2.0).terms(linear(), batch_of(INPUTS[[0, 3]], LABELS[[0, 3]], tiny), seeded())["radius"]
    assert alone.item() > 1e-8
    assert beside.item() == pytest.approx(alone.item() / 2, rel=1e-6, abs=0.0)


def test_macer_is_finite_in_single_precision_for_a_network_that_is_sure():
    module = linear(1e3 * WEIGHTS, BIAS).float()
    batch = Batch(torch.from_numpy(INPUTS).float(), torch.from_numpy(LABELS), torch.from_numpy(SIGMAS).float())
    terms = Macer().terms(module, batch, seeded())
    sum(terms.values()).backward()
    assert all(torch.isfinite(value) for value in terms.values())
    assert torch.isfinite(module.weight.grad).all()


# --- adversarial ------------------------------------------------------------------------------------------------------


def test_adversarial_with_two_classes_in_closed_form():
    """Of two classes the worst point within r is x + r·(w_other - w_y)/‖…‖, whatever the noise."""
    weights, bias = WEIGHTS[:2], BIAS[:2]
    labels = np.array([0, 1, 0, 1, 0])
    across = weights[1 - labels] - weights[labels]
    worst = INPUTS + 0.4 * across / np.linalg.norm(across, axis=1, keepdims=True)
    noisy = worst + drawn(1)[0]
    objective = Adversarial(radius=0.4, steps=7, warm_up=0.0)
    assert_is(
        objective, batch_of(labels=labels),
        lambda w, b: {"cross_entropy": cross_entropy(noisy @ w.T + b, labels)}, weights=weights, bias=bias,
    )  # fmt: skip


def test_adversarial_with_three_classes_knows_nothing_of_the_noise():
    points = climb(WEIGHTS, BIAS, INPUTS, np.zeros((1, 5, 3)), LABELS, step=2 * 0.8 / 5, steps=5, radius=0.8)
    noisy = points + drawn(1)[0]
    assert_is(
        Adversarial(radius=0.8, steps=5, warm_up=0.0),
        batch_of(),
        lambda w, b: {"cross_entropy": cross_entropy(noisy @ w.T + b)},
    )


@pytest.mark.parametrize("kind", [Adversarial, SmoothAdv])
@pytest.mark.parametrize(("progress", "share"), [(0.0, 0.0), (0.1, 0.25), (0.2, 0.5), (0.4, 1.0), (0.9, 1.0)])
def test_the_radius_of_an_attack_grows_over_the_warm_up(kind, progress, share):
    module = Watched(linear(WEIGHTS[:2], BIAS[:2]))
    labels = np.array([0, 1, 0, 1, 0])
    copies = 1 if kind is Adversarial else 4
    kind(radius=0.6, warm_up=0.4).terms(module, batch_of(labels=labels, progress=progress), seeded())
    moved = module.last(copies, 5)[0] - drawn(copies) - INPUTS
    lengths = np.linalg.norm(moved, axis=2)
    np.testing.assert_allclose(lengths, np.full((copies, 5), 0.6 * share), atol=1e-12)


# --- smoothadv --------------------------------------------------------------------------------------------------------


def smoothadv_by_hand(objective, points, noise):
    def by_hand(w, b):
        logits = (points + noise) @ w.T + b
        terms = {"cross_entropy": cross_entropy(logits)}
        if objective.consistency or objective.entropy:
            spread, entropy = disagreement_by_hand(logits)
            terms |= {"consistency": objective.consistency * spread, "entropy": objective.entropy * entropy}
        return terms

    return by_hand


@pytest.mark.parametrize("more", [{}, {"consistency": 5.0, "entropy": 0.5}], ids=["alone", "with consistency"])
@pytest.mark.parametrize("steps", [1, 4])
def test_smoothadv_by_hand(steps, more):
    objective = SmoothAdv(radius=0.7, steps=steps, noises=3, warm_up=0.0, **more)
    noise = drawn(3)
    points = climb(WEIGHTS, BIAS, INPUTS, noise, LABELS, step=2 * 0.7 / steps, steps=steps, radius=0.7)
    assert_is(objective, batch_of(), smoothadv_by_hand(objective, points, noise))


def test_smoothadv_with_two_classes_ends_on_the_ball_in_closed_form():
    module = Watched(linear(WEIGHTS[:2], BIAS[:2]))
    labels = np.array([0, 1, 0, 1, 0])
    SmoothAdv(radius=0.7, noises=3, warm_up=0.0).terms(module, batch_of(labels=labels), seeded())
    across = WEIGHTS[1 - labels] - WEIGHTS[labels]
    worst = INPUTS + 0.7 * across / np.linalg.norm(across, axis=1, keepdims=True)
    np.testing.assert_allclose(module.last(3, 5)[0], worst + drawn(3), rtol=1e-12)


@pytest.mark.parametrize("method", ["pgd", "ddn"])
def test_smoothadv_attacks_and_trains_with_the_same_noises(method):
    module = Watched(linear())
    SmoothAdv(radius=0.7, noises=3, method=method, warm_up=0.0).terms(module, batch_of(), seeded())
    noise = drawn(3)
    assert len(module.shown) > 4
    for shown in module.shown:
        points = shown.reshape(3, 5, 3).numpy() - noise
        np.testing.assert_allclose(points, np.broadcast_to(points[0], points.shape), atol=1e-12)
    assert not np.allclose(points[0], INPUTS)


@pytest.mark.parametrize("method", ["pgd", "ddn"])
@pytest.mark.parametrize("radius", [0.1, 0.7, 3.0])
def test_smoothadv_never_leaves_its_ball(method, radius):
    module = Watched(linear())
    SmoothAdv(radius=radius, noises=3, steps=8, method=method, warm_up=0.0).terms(module, batch_of(), seeded())
    points = module.last(3, 5)[0][0] - drawn(3)[0]
    assert np.linalg.norm(points - INPUTS, axis=1).max() <= radius * (1 + 1e-12)


def test_ddn_stays_closer_where_less_is_enough():
    """A misclassified point does not move. A correct one moves just across the boundary, within the ball."""
    lengths = {}
    for method in ("pgd", "ddn"):
        module = Watched(linear())
        SmoothAdv(radius=3.0, noises=3, steps=20, method=method, warm_up=0.0).terms(module, batch_of(), seeded())
        points = module.last(3, 5)[0][0] - drawn(3)[0]
        votes = softmax((points + drawn(3)) @ WEIGHTS.T + BIAS, axis=-1).mean(axis=0)
        assert (votes.argmax(axis=1) != LABELS).all()
        lengths[method] = np.linalg.norm(points - INPUTS, axis=1)
    np.testing.assert_allclose(lengths["pgd"], 3.0)
    np.testing.assert_allclose(lengths["ddn"][[1, 2, 3]], 0.0, atol=1e-12)
    assert (lengths["ddn"][[0, 4]] > 0.05).all()
    assert (lengths["ddn"] < 1.5).all()


def test_smoothadv_with_ddn_trains_at_the_points_it_found():
    noise, module = drawn(3), Watched(linear())
    objective = SmoothAdv(radius=0.5, noises=3, method="ddn", warm_up=0.0)
    objective.terms(module, batch_of(), seeded())
    points = module.last(3, 5)[0][0] - noise[0]
    assert_is(objective, batch_of(), smoothadv_by_hand(objective, points, noise))


@pytest.mark.parametrize("objective", [Adversarial(), SmoothAdv(), SmoothMix()], ids=lambda each: each.name)
def test_attacks_are_made_in_evaluation_mode_and_leave_batch_statistics_alone(objective):
    inner = torch.nn.Sequential(torch.nn.BatchNorm1d(3).double(), linear())
    module = Watched(inner)
    objective.terms(module, batch_of(progress=0.9), seeded())
    assert module.modes == [False] * (len(module.modes) - 1) + [True]
    assert len(module.modes) > 2
    assert module.training
    assert inner[0].training
    assert inner[0].num_batches_tracked.item() == 1
    assert all(parameter.grad is None for parameter in module.parameters())


# --- smoothmix --------------------------------------------------------------------------------------------------------


def shares_drawn(copies, shape=INPUTS.shape):
    """λ of every input: drawn after the noises."""
    generator = seeded()
    drawn(copies, 1.0, shape, generator)
    return 0.5 * torch.rand(shape[0], generator=generator, dtype=torch.float64).numpy()


def smoothmix_by_hand(objective, *, growth=1.0, flowing=False):
    """flowing: with a gradient through the target as well."""
    noise, share = drawn(objective.noises), shares_drawn(objective.noises)[:, None]
    near, left = INPUTS, objective.steps
    if objective.one_step:
        near, left = climb(WEIGHTS, BIAS, INPUTS, noise, LABELS, step=objective.step, steps=1), left - 1
    far = climb(WEIGHTS, BIAS, near, noise, LABELS, step=objective.step, steps=left)
    mixed = near + share * (far - near)

    def vote_at(w, b):
        return softmax((near + noise) @ w.T + b, axis=-1).mean(axis=0)

    def by_hand(w, b):
        vote = vote_at(w, b) if flowing else vote_at(WEIGHTS, BIAS)
        wanted = (1 - share) * vote + share / 3
        found = softmax((mixed + noise) @ w.T + b, axis=-1)
        divergence = np.array([stats.entropy(wanted, each, axis=1) for each in found])
        right = vote.argmax(axis=1) == LABELS
        return {
            "cross_entropy": cross_entropy((near + noise) @ w.T + b),
            "mixed": growth * objective.weight * (divergence * right).mean(),
        }

    return by_hand, vote_at(WEIGHTS, BIAS)


@pytest.mark.parametrize("one_step", [0, 1])
@pytest.mark.parametrize("steps", [1, 3])
def test_smoothmix_by_hand(one_step, steps):
    objective = SmoothMix(weight=4.0, steps=steps, step=0.5, noises=3, one_step=one_step, warm_up=0.0)
    by_hand, vote = smoothmix_by_hand(objective)
    right = vote.argmax(axis=1) == LABELS
    assert 0 < right.sum() < 5  # some inputs are masked, some are not
    assert_is(objective, batch_of(), by_hand)


def test_smoothmix_does_not_learn_from_the_vote_it_aims_at():
    objective = SmoothMix(weight=4.0, steps=3, step=0.5, noises=3, warm_up=0.0)
    held, _ = central_differences(lambda w, b: smoothmix_by_hand(objective)[0](w, b)["mixed"], WEIGHTS, BIAS)
    flowing = smoothmix_by_hand(objective, flowing=True)[0]
    other, _ = central_differences(lambda w, b: flowing(w, b)["mixed"], WEIGHTS, BIAS)
    assert np.abs(held - other).max() > 1e-2  # so the test by hand above can tell


def test_smoothmix_has_no_mixed_term_for_wrong_inputs():
    module = linear()
    batch = batch_of(INPUTS[[0, 1]], np.array([1, 0]), 0.1)
    terms = SmoothMix(warm_up=0.0).terms(module, batch, seeded())
    assert terms["mixed"].item() == 0.0
    assert gradient_of(terms["mixed"], module).abs().max() == 0.0


@pytest.mark.parametrize(("progress", "growth"), [(0.0, 0.0), (0.1, 0.2), (0.5, 1.0), (0.8, 1.0)])
def test_the_weight_of_smoothmix_grows_over_the_warm_up(progress, growth):
    objective = SmoothMix(weight=4.0, steps=2, step=0.5, noises=2, warm_up=0.5)
    by_hand, _ = smoothmix_by_hand(objective, growth=growth)
    terms = objective.terms(linear(), batch_of(progress=progress), seeded())
    for name, value in by_hand(WEIGHTS, BIAS).items():
        assert terms[name].item() == pytest.approx(value, rel=1e-9), name


def test_smoothmix_goes_at_most_half_way_by_a_share_of_its_own_for_every_input():
    """With two classes the way is straight, of length steps·step, so λ can be read off the point trained at."""
    rows = 4000
    inputs = np.random.default_rng(0).random((rows, 3))
    module = Watched(linear(WEIGHTS[:2], BIAS[:2]))
    objective = SmoothMix(steps=2, step=1.5, noises=1)
    objective.terms(module, batch_of(inputs, np.zeros(rows, dtype=np.int64), 0.2), seeded())
    near, mixed = module.last(1, rows)
    share = np.linalg.norm(mixed - near, axis=2)[0] / 3.0
    assert 0 <= share.min() < share.max() <= 0.5
    # A false alarm once in 10000 trials, were the seed not fixed.
    assert stats.kstest(share, stats.uniform(0, 0.5).cdf).pvalue > 1e-4


def test_smoothmix_is_finite_for_a_network_that_is_sure_and_a_share_of_zero(monkeypatch):
    """A vote of exactly 0, mixed with no share of the uniform one, adds 0·log 0 = 0."""
    monkeypatch.setattr(torch, "rand", lambda count, **_: torch.zeros(count))
    module = linear(1e4 * WEIGHTS, BIAS).float()
    batch = Batch(torch.from_numpy(INPUTS).float(), torch.from_numpy(LABELS), 0.1)
    terms = SmoothMix(warm_up=0.0).terms(module, batch, seeded())
    sum(terms.values()).backward()
    assert torch.isfinite(terms["mixed"])
    assert torch.isfinite(module.weight.grad).all()


# --- cat-rs -----------------------------------------------------------------------------------------------------------


def climb_from_copies(weights, bias, starts, wanted, *, radius, steps):
    """Ascent on KL(wanted ‖ softmax) from every noisy copy, written for a linear network: ∇ₓ = Wᵀ(softmax - wanted).

    starts: (m, B, d). wanted: (B, classes).
    """
    points, step = starts.copy(), 2 * radius / steps
    for _ in range(steps):
        gradient = (softmax(points @ weights.T + bias, axis=-1) - wanted) @ weights
        moved = points - starts + step * gradient / np.linalg.norm(gradient, axis=-1, keepdims=True)
        length = np.linalg.norm(moved, axis=-1, keepdims=True)
        points = starts + moved * np.minimum(1.0, radius / length)
    return points


def cat_rs_by_hand(objective, sigma=SIGMAS):
    """The terms as a function of the weights, and the number of copies of each input that are kept."""
    generator, copies = seeded(), objective.noises
    noisy = INPUTS + drawn(copies, sigma, generator=generator)
    at = noisy @ WEIGHTS.T + BIAS
    uniform = torch.rand(copies, len(LABELS), generator=generator, dtype=torch.float64).numpy()
    kept = np.maximum((uniform < (at.argmax(axis=2) == LABELS).mean(axis=0)).sum(axis=0), 1)
    sure = kept == copies
    wanted = softmax(at, axis=-1).mean(axis=0)[sure]
    worst = climb_from_copies(WEIGHTS, BIAS, noisy[:, sure], wanted, radius=objective.radius, steps=objective.steps)

    def by_hand(w, b):
        scores = log_softmax(noisy @ w.T + b, axis=-1)
        losses = np.sort(-scores[:, np.arange(len(LABELS)), LABELS], axis=0)
        easiest = sum(losses[:k, row].sum() for row, k in enumerate(kept)) / losses.size
        logs = log_softmax(worst @ w.T + b, axis=-1)
        divergence = (wanted * (np.log(wanted) - logs)).sum(axis=-1).max(axis=0)
        return {"easiest": easiest, "worst": objective.weight * divergence.sum() / len(LABELS)}

    return by_hand, kept


def test_cat_rs_by_hand():
    """Some inputs keep all copies, some a part of them, and one only the least."""
    objective = ConfidenceAware(weight=3.0, radius=0.5, steps=3, noises=4, warm_up=0.0)
    by_hand, kept = cat_rs_by_hand(objective)
    assert set(kept) >= {1, 4}
    assert by_hand(WEIGHTS, BIAS)["worst"] > 0.01
    assert_is(objective, batch_of(), by_hand)


def test_cat_rs_keeps_one_copy_of_an_input_that_is_always_wrong():
    labels = np.argmin(INPUTS @ WEIGHTS.T + BIAS, axis=1)
    terms = ConfidenceAware(noises=4, warm_up=0.0).terms(linear(), batch_of(labels=labels, sigma=1e-9), seeded())
    assert terms["worst"].item() == 0.0
    own = cross_entropy(INPUTS @ WEIGHTS.T + BIAS, labels)
    assert terms["easiest"].item() == pytest.approx(own / 4, rel=1e-6)


def test_cat_rs_of_an_input_that_is_always_right_is_cross_entropy_and_the_worst_point():
    labels = np.argmax(INPUTS @ WEIGHTS.T + BIAS, axis=1)
    at_once = ConfidenceAware(radius=0.0, warm_up=0.0).terms(
        linear(), batch_of(labels=labels, sigma=1e-9), seeded()
    )  # fmt: skip
    assert at_once["easiest"].item() == pytest.approx(cross_entropy(INPUTS @ WEIGHTS.T + BIAS, labels), rel=1e-6)
    assert abs(at_once["worst"].item()) < 1e-9  # nothing is lost at the copies themselves
    far = ConfidenceAware(radius=1.0, warm_up=0.0).terms(linear(), batch_of(labels=labels, sigma=1e-9), seeded())
    assert far["worst"].item() > 0.05
    early = ConfidenceAware(radius=1.0, warm_up=0.5).terms(linear(), batch_of(labels=labels, sigma=1e-9), seeded())
    assert abs(early["worst"].item()) < 1e-9


def test_cat_rs_searches_within_its_radius_in_evaluation_mode():
    module = Watched(linear())
    objective = ConfidenceAware(radius=0.3, steps=5, noises=3, warm_up=0.0)
    labels = np.argmax(INPUTS @ WEIGHTS.T + BIAS, axis=1)
    objective.terms(module, batch_of(labels=labels, sigma=1e-6), seeded())
    copies = INPUTS + drawn(3, 1e-6)
    lengths = np.linalg.norm(module.last(3, 5)[0] - copies, axis=-1)
    assert lengths.max() <= 0.3 * (1 + 1e-9)
    assert lengths.max() > 0.29
    assert module.modes == [True] + [False] * 5 + [True]


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OBJECTIVES)
def test_images_and_single_precision_give_finite_scalars_and_the_draws_decide(name):
    images = torch.rand(6, 1, 4, 4, generator=seeded())
    labels = torch.arange(6) % 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16, 3)
        )
        before = torch.get_rng_state()
        batch = Batch(images, labels, torch.linspace(0.1, 0.6, 6), progress=0.5)
        first, again = (parse_objective(name).terms(module, batch, seeded()) for _ in range(2))
        other = parse_objective(name).terms(module, batch, torch.Generator().manual_seed(SEED + 1))
        assert torch.equal(torch.get_rng_state(), before)
    assert all(value.shape == () and torch.isfinite(value) for value in first.values())
    assert {key: value.item() for key, value in first.items()} == {key: value.item() for key, value in again.items()}
    assert sum(first.values()).item() != sum(other.values()).item()
    assert torch.equal(images, torch.rand(6, 1, 4, 4, generator=seeded()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("consistency:noises=1", "noises of consistency is 1: expected a whole number, at least 2"),
        ("consistency:weight=-1", "weight of consistency is -1.0: expected a finite number, at least 0"),
        ("consistency:entropy=nan", "entropy of consistency is nan: expected a finite number"),
        ("macer:noises=1", "noises of macer is 1: expected a whole number, at least 2"),
        ("macer:beta=0", "beta of macer is 0.0: expected a finite number, at least 0.001"),
        ("macer:margin=inf", "margin of macer is inf: expected a finite number"),
        ("stability:weight=-2", "weight of stability is -2.0: expected a finite number, at least 0"),
        ("adversarial:steps=0", "steps of adversarial is 0: expected a whole number, at least 1"),
        ("adversarial:radius=-1", "radius of adversarial is -1.0: expected a finite number, at least 0"),
        ("adversarial:warm_up=2", "warm_up of adversarial is 2.0: expected a finite number, between 0 and 1"),
        ("smoothadv:method=fgsm", "method of smoothadv is 'fgsm': expected pgd or ddn"),
        ("smoothadv:noises=0", "noises of smoothadv is 0: expected a whole number, at least 1"),
        ("smoothmix:one_step=2", "one_step of smoothmix is 2: expected a whole number, between 0 and 1"),
        ("smoothmix:step=-1", "step of smoothmix is -1.0: expected a finite number, at least 0"),
        ("gaussian:sigma=1", "'sigma' is unknown; gaussian takes no settings"),
        ("smoothmax", "there is no objective 'smoothmax'; choose adversarial, augmentation"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_sentence(text, message):
    with pytest.raises(InputError) as refusal:
        parse_objective(text)
    assert message in str(refusal.value)


def test_objectives_by_their_words():
    assert set(OBJECTIVES) == {
        "augmentation", "adversarial", "smoothadv", "macer", "stability", "consistency", "smoothmix",
        "exclusion", "cat-rs",
    }  # fmt: skip
    assert parse_objective("gaussian") == NoiseAugmentation() == parse_objective("augmentation")
    assert parse_objective("smoothadv:radius=2,method=ddn") == SmoothAdv(radius=2.0, method="ddn")
    assert collect_facts(Consistency(weight=5)) == {
        "name": "consistency", "weight": 5.0, "entropy": 0.5, "noises": 2,
    }  # fmt: skip


RADII = np.array([[0.5, 0.2, 0.0], [0.1, 0.4, 0.39], [0.6, 0.0, 0.6], [0.0, 0.3, 0.9], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("sigma", [0.3, SIGMAS])
def test_exclusion_by_hand(sigma):
    objective = Exclusion(weight=2.0, margin=1.5, beta=1.5, noises=3, consistency=0.5, cross_entropy=0.2)
    terms = objective.terms(linear(), batch_of(sigma=sigma, radii=torch.from_numpy(RADII)), seeded())
    levels = np.broadcast_to(sigma, len(INPUTS))
    logits = (INPUTS + drawn(3, sigma)) @ WEIGHTS.T + BIAS
    shares = softmax(1.5 * logits, axis=2).mean(axis=0)
    missing = np.zeros(len(INPUTS))
    for row, leading in enumerate(shares.argmax(axis=1)):
        reach = RADII[row, leading]
        for level in {0, 1, 2} - {leading}:
            excluded = levels[row] / 2 * (ndtri(shares[row, leading]) - ndtri(shares[row, level]))
            worse = max(0.0, 1 - RADII[row, level] / reach) if reach > 0 else 0.0
            missing[row] = max(missing[row], worse * (min(reach, 1.5 * levels[row]) - excluded))
    worth = (softmax(logits, axis=2).mean(axis=0) * RADII).sum(axis=1)
    cross_entropy = -log_softmax(logits, axis=2)[:, np.arange(len(LABELS)), LABELS].mean()
    assert terms["choice"].item() == pytest.approx((RADII.max(axis=1) - worth).mean())
    assert terms["exclusion"].item() == pytest.approx(2.0 * missing.mean(), rel=1e-5)
    assert terms["exclusion"].item() > 0
    assert terms["cross_entropy"].item() == pytest.approx(0.2 * cross_entropy)
    weight = Consistency(weight=0.5, noises=3).terms(linear(), batch_of(sigma=sigma), seeded())["consistency"]
    assert terms["consistency"].item() == pytest.approx(weight.item())


def test_exclusion_leaves_levels_alone_that_are_as_good_or_far_out():
    """Where every level gives the same radius, and where the leading level reaches nowhere, nothing is missing."""
    alike = batch_of(radii=torch.full((5, 3), 0.4, dtype=torch.float64))
    nowhere = batch_of(radii=torch.zeros(5, 3, dtype=torch.float64))
    for batch in (alike, nowhere):
        assert Exclusion().terms(linear(), batch, seeded())["exclusion"].item() == 0.0
    sure = linear(60 * WEIGHTS, np.array([100.0, 0.0, 0.0]))
    batch = batch_of(sigma=0.3, radii=torch.tensor([[0.5, 0.2, 0.0]], dtype=torch.float64).expand(5, 3))
    terms = Exclusion().terms(sure, batch, seeded())
    assert terms["exclusion"].item() == 0.0
    assert terms["choice"].item() == pytest.approx(0.0, abs=1e-6)


def test_exclusion_without_radii_values_the_right_class_alone():
    margin = 2.0
    reach = np.zeros((5, 3))
    reach[np.arange(5), LABELS] = margin * SIGMAS
    objective = Exclusion(margin=margin)
    given, bare = (
        objective.terms(linear(), batch_of(radii=radii), seeded()) for radii in (torch.from_numpy(reach), None)
    )
    for name in given:
        assert given[name].item() == pytest.approx(bare[name].item())


def test_exclusion_prefers_what_is_worth_more():
    """One input in three loses little by the level that the others gain much by: it is chosen for all."""
    inputs = np.zeros((3, 3))
    radii = torch.tensor([[0.3, 0.1, 0.0], [0.1, 1.5, 0.0], [0.3, 0.1, 0.0]], dtype=torch.float64)
    module = linear(np.zeros((3, 3)), np.zeros(3))
    optimiser = torch.optim.SGD([module.bias], lr=0.5)
    batch = batch_of(inputs=inputs, labels=radii.argmax(dim=1).numpy(), sigma=0.3, radii=radii)
    for _ in range(100):
        optimiser.zero_grad()
        sum(Exclusion(weight=0.25, cross_entropy=0.0).terms(module, batch, seeded()).values()).backward()
        optimiser.step()
    assert module.bias.argmax().item() == 1


def test_macer_is_for_gaussian_noise_only():
    with pytest.raises(InputError, match="the objective macer supports gaussian noise, not uniform"):
        TrainingConfig(arch="mlp", sigma=0.5, noise=Noise.UNIFORM, objective=Macer(), seed=0)


def test_logarithms_agree_with_each_other():
    """The mean softmax of many confident copies keeps its precision for small scores."""
    from smoothcert.training.noisy_inputs import mean_log_softmax

    logits = np.random.default_rng(0).normal(size=(5, 4, 3)) * 50
    by_hand = logsumexp(log_softmax(logits, axis=2), axis=0) - np.log(5)
    np.testing.assert_allclose(mean_log_softmax(torch.from_numpy(logits)), by_hand, rtol=1e-12)


def test_an_objective_is_one_file(tmp_path, monkeypatch):
    """A module that is added to the package is found without registration."""
    source = Path(objectives.__path__[0]) / "stability.py"
    text = source.read_text().replace('"stability"', '"steadiness"')
    (tmp_path / "steadiness.py").write_text(text)
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    found = objectives._find_objectives()
    assert set(found) == {*OBJECTIVES, "steadiness"}
    assert found["steadiness"]().weight == 2.0
    sys.modules.pop("smoothcert.training.objectives.steadiness")
