"""Statistics of a run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results_strategies import runs
from smoothcert.analysis import metrics
from smoothcert.analysis.intervals import certified_accuracy_lower_bound, envelope_lower_bound
from smoothcert.analysis.plots import accuracy_curve
from smoothcert.analysis.table_choices import BoundChoice, BoundMethod
from smoothcert.errors import InputError, RunError
from smoothcert.records import Outcome
from smoothcert.runs.result_columns import NO_CLASS, ResultColumns, outcome_code

A, F = Outcome.ABSTAINED, Outcome.FAILED
radii = st.lists(st.floats(0, 12), min_size=1, max_size=10).map(sorted)


def make(rows: list[tuple[int, int | Outcome, float]], **changes: object) -> ResultColumns:
    """A run from (label, prediction or outcome, radius) rows."""
    decided = [not isinstance(prediction, Outcome) for _, prediction, _ in rows]
    m = len(rows)
    results = ResultColumns(
        name="run",
        index=np.arange(m),
        label=np.array([label for label, _, _ in rows]),
        prediction=np.array([p if ok else NO_CLASS for (_, p, _), ok in zip(rows, decided, strict=True)]),
        outcome=np.array(
            [
                outcome_code(p if isinstance(p, Outcome) else Outcome.CERTIFIED if r else Outcome.PREDICTED)
                for _, p, r in rows
            ]
        ),
        radius=np.array([r for _, _, r in rows]),
        has_radius=True,
        sigma=np.full(m, 0.5),
        seconds=np.full(m, math.nan),
        p_a=np.full(m, math.nan),
        alpha=0.001,
    )
    return replace(results, **changes)  # type: ignore[arg-type]


FIVE = make([(0, 0, 0.5), (0, 1, 2.0), (1, 1, 1.0), (1, A, 0.0), (2, F, 0.0)])


def test_certified_accuracy_counts_radius_at_least_r_and_only_right_answers() -> None:
    below, above = math.nextafter(0.5, 0), math.nextafter(0.5, 1)
    found = metrics.certified_accuracy(FIVE, [0, below, 0.5, above, 1.0, 1.5, 2.0])
    assert found.tolist() == [0.4, 0.4, 0.4, 0.2, 0.2, 0.0, 0.0]


def test_rates() -> None:
    assert metrics.accuracy(FIVE) == 0.4
    assert metrics.misclassification_rate(FIVE) == 0.2
    assert metrics.abstention_rate(FIVE) == 0.2
    assert metrics.failure_rate(FIVE) == 0.2
    assert metrics.average_certified_radius(FIVE) == pytest.approx(0.3, rel=1e-15)


@given(run=runs())
def test_rates_sum_to_one(run: ResultColumns) -> None:
    rates = (metrics.accuracy, metrics.misclassification_rate, metrics.abstention_rate, metrics.failure_rate)
    assert math.fsum(rate(run) for rate in rates) == pytest.approx(1.0, rel=1e-12)


@given(run=runs(), at=radii)
def test_certified_accuracy_never_rises_and_is_the_definition(run: ResultColumns, at: list[float]) -> None:
    found = metrics.certified_accuracy(run, at)
    assert (np.diff(found) <= 0).all()
    counted = [sum(c and r >= wanted for c, r in zip(run.correct, run.radius, strict=True)) for wanted in at]
    assert found.tolist() == [count / len(run) for count in counted]


@given(run=runs())
def test_acr_is_the_area_under_the_curve(run: ResultColumns) -> None:
    curve = accuracy_curve(run)
    area = float(np.sum(np.diff(curve.x) * curve.y[1:]))
    assert area == pytest.approx(metrics.average_certified_radius(run), rel=1e-9, abs=1e-300)


@given(several=st.lists(runs(), min_size=1, max_size=4), at=radii)
def test_envelope_is_the_least_curve_above_all(several: list[ResultColumns], at: list[float]) -> None:
    best = metrics.envelope(several, at)
    curves = np.array([metrics.certified_accuracy(run, at) for run in several])
    assert (best >= curves).all()
    assert (best == curves).any(axis=0).all()


def test_class_accuracy_and_its_population_spread() -> None:
    found = metrics.class_accuracy(FIVE)
    assert found.classes.tolist() == [0, 1, 2]
    assert found.points.tolist() == [2, 2, 1]
    assert found.accuracy.tolist() == [0.5, 0.5, 0.0]
    assert found.spread == pytest.approx(math.sqrt(2) / 6)  # variance 1/18 with divisor 3
    assert metrics.class_accuracy(FIVE, radius=0.7).accuracy.tolist() == [0.0, 0.5, 0.0]


@given(run=runs())
def test_class_accuracies_average_to_the_accuracy(run: ResultColumns) -> None:
    found = metrics.class_accuracy(run)
    assert float(found.points @ found.accuracy) / len(run) == pytest.approx(metrics.accuracy(run), abs=1e-12)


def test_p_a_distribution_is_over_known_values() -> None:
    run = replace(FIVE, p_a=np.array([0.0, 0.25, 1.0, math.nan, 0.5]))
    assert metrics.p_a_distribution(run, edges=[0, 0.25, 0.5, 1]).tolist() == [0.25, 0.25, 0.5]
    with pytest.raises(RunError, match="p_A_bar"):
        metrics.p_a_distribution(FIVE, edges=[0, 1])
    with pytest.raises(InputError, match="ascending edges"):
        metrics.p_a_distribution(run, edges=[0, 0.5])


def test_gold_comparison_has_every_case() -> None:
    rows: list[tuple[int, int | Outcome, float]] = [(0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 1, 0), (0, A, 0), (0, F, 0)]
    gold_rows: list[tuple[int, int | Outcome, float]] = [
        (0, 0, 0),
        (0, 1, 0),
        (0, 1, 0),
        (0, A, 0),
        (0, 0, 0),
        (0, 0, 0),
    ]
    gold = make([*gold_rows, (5, 5, 0)])
    shuffled = gold.subset(np.array([6, 3, 1, 0, 5, 2, 4]))
    found = metrics.compare_with_gold(make(rows), shuffled)
    assert found == metrics.GoldComparison(*[1 / 6] * 6)


def test_gold_must_hold_the_same_inputs_and_labels() -> None:
    with pytest.raises(RunError, match="lacks 4 of the 5 inputs of run, the first of index 1"):
        metrics.compare_with_gold(FIVE, FIVE.subset(np.array([0])))
    with pytest.raises(RunError, match="disagree on labels"):
        metrics.compare_with_gold(FIVE, make([(2, 0, 0.5)] * 5))


def test_common_inputs_are_aligned() -> None:
    first, second = FIVE.subset(np.array([4, 2, 0])), FIVE.subset(np.array([0, 1, 2]))
    assert [run.index.tolist() for run in metrics.common_inputs([first, second])] == [[0, 2], [0, 2]]
    assert not metrics.same_inputs([first, second])
    assert metrics.same_inputs([first, first.subset(np.array([2, 0, 1]))])
    with pytest.raises(RunError, match="no input is in all of"):
        metrics.common_inputs([FIVE.subset(np.array([0])), FIVE.subset(np.array([1]))])


def test_predictions_have_accuracy_but_no_radii() -> None:
    run = make([(0, 0, 0), (0, 1, 0)], has_radius=False)
    assert metrics.certified_accuracy(run, [0]).tolist() == [0.5]
    for ask in (
        lambda: metrics.certified_accuracy(run, [0, 0.1]),
        lambda: metrics.average_certified_radius(run),
        lambda: metrics.class_accuracy(run, radius=0.1),
    ):
        with pytest.raises(RunError, match="without radii"):
            ask()


def test_inputs_without_label_have_no_accuracy() -> None:
    run = replace(FIVE, label=np.array([0, 0, 1, 1, NO_CLASS]))
    with pytest.raises(RunError, match="1 of the 5 inputs of run have no label"):
        metrics.certified_accuracy(run, [0])
    assert metrics.abstention_rate(run) == 0.2


@pytest.mark.parametrize("radius", [-0.1, math.nan, math.inf])
def test_radii_are_checked(radius: float) -> None:
    with pytest.raises(InputError, match="radii"):
        metrics.certified_accuracy(FIVE, [radius])


MANY = make([(0, 0, 1.0)] * 90 + [(0, A, 0.0)] * 10)


@pytest.mark.parametrize("method", list(BoundMethod))
def test_bound_lies_below_the_accuracy(method: BoundMethod) -> None:
    choice = BoundChoice(method=method, rho=0.01)
    lower = certified_accuracy_lower_bound(MANY, [0, 1, 2], choice=choice)
    assert 0.8 < lower[0] == lower[1] < 0.9
    assert lower[2] == 0


def test_envelope_bound_pays_for_the_choice() -> None:
    choice = BoundChoice(method=BoundMethod.BERNSTEIN, rho=0.01)
    single = certified_accuracy_lower_bound(MANY, [0], choice=choice)
    shared = certified_accuracy_lower_bound(MANY, [0], choice=replace(choice, rho=0.01 / 50))
    assert envelope_lower_bound([MANY] * 50, [0], choice=choice).tolist() == shared.tolist()
    assert shared < single


def test_bound_needs_independent_noise_and_an_honest_alpha() -> None:
    choice = BoundChoice()
    with pytest.raises(RunError, match="shared their noise"):
        certified_accuracy_lower_bound(replace(MANY, independent_noise=False), [0], choice=choice)
    with pytest.raises(InputError, match="does not state its error probability"):
        certified_accuracy_lower_bound(replace(MANY, alpha=None), [0], choice=choice)
    with pytest.raises(InputError, match="a smaller one would claim more"):
        certified_accuracy_lower_bound(MANY, [0], choice=BoundChoice(alpha=0.0001))
    from_log = certified_accuracy_lower_bound(replace(MANY, alpha=None), [0], choice=BoundChoice(alpha=0.001))
    assert from_log.tolist() == certified_accuracy_lower_bound(MANY, [0], choice=choice).tolist()
