"""σ optimised for each input: known optima, the class at the start, bounds, cost, purity."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from sample_models import darkness, logistic_digits
from smoothcert.errors import InputError
from smoothcert.models import as_classifier
from smoothcert.models.votes import votes_from_logits
from smoothcert.noise import unit_noise
from smoothcert.records import Noise, Stage, StreamId
from smoothcert.sigma import (
    Ascent,
    GridSearch,
    OptimisedSigma,
    SigmaRule,
    SignSearch,
    parse_search,
)
from smoothcert.sigma.search_problem import estimate_radii

SEARCHES = [Ascent(), GridSearch(), SignSearch()]
BY_NAME = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.name)
PATIENT = pytest.mark.parametrize(
    "search",
    [Ascent(steps=100, noises=100), GridSearch(noises=1000), SignSearch(starts=24, noises=1000)],
    ids=lambda one: one.name,
)


def bump(batch: np.ndarray) -> np.ndarray:
    """Logits whose softmax gives class 0 the score exp(-x²/2), in one dimension."""
    exponent = np.minimum(-0.5 * batch.reshape(len(batch)).astype(np.float64) ** 2, -1e-12)
    return np.stack([exponent, np.log(-np.expm1(exponent))], axis=1)


def unit_ball(batch: np.ndarray) -> np.ndarray:
    """Class 1 in the unit ball, 0 outside: the counter-example of Súkeník et al., with scores close to 0 and 1."""
    inside = (batch.reshape(len(batch), -1) ** 2).sum(axis=1) <= 1.0
    return np.where(inside[:, np.newaxis], [-50.0, 50.0], [50.0, -50.0])


BUMP = as_classifier(bump, input_shape=(1,))
BALL = as_classifier(unit_ball, input_shape=(2,))
ORIGIN = np.zeros((1, 1), dtype=np.float32)


class Watched:
    """A classifier of 2 classes that counts the rows it sees, by the whole number nearest the first coordinate."""

    num_classes = 2
    input_shape = (3,)
    digest = "watched"
    description = "a watched classifier"
    concurrency = 1
    gives_scores = True

    def __init__(self, backend: str = "watched") -> None:
        self.backend = backend
        self.seen: dict[int, int] = {}
        self.largest = 0

    def votes_and_scores(self, batch, /):
        self.largest = max(self.largest, len(batch))
        for number in np.rint(batch[:, 0] / 100.0).astype(int).tolist():
            self.seen[number] = self.seen.get(number, 0) + 1
        first = 1.0 / (1.0 + np.exp(batch[:, 1].astype(np.float64) - 1.0))
        scores = np.stack([first, 1.0 - first], axis=1)
        return votes_from_logits(scores), scores

    def classify(self, batch, /):
        return self.votes_and_scores(batch)[0]

    def prepare_thread(self) -> None: ...

    def release_threads(self) -> None: ...


def seeded_stream(x: np.ndarray, *, noise: Noise, seed: int = 0) -> StreamId:
    digest = hashlib.sha256(f"search {seed} {noise}\0".encode() + x.astype(np.float32).tobytes()).digest()
    return StreamId(seed=int.from_bytes(digest[:8], "little"), index=0, stage=Stage.SEARCH)


# The radii that are estimated.


def test_all_other_classes_are_one_opponent_or_only_the_strongest_counts():
    scores, sigmas = np.array([[[0.4, 0.3, 0.3]]]), np.array([[2.0]])
    for noise, expected in ((Noise.GAUSSIAN, 2.0 * ndtri(0.4)), (Noise.UNIFORM, 2.0 * (0.4 - 0.6))):
        alone = estimate_radii(scores, np.array([0]), sigmas, noise=noise, clamp=0.001, two_class=False)
        assert alone == pytest.approx(expected)
        strongest = estimate_radii(scores, np.array([0]), sigmas, noise=noise, clamp=0.001, two_class=True)
        assert strongest > 0 > alone


def test_the_radius_that_is_maximised_is_that_of_the_certificate():
    """Far out the noise is spread over three classes: A leads each of them with less than half of the scores."""

    def spread(batch):
        away = np.linalg.norm(batch, axis=1) > 3.0
        others = np.stack([away, away, away], axis=1) * np.array([0.29, 0.29, 0.02])
        return np.log(np.column_stack((1.0 - others.sum(axis=1), others + 1e-12)))

    classifier = as_classifier(spread, num_classes=4, input_shape=(2,))
    start = np.zeros((1, 2), dtype=np.float32)
    found = {
        two_class: OptimisedSigma(1.0, search=GridSearch(points=9), most=64.0, two_class=two_class)
        .for_model(classifier)
        .search(start)
        for two_class in (False, True)
    }
    assert found[True].sigmas[0] == pytest.approx(64.0)  # .4 against .29, however large sigma is
    assert found[False].sigmas[0] < 3.0  # .4 against .6 would be lost


def test_a_search_may_be_given_as_text():
    assert OptimisedSigma(0.25, search="grid:points=9").search == GridSearch(points=9)
    with pytest.raises(InputError, match="no search for sigma"):
        OptimisedSigma(0.25, search=7)


def test_estimated_radii_in_closed_form():
    scores = np.array([[[0.9, 0.06, 0.04], [0.2, 0.5, 0.3]]])
    sigmas = np.array([[0.25, 2.0]])
    gaussian = estimate_radii(scores, np.array([0]), sigmas, noise=Noise.GAUSSIAN, clamp=0.001, two_class=True)
    assert gaussian[0] == pytest.approx([0.125 * (ndtri(0.9) - ndtri(0.06)), 1.0 * (ndtri(0.2) - ndtri(0.5))])
    uniform = estimate_radii(scores, np.array([1]), sigmas, noise=Noise.UNIFORM, clamp=0.001, two_class=True)
    assert uniform[0] == pytest.approx([0.25 * (0.06 - 0.9), 2.0 * (0.5 - 0.3)])


def test_the_clamp_bounds_both_mean_scores():
    scores = np.array([[[1.0, 0.0]]])
    radii = estimate_radii(scores, np.array([0]), np.array([[0.5]]), noise=Noise.GAUSSIAN, clamp=0.02, two_class=True)
    assert radii[0, 0] == pytest.approx(0.5 * ndtri(0.98))


# Known optima.


def gaussian_bump_radius(sigma: float) -> float:
    """E exp(-(σz)²/2) = 1/sqrt(1+σ²)."""
    return sigma * float(ndtri(1.0 / math.sqrt(1.0 + sigma**2)))


@PATIENT
def test_gaussian_optimum_of_a_bump(search):
    best = minimize_scalar(lambda sigma: -gaussian_bump_radius(sigma), bounds=(0.1, 1.5), method="bounded").x
    assert best == pytest.approx(0.636, abs=0.01)
    rule = OptimisedSigma(start=0.35, search=search).for_model(BUMP)
    found = rule.search(ORIGIN)
    assert found.labels[0] == 0
    # The radius is flat near its maximum, so it is compared instead of σ.
    assert gaussian_bump_radius(float(found.sigmas[0])) >= 0.97 * gaussian_bump_radius(best)
    assert gaussian_bump_radius(0.35) < 0.9 * gaussian_bump_radius(best)


def test_a_patient_ascent_comes_near_the_optimum():
    rule = OptimisedSigma(start=0.35, search=Ascent(steps=400, noises=400)).for_model(BUMP)
    assert rule.sigmas(ORIGIN)[0] == pytest.approx(0.636, abs=0.05)


@PATIENT
def test_uniform_optimum_of_a_bump(search):
    """λ(E_A - E_B) = 2 sqrt(2π) (Φ(λ) - ½) - λ is largest where 2 exp(-λ²/2) = 1."""
    best = math.sqrt(2.0 * math.log(2.0))

    def radius(width: float) -> float:
        return 2.0 * math.sqrt(2.0 * math.pi) * (float(ndtr(width)) - 0.5) - width

    rule = OptimisedSigma(start=0.5, search=search, noise=Noise.UNIFORM).for_model(BUMP)
    width = float(rule.sigmas(ORIGIN)[0])
    assert radius(width) >= 0.97 * radius(best)
    assert radius(0.5) < 0.8 * radius(best)


def test_the_clamp_decides_for_hard_votes():
    """At the centre of the unit ball E_A = 1 - exp(-1/(2σ²)); it meets 1 - clamp at the optimum 1/sqrt(-2 ln clamp)."""
    for clamp in (0.02, 0.1):
        search = GridSearch(points=150, noises=2000, clamp=clamp)
        rule = OptimisedSigma(start=0.25, search=search).for_model(BALL)
        expected = 1.0 / math.sqrt(-2.0 * math.log(clamp))
        assert rule.sigmas(np.zeros((1, 2), dtype=np.float32))[0] == pytest.approx(expected, rel=0.08)


# The counter-example: two promises that contradict each other.


@BY_NAME
def test_the_unit_ball_counter_example(search):
    """Far outside, σ grows to its bound, and the region contains the centre, which has another class."""
    settings = OptimisedSigma(start=0.25, search=search, most=100.0)
    if isinstance(search, Ascent):
        settings = OptimisedSigma(start=0.25, search=Ascent(steps=400, step=0.1), most=100.0)
    if isinstance(search, SignSearch):
        settings = OptimisedSigma(start=25.0, search=search)
    outside = settings.for_model(BALL).search(np.array([[50.0, 0.0]], dtype=np.float32))
    inside = OptimisedSigma(start=0.25, search=search).for_model(BALL).search(np.zeros((1, 2), dtype=np.float32))
    assert outside.labels[0] == 0
    assert outside.radii[0] > 50.0
    if not isinstance(search, SignSearch):
        assert outside.sigmas[0] == pytest.approx(100.0)
    assert inside.labels[0] == 1
    assert inside.sigmas[0] <= 0.5


# The ascent.


def small_network():
    import torch

    torch.manual_seed(3)
    network = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.Tanh(), torch.nn.Linear(24, 4))
    with torch.no_grad():
        network[-1].weight *= 12.0  # as confident as a trained network
    return network


@pytest.mark.parametrize("two_class", [False, True])
@pytest.mark.parametrize("noise", [noise for noise in Noise if noise.sampled])
def test_the_slope_is_that_of_automatic_differentiation(noise, two_class):
    torch = pytest.importorskip("torch")
    network = small_network()
    classifier = as_classifier(network, input_shape=(6,), device="cpu")
    inputs = np.random.default_rng(5).normal(size=(8, 6)).astype(np.float32)
    start, step, noises, selection = 0.4, 1e-3, 25, 16
    search = Ascent(steps=1, noises=noises, step=step, clamp=1e-6, check=0)
    settings = OptimisedSigma(start=start, search=search, noise=noise, selection=selection, two_class=two_class)
    found = settings.for_model(classifier).search(inputs)
    slopes = (found.sigmas - start) / step

    quantile = torch.distributions.Normal(0.0, 1.0).icdf
    exact_radius = {
        Noise.GAUSSIAN: lambda own, other: (quantile(own) - quantile(other)) / 2,
        Noise.UNIFORM: lambda own, other: own - other,
    }
    exact = network.double()
    for x, label, slope in zip(inputs, found.labels, slopes, strict=True):
        draws = unit_noise(noise, seeded_stream(x, noise=noise), start=selection, count=noises, size=6)
        sigma = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        noisy = torch.from_numpy(x.astype(np.float64)) + sigma * torch.from_numpy(draws.astype(np.float64))
        means = torch.softmax(exact(noisy), dim=1).mean(dim=0)
        others = means[torch.arange(4) != int(label)]
        own, other = means[label], others.max() if two_class else others.sum()
        (expected,) = torch.autograd.grad(sigma * exact_radius[noise](own, other), sigma)
        assert slope == pytest.approx(float(expected), abs=2e-4)


def test_beyond_the_clamp_only_the_level_itself_pulls():
    search = Ascent(steps=1, noises=4, step=1e-3, clamp=0.02, check=0)
    found = OptimisedSigma(start=0.25, search=search).for_model(BALL).sigmas(np.array([[50.0, 0.0]], dtype=np.float32))
    assert found[0] == pytest.approx(0.25 + 1e-3 * ndtri(0.98), rel=1e-9)


def test_a_misled_ascent_falls_back_to_the_start():
    """Steps of 10 move σ to one of its bounds; the check finds that the start was better."""
    rule = OptimisedSigma(start=0.636, search=Ascent(steps=3, step=10.0, check=2000)).for_model(BUMP)
    assert rule.sigmas(ORIGIN)[0] == 0.636
    unchecked = OptimisedSigma(start=0.636, search=Ascent(steps=3, step=10.0, check=0)).for_model(BUMP)
    assert unchecked.sigmas(ORIGIN)[0] in (0.636 / 4, 0.636 * 4)


def test_the_paper_has_no_check():
    search = parse_search("ascent:steps=30,noises=1,step=1e-4,clamp=0.02,check=0")
    found = OptimisedSigma(start=0.25, search=search, selection=10).for_model(BALL).search(np.ones((1, 2), np.float32))
    assert found.evaluations[0] == 10 + 30 * 2


# Range, class, cost.


@BY_NAME
def test_bounds_and_labels(search):
    classifier = Watched()
    inputs = np.array([[0.0, level, 0.0] for level in (-30.0, -1.0, 0.9, 1.1, 3.0, 40.0)], dtype=np.float32)
    rule = OptimisedSigma(start=0.3, search=search, least=0.28, most=0.33).for_model(classifier)
    found = rule.search(inputs)
    assert ((found.sigmas >= 0.28) & (found.sigmas <= 0.33)).all()
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    # Far from the other class σ grows to its bound.
    assert (found.sigmas[[0, 5]] > 0.315).all()


@pytest.mark.parametrize("backend", ["watched", "torch cpu frozen"])
@pytest.mark.parametrize(
    ("search", "cost"),
    [
        (Ascent(steps=7, noises=5, check=11), 13 + 7 * 5 * 2 + 22),
        (Ascent(steps=7, noises=5, check=0), 13 + 7 * 5 * 2),
        (GridSearch(points=17, noises=6, check=9), 13 + 17 * 6 + 18),
        (SignSearch(starts=4, noises=3, moves=5, check=2), None),
    ],
    ids=str,
)
def test_every_evaluation_is_counted(search, cost, backend):
    classifier = Watched(backend)
    inputs = np.array([[100.0 * i, 0.1 * i, 0.0] for i in range(9)], dtype=np.float32)
    rule = OptimisedSigma(start=0.25, search=search, selection=13).for_model(classifier, most_rows=40)
    found = rule.search(inputs)
    assert classifier.seen == dict(enumerate(found.evaluations.tolist()))
    assert classifier.largest <= 40
    assert rule.evaluations_spent == found.evaluations.sum()
    rule.sigmas(inputs[:2])
    assert rule.evaluations_spent == sum(classifier.seen.values())
    if cost is not None:
        assert set(found.evaluations) == {cost}
    else:
        least, most = 13 + 4 * 3 + 4, 13 + 4 * 3 * 6 + 4
        assert ((found.evaluations >= least) & (found.evaluations <= most)).all()
        assert len(set(found.evaluations)) > 1


# A pure function of the input, the settings and the model.


def lenet_like():
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 6, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(54, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10),
    )  # fmt: skip


def perceptron():
    import torch

    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10))


@BY_NAME
@pytest.mark.parametrize("model", [lenet_like, perceptron, logistic_digits])
def test_an_input_gets_the_same_sigma_in_any_company(model, search):
    classifier = as_classifier(model(), input_shape=(1, 8, 8), device="cpu")
    inputs = np.random.default_rng(0).random((7, 1, 8, 8)).astype(np.float32)
    # The networks are not trained: no class has half of the scores, so only the two-class radius is positive.
    settings = OptimisedSigma(start=0.25, search=search, two_class=True)
    whole = settings.for_model(classifier).search(inputs)
    alone = [settings.for_model(classifier).search(x[np.newaxis]) for x in inputs]
    turned = settings.for_model(classifier).search(inputs[::-1])
    for name in ("sigmas", "labels", "radii", "evaluations"):
        assert np.array_equal(getattr(whole, name), np.concatenate([getattr(one, name) for one in alone]))
        assert np.array_equal(getattr(whole, name), getattr(turned, name)[::-1])
    if model is not logistic_digits:
        few = settings.for_model(classifier, most_rows=48).search(inputs)
        assert np.array_equal(whole.sigmas, few.sigmas)
    assert len(set(whole.sigmas)) > 1


def test_many_inputs_are_searched_in_groups():
    classifier = Watched()
    inputs = np.random.default_rng(1).normal(size=(300, 3)).astype(np.float32)
    settings = OptimisedSigma(start=0.25, search=GridSearch(points=3, noises=2, check=0), selection=1)
    whole = settings.for_model(classifier).sigmas(inputs)
    assert np.array_equal(whole[250:], settings.for_model(classifier).sigmas(inputs[250:]))
    assert settings.for_model(classifier).sigmas(inputs[:0]).shape == (0,)


def test_seed_and_noise_change_the_draws():
    x = np.full((1, 1), 0.3, dtype=np.float32)
    search = GridSearch(points=200, noises=4, check=0)
    settings = [
        OptimisedSigma(start=0.3, search=search),
        OptimisedSigma(start=0.3, search=search, seed=1),
        OptimisedSigma(start=0.3, search=search, noise=Noise.UNIFORM),
    ]
    radii = {float(each.for_model(BUMP).search(x).radii[0]) for each in settings}
    assert len(radii) == 3
    digests = {each.for_model(BUMP).digest for each in settings}
    assert len(digests | {settings[0].for_model(BALL).digest}) == 4
    assert settings[0].for_model(BUMP).digest == settings[0].for_model(BUMP).digest


def test_it_is_a_rule_without_an_envelope():
    rule = OptimisedSigma(start=0.25).for_model(BUMP)
    assert isinstance(rule, SigmaRule)
    assert rule.envelope is None
    assert "0.25" in rule.description
    document = rule.to_json()
    assert document["kind"] == "optimised"
    assert parse_search(document["search"]) == rule.settings.search
    assert (document["least"], document["most"]) == (0.0625, 1.0)


# Models that give votes only.


def test_votes_alone_serve_grid_and_signs():
    classifier = as_classifier(darkness, num_classes=2, input_shape=(4,))
    inputs = np.array([[0.1] * 4, [0.8] * 4], dtype=np.float32)
    with pytest.raises(InputError, match="grid or signs"):
        OptimisedSigma(start=0.2).for_model(classifier)
    for search in (GridSearch(), SignSearch()):
        found = OptimisedSigma(start=0.2, search=search).for_model(classifier).search(inputs)
        assert found.labels.tolist() == [1, 0]
        assert (found.radii > 0).all()


def test_invalid_answers_count_for_no_class():
    def broken_beyond_one(batch):
        logits = np.tile([3.0, 0.0, 0.0], (len(batch), 1))
        logits[np.abs(batch[:, 0]) > 1.0] = np.nan
        return logits

    classifier = as_classifier(broken_beyond_one, input_shape=(1,))
    rule = OptimisedSigma(start=0.3, search=GridSearch(points=65, noises=500)).for_model(classifier)
    assert 0.3 <= rule.sigmas(ORIGIN)[0] < 0.8


# Settings as text.


@given(
    st.one_of(
        st.builds(
            Ascent,
            steps=st.integers(1, 10**6),
            noises=st.integers(1, 10**6),
            step=st.none() | st.floats(1e-9, 1e3),
            clamp=st.floats(1e-9, 0.49),
            check=st.integers(0, 10**6),
        ),
        st.builds(GridSearch, points=st.integers(2, 10**6), noises=st.integers(1, 10**6), clamp=st.floats(1e-9, 0.49)),
        st.builds(SignSearch, starts=st.integers(1, 99), moves=st.integers(1, 99), check=st.integers(0, 10**6)),
    )
)
def test_str_is_read_back(search):
    assert parse_search(str(search)) == search


def test_names_alone_are_the_defaults():
    assert [parse_search(name) for name in ("ascent", "grid", " signs: ")] == SEARCHES
    assert parse_search("grid: points = 200, noises=1") == GridSearch(points=200, noises=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("newton", "choose ascent, grid, signs"),
        ("", "choose ascent, grid, signs"),
        ("grid:steps=3", "grid takes points, noises, clamp, check"),
        ("ascent:steps=3,steps=4", "given twice"),
        ("ascent:steps", "whole number"),
        ("ascent:steps=2.5", "whole number"),
        ("ascent:steps=0", "at least 1"),
        ("ascent:step=fast", "a number"),
        ("ascent:step=-1", "positive"),
        ("ascent:step=nan", "positive"),
        ("ascent:clamp=0.5", "between 0 and 0.5"),
        ("ascent:clamp=nan", "between 0 and 0.5"),
        ("grid:points=1", "at least 2"),
        ("signs:check=-1", "at least 0"),
    ],
)
def test_what_cannot_be_read(text, message):
    with pytest.raises(InputError, match=message):
        parse_search(text)


@pytest.mark.parametrize(
    "settings",
    [
        {"start": 0.0},
        {"start": math.nan},
        {"start": 0.25, "least": 0.3},
        {"start": 0.25, "most": 0.2},
        {"start": 0.25, "least": -1.0},
        {"start": 0.25, "seed": -1},
        {"start": 0.25, "selection": 0},
    ],
    ids=str,
)
def test_settings_that_are_refused(settings):
    with pytest.raises(InputError):
        OptimisedSigma(**settings)
