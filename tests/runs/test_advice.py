"""The logic of `smoothcert advise`: levels, budgets, times, limits and commands, without a model."""

import dataclasses
import shlex

import numpy as np
import pytest
from scipy.stats import norm

from smoothcert.errors import InputError
from smoothcert.records import Noise, Smoothing
from smoothcert.runs.advice import (
    LevelVotes,
    Plan,
    Situation,
    Speed,
    Wishes,
    choose_level,
    estimate_samples,
    find_largest_radius,
    format_seconds,
    make_plan,
    parse_seconds,
    time_plan,
    write_command,
)
from smoothcert.runs.alternatives import advise

SPEED = Speed(samples_per_second=10_000.0, check_seconds=0.0005, loading_seconds=1.0, batch=128, workers=2)


def make_votes(sigma: float, *, share: float, right: float = 1.0, inputs: int = 20, votes: int = 100) -> LevelVotes:
    are_right = tuple(k < round(right * inputs) for k in range(inputs))
    return LevelVotes(sigma=sigma, votes=votes, hits=(round(share * votes),) * inputs, right=are_right)


VOTES = (make_votes(0.25, share=0.99, right=0.95), make_votes(0.5, share=0.9, right=0.95), make_votes(1.0, share=0.4))


def make_situation(**changes) -> Situation:
    noise = changes.get("noise", Noise.GAUSSIAN)
    settings = {
        "model": "net", "backend": "torch", "num_classes": 10, "input_shape": (1, 28, 28), "data": "images",
        "size": 10_000, "is_labelled": True, "grid": None, "why_float": "no grid", "noise": noise,
        "smoothing": Smoothing(dimension=784, num_classes=10, noise=noise), "clean_accuracy": 0.97, "votes": VOTES,
        "speed": SPEED, "cost_of_pairs": 1.0, "cost_of_gradients": 1.5,
    }  # fmt: skip
    return Situation(**{**settings, **changes})


def make_wishes(**changes) -> Wishes:
    return Wishes(**{"words": ("--model", "net.pt", "--data", "images"), **changes})


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_budgets_are_read(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "-3m", "0", "soon", "nan", "infh", "3 weeks"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="--budget"):
        parse_seconds(text)


@pytest.mark.parametrize(("changes", "name"), [({"radius": -1.0}, "radius"), ({"inputs": 0}, "inputs")])
def test_impossible_wishes(changes: dict, name: str) -> None:
    with pytest.raises(InputError, match=name):
        make_wishes(**changes)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.31, "0.3 s"), (45, "45 s"), (119, "119 s"), (150, "2.5 min"), (7000, "1.9 h"), (2e5, "2.3 days")],
)
def test_times_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize("n", [100, 1000, 100_000])
def test_the_limit_is_that_of_unanimous_votes_rounded_down(n: int) -> None:
    exact = 0.5 * norm.ppf(0.001 ** (1 / n))
    limit = find_largest_radius(n, sigma=0.5, alpha=0.001, smoothing=Smoothing())
    assert exact * (1 - 1e-9) < limit <= exact * (1 + 1e-12)
    uniform = find_largest_radius(n, sigma=0.5, alpha=0.001, smoothing=Smoothing(noise=Noise.UNIFORM))
    assert uniform == pytest.approx(0.5 * (2 * 0.001 ** (1 / n) - 1), rel=1e-9)


def test_a_time_has_loading_sampling_and_checks() -> None:
    # 500 x 100100 samples at 10000/s; 50050 checks of half a millisecond; 4 s for the batch size.
    assert SPEED.estimate_seconds(500, 100_000) == pytest.approx(1 + 4 + 5005 + 50050 * 0.0005)
    # At least 2000 copies are checked, but not more than there are.
    assert SPEED.estimate_seconds(1, 1000) == pytest.approx(1 + 0.25 + 0.11 + 1100 * 0.0005)


@pytest.mark.parametrize(
    ("wishes", "sigma"),
    [
        ({}, 0.5),  # 1.0 has no majority; 0.5 loses nothing against 0.25
        ({"radius": 0.3}, 0.5),
        ({"radius": 0.55}, 0.5),
    ],
)
def test_the_level(wishes: dict, sigma: float) -> None:
    assert choose_level(make_situation(), make_wishes(**wishes)).sigma == sigma


def test_a_small_radius_takes_the_level_that_certifies_most() -> None:
    votes = (make_votes(0.25, share=0.999, right=0.95), make_votes(0.5, share=0.6, right=0.95))
    assert choose_level(make_situation(votes=votes), make_wishes(radius=0.4)).sigma == 0.25


@pytest.mark.slow
def test_without_a_budget_500_inputs_with_the_usual_n() -> None:
    advice = advise(make_situation(), make_wishes())
    assert (advice.plan.inputs, advice.plan.n, advice.plan.decide) == (500, 100_000, None)
    assert advice.choice.command == "smoothcert certify --model net.pt --data images --sigma 0.5 --skip 20 --n 100000"


@pytest.mark.parametrize("inputs", [None, 100, 5000])
@pytest.mark.parametrize("radius", [None, 0.5])
@pytest.mark.parametrize("budget", [10.0, 60.0, 600.0, 36_000.0])
def test_a_budget_is_kept(budget: float, radius: float | None, inputs: int | None) -> None:
    situation, wishes = make_situation(), make_wishes(budget=budget, radius=radius, inputs=inputs)
    votes = choose_level(situation, wishes)
    plan = make_plan(situation, wishes, votes)
    assert time_plan(plan, situation, wishes, votes) <= budget
    assert plan.inputs <= (inputs or 500)
    assert plan.decide == radius


def plan_for(**wishes) -> Plan:
    return make_plan(make_situation(), make_wishes(**wishes), VOTES[1])


def test_a_given_number_of_inputs_is_kept_while_n_can_fall() -> None:
    plan = plan_for(budget=300.0, inputs=1000)
    assert (plan.inputs, plan.n) == (1000, 2000)
    plan = plan_for(budget=300.0)
    assert (plan.inputs, plan.n) == (200, 10_000)


def test_a_budget_that_is_too_short() -> None:
    with pytest.raises(InputError, match="too short: one input with n=1000 takes about"):
        plan_for(budget=1.0)


@pytest.mark.slow
def test_a_radius_is_decided_with_fewer_samples() -> None:
    advice = advise(make_situation(), make_wishes(radius=0.4))
    assert advice.plan.decide == 0.4
    assert "--decide 0.4" in str(advice.choice.command)
    assert advice.choice.largest_radius == 0.4
    assert advice.samples_per_input < 10_000
    (fixed,) = [one for one in advice.alternatives if one.title == "fixed n"]
    assert fixed.seconds is not None
    assert advice.choice.seconds is not None
    assert fixed.seconds > 5 * advice.choice.seconds


def test_simulated_samples_grow_towards_the_edge() -> None:
    plan = Plan(sigma=0.5, inputs=1, decide=0.5)  # needs p = 0.8413
    means = [
        estimate_samples(plan, make_votes(0.5, share=share, votes=10_000), alpha=0.001, smoothing=Smoothing())
        for share in (0.9365, 0.8889, 0.8413)
    ]
    assert 120 < means[0] < 300  # 189 by docs/how-to/sample-until-decided.md, with a look after every sample
    assert 600 < means[1] < 1400  # 905
    assert means[2] > 50_000


@pytest.mark.slow
def test_a_radius_out_of_reach_is_said() -> None:
    advice = advise(make_situation(), make_wishes(radius=3.0, sigma=0.5))
    assert advice.plan.decide is None
    assert any("out of reach at sigma 0.5" in note and "1.905" in note for note in advice.notes)


@pytest.mark.slow
def test_a_model_that_does_not_know_noise_is_warned_of() -> None:
    votes = (make_votes(0.25, share=0.9, right=0.3),)
    assert any(
        "smoothcert train --sigma 0.25" in note for note in advise(make_situation(votes=votes), make_wishes()).notes
    )
    assert not any("Warning" in note for note in advise(make_situation(), make_wishes()).notes)


@pytest.mark.slow
def test_uniform_noise_has_its_own_alternatives() -> None:
    advice = advise(make_situation(noise=Noise.UNIFORM), make_wishes())
    assert "--noise uniform" in str(advice.choice.command)
    titles = [one.title for one in advice.alternatives]
    assert "--certificate uniform-l1-two-class" in titles
    assert not any("dipole" in title or "sigma-rule" in title for title in titles)
    assert any("Left out: dipole" in note for note in advice.notes)


@pytest.mark.slow
def test_alternatives_that_exist() -> None:
    situation = make_situation(cost_of_first_layer=0.25, gives_scores=True, grid=256)
    by_title = {one.title: one for one in advise(situation, make_wishes()).alternatives}
    assert by_title.keys() >= {
        "--n 1000", "--certificate gaussian-two-class", "--certificate dipole", "--certificate second-order",
        "--noise-at first-layer", "--sigma-rule RULE (envelope)", "--sigma-rule optimised --memory",
    }  # fmt: skip
    assert "4 times as fast" in by_title["--noise-at first-layer"].remark
    assert "given up" in by_title["--noise-at first-layer"].remark
    assert "in dimension 784: it rarely gains" in by_title["--sigma-rule RULE (envelope)"].remark
    few = make_situation(num_classes=2, cost_of_pairs=None, cost_of_gradients=None)
    titles = [one.title for one in advise(few, make_wishes()).alternatives]
    assert not any("certificate" in title or "first-layer" in title or "optimised" in title for title in titles)


@pytest.mark.slow
def test_costs_are_relative_to_votes() -> None:
    by_title = {one.title: one.seconds for one in advise(make_situation(), make_wishes()).alternatives}
    ratio = np.divide(by_title["--certificate second-order"], by_title["--certificate dipole"])
    assert ratio == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(
    ("size", "inputs", "expected"),
    [
        (445, 445, []),
        (445, 100, ["--skip", "4", "--max", "100"]),
        (1000, 100, ["--skip", "10"]),
        (7, 5, ["--max", "5"]),
    ],
)
def test_inputs_are_spread(size: int, inputs: int, expected: list[str]) -> None:
    command = write_command(Plan(sigma=0.5, inputs=inputs, n=1000), make_situation(size=size), make_wishes())
    assert shlex.split(command)[6:] == ["--sigma", "0.5", *expected, "--n", "1000"]


def test_words_are_quoted_and_alpha_is_repeated() -> None:
    wishes = dataclasses.replace(make_wishes(alpha=0.01), words=("--model", "my net.pt"))
    command = write_command(Plan(sigma=0.5, inputs=10_000, n=1000), make_situation(), wishes)
    assert command == "smoothcert certify --model 'my net.pt' --sigma 0.5 --n 1000 --alpha 0.01"
